//! Tests of the file: written, kept and refused content.

mod readable;

use std::{os::unix::fs::PermissionsExt, path::PathBuf};

use tempfile::TempDir;

use super::{
    dump::{count, dump, execute},
    *,
};
use engine::{
    Output, SessionChange,
    event::{EventRef, Seq, SessionId, Severity},
    exchange::{Answer, Format, Harness, Injection, InjectionId, Role},
    ledger::LedgerEntry,
    notes::{NoteContent, Notes, Place},
    notification::{InjectionPoint, NotificationId, SubscriberId},
    records,
};
use journal::{Record, RecordKind, time::Timestamp};

fn file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(FILE_NAME);
    (folder, path)
}

fn event_body(id: &str) -> Vec<u8> {
    let mut body = Vec::new();
    let event = EventRef {
        id,
        event_type: "ci.check.failed",
        source: "ci",
        provenance: engine::event::Provenance::Local,
        severity: Severity::Error,
        timestamp: Timestamp::from_millis(5),
        payload: "{}",
        dedupe_key: None,
        session: None,
        workspace: None,
        cause: None,
        deliver_after: None,
    };
    records::encode_event(&event, &mut body);
    body
}

/// The notes of one record.
fn noted(after: u64, seq: u64, kind: u8, body: &[u8], outputs: &[Output]) -> Notes {
    let mut notes = Notes::after(Seq(after));
    notes.begin(&Record {
        kind: RecordKind(kind),
        seq: Seq(seq),
        time: Timestamp::from_millis(seq * 1_000),
        body,
    });
    outputs.iter().for_each(|output| notes.take(output));
    notes
}

fn batched(seq: u64) -> Output {
    Output::Record(LedgerEntry::Batched { seq: Seq(seq), subscriber: SubscriberId::new("ci") })
}

fn event_notes(seq: u64) -> Notes {
    noted(seq - 1, seq, records::EVENT, &event_body(&format!("e{seq}")), &[batched(seq)])
}

#[test]
fn unmatched_event_is_counted_without_a_row() {
    let unmatched = [Output::Record(LedgerEntry::Unmatched { seq: Seq(1) })];
    let notes = noted(0, 1, records::EVENT, &event_body("e1"), &unmatched);
    assert_eq!((notes.notes().len(), notes.unmatched(), notes.upto()), (0, 1, Seq(1)));
}

#[test]
fn event_of_two_subscribers_is_noted_once() {
    let notes = noted(0, 1, records::EVENT, &event_body("e1"), &[batched(1), batched(1)]);
    let events = notes.notes().iter().filter(|note| matches!(note.what, NoteContent::Event(_)));
    assert_eq!((events.count(), notes.notes().len()), (1, 3));
}

#[test]
fn put_back_notes_precede_newer_ones() {
    let mut notes = event_notes(1);
    let first = notes.hand_over();
    assert_eq!((notes.from(), notes.records()), (Seq(1), 0));
    notes.put_back(first);
    let first = notes.hand_over();
    assert_eq!((first.upto(), first.time()), (Seq(1), Timestamp::from_millis(1_000)));
    notes.begin(&Record {
        kind: RecordKind(records::EVENT),
        seq: Seq(2),
        time: Timestamp::ZERO,
        body: &event_body("e2"),
    });
    notes.take(&batched(2));
    notes.put_back(first);
    let seqs: Vec<u64> = notes.notes().iter().map(|note| note.place.seq().0).collect();
    assert_eq!((seqs, notes.from(), notes.upto()), (vec![1, 1, 2, 2], Seq(0), Seq(2)));
}

