//! Tests of exchanges, hooks, long polls and streams: requests that wait for the event loop or the
//! journal.

use engine::transcript::Gauge;

use super::*;
use crate::harness::trial;

#[tokio::test]
async fn exchange_journals_observed_events_before_itself() {
    let Daemon { app, .. } = daemon();
    let body = r#"{"point":"after_tool","carrier":"c1","observe":[{"type":"a.b"},{"type":"a.c"}]}"#;
    let request = || post("/v1/sessions/s1/exchange", "application/json", body);
    let (reply, exchange) = send_answered(&app, request(), 1, injection()).await;
    assert_eq!(exchange.session, SessionId::new("s1"));
    assert_eq!((reply.status, &reply.json()["text"]), (StatusCode::OK, &json!("ci: failed")));
    let observed = [("event", "a.b".to_owned()), ("event", "a.c".to_owned()), ("exchange", "c1".to_owned())];
    assert_eq!(journaled(&app, 1), observed);
    let (reply, _) = send_answered(&app, request(), 4, nothing()).await;
    assert_eq!((reply.status, reply.body.as_str()), (StatusCode::NO_CONTENT, ""));
    let delivered =
        ["aside-pending", "aside-check-before-tool"].map(|name| reply.headers[name].to_str().expect("text"));
    assert_eq!(delivered, ["2", "true"]);
    assert_eq!(journaled(&app, 4), [("exchange", "c1".to_owned())], "the same request observes nothing new");
}

#[tokio::test]
async fn disconnected_client_leaves_no_waiting_exchange() {
    let Daemon { app, .. } = daemon();
    let body = r#"{"point":"after_tool","carrier":"c1"}"#;
    let request = tokio::select! {
        biased;
        (request, _) = next_exchange(&app, 1) => request,
        _ = send(&app, post("/v1/sessions/s1/exchange", "application/json", body)) => panic!("nobody answers"),
    };
    assert!(!app.registry.answer(request, injection()));
    assert_eq!(app.registry.waiting(), 0);
}

