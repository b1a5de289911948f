//! Language servers with a real daemon, the hooks of a client, and a stand-in server that answers
//! by the words in a text.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::{Value, json};

use crate::support::daemon::{Home, at, eventually};

/// Reports an error in line 3 of a text with `BADn`, and exits on one with `DIE`. Before each
/// report it sends an outdated one.
const SERVER: &str = r#"#!/bin/sh
log=$(dirname "$0")/../server.log
say() { printf 'Content-Length: %s\r\n\r\n%s' "${#1}" "$1"; }
push() { say "{\"method\":\"textDocument/publishDiagnostics\",\"params\":{\"uri\":\"$uri\",\"version\":$1,\"diagnostics\":[$2]}}"; }
echo "start $*" >>"$log"
echo "pid $$" >>"$log"
while IFS= read -r header; do
  IFS= read -r blank
  body=$(head -c "$(printf %s "$header" | tr -dc 0-9)")
  id=$(printf %s "$body" | sed 's/.*"id":\([0-9]*\).*/\1/')
  case $body in
  *'"method":"initialize"'*)
    say "{\"id\":$id,\"result\":{\"capabilities\":{}}}"
    say '{"id":"q","method":"workspace/configuration","params":{"items":[{}]}}' ;;
  *'"method":"shutdown"'*) say "{\"id\":$id,\"result\":null}" ;;
  *'"method":"exit"'*) echo exit >>"$log"; exit 0 ;;
  *DIE*) echo "out of memory" >&2; exit 3 ;;
  *'"method":"textDocument/didOpen"'* | *'"method":"textDocument/didChange"'*)
    uri=$(printf %s "$body" | sed 's/.*"uri":"\([^"]*\)".*/\1/')
    version=$(printf %s "$body" | sed 's/.*"version":\([0-9]*\).*/\1/')
    push $((version - 1)) '{"severity":1,"code":"E9","message":"stale"}'
    bad=$(printf %s "$body" | sed -n 's/.*\(BAD[0-9]*\).*/\1/p')
    error="{\"range\":{\"start\":{\"line\":2,\"character\":4}},\"severity\":1,\"code\":\"E7\",\"message\":\"$bad\"}"
    if [ -n "$bad" ]; then push "$version" "$error"; else push "$version" ''; fi
    echo "text $version" >>"$log" ;;
  esac
done
echo eof >>"$log"
"#;
const SETTINGS: &str = "[journal]\nsegment_bytes = 1048576\n[sources.lsp]\nenabled = true\n\
    servers.fake = { command = [\"fake-server\", \"--stdio\"], files = [\"*.fake\"], root = [\"fake.toml\"] }\n";
/// A subscriber that is off; the API still lists what it asks for.
const LISTED: &str =
    "[subscriber]\nid = \"listed\"\nenabled = false\n[events]\ntypes = [\"problem.*\", \"source.failed\"]\n";
const SESSION: &str = "c3d4";

fn home() -> Home {
    let home = Home::with(&[("aside.toml", SETTINGS), ("subscribers/listed.toml", LISTED)]);
    fs::create_dir(home.path("bin")).expect("made");
    fs::write(home.path("bin/fake-server"), SERVER).expect("written");
    fs::set_permissions(home.path("bin/fake-server"), fs::Permissions::from_mode(0o755)).expect("set");
    fs::write(home.path("work/fake.toml"), "").expect("written");
    home
}

fn log(home: &Home) -> String {
    fs::read_to_string(home.path("server.log")).unwrap_or_default()
}

