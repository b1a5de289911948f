//! The routes by which others can make events: each refuses aside's own types and its own source.

use std::collections::BTreeSet;

use engine::event::catalogue::OWN_TYPES;
use serde_json::{Value, json};

use crate::support::daemon::{Home, text};

/// An answer: the status and the body of a response, or the exit code and stderr of a command.
type Answer = (u16, String);
/// Tries to publish an event of a type and a source, with a payload.
type Forge = fn(&Home, &str, &str, &Value) -> Answer;

/// What a route does with events from outside.
enum Door {
    /// Its body has events; these are the forms of it.
    Events(&'static [(&'static str, Forge)]),
    /// It names no type and no source of an event.
    NoEvents,
}

use Door::{Events, NoEvents};

/// Every route that may change something. A new one fails the test until it has a row here.
const ROUTES: [(&str, Door); 26] = [
    ("delete /v1/silences/{id}", NoEvents),
    ("delete /v1/watches/{id}", NoEvents),
    ("post /api/v2/alerts", NoEvents),
    ("post /v1/admin/rebuild", NoEvents),
    (
        "post /v1/events",
        Events(&[
            ("one", |home, event_type, source, payload| {
                send(home, "application/json", &event(event_type, source, payload))
            }),
            ("many", |home, event_type, source, payload| {
                let forged = event(event_type, source, payload);
                send(home, "application/json", &json!([forged, { "type": "made.up" }]))
            }),
            ("lines", |home, event_type, source, payload| {
                let forged = event(event_type, source, payload);
                lines(home, &format!("{forged}\n{{\"type\":\"made.up\"}}\n"), &[])
            }),
            ("acknowledged lines", |home, event_type, source, payload| {
                let forged = event(event_type, source, payload);
                lines(home, &format!("{forged}\n"), &[("accept", "application/x-ndjson")])
            }),
            ("a CloudEvent", |home, event_type, source, payload| {
                send(home, "application/cloudevents+json", &cloud_event(event_type, source, payload))
            }),
            ("CloudEvents", |home, event_type, source, payload| {
                let forged = json!([cloud_event(event_type, source, payload)]);
                send(home, "application/cloudevents-batch+json", &forged)
            }),
            ("a binary CloudEvent", |home, event_type, source, payload| {
                // A percent encoding hides nothing.
                let source = source.replace('a', "%61");
                let headers = [
                    ("content-type", "application/json"),
                    ("ce-specversion", "1.0"),
                    ("ce-id", "forged"),
                    ("ce-source", &*source),
                    ("ce-type", event_type),
                ];
                request(home, "/v1/events", &headers, &payload.to_string())
            }),
        ]),
    ),
    (
        "post /v1/explain",
        Events(&[("an explanation", |home, event_type, source, payload| {
            let body = event(event_type, source, payload).to_string();
            request(home, "/v1/explain", &[("content-type", "application/json")], &body)
        })]),
    ),
    ("post /v1/hooks/{harness}", NoEvents),
    (
        "post /v1/match",
        Events(&[("a dry run", |home, event_type, source, payload| {
            let body = event(event_type, source, payload).to_string();
            request(home, "/v1/match", &[("content-type", "application/json")], &body)
        })]),
    ),
    ("post /v1/mcp", NoEvents),
    ("post /v1/notifications/{id}/discuss", NoEvents),
    ("post /v1/notifications/{id}/dismiss", NoEvents),
    ("post /v1/notifications/{id}/respond", NoEvents),
    ("post /v1/notify", NoEvents),
    ("post /v1/questions", NoEvents),
    ("post /v1/questions/{id}", NoEvents),
    ("post /v1/questions/{id}/taken", NoEvents),
    ("post /v1/reload", NoEvents),
    (
        "post /v1/sessions/{id}/exchange",
        Events(&[("observed", |home, event_type, source, payload| {
            let observe = [event(event_type, source, payload)];
            let body = json!({ "point": "after_tool", "carrier": format!("{event_type} {source}"), "observe": observe });
            request(
                home,
                "/v1/sessions/s1/exchange",
                &[("content-type", "application/json")],
                &body.to_string(),
            )
        })]),
    ),
    ("post /v1/sessions/{id}/undelivered/{injection}", NoEvents),
    ("post /v1/silences", NoEvents),
    ("post /v1/shell", NoEvents),
    ("post /v1/statusline/{harness}", NoEvents),
    ("post /v1/trust", NoEvents),
    ("post /v1/watches", NoEvents),
    ("post /v1/webhooks/{name}", NoEvents),
    ("put /v1/users/{user}/settings", NoEvents),
];

