//! The real daemon over its real socket: its guarantees, as its users see them.

use std::{
    fs,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    thread,
};

use rustix::process::{Resource, Signal, getrlimit};
use serde_json::{Value, json};

use crate::support::daemon::{Ended, Home, PATIENCE, eventually, roundtrip, text};

/// Makes a notification of each event immediately.
pub(crate) const EACH: &str = r#"
[subscriber]
id = "each"
[events]
types = ["test.each"]
[batching]
window_ms = 0
[output]
priority = "high"
"#;

/// Its window is so long that no test sees it end; its type is in the catalogue, so that there is
/// no warning about it.
const LONG: &str = r#"
[subscriber]
id = "long"
[events]
types = ["test.made"]
[batching]
window_ms = 10000
max_size = 100
[output]
priority = "normal"
"#;

/// Two priorities, for releases without proof of arrival.
const CRITICAL: &str = r#"
[subscriber]
id = "critical"
[events]
types = ["test.critical"]
[output]
priority = "critical"
inject_at = "immediate"
"#;

const FAILURE: [&str; 5] =
    ["publish", "tool.call.failure", "tool_name=grep", "error_type=timeout", "error_message=took 30 s"];

fn each(n: u64) -> Value {
    json!({ "id": format!("e{n}"), "type": "test.each", "source": "test", "payload": { "n": n } })
}

#[test]
fn greeting_names_the_socket_and_an_example_command() {
    let home = Home::new();
    let daemon = home.serve();
    let expected = format!(
        "aside listens at {}\n\nTry, in another terminal:\n  {} publish tool.call.failure tool_name=grep\n",
        home.socket().display(),
        env!("CARGO_BIN_EXE_aside")
    );
    assert_eq!(daemon.greeting, expected);

    let second = home.command(&["serve"]).env("ASIDE_SOCKET", home.path("other")).output().expect("it runs");
    let refusal = format!(
        "aside: failed to run the daemon: lock the state folder: the state folder {} is in use by another daemon \
         (process {})\n",
        home.state().display(),
        daemon.pid().as_raw_nonzero()
    );
    assert_eq!(
        (second.status.code(), text(&second.stdout), text(&second.stderr)),
        (Some(1), String::new(), refusal)
    );
    assert_eq!(home.get("/healthz")["status"], "ok");
}

#[test]
fn published_failure_is_delivered_exactly_once() {
    let home = Home::new();
    let _daemon = home.serve();
    let said = home.print(&FAILURE);
    assert!(said.starts_with("published as 2\ntool_failure takes it for the next session in, "), "{said}");
    let exchange = ["exchange", "demo", "after_tool", "--format", "toon"];
    let delivered = home.print(&exchange);
    let (id, content) = delivered.split_once('\n').expect("two lines");
    assert!(id.starts_with("injection: "), "{delivered}");
    assert_eq!(content, "severity: error\ntool_fail: grep timeout\nerror: took 30 s\n");
    assert_eq!(home.print(&exchange), "");

    let silence = |carrier: &str| {
        let answer = home.exchange("demo", &json!({ "point": "after_tool", "carrier": carrier })).0;
        let delivered = answer.headers.into_iter().filter(|(name, _)| name != "date").collect::<Vec<_>>();
        (answer.status, delivered, answer.body)
    };
    let headers = [("aside-pending", "0"), ("aside-check-before-tool", "false")];
    let expected =
        (204, headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(), Vec::new());
    let (first, second) = (silence("c1"), silence("c2"));
    assert_eq!(first, second);
    let known = |(name, _): &(String, String)| name.starts_with("aside-");
    assert_eq!((first.0, first.1.into_iter().filter(known).collect(), first.2), expected);
}

