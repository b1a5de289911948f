//! Reads the journal from any position, and follows it.
//!
//! A reader owns its position, so no record is lost between batches. It reads files up to the
//! written position, never the writer's memory. A record can be read as soon as its append is
//! answered.

use std::{io, path::PathBuf, sync::Arc};

use tokio::sync::watch;

use crate::{
    Seq,
    log::{
        cursor::{Cursor, Entry, Step},
        record::{self, Damage, Record, RecordKind},
        segment::Segment,
        segment_file::HEADER_BYTES,
        store::Store,
    },
    time::Timestamp,
};

/// The fewest skipped records for which a seek without an index is worth its reads: stepping over
/// so many costs some 100 us, as a bisection does.
const SEARCH_RECORDS_MIN: u64 = 1_000;

/// Why records cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file operation failed.
    #[error("read {} from byte {offset} on", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The offset, in bytes.
        offset: u64,
        /// The cause.
        source: io::Error,
    },
    /// A written record is damaged or missing.
    #[error("read the record at byte {offset} of {}: {damage}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset, in bytes.
        offset: u64,
        /// The damage.
        damage: Damage,
    },
    /// The record was deleted with its segment.
    #[error("read record {wanted}: the journal begins with {oldest}")]
    Gone {
        /// The requested record.
        wanted: Seq,
        /// The oldest stored record.
        oldest: Seq,
    },
}

/// The journal was closed, and all its records were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("wait for records: the journal is closed")]
pub struct Closed;

/// A record that owns its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordBuf {
    /// The kind of the body.
    pub kind: RecordKind,
    /// Its position.
    pub seq: Seq,
    /// When it was appended.
    pub time: Timestamp,
    /// The appended bytes.
    pub body: Vec<u8>,
}

/// One consumer's position in the journal.
#[derive(Debug)]
pub struct Reader {
    store: Arc<Store>,
    written: watch::Receiver<Seq>,
    next: Seq,
    place: Option<OpenSegment>,
    /// The place of the next record while no file is open: the segment's first record, and the
    /// offset.
    resting: Option<(Seq, u64)>,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct OpenSegment {
    segment: Arc<Segment>,
    cursor: Cursor,
    /// The last record that may be read from this segment before the written position is checked
    /// again.
    last: Seq,
}

/// Consecutive records, borrowed from the reader.
#[derive(Debug, Clone, Copy)]
pub struct Records<'a> {
    cursor: Option<&'a Cursor>,
    entries: &'a [Entry],
}

impl Reader {
    pub(crate) fn new(store: Arc<Store>, written: watch::Receiver<Seq>, next: Seq) -> Self {
        Self {
            store,
            written,
            next: next.max(Seq::ZERO.next()),
            place: None,
            resting: None,
            entries: Vec::new(),
        }
    }

    /// The position of the next record.
    pub fn position(&self) -> Seq {
        self.next
    }

