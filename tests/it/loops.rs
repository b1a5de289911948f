//! Loops of one's own over the API: nothing that they report is lost in silence, and nothing that
//! they know comes back to them.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::Stdio,
};

use engine::{exchange::Format, words::Words};
use serde_json::{Value, json};

use crate::support::daemon::{Answer, Home, at, eventually};

/// A subscriber for events `test.fact`, each as one line.
const FACT: &str = r#"
[subscriber]
id = "fact"
name = "Facts"
description = "Facts of tests"
version = "1.0.0"

[events]
types = ["test.fact"]

[batching]
window_ms = 0

[output]
priority = "high"
inject_at = "after_tool"
escalate_at = "critical"
one = "fact: {{ payload.text }}"
"#;

fn home() -> Home {
    Home::with(&[("subscribers/fact.toml", FACT)])
}

/// Publishes a fact for `session`.
fn publish(home: &Home, session: &str, text: &str, severity: &str) {
    home.publish(&json!({
        "type": "test.fact", "source": "cli", "severity": severity, "session": session, "payload": { "text": text },
    }));
}

/// The text of an answer; empty if there is none.
fn text(answer: &Answer) -> String {
    answer.json()["text"].as_str().unwrap_or_default().to_owned()
}

/// The notice to the developer in the body of an answer, or in the header of one without a body.
fn notice(answer: &Answer) -> String {
    let header =
        answer.0.headers.iter().find(|(name, _)| name == "aside-notice").map(|(_, value)| value.clone());
    let body = answer.json()["notice_to_developer"].as_str().map(str::to_owned);
    body.or(header).unwrap_or_default()
}

fn failure(call: &str, message: &str) -> Value {
    json!({ "type": "tool.call.failure", "payload": {
        "tool_name": "grep", "error_type": "timeout", "error_message": message, "call_id": call,
        "args": { "pattern": "x", "path": "src" }, "result": null,
    } })
}

#[test]
fn calls_with_arguments_of_any_kind_are_compared() {
    let home = home();
    let _daemon = home.serve();
    let call = |carrier: &str, args: Value| {
        let event = json!({ "type": "tool.call.success", "payload": { "tool_name": "grep", "args": args, "result": { "n": 0 } } });
        home.exchange("s", &json!({ "point": "after_tool", "carrier": carrier, "observe": [event] }))
    };
    for carrier in ["c1", "c2", "c3", "c4"] {
        call(carrier, json!({ "pattern": "x", "in": ["a", 1] }));
    }
    eventually("the loop is detected", || {
        let answer = home.exchange("s", &json!({ "point": "after_tool", "carrier": "c5" }));
        text(&answer).contains("loop_detected: grep").then_some(())
    });
}

#[test]
fn an_unknown_session_is_refused_by_name() {
    let home = home();
    let _daemon = home.serve();
    home.exchange("bot-7f3a", &json!({ "point": "turn_start", "carrier": "c1" }));
    for (method, path) in [
        ("GET", "/v1/sessions/bot-7f3b"),
        ("GET", "/v1/sessions/bot-7f3b/wait?timeout=60s"),
        ("GET", "/v1/sessions/bot-7f3b/stream"),
        ("GET", "/v1/sessions/bot-7f3b/messages"),
        ("GET", "/v1/sessions/bot-7f3b/injections"),
        ("GET", "/v1/inbox?session=bot-7f3b"),
        ("GET", "/v1/watches?session=bot-7f3b"),
        ("POST", "/v1/sessions/bot-7f3b/undelivered/abcdef"),
        ("POST", "/v1/notifications/n1/dismiss?session=bot-7f3b"),
        ("POST", "/v1/notifications/n1/discuss?session=bot-7f3b"),
    ] {
        let answer = home.ask(method, path, "");
        let message = at(&answer.json(), "/error/message").as_str().expect("a message").to_owned();
        assert_eq!(answer.status(), 404, "{path}: {message}");
        assert!(message.contains("`bot-7f3b`") && message.contains("did you mean `bot-7f3a`?"), "{message}");
    }
    let unknown = home.ask("POST", "/v1/sessions/bot-7f3a/undelivered/abcdef", "");
    assert_eq!(unknown.status(), 404, "{unknown:?}");
}

