//! Cuts a workload off at every write and at every sync; a restart must find a prefix of it.
//!
//! The workload runs once without faults, through journal and engine, and every call of the journal
//! is recorded. Then the same calls are made again on a disk that fails at one point, for every
//! point. The state that a restart finds, after a power loss or a kill, is replayed and compared
//! record by record and output by output. At the end the producers publish all unanswered events
//! again, and every event must be delivered once.

use std::{collections::BTreeMap, path::Path, sync::LazyLock};

use aside::daemon::{fold::Fold, rules::RulesStore};
use engine::{
    Output, RequestId,
    event::{Event, Payload, Seq, SessionId, Severity, codec},
    exchange::{Budget, CarrierEffect, ContextChange, Exchange, Harness, InjectionId, Trigger},
    ledger::{ConfirmedBy, LedgerEntry},
    notification::InjectionPoint,
    records::{self, RecordInput},
    sorted::SortedSet,
};
use journal::{
    AppendError, Level, Record, RecordBuf, RecordKind,
    memory::{Faults, MemoryFiles},
    time::Timestamp,
};
use serde_json::json;
use strum::VariantArray;
use tempfile::TempDir;

use crate::support::{
    event_loop::{Append, Call, Daemon, Disk, apply},
    generations,
    restored::written,
};

const BEGIN_MS: u64 = 1_700_000_000_000;
/// About a dozen records, so that the workload fills many segments.
const SEGMENT_BYTES: u64 = 4_096;
const ROUNDS: u64 = 32;
/// Variants of a power loss that are tried at each point.
const SEEDS: u64 = 2;

/// The acts of producers, harnesses and the user, in order.
#[derive(Debug, Clone)]
enum Act {
    Publish(Vec<Event>),
    Exchange(Exchange),
    /// Confirms the newest injection of the session.
    Ack(SessionId),
    Open(SessionId, Harness),
    Close(SessionId),
    Rules(usize),
    Snapshot,
    Stop,
}

#[derive(Debug, Clone)]
struct Timed {
    at: Timestamp,
    act: Act,
}

/// The data that is the same for every cut.
struct Workload {
    /// Keeps the folder of the rules alive.
    folder: TempDir,
    acts: Vec<Timed>,
    calls: Vec<Call>,
    /// The act that each call belongs to.
    acts_of_calls: Vec<usize>,
    records: Vec<RecordBuf>,
    /// For each record.
    outputs: Vec<Vec<String>>,
    delivered: Delivered,
}

/// The recovered state: number of records, its act, and the position covered by a snapshot.
type Beginnings = SortedSet<(usize, usize, Seq)>;

/// The subscribers that accounted for each event, by event id.
type Delivered = BTreeMap<String, SortedSet<String>>;

static WORKLOAD: LazyLock<Workload> = LazyLock::new(Workload::new);

fn acts() -> Vec<Timed> {
    const TYPES: [&str; 5] =
        ["tool.call.failure", "fs.file.modified", "ci.check.passed", "budget.token.exceeded", "nobody.asks"];
    const SESSIONS: [Option<&str>; 4] = [Some("s1"), None, Some("s2"), Some("later")];
    let (s1, s2) = (SessionId::new("s1"), SessionId::new("s2"));
    let mut now = BEGIN_MS;
    let mut acts = vec![Act::Rules(0), Act::Open(s1.clone(), Harness::default())];
    let mut times = vec![now, now];
    let event = |number: u64, at: u64| Event {
        id: format!("e{number}").into(),
        event_type: TYPES[index(number, TYPES.len())].parse().expect("a type"),
        source: "tools".into(),
        provenance: engine::event::Provenance::Harness,
        severity: if number % 11 == 5 { Severity::Critical } else { Severity::Error },
        timestamp: Timestamp::from_millis(at),
        payload: Payload::from(payload(number)),
        dedupe_key: None,
        session: SESSIONS[index(number / 3, SESSIONS.len())].map(SessionId::new),
        workspace: None,
        cause: None,
        deliver_after: None,
    };
    let mut published = 0;
    for round in 0..ROUNDS {
        now += 50 + round * 397 % 900;
        let mut act = |act| {
            acts.push(act);
            times.push(now);
        };
        let mut events: Vec<Event> = (0..2 + round % 7).map(|n| event(published + n, now)).collect();
        published += 2 + round % 7;
        if round % 7 == 6 {
            // An uncertain producer publishes again.
            events.push(event(published / 2, now));
        }
        act(Act::Publish(events));
        let session = if round % 4 == 3 { &s2 } else { &s1 };
        if round % 2 == 1 {
            act(Act::Exchange(exchange(session, round)));
        }
        if round % 6 == 5 {
            act(Act::Ack(session.clone()));
        }
        if round % 5 == 4 {
            act(Act::Snapshot);
        }
        match round {
            12 => act(Act::Open(
                SessionId::new("child"),
                Harness { parent: Some(s1.clone()), ..Harness::default() },
            )),
            20 => act(Act::Rules(1)),
            26 => act(Act::Close(s2.clone())),
            _ => {}
        }
    }
    acts.push(Act::Stop);
    times.push(now);
    acts.into_iter().zip(times).map(|(act, at)| Timed { act, at: Timestamp::from_millis(at) }).collect()
}

