//! The records of a journal for another process than its daemon: without a lock, a thread or a change.
//!
//! The files are opened once, so they stay readable when they are sealed or deleted meanwhile. The
//! end is the last complete record. It is made durable before it is used, by one sync of the last
//! file: what is read is then in the journal also after a power loss. A bad record is damage if a
//! good one follows it and it is still bad when it is read again; otherwise the daemon is writing it.

use std::{io, sync::Arc};

use tokio::sync::watch;

use crate::{
    Seq,
    log::{
        cursor::{Cursor, Step},
        files::Files,
        reader::{ReadError, Reader, RecordBuf},
        record::Damage,
        recover::{OpenError, RecoveryHint, Scanner},
        segment::Segment,
        segment_file::{self, HEADER_BYTES, NEXT_NAME},
        store::{Clock, Store},
    },
    time::Timestamp,
};

/// A journal that is only read.
#[derive(Debug)]
pub struct ReadOnly {
    store: Arc<Store>,
    written: watch::Receiver<Seq>,
    first: Seq,
    last_time: Timestamp,
}

/// The end of the readable records of a file.
struct End {
    /// The record after the last one.
    next: Seq,
    /// The time of the last one; zero if there is none.
    time: Timestamp,
}

impl ReadOnly {
    /// Opens the records that are complete now, and makes them durable; `files` may be in use.
    ///
    /// Errors: a file cannot be read, is not of this journal or of a newer program, or its last file
    /// is damaged. [`Reader::next_batch`] reports damage of the others.
    pub fn open(files: Arc<dyn Files>) -> Result<Self, OpenError> {
        let scanner = Scanner::new(files.as_ref(), &|_| None, RecoveryHint::default());
        let (firsts, _) = scanner.list()?;
        let foreign = segment_file::foreign(files.as_ref());
        let foreign = foreign.map_err(|source| scanner.failed("read", "", source))?;
        if let Some(name) = foreign.first() {
            return Err(OpenError::Foreign { path: files.path(name) });
        }
        let mut segments = Vec::new();
        let (mut end, mut time) = (Seq::ZERO.next(), Timestamp::ZERO);
        if let Some((last, full)) = firsts.split_last() {
            for first in full {
                scanner.open_full(*first, &mut segments)?;
            }
            let (tail, found) = scanner.open_last(*last)?;
            segments.push(Arc::new(tail));
            (end, time) = (found.next, found.time);
            if let Some((next, found)) = scanner.open_next(end)? {
                segments.push(Arc::new(next));
                (end, time) = (found.next, found.time);
            }
        }
        for tail in segments.iter().rev().take(2).filter(|segment| segment.seal().is_none()) {
            tail.file.sync_data().map_err(|source| scanner.failed("sync", &tail.name(), source))?;
        }
        let first = segments.first().map_or(Seq::ZERO.next(), |segment| segment.first);
        let clock: Clock = Arc::new(|| Timestamp::ZERO);
        let store = Arc::new(Store::new(files, segments, &clock));
        let (_, written) = watch::channel(end.previous());
        Ok(Self { store, written, first, last_time: time })
    }

    /// The first record; the one after [`Self::last`] if there is none.
    pub fn first(&self) -> Seq {
        self.first
    }

    /// The last record; [`Seq::ZERO`] if there is none.
    pub fn last(&self) -> Seq {
        *self.written.borrow()
    }

    /// The time of the last record; zero if there is none.
    pub fn last_time(&self) -> Timestamp {
        self.last_time
    }

    /// A reader whose first record is the one at `seq`, or the first of all.
    pub fn read_from(&self, seq: Seq) -> Reader {
        Reader::new(Arc::clone(&self.store), self.written.clone(), seq)
    }

    /// The record at `seq`; `None` after the end.
    ///
    /// Errors: it was deleted or cannot be read.
    pub fn read_at(&self, seq: Seq) -> Result<Option<RecordBuf>, ReadError> {
        let mut reader = self.read_from(seq);
        let records = reader.next_batch(1)?;
        Ok(records.iter().next().filter(|record| record.seq == seq).map(RecordBuf::from))
    }
}

