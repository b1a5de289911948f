//! The daemon's event loop without its threads, sockets and clock: the test determines when records
//! are appended.

use std::{
    collections::VecDeque,
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aside::daemon::{
    fold::Fold,
    recovery::{self, ClosedJournal},
    replay::{self, Before, Followed, RecoveryError, Replay},
    rules::RulesStore,
    snapshots::{Capture, Snapshots, WriteError},
};
use engine::{
    Output,
    event::{Event, Seq, codec},
    records,
    sorted::SortedSet,
};
use journal::{
    AppendBatch, AppendError, Appended, Journal, JournalSettings, Level, OpenError, Reader, Record,
    RecordBuf, RecordKind, memory::MemoryFiles, time::Timestamp,
};

/// Most records that are read at a time.
const BATCH_RECORDS_MAX: usize = 1_024;

/// One call of the journal.
#[derive(Debug, Clone)]
pub(crate) struct Append {
    pub(crate) records: Vec<(u8, Vec<u8>)>,
    pub(crate) level: Level,
    pub(crate) at: Timestamp,
}

/// A change of the disk's contents.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Append(Append),
    Snapshot(Capture),
}

/// A journal on files in memory, the time of its records, and the snapshots.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) journal: Journal,
    now: Arc<AtomicU64>,
    pub(crate) snapshots: Snapshots,
    rules: RulesStore,
}

/// An engine that follows a journal, as in the daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) fold: Fold,
    disk: Disk,
    reader: Reader,
    /// The calls of the disk, in order.
    pub(crate) calls: Vec<Call>,
}

impl Append {
    /// One record of a kind, with a body that `write` writes.
    pub(crate) fn of(kind: u8, level: Level, at: Timestamp, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut body = Vec::new();
        write(&mut body);
        Self { records: vec![(kind, body)], level, at }
    }

    /// Events that are published together.
    pub(crate) fn events<'e>(
        events: impl IntoIterator<Item = &'e Event>,
        level: Level,
        at: Timestamp,
    ) -> Self {
        let encode = |event: &Event| {
            let mut body = Vec::new();
            records::encode_event(&event.as_ref(), &mut body);
            (records::EVENT, body)
        };
        Self { records: events.into_iter().map(encode).collect(), level, at }
    }
}

impl Disk {
    /// Opens the journal in `files`, with segments of `segment_bytes`, and the newest snapshot;
    /// `rules` is the folder of the rules.
    pub(crate) fn open(
        files: &MemoryFiles,
        segment_bytes: u64,
        rules: &Path,
    ) -> Result<(Self, Fold), OpenError> {
        let now = Arc::new(AtomicU64::new(0));
        let settings = JournalSettings {
            segment_bytes,
            // Only the test syncs.
            sync_within: Duration::from_secs(3_600),
            seal: false,
            ..Default::default()
        };
        let files = Arc::new(files.clone());
        let snapshots = Snapshots::open(files.clone()).expect("memory lists its files");
        let read = Arc::clone(&now);
        let clock = Arc::new(move || Timestamp::from_millis(read.load(Ordering::SeqCst)));
        let journal =
            ClosedJournal { files, settings, clock, key_of: |found| key_of(found.kind.0, found.body) };
        let rules = RulesStore::new(rules);
        let (fold, opened) = recovery::open_after(&snapshots, &rules, &journal)?;
        Ok((Self { journal: opened.journal, now, snapshots, rules }, fold))
    }

    /// Writes a snapshot; the journal is durable up to it.
    pub(crate) fn write_snapshot(&self, capture: &Capture) -> Result<u64, WriteError> {
        assert!(self.is_durable(capture.seq), "a snapshot of {} waits for the journal", capture.seq);
        let keys = self.journal.idempotency_keys_blocking().expect("the journal is open");
        let last = self.journal.read_at(capture.seq).expect("readable").expect("it is there");
        self.snapshots.write(capture, last.as_record().checksum(), &keys)
    }

    /// Whether the journal is durable up to `seq`.
    pub(crate) fn is_durable(&self, seq: Seq) -> bool {
        *self.journal.synced().borrow() >= seq
    }

    /// Appends and waits; events have their idempotency keys.
    pub(crate) fn append(&self, append: &Append) -> Result<Appended, AppendError> {
        let mut batch = AppendBatch::new();
        for (kind, body) in &append.records {
            batch.push(RecordKind(*kind), body, key_of(*kind, body)).expect("small");
        }
        self.now.store(append.at.as_millis(), Ordering::SeqCst);
        self.journal.append_blocking(batch, append.level)
    }

    /// All readable records.
    pub(crate) fn records(&self) -> Vec<RecordBuf> {
        let mut reader = self.journal.read_from(Seq(1));
        let mut records = Vec::new();
        loop {
            let batch = reader.next_batch(BATCH_RECORDS_MAX).expect("readable");
            if batch.is_empty() {
                return records;
            }
            records.extend(batch.iter().map(RecordBuf::from));
        }
    }
}

