//! A daemon that is killed repeatedly while it works loses nothing that it acknowledged and repeats
//! nothing.
//!
//! Publishers and harnesses work against the real daemon. After a random number of answers one of
//! them kills it as `kill -9` does, while the others have requests in flight. After each restart
//! they repeat their unanswered requests, as clients do. At the end the journal is replayed outside
//! the daemon, and the result is compared with the answers that the clients got.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use aside::{
    api::wire::{exchange::AnswerView, formats::INSTRUCTIONS},
    daemon::{fold::Fold, rules::RulesStore},
};
use engine::{
    Input, Output,
    event::{Seq, codec},
    io::RequestId,
    ledger::LedgerEntry,
    records::{self, RecordInput},
    sorted::SortedSet,
};
use journal::{Journal, JournalSettings, files::DirFiles, time::Timestamp};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::daemon::{Answer, Home, at};

const KILLS: usize = 50;
const STOPS: usize = 15;
/// A kill comes after one answer at least and this many at most: in the first milliseconds, or amid
/// the traffic.
const ANSWERS_MAX: u64 = 20;
const SESSIONS: [&str; 2] = ["a", "b"];

/// Segments are small, so that several are filled; snapshots are frequent; queues are so large that
/// they never overflow.
const SETTINGS: &str = r#"
[journal]
segment_bytes = 1048576
snapshot_records = 100
# Everything is to arrive at once.
[budget]
turn = "off"
hour = "off"
[injection]
max_notifications = 100
max_tokens = 20000
max_chars = 100000
[sessions]
queue_len_max = 100000
"#;

/// Without a window, in a window of its own, in a window with repeats, and in groups that end after
/// quiet.
const SUBSCRIBERS: [(&str, &str); 4] = [
    (
        "subscribers/single.toml",
        r#"
[subscriber]
id = "single"
[events]
types = ["load.one"]
[batching]
window_ms = 0
[output]
priority = "high"
"#,
    ),
    (
        "subscribers/window.toml",
        r#"
[subscriber]
id = "window"
[events]
types = ["load.many"]
[batching]
window_ms = 2000
max_size = 10
[output]
priority = "normal"
"#,
    ),
    (
        "subscribers/repeats.toml",
        r#"
[subscriber]
id = "repeats"
[events]
types = ["load.*"]
where = "payload.n % 2 == 0"
[batching]
window_ms = 2000
max_size = 20
dedupe_key = "type:payload.key"
dedupe_window_ms = 300
[output]
priority = "high"
"#,
    ),
    (
        "subscribers/quiet.toml",
        r#"
[subscriber]
id = "quiet"
[events]
types = ["load.many"]
[batching]
window_ms = 50
max_wait_ms = 200
mode = "debounce"
group_by = "payload.key"
"#,
    ),
];

/// The state of the clients.
#[derive(Debug, Default)]
struct Known {
    /// The acknowledged position of each event, by id.
    acknowledged: BTreeMap<String, u64>,
    /// Events whose publishing was not answered.
    unanswered: Vec<Value>,
    /// The answer to each exchange, by session and carrier.
    answers: BTreeMap<(String, String), Value>,
    /// Exchanges that were not answered.
    asked: Vec<(String, Value)>,
}

/// One run of the daemon.
struct Life<'a> {
    home: &'a Home,
    known: &'a Mutex<Known>,
    number: usize,
    pid: Pid,
    answers: AtomicUsize,
    kill_after: usize,
    /// The signal that ends it.
    signal: Signal,
}

