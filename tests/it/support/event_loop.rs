//! The daemon's event loop without its threads, sockets and clock: what is appended is appended when a test says so.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use aside::{
    bus::publish_key,
    daemon::{fold::Fold, recovery, rules::RulesStore},
    engine::Output,
    event::{Event, Seq, codec},
    journal::{
        AppendBatch, AppendError, Appended, Durability, Journal, JournalSettings, Known, Level, OpenError,
        Reader, Record, RecordBuf, RecordKind, memory::MemoryFiles,
    },
    protocol::record,
    time::Timestamp,
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

/// A journal on files in memory, and the time that its records get.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) journal: Journal,
    now: Arc<AtomicU64>,
}

/// An engine that follows a journal, as the daemon holds it.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) fold: Fold,
    disk: Disk,
    reader: Reader,
    /// What was appended, in order.
    pub(crate) appends: Vec<Append>,
}

impl Append {
    /// One record of a kind, with a body that `write` makes.
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
            record::encode_event(&event.as_ref(), &mut body);
            (record::EVENT, body)
        };
        Self { records: events.into_iter().map(encode).collect(), level, at }
    }
}

impl Disk {
    /// Opens the journal in `files`, with segments of `segment_bytes`.
    pub(crate) fn open(files: &MemoryFiles, segment_bytes: u64) -> Result<Self, OpenError> {
        let now = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&now);
        let settings = JournalSettings { segment_bytes, durability: Durability::Sync };
        let clock = Arc::new(move || Timestamp::from_millis(read.load(Ordering::SeqCst)));
        let key_of = |found: Record<'_>| key_of(found.kind.0, found.body);
        let opened = Journal::open(Arc::new(files.clone()), settings, clock, &key_of, Known::nothing())?;
        Ok(Self { journal: opened.journal, now })
    }

    /// Appends and waits; events have their publish keys.
    pub(crate) fn append(&self, append: &Append) -> Result<Appended, AppendError> {
        let mut batch = AppendBatch::new();
        for (kind, body) in &append.records {
            batch.push(RecordKind(*kind), body, key_of(*kind, body)).expect("small");
        }
        self.now.store(append.at.as_millis(), Ordering::SeqCst);
        self.journal.append_blocking(batch, append.level)
    }

    /// Everything that can be read.
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
    /// Replays what the journal has and publishes what is still owed; `rules` is the folder of the rules.
    pub(crate) fn start(disk: Disk, rules: &Path, now: Timestamp) -> Result<Self, AppendError> {
        let mut fold = Fold::new(RulesStore::new(rules));
        let mut reader = disk.journal.read_from(Seq(1));
        let owed = recovery::replay(&mut reader, &mut fold).expect("the journal can be followed");
        let mut daemon = Self { fold, disk, reader, appends: Vec::new() };
        for event in owed {
            daemon.append(Append::events([&event], Level::Written, now))?;
        }
        Ok(daemon)
    }

    /// Appends, without feeding the engine.
    pub(crate) fn append(&mut self, append: Append) -> Result<Appended, AppendError> {
        let appended = self.disk.append(&append);
        self.appends.push(append);
        appended
    }

    /// Feeds the engine what was appended, and appends what it asks for, until there is nothing more.
    pub(crate) fn catch_up(
        &mut self,
        now: Timestamp,
        mut seen: impl FnMut(Seq, Output),
    ) -> Result<(), AppendError> {
        loop {
            let mut owed = VecDeque::new();
            let batch = self.reader.next_batch(BATCH_RECORDS_MAX).expect("readable");
            if batch.is_empty() {
                return Ok(());
            }
            for found in batch.iter() {
                apply(&mut self.fold, &found, |seq, output| {
                    if let Output::Publish(event) = &output {
                        owed.push_back(event.clone());
                    }
                    seen(seq, output);
                });
            }
            for event in owed {
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
            self.append(Append::of(record::TICK, Level::Written, due, record::encode_bare))?;
            self.catch_up(due, &mut seen)?;
        }
        Ok(())
    }

    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }
}

/// Feeds one record to `fold`; every output is seen, those for the ledger too.
pub(crate) fn apply(fold: &mut Fold, found: &Record<'_>, mut seen: impl FnMut(Seq, Output)) {
    fold.apply(found).expect("the journal can be followed");
    while let Some(output) = fold.engine.poll_output() {
        seen(found.seq, output);
    }
}

fn key_of(kind: u8, body: &[u8]) -> Option<u128> {
    let event = (kind == record::EVENT).then(|| codec::decode(body).expect("an event"))?;
    Some(publish_key(event.source, event.id))
}