fn payload(number: u64) -> serde_json::Value {
    // A field that should be a number is sometimes text, so that a subscriber's condition fails on
    // it.
    let n = if number % 4 == 3 { json!("three") } else { json!(number) };
    json!({ "tool": format!("t{}", number % 5 / 2), "n": n })
}

fn index(number: u64, length: usize) -> usize {
    usize::try_from(number).expect("small") % length
}

fn exchange(session: &SessionId, round: u64) -> Exchange {
    Exchange {
        session: session.clone(),
        point: InjectionPoint::VARIANTS[index(round / 2, InjectionPoint::VARIANTS.len())],
        carrier: format!("c{round}").into(),
        turn: Some(format!("t{}", round / 8).into()),
        step: None,
        harness: Harness::default(),
        tool: None,
        acks: Vec::new(),
        known_calls: Vec::new(),
        budget: Budget::default(),
        format: None,
        carrier_effect: CarrierEffect::None,
        context: ContextChange::default(),
        shows_notices: false,
        trigger: Trigger::Agent,
    }
}

/// A daemon that performs acts, and its outputs for each record.
struct Run {
    daemon: Daemon,
    seen: Seen,
}

#[derive(Default)]
struct Seen {
    outputs: BTreeMap<Seq, Vec<String>>,
    entries: Vec<LedgerEntry>,
    injections: BTreeMap<SessionId, InjectionId>,
}

impl Seen {
    fn see(&mut self, seq: Seq, output: Output) {
        self.outputs.entry(seq).or_default().push(format!("{output:?}"));
        match output {
            Output::Record(entry) => self.entries.push(entry),
            Output::Answer { session, answer, .. } => {
                self.injections.extend(answer.injection.map(|injection| (session, injection.id)));
            }
            Output::Publish(_)
            | Output::Refuse { .. }
            | Output::Wake(_)
            | Output::Made(_)
            | Output::Said(_)
            | Output::Session(..) => {}
        }
    }
}

impl Run {
    fn act(&mut self, Timed { at, act }: &Timed) -> Result<(), AppendError> {
        self.daemon.pass(*at, |seq, output| self.seen.see(seq, output))?;
        let append = match act {
            Act::Publish(events) => Append::events(events, Level::Synced, *at),
            Act::Exchange(exchange) => Append::of(records::EXCHANGE, Level::Written, *at, |body| {
                records::encode_exchange(RequestId(at.as_millis()), exchange, body);
            }),
            Act::Ack(session) => {
                let injection = self.seen.injections.get(session).cloned();
                let injection = injection.unwrap_or_else(|| InjectionId::new("none"));
                Append::of(records::ACK, Level::Written, *at, |body| {
                    records::encode_ack(session, &injection, ConfirmedBy::Ack, body);
                })
            }
            Act::Open(session, harness) => Append::of(records::SESSION_OPENED, Level::Written, *at, |body| {
                records::encode_session_opened(session, harness, body);
            }),
            Act::Close(session) => Append::of(records::SESSION_CLOSED, Level::Written, *at, |body| {
                records::encode_session_ended(session, body);
            }),
            Act::Rules(generation) => rules_at(*generation, *at),
            Act::Snapshot => return self.daemon.take_snapshot(*at, |seq, output| self.seen.see(seq, output)),
            Act::Stop => Append::of(records::SHUTTING_DOWN, Level::Written, *at, records::encode_bare),
        };
        self.daemon.append(append)?;
        self.daemon.catch_up(*at, |seq, output| self.seen.see(seq, output))
    }