impl Life<'_> {
    /// Counts an answer; the daemon is ended after the answer with the drawn number.
    fn count_answer(&self) {
        if self.answers.fetch_add(1, Ordering::SeqCst) + 1 == self.kill_after {
            kill_process(self.pid, self.signal).expect("nobody has waited for it yet");
        }
    }

    fn known<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        change(&mut self.known.lock().expect("no client has panicked"))
    }

    /// Makes requests until the daemon is dead.
    fn live(&self) {
        thread::scope(|scope| {
            for (name, batch) in [("one", 1), ("few", 3), ("many", 5)] {
                scope.spawn(move || (0..).take_while(|n| self.publish(name, *n, batch)).for_each(drop));
            }
            for session in SESSIONS {
                scope.spawn(move || (0..).take_while(|n| self.exchange(session, *n)).for_each(drop));
            }
        });
    }

    /// Publishes some events; returns whether the daemon is alive.
    fn publish(&self, name: &str, number: usize, count: usize) -> bool {
        let event = |index: usize| {
            let n = number * count + index;
            let event_type = if n.is_multiple_of(3) { "load.one" } else { "load.many" };
            json!({ "id": format!("{name}-{}-{n}", self.number), "type": event_type, "source": name,
                "payload": { "n": n, "key": n % 5 } })
        };
        let events: Vec<Value> = (0..count).map(event).collect();
        self.known(|known| known.unanswered.extend(events.iter().cloned()));
        let answer = self.home.try_ask("POST", "/v1/events", &Value::from(events).to_string());
        let Some(answer) = self.unless_stopping(answer.ok()) else { return self.is_dead() };
        assert_eq!(answer.status(), 200, "{answer:?}");
        self.known(|known| known.acknowledge(&answer.json()));
        self.count_answer();
        true
    }

    /// Makes an exchange; returns whether the daemon is alive.
    fn exchange(&self, session: &str, number: usize) -> bool {
        let point = match number % 4 {
            2 => "turn_end",
            3 => "turn_start",
            _ => "after_tool",
        };
        let request = json!({ "point": point, "carrier": format!("{}-{number}", self.number) });
        self.known(|known| known.asked.push((session.to_owned(), request.clone())));
        let path = format!("/v1/sessions/{session}/exchange");
        let answer = self.home.try_ask("POST", &path, &request.to_string());
        let Some(answer) = self.unless_stopping(answer.ok()) else { return self.is_dead() };
        assert!([200, 204].contains(&answer.status()), "{answer:?}");
        self.known(|known| known.answered(session, &request, answer.json()));
        self.count_answer();
        true
    }

    /// A daemon that was asked to stop may answer that it is stopping.
    fn unless_stopping(&self, answer: Option<Answer>) -> Option<Answer> {
        answer.filter(|answer| self.signal == Signal::KILL || answer.status() != 503)
    }

    /// A request may fail only because the daemon was ended.
    fn is_dead(&self) -> bool {
        assert!(self.answers.load(Ordering::SeqCst) >= self.kill_after, "the daemon died by itself");
        false
    }
}

impl Known {
    /// Adds the positions of an answer.
    fn acknowledge(&mut self, answer: &Value) {
        for result in at(answer, "/results").as_array().expect("verdicts") {
            let id = result["id"].as_str().expect("an id");
            let seq = result["seq"].as_u64().expect("a position");
            let before = self.acknowledged.insert(id.to_owned(), seq);
            assert!(before.is_none_or(|before| before == seq), "{id} was at {before:?} and is at {seq}");
            self.unanswered.retain(|event| event["id"] != id);
        }
    }

    /// Takes everything that is pending for a session.
    fn empty(&mut self, home: &Home, session: &str, carrier: &str) {
        for number in 0.. {
            let request = json!({ "point": "turn_start", "carrier": format!("{carrier}-{number}") });
            let answer = home.exchange(session, &request).json();
            let is_empty = answer.is_null();
            self.answered(session, &request, answer);
            if is_empty {
                return;
            }
        }
    }

    fn answered(&mut self, session: &str, request: &Value, answer: Value) {
        let carrier = request["carrier"].as_str().expect("a carrier").to_owned();
        let before = self.answers.insert((session.to_owned(), carrier), answer);
        assert_eq!(before, None, "each carrier is answered once");
        self.asked.retain(|asked| (asked.0.as_str(), &asked.1) != (session, request));
    }

    /// Repeats all unanswered requests, and publishes all acknowledged events again.
    fn ask_again(&mut self, home: &Home) {
        let newest: BTreeSet<u64> = self.acknowledged.values().copied().collect();
        for seq in newest.iter().rev().take(3) {
            let shown = home.get(&format!("/v1/events/{seq}"));
            let id = at(&shown, "/event/id").as_str().expect("an id");
            assert_eq!(self.acknowledged.get(id), Some(seq));
        }
        let published: Vec<Value> = self.acknowledged.keys().map(|id| again(id)).collect();
        for events in published.chunks(1_000) {
            let answer = home.ask("POST", "/v1/events", &Value::from(events.to_vec()).to_string());
            let is_known = |result: &Value| result["duplicate"] == true;
            let answer = answer.json();
            assert!(
                at(&answer, "/results").as_array().expect("verdicts").iter().all(is_known),
                "something is lost"
            );
            self.acknowledge(&answer);
        }
        if !self.unanswered.is_empty() {
            let events = Value::from(self.unanswered.clone());
            self.acknowledge(&home.ask("POST", "/v1/events", &events.to_string()).json());
        }
        for (session, request) in self.asked.clone() {
            self.answered(&session, &request, home.exchange(&session, &request).json());
        }
        assert_eq!((self.unanswered.as_slice(), self.asked.as_slice()), (&[][..], &[][..]));
    }

