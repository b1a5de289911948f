//! A random walk over everything that can happen to a journal, on a faulty disk, checked against a
//! model.
//!
//! After every start, all records answered as durable exist, and there is no record that was never
//! appended. After a kill without power loss, records that were only written exist too. If the
//! start is refused, the error names the cause, and its advice leads to a start. One number
//! determines the whole walk.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, io,
    sync::Arc,
};

use crate::{
    AppendError, IdempotencyKeys, Journal, Level, OpenError, Opened, ReadError, Record, RecordKind,
    RecoveryHint, RepairMode, Seq, Tombstone,
    log::{
        files::Files,
        mark::MARK_NAME,
        memory::{MemoryFiles, Operation, Random},
        segment_file,
    },
    maintenance::{repair::repair, verify::verify},
    settings::JournalSettings,
    testing::{HOUR, SEGMENT_BYTES, batch_of, number_of},
    time::Timestamp,
};

/// Number of walks; `ASIDE_WALK_SEEDS` overrides it. `ASIDE_WALK_SEED` is the number of the first
/// walk; without `ASIDE_WALK_SEEDS` it is the only one.
const SEEDS: u64 = 200;
const STEPS: usize = 14;
/// Most records that one flipped byte can lose: all of a segment with the smallest records, or
/// those that a damaged seal hides.
const LOST_MAX: usize = 16;
const TOMBSTONE: Tombstone<'static> = Tombstone { kind: RecordKind(255), body: b"lost" };

/// The promised records.
#[derive(Debug, Default)]
struct Model {
    /// Every number below it was appended once.
    next_number: u64,
    /// Records that were answered as durable, or that a start found.
    durable: BTreeMap<u64, u64>,
    /// Records answered as written since then.
    written: BTreeMap<u64, u64>,
    /// The positions of records, and the last durable position according to each; a mark has
    /// position 0.
    said: Vec<(u64, u64)>,
    /// All records before it may have been deleted.
    forgotten: u64,
    /// Records that a repair gave up.
    lost: BTreeSet<u64>,
}

/// How a run of the journal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    Killed,
    /// Killed, and the cache was dropped: bytes of a failed sync are read from the disk.
    Evicted,
    PowerLost,
}

struct Walk {
    random: Random,
    files: MemoryFiles,
    model: Model,
    /// The last record that the last start knew.
    known: Seq,
    /// The steps so far, for the message of a failure.
    steps: Vec<String>,
}

#[test]
fn random_walk_keeps_durable_records_or_explains_refusal() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (first, count) = (number("ASIDE_WALK_SEED"), number("ASIDE_WALK_SEEDS"));
    let count = count.unwrap_or(if first.is_some() { 1 } else { SEEDS });
    for seed in (first.unwrap_or(0)..).take(usize::try_from(count).expect("few enough")) {
        let mut walk = Walk::new(seed);
        if let Err(what) = walk.run() {
            let steps = walk.steps.join("\n  ");
            panic!(
                "seed {seed}: {what}\n  {steps}\nagain with: ASIDE_WALK_SEED={seed} cargo nextest run --lib journal::walk"
            );
        }
    }
}

impl Walk {
    fn new(seed: u64) -> Self {
        let model = Model { next_number: 1, ..Model::default() };
        Self { random: Random(seed), files: MemoryFiles::new(), model, known: Seq::ZERO, steps: Vec::new() }
    }

    fn run(&mut self) -> Result<(), String> {
        let mut journal = self.start(End::Closed, false)?;
        for _ in 0..STEPS {
            match self.random.below(9) {
                0..=3 => self.append(&journal),
                4 => self.forget(&journal),
                5 => {
                    idle(&self.files, &journal);
                    self.fail();
                }
                _ => {
                    let (end, is_flipped) = self.end(journal);
                    journal = self.start(end, is_flipped)?;
                }
            }
        }
        let (end, is_flipped) = self.end(journal);
        self.start(end, is_flipped)?.close_blocking().map_err(|poisoned| poisoned.to_string())
    }

