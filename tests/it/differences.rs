//! What a session is notified of files after its calls, in the real daemon.

use std::fs;

use serde_json::{Value, json};

use crate::support::daemon::{Home, at, eventually, text};

/// Runs a hook of the session in the folder `work`; returns the text for the agent.
fn hook(home: &Home, name: &str, fields: &Value) -> Option<String> {
    let mut input =
        json!({ "hook_event_name": name, "session_id": "s1", "prompt_id": "p1", "cwd": home.work() });
    input.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    hook_of(home, &input.to_string())
}

fn hook_of(home: &Home, input: &str) -> Option<String> {
    let output = home.hook(input);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).ok()?;
    Some(at(&said, "/hookSpecificOutput/additionalContext").as_str()?.to_owned())
}

fn batch(home: &Home, calls: &Value) -> Option<String> {
    hook(home, "PostToolBatch", &json!({ "tool_calls": calls }))
}

#[test]
fn formatter_before_its_batch_is_announced() {
    let home = Home::new();
    let _daemon = home.serve();
    let path = home.path("work").join("a.rs");
    fs::write(&path, "fn a() {}\nfn b() {}\n").expect("written");
    let read = json!({ "tool_name": "Read", "tool_use_id": "t1", "tool_input": { "file_path": path }, "tool_response": "1\tfn a" });
    assert_eq!(batch(&home, &json!([read])), None);
    let input = json!({ "file_path": path, "old_string": "fn b() {}", "new_string": "fn c( ) {}" });
    hook(&home, "PreToolUse", &json!({ "tool_name": "Edit", "tool_use_id": "t2", "tool_input": input }));
    fs::write(&path, "fn a() {}\nfn c( ) {}\n").expect("written");
    let response = json!({ "filePath": path, "oldString": "fn b() {}", "newString": "fn c( ) {}" });
    hook(
        &home,
        "PostToolUse",
        &json!({ "tool_name": "Edit", "tool_use_id": "t2", "tool_input": input, "tool_response": response }),
    );
    fs::write(&path, "fn a() {}\nfn c() {}\n").expect("written");
    let edit =
        json!({ "tool_name": "Edit", "tool_use_id": "t2", "tool_input": input, "tool_response": "updated" });
    let delivered = batch(&home, &json!([edit])).expect("it is announced");
    assert!(delivered.contains("file_changed: a.rs") && delivered.contains("lines: 2"), "{delivered}");
    let write = json!({ "file_path": path, "content": "fn d() {}\n" });
    fs::write(&path, "fn d() {}\n").expect("written");
    let write =
        json!({ "tool_name": "Write", "tool_use_id": "t3", "tool_input": write, "tool_response": "ok" });
    assert_eq!(batch(&home, &json!([write])), None, "it has what the call wrote");
}

#[test]
fn known_folder_resolves_relative_files_of_a_loop() {
    let home = Home::with(&[("aside.toml", "[sources.sessions]\nenabled = false\n")]);
    let _daemon = home.serve();
    let path = home.path("work").join("a.txt");
    fs::write(&path, "one\n").expect("written");
    for point in ["turn_start", "turn_end", "before_tool"] {
        let session = format!("s-{point}");
        fs::write(&path, "one\n").expect("written");
        let ask = |carrier: &str, fields: Value| {
            let mut body = json!({ "carrier": carrier, "turn": "t1" });
            body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
            home.exchange(&session, &body)
        };
        let harness = json!({ "name": "loop", "workspace": home.work() });
        assert_eq!(ask("c1", json!({ "point": point, "harness": harness })).status(), 204);
        let payload =
            json!({ "tool_name": "read", "call_id": "c2", "files": [{ "path": "a.txt", "by": "read" }] });
        let observe = json!([{ "type": "tool.call.success", "payload": payload }]);
        assert_eq!(ask("c2", json!({ "point": "after_tool", "observe": observe })).status(), 204, "{point}");
        fs::write(&path, format!("two {point}\n")).expect("written");
        let answer = ask("c3", json!({ "point": "after_tool" }));
        assert_eq!(answer.status(), 200, "{point}: {answer:?}");
        let answer = answer.json();
        let delivered = at(&answer, "/text").as_str().expect("text");
        assert!(delivered.contains("file_changed: a.txt"), "{point}: {delivered}");
    }
}

#[test]
fn prompt_with_half_an_emoji_begins_a_turn() {
    for (name, prompt) in [
        ("half of a pair", r#""go on \ud83d""#),
        ("the other half", r#""\ude00""#),
        ("no text", "7"),
        ("byte order mark", r#""go on""#),
    ] {
        let home = Home::new();
        let _daemon = home.serve();
        hook(&home, "SessionStart", &json!({ "source": "startup" }));
        let failure = json!({ "tool_name": "grep", "error_type": "timeout", "error_message": "30 s" });
        let event = json!({ "type": "tool.call.timeout", "source": "tool_executor", "session": "s1", "payload": failure });
        assert_eq!(home.ask("POST", "/v1/events", &event.to_string()).status(), 200, "{name}");
        let mark = if name == "byte order mark" { "\u{feff}" } else { "" };
        let input = format!(
            r#"{mark}{{"hook_event_name":"UserPromptSubmit","session_id":"s1","prompt_id":"p2","cwd":"/w\ud83d","prompt":{prompt},"permission_mode":[]}}"#
        );
        let delivered = hook_of(&home, &input).unwrap_or_else(|| panic!("{name}: nothing was delivered"));
        assert!(delivered.contains("grep"), "{name}: {delivered}");
        let begun =
            || at(&home.get("/v1/events?type=agent.turn.start"), "/events").as_array().map_or(0, Vec::len);
        eventually(&format!("the turn: {name}"), || (begun() == 1).then_some(()));
        let log = home.print(&["status"]);
        assert!(!log.contains("invalid"), "{name}: {}", text(log.as_bytes()));
    }
}
