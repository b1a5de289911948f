//! One segment: a preallocated or sealed file of records, named after the first one.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::{
    Seq,
    log::{
        cursor::Cursor,
        files::File,
        names::NotedNames,
        sealed::{Seal, SealedFile},
        segment_file::{HEADER_BYTES, name_of},
    },
    time::Timestamp,
};

/// The distance of indexed offsets, in bytes: 256 entries for a segment of 64 MiB.
const INDEX_BYTES: u64 = 256 << 10;

/// A record, and its offset.
type IndexedRecord = (Seq, u64);

/// How the offset of a record is found.
#[derive(Debug)]
enum Index {
    /// By places that were noted when the records were written or read, in order.
    Noted {
        places: Mutex<Vec<IndexedRecord>>,
        /// The offset from which the next place is noted, so that most records take no lock.
        next: AtomicU64,
    },
    /// By bisection, because only the end of the file was read.
    Searched,
    /// By the index of the sealed file.
    Sealed(Arc<SealedFile>),
}

/// A segment that is being read or filled.
#[derive(Debug)]
pub(crate) struct Segment {
    /// The number of its first record, which may not be written yet.
    pub(crate) first: Seq,
    /// Its content, read as if it were not sealed.
    pub(crate) file: Arc<dyn File>,
    index: Index,
    end: AtomicU64,
    /// The time of its last record, in milliseconds.
    time: AtomicU64,
    is_named: AtomicBool,
    has_names: AtomicBool,
    /// The names of its records, until a file has them.
    pub(crate) noted: Arc<NotedNames>,
}

impl Segment {
    /// An empty segment.
    pub(crate) fn new(first: Seq, file: Arc<dyn File>) -> Self {
        Self {
            first,
            file,
            index: Index::Noted {
                places: Mutex::default(),
                next: AtomicU64::new(HEADER_BYTES + INDEX_BYTES),
            },
            end: AtomicU64::new(HEADER_BYTES),
            time: AtomicU64::new(0),
            is_named: AtomicBool::new(false),
            has_names: AtomicBool::new(false),
            noted: Arc::default(),
        }
    }

    /// A full segment of which only the end is known, and the time of its last record.
    pub(crate) fn unread(first: Seq, file: Arc<dyn File>, end: u64, time: Timestamp) -> Self {
        let segment = Self { index: Index::Searched, ..Self::new(first, file) };
        segment.set_end(end, time);
        segment
    }

    /// A sealed segment.
    pub(crate) fn sealed(sealed: SealedFile) -> Self {
        let Seal { first, end, time, .. } = sealed.seal;
        let sealed = Arc::new(sealed);
        let file = Arc::clone(&sealed);
        let segment = Self { index: Index::Sealed(sealed), ..Self::new(first, file) };
        segment.set_end(end, time);
        segment.set_named();
        segment
    }

    /// Its seal; `None` when it is not sealed.
    pub(crate) fn seal(&self) -> Option<&Seal> {
        match &self.index {
            Index::Sealed(sealed) => Some(&sealed.seal),
            Index::Noted { .. } | Index::Searched => None,
        }
    }

    /// Whether the offset of a record is found by an index.
    pub(crate) fn has_index(&self) -> bool {
        !matches!(self.index, Index::Searched)
    }

    /// Its size on the disk, in bytes.
    pub(crate) fn stored_bytes(&self) -> io::Result<u64> {
        match &self.index {
            Index::Sealed(sealed) => sealed.stored_bytes(),
            Index::Noted { .. } | Index::Searched => self.file.size(),
        }
    }

    /// Whether its name is on the disk, so the segment before it is full.
    pub(crate) fn is_named(&self) -> bool {
        self.is_named.load(Ordering::Acquire)
    }

    /// Records that its name is on the disk.
    pub(crate) fn set_named(&self) {
        self.is_named.store(true, Ordering::Release);
    }

    /// Whether a file has the names of its records.
    pub(crate) fn has_names(&self) -> bool {
        self.has_names.load(Ordering::Acquire)
    }

    /// Records whether the file of names is there.
    pub(crate) fn set_has_names(&self, has_names: bool) {
        self.has_names.store(has_names, Ordering::Release);
    }

    /// Takes over what is known of the names of `other`, a segment of the same records.
    pub(crate) fn with_names_of(mut self, other: &Self) -> Self {
        self.noted = Arc::clone(&other.noted);
        self.set_has_names(other.has_names());
        self
    }

    /// The time of its last record; zero when it has none.
    pub(crate) fn time(&self) -> Timestamp {
        Timestamp::from_millis(self.time.load(Ordering::Acquire))
    }

    /// The name of its file.
    pub(crate) fn name(&self) -> String {
        name_of(self.first)
    }

    /// The end of its last complete record, in bytes.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Sets the end of the complete records, and the time of the last one.
    pub(crate) fn set_end(&self, end: u64, time: Timestamp) {
        self.time.store(time.as_millis(), Ordering::Release);
        self.end.store(end, Ordering::Release);
    }

    /// Indexes that `seq` begins at `offset`, if the last entry is far enough away.
    pub(crate) fn note_place(&self, seq: Seq, offset: u64) {
        let Index::Noted { places, next } = &self.index else { return };
        // Only the thread that writes or recovers the segment notes places.
        if offset >= next.load(Ordering::Relaxed) {
            next.store(offset + INDEX_BYTES, Ordering::Relaxed);
            places.lock().unwrap_or_else(PoisonError::into_inner).push((seq, offset));
        }
    }