#[test]
fn failed_command_is_delivered_only_in_its_folder() {
    let home = Home::new();
    let _daemon = home.serve();
    let exchange = |session: &str, workspace: &str| {
        let harness = json!({ "workspace": workspace });
        let carrier = format!("{session}-{}", home.get("/v1/status")["journal"]["head"]);
        let body = json!({ "point": "after_tool", "carrier": carrier, "harness": harness, "format": "toon" });
        home.exchange(session, &body).json()["text"].clone()
    };
    assert_eq!(
        (exchange("here", &home.work()), exchange("elsewhere", "/elsewhere")),
        (Value::Null, Value::Null)
    );

    let run = home.run(&["run", "--", "false"]);
    assert_eq!(
        (run.status.code(), text(&run.stdout), text(&run.stderr)),
        (Some(1), String::new(), String::new())
    );
    let delivered = exchange("here", &home.work());
    // The id of the injection is above them.
    let lines: Vec<&str> = delivered.as_str().expect("text").lines().skip(1).collect();
    let expected = ["severity: error", "task_failed: \"false\"", "task: \"false\"", "exit_code: 1"];
    assert_eq!(lines[..4], expected, "{delivered}");
    assert!(lines[4].starts_with("duration_ms: ") && lines.len() == 5, "{delivered}");
    assert_eq!(
        (exchange("here", &home.work()), exchange("elsewhere", "/elsewhere")),
        (Value::Null, Value::Null)
    );
}

#[test]
fn each_published_ndjson_line_gets_its_own_verdict() {
    let home = Home::new();
    let _daemon = home.serve();
    let lines =
        [each(1).to_string(), "{\"type\":\"test\"}".to_owned(), "nonsense".to_owned(), each(2).to_string()];
    let body = lines.join("\n");
    let headers = [("content-type", "application/x-ndjson"), ("accept", "application/x-ndjson")];
    let answer = home.client().request("POST", "/v1/events", &headers, body.as_bytes()).expect("answered");
    let (mut results, mut durability) = (Vec::new(), Vec::new());
    for line in text(&answer.body).lines() {
        let mut report: Value = serde_json::from_str(line).expect("JSON");
        results.append(report["results"].as_array_mut().expect("verdicts"));
        durability.push(report["durability"].clone());
    }
    let type_error = results[1]["error"]["message"].clone();
    let expected = [
        json!({ "seq": 2, "id": "e1" }),
        json!({ "error": { "field": "type", "message": type_error } }),
        json!({ "error": { "message": results[2]["error"]["message"] } }),
        json!({ "seq": 3, "id": "e2" }),
    ];
    assert_eq!((answer.status, results.as_slice()), (200, &expected[..]));
    assert!(durability.iter().any(|level| level == "sync"), "{durability:?}");

    fs::write(home.path("work/events.ndjson"), body).expect("written");
    let again = home.run(&["publish", "--input", "events.ndjson"]);
    assert_eq!(text(&again.stdout), "published 0, 2 already known, 2 refused\n");
    let said = text(&again.stderr);
    let said: Vec<&str> = said.lines().collect();
    assert!(said[0].starts_with("aside: event 2 is refused: type: "), "{said:?}");
    assert!(said[1].starts_with("aside: event 3 is refused: "), "{said:?}");
    assert_eq!(said[2..], ["aside: failed to publish 2 of 4 events"]);
    assert_eq!(again.status.code(), Some(1));
}

#[test]
fn oversized_event_is_refused_and_the_rest_accepted() {
    let home = Home::new();
    let _daemon = home.serve();
    let large = json!({ "type": "test.each", "payload": { "text": "x".repeat(1 << 20) } }).to_string();
    let answer = home.ask("POST", "/v1/events", &large);
    let message = format!("an event has at most 65536 bytes, this one has {}", large.len());
    assert_eq!((answer.status(), answer.json()), (413, json!({ "error": { "message": message } })));

    let lines = [each(7).to_string(), large, each(8).to_string()].join("\n");
    let kind = [("content-type", "application/x-ndjson")];
    let answer = home.client().request("POST", "/v1/events", &kind, lines.as_bytes()).expect("answered");
    let summary: Value = serde_json::from_slice(&answer.body).expect("JSON");
    let message = summary["errors"][0]["error"]["message"].clone();
    let expected = json!({ "accepted": 2, "duplicates": 0, "refused": 1, "first": 2, "last": 3, "durability": "sync",
        "errors": [{ "number": 2, "error": { "message": message } }] });
    assert_eq!((answer.status, summary), (207, expected));
    assert!(message.as_str().is_some_and(|message| message.contains("65536")), "{message}");

    fs::write(home.path("work/large.json"), json!({ "text": "x".repeat(1 << 20) }).to_string())
        .expect("written");
    let refused = home.run(&["publish", "test.each", "--input", "large.json"]);
    let said = text(&refused.stderr);
    assert!(said.starts_with("aside: failed to publish: an event has at most 65536 bytes"), "{said}");
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(home.publish(&each(1)), [4]);
}