#[tokio::test]
async fn event_stream_resumes_after_the_last_event_id() {
    let Daemon { app, stop, .. } = daemon();
    let publish = |event: &'static str| send(&app, post("/v1/events", "application/json", event));
    for event in [
        r#"{"id":"1","type":"tool.call.failure","severity":"error"}"#,
        r#"{"id":"2","type":"tool.call.failure","severity":"error"}"#,
        r#"{"id":"3","type":"tool.call.failure","severity":"info"}"#,
        r#"{"id":"4","type":"ci.check","severity":"error"}"#,
    ] {
        assert_eq!(publish(event).await.status, StatusCode::OK);
    }
    let mut request = get("/v1/events/stream?pattern=tool.**&severity=warn&from=1");
    request.headers_mut().insert("last-event-id", "1".parse().expect("a value"));
    let response = router::router(app.clone()).oneshot(request).await.expect("infallible");
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut events = open_stream(response);
    let frame = |seq: u64| {
        format!(
            "id: {seq}\ndata: {{\"seq\":{seq},\"id\":\"{seq}\",\"type\":\"tool.call.failure\",\"source\":\"api\",\"severity\":\"error\",\"timestamp\":\"1970-01-01T00:00:01Z\",\"payload\":{{}}}}\n\n"
        )
    };
    assert_eq!(next_text(&mut events).await, Some(frame(2)));
    assert!(next_text(&mut events).now_or_never().is_none());
    publish(r#"{"id":"5","type":"tool.call.failure","severity":"error"}"#).await;
    assert_eq!(next_text(&mut events).await, Some(frame(5)));
    stop.send_replace(true);
    assert_eq!(next_text(&mut events).await, None);
}

#[tokio::test]
async fn event_stream_ends_after_its_last_position() {
    let Daemon { app, stop: _stop, .. } = daemon();
    for id in ["1", "2", "3"] {
        let event = format!("{{\"id\":\"{id}\",\"type\":\"a.b\"}}");
        assert_eq!(send(&app, post("/v1/events", "application/json", event)).await.status, StatusCode::OK);
    }
    for (query, ids) in [("from=1&until=2", 2), ("until=2", 0), ("from=1&until=2&pattern=c.*", 0)] {
        let path = format!("/v1/events/stream?{query}");
        let response = router::router(app.clone()).oneshot(get(&path)).await.expect("infallible");
        let mut events = open_stream(response);
        for seq in 1..=ids {
            let shown = next_text(&mut events).await.expect("an event");
            assert!(shown.starts_with(&format!("id: {seq}\n")), "{query}: {shown}");
        }
        assert_eq!(next_text(&mut events).await, None, "{query}");
    }
}

#[tokio::test]
async fn event_stream_beyond_the_end_gets_new_events() {
    let Daemon { app, stop: _stop, .. } = daemon();
    let publish = |event: &'static str| send(&app, post("/v1/events", "application/json", event));
    publish(r#"{"id":"before","type":"a.b"}"#).await;
    for last in ["1000", "18446744073709551615"] {
        let mut request = get("/v1/events/stream");
        request.headers_mut().insert("last-event-id", last.parse().expect("a value"));
        let response = router::router(app.clone()).oneshot(request).await.expect("infallible");
        let mut events = open_stream(response);
        assert_eq!(next_text(&mut events).now_or_never(), None);
        publish(r#"{"type":"c.d"}"#).await;
        let found = next_text(&mut events).now_or_never().flatten().expect("an event");
        assert!(found.contains("\"type\":\"c.d\""), "{found}");
    }
}

#[tokio::test(start_paused = true)]
async fn long_poll_ends_on_pending_or_timeout() {
    let daemon = daemon();
    for session in ["s1", "s2"] {
        daemon.open(session).await;
    }
    daemon.publish("shop.order.placed", "s1", 3).await;
    let at_once = send(&daemon.app, get("/v1/sessions/s1/wait")).await;
    assert_eq!(at_once.json(), json!({ "session": "s1", "pending": 3, "top": "high" }));
    let over = send(&daemon.app, get("/v1/sessions/s2/wait?timeout=5s")).await;
    assert_eq!(over.status, StatusCode::NO_CONTENT);
    let registry = daemon.app.registry.clone();
    let woken = send(&daemon.app, get("/v1/sessions/s2/wait"));
    let wake = async {
        while registry.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        for count in [0, 1] {
            registry.wake(Pending { count, ..Pending::nothing(SessionId::new("s2")) });
            tokio::task::yield_now().await;
        }
    };
    let (woken, ()) = tokio::join!(woken, wake);
    assert_eq!(woken.json(), json!({ "session": "s2", "pending": 1 }));
    daemon.stop.send_replace(true);
    let stopped = send(&daemon.app, get("/v1/sessions/s2/wait")).await;
    assert_eq!(stopped.status, StatusCode::NO_CONTENT);
    assert_eq!(registry.waiting(), 0);
}

#[tokio::test]
async fn sparse_event_stream_yields_to_other_tasks() {
    let Daemon { app, stop: _stop, .. } = daemon();
    let line = |number: usize| format!("{{\"id\":\"{number}\",\"type\":\"a.b\"}}\n");
    let body: String =
        (0..1_000).map(line).chain(["{\"id\":\"last\",\"type\":\"c.d\"}".to_owned()]).collect();
    send(&app, post("/v1/events", "application/x-ndjson", body)).await;
    let path = "/v1/events/stream?from=1&pattern=c.*";
    let response = router::router(app.clone()).oneshot(get(path)).await.expect("infallible");
    let mut events = open_stream(response);
    assert_eq!(next_text(&mut events).now_or_never(), None);
    let found = next_text(&mut events).await.expect("an event");
    assert!(found.contains("\"id\":\"last\""), "{found}");
}

#[tokio::test]
async fn session_stream_starts_with_pending_and_follows_changes() {
    let daemon = daemon();
    let app = daemon.app.clone();
    daemon.open("s1").await;
    daemon.publish("shop.order.placed", "s1", 2).await;
    let request = get("/v1/sessions/s1/stream");
    let response = router::router(app.clone()).oneshot(request).await.expect("infallible");
    let mut changes = open_stream(response);
    let frame = |rest: &str| Some(format!("event: pending\ndata: {{\"session\":\"s1\",{rest}}}\n\n"));
    assert_eq!(next_text(&mut changes).await, frame(r#""pending":2,"top":"high""#));
    app.registry.wake(Pending::nothing(SessionId::new("s1")));
    assert_eq!(next_text(&mut changes).await, frame(r#""pending":0"#));
    drop(changes);
    assert_eq!(app.registry.waiting(), 0);
}

fn waking(session: &str) -> Pending {
    let wake = Some(Wake { kind: WakeKind::StartTurn, reason: "high: ci".into(), causes: 1 });
    Pending { count: 1, wake, ..Pending::nothing(SessionId::new(session)) }
}

#[tokio::test(start_paused = true)]
async fn wake_long_poll_ignores_non_waking_notifications() {
    let daemon = daemon();
    daemon.open("s1").await;
    daemon.publish("shop.order.placed", "s1", 3).await;
    let registry = daemon.app.registry.clone();
    let waiting = send(&daemon.app, get("/v1/sessions/s1/wait?for=wake&timeout=60s"));
    let changes = async {
        while registry.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        for change in [Pending { count: 4, ..Pending::nothing(SessionId::new("s1")) }, waking("s1")] {
            registry.wake(change);
            tokio::task::yield_now().await;
        }
    };
    let (woken, ()) = tokio::join!(waiting, changes);
    let expected = json!({ "session": "s1", "pending": 1, "wake": "start_turn", "reason": "high: ci" });
    assert_eq!(woken.json(), expected);
    let bad = send(&daemon.app, get("/v1/sessions/s1/wait?for=ever")).await;
    assert_eq!(bad.status, StatusCode::BAD_REQUEST);
    assert!(bad.body.contains("expected `pending` or `wake`"), "{}", bad.body);
}

#[tokio::test]
async fn newer_follower_replaces_older_and_follows_continuations() {
    let daemon = daemon();
    let app = daemon.app.clone();
    for session in ["s2", "s3"] {
        daemon.open(session).await;
    }
    let mut streams = Vec::new();
    for _ in 0..2 {
        let request = get("/v1/sessions/s2/stream?wake_route=follower");
        let response = router::router(app.clone()).oneshot(request).await.expect("infallible");
        let mut stream = open_stream(response);
        next_text(&mut stream).await.expect("what is pending at the beginning");
        streams.push(stream);
    }
    let [mut first, mut second] = streams.try_into().expect("two");
    assert_eq!(next_text(&mut first).await.as_deref(), Some("event: replaced\ndata: {}\n\n"));
    assert_eq!(next_text(&mut first).await, None);
    app.registry.wake(waking("s2"));
    let delivered = next_text(&mut second).await.expect("a change");
    assert!(delivered.contains("\"wake\":\"start_turn\""), "{delivered}");
    app.registry.wake(Pending { is_closed: true, ..Pending::nothing(SessionId::new("s2")) });
    assert_eq!(next_text(&mut second).await.as_deref(), Some("event: closed\ndata: {}\n\n"));
    let moved_to = Some(SessionId::new("s3"));
    app.registry.wake(Pending { moved_to, ..Pending::nothing(SessionId::new("s2")) });
    let delivered = next_text(&mut second).await.expect("where it goes on");
    assert!(delivered.contains("\"session\":\"s3\",\"pending\":0"), "{delivered}");
    app.registry.wake(waking("s2"));
    app.registry.wake(waking("s3"));
    let delivered = next_text(&mut second).await.expect("a change");
    assert!(delivered.contains("\"session\":\"s3\"") && delivered.contains("start_turn"), "{delivered}");
    drop((first, second));
    assert_eq!(app.registry.waiting(), 0);
}

#[tokio::test]
async fn user_decision_on_pending_notification_is_journaled() {
    let daemon = daemon();
    let app = daemon.app.clone();
    daemon.open("s1").await;
    daemon.publish("shop.offer.made", "s1", 1).await;
    let from = app.journal.written().borrow().0 + 1;
    let list = send(&daemon.app, get("/v1/inbox")).await;
    let list = list.json();
    let first = &list["notifications"][0];
    assert_eq!((&first["waits_for"], &first["sentence"]), (&json!("user"), &json!("value")));
    let decide = |path: &str| post(path, "application/json", "");
    let unknown = send(&daemon.app, decide("/v1/notifications/n9/dismiss")).await;
    assert_eq!((unknown.status, unknown.body.contains("`n9`")), (StatusCode::NOT_FOUND, true));
    let id = first["id"].as_str().expect("an id");
    let known = send(&app, decide(&format!("/v1/notifications/{id}/discuss?session=s1"))).await;
    assert_eq!(known.status, StatusCode::NO_CONTENT, "{}", known.body);
    let said = format!(
        "Input(Decided {{ session: Some(SessionId(\"s1\")), notification: NotificationId({id:?}), decision: Discuss }})"
    );
    assert_eq!(journaled(&app, from), [("decided", said)]);
    let first = &send(&app, get("/v1/inbox")).await.json()["notifications"][0];
    assert_eq!((&first["id"], &first["waits_for"]), (&json!(id), &json!("agent")));
}

#[tokio::test]
async fn status_line_shows_pending_and_records_context_usage() {
    let daemon = daemon();
    let app = daemon.app.clone();
    daemon.open("s1").await;
    daemon.publish("shop.order.placed", "s1", 2).await;
    let body = "{\"session_id\":\"s1\",\"context_window\":{\"used_percentage\":81}}";
    let reply = send(&daemon.app, post("/v1/statusline/claude", "application/json", body)).await;
    assert_eq!((reply.status, reply.body.as_str()), (StatusCode::OK, "aside \u{25cf} 2 high"));
    let context = app.registry.gauges_of(&SessionId::new("s1")).context;
    assert_eq!(context, Some(Gauge { used_percent: 81, size: None }));
    let refused = send(&daemon.app, post("/v1/statusline/claude", "application/json", "{")).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.body.contains("EOF while parsing an object at line 1 column 1"), "{}", refused.body);
}

#[tokio::test]
async fn hook_is_answered_with_stdout_or_no_content() {
    let Daemon { app, .. } = daemon();
    let hook = |body: &'static str| post("/v1/hooks/claude", "application/json", body);
    let batch = r#"{"hook_event_name":"PostToolBatch","session_id":"s1","cwd":"/w","prompt_id":"p1","tool_calls":[{"tool_name":"Bash","tool_use_id":"t1"}]}"#;
    let (reply, exchange) = send_answered(&app, hook(batch), 1, injection()).await;
    assert_eq!((reply.status, exchange.session.as_str()), (StatusCode::OK, "s1"));
    assert_eq!(reply.json()["hookSpecificOutput"]["additionalContext"], "ci: failed");
    let from = app.journal.written().borrow().0 + 1;
    let (reply, _) = send_answered(&app, hook(batch), from, nothing()).await;
    assert_eq!((reply.status, reply.body.as_str()), (StatusCode::NO_CONTENT, ""));
    let from = app.journal.written().borrow().0 + 1;
    let end =
        send(&app, hook(r#"{"hook_event_name":"SessionEnd","session_id":"s1","reason":"logout"}"#)).await;
    assert_eq!(end.status, StatusCode::NO_CONTENT);
    let expected = [("event", "agent.session.end".to_owned()), ("session_closed", "s1".to_owned())];
    assert_eq!(journaled(&app, from), expected);
    let from = app.journal.written().borrow().0 + 1;
    let unreadable = r#"{"hook_event_name":"Stop","session_id":"s\u0007","cwd":"/w","prompt_id":"p1"}"#;
    let refused = send(&app, hook(unreadable)).await;
    let error = r#"{"error":{"message":"hook input of Stop is invalid: session_id: must be made of printable characters: no line breaks, control or invisible ones"}}"#;
    assert_eq!((refused.status, refused.body.as_str()), (StatusCode::BAD_REQUEST, error));
    assert_eq!(journaled(&app, from), []);
    let bad = send(&app, hook("{}")).await;
    assert_eq!(bad.status, StatusCode::BAD_REQUEST);
    assert!(bad.body.contains("hook_event_name"), "{}", bad.body);
    let relative = r#"{"hook_event_name":"SessionEnd","session_id":"s1","cwd":"w","reason":"logout"}"#;
    assert_eq!(send(&app, hook(relative)).await.status, StatusCode::NO_CONTENT);
    let unknown = send(&app, post("/v1/hooks/claud", "application/json", "{}")).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    let troubles = send(&app, get("/v1/clients")).await.json()["troubles"].clone();
    let kinds: Vec<&str> =
        troubles.as_array().expect("a list").iter().filter_map(|one| one["kind"].as_str()).collect();
    let expected = ["left_out cwd", "refused .", "refused session_id", "unknown_harness claud"];
    assert_eq!(kinds, expected, "{troubles}");
}

#[tokio::test]
async fn harness_without_hooks_is_attached_as_follower() {
    let Daemon { app, .. } = daemon();
    let forms = [
        (&trial::EXTENSION, "Trial Client has no hooks: its extension calls the API itself"),
        (&trial::PROXY, "Trial Proxy has no hooks: `aside relay -- AGENT` makes the exchanges"),
    ];
    for (kind, why) in forms {
        let name = kind.caps.name;
        let path = format!(
            "/v1/sessions/{name}/stream?wake_route=follower&harness={name}&pid=1&client_folder=/nowhere"
        );
        let response = router::router(app.clone()).oneshot(get(&path)).await.expect("infallible");
        let mut stream = open_stream(response);
        next_text(&mut stream).await.expect("what is pending at the beginning");
        let folder = app.registry.wake_routes().client_folder(&SessionId::new(name)).expect("reported");
        assert_eq!((folder.kind.word, folder.has_session_files()), (kind.word, false));
        let clients = send(&app, get("/v1/clients")).await.json();
        assert_eq!(clients["attached"], json!([{ "session": name, "wake_route": "follower" }]));
        let session = &send(&app, get(&format!("/v1/sessions/{name}"))).await.json();
        assert_eq!((&session["harness"]["name"], &session["is_open"]), (&json!(name), &json!(true)));
        let hook = send(&app, post(&format!("/v1/hooks/{}", kind.word), "application/json", "{}")).await;
        let message = format!("{why}; known: `claude`");
        assert_eq!((hook.status, &hook.json()["error"]["message"]), (StatusCode::NOT_FOUND, &json!(message)));
    }
}