    /// The subscribers that accounted for each event.
    ///
    /// # Panics
    /// If a subscriber accounted for an event twice, or a notification was made twice.
    fn delivered(&self) -> Delivered {
        let (mut ids, mut known) = (BTreeMap::new(), SortedSet::new());
        for found in self.daemon.disk().records() {
            if found.kind.0 == records::EVENT {
                let event = codec::decode(&found.body).expect("an event");
                let id = format!("{} {}", event.source, event.id);
                assert!(known.insert(id.clone()), "{id} is in the journal twice");
                ids.insert(found.seq, id);
            }
        }
        let (mut delivered, mut made) = (Delivered::new(), SortedSet::new());
        let mut tell = |seq: &Seq, subscriber: &str| {
            let is_first = delivered.entry(ids[seq].clone()).or_default().insert(subscriber.to_owned());
            assert!(is_first, "{} ends twice in {subscriber}", ids[seq]);
        };
        for entry in &self.seen.entries {
            if let LedgerEntry::Created { notification, subscriber, events, .. } = entry {
                assert!(made.insert(notification), "{notification} is made twice");
                events.iter().for_each(|seq| tell(seq, subscriber.as_str()));
            }
            if let LedgerEntry::EventEnded { seq, subscriber, .. } = entry {
                tell(seq, subscriber.as_str());
            }
            if let LedgerEntry::Unmatched { seq } = entry {
                tell(seq, "nobody");
            }
        }
        delivered
    }
}

fn rules_at(generation: usize, at: Timestamp) -> Append {
    let hash = generations::sources(generation).hash();
    Append::of(records::RULES, Level::Written, at, |body| records::encode_rules(&hash, body))
}

