//! Publishing tests: every kind of body, and a verdict for each event.

use engine::event::codec::{self, IdOrigin};

use super::*;

#[tokio::test]
async fn repeated_event_id_returns_the_first_position() {
    let Daemon { app, .. } = daemon();
    let event = r#"{"id":"e1","type":"tool.call.failure"}"#;
    let first = send(&app, post("/v1/events", "application/json", event)).await;
    assert_eq!(
        (first.status, first.body.as_str()),
        (StatusCode::OK, r#"{"results":[{"seq":1,"id":"e1"}],"durability":"sync"}"#)
    );
    let again = send(&app, post("/v1/events", "application/json", event)).await;
    let expected = r#"{"results":[{"seq":1,"id":"e1","duplicate":true}],"durability":"sync"}"#;
    assert_eq!((again.status, again.body.as_str()), (StatusCode::OK, expected));
    assert_eq!(journaled(&app, 1), [("event", "tool.call.failure".to_owned())]);
}

#[tokio::test]
async fn invalid_body_gets_one_error_and_stores_nothing() {
    let publish = |body: &str| post("/v1/events", "application/json", body.to_owned());
    let large = format!(r#"{{"type":"a.b","payload":{{"a":"{}"}}}}"#, "x".repeat(1_000_000));
    check_refused([
        (publish(r#"{"type":"a"}"#), 400, "type", "an event type has 2 to 8 segments separated by dots, `a` has 1"),
        (publish("{"), 400, "", "is not JSON: EOF while parsing an object at line 1 column 1"),
        (publish(""), 400, "", "is not JSON: EOF while parsing a value at line 1 column 0"),
        (publish(&large), 413, "", "an event has at most 65536 bytes, this one has 1000033"),
        (
            post("/v1/events", "application/json", vec![b'['; extract::EVENTS_BYTES_MAX + 1]),
            413,
            "",
            "the body of this request has at most 4194304 bytes; send more as application/x-ndjson",
        ),
        (
            post("/v1/events", "text/xml", "<a/>"),
            415,
            "content-type",
            "`text/xml` cannot be read; send application/json, application/x-ndjson, application/cloudevents+json or application/cloudevents-batch+json",
        ),
        (
            post("/v1/events?results=full", "application/x-ndjson", "{}"),
            400,
            "results",
            "`full` for an NDJSON body needs `Accept: application/x-ndjson`",
        ),
    ])
    .await;
}

#[tokio::test]
async fn array_body_gets_a_result_per_event() {
    let Daemon { app, .. } = daemon();
    let body = r#"[{"id":"1","type":"a.b"},{"type":"a.b","severity":"bad"},{"id":"1","type":"a.b"},7]"#;
    let reply = send(&app, post("/v1/events", "application/json", body)).await;
    assert_eq!(reply.status, StatusCode::MULTI_STATUS);
    let message = "`bad` is not a severity; use debug, info, warning (or warn), error or critical";
    let expected = json!({ "results": [
        { "seq": 1, "id": "1" },
        { "error": { "field": "severity", "message": message } },
        { "seq": 1, "id": "1", "duplicate": true },
        { "error": { "message": "must be a JSON object, not a number" } },
    ], "durability": "sync" });
    assert_eq!(reply.json(), expected);
    let none = send(&app, post("/v1/events", "application/json", "[]")).await;
    assert_eq!((none.status, none.body.as_str()), (StatusCode::OK, r#"{"results":[]}"#));
    let bad = send(&app, post("/v1/events?results=summary", "application/json", "[{}]")).await;
    assert_eq!(bad.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        bad.body,
        r#"{"accepted":0,"duplicates":0,"refused":1,"errors":[{"number":1,"error":{"field":"type","message":"is missing"}}]}"#
    );
}

#[tokio::test]
async fn ndjson_body_of_any_length_gets_a_summary() {
    let Daemon { app, stop: _stop, .. } = daemon();
    let line = |number: usize| format!("{{\"id\":\"{number}\",\"type\":\"a.b\"}}\n");
    let body: String = (0..2_500).map(line).collect::<String>() + "\n{\"type\":\"a\"}\n" + line(3).trim_end();
    let reply = send(&app, post("/v1/events", "application/x-ndjson", body)).await;
    assert_eq!(reply.status, StatusCode::MULTI_STATUS);
    let message = "an event type has 2 to 8 segments separated by dots, `a` has 1";
    let expected = json!({
        "accepted": 2_500, "duplicates": 1, "refused": 1, "first": 1, "last": 2_500,
        "errors": [{ "number": 2_502, "error": { "field": "type", "message": message } }],
        "durability": "sync",
    });
    assert_eq!(reply.json(), expected);
    let empty = send(&app, post("/v1/events", "application/x-ndjson", "\n")).await;
    assert_eq!(empty.body, r#"{"accepted":0,"duplicates":0,"refused":0}"#);
}

#[tokio::test]
async fn streamed_body_is_acknowledged_while_sending() {
    let Daemon { app, stop: _stop, .. } = daemon();
    let (sender, receiver) = mpsc::channel::<Result<Bytes, Infallible>>(4);
    let mut request =
        post("/v1/events", "application/x-ndjson", Body::from_stream(ReceiverStream::new(receiver)));
    request.headers_mut().insert("accept", "application/x-ndjson".parse().expect("a value"));
    let response = router::router(app.clone()).oneshot(request).await.expect("infallible");
    let mut reports = open_stream(response);
    for number in 1..=3 {
        let line = format!("{{\"id\":\"{number}\",\"type\":\"a.b\"}}\n{{\"id\":\"half");
        let rest = if number == 1 { line } else { format!("\",\"type\":\"a\"}}\n{line}") };
        sender.send(Ok(rest.into())).await.expect("open");
        let refused = r#"{"error":{"field":"type","message":"an event type has 2 to 8 segments separated by dots, `a` has 1"}}"#;
        let refused = if number == 1 { String::new() } else { format!("{refused},") };
        let expected = format!(
            "{{\"results\":[{refused}{{\"seq\":{number},\"id\":\"{number}\"}}],\"durability\":\"sync\"}}\n"
        );
        assert_eq!(next_text(&mut reports).await, Some(expected));
    }
    drop(sender);
    let last = next_text(&mut reports).await.expect("the unfinished line");
    assert!(last.starts_with(r#"{"results":[{"error":{"message":"is not JSON"#), "{last}");
    assert_eq!(next_text(&mut reports).await, None);
}

#[tokio::test]
async fn batches_end_sooner_while_an_exchange_waits() {
    let Daemon { app, stop: _stop, .. } = daemon();
    let body = "{\"type\":\"a.b\"}\n".repeat(2_500);
    let reported = async || {
        let mut request = post("/v1/events?results=summary", "application/x-ndjson", body.clone());
        request.headers_mut().insert("accept", "application/x-ndjson".parse().expect("a value"));
        let reply = send(&app, request).await;
        let report = |line| serde_json::from_str::<Value>(line).expect("JSON")["accepted"].clone();
        reply.body.lines().map(report).collect::<Vec<_>>()
    };
    assert_eq!(reported().await, [500; 5]);
    let waiter = app.registry.register(&SessionId::new("s1"));
    assert_eq!(reported().await, [250; 10]);
    drop(waiter);
    assert_eq!(reported().await, [500; 5]);
}

#[tokio::test]
async fn endless_body_does_not_delay_shutdown() {
    let Daemon { app, stop, .. } = daemon();
    let (sender, receiver) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    let request =
        post("/v1/events", "application/x-ndjson", Body::from_stream(ReceiverStream::new(receiver)));
    let stopping = async {
        sender.send(Ok("{\"type\":\"a.b\"}\n".into())).await.expect("open");
        let mut written = app.journal.written();
        written.wait_for(|written| *written == Seq(1)).await.expect("published");
        stop.send_replace(true);
    };
    let (reply, ()) = tokio::join!(send(&app, request), stopping);
    let stopped = r#"{"error":{"message":"the daemon is stopping"}}"#;
    assert_eq!((reply.status, reply.body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, stopped));
}

#[tokio::test]
async fn cloudevents_are_taken_in_all_three_modes() {
    let Daemon { app, .. } = daemon();
    let event = |id: &str| {
        format!(r#"{{"specversion":"1.0","id":"{id}","source":"/s","type":"com.example.pushed"}}"#)
    };
    let batch = format!("[{},{{}}]", event("2"));
    let mut binary = post("/v1/events", "application/json", r#"{"n":1}"#);
    for (name, value) in
        [("ce-specversion", "1.0"), ("ce-id", "3"), ("ce-source", "/s"), ("ce-type", "com.example.pushed")]
    {
        binary.headers_mut().insert(name, value.parse().expect("a value"));
    }
    let missing = json!({ "error": { "field": "specversion", "message": "is missing" } });
    for (request, status, results) in [
        (
            post("/v1/events", "application/cloudevents+json", event("1")),
            200,
            json!([{ "seq": 1, "id": "1" }]),
        ),
        (
            post("/v1/events", "application/cloudevents-batch+json", batch),
            207,
            json!([{ "seq": 2, "id": "2" }, missing]),
        ),
        (binary, 200, json!([{ "seq": 3, "id": "3" }])),
    ] {
        let reply = send(&app, request).await;
        assert_eq!(
            (reply.status.as_u16(), reply.json()["results"].clone()),
            (status, results),
            "{}",
            reply.body
        );
    }
}

#[tokio::test]
async fn multi_batch_body_keeps_order_and_id_origins() {
    const LINES: u64 = 2_500;
    let Daemon { app, stop: _stop, .. } = daemon();
    let line = |number: u64| match number % 2 {
        0 => format!("{{\"id\":\"e{number}\",\"type\":\"a.n{number}\"}}\n"),
        _ => format!("{{\"type\":\"a.n{number}\"}}\n"),
    };
    let body: String = (1..=LINES).map(line).collect();
    let reply = send(&app, post("/v1/events", "application/x-ndjson", body)).await;
    let expected = json!({
        "accepted": LINES, "duplicates": 0, "refused": 0, "first": 1, "last": LINES, "durability": "sync",
    });
    assert_eq!(reply.json(), expected);
    let mut reader = app.journal.read_from(Seq(1));
    while reader.position() <= Seq(LINES) {
        for record in reader.next_batch(1_000).expect("readable").iter() {
            let event = codec::decode(record.body).expect("an event");
            let origin = match record.seq.0 % 2 {
                0 => IdOrigin::Producer,
                _ => IdOrigin::Daemon,
            };
            assert_eq!(event.event_type, format!("a.n{}", record.seq));
            assert_eq!(codec::id_origin(record.body), origin, "{}", event.id);
        }
    }
}