#[test]
fn an_exchange_says_that_aside_began_the_turn() {
    let home = home();
    let _daemon = home.serve();
    let exchange =
        |point: &str, carrier: &str| home.exchange("s", &json!({ "point": point, "carrier": carrier }));
    exchange("turn_start", "c1");
    exchange("turn_end", "c2");
    let publish = |text: &str| {
        home.publish(
            &json!({ "type": "task.failed", "session": "s", "source": "cli", "payload": { "task": text } }),
        );
    };
    publish("build");
    let woken = eventually("it is woken", || {
        let waited = home.ask("GET", "/v1/sessions/s/wait?for=wake&timeout=1s", "");
        (waited.status() == 200).then(|| exchange("turn_start", "c3").json())
    });
    assert_eq!((&woken["started_by"], &woken["role"]), (&json!("aside"), &json!("user")), "{woken}");
    // The user begins the next one, with something that wakes nobody.
    home.publish(
        &json!({ "type": "timer.fired", "session": "s", "source": "cli", "payload": { "timer": "t" } }),
    );
    let prompted = eventually("it is pending", || {
        let pending = home.get("/v1/sessions/s")["pending"].as_u64()? > 0;
        pending.then(|| exchange("turn_start", "c4").json())
    });
    assert_eq!(prompted["started_by"], Value::Null, "{prompted}");
    let started = |list: &str| {
        let page = home.get(&format!("/v1/sessions/s/{list}"));
        let of = |line: &Value| line["started_by"].as_str().map(str::to_owned);
        page[list].as_array().expect("a list").iter().map(of).collect::<Vec<_>>()
    };
    eventually("the history", || (started("injections").len() == 2).then_some(()));
    assert_eq!(started("injections"), [None, Some("aside".to_owned())]);
    assert_eq!(started("messages"), [None, Some("aside".to_owned())]);
}

/// `started_by` of the exchange at `turn_start` after a wake, in a loop that observes `start` there.
fn started_by_after_a_wake(start: &Value) -> Value {
    let home = home();
    let _daemon = home.serve();
    let exchange = |point: &str, carrier: &str, observe: &Value| {
        let body =
            json!({ "point": point, "carrier": carrier, "observe": observe, "harness": { "name": "bot" } });
        home.exchange("s", &body)
    };
    exchange("turn_start", "c1", start);
    exchange("turn_end", "c2", &json!([]));
    home.publish(
        &json!({ "type": "task.failed", "session": "s", "source": "cli", "payload": { "task": "build" } }),
    );
    eventually("it is woken", || {
        (home.ask("GET", "/v1/sessions/s/wait?for=wake&timeout=1s", "").status() == 200).then_some(())
    });
    let woken = exchange("turn_start", "c3", start);
    assert!(text(&woken).contains("build"), "{woken:?}");
    woken.json()["started_by"].clone()
}

#[test]
fn observed_start_says_who_began_the_turn() {
    let start =
        |by: &str| json!([{ "type": "agent.turn.start", "source": "bot", "payload": { "started_by": by } }]);
    assert_eq!(started_by_after_a_wake(&start("client")), "aside");
    assert_eq!(started_by_after_a_wake(&start("prompt")), Value::Null);
    // A loop that observes no start does not say so: its exchange counts as the answer to the wake.
    assert_eq!(started_by_after_a_wake(&json!([])), "aside");
}