impl Workload {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for generation in 0..generations::GENERATIONS {
            RulesStore::new(folder.path()).keep(&generations::sources(generation)).expect("kept");
        }
        let (disk, fold) = Disk::open(&MemoryFiles::new(), SEGMENT_BYTES, folder.path()).expect("opened");
        let daemon = Daemon::start(disk, fold, Timestamp::ZERO).expect("started");
        let mut run = Run { daemon, seen: Seen::default() };
        let (acts, mut acts_of_calls) = (acts(), Vec::new());
        for (index, act) in acts.iter().enumerate() {
            run.act(act).expect("nothing fails");
            acts_of_calls.resize(run.daemon.calls.len(), index);
        }
        let records = run.daemon.disk().records();
        let outputs =
            records.iter().map(|found| run.seen.outputs.get(&found.seq).cloned().unwrap_or_default());
        let outputs = outputs.collect();
        let delivered = run.delivered();
        Self { folder, acts, calls: run.daemon.calls, acts_of_calls, records, outputs, delivered }
    }

    fn rules(&self) -> &Path {
        self.folder.path()
    }

    /// Opens a journal and makes the calls.
    fn open_and_make_calls(&self, files: &MemoryFiles) -> Interrupted {
        match Disk::open(files, SEGMENT_BYTES, self.rules()) {
            Ok((disk, _)) => self.make_calls(&disk),
            Err(_) => Interrupted { act: 0, synced: Seq::ZERO, written: Seq::ZERO, error: None },
        }
    }

    /// Makes the calls of the journal until one fails.
    fn make_calls(&self, disk: &Disk) -> Interrupted {
        let mut made =
            Interrupted { act: self.acts.len(), synced: Seq::ZERO, written: Seq::ZERO, error: None };
        for (call, act) in self.calls.iter().zip(&self.acts_of_calls) {
            let append = match call {
                Call::Append(append) => append,
                Call::Snapshot(capture) => {
                    // A failed write of a snapshot does no harm. The daemon writes a snapshot only
                    // once the journal is durable up to it. Here the last records of a full segment
                    // become durable some time after they are written.
                    if disk.is_durable(capture.seq) {
                        let _ = disk.write_snapshot(capture);
                    }
                    continue;
                }
            };
            match disk.append(append) {
                Ok(appended) => {
                    made.written = made.written.max(appended.last().unwrap_or_default());
                    if appended.level == Level::Synced {
                        made.synced = made.written;
                    }
                }
                Err(error) => return Interrupted { act: *act, error: Some(error), ..made },
            }
        }
        made
    }

    /// Makes one operation fail: every later one is refused, and the data written before stays
    /// readable, also after a restart.
    fn fail(&self, faults: Faults) {
        let files = MemoryFiles::new();
        let (disk, _) = Disk::open(&files, SEGMENT_BYTES, self.rules()).expect("nothing fails yet");
        files.set_faults(faults);
        let Interrupted { act, synced, written, error } = self.make_calls(&disk);
        let mut known = SortedSet::new();
        let Some(error) = error else {
            // The failed operation belonged to a snapshot.
            return self.restart(&files.after_power_loss(synced.0), act, synced, &mut known);
        };
        let Call::Append(first) = &self.calls[0] else { panic!("the rules are first") };
        let refused = disk.append(first).expect_err("what failed stays failed");
        for error in [error, refused] {
            let AppendError::Poisoned(poisoned) = error else { panic!("{error}") };
            let text = poisoned.to_string();
            assert!(text.starts_with("the journal accepts no records since it failed to "), "{text}");
            assert!(poisoned.path.starts_with("memory"), "{poisoned:?}");
            assert!(poisoned.source.to_string().contains("is set to fail"), "{}", poisoned.source);
        }
        let records = disk.records();
        assert!(records.iter().eq(self.records.iter().take(records.len())));
        assert!(records.len() as u64 >= written.0, "{written} was answered for");
        self.restart(&files.after_kill(), act, written, &mut known);
        self.restart(&files.after_power_loss(synced.0), act, synced, &mut known);
    }

    /// Restarts on the contents of `files`, checks that they are a prefix, and runs to the end.
    ///
    /// Many cuts leave the same state, and then the rest is the same too: it runs once for each
    /// state.
    fn restart(&self, files: &MemoryFiles, act: usize, least: Seq, known: &mut Beginnings) {
        let opened = Disk::open(files, SEGMENT_BYTES, self.rules());
        let (disk, fold) = opened.expect("what a crash leaves can be opened");
        let records = disk.records();
        let count = records.len();
        assert!(records.iter().eq(self.records.iter().take(count)), "it is not a beginning");
        assert!(least.0 <= count as u64, "{least} was answered for, and {count} records are left");
        if known.insert((count, act, fold.applied)) {
            self.live_on(disk, fold, &records, act);
        } else {
            let at = records.last().map_or(Timestamp::ZERO, |last| last.time);
            let tick = Append::of(records::TICK, Level::Synced, at, records::encode_bare);
            let appended = disk.append(&tick).expect("it can be appended to");
            assert_eq!(appended.first(), Some(Seq(count as u64 + 1)));
        }
    }

    /// The first exchange among `records` that released something in the run without a cut, and
    /// that was cut off before its answer.
    fn unanswered(&self, records: &[RecordBuf]) -> Option<Seq> {
        let released = |records: &[RecordBuf]| -> SortedSet<Seq> {
            let records = records.iter().filter(|record| record.kind == RecordKind(records::RELEASED));
            let exchange =
                |found: &RecordBuf| match records::decode(records::RELEASED, found.seq, &found.body) {
                    Ok(RecordInput::Released(release)) => release.exchange,
                    other => panic!("{other:?}"),
                };
            records.map(exchange).collect()
        };
        let left = released(records);
        let last = records.last().map_or(Seq::ZERO, |last| last.seq);
        released(&self.records).into_iter().find(|exchange| *exchange <= last && !left.contains(exchange))
    }

    fn live_on(&self, disk: Disk, from_snapshot: Fold, records: &[RecordBuf], act: usize) {
        let mut fold = Fold::new(RulesStore::new(self.rules()));
        let last = records.last().map_or(Seq::ZERO, |last| last.seq);
        fold.look_ahead(disk.journal.read_from(Seq(1)), last, SortedSet::new());
        let mut seen = Seen::default();
        let unanswered = self.unanswered(records);
        for found in records {
            let RecordBuf { kind, seq, time, body } = found;
            let found = Record { kind: *kind, seq: *seq, time: *time, body };
            apply(&mut fold, &found, |seq, output| seen.see(seq, output));
            let outputs = seen.outputs.get(&found.seq).cloned().unwrap_or_default();
            let expected = &self.outputs[index(found.seq.0 - 1, self.outputs.len())];
            let is_same = unanswered.is_none_or(|unanswered| found.seq < unanswered);
            assert!(
                !is_same || outputs == *expected,
                "of record {}: {outputs:#?}, not {expected:#?}",
                found.seq
            );
        }
        fold.go_live();
        let now = self.acts.get(act).or(self.acts.last()).expect("there are acts").at;
        let daemon = Daemon::start(disk, from_snapshot, now).expect("started");
        assert!(written(&daemon.fold.engine) == written(&fold.engine), "the snapshot leaves something else");
        let mut run = Run { daemon, seen };
        self.adopt_rules(&mut run, act, now);
        run.daemon.catch_up(now, |seq, output| run.seen.see(seq, output)).expect("nothing fails");
        // The stop at the end is always made, so that all open batches close.
        for timed in self.acts.iter().skip(act.min(self.acts.len() - 1)) {
            run.act(timed).expect("nothing fails");
        }
        let delivered = run.delivered();
        let ids: SortedSet<&String> = delivered.keys().chain(self.delivered.keys()).collect();
        let differs = |id: &&String| delivered.get(*id) != self.delivered.get(*id);
        let differing: Vec<_> = ids
            .into_iter()
            .filter(differs)
            .map(|id| (id, self.delivered.get(id), delivered.get(id)))
            .collect();
        assert!(differing.is_empty(), "events, who should account for them and who does: {differing:#?}");
    }

    /// Puts the rules in force that apply before `act`, if a power loss took them; a start of the
    /// daemon does the same.
    fn adopt_rules(&self, run: &mut Run, act: usize, now: Timestamp) {
        let before = self.acts.iter().take(act).rev();
        let generation = before
            .filter_map(|timed| if let Act::Rules(generation) = timed.act { Some(generation) } else { None })
            .next();
        if let Some(generation) = generation
            && *run.daemon.fold.engine.rules().hash != *generations::sources(generation).hash()
        {
            run.daemon.append(rules_at(generation, now)).expect("nothing fails");
        }
    }

    /// Cuts at each point, and checks a kill and every variant of a power loss there.
    fn cut_everywhere(&self, count: u64, cut: impl Fn(u64) -> Faults) {
        let mut known = SortedSet::new();
        for at in 1..=count {
            let files = MemoryFiles::new();
            files.set_faults(cut(at));
            let Interrupted { act, synced, written, .. } = self.open_and_make_calls(&files);
            for seed in 0..SEEDS {
                let left = files.after_power_loss(at * SEEDS + seed);
                self.restart(&left, act, synced, &mut known);
            }
            self.restart(&files.after_kill(), act, written, &mut known);
        }
        assert!(known.len() > 30, "{} beginnings are too few to mean much", known.len());
        let snapshots: SortedSet<&Seq> = known.iter().map(|(_, _, applied)| applied).collect();
        assert!(snapshots.len() > 4, "{} snapshots are too few to mean much", snapshots.len());
    }
}