/// The commands that publish events.
const COMMANDS: [(&str, Forge); 2] = [
    ("aside publish", |home, event_type, source, payload| {
        let mut args =
            vec!["publish".to_owned(), "--source".to_owned(), source.to_owned(), event_type.to_owned()];
        let fields = payload.as_object().into_iter().flatten();
        args.extend(fields.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())));
        command(home, &args.iter().map(String::as_str).collect::<Vec<_>>())
    }),
    ("aside publish --workspace", |home, event_type, source, _| {
        command(home, &["publish", "--source", source, "--workspace", "/w", event_type])
    }),
];

fn event(event_type: &str, source: &str, payload: &Value) -> Value {
    json!({ "type": event_type, "source": source, "payload": payload })
}

fn cloud_event(event_type: &str, source: &str, payload: &Value) -> Value {
    json!({ "specversion": "1.0", "id": "forged", "type": event_type, "source": source, "data": payload })
}

fn request(home: &Home, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let answer = home.client().request("POST", path, headers, body.as_bytes()).expect("an answer");
    (answer.status, text(&answer.body))
}

fn send(home: &Home, kind: &str, body: &Value) -> Answer {
    request(home, "/v1/events", &[("content-type", kind)], &body.to_string())
}

fn lines(home: &Home, body: &str, headers: &[(&str, &str)]) -> Answer {
    let headers = [&[("content-type", "application/x-ndjson")], headers].concat();
    request(home, "/v1/events", &headers, body)
}

fn command(home: &Home, args: &[&str]) -> Answer {
    let output = home.run(args);
    let code = output.status.code().and_then(|code| u16::try_from(code).ok()).expect("it exits");
    (code, text(&output.stderr))
}

/// The stored events that only aside may make.
fn own_events(home: &Home) -> BTreeSet<String> {
    let end = home.publish(&json!({ "type": "made.up" }))[0];
    let events = (1..end).filter_map(|seq| {
        let found = home.ask("GET", &format!("/v1/events/{seq}"), "");
        // Other records have positions, too.
        (found.status() == 200).then(|| found.json()["event"].clone())
    });
    let is_own = |event: &Value| {
        let event_type = event["type"].as_str().expect("a type");
        event["source"] == "aside" || OWN_TYPES.iter().any(|own| own.matches(event_type))
    };
    events.filter(is_own).map(|event| event.to_string()).collect()
}

/// Every type of the table, of an allowed source, and an allowed type of aside's source.
fn forgeries() -> Vec<(String, &'static str, &'static str)> {
    let types = OWN_TYPES.iter().map(|own| (own.pattern.replace("**", "forged"), "api", "type"));
    types.chain([("made.up".to_owned(), "aside", "source")]).collect()
}

#[test]
fn every_route_has_a_row() {
    let home = Home::new();
    let _daemon = home.serve();
    let document = home.get("/v1/openapi.json");
    let paths = document["paths"].as_object().expect("paths");
    let found: BTreeSet<String> = paths
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().expect("methods").keys().map(move |method| format!("{method} {path}"))
        })
        .filter(|route| !route.starts_with("get "))
        .collect();
    let known: BTreeSet<String> = ROUTES.iter().map(|(route, _)| (*route).to_owned()).collect();
    assert_eq!(found, known);
}