    /// Takes up to `records_max` records; none when all written records were taken.
    ///
    /// Shape: at most the records of one read of 256 KiB; at least one if there is any.
    ///
    /// Errors: the position does not move, so the same call fails again.
    pub fn next_batch(&mut self, records_max: usize) -> Result<Records<'_>, ReadError> {
        self.entries.clear();
        if self.place.as_ref().is_none_or(|place| self.next > place.last) && !self.advance()? {
            return Ok(Records { cursor: None, entries: &[] });
        }
        let Some(place) = &mut self.place else { return Ok(Records { cursor: None, entries: &[] }) };
        while self.entries.len() < records_max && self.next <= place.last {
            match place.cursor.step() {
                Step::Record(entry) if entry.seq == self.next => {
                    self.next = entry.seq.next();
                    self.entries.push(entry);
                }
                // An index entry may point before the requested record.
                Step::Record(entry) if entry.seq < self.next => {}
                Step::Short if self.entries.is_empty() && place.refill(&self.store)? => {}
                step @ (Step::Record(_) | Step::Short | Step::End | Step::Damaged(_)) => {
                    if !self.entries.is_empty() {
                        break;
                    }
                    let error = place.damage(&self.store, step, self.next);
                    place.rewind(&self.store, self.next)?;
                    return Err(error);
                }
            }
        }
        Ok(Records { cursor: Some(&place.cursor), entries: &self.entries })
    }

    /// Takes the next record; returns its file and its offset there, `None` when it is not written
    /// yet.
    ///
    /// Errors: as [`Self::next_batch`].
    pub(crate) fn place_of_next(&mut self) -> Result<Option<(PathBuf, u64)>, ReadError> {
        let wanted = self.next;
        let taken = self.next_batch(1)?.iter().find(|record| record.seq == wanted);
        let Some(bytes) = taken.map(|record| record::size_of(record.body.len())) else { return Ok(None) };
        let place = self.place.as_ref().expect("the record was read there");
        let path = self.store.files.path(&place.segment.name());
        Ok(Some((path, place.cursor.offset() - bytes as u64)))
    }

    /// Moves forward to `next`. Reads only the records between the nearest indexed offset and
    /// `next`; without an index, all skipped records if they are fewer than `SEARCH_RECORDS_MIN`.
    pub fn skip_to(&mut self, next: Seq) {
        let skipped = next.0.saturating_sub(self.next.0);
        if skipped == 0 {
            return;
        }
        self.next = next;
        self.resting = None;
        if let Some(place) = &mut self.place
            && (place.segment.has_index() || skipped >= SEARCH_RECORDS_MIN)
            && let Ok((_, offset)) = place.segment.place_before(next)
            && offset > place.cursor.offset()
        {
            place.cursor.seek(Arc::clone(&place.segment.file), offset);
        }
    }

    /// Releases its memory and its file until the next call, which then continues at the same
    /// offset.
    pub fn rest(&mut self) {
        self.entries = Vec::new();
        if let Some(OpenSegment { segment, cursor, .. }) = self.place.take() {
            self.resting = Some((segment.first, cursor.offset()));
        }
    }

    /// Skips a place that cannot be read: to the next block of a sealed segment, to the next
    /// indexed record of an unsealed one, to the next good record if it has no index, or else to
    /// the next segment. Returns whether there is such a record.
    pub(crate) fn skip_damaged(&mut self) -> bool {
        let Ok((segment, following)) = self.store.segment_of(self.next) else { return false };
        // A damaged index has no usable offset.
        let within = segment.place_after(self.next).ok().flatten();
        let Some(next) = within.or(following) else { return false };
        (self.next, self.place, self.resting) = (next, None, None);
        true
    }

    /// Waits until there is a record to take; returns at once if there is.
    ///
    /// Errors: the journal was closed, and all records were taken.
    pub async fn wait(&mut self) -> Result<(), Closed> {
        let next = self.next;
        self.written.wait_for(|written| *written >= next).await.map(|_| ()).map_err(|_| Closed)
    }

    /// Seeks to the next record; returns whether it is written.
    fn advance(&mut self) -> Result<bool, ReadError> {
        // Read the written position first: all records up to it have their segment in the list.
        let written = *self.written.borrow();
        if self.next > written {
            return Ok(false);
        }
        let (segment, following) = match self.store.segment_of(self.next) {
            Ok(found) => found,
            Err(oldest) => return Err(ReadError::Gone { wanted: self.next, oldest }),
        };
        let last = following.map_or(written, |following| written.min(Seq(following.0.saturating_sub(1))));
        match &mut self.place {
            Some(place) if Arc::ptr_eq(&place.segment, &segment) => place.last = last,
            Some(place) => {
                place.segment = segment;
                place.last = last;
                place.rewind(&self.store, self.next)?;
            }
            None => {
                let offset = match self.resting {
                    Some((first, offset)) if first == segment.first => offset,
                    Some(_) | None => offset_before(&self.store, &segment, self.next)?,
                };
                self.resting = None;
                let cursor = Cursor::new(Arc::clone(&segment.file), offset);
                self.place = Some(OpenSegment { segment, cursor, last });
            }
        }
        Ok(true)
    }
}

