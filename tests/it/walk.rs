//! A random walk of daemons over one state folder, checked against their guarantees.
//!
//! Events are published and acknowledged, exchanges take pending events, snapshots are written,
//! rules change, retention deletes, the disk fails, and the process is stopped, killed or loses
//! power, also within its start. A snapshot is damaged, deleted, or gets an unknown version. At the
//! end every acknowledged event was delivered, and exactly once if no power was lost. One number
//! determines the whole walk.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    io,
    ops::ControlFlow,
    sync::LazyLock,
};

use aside::{
    config::layers::{LayerKind, SourceFile, Sources},
    daemon::{replay::RecoveryError, rules::RulesStore},
};
use engine::{
    Output, RequestId,
    event::{Event, Payload, Provenance, SessionId, Severity},
    exchange::Exchange,
    notification::InjectionPoint,
    records,
};
use journal::{
    Level, Outcome,
    files::Files,
    memory::{MemoryFiles, Operation},
    time::Timestamp,
};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    event_loop::{Append, Daemon, Disk},
    random::{Random, number},
};

/// Default number of walks, see `ASIDE_WALK_SEEDS`; each test runs a quarter of them.
const SEEDS: u64 = 1_000;
const STEPS: usize = 16;
const SEGMENT_BYTES: u64 = 4_096;
/// The offset of the format in a snapshot.
const FORM_AT: u64 = 8;
/// Most exchanges until nothing is pending.
const EXCHANGES_MAX: usize = 60;

const EACH: &str = "[subscriber]\nid = \"each\"\n[events]\ntypes = [\"walk.each\"]\n[batching]\nwindow_ms = 0\n[output]\npriority = \"high\"\n";
const BATCHED: &str = "[subscriber]\nid = \"batched\"\n[events]\ntypes = [\"walk.batched\"]\n[batching]\nwindow_ms = 2000\nmax_size = 4\n";

/// Two generations of rules: the same subscribers with other limits.
static RULES: LazyLock<(TempDir, [String; 2])> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let store = RulesStore::new(folder.path());
    let hashes = [3, 10].map(|max_notifications| {
        let file = |name: &str, text: &str| SourceFile {
            layer: LayerKind::User,
            name: name.into(),
            path: name.into(),
            text: text.into(),
        };
        let settings = format!("[injection]\nmax_notifications = {max_notifications}\n");
        let sources = Sources::new([
            file("aside.toml", &settings),
            file("subscribers/each.toml", EACH),
            file("subscribers/batched.toml", BATCHED),
        ]);
        store.keep(&sources).expect("kept")
    });
    (folder, hashes)
});

/// How a run of the daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Stopped,
    Killed,
    PowerLost,
}

struct Walk {
    random: Random,
    files: MemoryFiles,
    /// The files of the state folder that are not the journal's.
    state: TempDir,
    now: u64,
    next_event: u64,
    next_carrier: u64,
    /// Events that were acknowledged as durable.
    acknowledged: BTreeSet<u64>,
    /// How often the text of each event was delivered.
    delivered: BTreeMap<u64, u32>,
    /// Events whose answer was recorded but not sent, as the disk failed then.
    unclear: BTreeSet<u64>,
    has_lost_power: bool,
    /// The steps so far, for the message of a failure.
    steps: Vec<String>,
}

fn walk_quarter(quarter: u64) {
    let seeds: Vec<u64> = match number("ASIDE_WALK_SEED") {
        Some(seed) => vec![seed],
        None => {
            let seeds = number("ASIDE_WALK_SEEDS").unwrap_or(SEEDS) / 4;
            (quarter * seeds..(quarter + 1) * seeds).collect()
        }
    };
    for seed in seeds {
        let mut walk = Walk::new(seed);
        if let Err(what) = walk.run() {
            let steps = walk.steps.join("\n  ");
            panic!(
                "seed {seed}: {what}\n  {steps}\nagain with: ASIDE_WALK_SEED={seed} cargo nextest run --test it walk::"
            );
        }
    }
}

#[test]
fn random_walk_delivers_acknowledged_events_first_quarter() {
    walk_quarter(0);
}

#[test]
fn random_walk_delivers_acknowledged_events_second_quarter() {
    walk_quarter(1);
}