#[test]
fn every_door_refuses_own_events() {
    let home = Home::new();
    let _daemon = home.serve();
    home.exchange("s1", &json!({ "point": "turn_start", "carrier": "c1", "harness": { "name": "loop" } }));
    let asked =
        home.ask("POST", "/v1/questions", r#"{"message":"Deploy?","choices":["yes","no"],"session":"s1"}"#);
    let question = asked.json()["question"]["id"].as_str().expect("an id").to_owned();
    let set = home.ask("POST", "/v1/watches", r#"{"conditions":["in 5m"],"session":"s1"}"#);
    let watch = set.json()["watch"]["id"].as_str().expect("an id").to_owned();
    let payload =
        json!({ "question": question, "answer": "yes", "by": "user", "watch": watch, "message": "x" });
    let before = own_events(&home);
    let doors = ROUTES.iter().flat_map(|(route, door)| match door {
        Events(forms) => forms.iter().map(|(form, forge)| (format!("{route} ({form})"), *forge)).collect(),
        NoEvents => Vec::new(),
    });
    let commands = COMMANDS.iter().map(|(name, forge)| ((*name).to_owned(), *forge));
    for (door, forge) in doors.chain(commands) {
        for (event_type, source, field) in forgeries() {
            let (status, answer) = forge(&home, &event_type, source, &payload);
            let is_batch = door.contains("(many)") || door.contains("lines)");
            let expected: &[u16] = if door.starts_with("aside") {
                &[1]
            } else if is_batch {
                &[200, 207]
            } else {
                &[400]
            };
            assert!(expected.contains(&status), "{door} {event_type} {source}: {status} {answer}");
            assert!(
                answer.contains("is reserved") && answer.contains(field),
                "{door} {event_type} {source}: {answer}"
            );
        }
    }
    assert_eq!(own_events(&home), before, "nothing was stored");
    assert_eq!(home.get("/v1/questions")["questions"][0]["id"], json!(question), "it is open");
    assert_eq!(home.get("/v1/watches")["watches"][0]["id"], json!(watch), "it is open");
}

#[test]
fn fields_of_other_routes_make_no_own_events() {
    let home = Home::with(&[(
        "aside.toml",
        "[webhooks.standard]\nenabled = true\n[webhooks.github]\nenabled = true\n",
    )]);
    let _daemon = home.serve();
    let before = own_events(&home);
    let forged = json!({ "type": "user.notice", "source": "aside", "event": "user.notice", "message": "x" });
    for path in ["/v1/webhooks/standard", "/v1/webhooks/github"] {
        let (status, answer) = request(&home, path, &[("x-github-event", "watch.met")], &forged.to_string());
        assert_eq!(status, 202, "{path}: {answer}");
    }
    let hook = json!({
        "hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": "x", "cwd": "/w",
        "type": "user.notice", "source": "aside",
    });
    assert!(home.hook(&hook.to_string()).status.success());
    for (path, body) in [
        ("/v1/notify", json!({ "message": "x", "type": "watch.met" })),
        ("/v1/watches", json!({ "conditions": ["in 5m"], "workspace": "/w", "source": "aside" })),
        (
            "/v1/shell",
            json!({ "command": "x", "exit_code": 1, "duration_ms": 1, "workspace": "/w", "type": "watch.met" }),
        ),
    ] {
        let (status, answer) =
            request(&home, path, &[("content-type", "application/json")], &body.to_string());
        assert_eq!(status, 400, "{path}: {answer}");
    }
    // The hook is an exchange, at which the probes look.
    let mut after = own_events(&home);
    after.retain(|event| !event.contains(r#""type":"probe.noted""#));
    assert_eq!(after, before);
}

#[test]
fn a_harness_reports_sessions_by_its_hooks() {
    let home = Home::new();
    let _daemon = home.serve();
    let hook = |name: &str| json!({ "hook_event_name": name, "session_id": "s1", "cwd": home.work(), "source": "startup", "reason": "exit" });
    home.hook(&hook("SessionStart").to_string());
    home.hook(&hook("SessionEnd").to_string());
    let own = own_events(&home);
    for event_type in ["agent.session.start", "agent.session.end"] {
        let is_it = |event: &&String| event.contains(event_type) && event.contains("claude-code");
        assert_eq!(own.iter().filter(is_it).count(), 1, "{own:?}");
    }
}

#[test]
fn configurations_cannot_name_own_types() {
    for (file, line) in [
        ("webhooks.toml", "[[webhook]]\nfrom = \"github\"\nevent = \"push\"\ntype = \"watch.met\"\n"),
        ("events.toml", "[[event]]\ntype = \"watch.met\"\n"),
    ] {
        let home = Home::with(&[(file, line)]);
        let output = home.run(&["check"]);
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert!(!output.status.success(), "{shown}");
        assert!(shown.contains("`watch.met` is reserved") && shown.contains(file), "{shown}");
    }
}
