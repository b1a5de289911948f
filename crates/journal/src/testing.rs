//! Helpers for the tests of the journal: a small journal on files in memory, and records that
//! contain their number.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    AppendBatch, IdempotencyKeys, Journal, Level, OpenError, Opened, RecordBuf, RecoveryHint, Retention, Seq,
    log::{
        memory::MemoryFiles,
        record::{Record, RecordKind},
        store::Clock,
    },
    settings::{Durability, JournalSettings},
    time::Timestamp,
};

/// The size of a segment, which a few records fill.
pub(crate) const SEGMENT_BYTES: u64 = 400;

/// Longer than any test, so that records that nobody waits for stay unsynced.
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// Opens with small segments and a constant clock.
pub(crate) fn open(files: &MemoryFiles) -> Opened {
    try_open(files).expect("opened")
}

pub(crate) fn try_open(files: &MemoryFiles) -> Result<Opened, OpenError> {
    open_with(files, SEGMENT_BYTES, Durability::Sync, Arc::new(|| Timestamp::from_millis(5)))
}

pub(crate) fn open_with(
    files: &MemoryFiles,
    segment_bytes: u64,
    durability: Durability,
    clock: Clock,
) -> Result<Opened, OpenError> {
    // Without this the timing of sealing would depend on another thread.
    let settings = JournalSettings {
        segment_bytes,
        durability,
        sync_within: HOUR,
        seal: false,
        ..JournalSettings::default()
    };
    open_set(files, settings, clock, RecoveryHint::default())
}

/// Opens a journal with a short `sync_within`.
pub(crate) fn open_syncing(files: &MemoryFiles, durability: Durability) -> Journal {
    let sync_within = Duration::from_millis(1);
    let settings = JournalSettings {
        segment_bytes: 1 << 20,
        durability,
        sync_within,
        seal: false,
        ..JournalSettings::default()
    };
    let clock: Clock = Arc::new(|| Timestamp::from_millis(5));
    open_set(files, settings, clock, RecoveryHint::default()).expect("opened").journal
}

/// Opens without idempotency keys, so that any bodies can be appended.
pub(crate) fn try_open_plainly(files: &MemoryFiles) -> Result<Opened, OpenError> {
    let settings =
        JournalSettings { segment_bytes: SEGMENT_BYTES, seal: false, ..JournalSettings::default() };
    let clock: Clock = Arc::new(|| Timestamp::from_millis(5));
    Journal::open(Arc::new(files.clone()), settings, clock, &|_| None)
}

/// Opens a journal that seals, and waits until that is done.
pub(crate) fn open_sealing(files: &MemoryFiles) -> Opened {
    let opened = try_open_sealing(files, Retention::default(), RecoveryHint::default()).expect("opened");
    opened.journal.inner.store.maintenance.wait_until_idle();
    opened
}

pub(crate) fn try_open_sealing(
    files: &MemoryFiles,
    retention: Retention,
    hint: RecoveryHint,
) -> Result<Opened, OpenError> {
    let settings = JournalSettings {
        segment_bytes: SEGMENT_BYTES,
        sync_within: HOUR,
        seal: true,
        retention,
        ..JournalSettings::default()
    };
    open_set(files, settings, Arc::new(|| Timestamp::from_millis(5)), hint)
}

fn open_set(
    files: &MemoryFiles,
    settings: JournalSettings,
    clock: Clock,
    hint: RecoveryHint,
) -> Result<Opened, OpenError> {
    let report = Journal::scan(files, &key_of, hint)?;
    Journal::open_scanned(Arc::new(files.clone()), settings, clock, report, IdempotencyKeys::default())
}

/// Opens with the next segment prepared, so that only the test causes later writes and syncs.
pub(crate) fn open_prepared(files: &MemoryFiles, segment_bytes: u64) -> Journal {
    let clock: Clock = Arc::new(|| Timestamp::from_millis(5));
    let journal = open_with(files, segment_bytes, Durability::Sync, clock).expect("opened").journal;
    // One sync of the file, and one of the folder.
    let syncs = files.operations().syncs + 2;
    journal.prepare_next_file();
    while files.operations().syncs < syncs {
        thread::yield_now();
    }
    journal
}

/// A clock that a test sets.
pub(crate) fn set_clock() -> (Arc<AtomicU64>, Clock) {
    let millis = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&millis);
    (millis, Arc::new(move || Timestamp::from_millis(read.load(Ordering::SeqCst))))
}

/// One record with an idempotency key, whose body and length depend on `number` alone.
pub(crate) fn batch(number: u64) -> AppendBatch {
    batch_of([number])
}

pub(crate) fn batch_of(numbers: impl IntoIterator<Item = u64>) -> AppendBatch {
    let mut batch = AppendBatch::new();
    for number in numbers {
        batch.push(RecordKind(1), body(number).as_bytes(), Some(number.into())).expect("small");
    }
    batch
}

pub(crate) fn body(number: u64) -> String {
    format!("{number} {}", "x".repeat(usize::try_from(number * 7 % 40).expect("small")))
}

/// The number in a record's body.
pub(crate) fn number_of(body: &[u8]) -> u64 {
    let text = std::str::from_utf8(body).expect("text");
    let number = text.split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
    assert_eq!(text, self::body(number));
    number
}

/// A journal of `count` records that was closed, its full segments sealed or not.
pub(crate) fn filled(count: u64, seals: bool) -> MemoryFiles {
    let files = MemoryFiles::new();
    let journal = open(&files).journal;
    journal.append_blocking(batch_of(1..=count), Level::Synced).expect("appended");
    journal.close_blocking().expect("closed");
    if seals {
        open_sealing(&files).journal.close_blocking().expect("closed");
    }
    files
}

/// All records from `seq` on, read in batches of three.
pub(crate) fn read_all(journal: &Journal, seq: Seq) -> Vec<RecordBuf> {
    let mut reader = journal.read_from(seq);
    let mut all = Vec::new();
    loop {
        let records = reader.next_batch(3).expect("readable");
        if records.is_empty() {
            return all;
        }
        all.extend(records.iter().map(RecordBuf::from));
    }
}

/// The numbers of all records; checks that positions have no gap.
pub(crate) fn numbers(journal: &Journal) -> Vec<u64> {
    let records = read_all(journal, Seq(1));
    for (record, seq) in records.iter().zip(1..) {
        assert_eq!(record.seq, Seq(seq));
    }
    records.iter().map(|record| number_of(&record.body)).collect()
}

fn key_of(record: Record<'_>) -> Option<u128> {
    Some(number_of(record.body).into())
}