    fn append(&mut self, journal: &Journal) {
        let count = if self.random.below(6) == 0 { 25 } else { 1 + self.random.below(3) as u64 };
        let level = if self.random.below(2) == 0 { Level::Written } else { Level::Synced };
        let first = self.model.next_number;
        self.model.next_number += count;
        let said = journal.synced().borrow().0;
        let appended = journal.append_blocking(batch_of(first..first + count), level);
        self.steps.push(match &appended {
            Ok(appended) => format!("append {first}..{} {level:?}: {:?}", first + count, appended.begin),
            Err(error) => format!("append {first}..{} {level:?}: {error}", first + count),
        });
        match appended {
            Ok(appended) => {
                let seqs = (appended.begin.0..).zip(first..first + count);
                self.model.said.push((appended.begin.0, said));
                if level == Level::Synced {
                    self.model.durable.append(&mut self.model.written);
                    self.model.durable.extend(seqs);
                } else {
                    self.model.written.extend(seqs);
                }
            }
            Err(AppendError::Full(_) | AppendError::Poisoned(_) | AppendError::Closed) => {}
        }
    }

    fn forget(&mut self, journal: &Journal) {
        let before = 1 + self.random.below(journal.synced().borrow().0 as usize) as u64;
        self.model.forgotten = self.model.forgotten.max(before);
        let forgotten = journal.forget_before(Seq(before));
        self.steps.push(format!("forget before {before}: {forgotten:?}"));
    }