    /// The notifications that a session got, each with whether it was marked as a repeat.
    fn delivered(&self, session: &str) -> Vec<(String, bool)> {
        let answers = self.answers.iter().filter(|((of, _), _)| of == session);
        let released = answers.filter_map(|(_, answer)| answer["notifications"].as_array()).flatten();
        let show = |n: &Value| (n["id"].as_str().expect("an id").to_owned(), n["redelivered"] == true);
        released.map(show).collect()
    }
}

/// An event with the source and id of a published one; its other fields do not matter.
fn again(id: &str) -> Value {
    let source = id.split('-').next().unwrap_or_default();
    json!({ "id": id, "type": "load.again", "source": source, "payload": {} })
}

/// The result of replaying the journal.
#[derive(Debug, Default)]
struct Replayed {
    /// The positions of each event, by id.
    events: BTreeMap<String, Vec<u64>>,
    /// The outcomes of the event at a position in a subscriber.
    outcomes: BTreeMap<(u64, String), Vec<&'static str>>,
    created: Vec<String>,
    answers: BTreeMap<(String, String), Value>,
    ended: Vec<LedgerEntry>,
}

fn replay(home: &Home) -> Replayed {
    let files = DirFiles::new(&home.state().join("journal")).expect("the journal's folder");
    let settings = JournalSettings::default();
    let clock = Arc::new(|| Timestamp::ZERO);
    let opened = Journal::open(Arc::new(files), settings, clock, &|_| None).expect("a sound journal");
    let mut reader = opened.journal.read_from(Seq(1));
    let mut fold = Fold::new(RulesStore::new(&home.state()));
    fold.look_ahead(opened.journal.read_from(Seq(1)), opened.last_seq, SortedSet::new());
    let (mut replayed, mut carriers) = (Replayed::default(), BTreeMap::new());
    while fold.applied < opened.last_seq {
        for found in reader.next_batch(1_000).expect("readable").iter() {
            match records::decode(found.kind.0, found.seq, found.body).expect("a known record") {
                RecordInput::Input(Input::Event { seq, .. }) => {
                    let event = codec::decode(found.body).expect("an event");
                    replayed.events.entry(event.id.to_owned()).or_default().push(seq.0);
                }
                RecordInput::Input(Input::Exchange { request, exchange, .. }) => {
                    carriers.insert(request, exchange.carrier.to_string());
                }
                RecordInput::Input(_)
                | RecordInput::Rules { .. }
                | RecordInput::Released(_)
                | RecordInput::Skipped(_) => {}
            }
            fold.apply(&found).expect("it was applied before");
            while let Some(output) = fold.engine.poll_output() {
                replayed.take(output, &carriers);
            }
        }
    }
    replayed
}

impl Replayed {
    fn take(&mut self, output: Output, carriers: &BTreeMap<RequestId, String>) {
        match output {
            Output::Record(entry) => self.take_entry(entry),
            Output::Answer { request, session, answer, .. } => {
                let carrier = carriers[&request].clone();
                let shown = AnswerView::of(&answer, Some(INSTRUCTIONS), None)
                    .map(|view| serde_json::to_value(view).expect("serializes"));
                self.answers.insert((session.to_string(), carrier), shown.unwrap_or_default());
            }
            Output::Publish(_)
            | Output::Refuse { .. }
            | Output::Wake(_)
            | Output::Made(_)
            | Output::Said(_)
            | Output::Session(..) => {}
        }
    }

    fn take_entry(&mut self, entry: LedgerEntry) {
        match entry {
            LedgerEntry::Created { notification, subscriber, events, .. } => {
                self.created.push(notification.to_string());
                for seq in events {
                    self.outcomes.entry((seq.0, subscriber.to_string())).or_default().push("delivered");
                }
            }
            LedgerEntry::EventEnded { seq, subscriber, reason } => {
                self.outcomes.entry((seq.0, subscriber.to_string())).or_default().push(reason.as_str());
            }
            LedgerEntry::NotificationEnded { .. } => self.ended.push(entry),
            LedgerEntry::Batched { .. }
            | LedgerEntry::Unmatched { .. }
            | LedgerEntry::Throttled { .. }
            | LedgerEntry::Skipped { .. }
            | LedgerEntry::Unclaimed { .. }
            | LedgerEntry::Queued { .. }
            | LedgerEntry::Injected { .. }
            | LedgerEntry::Confirmed { .. }
            | LedgerEntry::Returned { .. }
            | LedgerEntry::Recalled { .. }
            | LedgerEntry::Repeated { .. }
            | LedgerEntry::Responded { .. }
            | LedgerEntry::ForUser { .. } => {}
        }
    }
}

