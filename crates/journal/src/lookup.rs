//! Finds records by their names: in full segments by the file of names of each, in the newest
//! one by the names that were noted when its records were written.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::{
    Seq,
    log::{
        names::{self, Entry},
        reader::{ReadError, Reader, RecordBuf},
        store::Store,
    },
};

/// Most records per read.
const BATCH_RECORDS_MAX: usize = 4_096;

/// The names of records that no file has and that were not noted, read as they are needed: twelve
/// bytes a record, of one segment.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    /// The segment's first record; zero when none was read.
    first: Seq,
    /// The first record whose name was not read.
    next: Seq,
    hashes: Vec<u64>,
    offsets: Vec<u32>,
}

/// The records called `name` that `is_wanted` accepts, newest first, at most `most`.
///
/// Errors: a record cannot be read.
pub(crate) fn find(
    store: &Arc<Store>,
    written: &watch::Receiver<Seq>,
    recent: &Recent,
    name: &[u8],
    most: usize,
    mut is_wanted: impl FnMut(&RecordBuf) -> bool,
) -> Result<Vec<RecordBuf>, ReadError> {
    let Some(hasher) = store.names.get() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    let mut end = written.borrow().next();
    let segments = store.read_segments().clone();
    for segment in segments.iter().rev() {
        let indexed = segment.has_names().then(|| names::find(store.files.as_ref(), segment.first, name));
        let seqs = match indexed {
            Some(Ok(seqs)) => seqs,
            unusable => {
                if let Some(Err(error)) = unusable {
                    tracing::warn!(first = %segment.first, %error, "the names of a segment are lost and made again");
                    segment.set_has_names(false);
                    store.files.remove(&names::name_of(segment.first)).ok();
                    store.maintenance.ask();
                }
                let hash = hasher.key.hash(name);
                let (from, noted) = segment.noted.find(hash).unwrap_or((end, Vec::new()));
                let mut seqs = Vec::new();
                if from > segment.first {
                    let mut names = recent.0.lock().unwrap_or_else(PoisonError::into_inner);
                    names.read(store, written, segment.first, from)?;
                    seqs = names.find(hash);
                }
                seqs.extend(noted);
                seqs
            }
        };
        for seq in seqs.into_iter().rev().filter(|seq| *seq < end) {
            let mut reader = Reader::new(Arc::clone(store), written.clone(), seq);
            let record = match reader.next_batch(1) {
                // Retention deleted the segment.
                Err(ReadError::Gone { .. }) => return Ok(found),
                records => records?.iter().next().map(RecordBuf::from),
            };
            found.extend(record.filter(|record| record.seq == seq && is_wanted(record)));
            if found.len() >= most {
                return Ok(found);
            }
        }
        end = end.min(segment.first);
    }
    Ok(found)
}

/// The hashes of the names of the records from `next` to before `end`, and how far they could be
/// read.
pub(crate) fn read_names(
    store: &Arc<Store>,
    written: &watch::Receiver<Seq>,
    first: Seq,
    next: Seq,
    end: Seq,
    mut go_on: impl FnMut(Entry) -> bool,
) -> Result<Seq, ReadError> {
    let Some(hasher) = store.names.get() else { return Ok(end) };
    let mut reader = Reader::new(Arc::clone(store), written.clone(), next);
    while reader.position() < end {
        let left = usize::try_from(end.0 - reader.position().0).unwrap_or(BATCH_RECORDS_MAX);
        let records = match reader.next_batch(left.min(BATCH_RECORDS_MAX)) {
            Err(ReadError::Gone { .. }) => return Ok(end),
            Err(error) => {
                if reader.skip_damaged() {
                    continue;
                }
                return Err(error);
            }
            Ok(records) => records,
        };
        let mut count = 0;
        for record in records.iter() {
            count += 1;
            let offset = u32::try_from(record.seq.0.saturating_sub(first.0)).unwrap_or(u32::MAX);
            if let Some(hash) = hasher.hash_of(record)
                && !go_on((hash, offset))
            {
                return Ok(record.seq);
            }
        }
        if count == 0 {
            break;
        }
    }
    Ok(reader.position().min(end))
}

impl Names {
    /// Reads the names of the segment at `first` that are not known, before `end`.
    fn read(
        &mut self,
        store: &Arc<Store>,
        written: &watch::Receiver<Seq>,
        first: Seq,
        end: Seq,
    ) -> Result<(), ReadError> {
        if self.first != first {
            *self = Self { first, next: first, ..Self::default() };
        }
        let (hashes, offsets) = (&mut self.hashes, &mut self.offsets);
        self.next = read_names(store, written, first, self.next, end, |(hash, offset)| {
            hashes.push(hash);
            offsets.push(offset);
            true
        })?;
        Ok(())
    }