/// The progress of a producer: its first unanswered act, and the last answered records.
#[derive(Debug)]
struct Interrupted {
    act: usize,
    synced: Seq,
    written: Seq,
    /// Why the act was not answered, if the journal was open.
    error: Option<AppendError>,
}

/// The number of writes and syncs of the workload.
fn operations() -> journal::memory::Operations {
    let files = MemoryFiles::new();
    WORKLOAD.open_and_make_calls(&files);
    files.operations()
}

#[test]
fn the_workload_has_something_of_everything() {
    let Workload { records, delivered, outputs, .. } = &*WORKLOAD;
    let kinds: SortedSet<u8> = records.iter().map(|found| found.kind.0).collect();
    assert_eq!(
        kinds.len(),
        9,
        "every kind but `undelivered`, which needs a caller that went away: {kinds:?}"
    );
    let all = outputs.concat().join("\n");
    for word in [
        "Created",
        "Duplicate",
        "RateLimited",
        "Injected",
        "Confirmed",
        "Unclaimed",
        "Publish",
        "SessionGone",
    ] {
        assert!(all.contains(word), "no {word}");
    }
    assert!(
        records.len() > 200 && delivered.len() > 140,
        "{} records, {} events",
        records.len(),
        delivered.len()
    );
    assert!(delivered.keys().any(|id| id.starts_with("aside ")), "{delivered:?}");
}

#[test]
fn crash_after_any_write_delivers_everything_once() {
    let at = |write| Faults { cut_after_write: Some(write), ..Faults::default() };
    WORKLOAD.cut_everywhere(operations().writes, at);
}

#[test]
fn crash_after_any_sync_delivers_everything_once() {
    let at = |sync| Faults { cut_after_sync: Some(sync), ..Faults::default() };
    WORKLOAD.cut_everywhere(operations().syncs, at);
}

#[test]
fn failed_write_or_sync_loses_no_acknowledged_record() {
    let all = operations();
    for write in (2..=all.writes).step_by(7) {
        WORKLOAD.fail(Faults { fail_write: Some(write), ..Faults::default() });
    }
    for sync in (2..=all.syncs).step_by(7) {
        WORKLOAD.fail(Faults { fail_sync: Some(sync), ..Faults::default() });
    }
}