impl Scanner<'_> {
    /// Adds a segment that others follow. If a daemon has deleted it meanwhile, those before it are
    /// not needed either.
    fn open_full(&self, first: Seq, segments: &mut Vec<Arc<Segment>>) -> Result<(), OpenError> {
        let name = segment_file::name_of(first);
        let segment = match self.open(&name, first) {
            Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                segments.clear();
                return Ok(());
            }
            segment => segment?,
        };
        if segment.seal().is_some() {
            segments.push(Arc::new(segment));
            return Ok(());
        }
        let size = segment.file.size().map_err(|source| self.failed("read", &name, source))?;
        segments.push(Arc::new(Segment::unread(first, segment.file, size, Timestamp::ZERO)));
        Ok(())
    }

    /// Opens the last segment, and finds its last complete record.
    fn open_last(&self, first: Seq) -> Result<(Segment, End), OpenError> {
        let name = segment_file::name_of(first);
        let segment = self.open(&name, first)?;
        let end = match segment.seal() {
            Some(seal) => End { next: seal.last.next(), time: seal.time },
            None => self.end_of(&name, &segment)?,
        };
        Ok((segment, end))
    }

    /// Opens the prepared file, if it has the record `first`.
    fn open_next(&self, first: Seq) -> Result<Option<(Segment, End)>, OpenError> {
        let is_used = |segment: &Segment| segment_file::begins_used(segment.file.as_ref());
        let segment = match self.open(NEXT_NAME, first) {
            Ok(segment) if is_used(&segment).map_err(|source| self.failed("read", NEXT_NAME, source))? => {
                segment
            }
            // It is being prepared, was named meanwhile, or is not there.
            Ok(_) | Err(OpenError::NotASegment { .. }) => return Ok(None),
            Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut cursor = Cursor::new(Arc::clone(&segment.file), HEADER_BYTES);
        let begins = |step: Step| matches!(step, Step::Record(entry) if entry.seq == first);
        let filled = cursor.refill(u64::MAX).map_err(|source| self.failed("read", NEXT_NAME, source))?;
        if !filled || !begins(cursor.step()) {
            return Ok(None);
        }
        let end = self.end_of(NEXT_NAME, &segment)?;
        Ok(Some((segment, end)))
    }

    /// Finds the end of the complete records of a file that may be written, and sets it.
    fn end_of(&self, name: &str, segment: &Segment) -> Result<End, OpenError> {
        let failed = |source| self.failed("read", name, source);
        let mut cursor = Cursor::new(Arc::clone(&segment.file), HEADER_BYTES);
        let mut end = End { next: segment.first, time: Timestamp::ZERO };
        // The offset of a record that was bad although a good one follows it.
        let mut retried = None;
        loop {
            let offset = cursor.offset();
            let damage = match cursor.step() {
                Step::Record(entry) if entry.seq == end.next => {
                    segment.note_place(entry.seq, offset);
                    end = End { next: entry.seq.next(), time: entry.time };
                    segment.set_end(cursor.offset(), end.time);
                    continue;
                }
                Step::Record(entry) => Damage::Order { expected: end.next, found: entry.seq },
                Step::Short if cursor.refill(u64::MAX).map_err(failed)? => continue,
                Step::Short | Step::End => Damage::Missing { expected: end.next },
                Step::Damaged(damage) => damage,
            };
            if !has_record_after(segment, offset).map_err(failed)? {
                return Ok(end);
            }
            if retried.replace(offset) == Some(offset) {
                return Err(self.damaged(name, offset, damage));
            }
            cursor.seek(Arc::clone(&segment.file), offset);
        }
    }
}

/// Whether a good record is after `offset`.
fn has_record_after(segment: &Segment, offset: u64) -> io::Result<bool> {
    let size = segment_file::used_end(segment.file.as_ref(), offset)?.unwrap_or(offset);
    let mut cursor = Cursor::new(Arc::clone(&segment.file), offset + 1);
    Ok(cursor.find_record(size)?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Journal, Level,
        log::memory::{MemoryFiles, Operation},
        testing::*,
    };

    fn read(files: &MemoryFiles) -> Result<ReadOnly, OpenError> {
        ReadOnly::open(Arc::new(files.clone()))
    }

    fn numbers_of(journal: &ReadOnly) -> Vec<u64> {
        let mut reader = journal.read_from(journal.first());
        let mut numbers = Vec::new();
        loop {
            let records = reader.next_batch(7).expect("readable");
            if records.is_empty() {
                return numbers;
            }
            numbers.extend(records.iter().map(|record| number_of(record.body)));
        }
    }

    fn append(journal: &Journal, numbers: std::ops::RangeInclusive<u64>) {
        journal.append_blocking(batch_of(numbers), Level::Written).expect("appended");
    }

    #[test]
    fn every_complete_record_is_read_beside_the_writer() {
        let files = MemoryFiles::new();
        assert_eq!(read(&files).expect("empty").last(), Seq::ZERO);
        let journal = open(&files).journal;
        for end in [1, 2, 30, 31, 90] {
            let begin = journal.written().borrow().0 + 1;
            append(&journal, begin..=end);
            let found = read(&files).expect("readable");
            assert_eq!((found.last(), numbers_of(&found)), (Seq(end), (1..=end).collect::<Vec<_>>()));
        }
    }

    #[test]
    fn read_records_survive_a_power_loss() {
        let files = MemoryFiles::new();
        let journal = open(&files).journal;
        append(&journal, 1..=5);
        assert_eq!(read(&files).expect("readable").last(), Seq(5));
        let left = files.after_power_loss(1);
        assert_eq!(numbers(&open(&left).journal), [1, 2, 3, 4, 5]);
        files.fail(Operation::Sync, ".seg", 1, io::ErrorKind::Other);
        assert!(matches!(read(&files), Err(OpenError::Io { operation: "sync", .. })));
    }

    #[test]
    fn deleted_segments_stay_readable() {
        let files = filled(60, false);
        let found = read(&files).expect("readable");
        let journal = open(&files).journal;
        assert!(journal.forget_before(Seq(30)).expect("deleted") > 0);
        assert_eq!(numbers_of(&found), (1..=60).collect::<Vec<_>>());
        let later = read(&files).expect("readable");
        assert!(later.first() > Seq(1) && later.last() == Seq(60));
        assert!(matches!(later.read_at(Seq(1)), Err(ReadError::Gone { .. })));
    }

    #[test]
    fn torn_end_ends_the_records_unlike_damage() {
        let files = MemoryFiles::new();
        let journal = open(&files).journal;
        append(&journal, 1..=4);
        let name = segment_file::name_of(Seq(1));
        let file = files.open(&name).expect("there");
        let size = |number| crate::log::record::size_of(body(number).len()) as u64;
        let last = HEADER_BYTES + (1..=3).map(size).sum::<u64>();
        let mut byte = [0];
        file.read_at(&mut byte, last + 12).expect("read");
        file.write_at(&[byte[0] ^ 1], last + 12).expect("written");
        assert_eq!(read(&files).expect("readable").last(), Seq(3), "nothing follows it");
        file.write_at(&byte, last + 12).expect("written");
        let second = HEADER_BYTES + size(1);
        file.write_at(b"!!", second + 12).expect("written");
        let error = read(&files).expect_err("records follow").to_string();
        let place = format!("the record at byte {second} of memory/{name} is damaged");
        assert!(error.contains(&place), "{error}");
    }
}