#[test]
fn a_suspended_session_can_be_waited_for() {
    let home = home();
    let _daemon = home.serve();
    home.hook(r#"{"session_id":"s1","hook_event_name":"UserPromptSubmit","prompt":"go","cwd":"/w"}"#);
    home.hook(r#"{"session_id":"s1","hook_event_name":"SessionEnd","reason":"other","cwd":"/w"}"#);
    eventually("it is suspended", || {
        (home.get("/v1/sessions/s1")["is_open"] == false
            || home.get("/v1/sessions/s1")["state"] == "suspended")
            .then_some(())
    });
    assert_eq!(home.ask("GET", "/v1/sessions/s1/wait?timeout=0ms", "").status(), 204);
}

#[test]
fn an_exchange_names_what_had_no_effect() {
    let home = home();
    let _daemon = home.serve();
    home.exchange("other", &json!({ "point": "turn_start", "carrier": "c1" }));
    home.exchange(
        "s",
        &json!({ "point": "turn_start", "carrier": "c0", "turn": "t1", "harness": { "name": "bot" } }),
    );
    home.exchange("s", &json!({ "point": "turn_start", "carrier": "c0", "turn": "t2" }));
    let observe = |event: Value| json!({ "observe": [event] });
    let call = |payload: Value| observe(json!({ "type": "tool.call.success", "payload": payload }));
    for (fields, expected) in [
        (
            observe(json!({ "type": "tool.cal.failure" })),
            "observe[0].type: no subscriber takes `tool.cal.failure`; did you mean `tool.call.failure`?",
        ),
        (observe(json!({ "type": "made.up" })), "observe[0].type: no subscriber takes `made.up`"),
        (
            observe(json!({ "type": "test.fact", "payload": { "text": "x" }, "session": "othr" })),
            "observe[0].session: no session `othr` is open; did you mean `other`?",
        ),
        (
            observe(json!({ "type": "agent.turn.end", "source": "me" })),
            "observe[0].source: `agent.turn.end` counts only from the session's harness, `bot`",
        ),
        (call(json!({ "args": 1, "result": 1 })), "observe[0].payload.tool_name: is missing"),
        (
            call(json!({ "tool_nme": "x" })),
            "observe[0].payload.tool_nme: unknown field; did you mean `tool_name`?",
        ),
        (
            call(json!({ "tool_name": "t", "files": [{ "path": "a.rs", "by": "read" }] })),
            "observe[0].payload.files[0].path: is relative, and `harness.workspace` is not known",
        ),
        (
            call(json!({ "tool_name": "t", "files": [{ "path": "/a.rs", "by": "red" }] })),
            "observe[0].payload.files[0].by: `red` is not allowed; did you mean `read`?",
        ),
        (call(json!({ "tool_name": "t", "files": "a.rs" })), "observe[0].payload.files: must be an array"),
        (
            call(json!({ "tool_name": "t", "command": ["ls"] })),
            "observe[0].payload.command: must be a string",
        ),
        (
            json!({ "ack": ["nosuch"] }),
            "ack[0]: no injection `nosuch` of this session waits for a confirmation",
        ),
        (json!({ "turn": "t1" }), "turn: `t1` ended before `t2` began; each turn needs its own id"),
        (
            json!({ "harness": { "parent": "othr" } }),
            "harness.parent: there is no session `othr`; did you mean `other`?",
        ),
        (
            json!({ "carrier_effect": "cancel" }),
            "carrier_effect: `cancel` has an effect only at `before_tool`, not at `after_tool`",
        ),
        (
            json!({ "budget": { "max_chars": 20 } }),
            "budget.max_chars: no notification fits into 20 characters",
        ),
    ] {
        let mut body = json!({ "point": "after_tool", "carrier": format!("c{expected}") });
        body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        let session = if expected.starts_with("harness.parent") { "child" } else { "s" };
        let answer = home.exchange(session, &body);
        assert!(matches!(answer.status(), 200 | 204), "{answer:?}");
        assert_eq!(notice(&answer), expected, "{body}");
    }
}

#[test]
fn an_exchange_without_remarks_has_no_notice() {
    let home = home();
    let _daemon = home.serve();
    let observe = json!([
        { "type": "tool.call.success", "payload": {
            "tool_name": "t", "args": {}, "result": null, "files": [{ "path": "a.rs", "by": "read" }], "mine": 1 } },
        { "type": "agent.turn.start", "payload": { "started_by": "prompt" } },
    ]);
    let body = json!({
        "point": "after_tool", "carrier": "c1", "turn": "t1", "observe": observe,
        "harness": { "name": "bot", "workspace": home.work() },
    });
    let first = home.exchange("s", &body);
    assert_eq!((first.status(), notice(&first).as_str()), (204, ""));
    publish(&home, "s", "one", "info");
    let delivered = home.exchange("s", &json!({ "point": "after_tool", "carrier": "c2", "turn": "t1" }));
    assert_eq!((text(&delivered).contains("fact: one"), notice(&delivered).as_str()), (true, ""));
    let injection = delivered.json()["injection"].clone();
    let body = json!({ "point": "after_tool", "carrier": "c3", "turn": "t1", "ack": [injection] });
    assert_eq!(notice(&home.exchange("s", &body)), "");
    assert_eq!(
        notice(&home.exchange("s", &json!({ "point": "after_tool", "carrier": "c4", "ack": [injection] }))),
        ""
    );
    // What has a text says it in its body, so that the text stays as it is.
    publish(&home, "s", "two", "info");
    let body = json!({ "point": "after_tool", "carrier": "c5", "observe": [{ "type": "made.up" }] });
    let delivered = home.exchange("s", &body);
    assert!(text(&delivered).contains("fact: two") && !text(&delivered).contains("made.up"), "{delivered:?}");
    assert_eq!(notice(&delivered), "observe[0].type: no subscriber takes `made.up`");
}

#[test]
fn observed_event_has_the_name_of_its_harness() {
    let home = home();
    let _daemon = home.serve();
    let observe =
        json!([{ "type": "test.fact", "id": "e1" }, { "type": "test.fact", "id": "e2", "source": "mine" }]);
    let body =
        json!({ "point": "turn_start", "carrier": "c1", "observe": observe, "harness": { "name": "bot" } });
    home.exchange("s", &body);
    let later =
        json!({ "point": "after_tool", "carrier": "c2", "observe": [{ "type": "test.fact", "id": "e3" }] });
    home.exchange("s", &later);
    home.exchange(
        "nameless",
        &json!({ "point": "turn_start", "carrier": "c1", "observe": [{ "type": "test.fact", "id": "e4" }] }),
    );
    let source = |id: &str| home.get(&format!("/v1/events/{id}"))["event"]["source"].clone();
    assert_eq!(["e1", "e2", "e3", "e4"].map(source), ["bot", "mine", "bot", "api"]);
}

#[test]
fn loop_does_not_get_its_own_failure_back() {
    let home = home();
    let _daemon = home.serve();
    for (n, observed) in [("1", failure("call-1", "a")), ("2", failure("call-2", "a"))] {
        let body = json!({ "point": "after_tool", "carrier": format!("call-{n}"), "observe": [observed] });
        let answer = home.exchange("s", &body);
        assert_eq!((answer.status(), text(&answer).as_str()), (204, ""));
    }
    // One exchange a model step: its carrier is no call, the failures are in the messages too.
    let body = json!({ "point": "after_tool", "carrier": "step-3", "observe": [failure("call-3", "a"), failure("call-4", "b")] });
    assert_eq!(text(&home.exchange("s", &body)), "");
    let delivered = eventually("the loop of failures is detected", || {
        let answer = home.exchange("s", &json!({ "point": "after_tool", "carrier": "step-4" }));
        Some(text(&answer)).filter(|text| !text.is_empty())
    });
    assert!(delivered.contains("loop_detected: grep") && !delivered.contains("tool_fail"), "{delivered}");
    // A failure whose result the model does not have names no call, and is delivered.
    let mut background = failure("call-9", "c");
    background["payload"].as_object_mut().expect("an object").remove("call_id");
    background["payload"]["tool_name"] = json!("index");
    let body = json!({ "point": "after_tool", "carrier": "step-5", "observe": [background] });
    assert!(text(&home.exchange("s", &body)).contains("tool_fail: index"));
    // So is one that another program publishes.
    let published = json!({ "type": "tool.call.failure", "source": "cli", "session": "s",
        "payload": { "tool_name": "other", "error_type": "x", "error_message": "y" } });
    home.publish(&published);
    let body = json!({ "point": "after_tool", "carrier": "step-6", "observe": [failure("call-10", "d")] });
    let delivered = text(&home.exchange("s", &body));
    assert!(delivered.contains("tool_fail: other") && !delivered.contains("grep"), "{delivered}");
}

#[test]
fn cancelled_call_is_said_not_to_have_run() {
    const NOT_RUN: &str = "This call was not run: ";
    let home = home();
    let _daemon = home.serve();
    for format in Format::words() {
        // In place of a call, every format is a text.
        let begin = match format {
            "toon" => "not_run: \"This call was not run: ",
            "json" => "{\"not_run\":\"This call was not run: ",
            _ => NOT_RUN,
        };
        publish(&home, format, "stop", "critical");
        let before = |carrier: &str| {
            let body = json!({ "point": "before_tool", "carrier": carrier, "carrier_effect": "cancel", "format": format });
            home.exchange(format, &body)
        };
        let cancelled = before("c1");
        let said = text(&cancelled);
        assert!(said.starts_with(begin) && said.contains("stop"), "{format}: {said}");
        assert!(cancelled.json()["directive"]["cancel"].is_object(), "{cancelled:?}");
        // Another call of the same batch has no notification, and is not run either.
        let other = before("c2");
        assert!(text(&other).starts_with(NOT_RUN) && other.json()["injection"].is_null(), "{other:?}");
        publish(&home, format, "later", "info");
        let body = json!({ "point": "after_tool", "carrier": "c3", "format": format });
        let after = home.exchange(format, &body).json().to_string();
        assert!(after.contains("later") && !after.contains("not run"), "{after}");
    }
    // The sentence counts as part of the text.
    publish(&home, "small", &"x".repeat(400), "critical");
    let body = json!({ "point": "before_tool", "carrier": "c1", "carrier_effect": "cancel", "budget": { "max_chars": 400 } });
    let said = text(&home.exchange("small", &body));
    assert!(said.starts_with(NOT_RUN) && said.chars().count() <= 400, "{}: {said}", said.chars().count());
}

#[test]
fn the_first_text_of_a_context_has_instructions() {
    let home = home();
    let _daemon = home.serve();
    let (mut carriers, mut acks) = (0, Vec::new());
    let mut ask = |context: &str, with_text: &str| {
        carriers += 1;
        if with_text == "text" {
            publish(&home, "s", &format!("n{carriers}"), "info");
        }
        let body = json!({ "point": "after_tool", "carrier": format!("c{carriers}"), "context": context, "ack": acks });
        let answer = home.exchange("s", &body);
        acks = answer.json()["injection"].as_str().map(str::to_owned).into_iter().collect();
        assert_eq!(answer.status(), if with_text == "text" { 200 } else { 204 }, "{answer:?}");
        answer.json()["instructions"].is_string()
    };
    let asked = [
        ("unchanged", "silence"),
        ("unchanged", "text"),
        ("unchanged", "text"),
        ("compacted", "silence"),
        ("unchanged", "text"),
        ("unchanged", "text"),
        ("resumed", "silence"),
        ("compacted", "text"),
        ("unchanged", "text"),
    ]
    .map(|(context, with_text)| ask(context, with_text));
    assert_eq!(asked, [false, true, false, false, true, false, false, true, false]);
    let said = home.get("/v1/instructions")["instructions"].as_str().expect("a text").to_owned();
    assert_eq!(home.print(&["instructions", "loop"]).trim_end(), said);
    // Same carrier, same bytes.
    let body = json!({ "point": "after_tool", "carrier": "c2", "context": "unchanged" });
    assert_eq!(home.exchange("s", &body).json()["instructions"], said.as_str());
}

#[test]
fn the_turns_of_a_loop_are_counted() {
    let home = home();
    let _daemon = home.serve();
    for (session, points) in [
        ("with-ends", &["turn_start", "after_tool", "turn_end", "turn_start", "turn_end"][..]),
        ("only-ends", &["turn_end", "turn_end"]),
        ("only-starts", &["turn_start", "after_tool", "turn_start", "turn_start"]),
    ] {
        home.exchange(session, &json!({ "point": "immediate", "carrier": "open" }));
        let watch = json!({ "conditions": ["in 2 turns"], "note": "two turns", "session": session });
        assert_eq!(home.ask("POST", "/v1/watches", &watch.to_string()).status(), 201);
        let (last, before) = points.split_last().expect("points");
        let exchange = |number: usize, point: &str| {
            home.exchange(session, &json!({ "point": point, "carrier": format!("c{number}") }));
        };
        before.iter().enumerate().for_each(|(number, point)| exchange(number, point));
        // A repeated request does not count again.
        exchange(before.len() - 1, before.last().expect("a point"));
        let open = |session: &str| {
            let list = home.get(&format!("/v1/watches?session={session}"));
            at(&list, "/watches").as_array().expect("a list").len()
        };
        assert_eq!(open(session), 1, "{session}: one turn has ended");
        exchange(before.len(), last);
        eventually("the reminder is due", || (open(session) == 0).then_some(()));
    }
}

/// The first Python block of the API's page, with a model that calls `deploy` once.
const SCRIPT: &str = r#"
import sys

def model(messages):
    print("thinking", flush=True)
    sys.stdin.readline()
    has_called = any(message["role"] == "tool" for message in messages)
    calls = [] if has_called else [{"id": "call_0", "name": "deploy"}]
    return {"content": "ok", "tool_calls": calls}

def run_tool(call):
    return "it ran"

print(json.dumps(turn("t1", "go", [], model, run_tool)), flush=True)
print(json.dumps(wake()), flush=True)
"#;

#[test]
fn the_loop_of_the_documentation_runs() {
    let home = home();
    let _daemon = home.serve();
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api.md")).expect("readable");
    let block = page.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    assert!(block.lines().filter(|line| !line.trim().is_empty()).count() <= 30, "it is short");
    publish(&home, "bot-7f3a", "first", "info");
    let mut child = home
        .python(&["-c", &format!("{block}\n{SCRIPT}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut stdin = child.stdin.take().expect("piped");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert_eq!(next(), "thinking");
    publish(&home, "bot-7f3a", "stop", "critical");
    writeln!(stdin, "go").expect("it reads");
    assert_eq!(next(), "thinking");
    publish(&home, "bot-7f3a", "last", "critical");
    writeln!(stdin, "go").expect("it reads");
    assert_eq!(next(), "thinking");
    writeln!(stdin, "go").expect("it reads");
    let messages = next();
    for text in ["fact: first", "fact: stop", "fact: last", "This call was not run"] {
        assert_eq!(messages.matches(text).count(), 1, "{text} in {messages}");
    }
    assert!(!messages.contains("it ran"), "{messages}");
    publish(&home, "bot-7f3a", "wake", "critical");
    assert_eq!(next(), "\"critical: fact\"");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_plain_loop_passes_its_scenario() {
    let home = Home::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/loop-scenario");
    let script = script.to_str().expect("text");
    let modes =
        ["step-parallel-tool", "step-sequence-model", "nostep-parallel-model", "nostep-sequence-tool"];
    let modes: Vec<&str> = modes.iter().flat_map(|mode| ["--mode", mode]).collect();
    let args = [&[script, env!("CARGO_BIN_EXE_aside"), "3"], &modes[..]].concat();
    let output = home.python(&args).output().expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
