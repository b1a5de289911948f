//! The real `aside hook` between a harness and a daemon with different behaviours.

use std::{
    collections::BTreeSet,
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{self, Command, Output, Stdio},
    sync::mpsc::sync_channel,
    thread,
    time::Duration,
};

use hook::client::{HOOK_TIMEOUT_MS_LIMITS, HOOK_TIMEOUT_VARIABLE};
use rustix::net::sockopt::socket_peercred;
use serde_json::{Value, json};

use crate::support::daemon::{Home, PATIENCE, at, eventually};

const STDIN: &str = r#"{"hook_event_name":"Stop","session_id":"s1"}"#;

/// The two programs that are hooks, with their arguments.
type HookCommand = (&'static str, &'static [&'static str]);
const COMMANDS: [HookCommand; 2] =
    [(env!("CARGO_BIN_EXE_aside-hook"), &["claude"]), (env!("CARGO_BIN_EXE_aside"), &["hook", "claude"])];

/// Runs the hook against the listener at `socket`, and waits for it even on a slow machine.
fn hook(socket: &PathBuf, command: HookCommand) -> Output {
    hook_within(PATIENCE, socket, command)
}

/// Like [`hook`]; the hook gives up after `timeout`.
fn hook_within(timeout: Duration, socket: &PathBuf, (program, args): HookCommand) -> Output {
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .env("ASIDE_SOCKET", socket)
        .env(HOOK_TIMEOUT_VARIABLE, timeout.as_millis().to_string())
        .env("CLAUDE_PID", "41")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(STDIN.as_bytes()).expect("the hook reads its stdin");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn socket(name: &str) -> PathBuf {
    let path = env::temp_dir().join(format!("aside-hook-{}-{name}.sock", process::id()));
    fs::remove_file(&path).ok();
    path
}

fn read_request(connection: &UnixStream) -> String {
    let mut reader = BufReader::new(connection);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).expect("a request"), 0, "{head}");
    }
    let mut body = vec![0; STDIN.len()];
    reader.read_exact(&mut body).expect("the body");
    head + &String::from_utf8_lossy(&body)
}

fn assert_silent(output: &Output) {
    let Output { status, stdout, stderr } = output;
    assert!(status.success() && stdout.is_empty() && stderr.is_empty(), "{output:?}");
}

#[test]
fn daemon_answer_becomes_the_hook_output() {
    for command in COMMANDS {
        let path = socket("answer");
        let listener = UnixListener::bind(&path).expect("bind");
        let daemon = thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a client");
            let request = read_request(&connection);
            connection
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n{\"a\":1}\n")
                .expect("it reads");
            request
        });
        let output = hook(&path, command);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "{\"a\":1}\n");
        let request = daemon.join().expect("served");
        assert!(request.starts_with("POST /v1/hooks/claude HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("\r\naside-pid: 41\r\n"), "{request}");
        assert!(request.ends_with(&format!("\r\n\r\n{STDIN}")), "{request}");
        fs::remove_file(path).expect("removed");
    }
}

#[test]
fn without_a_daemon_the_hook_is_silent() {
    for command in COMMANDS {
        assert_silent(&hook(&socket("absent"), command));
    }
}

#[test]
fn hanging_daemon_does_not_block_the_hook() {
    for command in COMMANDS {
        let path = socket("hangs");
        let listener = UnixListener::bind(&path).expect("bind");
        let daemon = thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a client");
            // Returns when the hook has disconnected.
            connection.read_to_end(&mut Vec::new()).map(|_| ())
        });
        let shortest = Duration::from_millis(*HOOK_TIMEOUT_MS_LIMITS.start());
        // A hook may end before it has connected; it is silent too, and the next one is tried.
        eventually("a hook is connected and hangs up", || {
            assert_silent(&hook_within(shortest, &path, command));
            daemon.is_finished().then_some(())
        });
        daemon.join().expect("no panic").expect("the hook has hung up");
        fs::remove_file(path).expect("removed");
    }
}

#[test]
fn hook_runs_on_a_single_thread() {
    for command in COMMANDS {
        let path = socket("threads");
        let listener = UnixListener::bind(&path).expect("bind");
        let daemon = thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a client");
            let request = read_request(&connection);
            let pid = socket_peercred(&connection).expect("the peer is known").pid.as_raw_nonzero();
            // The hook waits for this answer, so all its threads have started.
            let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it waits").count();
            connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("it reads");
            (request, threads)
        });
        assert_silent(&hook(&path, command));
        let (request, threads) = daemon.join().expect("served");
        assert!(request.starts_with("POST /v1/hooks/claude "), "{request}");
        assert_eq!(threads, 1);
        fs::remove_file(path).expect("removed");
    }
}