#[test]
fn broken_subscriber_file_is_reported_and_others_work() {
    let broken = "[subscriber]\nid = \"broken\"\n[events]\ntypes = [\"test.each\"\n";
    let home = Home::with(&[("subscribers/broken.toml", broken), ("subscribers/each.toml", EACH)]);
    let daemon = home.serve();
    let place = format!("{}:4:21", home.path("config/subscribers/broken.toml").display());
    daemon.said(&place);
    home.publish(&each(1));
    let delivered = home.exchange("s", &json!({ "point": "after_tool", "carrier": "c" })).json();
    assert_eq!(delivered["notifications"][0]["subscriber"], "each");

    let check = home.run(&["check"]);
    assert_eq!(check.status.code(), Some(1));
    assert!((text(&check.stdout) + &text(&check.stderr)).contains(&place), "{check:?}");
}

#[test]
fn reload_applies_all_files_or_none() {
    let home = Home::with(&[("subscribers/each.toml", EACH)]);
    let daemon = home.serve();
    let mut carrier = 0;
    let mut delivered = |n: u64| {
        home.publish(&each(n));
        carrier += 1;
        let answer =
            home.exchange("s", &json!({ "point": "after_tool", "carrier": format!("c{carrier}") })).json();
        answer["notifications"][0]["subscriber"].as_str().unwrap_or("nobody").to_owned()
    };
    assert_eq!(delivered(1), "each");
    home.configure("subscribers/each.toml", &EACH.replace("\"each\"", "\"renamed\""));
    home.configure("subscribers/broken.toml", "[subscriber]\nid = 7\n");
    daemon.signal(Signal::HUP);
    daemon.said(&format!("{}:2:6", home.path("config/subscribers/broken.toml").display()));
    daemon.said("the rules are unchanged");
    assert_eq!(delivered(2), "each");

    fs::remove_file(home.path("config/subscribers/broken.toml")).expect("it was written");
    daemon.signal(Signal::HUP);
    daemon.said("the configuration was read again");
    assert_eq!(delivered(3), "renamed");
}

#[test]
fn refused_reload_is_reported_until_the_next_one() {
    let home = Home::with(&[("subscribers/each.toml", EACH)]);
    let _daemon = home.serve();
    let metric = |name: &str| {
        let page = text(&home.ask("GET", "/metrics", "").0.body);
        let line = page.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        line.expect(name).rsplit(' ').next().expect("a value").to_owned()
    };
    let successful = "aside_config_last_reload_successful";
    assert_eq!(metric(successful), "1.0");
    assert!(home.print(&["reload"]).contains("\nin force, unchanged: "));

    home.configure("subscribers/each.toml", &EACH.replace("types", "typs"));
    let refused = home.run(&["reload"]);
    let place = format!("{}:5:1", home.path("config/subscribers/each.toml").display());
    let said = text(&refused.stdout);
    assert_eq!((refused.status.code(), said.contains(&place)), (Some(1), true), "{refused:?}");
    assert!(said.contains("did you mean `types`?") && said.ends_with("nothing was changed\n"), "{said}");
    let answer = home.ask("POST", "/v1/reload", "");
    let found = answer.json()["findings"].clone();
    let is_slip = |found: &Value| found["line"] == 5 && found["nearest"] == "types";
    assert_eq!((answer.status(), found.as_array().is_some_and(|all| all.iter().any(is_slip))), (422, true));
    let head = home.get("/v1/status")["journal"]["head"].clone();
    let event = home.get(&format!("/v1/events/{head}"))["event"].clone();
    let message = event["payload"]["message"].as_str().unwrap_or_default();
    let file = home.path("config/subscribers/each.toml").display().to_string();
    assert_eq!(event["type"], "config.reload.failed");
    assert!(message.starts_with(&file), "an error is named, not a warning: {event}");
    assert_eq!(metric(successful), "0.0");
    assert_eq!(metric("aside_config_errors"), "1.0");
    let status = home.print(&["status"]);
    assert!(status.contains("PROBLEM: configuration REFUSED at ") && status.contains(&place), "{status}");
    let doctor = home.run(&["doctor", "--verbose"]);
    assert!(text(&doctor.stdout).contains("fail  config "), "{doctor:?}");

    home.configure("subscribers/each.toml", &EACH.replace("\"each\"", "\"renamed\""));
    assert!(home.print(&["reload"]).contains("\nin force: "));
    assert_eq!(metric(successful), "1.0");
    assert!(!home.print(&["status"]).contains("REFUSED"));
    // Events published after the answer are handled by the new rules.
    home.publish(&each(1));
    let delivered = home.exchange("s", &json!({ "point": "after_tool", "carrier": "c1" })).json();
    assert_eq!(delivered["notifications"][0]["subscriber"], "renamed");
}

