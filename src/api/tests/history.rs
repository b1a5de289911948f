//! History tests: pages, filters, and the progress in answers.

use super::*;
use engine::{
    Output, SessionChange,
    event::EventRef,
    ledger::{ConfirmedBy, Reason},
    notes::Notes,
    notification::{Activation, InjectionPoint, Interrupt, Nature, Tokens},
};
use journal::record::{Record, RecordKind};

use crate::{config::producers::PRODUCERS, history::Writer};

fn answer_of(session: SessionId, answer: Answer) -> Output {
    Output::Answer { request: RequestId(1), session, answer, released: None, is_unanswered: false }
}

/// Three events: the first two became a notification delivered to a session, the third was
/// filtered. The session is closed.
fn written() -> Notes {
    let mut notes = Notes::default();
    let (session, subscriber) = (SessionId::new("s1"), SubscriberId::new("ci"));
    let (notification, released) = (NotificationId::new("n1"), injection());
    let made = Notification {
        id: notification,
        subscriber: subscriber.clone(),
        scope: engine::event::Scope::Session(session.clone()),
        priority: Priority::High,
        inject_at: InjectionPoint::AfterTool,
        activation: Activation::default(),
        is_asked: false,
        interrupt: Interrupt::default(),
        nature: Nature::default(),
        untrusted_source: None,
        rows_name_sources: false,
        severity: Severity::Error,
        content: "ci: failed".into(),
        sentences: vec!["unit failed on fix".into()],
        tokens: Tokens(4),
        raw_bytes: 0,
        states: Vec::new(),
        unresolved: Vec::new(),
        events: vec![Seq(1), Seq(2)],
        created_at: Timestamp::from_millis(2_000),
        ..Notification::example("n1", Priority::Low)
    };
    let entry = |entry| Output::Record(entry);
    let batched = |seq| entry(LedgerEntry::Batched { seq: Seq(seq), subscriber: subscriber.clone() });
    let filtered = LedgerEntry::EventEnded {
        seq: Seq(3),
        subscriber: subscriber.clone(),
        reason: Reason::FilteredOut(engine::ledger::FilteredBy::Where),
    };
    let created = LedgerEntry::Created {
        notification,
        subscriber: subscriber.clone(),
        events: made.events.clone(),
        created_at: made.created_at,
    };
    let queued = LedgerEntry::Queued { notification, session: session.clone() };
    let injected = LedgerEntry::Injected {
        notification,
        session: session.clone(),
        injection: engine::exchange::InjectionId::new("a1"),
        point: InjectionPoint::AfterTool,
        redelivered: None,
    };
    let confirmed = LedgerEntry::Confirmed { notification, session: session.clone(), by: ConfirmedBy::Step };
    let opened = Output::Session(session.clone(), SessionChange::Opened(Harness::default()));
    let closed = Output::Session(
        session.clone(),
        SessionChange::Closed { last_seen: Timestamp::from_millis(4_000), keeps_pending: false },
    );
    let answered = answer_of(session, released);
    let records: [(u8, &[Output]); 7] = [
        (records::EVENT, &[batched(1)]),
        (records::EVENT, &[batched(2), Output::Made(Arc::new(made)), entry(created), opened, entry(queued)]),
        (records::EVENT, &[entry(filtered)]),
        (records::EXCHANGE, &[entry(injected), answered]),
        (records::EVENT, &[entry(LedgerEntry::Unmatched { seq: Seq(5) })]),
        (records::EXCHANGE, &[entry(confirmed)]),
        (records::SESSION_CLOSED, &[closed]),
    ];
    for (seq, (kind, outputs)) in (1_u64..).zip(records) {
        let body = event_body(seq);
        let time = Timestamp::from_millis(seq * 1_000);
        notes.begin(&Record { kind: RecordKind(kind), seq: Seq(seq), time, body: &body });
        outputs.iter().for_each(|output| notes.take(output));
    }
    notes
}

fn event_body(seq: u64) -> Vec<u8> {
    let mut body = Vec::new();
    let event = EventRef {
        id: &format!("e{seq}"),
        event_type: if seq == 3 { "ci.check.passed" } else { "ci.check.failed" },
        source: "ci",
        provenance: engine::event::Provenance::Local,
        severity: if seq == 3 { Severity::Info } else { Severity::Error },
        timestamp: Timestamp::from_millis(seq * 1_000),
        payload: "{}",
        dedupe_key: None,
        session: (seq == 2).then_some("s1"),
        workspace: (seq == 1).then_some("/home/u/shop"),
        cause: None,
        deliver_after: None,
    };
    records::encode_event(&event, &mut body);
    body
}