#[test]
fn wrongly_called_hook_succeeds_with_a_usage_message() {
    for wrong in [&[][..], &["claude", "extra"], &["--nonsense"], &["claude", "--start", "extra"]] {
        for (program, args) in COMMANDS {
            let mut command = Command::new(program);
            command.args(&args[..args.len() - 1]).args(wrong);
            let output = command.stdin(Stdio::null()).output().expect("the program runs");
            assert!(output.status.success() && output.stdout.is_empty(), "{wrong:?}: {output:?}");
            let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
            assert!(said.contains("usage: "), "{wrong:?}: {output:?}");
        }
    }
}

/// Every capture of the real client, by name.
fn captures() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/claude-code/hook-stdin");
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable").path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    files.sort();
    assert!(files.len() >= 31, "captures are missing: {files:?}");
    let read = |path: PathBuf| (path.display().to_string(), fs::read_to_string(path).expect("text"));
    files.into_iter().map(read).collect()
}

/// The text that a hook's output has for the model; checks that the rest is at most a line for the
/// user.
fn delivered(name: &str, stdin: &str, output: &Output) -> Option<String> {
    assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
    if output.stdout.is_empty() {
        return None;
    }
    let input: Value = serde_json::from_str(stdin).expect("JSON");
    let said: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    let context = at(&said, "/hookSpecificOutput/additionalContext").as_str().expect("a text").to_owned();
    let expected = json!({ "hookEventName": at(&input, "/hook_event_name"), "additionalContext": context });
    let line = at(&said, "/systemMessage").as_str().expect("a line");
    assert!(line.starts_with("aside: ") && line.chars().count() <= 100, "{name}: {line}");
    assert_eq!(said, json!({ "systemMessage": line, "hookSpecificOutput": expected }), "{name}");
    Some(context)
}

/// The hooks whose output carries text to the model unconditionally.
const CARRYING: [&str; 3] = ["PostToolBatch", "SessionStart", "UserPromptSubmit"];

/// A capture, as a hook of a session of its own.
fn as_session(stdin: &str, session: &str) -> Value {
    let mut input: Value = serde_json::from_str(stdin).expect("JSON");
    input["session_id"] = session.into();
    input
}

#[test]
fn every_real_hook_gets_valid_or_empty_answer() {
    // All of them work in one folder.
    let home = Home::with(&[("aside.toml", "[sources.sessions]\nenabled = false\n")]);
    let daemon = home.serve();
    for (number, (name, stdin)) in captures().into_iter().enumerate() {
        // Each has its own session and process, so that none gets what another left pending.
        let input = as_session(&stdin, &format!("session-{number}"));
        let stdin = input.to_string();
        let hook = || home.hook_of(1_000 + u32::try_from(number).expect("few"), &stdin);
        let event = input["hook_event_name"].as_str().expect("a name");
        assert_eq!(delivered(&name, &stdin, &hook()), None, "{name}: nothing is pending");
        let session = input["session_id"].as_str().expect("a session");
        let failure =
            json!({ "type": "tool.call.failure", "session": session, "payload": { "tool_name": name } });
        home.publish(&failure);
        let look = || delivered(&name, &stdin, &hook());
        match look() {
            Some(context) if CARRYING.contains(&event) => assert!(
                context.starts_with("<notifications count=") && context.contains(&name),
                "{name}: {context}"
            ),
            found => assert_eq!((found, CARRYING.contains(&event)), (None, false), "{name}"),
        }
    }
    assert_eq!(daemon.stop().status.code(), Some(0));
    for (name, stdin) in captures() {
        assert_eq!(delivered(&name, &stdin, &home.hook(&stdin)), None, "{name}: nobody is there");
    }
}