#[test]
fn user_event_type_takes_severity_from_its_layer() {
    let named = |severity: &str| format!("[[event]]\ntype = \"test.each\"\nseverity = \"{severity}\"\n");
    let filtered = EACH.replace("[batching]", "severity_filter = \"error\"\n[batching]");
    let home = Home::with(&[("subscribers/each.toml", &filtered), ("events.toml", &named("error"))]);
    let _daemon = home.serve();
    let delivered = |carrier: &str, format: &str, event: &Value| {
        let kinds = [("content-type", format)];
        let published = home.client().request("POST", "/v1/events", &kinds, event.to_string().as_bytes());
        assert_eq!(published.expect("answered").status, 200);
        home.exchange("s", &json!({ "point": "turn_start", "carrier": carrier })).status() == 200
    };
    let cloud_event = json!({ "specversion": "1.0", "id": "1", "source": "/s", "type": "test.each" });
    assert!(delivered("c1", "application/json", &each(1)));
    assert!(delivered("c2", "application/cloudevents+json", &cloud_event));
    assert!(delivered("c3", "application/x-ndjson", &each(2)));
    home.configure("events.toml", &named("info"));
    home.print(&["reload"]);
    assert!(!delivered("c4", "application/json", &each(3)));
}

#[test]
fn reload_of_unchanged_files_writes_no_rules() {
    let home = Home::with(&[("subscribers/each.toml", EACH)]);
    let daemon = home.serve();
    let head = || home.get("/v1/status")["journal"]["head"].as_u64().expect("a position");
    let before = head();
    for reloads in 1..=2 {
        daemon.signal(Signal::HUP);
        daemon.said("the configuration was read again");
        // The report of the reload is an event; no other record is written.
        eventually("the reload is published", || (head() == before + reloads).then_some(()));
    }
    home.configure("subscribers/each.toml", &EACH.replace("\"each\"", "\"renamed\""));
    daemon.signal(Signal::HUP);
    eventually("the rules are written", || (head() == before + 4).then_some(()));
}