impl OpenSegment {
    fn refill(&mut self, store: &Store) -> Result<bool, ReadError> {
        // The end is the end of a record, so no byte is read twice.
        let offset = self.cursor.offset();
        self.cursor.refill(self.segment.end()).map_err(|source| failed(store, &self.segment, offset, source))
    }

    /// Seeks to the nearest indexed offset before `seq`, keeping the buffer's memory.
    fn rewind(&mut self, store: &Store, seq: Seq) -> Result<(), ReadError> {
        // The cursor may be in another segment, so it must not continue there if this fails.
        self.cursor.seek(Arc::clone(&self.segment.file), HEADER_BYTES);
        let offset = offset_before(store, &self.segment, seq)?;
        self.cursor.seek(Arc::clone(&self.segment.file), offset);
        Ok(())
    }

    fn damage(&self, store: &Store, step: Step, expected: Seq) -> ReadError {
        let damage = match step {
            Step::Damaged(damage) => damage,
            Step::Record(entry) => Damage::Order { expected, found: entry.seq },
            Step::Short | Step::End => Damage::Missing { expected },
        };
        let (path, offset) = (store.files.path(&self.segment.name()), self.cursor.offset());
        store.health.note_damage(&path, Some(offset), damage.to_string());
        ReadError::Damaged { path, offset, damage }
    }
}

/// The offset to start reading from for the record `seq`.
fn offset_before(store: &Store, segment: &Segment, seq: Seq) -> Result<u64, ReadError> {
    let place = segment.place_before(seq).map_err(|source| failed(store, segment, HEADER_BYTES, source))?;
    Ok(place.1)
}

/// The error of a read at `offset`; damage is added to the health.
fn failed(store: &Store, segment: &Segment, offset: u64, source: io::Error) -> ReadError {
    let path = store.files.path(&segment.name());
    if source.kind() == io::ErrorKind::InvalidData {
        store.health.note_damage(&path, Some(offset), source.to_string());
    }
    ReadError::Io { path, offset, source }
}

impl<'a> Records<'a> {
    /// Number of records.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The records in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record<'a>> + use<'a> {
        let cursor = self.cursor;
        self.entries.iter().map(move |entry| {
            cursor.expect("a batch with records has the cursor that read them").record(entry)
        })
    }
}

impl RecordBuf {
    /// Borrows the record.
    pub fn as_record(&self) -> Record<'_> {
        let Self { kind, seq, time, ref body } = *self;
        Record { kind, seq, time, body }
    }
}

