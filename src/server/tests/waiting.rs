//! Exchanges, hooks, long polls and streams: requests that wait for the event loop or the journal.

use super::*;

#[tokio::test]
async fn an_exchange_journals_what_it_observed_before_itself_and_shows_the_answer() {
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
    let told =
        ["aside-pending", "aside-check-before-tool"].map(|name| reply.headers[name].to_str().expect("text"));
    assert_eq!(told, ["2", "true"]);
    assert_eq!(journaled(&app, 4), [("exchange", "c1".to_owned())], "the same request observes nothing new");
}

#[tokio::test]
async fn an_exchange_whose_client_is_gone_is_waited_for_by_nobody() {
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
async fn events_are_streamed_from_where_the_client_was_and_then_as_they_come() {
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

#[tokio::test(start_paused = true)]
async fn a_long_poll_ends_when_something_is_pending_or_the_time_is_over() {
    let mut daemon = daemon();
    daemon.pending = 3;
    let at_once = send_asked(&mut daemon, get("/v1/sessions/s1/wait")).await;
    assert_eq!(at_once.json(), json!({ "session": "s1", "pending": 3, "top": "high" }));
    daemon.pending = 0;
    let over = send_asked(&mut daemon, get("/v1/sessions/s1/wait?timeout=5s")).await;
    assert_eq!(over.status, StatusCode::NO_CONTENT);
    let registry = daemon.app.registry.clone();
    let woken = send_asked(&mut daemon, get("/v1/sessions/s2/wait"));
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
    let stopped = send_asked(&mut daemon, get("/v1/sessions/s1/wait")).await;
    assert_eq!(stopped.status, StatusCode::NO_CONTENT);
    assert_eq!(registry.waiting(), 0);
}

#[tokio::test]
async fn a_stream_that_selects_nothing_of_a_long_journal_lets_others_work() {
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
async fn a_sessions_stream_begins_with_what_is_pending_and_follows_its_changes() {
    let mut daemon = daemon();
    let app = daemon.app.clone();
    let response = tokio::select! {
        response = router::router(app.clone()).oneshot(get("/v1/sessions/s1/stream")) => response.expect("infallible"),
        () = answer_queries(&mut daemon.queries, 2) => panic!("the daemon is gone"),
    };
    let mut changes = open_stream(response);
    let frame = |rest: &str| Some(format!("event: pending\ndata: {{\"session\":\"s1\",{rest}}}\n\n"));
    assert_eq!(next_text(&mut changes).await, frame(r#""pending":2,"top":"high""#));
    app.registry.wake(Pending::nothing(SessionId::new("s1")));
    assert_eq!(next_text(&mut changes).await, frame(r#""pending":0"#));
    drop(changes);
    assert_eq!(app.registry.waiting(), 0);
}

#[tokio::test]
async fn a_hook_is_answered_with_its_stdout_or_with_silence() {
    let Daemon { app, .. } = daemon();
    let hook = |body: &'static str| post("/v1/hooks/claude", "application/json", body);
    let batch = r#"{"hook_event_name":"PostToolBatch","session_id":"s1","cwd":"/w","prompt_id":"p1","tool_calls":[{"tool_name":"Bash","tool_use_id":"t1"}]}"#;
    let (reply, exchange) = send_answered(&app, hook(batch), 1, injection()).await;
    assert_eq!((reply.status, exchange.session.as_str()), (StatusCode::OK, "s1"));
    assert_eq!(reply.json()["hookSpecificOutput"]["additionalContext"], "ci: failed");
    let from = app.bus.written().borrow().0 + 1;
    let (reply, _) = send_answered(&app, hook(batch), from, nothing()).await;
    assert_eq!((reply.status, reply.body.as_str()), (StatusCode::NO_CONTENT, ""));
    let from = app.bus.written().borrow().0 + 1;
    let end =
        send(&app, hook(r#"{"hook_event_name":"SessionEnd","session_id":"s1","reason":"logout"}"#)).await;
    assert_eq!(end.status, StatusCode::NO_CONTENT);
    let expected = [("event", "agent.session.end".to_owned()), ("session_closed", "s1".to_owned())];
    assert_eq!(journaled(&app, from), expected);
    let from = app.bus.written().borrow().0 + 1;
    let unreadable = r#"{"hook_event_name":"Stop","session_id":"s1","cwd":"w","prompt_id":"p1"}"#;
    let refused = send(&app, hook(unreadable)).await;
    let error = r#"{"error":{"message":"harness.workspace: must be an absolute path, not `w`"}}"#;
    assert_eq!((refused.status, refused.body.as_str()), (StatusCode::BAD_REQUEST, error));
    assert_eq!(journaled(&app, from), []);
    let bad = send(&app, hook("{}")).await;
    assert_eq!(bad.status, StatusCode::BAD_REQUEST);
    assert!(bad.body.contains("hook_event_name"), "{}", bad.body);
}