#[test]
fn event_stream_resumes_at_last_id_without_gap() {
    let home = Home::new();
    let _daemon = home.serve();
    let follow = |last: &str, count: usize| {
        let headers = [("accept", "text/event-stream"), ("last-event-id", last)];
        let stream = home.client().stream("/v1/events/stream?pattern=test.*&from=1", &headers);
        let mut stream = stream.expect("answered").expect("a stream");
        let mut next = || stream.next_event().expect("it goes on").expect("it has not ended");
        let show = |data: &str| serde_json::from_str::<Value>(data).expect("JSON")["payload"]["n"].clone();
        (0..count).map(|_| next()).map(|event| (event.id.clone(), show(&event.data))).collect::<Vec<_>>()
    };
    let publish = |numbers: std::ops::RangeInclusive<u64>| {
        home.publish(&numbers.map(each).collect::<Value>());
    };
    publish(1..=3);
    assert_eq!(follow("", 2), [("2".to_owned(), json!(1)), ("3".to_owned(), json!(2))]);
    home.publish(&json!({ "type": "other.event", "payload": {} }));
    publish(4..=5);
    let expected = [("4", 3), ("6", 4), ("7", 5)].map(|(id, n)| (id.to_owned(), json!(n)));
    assert_eq!(follow("3", 3), expected);

    let waiting = thread::scope(|scope| {
        let waiting = scope.spawn(|| follow("6", 3));
        publish(6..=7);
        waiting.join().expect("followed")
    });
    assert_eq!(waiting, [("7", 5), ("8", 6), ("9", 7)].map(|(id, n)| (id.to_owned(), json!(n))));
}

#[test]
fn long_poll_answers_when_a_notification_is_pending() {
    let home = Home::with(&[("subscribers/each.toml", EACH)]);
    let _daemon = home.serve();
    home.exchange("s", &json!({ "point": "turn_start", "carrier": "c1" }));
    let none = home.ask("GET", "/v1/sessions/s/wait?timeout=0ms", "");
    assert_eq!((none.status(), none.json()), (204, Value::Null));
    let pending = json!({ "session": "s", "pending": 1, "top": "high" });
    let waited = thread::scope(|scope| {
        let waiting = scope.spawn(|| home.get("/v1/sessions/s/wait?timeout=60s"));
        eventually("the long poll waits", || {
            (home.get("/v1/status")["sessions"]["waiting"] == 1).then_some(())
        });
        home.publish(&each(1));
        waiting.join().expect("answered")
    });
    assert_eq!(waited, pending);
    assert_eq!(home.get("/v1/sessions/s/wait"), pending);
}

#[test]
fn unclaimed_notifications_are_listed_and_can_be_dismissed() {
    let home = Home::with(&[("subscribers/each.toml", EACH)]);
    let _daemon = home.serve();
    home.exchange("elsewhere", &json!({ "point": "turn_start", "carrier": "c1" }));
    for (n, scope) in [
        (1, json!({ "workspace": "/w/a" })),
        (2, json!({ "session": "later" })),
        (3, json!({ "workspace": "/w/b" })),
    ] {
        let mut event = json!({ "type": "test.each", "payload": { "n": n } });
        event.as_object_mut().expect("an object").extend(scope.as_object().expect("an object").clone());
        home.publish(&event);
    }
    let listed = eventually("all three wait", || {
        Some(home.print(&["inbox"])).filter(|text| text.matches("high each, ").count() == 3)
    });
    for whom in
        ["for the next session in /w/a", "for later, which is not open", "for the next session in /w/b"]
    {
        assert!(listed.contains(whom), "{listed}");
    }
    // Two pages together equal one.
    let first = home.get("/v1/inbox?limit=2");
    assert_eq!(first["next"], "unclaimed:2");
    let second = home.get("/v1/inbox?limit=2&from=unclaimed:2");
    let ids = |page: &Value| {
        page["notifications"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| one["id"].clone())
            .collect::<Vec<_>>()
    };
    let all = home.get("/v1/inbox");
    assert_eq!([ids(&first), ids(&second)].concat(), ids(&all));
    let id = all["notifications"][0]["id"].as_str().expect("an id");
    assert_eq!(home.ask("POST", &format!("/v1/notifications/{id}/discuss"), "").status(), 404);
    home.print(&["inbox", "dismiss", id]);
    eventually("it is gone", || (ids(&home.get("/v1/inbox")).len() == 2).then_some(()));
}