#[test]
fn pending_notification_is_printed_once_then_confirmed() {
    let home = Home::new();
    let _daemon = home.serve();
    let capture = |name: &str| {
        let found = captures().into_iter().find(|(path, _)| path.ends_with(name)).expect("a capture");
        found.1
    };
    let batch = capture("/PostToolBatch.json");
    let stop = json!({ "hook_event_name": "Stop", "session_id": "77e7b829-647f-4714-bc7b-808f2cb6a596",
        "prompt_id": "0b22b073-9966-419d-aab8-4d409fbb534c", "stop_hook_active": false })
    .to_string();
    let hook = |stdin: &str| delivered("hook", stdin, &home.hook(stdin));
    assert_eq!(hook(&batch), None);
    let event = json!({ "id": "f", "type": "tool.call.failure", "source": "cli",
        "payload": { "tool_name": "grep", "error_type": "timeout" } });
    let seq = home.publish(&event);
    let context = eventually("it is printed", || hook(&batch));
    let lines: Vec<&str> = context.lines().collect();
    assert_eq!(lines[1..], ["severity: error", "tool_fail: grep timeout", "</notifications>"], "{context}");
    let id = lines[0].split('"').nth(3).expect("an id");
    assert_eq!(lines[0], format!("<notifications count=\"1\" id=\"{id}\">"));

    let session = "77e7b829-647f-4714-bc7b-808f2cb6a596";
    let unconfirmed = || home.get(&format!("/v1/sessions/{session}"))["unconfirmed"].clone();
    assert_eq!(unconfirmed(), 1);
    assert_eq!(hook(&stop), None);
    assert_eq!(unconfirmed(), 0);
    assert_eq!((hook(&batch), hook(&batch)), (None, None));

    let shown = home.get("/v1/events/f?source=cli");
    let history: Vec<String> = shown["history"].as_array().expect("a list").iter().map(step).collect();
    let expected = ["batched", "created", "queued", &format!("injected {id} after_tool"), "confirmed turn"];
    assert_eq!((&shown["event"]["seq"], history), (&json!(seq[0]), expected.map(str::to_owned).to_vec()));
}

