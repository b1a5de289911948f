//! What a start recovers from the journal, and which records it ignores.

use std::sync::Arc;

use engine::{
    Output, RequestId,
    event::{Event, Seq, SessionId},
    exchange::{Answer, Exchange, ReleaseRecord},
    notification::InjectionPoint,
    records::{self, RecordInput},
};
use journal::{
    AppendBatch, Journal, JournalSettings, Level, RecordBuf, RecordKind, files::DirFiles,
    memory::MemoryFiles, time::Timestamp,
};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    daemon::{Home, at},
    each::{EACH, event, keep_rules},
    event_loop::{Append, Daemon, Disk},
};

fn exchange(carrier: &str) -> Append {
    let exchange = Exchange::new(SessionId::new("s"), InjectionPoint::AfterTool, carrier);
    let body = |body: &mut Vec<u8>| records::encode_exchange(RequestId(1), &exchange, body);
    Append::of(records::EXCHANGE, Level::Written, Timestamp::from_millis(1_000), body)
}

/// A state folder with the rules, and the records of a daemon.
struct Life {
    rules: TempDir,
    records: Vec<RecordBuf>,
}

impl Life {
    /// Opens a session, publishes three events, and releases them by an exchange.
    fn of_three_released() -> Self {
        let rules = tempfile::tempdir().expect("a folder");
        let hash = keep_rules(rules.path());
        let (disk, fold) = Disk::open(&MemoryFiles::new(), 1 << 16, rules.path()).expect("opened");
        let mut daemon = Daemon::start(disk, fold, Timestamp::ZERO).expect("started");
        let body = |body: &mut Vec<u8>| records::encode_rules(&hash, body);
        let now = Timestamp::from_millis(5);
        daemon.append(Append::of(records::RULES, Level::Written, now, body)).expect("appended");
        daemon.append(exchange("c0")).expect("appended");
        let events: Vec<Event> = (1..=3).map(event).collect();
        let published = Append::events(&events, Level::Written, Timestamp::from_millis(1_000));
        daemon.append(published).expect("appended");
        assert_eq!(answer(&mut daemon, "c1").matches("n: ").count(), 3);
        Self { rules, records: daemon.disk().records() }
    }

    /// Starts a daemon on the records as changed by `change`.
    fn started(&self, change: impl Fn(&mut Vec<(u8, Vec<u8>, Timestamp)>)) -> Daemon {
        let mut records =
            self.records.iter().map(|found| (found.kind.0, found.body.to_vec(), found.time)).collect();
        change(&mut records);
        let files = MemoryFiles::new();
        let (disk, _) = Disk::open(&files, 1 << 16, self.rules.path()).expect("opened");
        for (kind, body, time) in records {
            let append = Append { records: vec![(kind, body)], level: Level::Synced, at: time };
            disk.append(&append).expect("appended");
        }
        disk.journal.close_blocking().expect("closed");
        let (disk, fold) = Disk::open(&files, 1 << 16, self.rules.path()).expect("opened");
        Daemon::start(disk, fold, Timestamp::from_millis(1_000)).expect("started")
    }
}

/// The text in the answer to an exchange with `carrier`.
fn answer(daemon: &mut Daemon, carrier: &str) -> String {
    daemon.append(exchange(carrier)).expect("appended");
    let mut text = String::new();
    let seen = |_, output| {
        if let Output::Answer { answer: Answer { injection: Some(injection), .. }, .. } = output {
            text.push_str(&injection.text);
        }
    };
    daemon.catch_up(Timestamp::from_millis(1_000), seen).expect("followed");
    text
}

fn is_released(record: &(u8, Vec<u8>, Timestamp)) -> bool {
    record.0 == records::RELEASED
}

#[test]
fn start_replays_recorded_releases_without_deciding_again() {
    let life = Life::of_three_released();
    // The record of a program that releases two at a time.
    let mut daemon = life.started(|records| {
        let (_, body, _) = records.iter_mut().find(|record| is_released(record)).expect("there is one");
        let Ok(RecordInput::Released(release)) = records::decode(records::RELEASED, Seq(9), body) else {
            panic!("it says what was released");
        };
        let notifications = release.notifications.get(..2).expect("three").to_vec();
        body.clear();
        records::encode_released(&ReleaseRecord { notifications, ..release }, body);
    });
    let session = daemon.fold.engine.sessions().view(&SessionId::new("s")).expect("open").injector;
    assert_eq!((session.pending().0, session.unconfirmed()), (1, 1));
    let next = answer(&mut daemon, "c2");
    assert!(next.contains("n: 3") && !next.contains("n: 1") && !next.contains("n: 2"), "{next}");
    assert_eq!(answer(&mut daemon, "c3"), "");
}

#[test]
fn unreleased_notifications_are_delivered_after_a_crash() {
    let life = Life::of_three_released();
    for carrier in ["c1", "c2"] {
        let mut daemon = life.started(|records| records.retain(|record| !is_released(record)));
        let next = answer(&mut daemon, carrier);
        assert_eq!(next.matches("n: ").count(), 3, "{carrier}: {next}");
        assert_eq!(answer(&mut daemon, "c3"), "");
    }
}

#[test]
fn restart_recovers_the_previous_session_state() {
    let life = Life::of_three_released();
    let daemon = life.started(|_| ());
    let session = daemon.fold.engine.sessions().view(&SessionId::new("s")).expect("open").injector;
    assert_eq!((session.pending().0, session.unconfirmed()), (0, 1));
}

/// More than a read-ahead in the journal covers.
const RECORDS_FAR: u64 = 70_000;

/// Appends an event with an unreadable body to the journal of a stopped daemon, and many records
/// after it.
fn append_unreadable(home: &Home) -> Seq {
    let files = Arc::new(DirFiles::new(&home.path("state/journal")).expect("a folder"));
    let clock = Arc::new(|| Timestamp::ZERO);
    let opened = Journal::open(files, JournalSettings::default(), clock, &|_| None).expect("opened");
    let batch = AppendBatch::of(RecordKind(records::EVENT), &[1, 2, 3], None).expect("small");
    let appended = opened.journal.append_blocking(batch, Level::Synced).expect("appended");
    let (mut ticks, mut tick) = (AppendBatch::new(), Vec::new());
    records::encode_bare(&mut tick);
    (0..RECORDS_FAR).for_each(|_| ticks.push(RecordKind(records::TICK), &tick, None).expect("small"));
    opened.journal.append_blocking(ticks, Level::Synced).expect("appended");
    opened.journal.close_blocking().expect("closed");
    appended.first().expect("one")
}

#[test]
fn unreadable_record_is_skipped_once_and_reported() {
    let home = Home::with(&[("subscribers/each.toml", EACH)]);
    let daemon = home.serve();
    home.publish(&json!({ "type": "test.each", "payload": { "n": 1 } }));
    daemon.stop();
    let seq = append_unreadable(&home);

    let daemon = home.serve();
    daemon.said("a record of the journal is skipped; it has no effect");
    let problems = at(&home.get("/v1/status"), "/journal/problems").to_string();
    assert!(problems.contains(&format!("the start skipped record {seq}")), "{problems}");
    let answer = home.exchange("s", &json!({ "point": "after_tool", "carrier": "c" })).json();
    assert_eq!(*at(&answer, "/notifications/0/subscriber"), json!("each"), "{answer}");
    daemon.kill();

    let daemon = home.serve();
    assert!(at(&home.get("/v1/status"), "/journal/problems").is_null(), "it is not met again");
    assert!(!daemon.stop().log.contains("skipped"));
}