/// A daemon whose projection has caught up with [`written`].
fn daemon_with_history() -> Daemon {
    let daemon = daemon();
    let mut writer = Writer::open(&daemon.folder.path().join(FILE_NAME)).expect("opened");
    writer.write(&[written()]).expect("written");
    daemon.app.projection.progress().commit(writer.cursor());
    daemon
}

async fn ids(daemon: &Daemon, path: &str) -> Vec<String> {
    let reply = send(&daemon.app, get(path)).await;
    assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.body);
    let json = reply.json();
    let list = json["events"].as_array().expect("a list");
    list.iter().map(|line| line["event"]["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn events_are_filtered_and_listed_newest_first() {
    let daemon = daemon_with_history();
    for (query, expected) in [
        ("", vec!["e3", "e2", "e1"]),
        ("?type=ci.check.failed", vec!["e2", "e1"]),
        ("?type=ci.**", vec!["e3", "e2", "e1"]),
        ("?type=fs.**", vec![]),
        ("?severity=warn", vec!["e2", "e1"]),
        ("?session=s1", vec!["e2"]),
        ("?workspace=/home/u/", vec!["e1"]),
        ("?workspace=/home/u/sh", vec![]),
        ("?source=ci&since=1970-01-01T00:00:02Z&until=1970-01-01T00:00:02Z", vec!["e2"]),
        ("?until=1h", vec![]),
        ("?limit=1", vec!["e3"]),
        ("?limit=2&cursor=3", vec!["e2", "e1"]),
    ] {
        assert_eq!(ids(&daemon, &format!("/v1/events{query}")).await, expected, "{query}");
    }
    let first = send(&daemon.app, get("/v1/events?limit=1")).await.json();
    assert_eq!((&first["next"], &first["unmatched"]), (&json!("3"), &json!(1)));
    assert_eq!(first["projection"], json!({ "seq": 7, "behind": 0 }));
    assert_eq!(
        first["events"][0]["ended"],
        json!([{ "subscriber": "ci", "reason": "filtered", "detail": "where" }])
    );
    let second = send(&daemon.app, get("/v1/events?limit=2&cursor=3")).await.json();
    assert_eq!((&second["next"], &second["events"][0]["notifications"]), (&Value::Null, &json!(["n1"])));
}

#[tokio::test]
async fn notification_view_shows_its_events_and_history() {
    let daemon = daemon_with_history();
    let shown = send(&daemon.app, get("/v1/notifications/n1")).await.json();
    let expected = json!({
        "id": "n1", "subscriber": "ci", "priority": "high", "severity": "error", "inject_at": "after_tool", "session": "s1",
        "sentence": "unit failed on fix and 1 more", "content": "ci: failed", "tokens": 4, "created_at": "1970-01-01T00:00:02Z", "events": [1, 2],
        "deliveries": [{ "session": "s1", "state": "confirmed", "proof": "step", "injection": "a1", "at": "1970-01-01T00:00:06Z" }],
    });
    assert_eq!(shown["notification"], expected);
    let delivered: Vec<_> =
        shown["history"].as_array().expect("a list").iter().map(|line| &line["what"]).collect();
    assert_eq!(delivered, ["created", "queued", "injected", "confirmed"]);
    assert_eq!(shown["events"][1]["id"], "e2");
    for (query, expected) in [
        ("", 1),
        ("?session=s1&state=confirmed&priority=high&subscriber=ci&since=1970-01-01T00:00:02Z", 1),
        ("?session=s2", 0),
        ("?state=pending", 0),
        ("?priority=low", 0),
        ("?since=1970-01-01T00:00:03Z", 0),
    ] {
        let page = send(&daemon.app, get(&format!("/v1/notifications{query}"))).await.json();
        assert_eq!(page["notifications"].as_array().map(Vec::len), Some(expected), "{query}");
    }
}

#[tokio::test]
async fn a_session_that_is_over_keeps_its_messages() {
    let daemon = daemon_with_history();
    let page = send(&daemon.app, get("/v1/sessions/s1/messages")).await.json();
    let place = format!("m{:x}", (4_u64 << 24) + 1);
    let expected = json!([{ "id": place, "role": "system", "content": "ci: failed", "timestamp": "1970-01-01T00:00:04Z",
        "source": "ci", "notification_id": "n1", "injection": "a1", "point": "after_tool", "state": "confirmed", "proof": "step" }]);
    assert_eq!(page["messages"], expected);
    let page = send(&daemon.app, get("/v1/sessions/s1/injections")).await.json();
    let expected = json!([{ "id": "a1", "session": "s1", "timestamp": "1970-01-01T00:00:04Z", "role": "tool", "text": "ci: failed", "notifications": ["n1"] }]);
    assert_eq!(page["injections"], expected);
    let named = send(&daemon.app, get("/v1/injections/a1")).await.json();
    assert_eq!(named["injections"], expected);
    let unknown = send(&daemon.app, get("/v1/injections/a2")).await;
    assert_eq!(
        (unknown.status, unknown.json()["error"]["message"].as_str()),
        (StatusCode::NOT_FOUND, Some("there is no injection `a2`"))
    );
    let page = send(&daemon.app, get("/v1/history/sessions")).await.json();
    let expected = json!([{ "id": "s1", "is_open": false, "harness": {}, "opened_at": "1970-01-01T00:00:02Z",
        "seen_at": "1970-01-01T00:00:04Z", "closed_at": "1970-01-01T00:00:07Z" }]);
    assert_eq!(page["sessions"], expected);
    daemon.open("s1").await;
    let unknown = send(&daemon.app, get("/v1/sessions/s9/messages")).await;
    let message = "there is no session `s9`; did you mean `s1`?";
    assert_eq!(unknown.json()["error"]["message"], message);
}

#[tokio::test]
async fn event_view_includes_projected_history_with_times() {
    let daemon = daemon_with_history();
    for path in ["/v1/events/e1", "/v1/events/e1?source=ci"] {
        let shown = send(&daemon.app, get(path)).await.json();
        assert_eq!(shown["event"]["seq"], 1);
        assert_eq!(shown["history"][0]["at"], "1970-01-01T00:00:01Z");
        assert_eq!(shown["history"].as_array().map(Vec::len), Some(5), "{shown}");
    }
}

#[tokio::test]
async fn sources_are_listed_with_what_came_of_them() {
    let daemon = daemon_with_history();
    let shown = send(&daemon.app, get("/v1/sources?since=1970-01-01T00:00:02Z")).await.json();
    let ci = json!({ "name": "ci", "kind": "other", "types": ["ci.check.failed", "ci.check.passed"], "events": 2,
        "last_at": "1970-01-01T00:00:03Z", "delivered": 1, "tokens": 4 });
    let sources = shown["sources"].as_array().expect("a list");
    assert_eq!((sources.last(), sources.len()), (Some(&ci), PRODUCERS.len() + 1));
    let rest = [&shown["since"], &shown["is_cut"], &shown["more"], &shown["looks"], &shown["projection"]];
    let looks = json!({ "count": 0, "mean_us": 0, "missed": 0 });
    let projection = json!({ "seq": 7, "behind": 0 });
    assert_eq!(rest, [&json!("1970-01-01T00:00:02Z"), &json!(false), &json!(0), &looks, &projection]);
    let whole = send(&daemon.app, get("/v1/sources")).await.json();
    assert_eq!(whole["sources"][PRODUCERS.len()]["events"], 3);
}

/// Publishes `count` events without subscribers.
async fn publish(daemon: &Daemon, count: usize) {
    for _ in 0..count {
        send(&daemon.app, post("/v1/events", "application/json", r#"{"type":"a.b"}"#)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn event_request_waits_for_its_projected_history() {
    let daemon = daemon();
    publish(&daemon, 1).await;
    let (app, progress) = (&daemon.app, daemon.app.projection.progress());
    let projected = async {
        // The request waits now, because no other task is ready.
        tokio::time::advance(std::time::Duration::from_millis(900)).await;
        let mut writer = Writer::open(&daemon.folder.path().join(FILE_NAME)).expect("opened");
        writer.write(&[written()]).expect("written");
        progress.commit(writer.cursor());
    };
    let (shown, ()) = tokio::join!(send(app, get("/v1/events/1")), projected);
    let shown = shown.json();
    assert_eq!(shown["projection"], json!({ "seq": 7, "behind": 0 }));
    assert_eq!(shown["history"][0]["what"], "batched", "{shown}");
}

#[tokio::test(start_paused = true)]
async fn event_without_outcome_is_unmatched_once_projected() {
    let daemon = daemon_with_history();
    publish(&daemon, 8).await;
    let history = async |seq: u64| {
        let shown = send(&daemon.app, get(&format!("/v1/events/{seq}"))).await.json();
        assert_eq!(shown["event"]["seq"], seq);
        (shown["history"].clone(), shown["projection"]["behind"].clone())
    };
    let unmatched = |seq: u64| json!([{ "what": "unmatched", "events": [seq] }]);
    assert_eq!(history(5).await, (unmatched(5), json!(1)));
    assert_eq!(history(8).await, (json!([]), json!(1)), "it is not projected");
    daemon.app.projection.progress().commit(Seq(8));
    assert_eq!(history(8).await, (unmatched(8), json!(0)));
    let mut writer = Writer::open(&daemon.folder.path().join(FILE_NAME)).expect("opened");
    writer.raise_floor(Seq(6)).expect("written");
    assert_eq!(history(5).await, (json!([]), json!(0)), "what was before is not known");
    assert_eq!(history(6).await, (unmatched(6), json!(0)));
    daemon.app.projection.set_failed(Some("the disk is full".to_owned()));
    daemon.app.projection.progress().commit(Seq(7));
    assert_eq!(history(6).await, (unmatched(6), json!(1)), "what there is is read all the same");
}

#[tokio::test]
async fn response_reports_a_lagging_or_missing_projection() {
    let daemon = daemon_with_history();
    for _ in 0..9 {
        send(&daemon.app, post("/v1/events", "application/json", r#"{"type":"a.b"}"#)).await;
    }
    let page = send(&daemon.app, get("/v1/events?limit=1")).await.json();
    assert_eq!(page["projection"], json!({ "seq": 7, "behind": 2 }));
    let missing = send(&daemon.app, get("/v1/notifications/n9")).await;
    let message = "there is no notification `n9` yet; the history is 2 records behind";
    assert_eq!(
        (missing.status, &missing.json()["error"]["message"]),
        (StatusCode::NOT_FOUND, &json!(message))
    );

    let mut daemon = self::daemon();
    let reply = send(&daemon.app, get("/v1/events")).await;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(reply.body.contains("the projection cannot be read"), "{}", reply.body);
    assert!(matches!(daemon.orders.try_recv(), Ok(Command::Check)), "its thread gets the order to look");
}

#[tokio::test]
async fn rebuild_request_waits_for_old_file_removal() {
    let mut daemon = daemon();
    let app = daemon.app.clone();
    let obeying = async {
        match daemon.orders.recv().await {
            Some(Command::Rebuild(reply)) => reply.send(Ok(())).expect("waited for"),
            other => panic!("{other:?}"),
        }
    };
    let (reply, ()) = tokio::join!(send(&app, post("/v1/admin/rebuild", "application/json", "")), obeying);
    assert_eq!((reply.status, reply.json()), (StatusCode::ACCEPTED, json!({ "seq": 0, "behind": 0 })));
}

#[tokio::test]
async fn filters_that_make_no_sense_are_named() {
    check_refused([
        (get("/v1/events?limit=0"), 400, "limit", "must be a number from 1 to 1000"),
        (get("/v1/events?cursor=x"), 400, "cursor", "must be the `next` of the previous page"),
        (get("/v1/notifications?cursor=-1"), 400, "cursor", "must be the `next` of the previous page"),
        (
            get("/v1/events?since=yesterday"),
            400,
            "since",
            "must be an RFC 3339 timestamp such as `2026-11-21T12:00:00Z`, or how long ago, such as `30m`, `12h` or `7d`",
        ),
        (
            get("/v1/sources?since=x"),
            400,
            "since",
            "must be an RFC 3339 timestamp such as `2026-11-21T12:00:00Z`, or how long ago, such as `30m`, `12h` or `7d`",
        ),
        (
            get("/v1/notifications?state=pendin"),
            400,
            "state",
            "`pendin` is not a state; did you mean `pending`?",
        ),
        (
            get("/v1/notifications?priority=hihg"),
            400,
            "priority",
            "`hihg` is not one of low, normal, high, critical",
        ),
    ])
    .await;
}