impl Daemon {
    /// Replays the records that `fold` does not have, and publishes the events left in the outbox.
    pub(crate) fn start(disk: Disk, mut fold: Fold, now: Timestamp) -> Result<Self, AppendError> {
        let mut reader = disk.journal.read_from(fold.applied.next());
        let ended = *disk.journal.written().borrow();
        fold.look_ahead(disk.journal.read_from(fold.applied.next()), ended, SortedSet::new());
        let unwritten = replay::replay(&mut reader, &mut fold, |_, _| ControlFlow::Continue(()))
            .expect("the journal can be followed");
        fold.go_live();
        Self::publishing(Self { fold, disk, reader, calls: Vec::new() }, unwritten, now)
    }

    /// Does what a start does with the folder `state`; `before` is called before each record.
    pub(crate) fn start_in(
        state: &Path,
        disk: Disk,
        fold: Fold,
        now: Timestamp,
        before: &Before<'_>,
    ) -> Result<(Self, SortedSet<Seq>), RecoveryError> {
        let replay = Replay {
            journal: &disk.journal,
            snapshots: &disk.snapshots,
            rules: &disk.rules,
            ended: *disk.journal.written().borrow(),
            state,
            build: "tests",
            convicted: None,
            before,
        };
        let Followed { fold, reader, outbox, skipped } = replay.follow(fold, |_| None)?;
        let started = Self::publishing(Self { fold, disk, reader, calls: Vec::new() }, outbox, now);
        Ok((started.expect("the disk works"), skipped))
    }

    fn publishing(mut daemon: Self, unwritten: Vec<Event>, now: Timestamp) -> Result<Self, AppendError> {
        for event in unwritten {
            daemon.append(Append::events([&event], Level::Written, now))?;
        }
        Ok(daemon)
    }

    /// Appends, without feeding the engine.
    pub(crate) fn append(&mut self, append: Append) -> Result<Appended, AppendError> {
        let appended = self.disk.append(&append);
        self.calls.push(Call::Append(append));
        appended
    }

    /// Makes the journal durable and writes a snapshot of its state.
    pub(crate) fn take_snapshot(
        &mut self,
        now: Timestamp,
        mut seen: impl FnMut(Seq, Output),
    ) -> Result<(), AppendError> {
        while self.fold.applied < *self.disk.journal.written().borrow() || !self.is_durable() {
            self.append(Append::of(records::TICK, Level::Synced, now, records::encode_bare))?;
            self.catch_up(now, &mut seen)?;
        }
        let capture = Capture::new(&self.fold).expect("it can be written");
        // A failed write does no harm.
        let _ = self.disk.write_snapshot(&capture);
        self.calls.push(Call::Snapshot(capture));
        Ok(())
    }

    fn is_durable(&self) -> bool {
        *self.disk.journal.synced().borrow() == *self.disk.journal.written().borrow()
    }

    /// Feeds the engine the appended records, and appends its records, until there are no more.
    pub(crate) fn catch_up(
        &mut self,
        now: Timestamp,
        mut seen: impl FnMut(Seq, Output),
    ) -> Result<(), AppendError> {
        loop {
            let (mut unwritten, mut released) = (VecDeque::new(), Vec::new());
            let batch = self.reader.next_batch(BATCH_RECORDS_MAX).expect("readable");
            if batch.is_empty() {
                return Ok(());
            }
            for found in batch.iter() {
                apply(&mut self.fold, &found, |seq, output| {
                    match &output {
                        Output::Publish(event) => unwritten.push_back(event.clone()),
                        Output::Answer { released: Some(release), .. } => released.push(release.clone()),
                        Output::Answer { released: None, .. }
                        | Output::Record(_)
                        | Output::Made(_)
                        | Output::Said(_)
                        | Output::Session(..)
                        | Output::Refuse { .. }
                        | Output::Wake(_) => {}
                    }
                    seen(seq, output);
                });
            }
            for release in released {
                let body = |body: &mut Vec<u8>| records::encode_released(&release, body);
                self.append(Append::of(records::RELEASED, Level::Written, now, body))?;
            }
            for event in unwritten {
                self.append(Append::events([&event], Level::Written, now))?;
            }
        }
    }

    /// Appends a tick at every deadline up to `now`.
    pub(crate) fn pass(
        &mut self,
        now: Timestamp,
        mut seen: impl FnMut(Seq, Output),
    ) -> Result<(), AppendError> {
        while let Some((due, _)) = self.fold.engine.poll_timeout().filter(|(due, _)| *due <= now) {
            self.append(Append::of(records::TICK, Level::Written, due, records::encode_bare))?;
            self.catch_up(due, &mut seen)?;
        }
        Ok(())
    }

    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }
}

/// Feeds one record to `fold`; `seen` gets every output, including those for the ledger.
pub(crate) fn apply(fold: &mut Fold, found: &Record<'_>, mut seen: impl FnMut(Seq, Output)) {
    fold.apply(found).expect("the journal can be followed");
    while let Some(output) = fold.engine.poll_output() {
        seen(found.seq, output);
    }
}

/// The idempotency key of a record, if it is an event.
pub(crate) fn key_of(kind: u8, body: &[u8]) -> Option<u128> {
    let event = (kind == records::EVENT).then(|| codec::decode(body).expect("an event"))?;
    Some(event.idempotency_key())
}