/// The session writes a file and its client reports that; returns the text for the agent.
fn write(home: &Home, id: &str, name: &str, text: &str) -> String {
    let path = format!("{}/{name}", home.work());
    fs::write(&path, text).expect("written");
    let call = json!({ "tool_name": "Write", "tool_use_id": id, "tool_input": { "file_path": path }, "tool_response": "done" });
    let stdin = json!({ "hook_event_name": "PostToolBatch", "session_id": SESSION, "cwd": home.work(), "prompt_id": "p1", "tool_calls": [call] });
    let output = home.hook(&stdin.to_string());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn wait(home: &Home) {
    let waited = home.get(&format!("/v1/sessions/{SESSION}/wait?timeout=25s"));
    assert!(waited["pending"].as_u64().is_some_and(|pending| pending > 0), "{waited}");
}

fn events(home: &Home, event_type: &str) -> Vec<Value> {
    let found = home.get(&format!("/v1/events?type={event_type}&limit=1000"));
    found["events"].as_array().expect("a list").iter().map(|found| found["event"].clone()).collect()
}

#[test]
fn language_server_errors_and_repairs_are_delivered_once() {
    let home = home();
    let daemon = home.serve();
    write(&home, "t1", "a.fake", "BAD1");
    daemon.said("a language server is ready");
    wait(&home);
    let text = write(&home, "t2", "notes.txt", "x");
    assert!(text.contains("BAD1"), "{text}");
    write(&home, "t3", "b.fake", "BAD2");
    wait(&home);
    let text = write(&home, "t4", "notes.txt", "x");
    assert!(
        text.contains("BAD2") && !text.contains("BAD1") && text.contains("line: 3") && text.contains("E7"),
        "{text}"
    );
    let mut delivered = String::new();
    for number in 0..20 {
        let text = if number % 2 == 0 { format!("BAD{number}") } else { format!("fine {number}") };
        delivered += &write(&home, &format!("q{number}"), "b.fake", &text);
    }
    delivered += &write(&home, "fine", "a.fake", "fine");
    let mut calls = 0;
    eventually("that all is repaired is delivered", || {
        calls += 1;
        delivered += &write(&home, &format!("n{calls}"), "notes.txt", &calls.to_string());
        delivered.contains("problems_cleared: fake").then_some(())
    });
    assert!(!delivered.contains("stale"), "{delivered}");
    let found = events(&home, "problem.found");
    assert!(found.iter().all(|event| at(event, "/payload/message") != "stale"), "{found:?}");
    assert_eq!(
        (at(&found[0], "/session"), at(&found[0], "/payload/tool")),
        (&json!(SESSION), &json!("fake"))
    );
    daemon.kill();
    eventually("the server sees its stdin end", || log(&home).contains("eof").then_some(()));
    assert_eq!(log(&home).matches("start --stdio").count(), 1);
}

#[test]
fn unavailable_language_server_publishes_source_failed_unless_disabled() {
    let home = home();
    home.configure("aside.toml", &SETTINGS.replace("enabled = true", "enabled = false"));
    let daemon = home.serve();
    write(&home, "t1", "a.fake", "BAD1");
    home.configure("aside.toml", &SETTINGS.replace("fake-server", "no-such-server"));
    assert!(home.command(&["reload"]).status().expect("it runs").success());
    let failed = eventually("it is said", || {
        write(&home, "t2", "a.fake", "BAD1");
        events(&home, "source.failed").pop()
    });
    let error = at(&failed, "/payload/error").as_str().unwrap_or_default();
    assert!(error.contains("no-such-server is not in the daemon's PATH"), "{failed}");
    assert_eq!(log(&home), "");
    home.configure("aside.toml", SETTINGS);
    assert!(home.command(&["reload"]).status().expect("it runs").success());
    eventually("it is started", || {
        write(&home, "t3", "a.fake", "fine");
        log(&home).contains("text").then_some(())
    });
    home.configure("aside.toml", &SETTINGS.replace("enabled = true", "enabled = false"));
    assert!(home.command(&["reload"]).status().expect("it runs").success());
    let log = log(&home);
    let pid = log.lines().find_map(|line| line.strip_prefix("pid ")).expect("it was started");
    eventually("its process is gone", || (!Path::new("/proc").join(pid).exists()).then_some(()));
    let ended = home.get("/v1/sources");
    let row = ended["sources"].as_array().and_then(|rows| rows.iter().find(|row| row["name"] == "lsp"));
    assert_eq!(row.map(|row| row["is_on"].clone()), Some(json!(false)), "{ended}");
    drop(daemon);
}