impl From<Record<'_>> for RecordBuf {
    fn from(record: Record<'_>) -> Self {
        let Record { kind, seq, time, body } = record;
        Self { kind, seq, time, body: body.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use crate::{
        AppendBatch, Journal, Level,
        log::{files::Files, memory::MemoryFiles},
    };

    #[test]
    fn answered_append_is_readable_at_once() {
        let journal = open(&MemoryFiles::new()).journal;
        let mut reader = journal.read_from(Seq(1));
        for number in 1..60 {
            assert!(reader.next_batch(9).expect("readable").is_empty());
            journal.append_blocking(batch(number), Level::Written).expect("appended");
            let records = reader.next_batch(9).expect("readable");
            assert_eq!(records.iter().map(|record| number_of(record.body)).collect::<Vec<_>>(), [number]);
        }
    }

    #[tokio::test]
    async fn a_reader_replays_and_then_follows_over_segments() {
        let journal = open(&MemoryFiles::new()).journal;
        journal.append(batch_of(1..30), Level::Synced).await.expect("appended");
        let appends = async {
            for number in 30..90 {
                journal.append(batch(number), Level::Written).await.expect("appended");
            }
        };
        let follows = async {
            let mut reader = journal.read_from(Seq(5));
            let mut seen = Vec::new();
            while reader.position() < Seq(90) {
                reader.wait().await.expect("open");
                let records = reader.next_batch(4).expect("readable");
                assert!(!records.is_empty());
                seen.extend(records.iter().map(|record| (record.seq.0, number_of(record.body))));
            }
            seen
        };
        let ((), seen) = tokio::join!(appends, follows);
        assert_eq!(seen, (5..90).map(|number| (number, number)).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn reader_returns_remaining_records_before_reporting_closed() {
        let journal = open(&MemoryFiles::new()).journal;
        journal.append(batch(1), Level::Written).await.expect("appended");
        let mut reader = journal.read_from(Seq(1));
        journal.close().await.expect("closed");
        assert_eq!(reader.wait().await, Ok(()));
        assert_eq!(reader.next_batch(9).expect("readable").len(), 1);
        assert_eq!(reader.wait().await, Err(Closed));
    }

    #[test]
    fn single_records_are_found_wherever_they_are() {
        let journal = large_journal();
        for seq in [1, 2, 777, 1_999, 2_000] {
            let found = journal.read_at(Seq(seq)).expect("readable").expect("there");
            assert_eq!((found.seq, number_of_padded(&found.body)), (Seq(seq), seq));
            let searched = journal.find(|record| number_of_padded(record.body) == seq).expect("readable");
            assert_eq!(searched, Some(found));
        }
        assert_eq!(journal.read_at(Seq(2_001)).expect("readable"), None);
        assert_eq!(journal.find(|_| false).expect("readable"), None);
    }

    #[test]
    fn a_record_is_decoded_at_its_place() {
        let files = MemoryFiles::new();
        let journal = open(&files).journal;
        (1..60).for_each(|number| drop(journal.append_blocking(batch(number), Level::Synced)));
        for seq in [1, 2, 17, 59].map(Seq) {
            let (path, offset) = journal.place_of(seq).expect("readable").expect("there");
            let name = path.file_name().expect("a name").to_str().expect("text");
            let mut bytes = vec![0; 100];
            let count = files.open(name).expect("there").read_at(&mut bytes, offset).expect("read");
            let record::Decoded::Record { record, .. } = record::decode(&bytes[..count]) else {
                panic!("no record at byte {offset} of {name}");
            };
            assert_eq!((record.seq, number_of(record.body)), (seq, seq.0));
        }
        assert_eq!(journal.place_of(Seq(60)).expect("readable"), None);
    }

    #[test]
    fn reader_skips_forward_and_never_back() {
        let journal = large_journal();
        let mut reader = journal.read_from(Seq(1));
        for (to, found) in
            [(2, 2), (5, 5), (3, 6), (700, 700), (1_500, 1_500), (1_999, 1_999), (2_000, 2_000)]
        {
            reader.skip_to(Seq(to));
            let records = reader.next_batch(1).expect("readable");
            let numbers: Vec<_> = records.iter().map(|record| number_of_padded(record.body)).collect();
            assert_eq!(numbers, [found]);
        }
        reader.skip_to(Seq(2_001));
        assert!(reader.next_batch(1).expect("readable").is_empty());
    }

    #[test]
    fn rested_reader_resumes_at_its_offset() {
        let files = MemoryFiles::new();
        let journal = open(&files).journal;
        let mut reader = journal.read_from(Seq(1));
        for number in 1..60 {
            journal.append_blocking(batch(number), Level::Synced).expect("appended");
            let records = reader.next_batch(9).expect("readable");
            assert_eq!(records.iter().map(|record| number_of(record.body)).collect::<Vec<_>>(), [number]);
            reader.rest();
        }
        journal.append_blocking(batch(60), Level::Synced).expect("appended");
        // No byte before a known offset is read: a reader that had to search would find the damage.
        let last = files
            .list()
            .expect("listed")
            .into_iter()
            .rfind(|name| crate::log::segment_file::first_of(name).is_some())
            .expect("one");
        let file = files.open(&last).expect("there");
        file.write_at(b"!", HEADER_BYTES + 30).expect("written");
        assert_eq!(reader.next_batch(9).expect("readable").len(), 1);
        assert!(journal.read_at(Seq(60)).is_err());
        reader.rest();
        reader.skip_to(Seq(60));
        assert!(reader.next_batch(9).expect("nothing is left").is_empty());
    }

    #[test]
    fn damaged_record_stops_the_reader_with_its_place() {
        let files = MemoryFiles::new();
        let journal = open(&files).journal;
        journal.append_blocking(batch_of(1..4), Level::Synced).expect("appended");
        let file = crate::log::files::Files::open(&files, "00000000000000000001.seg").expect("there");
        let second = 16 + record_size(1);
        file.write_at(b"!", second + 30).expect("written");
        let mut reader = journal.read_from(Seq(1));
        assert_eq!(reader.next_batch(9).expect("the first is good").len(), 1);
        for _ in 0..2 {
            let error = reader.next_batch(9).map(|records| records.len()).expect_err("damaged").to_string();
            let place = format!("read the record at byte {second} of memory/00000000000000000001.seg");
            assert_eq!(error, format!("{place}: its checksum does not match"));
        }
    }

    #[test]
    fn reading_a_deleted_segment_reports_the_record_gone() {
        let files = MemoryFiles::new();
        let journal = open(&files).journal;
        journal.append_blocking(batch_of(1..=40), Level::Synced).expect("appended");
        let mut inside = journal.read_from(Seq(1));
        assert_eq!(inside.next_batch(1).expect("readable").len(), 1);
        let forgotten = journal.forget_before(Seq(20)).expect("deleted");
        assert!(forgotten > 1);
        let oldest = match journal.read_at(Seq(1)) {
            Err(ReadError::Gone { wanted: Seq(1), oldest }) => oldest,
            other => panic!("{other:?}"),
        };
        assert!((Seq(2)..=Seq(20)).contains(&oldest), "{oldest}");
        assert_eq!(inside.next_batch(1).expect("still open").len(), 1);
        assert_eq!(journal.forget_before(Seq(20)).expect("nothing left"), 0);
        assert!(journal.forget_before(Seq(9_999)).expect("deleted") > 0);
        assert_eq!(read_all(&journal, Seq(40)).len(), 1);
        journal.close_blocking().expect("closed");
        let again = open(&files);
        assert_eq!((again.cuts.len(), again.last_seq), (0, Seq(40)));
        assert!(matches!(again.journal.read_at(oldest), Err(ReadError::Gone { .. })));
    }

    fn record_size(number: u64) -> u64 {
        crate::log::record::size_of(body(number).len()) as u64
    }

    /// 2,000 records of a kilobyte in segments of a megabyte, so that the index is used.
    fn large_journal() -> Journal {
        let clock: crate::Clock = Arc::new(|| Timestamp::ZERO);
        let settings = crate::JournalSettings { segment_bytes: 1 << 20, ..Default::default() };
        let files = Arc::new(MemoryFiles::new());
        let journal = Journal::open(files, settings, clock, &|_| None).expect("opened").journal;
        for begin in (1..2_000).step_by(100) {
            let mut batch = AppendBatch::new();
            for number in begin..begin + 100 {
                batch.push(RecordKind(1), format!("{number:01000}").as_bytes(), None).expect("small");
            }
            journal.append_blocking(batch, Level::Written).expect("appended");
        }
        journal
    }

    fn number_of_padded(body: &[u8]) -> u64 {
        std::str::from_utf8(body).expect("text").parse().expect("a number")
    }
}