fn step(line: &Value) -> String {
    let words = ["what", "injection", "by"].into_iter().filter_map(|key| line[key].as_str());
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn hook_without_sense_succeeds_without_output() {
    let home = Home::new();
    let daemon = home.serve();
    for stdin in ["", "nonsense", "{}", "[]", r#"{"hook_event_name":"Stop"}"#] {
        assert_silent(&home.hook(stdin));
    }
    let other = home.run(&["hook", "unheard-of"]);
    assert!(other.status.success() && other.stdout.is_empty(), "{other:?}");
    let said = String::from_utf8_lossy(&other.stderr);
    assert_eq!(said, "aside hook: `unheard-of` is no client with hooks; use claude\n");
    assert_eq!(daemon.stop().status.code(), Some(0));
}

/// Hook calls while the daemon is loaded.
const CALLS: usize = 500;
/// Harnesses that call at the same time.
const HARNESSES: usize = 4;
/// Events that are published for each call; all of them match.
const EVENTS_A_CALL: usize = 20;

/// The hook input of a harness after its tool number `call`.
fn after_tool(harness: usize, call: usize) -> String {
    let tool = json!({ "tool_name": "Read", "tool_use_id": format!("t{call}") });
    json!({ "hook_event_name": "PostToolBatch", "session_id": format!("s{harness}"), "cwd": "/", "prompt_id": "p",
        "tool_calls": [tool] })
    .to_string()
}

#[test]
fn hooks_under_load_succeed_and_deliver_once() {
    let home = Home::new();
    let _daemon = home.serve();
    let outputs: Vec<Output> = thread::scope(|scope| {
        // One batch for every call, so that the load does not depend on the speed of the machine;
        // the faster side waits.
        let (called, calls) = sync_channel::<()>(HARNESSES);
        let home = &home;
        scope.spawn(move || {
            for (number, ()) in calls.iter().enumerate() {
                let event = |at| {
                    let payload = json!({ "tool_name": format!("tool-{number}-{at}") });
                    json!({ "type": "tool.call.failure", "session": format!("s{}", at % HARNESSES), "payload": payload })
                };
                home.publish(&(0..EVENTS_A_CALL).map(event).collect());
            }
        });
        let calling: Vec<_> = (0..HARNESSES)
            .map(|harness| {
                let called = called.clone();
                scope.spawn(move || {
                    let call = |call| {
                        called.send(()).expect("the publisher goes on");
                        home.hook(&after_tool(harness, call))
                    };
                    (0..CALLS / HARNESSES).map(call).collect::<Vec<_>>()
                })
            })
            .collect();
        drop(called);
        calling.into_iter().flat_map(|calling| calling.join().expect("every call ends")).collect()
    });
    let mut delivered = BTreeSet::new();
    for output in &outputs {
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        // The line for the user only repeats the text.
        let stdout = String::from_utf8_lossy(&output.stdout);
        let (_, text) = stdout.split_once("additionalContext").unwrap_or_default();
        for (at, _) in text.match_indices("tool-") {
            let name = text[at..].split(|c: char| !c.is_alphanumeric() && c != '-').next().expect("a name");
            assert!(delivered.insert(name.to_owned()), "{name} was delivered twice");
        }
    }
    assert_eq!(outputs.len(), CALLS);
    assert!(!delivered.is_empty(), "nothing was delivered, so nothing was shown");
}

/// A hook's input with the fields that all hooks have.
fn input(event: &str, session: &str, fields: Value) -> String {
    let mut input =
        json!({ "hook_event_name": event, "session_id": session, "prompt_id": "p1", "cwd": "/w" });
    let all = input.as_object_mut().expect("an object");
    all.extend(fields.as_object().expect("an object").clone());
    input.to_string()
}

fn batch(session: &str, call: &str) -> String {
    input("PostToolBatch", session, json!({ "tool_calls": [{ "tool_name": "Bash", "tool_use_id": call }] }))
}

/// The steps of the event `id`, as words.
fn history(home: &Home, id: &str) -> Vec<String> {
    let shown = home.get(&format!("/v1/events/{id}?source=cli"));
    shown["history"].as_array().expect("a list").iter().map(step).collect()
}

/// Waits until the event `id` is confirmed; returns how.
fn confirmed(home: &Home, id: &str) -> String {
    let last = || history(home, id).pop().filter(|last| last.starts_with("confirmed"));
    eventually("it is confirmed", last)
}

fn critical(id: &str, session: &str) -> Value {
    json!({ "id": id, "type": "budget.token.exceeded", "source": "cli", "session": session,
        "payload": { "budget_type": "token" } })
}

#[test]
fn critical_notification_denies_only_modifying_calls() {
    let home = Home::new();
    let _daemon = home.serve();
    let before = |tool: &str, call: &str| {
        let stdin = input("PreToolUse", "s1", json!({ "tool_name": tool, "tool_use_id": call }));
        let output = home.hook(&stdin);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        (!output.stdout.is_empty()).then(|| serde_json::from_slice::<Value>(&output.stdout).expect("JSON"))
    };
    assert_eq!(
        delivered("start", "{}", &home.hook(&input("SessionStart", "s1", json!({ "source": "startup" })))),
        None
    );
    let failure = json!({ "type": "message.agent.sent", "session": "s1", "payload": { "text": "high" } });
    home.publish(&failure);
    assert_eq!(before("Bash", "t1"), None, "nothing critical waits");
    home.publish(&critical("c", "s1"));
    assert_eq!(before("Read", "t2"), None, "a call that only looks");
    let mut tries = 0;
    let said = eventually("it is denied", || {
        // A hook that gives up at the last moment may have used its notification up, so each try
        // publishes a new one.
        tries += 1;
        home.publish(&critical(&format!("c{tries}"), "s1"));
        before("Bash", "t3")
    });
    let output = at(&said, "/hookSpecificOutput");
    assert_eq!(
        (&output["hookEventName"], &output["permissionDecision"]),
        (&json!("PreToolUse"), &json!("deny"))
    );
    let reason = output["permissionDecisionReason"].as_str().expect("a reason");
    assert!(
        reason.contains("budget_exceeded: token") && reason.contains("This call was not run"),
        "{reason}"
    );
    assert!(before("Bash", "t4").is_some(), "each call of the batch is held back");
    home.hook(&batch("s1", "t4"));
    assert_eq!(before("Bash", "t5"), None, "the same call again, in the next batch");
}

#[test]
fn cleared_session_continues_in_the_same_client() {
    let home = Home::new();
    let _daemon = home.serve();
    let start = |session: &str, source: &str| input("SessionStart", session, json!({ "source": source }));
    let hook = |pid, stdin: &str| delivered("hook", stdin, &home.hook_of(pid, stdin));
    assert_eq!(hook(41, &start("old", "startup")), None);
    home.publish(&json!({ "type": "message.agent.sent", "session": "old", "payload": { "text": "kept" } }));
    assert_eq!(hook(41, &input("SessionEnd", "old", json!({ "reason": "clear" }))), None);
    let is_open = || home.get("/v1/sessions/old")["is_open"].as_bool();
    eventually("it has ended", || is_open().filter(|is_open| !is_open));
    assert_eq!(hook(42, &start("stranger", "clear")), None);
    let context = hook(41, &start("new", "clear")).expect("it moved");
    assert!(context.contains("text: kept"), "{context}");
    home.publish(&critical("late", "old"));
    let context = eventually("what is addressed to the old one", || hook(41, &batch("new", "t1")));
    assert!(context.contains("budget_exceeded: token"), "{context}");
    assert_eq!(home.ask("GET", "/v1/sessions/old", "").status(), 404);
}

#[test]
fn injection_in_transcript_is_confirmed() {
    let home = Home::new();
    let _daemon = home.serve();
    assert_eq!(
        delivered("start", "{}", &home.hook(&input("SessionStart", "s1", json!({ "source": "startup" })))),
        None
    );
    home.publish(&critical("c", "s1"));
    let context = eventually("it is delivered", || {
        delivered("hook", &batch("s1", "t1"), &home.hook(&batch("s1", "t1")))
    });
    let transcript = home.path("transcript.jsonl");
    let line = json!({ "type": "attachment", "content": [context] }).to_string();
    fs::write(&transcript, line + "\n").expect("written");
    let end = input("SessionEnd", "s1", json!({ "reason": "other", "transcript_path": transcript }));
    assert_silent(&home.hook(&end));
    assert_eq!(confirmed(&home, "c"), "confirmed seen");
}

#[test]
fn prompt_containing_an_injection_confirms_its_delivery() {
    let home = Home::new();
    let _daemon = home.serve();
    home.publish(&critical("c", "s1"));
    let pushed = json!({ "point": "immediate", "carrier": "line-1", "turn": "p0" });
    let pushed =
        eventually("it is pushed", || Some(home.exchange("s1", &pushed)).filter(|a| a.status() == 200));
    let text = pushed.json()["text"].as_str().expect("a text").to_owned();
    home.publish(&json!({ "type": "message.agent.sent", "session": "s1", "payload": { "text": "later" } }));
    let prompt = format!("<task-notification>\n<event>{text}</event>\n</task-notification>");
    let submit = |prompt: &str| input("UserPromptSubmit", "s1", json!({ "prompt": prompt }));
    let own = submit(&prompt);
    let context = eventually("the rest", || delivered("own", &own, &home.hook(&own)));
    assert!(context.contains("text: later") && !context.contains("budget"), "{context}");
    assert_eq!(confirmed(&home, "c"), "confirmed seen");
    let stdin = submit("go on");
    assert_eq!(delivered("prompt", &stdin, &home.hook(&stdin)), None);
}

#[test]
fn subagent_leaves_unread_notifications_to_its_parent() {
    let home = Home::new();
    let _daemon = home.serve();
    let of_agent = |event: &str, mut fields: Value| {
        fields["agent_id"] = "a7".into();
        fields["agent_type"] = "explore".into();
        input(event, "s1", fields)
    };
    let hook = |stdin: &str| delivered("hook", stdin, &home.hook(stdin));
    assert_eq!(hook(&input("SessionStart", "s1", json!({ "source": "startup" }))), None);
    home.publish(&json!({ "id": "c", "type": "budget.token.exceeded", "source": "cli", "session": "s1/a7",
        "payload": { "budget_type": "token" } }));
    let start = of_agent("SubagentStart", json!({}));
    let context = eventually("it is delivered", || hook(&start));
    assert!(context.contains("budget_exceeded: token"), "{context}");
    assert_eq!(home.get("/v1/sessions/s1%2Fa7")["harness"]["parent"], "s1");
    home.publish(&json!({ "type": "message.agent.sent", "session": "s1/a7", "payload": { "text": "left" } }));
    assert_eq!(hook(&of_agent("SubagentStop", json!({}))), None);
    assert_eq!(confirmed(&home, "c"), "confirmed turn");
    let submit = input("UserPromptSubmit", "s1", json!({ "prompt": "go on" }));
    let context = eventually("its parent gets it", || hook(&submit));
    assert!(context.contains("text: left"), "{context}");
    assert_eq!(home.ask("GET", "/v1/sessions/s1%2Fa7", "").status(), 404);
}