#[test]
fn random_walk_delivers_acknowledged_events_third_quarter() {
    walk_quarter(2);
}

#[test]
fn random_walk_delivers_acknowledged_events_fourth_quarter() {
    walk_quarter(3);
}

impl Walk {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            files: MemoryFiles::new(),
            state: tempfile::tempdir().expect("a folder"),
            now: 1_000,
            next_event: 1,
            next_carrier: 1,
            acknowledged: BTreeSet::new(),
            delivered: BTreeMap::new(),
            unclear: BTreeSet::new(),
            has_lost_power: false,
            steps: Vec::new(),
        }
    }

    fn run(&mut self) -> Result<(), String> {
        let mut daemon = self.start()?;
        for _ in 0..STEPS {
            let goes_on = match self.random.below(12) {
                0..=3 => self.publish(&mut daemon),
                4..=5 => self.exchange(&mut daemon).is_ok(),
                6 => self.pass(&mut daemon),
                7 => self.take_snapshot(&mut daemon),
                8 => self.republish(&mut daemon)?,
                9 => {
                    self.fail();
                    true
                }
                _ => false,
            };
            if !goes_on {
                self.end(daemon);
                daemon = self.start()?;
            }
        }
        self.end(daemon);
        daemon = self.start()?;
        self.take_all(&mut daemon)?;
        daemon.disk().journal.close_blocking().map_err(|poisoned| poisoned.to_string())?;
        self.check()
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    /// Starts a daemon on the current files, with the previous rules or others.
    fn start(&mut self) -> Result<Daemon, String> {
        let (folder, hashes) = &*RULES;
        self.files.fail_no_more();
        for _ in 0..self.random.below(4) {
            self.end_in_a_start()?;
        }
        let (disk, fold) = Disk::open(&self.files, SEGMENT_BYTES, folder.path())
            .map_err(|error| format!("the start is refused: {error}"))?;
        let from = fold.applied;
        let hash = self.random.one_of(&[&hashes[0], &hashes[1]]);
        self.now += 1 + self.random.below(500);
        let goes_on = |_, _| ControlFlow::Continue(());
        let started = Daemon::start_in(self.state.path(), disk, fold, self.time(), &goes_on);
        let (mut daemon, skipped) =
            started.map_err(|error| format!("the start does not come to its end: {error}"))?;
        if !skipped.is_empty() {
            return Err(format!("good records are skipped: {skipped:?}"));
        }
        let body = |body: &mut Vec<u8>| records::encode_rules(hash, body);
        let mut begin = || {
            daemon.append(Append::of(records::RULES, Level::Written, self.time(), body))?;
            daemon.catch_up(self.time(), |_, _| ())
        };
        begin().map_err(|error| format!("the rules are not in force: {error}"))?;
        self.steps.push(format!("start from snapshot {from}, head {}", daemon.fold.applied));
        Ok(daemon)
    }

    /// Kills some starts at one record, or lets them lose power there.
    fn end_in_a_start(&mut self) -> Result<(), String> {
        let at = 1 + self.random.below(12);
        let (starts, loses_power) = (1 + self.random.below(4), self.random.below(8) == 0);
        self.steps.push(format!("{starts} starts end at their record {at}, power lost: {loses_power}"));
        for _ in 0..starts {
            let opened = Disk::open(&self.files, SEGMENT_BYTES, RULES.0.path());
            let (disk, fold) = opened.map_err(|error| format!("a start is refused: {error}"))?;
            let journal = disk.journal.clone();
            let applied = Cell::new(0);
            let before = |_, _| {
                applied.set(applied.get() + 1);
                if applied.get() == at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let started = Daemon::start_in(self.state.path(), disk, fold, self.time(), &before);
            let seed = self.random.below(1 << 30);
            let left = if loses_power { self.files.after_power_loss(seed) } else { self.files.after_kill() };
            self.has_lost_power |= loses_power;
            match started {
                // The journal has fewer records.
                Ok(_) | Err(RecoveryError::Interrupted(_)) => {}
                Err(error) => return Err(format!("a start does not come to its end: {error}")),
            }
            // Its end reaches none of the files that are left.
            journal.close_blocking().ok();
            self.files = left;
        }
        Ok(())
    }

    fn event(&self, number: u64) -> Event {
        let event_type = if number.is_multiple_of(3) { "walk.batched" } else { "walk.each" };
        Event {
            id: format!("id-{number}").into(),
            event_type: event_type.parse().expect("a type"),
            source: "walk".into(),
            provenance: Provenance::Local,
            severity: Severity::Info,
            timestamp: self.time(),
            payload: Payload::from(json!({ "tag": format!("e{number}x") })),
            dedupe_key: Some(number.to_string().into()),
            session: Some(SessionId::new("s")),
            workspace: None,
            cause: None,
            deliver_after: None,
        }
    }

    fn publish(&mut self, daemon: &mut Daemon) -> bool {
        let count = if self.random.below(8) == 0 { 20 } else { 1 + self.random.below(3) };
        let level = self.random.one_of(&[Level::Synced, Level::Synced, Level::Written]);
        self.now += self.random.below(700);
        let numbers = self.next_event..self.next_event + count;
        self.next_event += count;
        let events: Vec<Event> = numbers.clone().map(|number| self.event(number)).collect();
        let appended = daemon.append(Append::events(&events, level, self.time()));
        self.steps.push(format!("publish {numbers:?} {level:?}: {}", said(&appended)));
        if appended.is_ok() && level == Level::Synced {
            self.acknowledged.extend(numbers);
        }
        appended.is_ok() && daemon.catch_up(self.time(), |_, _| ()).is_ok()
    }

    /// Publishes an acknowledged event again, like a producer that did not get the answer.
    fn republish(&mut self, daemon: &mut Daemon) -> Result<bool, String> {
        let all: Vec<u64> = self.acknowledged.iter().copied().collect();
        if all.is_empty() {
            return Ok(true);
        }
        let number = self.random.one_of(&all);
        let event = self.event(number);
        let appended = daemon.append(Append::events([&event], Level::Synced, self.time()));
        self.steps.push(format!("publish {number} again: {}", said(&appended)));
        match appended {
            Err(_) => Ok(false),
            Ok(appended) => match appended.outcomes().next() {
                Some(Outcome::Duplicate(_)) => Ok(daemon.catch_up(self.time(), |_, _| ()).is_ok()),
                other => Err(format!("{number} was acknowledged, and is taken again: {other:?}")),
            },
        }
    }

    /// Makes one exchange; returns the events in its text. Without an answer the daemon has to be
    /// ended.
    fn exchange(&mut self, daemon: &mut Daemon) -> Result<BTreeSet<u64>, ()> {
        let point = self.random.one_of(&[
            InjectionPoint::TurnStart,
            InjectionPoint::AfterTool,
            InjectionPoint::TurnEnd,
        ]);
        self.next_carrier += 1;
        self.now += 200;
        let exchange = Exchange::new(SessionId::new("s"), point, &format!("c{}", self.next_carrier));
        let body = |body: &mut Vec<u8>| records::encode_exchange(RequestId(1), &exchange, body);
        let mut numbers = BTreeSet::new();
        let appended = daemon.append(Append::of(records::EXCHANGE, Level::Written, self.time(), body));
        let answered = appended.and_then(|_| {
            daemon.catch_up(self.time(), |_, output| {
                if let Output::Answer { answer, .. } = output {
                    numbers.extend(answer.injection.iter().flat_map(|injection| tags(&injection.text)));
                }
            })
        });
        self.steps.push(format!("{point:?} gets {numbers:?}: {}", said(&answered)));
        match answered {
            Ok(()) => {
                for number in &numbers {
                    *self.delivered.entry(*number).or_default() += 1;
                }
                Ok(numbers)
            }
            Err(_) => {
                self.unclear.extend(numbers);
                Err(())
            }
        }
    }

    fn pass(&mut self, daemon: &mut Daemon) -> bool {
        self.now += 100 + self.random.below(3_000);
        self.steps.push(format!("it is {}", self.now));
        daemon.pass(self.time(), |_, _| ()).is_ok()
    }

    fn take_snapshot(&mut self, daemon: &mut Daemon) -> bool {
        let taken = daemon.take_snapshot(self.time(), |_, _| ());
        let forgets = self.random.below(3) == 0;
        self.steps.push(format!("snapshot at {}, {}, forgets: {forgets}", daemon.fold.applied, said(&taken)));
        if forgets && let Some(needed) = daemon.disk().snapshots.oldest_needed() {
            daemon.disk().journal.forget_before(needed.next()).ok();
        }
        taken.is_ok()
    }

    /// Makes the next operation of a random kind fail.
    fn fail(&mut self) {
        let operation = self.random.one_of(&[
            Operation::Create,
            Operation::Rename,
            Operation::Remove,
            Operation::SyncDir,
            Operation::Write,
            Operation::Sync,
        ]);
        let names = [".seg", "next.seg", "unfinished", ".snap", "0"];
        let name = if operation == Operation::SyncDir { "" } else { self.random.one_of(&names) };
        let kind = self.random.one_of(&[io::ErrorKind::Other, io::ErrorKind::StorageFull]);
        self.steps.push(format!("{operation:?} of {name:?} fails: {kind}"));
        self.files.fail(operation, name, 1, kind);
    }

    /// Ends a run, and may leave the newest snapshot damaged.
    fn end(&mut self, daemon: Daemon) {
        let mut end = self.random.one_of(&[End::Stopped, End::Killed, End::PowerLost]);
        let seed = self.random.below(1 << 30);
        let left =
            if end == End::PowerLost { self.files.after_power_loss(seed) } else { self.files.after_kill() };
        self.files.fail_no_more();
        if daemon.disk().journal.close_blocking().is_err() && end == End::Stopped {
            end = End::Killed;
        }
        self.files = if end == End::Stopped { self.files.after_kill() } else { left };
        self.has_lost_power |= end == End::PowerLost;
        let damage = self.random.below(6);
        self.steps.push(format!("{end:?}, damage {damage}"));
        self.damage(damage);
    }

    /// Damages or deletes the newest snapshot if there are two, so that one is left intact.
    fn damage(&mut self, kind: u64) {
        let mut names = self.files.list().expect("listed");
        names.retain(|name| name.ends_with(".snap"));
        names.sort();
        let Some(newest) = names.pop().filter(|_| !names.is_empty()) else { return };
        match kind {
            0 => self.files.remove(&newest).expect("removed"),
            1 | 2 => {
                let file = self.files.open(&newest).expect("it is there");
                let size = file.size().expect("known");
                let at = if kind == 1 { self.random.below(size) } else { FORM_AT };
                let mut byte = [0];
                file.read_at(&mut byte, at).expect("readable");
                file.write_at(&[byte[0] ^ 0x40], at).expect("written");
                file.sync_data().expect("synced");
            }
            _ => {}
        }
    }

    /// Takes everything that is pending.
    fn take_all(&mut self, daemon: &mut Daemon) -> Result<(), String> {
        let mut without = 0;
        for _ in 0..EXCHANGES_MAX {
            if !self.pass(daemon) {
                return Err("time does not pass".to_owned());
            }
            match self.exchange(daemon) {
                Err(()) => return Err("an exchange is not answered".to_owned()),
                Ok(numbers) if numbers.is_empty() => without += 1,
                Ok(_) => without = 0,
            }
            if without == 8 {
                return Ok(());
            }
        }
        Err("what waits does not end".to_owned())
    }

    fn check(&self) -> Result<(), String> {
        let is_missing =
            |number: &&u64| !self.delivered.contains_key(*number) && !self.unclear.contains(*number);
        if let Some(number) = self.acknowledged.iter().find(is_missing) {
            return Err(format!("event {number} was acknowledged and never delivered"));
        }
        match self.delivered.iter().find(|(_, times)| **times > 1 && !self.has_lost_power) {
            Some((number, times)) => Err(format!("event {number} was delivered {times} times")),
            None => Ok(()),
        }
    }
}

fn said<T, E: std::fmt::Display>(result: &Result<T, E>) -> String {
    result.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned())
}

/// The numbers of the events in a text.
fn tags(text: &str) -> BTreeSet<u64> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric());
    words.filter_map(|word| word.strip_prefix('e')?.strip_suffix('x')?.parse().ok()).collect()
}