#[test]
fn repeated_answer_is_not_a_second_injection() {
    let injection = Injection {
        id: InjectionId::new("abc123"),
        format: Format::default(),
        text: "t".into(),
        sentence: "s".into(),
        role: Role::Tool,
        notifications: Vec::new(),
        starts_turn: false,
    };
    let answer = Answer { injection: Some(injection), ..Answer::default() };
    let session = SessionId::new("s1");
    let answered = || Output::Answer {
        request: engine::RequestId(1),
        session: session.clone(),
        answer: answer.clone(),
        released: None,
        is_unanswered: false,
    };
    let injected = Output::Record(LedgerEntry::Injected {
        notification: NotificationId::new("n1"),
        session: session.clone(),
        injection: engine::exchange::InjectionId::new("abc123"),
        point: InjectionPoint::AfterTool,
        redelivered: None,
    });
    let first = noted(0, 1, records::EXCHANGE, b"", &[injected, answered()]);
    let again = noted(1, 2, records::EXCHANGE, b"", &[answered()]);
    assert_eq!((first.notes().len(), again.notes().len()), (2, 0));
}

#[test]
fn notes_already_written_are_skipped() {
    let (_folder, path) = file();
    let mut writer = Writer::open(&path).expect("opened");
    writer.write(&[event_notes(1), event_notes(2)]).expect("written");
    let before = dump(&path);
    writer.write(&[event_notes(1), event_notes(2)]).expect("written");
    assert_eq!(dump(&path), before);
    assert_eq!((writer.cursor(), count(&path, "events"), count(&path, "ledger")), (Seq(2), 2, 2));
    drop(writer);
    let again = Writer::open(&path).expect("opened");
    assert_eq!((again.cursor(), again.time()), (Seq(2), Timestamp::from_millis(2_000)));
}

#[test]
fn oldest_rows_beyond_limits_are_deleted() {
    let (_folder, path) = file();
    let mut writer = Writer::open(&path).expect("opened").with_limits(3, 1_000);
    for seq in 1..=10 {
        writer.write(&[event_notes(seq)]).expect("written");
    }
    let kept = |path: &std::path::Path| {
        let events = dump(path).into_iter().filter(|line| line.starts_with("events "));
        events
            .filter_map(|line| Some(line["events ".len()..].split('|').next()?.to_owned()))
            .collect::<Vec<_>>()
    };
    assert_eq!(kept(&path), ["8", "9", "10"]);
    assert_eq!(count(&path, "ledger"), 3);
    writer.forget_before(Seq(10)).expect("forgotten");
    assert_eq!(kept(&path), ["10"]);
    drop(writer);
    // A reopened file counts its rows.
    let mut writer = Writer::open(&path).expect("opened").with_limits(1_000, 2);
    writer.write(&[event_notes(11), event_notes(12)]).expect("written");
    assert_eq!(kept(&path), ["11", "12"]);
}

#[test]
fn deletion_keeps_open_sessions_of_any_age() {
    let (_folder, path) = file();
    let mut writer = Writer::open(&path).expect("opened");
    let change = |id: &str, change| Output::Session(SessionId::new(id), change);
    let opened = |id| change(id, SessionChange::Opened(Harness::default()));
    let closed = change("s1", SessionChange::Closed { last_seen: Timestamp::ZERO, keeps_pending: false });
    writer.write(&[noted(0, 1, records::TICK, b"", &[opened("s1"), opened("s2")])]).expect("written");
    writer.write(&[noted(1, 2, records::TICK, b"", &[closed])]).expect("written");
    writer.forget_before(Seq(9)).expect("forgotten");
    let sessions: Vec<String> =
        dump(&path).into_iter().filter(|line| line.starts_with("sessions ")).collect();
    assert!(sessions.len() == 1 && sessions[0].contains("|s2|"), "{sessions:?}");
}

#[test]
fn file_of_another_version_or_kind_is_damage() {
    let (folder, path) = file();
    drop(Writer::open(&path).expect("opened"));
    execute(&path, "PRAGMA user_version = 99");
    assert!(Writer::open(&path).expect_err("another version").is_damage());
    std::fs::write(&path, "not a database, but long enough to be looked at as one".repeat(100))
        .expect("written");
    assert!(Writer::open(&path).expect_err("no database").is_damage());
    execute(&folder.path().join("other.db"), "CREATE TABLE cursor (x); PRAGMA user_version = 1");
    assert!(Writer::open(&folder.path().join("other.db")).expect_err("other tables").is_damage());
    assert!(!Writer::open(folder.path()).expect_err("a folder").is_damage());
}