    /// The nearest indexed record at or before `seq`, and its offset; without an index, the nearest
    /// good one.
    ///
    /// Errors: the index of a sealed segment, or a file without an index, cannot be read.
    pub(crate) fn place_before(&self, seq: Seq) -> io::Result<(Seq, u64)> {
        match &self.index {
            Index::Sealed(sealed) => sealed.place_before(seq),
            Index::Searched => self.search(seq),
            Index::Noted { places, .. } => {
                let places = places.lock().unwrap_or_else(PoisonError::into_inner);
                let (before, _) = split_after(&places, seq);
                Ok(before.last().copied().unwrap_or((self.first, HEADER_BYTES)))
            }
        }
    }

    /// The nearest indexed record after `seq`; without an index, the nearest good one. `None` when
    /// none is in this segment.
    ///
    /// Errors: the index of a sealed segment, or a file without an index, cannot be read.
    pub(crate) fn place_after(&self, seq: Seq) -> io::Result<Option<Seq>> {
        match &self.index {
            Index::Sealed(sealed) => sealed.place_after(seq),
            Index::Searched => self.search_after(seq),
            Index::Noted { places, .. } => {
                let places = places.lock().unwrap_or_else(PoisonError::into_inner);
                let (_, after) = split_after(&places, seq);
                Ok(after.first().map(|(placed, _)| *placed))
            }
        }
    }

    /// Finds the last good record at or before `seq`: its part of the file by bisection, then every
    /// record of that part in order, so that damage before the record does not hide it.
    ///
    /// Shape: about ten reads for a segment of 64 MiB; more if records are larger than a read.
    fn search(&self, seq: Seq) -> io::Result<(Seq, u64)> {
        let (mut place, mut end) = ((self.first, HEADER_BYTES), self.end());
        let mut cursor = Cursor::new(Arc::clone(&self.file), HEADER_BYTES);
        while end.saturating_sub(place.1) > INDEX_BYTES && seq > place.0 {
            let middle = place.1 + (end - place.1) / 2;
            cursor.seek(Arc::clone(&self.file), middle);
            match cursor.find_record(end)? {
                Some((offset, entry)) if entry.seq <= seq => place = (entry.seq, offset),
                Some(_) | None => end = middle,
            }
        }
        cursor.seek(Arc::clone(&self.file), place.1);
        while let Some((offset, entry)) =
            cursor.find_record(self.end())?.filter(|(_, entry)| entry.seq <= seq)
        {
            place = (entry.seq, offset);
        }
        Ok(place)
    }

    /// The first good record after `seq`; the one at `seq` may be damaged.
    fn search_after(&self, seq: Seq) -> io::Result<Option<Seq>> {
        let mut cursor = Cursor::new(Arc::clone(&self.file), self.search(seq)?.1);
        while let Some((_, entry)) = cursor.find_record(self.end())? {
            if entry.seq > seq {
                return Ok(Some(entry.seq));
            }
        }
        Ok(None)
    }
}

/// The places at or before `seq`, and those after it.
fn split_after(places: &[IndexedRecord], seq: Seq) -> (&[IndexedRecord], &[IndexedRecord]) {
    places.split_at(places.partition_point(|(placed, _)| *placed <= seq))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{
        files::Files,
        memory::MemoryFiles,
        record::{self, Record, RecordKind},
    };

    #[test]
    fn the_nearest_place_before_a_record_is_found() {
        let files = MemoryFiles::new();
        let segment = Segment::new(Seq(100), files.create("a").expect("created"));
        assert_eq!(segment.place_before(Seq(500)).expect("in memory"), (Seq(100), HEADER_BYTES));
        let far = HEADER_BYTES + INDEX_BYTES;
        segment.note_place(Seq(150), far - 1);
        segment.note_place(Seq(200), far);
        segment.note_place(Seq(300), far + INDEX_BYTES);
        let found =
            [199, 200, 299, 300, 900].map(|seq| segment.place_before(Seq(seq)).expect("in memory").0.0);
        assert_eq!(found, [100, 200, 200, 300, 300]);
    }

    #[test]
    fn segment_search_finds_records_next_to_damage() {
        let file = MemoryFiles::new().create("a").expect("created");
        let mut bytes = vec![0; usize::try_from(HEADER_BYTES).expect("small")];
        let mut offsets = Vec::new();
        for seq in 1..=40_u64 {
            offsets.push(bytes.len() as u64);
            // The sizes are from a few bytes to more than the distance of places.
            let body =
                vec![b'x'; usize::try_from(seq * seq * 7_919 % (INDEX_BYTES + 40_000)).expect("small")];
            let record = Record { kind: RecordKind(1), seq: Seq(seq), time: Timestamp::ZERO, body: &body };
            record::encode(record, Seq(seq - 1), &mut bytes);
        }
        file.write_at(&bytes, 0).expect("written");
        let segment = Segment::unread(Seq(1), Arc::clone(&file), bytes.len() as u64, Timestamp::ZERO);
        let offset_of = |seq: u64| offsets[usize::try_from(seq - 1).expect("small")];
        for seq in 1..=41 {
            let found = segment.place_before(Seq(seq)).expect("read");
            assert_eq!(found, (Seq(seq.min(40)), offset_of(seq.min(40))));
            let after = segment.place_after(Seq(seq)).expect("read");
            assert_eq!(after, (seq < 40).then(|| Seq(seq + 1)));
        }
        for damaged in 2..40 {
            file.write_at(b"!", offset_of(damaged) + 9).expect("written");
            assert_eq!(segment.place_after(Seq(damaged)).expect("read"), Some(Seq(damaged + 1)));
            let places = [damaged, damaged + 1].map(|seq| segment.place_before(Seq(seq)).expect("read").0.0);
            assert_eq!(places, [damaged - 1, damaged + 1]);
            let whole = bytes.get(usize::try_from(offset_of(damaged)).expect("small")..).expect("there");
            file.write_at(&whole[..16], offset_of(damaged)).expect("written");
        }
    }
}