/// The outcomes that an event may have, by subscriber.
fn endings(id: &str) -> Vec<(&'static str, &'static [&'static str])> {
    let n: usize = id.rsplit('-').next().and_then(|n| n.parse().ok()).expect("a number");
    let repeats: (&str, &[&str]) =
        ("repeats", if n.is_multiple_of(2) { &["delivered", "duplicate"] } else { &["filtered"] });
    if n.is_multiple_of(3) {
        vec![("single", &["delivered"]), repeats]
    } else {
        vec![("window", &["delivered"]), ("quiet", &["delivered"]), repeats]
    }
}

#[test]
fn fifty_kills_lose_nothing_and_repeat_nothing() {
    live_on(KILLS, Signal::KILL, None);
}

#[test]
fn orderly_stops_during_work_lose_and_repeat_nothing() {
    live_on(STOPS, Signal::TERM, Some(0));
}

/// Runs daemons one after the other on one state folder; each is ended by `signal` under requests,
/// and exits with `code`.
fn live_on(lives: usize, signal: Signal, code: Option<i32>) {
    let home = Home::with(&SUBSCRIBERS);
    home.configure("aside.toml", SETTINGS);
    let known = Mutex::new(Known::default());
    let mut drawn = 7_u64;
    for number in 0..lives {
        let mut daemon = home.serve();
        let mut before = known.lock().expect("no client has panicked");
        before.ask_again(&home);
        if number == 0 {
            SESSIONS.iter().for_each(|session| before.empty(&home, session, "first"));
        }
        drop(before);
        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let kill_after = usize::try_from((drawn >> 33) % ANSWERS_MAX).expect("a small number") + 1;
        let pid = daemon.pid();
        Life { home: &home, known: &known, number, pid, answers: AtomicUsize::new(0), kill_after, signal }
            .live();
        assert_eq!(daemon.end().status.code(), code, "life {number}");
    }
    let mut known = known.into_inner().expect("no client has panicked");
    let daemon = home.serve();
    known.ask_again(&home);
    let names = fs::read_dir(home.state().join("snapshots")).expect("a folder").flatten();
    let snapshots =
        names.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "snap")).count();
    assert!(snapshots >= 2, "{snapshots} snapshots are too few to mean much");
    // An orderly stop closes what the last kill cut off.
    assert_eq!(daemon.stop().status.code(), Some(0));
    let daemon = home.serve();
    SESSIONS.iter().for_each(|session| known.empty(&home, session, "last"));
    daemon.kill();
    compare(&known, &replay(&home), lives);
}

fn compare(known: &Known, replayed: &Replayed, lives: usize) {
    let ids: BTreeSet<&String> = known.acknowledged.keys().collect();
    assert!(ids.len() > lives * 10, "there was too little traffic: {} events", ids.len());
    for (id, seqs) in &replayed.events {
        assert_eq!(seqs.len(), 1, "{id} is in the journal more than once: {seqs:?}");
    }
    for (id, seq) in &known.acknowledged {
        assert_eq!(replayed.events.get(id).map(Vec::as_slice), Some(&[*seq][..]), "{id}");
    }
    let mut outcomes = replayed.outcomes.clone();
    for (id, seq) in &known.acknowledged {
        for (subscriber, endings) in endings(id) {
            let found = outcomes.remove(&(*seq, subscriber.to_owned())).unwrap_or_default();
            assert!(
                matches!(&found[..], [once] if endings.contains(once)),
                "{id} with {subscriber}: {found:?}"
            );
        }
    }
    assert_eq!(outcomes, BTreeMap::new(), "something became of an event that nobody published");
    let created: BTreeSet<&String> = replayed.created.iter().collect();
    assert_eq!(created.len(), replayed.created.len(), "a notification was made twice");
    for (asked, answer) in &known.answers {
        assert_eq!(replayed.answers.get(asked), Some(answer), "{asked:?}");
    }
    assert_eq!(replayed.ended, []);
    for session in SESSIONS {
        let delivered = known.delivered(session);
        let first: Vec<&String> =
            delivered.iter().filter(|(_, is_repeat)| !is_repeat).map(|(id, _)| id).collect();
        let distinct: BTreeSet<&String> = first.iter().copied().collect();
        assert_eq!(first.len(), distinct.len(), "{session} got something twice");
        let differences: Vec<_> = distinct.symmetric_difference(&created).collect();
        assert!(differences.is_empty(), "{session} got something else than was made: {differences:?}");
    }
}