#[test]
fn stop_closes_open_batches_and_removes_the_socket() {
    let home = Home::with(&[("subscribers/long.toml", LONG)]);
    let daemon = home.serve_logging("aside::daemon=debug");
    home.exchange("s", &json!({ "point": "turn_start", "carrier": "c1" }));
    home.publish(&json!([{ "type": "test.made", "payload": { "n": 1 } }, { "type": "test.made", "payload": { "n": 2 } }]));
    let is_batched = || home.get("/v1/status")["subscribers"]["long"]["batched"] == 2;
    eventually("both are in the batch", || is_batched().then_some(()));
    assert_eq!(home.get("/v1/sessions/s")["pending"], 0);
    let Ended { status, log } = daemon.stop();
    let phases = log.lines().filter(|line| line.contains("stopping"));
    let said: Vec<_> = phases.map(|line| line.rsplit('=').next().unwrap_or(line)).collect();
    assert_eq!(said, ["\"SIGTERM\"", "intake", "drain", "sync", "close"], "{log}");
    assert_eq!((status.code(), home.socket().exists()), (Some(0), false));

    let _daemon = home.serve();
    assert_eq!(home.get("/v1/sessions/s")["pending"], 1);
    let delivered =
        home.exchange("s", &json!({ "point": "after_tool", "carrier": "c2", "format": "toon" })).json();
    assert_eq!(delivered["notifications"].as_array().expect("a list").len(), 1);
    assert!(delivered["text"].as_str().expect("text").contains("[2]"), "{delivered}");
}

#[test]
fn sessions_queues_and_leases_outlive_the_daemon() {
    let home = Home::with(&[
        ("aside.toml", "[injection]\nlease = \"1s\"\n"),
        ("subscribers/each.toml", EACH),
        ("subscribers/critical.toml", CRITICAL),
    ]);
    let daemon = home.serve();
    let exchange = |session: &str, carrier: &str| {
        home.exchange(session, &json!({ "point": "after_tool", "carrier": carrier, "format": "toon" })).json()
    };
    let released = |answer: &Value| -> Vec<(String, bool)> {
        let notifications = answer["notifications"].as_array().expect("a list").iter();
        let name = |n: &Value| n["subscriber"].as_str().expect("a name").to_owned();
        notifications.map(|n| (name(n), n["redelivered"].as_bool().expect("a flag"))).collect()
    };
    let publish = |event_type: &str, session: &str| {
        home.publish(&json!({ "type": event_type, "session": session, "payload": { "n": 1 } }));
    };
    assert_eq!(exchange("queueing", "c0"), Value::Null);
    publish("test.each", "queueing");
    publish("test.each", "leasing");
    publish("test.critical", "leasing");
    let first = exchange("leasing", "c1");
    assert_eq!(released(&first), [("critical".to_owned(), false), ("each".to_owned(), false)]);
    let queueing = home.get("/v1/sessions/queueing");
    assert_eq!(
        (&queueing["pending"], &home.get("/v1/sessions/leasing")["unconfirmed"]),
        (&json!(1), &json!(1))
    );
    daemon.kill();

    let daemon = home.serve();
    assert_eq!(home.get("/v1/sessions/queueing"), queueing);
    // Only the end of the lease changes this queue.
    let pending = json!({ "session": "leasing", "pending": 1, "top": "critical",
        "wake": "inject_and_continue", "reason": "critical: critical" });
    assert_eq!(home.get("/v1/sessions/leasing/wait"), pending);
    let leasing = home.get("/v1/sessions/leasing");
    assert_eq!(daemon.stop().status.code(), Some(0));

    let _daemon = home.serve();
    assert_eq!(home.get("/v1/sessions"), json!({ "sessions": [leasing, queueing] }));
    let second = exchange("leasing", "c2");
    assert_eq!(released(&second), [("critical".to_owned(), true)]);
    assert_eq!(second["notifications"][0]["id"], first["notifications"][0]["id"]);
    assert_eq!(home.get("/v1/status")["notifications"]["ended"], json!({ "uncertain": 1 }));
    assert_eq!(released(&exchange("queueing", "c3")), [("each".to_owned(), false)]);
}

