//! One segment: a preallocated or sealed file of records, named after the first one.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::{
    event::Seq,
    journal::log::{
        files::File,
        sealed::{Seal, SealedFile},
        segment_file::{HEADER_BYTES, name_of},
    },
    time::Timestamp,
};

/// The distance of indexed offsets, in bytes: 256 entries for a segment of 64 MiB.
const INDEX_BYTES: u64 = 256 << 10;

/// A segment that is being read or filled.
#[derive(Debug)]
pub(crate) struct Segment {
    /// The number of its first record, which may not be written yet.
    pub(crate) first: Seq,
    /// Its content, read as if it were not sealed.
    pub(crate) file: Arc<dyn File>,
    sealed: Option<Arc<SealedFile>>,
    end: AtomicU64,
    /// The time of its last record, in milliseconds.
    time: AtomicU64,
    is_named: AtomicBool,
    places: Mutex<Vec<(Seq, u64)>>,
}

impl Segment {
    /// An empty segment.
    pub(crate) fn new(first: Seq, file: Arc<dyn File>) -> Self {
        Self {
            first,
            file,
            sealed: None,
            end: AtomicU64::new(HEADER_BYTES),
            time: AtomicU64::new(0),
            is_named: AtomicBool::new(false),
            places: Mutex::default(),
        }
    }

    /// A sealed segment.
    pub(crate) fn sealed(sealed: SealedFile) -> Self {
        let Seal { first, end, time, .. } = sealed.seal;
        let sealed = Arc::new(sealed);
        let file = Arc::clone(&sealed);
        let segment = Self { sealed: Some(sealed), ..Self::new(first, file) };
        segment.set_end(end, time);
        segment.set_named();
        segment
    }

    /// Its seal; `None` when it is not sealed.
    pub(crate) fn seal(&self) -> Option<&Seal> {
        self.sealed.as_ref().map(|sealed| &sealed.seal)
    }

    /// Its size on the disk, in bytes.
    pub(crate) fn stored_bytes(&self) -> io::Result<u64> {
        self.sealed.as_ref().map_or_else(|| self.file.size(), |sealed| sealed.stored_bytes())
    }

    /// Whether its name is on the disk, so the segment before it is full.
    pub(crate) fn is_named(&self) -> bool {
        self.is_named.load(Ordering::Acquire)
    }

    /// Records that its name is on the disk.
    pub(crate) fn set_named(&self) {
        self.is_named.store(true, Ordering::Release);
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
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let last = places.last().map_or(HEADER_BYTES, |(_, offset)| *offset);
        if offset >= last + INDEX_BYTES {
            places.push((seq, offset));
        }
    }

    /// The nearest indexed record at or before `seq`, and its offset.
    ///
    /// Errors: the index of a sealed segment cannot be read.
    pub(crate) fn place_before(&self, seq: Seq) -> io::Result<(Seq, u64)> {
        if let Some(sealed) = &self.sealed {
            return sealed.place_before(seq);
        }
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let after = places.partition_point(|(placed, _)| *placed <= seq);
        let place = after.checked_sub(1).and_then(|at| places.get(at)).copied();
        Ok(place.unwrap_or((self.first, HEADER_BYTES)))
    }

    /// The nearest indexed record after `seq`; `None` when none is in this segment.
    ///
    /// Errors: the index of a sealed segment cannot be read.
    pub(crate) fn place_after(&self, seq: Seq) -> io::Result<Option<Seq>> {
        if let Some(sealed) = &self.sealed {
            return sealed.place_after(seq);
        }
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let after = places.partition_point(|(placed, _)| *placed <= seq);
        Ok(places.get(after).map(|(placed, _)| *placed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::log::{files::Files, memory::MemoryFiles};

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
}