    /// Makes one of the next operations fail.
    fn fail(&mut self) {
        const OPERATIONS: [Operation; 7] = [
            Operation::Open,
            Operation::Create,
            Operation::Rename,
            Operation::Remove,
            Operation::SyncDir,
            Operation::Write,
            Operation::Sync,
        ];
        const NAMES: [&str; 5] = [".seg", "next.seg", "unfinished", MARK_NAME, "0"];
        let operation = OPERATIONS[self.random.below(OPERATIONS.len())];
        let name = if operation == Operation::SyncDir { "" } else { NAMES[self.random.below(NAMES.len())] };
        let kind = if self.random.below(3) == 0 { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
        let times = 1 + self.random.below(2) as u32;
        self.steps.push(format!("fail {operation:?} of {name:?} {times} times: {kind}"));
        self.files.fail(operation, name, times, kind);
    }

    /// Ends the journal's run, and may flip a byte; returns how it ended, and whether a byte was
    /// flipped.
    fn end(&mut self, journal: Journal) -> (End, bool) {
        let ends = [End::Closed, End::Killed, End::Evicted, End::PowerLost];
        let mut end = ends[self.random.below(ends.len())];
        let seed = self.random.below(1 << 30) as u64;
        idle(&self.files, &journal);
        match end {
            End::Closed => {
                self.files.fail_no_more();
                if journal.close_blocking().is_ok() {
                    self.model.durable.append(&mut self.model.written);
                    self.model.said.push((0, journal.synced().borrow().0));
                } else {
                    end = End::Killed;
                }
                self.files = self.files.after_kill();
            }
            End::Killed | End::Evicted | End::PowerLost => {
                let left = if end == End::PowerLost {
                    self.files.after_power_loss(seed)
                } else {
                    self.files.after_kill()
                };
                // The old journal's threads end on the abandoned disk.
                self.files.fail_no_more();
                journal.close_blocking().ok();
                self.files = left;
                if end == End::Evicted {
                    self.files.drop_cache();
                }
            }
        }
        let is_flipped = self.random.below(4) == 0 && self.flip();
        self.steps.push(format!("{end:?}, flipped {is_flipped}"));
        (end, is_flipped)
    }

    /// Flips a byte of a file.
    fn flip(&mut self) -> bool {
        let mut names = self.files.list().expect("listed");
        names
            .retain(|name| segment_file::first_of(name).is_some() || name == "next.seg" || name == MARK_NAME);
        let Some(name) = names.get(self.random.below(names.len())) else { return false };
        let file = self.files.open(name).expect("there");
        let size = file.size().expect("sized") as usize;
        let (at, bit) = (self.random.below(size) as u64, self.random.below(8));
        let mut byte = [0];
        if file.read_at(&mut byte, at).expect("read") == 0 {
            return false;
        }
        file.write_at(&[byte[0] ^ (1 << bit)], at).and_then(|()| file.sync_data()).expect("written");
        self.steps.push(format!("flip bit {bit} of byte {at} of {name}"));
        if name == MARK_NAME {
            // Without the mark its durable position is unknown until the next orderly end.
            self.model.said.retain(|(seq, _)| *seq > 0);
        }
        true
    }

    /// Starts, with retries and repairs, and checks the records.
    fn start(&mut self, end: End, is_flipped: bool) -> Result<Journal, String> {
        let must = self.promised(end, is_flipped);
        if self.random.below(6) == 0 {
            self.fail();
            match self.open(&must) {
                Ok(opened) => drop(opened.journal.close_blocking()),
                Err(error) => self.steps.push(format!("the start failed: {error}")),
            }
            self.files.fail_no_more();
            if self.random.below(2) == 0 {
                let seed = self.random.below(1 << 30) as u64;
                self.files = self.files.after_power_loss(seed);
                // A successful start makes the found records durable; a failed one has promised
                // nothing.
                return self.start_checked(&self.promised(End::PowerLost, is_flipped), is_flipped);
            }
        }
        self.start_checked(&must, is_flipped)
    }

    /// The records that must exist.
    fn promised(&self, end: End, is_flipped: bool) -> BTreeMap<u64, u64> {
        let Model { durable, written, said, .. } = &self.model;
        let mut must = durable.clone();
        if is_flipped {
            // Without evidence of durability, damage cannot be distinguished from a torn end.
            let durable_to = durable.last_key_value().map_or(0, |(seq, _)| *seq);
            let survives = |(seq, _): &&(u64, u64)| end == End::Killed || *seq <= durable_to;
            let said_to = said.iter().filter(survives).map(|(_, said)| *said).max().unwrap_or(0);
            must.retain(|seq, _| *seq <= said_to);
        } else if end == End::Killed {
            must.extend(written);
        }
        must
    }

    fn start_checked(&mut self, must: &BTreeMap<u64, u64>, is_flipped: bool) -> Result<Journal, String> {
        let refused = match self.open(must) {
            Ok(opened) => match self.check(&opened.journal, must) {
                Ok(()) => return Ok(opened.journal),
                Err(Wrong::Model(what)) => return Err(what),
                Err(Wrong::Read(error)) => {
                    opened.journal.close_blocking().ok();
                    error.to_string()
                }
            },
            Err(error) => error.to_string(),
        };
        self.steps.push(format!("refused: {refused}"));
        if !is_flipped {
            return Err(format!("refused without a cause: {refused}"));
        }
        let verified = verify(&self.files, TOMBSTONE.kind, self.known).map_err(|error| error.to_string())?;
        if verified.findings() == 0 {
            return Err(format!("refused, and nothing is found to be wrong: {refused}"));
        }
        let (_, repaired) = repair(&self.files, TOMBSTONE, self.known, RepairMode::Rewrite)
            .map_err(|error| error.to_string())?;
        self.steps.push(format!("repaired: {repaired:?}"));
        let opened = self.open(must).map_err(|error| format!("refused after a repair: {error}"))?;
        match self.check(&opened.journal, must) {
            Ok(()) => Ok(opened.journal),
            Err(wrong) => Err(format!("after a repair: {wrong:?}")),
        }
    }

    /// Opens, half of the time as a daemon does that has a snapshot: one is only written of durable
    /// records.
    fn open(&mut self, must: &BTreeMap<u64, u64>) -> Result<Opened, OpenError> {
        let seal = self.random.below(2) == 0;
        let [must, durable] =
            [must, &self.model.durable].map(|records| records.last_key_value().map_or(0, |(seq, _)| *seq));
        let last = must.min(durable);
        let has_snapshot = last > 0 && self.random.below(2) == 0;
        self.known = Seq(if has_snapshot { 1 + self.random.below(last as usize) as u64 } else { 0 });
        let hint = RecoveryHint { seq: self.known, keys_upto: self.known };
        let settings = JournalSettings {
            segment_bytes: SEGMENT_BYTES,
            sync_within: HOUR,
            seal,
            ..JournalSettings::default()
        };
        self.steps.push(format!("open, known to {}", self.known));
        let (files, clock) = (Arc::new(self.files.clone()), Arc::new(|| Timestamp::from_millis(5)));
        let report = Journal::scan(files.as_ref(), &|_| None, hint)?;
        Journal::open_scanned(files, settings, clock, report, IdempotencyKeys::default())
    }

    /// Compares all records with those that must exist, and adds them to the promised ones.
    fn check(&mut self, journal: &Journal, must: &BTreeMap<u64, u64>) -> Result<(), Wrong> {
        let first = journal.stored().expect("in memory").first;
        let mut reader = journal.read_from(first);
        let (mut found, mut lost) = (BTreeMap::new(), BTreeSet::new());
        loop {
            let records = reader.next_batch(100).map_err(Wrong::Read)?;
            if records.is_empty() {
                break;
            }
            for Record { kind, seq, body, .. } in records.iter() {
                if kind == TOMBSTONE.kind {
                    lost.insert(seq.0);
                } else {
                    found.insert(seq.0, number_of(body));
                }
            }
        }
        let model = &mut self.model;
        let wrong = |what: String| Err(Wrong::Model(what));
        if first.0 > model.forgotten.max(1) {
            return wrong(format!(
                "begins with {first}, and nothing from {} on was deleted",
                model.forgotten
            ));
        }
        if lost.difference(&model.lost).count() > LOST_MAX {
            return wrong(format!("a single byte cost {lost:?}"));
        }
        for (seq, number) in must.range(first.0..) {
            if found.get(seq) != Some(number) && !lost.contains(seq) {
                return wrong(format!("record {seq} was promised as {number}, and is {:?}", found.get(seq)));
            }
        }
        let mut numbers: Vec<&u64> = found.values().collect();
        if let Some(other) = numbers.iter().find(|number| ***number >= model.next_number) {
            return wrong(format!("{other} was never appended"));
        }
        let is_in_order = numbers.is_sorted();
        numbers.dedup();
        if !is_in_order || numbers.len() < found.len() {
            return wrong(format!("{numbers:?} is not what was appended"));
        }
        let last = journal.written().borrow().0;
        model.said.retain(|(seq, said)| *seq <= last && *said <= last);
        (model.durable, model.lost, model.written) = (found, lost, BTreeMap::new());
        Ok(())
    }
}

#[derive(Debug)]
enum Wrong {
    Model(String),
    Read(ReadError),
}

/// Waits until the journal's threads are idle, so that the same number produces the same walk.
fn idle(files: &MemoryFiles, journal: &Journal) {
    let inner = &journal.inner;
    let (mut quiet, mut before) = (0, files.operations());
    loop {
        std::thread::yield_now();
        // Without a next file, either none will come, or the thread that prepares it retries.
        let has_next = files.list().expect("listed").iter().any(|name| name == "next.seg");
        if quiet == if has_next { 2 } else { 20 } {
            break;
        }
        let now = files.operations();
        quiet = if inner.commits.is_idle() && now == before { quiet + 1 } else { 0 };
        before = now;
    }
    inner.store.maintenance.wait_until_idle();
}