#[test]
fn same_event_id_is_published_once_across_restarts() {
    let home = Home::new();
    let daemon = home.serve();
    let args = [&FAILURE[..], &["--source", "ci", "--id", "run-7"]].concat();
    assert_eq!(home.print(&args).lines().next(), Some("published as 2"));
    assert_eq!(home.print(&args).lines().next(), Some("already published as 2"));
    let event = json!({ "type": "tool.call.failure", "source": "ci", "id": "run-7", "payload": {} });
    let verdict =
        json!({ "results": [{ "seq": 2, "id": "run-7", "duplicate": true }], "durability": "sync" });
    let again = || home.ask("POST", "/v1/events", &event.to_string()).json();
    assert_eq!(again(), verdict);
    daemon.kill();
    let _daemon = home.serve();
    assert_eq!(again(), verdict);
    let shown = home.get("/v1/events/run-7?source=ci");
    assert_eq!(
        (&shown["event"]["seq"], &shown["event"]["payload"]["tool_name"]),
        (&json!(2), &json!("grep"))
    );
}

/// Opens as many connections as this process may have, each with one answered request, and keeps
/// them open.
fn hold<T: Read + Write>(connect: impl Fn() -> io::Result<T>) -> Vec<T> {
    const OTHER_FILES: u64 = 64;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = (limit - OTHER_FILES).min(1_500);
    assert!(count > 600, "too few files for more connections than the daemon keeps: {limit}");
    let hold = |_| {
        let mut connection = connect().expect("connected");
        connection.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
        // Some bytes of the answer show that the connection was accepted.
        connection.read_exact(&mut [0; 12]).expect("answered");
        connection
    };
    (0..count).map(hold).collect()
}

#[test]
fn idle_connections_beyond_the_limit_block_no_client() {
    let address = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let home = Home::with(&[("aside.toml", &format!("[http]\nlisten = \"{address}\"\n"))]);
    let daemon = home.serve();
    let local = hold(|| UnixStream::connect(home.socket()));
    assert_eq!(home.ask("GET", "/healthz", "").status(), 200);
    let start = r#"{"hook_event_name":"SessionStart","session_id":"s1","source":"startup"}"#;
    let output = home.hook(start);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(home.get("/v1/sessions/s1")["id"], "s1", "the hook was answered");
    drop(local);
    let _strangers = hold(|| TcpStream::connect(address));
    let token = fs::read_to_string(home.state().join("token")).expect("text");
    let mut connection = TcpStream::connect(address).expect("connected");
    let request = format!(
        "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {}\r\n\r\n",
        token.trim()
    );
    connection.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(daemon.stop().status.code(), Some(0));
}

#[test]
fn tcp_needs_configuration_and_a_valid_token() {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let home = Home::new();
    let daemon = home.serve();
    let refused = TcpStream::connect(address).expect_err("nobody listens");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(daemon.stop().status.code(), Some(0));

    home.configure("aside.toml", &format!("[http]\nlisten = \"{address}\"\n"));
    let _daemon = home.serve();
    let token = fs::read_to_string(home.path("state/token")).expect("the daemon made one");
    let get = |authorization: &str| {
        let request =
            format!("GET /healthz HTTP/1.1\r\nhost: aside\r\nconnection: close\r\n{authorization}\r\n");
        let connection = TcpStream::connect(address).expect("it listens");
        connection.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let answer = roundtrip(connection, &request);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.lines().next().expect("a status").to_owned(), body.to_owned())
    };
    let message = "send one of the daemon's tokens as `Authorization: Bearer <token>`";
    let refusal =
        ("HTTP/1.1 401 Unauthorized".to_owned(), json!({ "error": { "message": message } }).to_string());
    for wrong in
        ["", "authorization: Bearer \r\n", "authorization: Bearer 00\r\n", "authorization: Basic x\r\n"]
    {
        assert_eq!(get(wrong), refusal, "{wrong:?}");
    }
    let right = format!("authorization: Bearer {}\r\n", token.trim());
    let (status, body) = get(&right);
    assert!(status == "HTTP/1.1 200 OK" && body.starts_with("{\"status\":\"ok\""), "{status}: {body}");
    let local = UnixStream::connect(home.socket()).expect("it listens there too");
    let request = "GET /healthz HTTP/1.1\r\nhost: aside\r\nconnection: close\r\n\r\n";
    assert!(roundtrip(local, request).starts_with("HTTP/1.1 200 OK\r\n"));
}