#[test]
fn conflicting_row_is_reported_as_damage() {
    let (_folder, path) = file();
    let mut writer = Writer::open(&path).expect("opened");
    let first = Place::first_of(Seq(1)).0;
    let forge = |place| format!("INSERT INTO ledger (place, at, what) VALUES ({place}, 0, 'forged');");
    execute(&path, &(first..first + 4).map(forge).collect::<String>());
    let error = writer.write(&[event_notes(1)]).expect_err("refused");
    assert!(error.is_damage(), "{error}");
}

#[test]
fn deleted_or_replaced_file_is_not_in_place() {
    let (_folder, path) = file();
    let writer = Writer::open(&path).expect("opened");
    let mode = std::fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(writer.is_in_place());
    Writer::delete(&path).expect("deleted");
    assert!(!writer.is_in_place());
    let other = Writer::open(&path).expect("made again");
    assert!(!writer.is_in_place() && other.is_in_place());
}

#[test]
fn file_stays_at_its_bytes_under_many_deliveries() {
    const BYTES_MAX: u64 = 2 * 1024 * 1024;
    const SESSIONS: u64 = 50;
    let (_folder, path) = file();
    let mut writer = Writer::open(&path).expect("opened");
    writer.set_bytes_max(BYTES_MAX);
    let delivered = |seq: u64| {
        let random = seq.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let notification = NotificationId::new(&format!("{random:016x}{random:016x}"));
        let queued = (0..SESSIONS).map(|session| {
            let session = SessionId::new(&format!("session-with-a-long-name-{session}"));
            Output::Record(LedgerEntry::Queued { notification, session })
        });
        let outputs: Vec<Output> = std::iter::once(batched(seq)).chain(queued).collect();
        noted(seq - 1, seq, records::EVENT, &event_body(&format!("e{seq}")), &outputs)
    };
    let largest = (1..=1_500).map(|seq| {
        writer.write(&[delivered(seq)]).expect("written");
        std::fs::metadata(&path).expect("there").len()
    });
    let largest = largest.max().expect("some");
    assert!(largest < BYTES_MAX + BYTES_MAX / 4, "{largest} bytes");
    assert!((1_000..60_000).contains(&count(&path, "deliveries")), "{}", count(&path, "deliveries"));
    // A lower limit holds after a start, without a write.
    drop(writer);
    let mut writer = Writer::open(&path).expect("opened");
    writer.set_bytes_max(BYTES_MAX / 4);
    let mut steps = 0;
    while writer.shrink().expect("written") {
        steps += 1;
    }
    assert!(steps > 1, "{steps} steps");
    writer.write(&[delivered(1_501)]).expect("written");
    drop(writer);
    let left = std::fs::metadata(&path).expect("there").len();
    assert!(left < BYTES_MAX / 2, "{left} bytes");
}

#[test]
fn an_injection_is_read_by_its_key() {
    let (_folder, path) = file();
    drop(Writer::open(&path).expect("opened"));
    let connection = schema::open_for_reading(&path).expect("opened");
    let plan = plan(&connection, sessions::INJECTED, rusqlite::params![1, 2, "s", "i"]);
    assert_eq!(plan, ["SEARCH ledger USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]);
}

/// The steps by which SQLite makes a query.
fn plan(connection: &rusqlite::Connection, sql: &str, values: impl rusqlite::Params) -> Vec<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("prepared");
    let steps = statement.query_map(values, |row| row.get(3));
    steps.and_then(Iterator::collect).expect("planned")
}

#[test]
fn subagents_are_found_by_their_parents() {
    let (_folder, path) = file();
    drop(Writer::open(&path).expect("opened"));
    let connection = schema::open_for_reading(&path).expect("opened");
    let plan = plan(&connection, sessions::SUBAGENTS, ["[]"]);
    let of_sessions: Vec<&String> = plan.iter().filter(|step| step.contains(" s ")).collect();
    assert_eq!(of_sessions, ["SEARCH s USING INDEX sessions_by_parent (parent=?)"; 2], "{plan:?}");
}