    fn find(&self, hash: u64) -> Vec<Seq> {
        let all = self.hashes.iter().zip(&self.offsets);
        let same = all.filter(|(known, _)| **known == hash);
        same.map(|(_, offset)| Seq(self.first.0 + u64::from(*offset))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::{
        AppendBatch, Durability, Journal, JournalSettings, Level, NameOf, OpenError, Record, RecordKind,
        Retention,
        files::Files,
        log::{
            memory::{Faults, MemoryFiles, Operation},
            names::NOTED_SEGMENTS_MAX,
        },
        testing::{HOUR, SEGMENT_BYTES, batch_of, number_of},
        time::Timestamp,
    };

    const RECORDS: u64 = 100;

    /// The name of a record: its number without the last digit, so that ten share one.
    fn name_of(record: Record<'_>) -> Option<&[u8]> {
        let digits = record.body.split(|byte| *byte == b' ').next()?;
        Some(digits.split_last()?.1)
    }

    const SETTINGS: JournalSettings = JournalSettings {
        segment_bytes: SEGMENT_BYTES,
        durability: Durability::Sync,
        sync_within: HOUR,
        seal: false,
        retention: Retention { age: None, bytes: None },
        preface: None,
        names: Some(name_of),
    };

    fn try_open(files: &MemoryFiles, settings: JournalSettings) -> Result<Journal, OpenError> {
        let clock = Arc::new(|| Timestamp::ZERO);
        let opened = Journal::open(Arc::new(files.clone()), settings, clock, &|_| None)?;
        opened.journal.inner.store.maintenance.wait_until_idle();
        Ok(opened.journal)
    }

    /// Opens a journal, and waits until its names are made.
    fn open(files: &MemoryFiles, seal: bool) -> Journal {
        try_open(files, JournalSettings { seal, ..SETTINGS }).expect("opened")
    }

    /// The numbers of the records with the name of `number`, newest first.
    fn named_as(journal: &Journal, number: u64) -> Vec<u64> {
        let digits = number.to_string();
        let name = digits.as_bytes().split_last().expect("a digit").1;
        let found = journal.find_named(name, 20, |_| true).expect("readable");
        found.iter().map(|record| number_of(&record.body)).collect()
    }

    fn assert_all_found(journal: &Journal, from: u64, context: &str) {
        for number in from..=RECORDS {
            let expected: Vec<u64> = (number / 10 * 10..number / 10 * 10 + 10)
                .rev()
                .filter(|n| (from..=RECORDS).contains(n))
                .collect();
            assert_eq!(named_as(journal, number), expected, "{context}");
        }
        assert!(named_as(journal, 1_000).is_empty(), "{context}");
    }

    fn names_in(files: &MemoryFiles) -> Vec<String> {
        let mut all = files.list().expect("listed");
        all.retain(|name| names::first_of(name).is_some());
        all.sort();
        all
    }

    #[test]
    fn records_of_any_segment_are_found_by_name() {
        for seal in [false, true] {
            let files = MemoryFiles::new();
            let journal = open(&files, seal);
            for number in 1..=RECORDS {
                journal.append_blocking(batch_of([number]), Level::Synced).expect("appended");
                assert!(named_as(&journal, number).contains(&number), "{number}: at once");
            }
            journal.inner.store.maintenance.wait_until_idle();
            assert_all_found(&journal, 1, "by files and memory");
            journal.close_blocking().expect("closed");
            let made = names_in(&files);
            assert!(made.len() > 5, "{made:?}");
            // One is lost, one is damaged, one belongs to another segment, one has no segment.
            files.remove(&made[0]).expect("removed");
            files.open(&made[1]).and_then(|file| file.write_at(&[9], 70)).expect("written");
            files.rename(&made[3], &made[2]).expect("renamed");
            files.create(&names::name_of(Seq(9_999))).expect("created");
            let journal = open(&files, seal);
            assert!(!names_in(&files).contains(&names::name_of(Seq(9_999))));
            assert_all_found(&journal, 1, "with files lost and damaged");
            journal.inner.store.maintenance.wait_until_idle();
            assert_all_found(&journal, 1, "made again");
            assert_eq!(names_in(&files).len(), made.len());
            journal.forget_before(Seq(40)).expect("deleted");
            let first = journal.stored().expect("known").first.0;
            assert!(first > 20, "{first}");
            assert_all_found(&journal, first, "deleted");
            assert!(names_in(&files).iter().all(|name| names::first_of(name) >= Some(Seq(first))));
            journal.close_blocking().expect("closed");
        }
    }

    #[test]
    fn records_of_a_long_batch_are_found() {
        for seal in [false, true] {
            let files = MemoryFiles::new();
            let journal = open(&files, seal);
            journal.append_blocking(batch_of(1..=RECORDS), Level::Synced).expect("appended");
            journal.inner.store.maintenance.wait_until_idle();
            assert!(journal.inner.store.read_segments().iter().rev().skip(1).all(|full| full.has_names()));
            assert_all_found(&journal, 1, "in files");
            journal.close_blocking().expect("closed");
        }
    }

    #[test]
    fn records_of_many_starts_are_found_by_name() {
        for seal in [false, true] {
            let files = MemoryFiles::new();
            for begin in (1..=RECORDS).step_by(3) {
                let journal = open(&files, seal);
                for number in begin..=RECORDS.min(begin + 2) {
                    journal.append_blocking(batch_of([number]), Level::Synced).expect("appended");
                    assert_all_found_upto(&journal, number);
                }
                journal.close_blocking().expect("closed");
            }
            assert_all_found(&open(&files, seal), 1, "at the end");
        }
    }

    fn assert_all_found_upto(journal: &Journal, last: u64) {
        for number in 1..=last {
            assert!(named_as(journal, number).contains(&number), "{number} of {last}");
        }
    }

    #[test]
    fn power_loss_at_any_write_loses_no_name() {
        let last = 25;
        // Returns the last record that was answered as durable.
        let run = |files: &MemoryFiles| {
            let Ok(journal) = try_open(files, JournalSettings { seal: true, ..SETTINGS }) else { return 0 };
            let is_appended = |number: &u64| {
                let appended = journal.append_blocking(batch_of([*number]), Level::Synced);
                appended.is_ok() && !files.is_cut()
            };
            let appended = (1..=last).take_while(is_appended).count() as u64;
            journal.inner.store.maintenance.wait_until_idle();
            // The power may be lost before.
            journal.close_blocking().ok();
            appended
        };
        let count = {
            let files = MemoryFiles::new();
            assert_eq!(run(&files), last);
            files.operations()
        };
        let writes = (1..=count.writes).map(|at| Faults { cut_after_write: Some(at), ..Faults::default() });
        let syncs = (1..=count.syncs).map(|at| Faults { cut_after_sync: Some(at), ..Faults::default() });
        let failures = (1..=count.writes).map(|at| Faults { fail_write: Some(at), ..Faults::default() });
        for faults in writes.chain(syncs).chain(failures) {
            let files = MemoryFiles::new();
            files.set_faults(faults);
            let appended = run(&files);
            let left = files.after_power_loss(1);
            let journal = open(&left, true);
            let stored = journal.written().borrow().0;
            assert!(stored >= appended, "{faults:?}");
            assert_all_found_upto(&journal, stored);
            journal.inner.store.maintenance.wait_until_idle();
            assert_all_found_upto(&journal, stored);
        }
    }

    /// The bytes that are read of a journal of 6 MB while it is written, with or without names.
    fn bytes_read(names: Option<NameOf>) -> u64 {
        let files = MemoryFiles::new();
        let settings = JournalSettings { segment_bytes: 2 << 20, names, ..SETTINGS };
        let journal = try_open(&files, settings).expect("opened");
        for number in 0..6_000_u64 {
            let body = format!("{number} {}", "x".repeat(1_000));
            let batch = AppendBatch::of(RecordKind(1), body.as_bytes(), None).expect("small");
            journal.append_blocking(batch, Level::Written).expect("appended");
        }
        journal.inner.store.maintenance.wait_until_idle();
        assert_eq!(names_in(&files).len(), if names.is_some() { 3 } else { 0 });
        files.read_bytes()
    }

    #[test]
    fn names_are_made_without_reading_the_segment() {
        let more = bytes_read(Some(name_of)) - bytes_read(None);
        assert!(more < 1 << 20, "{more} bytes");
    }

    #[test]
    fn two_journals_hash_one_name_differently() {
        let contents = [0, 1].map(|_| {
            let files = MemoryFiles::new();
            let journal = open(&files, false);
            journal.append_blocking(batch_of(1..=RECORDS), Level::Synced).expect("appended");
            journal.inner.store.maintenance.wait_until_idle();
            journal.close_blocking().expect("closed");
            let file = files.open(&names_in(&files)[0]).expect("made");
            let mut bytes = vec![0; usize::try_from(file.size().expect("sized")).expect("small")];
            file.read_at(&mut bytes, 0).expect("read");
            bytes
        });
        let hashes = contents.map(|bytes| names::hashes_in(&bytes));
        assert!(!hashes[0].is_empty() && hashes[0].is_disjoint(&hashes[1]), "{hashes:?}");
    }

    #[test]
    fn records_are_found_without_files_of_names() {
        let files = MemoryFiles::new();
        files.fail(Operation::Create, names::UNFINISHED_NAME, 1_000, io::ErrorKind::StorageFull);
        let journal = open(&files, false);
        journal.append_blocking(batch_of(1..=RECORDS), Level::Synced).expect("appended");
        journal.inner.store.maintenance.wait_until_idle();
        assert_eq!(names_in(&files), Vec::<String>::new());
        let segments = journal.inner.store.read_segments().clone();
        let noted = segments.iter().filter(|segment| segment.noted.find(0).is_some()).count();
        assert_eq!((noted, segments.len() > 9), (NOTED_SEGMENTS_MAX, true));
        assert_all_found(&journal, 1, "without files");
        journal.close_blocking().expect("closed");
    }
}
