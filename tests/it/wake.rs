//! Real wakes: `aside attach` under a client that starts and dies, and a client's message socket.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixListener,
    process::{Child, ChildStdout, Output, Stdio},
    sync::mpsc,
    thread,
};

use serde_json::{Value, json};

use crate::support::daemon::{Home, PATIENCE, at, eventually, text};

const ACTIVE: &str = "[subscriber]\nid = \"orders\"\n[events]\ntypes = [\"shop.order.*\"]\nseverity_filter = \"debug\"\n\
    [batching]\nwindow_ms = 0\n[output]\npriority = \"high\"\nactivation = \"active\"\ntemplate = \"generic\"\n";
const PROMPT: &str = "[subscriber]\nid = \"offers\"\n[events]\ntypes = [\"shop.offer.*\"]\nseverity_filter = \"debug\"\n\
    [batching]\nwindow_ms = 0\n[output]\npriority = \"high\"\nactivation = \"prompt\"\ntemplate = \"generic\"\n";

fn home() -> Home {
    Home::with(&[("subscribers/orders.toml", ACTIVE), ("subscribers/offers.toml", PROMPT)])
}

fn order(home: &Home, note: &str) {
    home.publish(&json!({ "type": "shop.order.placed", "session": "s1", "payload": { "note": note } }));
}

fn session(home: &Home) -> Value {
    home.get("/v1/sessions/s1")
}

/// A client as an extension's follower sees it: a shell that starts the follower and stays its parent.
fn client(home: &Home) -> (Child, BufReader<ChildStdout>) {
    let mut attach = home.command(&[]);
    let program = attach.get_program().to_owned();
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg("\"$0\" attach claude; exit 0").arg(program).env_clear();
    for (name, value) in attach.env("CLAUDE_CODE_SESSION_ID", "s1").get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    let mut child = shell.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a shell");
    let lines = BufReader::new(child.stdout.take().expect("piped"));
    (child, lines)
}

/// Waits until the follower follows the session's queue.
fn attached(home: &Home, count: u64) {
    eventually("a follower", || (home.get("/v1/status")["sessions"]["waiting"] == count).then_some(()));
}

fn next_line(lines: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).expect("text");
    line
}

/// The output until all copies of the other end are closed.
fn rest(mut lines: BufReader<ChildStdout>) -> String {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut rest = String::new();
        lines.read_to_string(&mut rest).expect("text");
        sender.send(rest)
    });
    receiver.recv_timeout(PATIENCE).expect("the follower ends")
}

#[test]
fn a_wake_begins_with_the_sentence() {
    let with_sentence = format!("{ACTIVE}sentence = \"order for {{{{ payload.note }}}}\"\n");
    let home = Home::with(&[("subscribers/orders.toml", &with_sentence)]);
    let _daemon = home.serve();
    home.exchange("s1", &json!({ "point": "turn_end", "carrier": "c1" }));
    let (mut child, mut lines) = client(&home);
    attached(&home, 1);
    order(&home, "two\nlines </event>");
    assert_eq!(next_line(&mut lines), "aside: order for two lines (/event)\n");
    child.kill().expect("it runs");
    child.wait().expect("it was started here");
}

#[test]
fn follower_prints_wake_lines_and_dies_with_client() {
    let home = home();
    let daemon = home.serve();
    home.exchange("s1", &json!({ "point": "turn_end", "carrier": "c1" }));
    let (mut child, mut lines) = client(&home);
    attached(&home, 1);
    order(&home, "two\nlines </event>");
    let line = next_line(&mut lines);
    assert!(line.starts_with("aside: orders: ") && !line.contains("</event>"), "{line}");
    assert!(!line.contains('{') && line.chars().count() <= 101, "one sentence: {line}");
    // It claimed nothing, and began no turn by itself; further orders print nothing meanwhile.
    assert_eq!((&session(&home)["pending"], &session(&home)["state"]), (&json!(1), &json!("idle")));
    order(&home, "later");
    let context = woken_by(&home, &line);
    assert!(context.contains("lines") && context.contains("later"), "{context}");
    assert_eq!((&session(&home)["pending"], &session(&home)["state"]), (&json!(0), &json!("streaming")));

    drop(daemon);
    let _daemon = home.serve();
    attached(&home, 1);
    home.exchange("s1", &json!({ "point": "turn_end", "carrier": "c2" }));
    order(&home, "again");
    assert!(next_line(&mut lines).contains("again"));

    child.kill().expect("it runs");
    child.wait().expect("killed");
    assert_eq!(rest(lines), "");
    attached(&home, 0);
}

/// The context with which the hook of the turn that this line begins answers.
fn woken_by(home: &Home, line: &str) -> String {
    let prompt = format!("<task-notification>\n<event>{}</event>\n</task-notification>", line.trim_end());
    prompted(home, "s1", &prompt)
}

/// The context with which the hook of this prompt answers.
fn prompted(home: &Home, session: &str, prompt: &str) -> String {
    let prompt = json!({
        "hook_event_name": "UserPromptSubmit", "session_id": session, "cwd": "/w", "prompt": prompt,
    });
    let headers = [("content-type", "application/json")];
    let prompt = prompt.to_string();
    let answer = home.client().request("POST", "/v1/hooks/claude", &headers, prompt.as_bytes());
    text(&answer.expect("answered").body)
}

#[test]
fn hook_of_a_wake_delivers_long_texts_whole() {
    let home = home();
    let _daemon = home.serve();
    home.exchange("s1", &json!({ "point": "turn_end", "carrier": "c1" }));
    let (mut child, mut lines) = client(&home);
    attached(&home, 1);
    let fail = |severity: &str, name: &str| {
        let message = format!("{} {name}_end", "m".repeat(290 - name.len() - 5));
        home.publish(&json!({
            "type": "tool.call.failure", "source": "cli", "severity": severity, "session": "s1",
            "payload": { "tool_name": name, "error_type": "timeout", "error_message": message },
        }));
    };
    for name in ["first", "second", "third"] {
        fail("error", name);
    }
    fail("critical", "now");
    let line = next_line(&mut lines);
    assert!(line.starts_with("aside: critical: now timeout"), "{line}");
    let context = woken_by(&home, &line);
    for end in ["first_end", "second_end", "third_end", "now_end"] {
        assert_eq!(context.matches(end).count(), 1, "{end}: {context}");
    }
    assert!(!context.contains("omitted") && !context.contains("in full"), "{context}");
    assert_eq!(session(&home)["pending"], 0);
    child.kill().expect("it runs");
    child.wait().expect("killed");
}

/// Sends the daemon the hook input of the client, which is this process; a hook itself gives up on
/// a busy machine.
fn tell(home: &Home, stdin: &str) {
    let pid = std::process::id().to_string();
    let headers = [("content-type", "application/json"), ("aside-pid", pid.as_str())];
    let answer = home.client().request("POST", "/v1/hooks/claude", &headers, stdin.as_bytes());
    let status = answer.expect("the daemon answers").status;
    assert!(matches!(status, 200 | 204), "{status}: {stdin}");
}

#[test]
fn session_without_any_prompt_yet_is_woken() {
    let home = home();
    let _daemon = home.serve();
    for start in ["startup", "resume"] {
        let hook = format!(
            r#"{{"hook_event_name":"SessionStart","session_id":"s1","source":"{start}","cwd":"/w"}}"#
        );
        tell(&home, &hook);
        assert_eq!(session(&home)["state"], "idle", "{start}");
        let (mut child, mut lines) = client(&home);
        attached(&home, 1);
        order(&home, start);
        assert!(next_line(&mut lines).contains(start));
        assert!(prompted(&home, "s1", "go").contains(start));
        tell(&home, r#"{"hook_event_name":"SessionEnd","session_id":"s1","reason":"other"}"#);
        child.kill().expect("it runs");
        child.wait().expect("killed");
        attached(&home, 0);
    }
}

#[test]
fn a_follower_goes_on_where_its_process_does() {
    let home = home();
    let daemon = home.serve();
    tell(&home, r#"{"hook_event_name":"Stop","session_id":"s1","cwd":"/w"}"#);
    let (mut child, mut lines) = client(&home);
    attached(&home, 1);
    tell(&home, r#"{"hook_event_name":"SessionEnd","session_id":"s1","cwd":"/w","reason":"clear"}"#);
    tell(&home, r#"{"hook_event_name":"SessionStart","session_id":"s2","cwd":"/w","source":"clear"}"#);
    order(&home, "cleared");
    assert!(next_line(&mut lines).contains("cleared"));
    assert!(prompted(&home, "s2", "go").contains("cleared"));

    // The next hook shows what the client did while the daemon was not running.
    drop(daemon);
    let _daemon = home.serve();
    tell(&home, r#"{"hook_event_name":"Stop","session_id":"s3","cwd":"/w"}"#);
    home.publish(&json!({ "type": "shop.order.placed", "session": "s3", "payload": { "note": "resumed" } }));
    assert!(next_line(&mut lines).contains("resumed"));

    child.kill().expect("it runs");
    child.wait().expect("killed");
    assert_eq!(rest(lines), "");
}

#[test]
fn replaced_follower_stays_and_prints_nothing() {
    let home = home();
    let _daemon = home.serve();
    home.exchange("s1", &json!({ "point": "turn_end", "carrier": "c1" }));
    let (mut first, first_lines) = client(&home);
    attached(&home, 1);
    let follow = home.client();
    let mut stream = follow
        .stream("/v1/sessions/s1/stream?wake_route=follower", &[])
        .expect("the daemon answers")
        .unwrap_or_else(|refused| panic!("{refused:?}"));
    assert_eq!(stream.next_event().expect("an answer").expect("an event").kind, "pending");
    let (mut second, mut second_lines) = client(&home);
    assert_eq!(stream.next_event().expect("an answer").expect("an event").kind, "replaced");
    order(&home, "once");
    assert!(next_line(&mut second_lines).contains("once"));
    tell(&home, r#"{"hook_event_name":"SessionEnd","session_id":"s1","reason":"other"}"#);
    for child in [&mut first, &mut second] {
        assert_eq!(child.try_wait().expect("it was started here"), None, "its client is there");
        child.kill().expect("it runs");
        child.wait().expect("killed");
    }
    assert_eq!((rest(first_lines), rest(second_lines)), (String::new(), String::new()));
}

#[test]
fn a_follower_nobody_reads_ends_and_loses_nothing() {
    let home = home();
    let _daemon = home.serve();
    home.exchange("s1", &json!({ "point": "turn_end", "carrier": "c1" }));
    let (mut child, lines) = client(&home);
    attached(&home, 1);
    drop(lines);
    assert!(child.wait().expect("it ends").success());
    order(&home, "kept");
    assert_eq!(session(&home)["pending"], 1);
}

/// Runs a hook of the client whose message socket is at `socket`.
fn hook_with_socket(home: &Home, socket: &std::path::Path, stdin: &str) -> Output {
    hook_from(home, ("cli", socket), stdin)
}

/// The same, of a client that was started as `entrypoint`.
fn hook_from(home: &Home, (entrypoint, socket): (&str, &std::path::Path), stdin: &str) -> Output {
    let mut child = home
        .command(&["hook", "claude"])
        .env("CLAUDE_CODE_SESSION_ID", "s1")
        .env("CLAUDE_CODE_ENTRYPOINT", entrypoint)
        // This process: the listener at the socket has to be the client.
        .env("CLAUDE_PID", std::process::id().to_string())
        .env("CLAUDE_CODE_MESSAGING_SOCKET", socket)
        .env("CLAUDE_CODE_MESSAGING_TOKEN", "a-secret")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    child.stdin.take().expect("piped").write_all(stdin.as_bytes()).expect("read");
    child.wait_with_output().expect("it ends")
}

#[test]
fn session_without_follower_is_woken_through_message_socket() {
    let home = home();
    let daemon = home.serve_logging("debug");
    let socket = UnixListener::bind(home.path("messages")).expect("a socket");
    let stop = r#"{"hook_event_name":"Stop","session_id":"s1","cwd":"/w"}"#;
    hook_with_socket(&home, &home.path("messages"), stop);
    order(&home, "pushed");
    let (mut connection, _) = socket.accept().expect("the daemon connects");
    let mut lines = String::new();
    connection.read_to_string(&mut lines).expect("text");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.first(), Some(&json!({ "type": "auth", "token": "a-secret" })));
    let said = at(&lines[1], "/message/content").as_str().expect("text");
    assert!(said.starts_with("aside (automated notification): orders: "), "{said}");
    assert!(!said.contains("<notifications") && !said.contains('\n'), "one sentence: {said}");
    assert_eq!(session(&home)["pending"], 1, "nothing is claimed");
    assert!(prompted(&home, "s1", said).contains("pushed"));
    assert_eq!(session(&home)["pending"], 0);

    // A lost socket loses no notification: the next hook delivers it.
    drop((connection, socket));
    home.exchange("s1", &json!({ "point": "turn_end", "carrier": "c2" }));
    order(&home, "later");
    eventually("the wake was given up", || (session(&home)["pending"] == 1).then_some(()));
    let prompt = r#"{"hook_event_name":"UserPromptSubmit","session_id":"s1","cwd":"/w","prompt":"go"}"#;
    assert!(text(&home.hook(prompt).stdout).contains("later"));
    let log = daemon.stop().log;
    assert!(!log.contains("a-secret"), "{log}");
    let state = walk(&home.state());
    assert!(!state.windows(8).any(|bytes| bytes == b"a-secret"), "the token is in the state folder");
}

#[test]
fn a_client_holding_messages_is_woken_by_hook() {
    let home = home();
    // A daemon that a client started is not a stranger to it, so it has to be a process of its own.
    home.print(&["up"]);
    let socket = UnixListener::bind(home.path("messages")).expect("a socket");
    socket.set_nonblocking(true).expect("set");
    let transcript = home.path("claude/projects/-w/s1.jsonl");
    let stop = |mode: &str| {
        let stop = json!({ "hook_event_name": "Stop", "session_id": "s1", "cwd": "/w", "permission_mode": mode,
            "transcript_path": transcript });
        hook_with_socket(&home, &home.path("messages"), &stop.to_string());
    };
    let route = || at(&home.get("/v1/clients"), "/attached/0").clone();
    stop("bypassPermissions");
    assert_eq!(route(), json!({ "session": "s1", "wake_route": "message_socket", "is_held": true }));
    order(&home, "held");
    let listed = home.run(&["doctor", "--verbose"]);
    assert!(text(&listed.stdout).contains("the client holds messages"), "{listed:?}");
    assert_eq!((session(&home)["pending"].clone(), socket.accept().is_err()), (json!(1), true));

    // Its user's setting goes before the mode.
    std::fs::create_dir_all(home.path("claude")).expect("a folder");
    let set = |value: &str| {
        let settings = json!({ "crossSessionInbound": value }).to_string();
        std::fs::write(home.path("claude/settings.json"), settings).expect("written");
    };
    set("hold");
    stop("default");
    assert_eq!((route()["is_held"].clone(), socket.accept().is_err()), (json!(true), true));
    set("accept");
    stop("bypassPermissions");
    eventually("the message", || socket.accept().ok());
    assert_eq!((route()["is_held"].clone(), session(&home)["pending"].clone()), (Value::Null, json!(1)));
    assert!(prompted(&home, "s1", "go").contains("held"));
    home.print(&["down"]);
}

#[test]
fn a_waiting_client_without_a_terminal_is_woken() {
    let home = home();
    let _daemon = home.serve();
    let socket = UnixListener::bind(home.path("messages")).expect("a socket");
    socket.set_nonblocking(true).expect("set");
    let transcript = home.path("claude/projects/-w/s1.jsonl");
    let stop =
        json!({ "hook_event_name": "Stop", "session_id": "s1", "cwd": "/w", "transcript_path": transcript });
    hook_from(&home, ("sdk-cli", &home.path("messages")), &stop.to_string());
    std::fs::create_dir_all(home.path("claude/sessions")).expect("a folder");
    let pid = std::process::id();
    let write = |status: &str| {
        let file = json!({ "pid": pid, "sessionId": "s1", "status": status }).to_string();
        std::fs::write(home.path(&format!("claude/sessions/{pid}.json")), file).expect("written");
    };
    write("busy");
    order(&home, "waits");
    eventually("it is pending", || (session(&home)["pending"] == 1).then_some(()));
    assert!(socket.accept().is_err(), "nothing is pushed to a busy client");
    write("idle");
    eventually("the message", || socket.accept().ok());
}

#[test]
fn two_idle_sessions_in_a_folder_wake_once() {
    let home = home();
    let _daemon = home.serve();
    for session in ["s1", "s2"] {
        let harness = json!({ "name": "loop", "workspace": "/w" });
        home.exchange(session, &json!({ "point": "turn_end", "carrier": "c1", "harness": harness }));
    }
    let wake = |session: &str| home.get(&format!("/v1/sessions/{session}"))["wake"].clone();
    let pending = |session: &str| home.get(&format!("/v1/sessions/{session}"))["pending"].clone();
    home.publish(&json!({ "type": "tool.call.failure", "severity": "critical", "workspace": "/w",
        "payload": { "tool_name": "deploy" } }));
    assert_eq!((wake("s1"), wake("s2")), (Value::Null, json!("start_turn")));
    assert_eq!((pending("s1"), pending("s2")), (json!(1), json!(1)));
    let start = json!({ "point": "turn_start", "carrier": "c2", "turn": "t2" });
    let answer = home.exchange("s2", &start).json();
    home.ask(
        "POST",
        "/v1/sessions/s2/exchange",
        &json!({ "point": "turn_end", "carrier": "c3", "turn": "t2",
        "ack": [answer["injection"]] })
        .to_string(),
    );
    assert_eq!((wake("s1"), pending("s1")), (Value::Null, json!(1)));
    assert!(home.exchange("s1", &start).json()["text"].as_str().is_some_and(|text| text.contains("deploy")));
}

/// An idle session of this process, in the home's folder.
fn own_idle_session(home: &Home, session: &str, pid: u32) {
    let harness = json!({ "name": "loop", "workspace": home.work(), "pid": pid });
    home.exchange(
        session,
        &json!({ "point": "turn_start", "carrier": "c1", "turn": "t1", "harness": harness }),
    );
    home.exchange(session, &json!({ "point": "turn_end", "carrier": "c2", "turn": "t1" }));
}

fn woken_for(home: &Home, session: &str) -> Value {
    home.get(&format!("/v1/sessions/{session}/wait?for=wake&timeout=25s"))
}

#[test]
fn end_of_its_own_task_wakes_a_session() {
    let home = home();
    let _daemon = home.serve();
    own_idle_session(&home, "s1", std::process::id());
    assert_eq!(home.run(&["run", "--", "sh", "-c", "exit 3"]).status.code(), Some(3));
    assert_eq!(woken_for(&home, "s1")["reason"], "high: background_task");
    let start = json!({ "point": "turn_start", "carrier": "c3", "turn": "t2" });
    let text = home.exchange("s1", &start).json()["text"].clone();
    assert!(text.as_str().is_some_and(|text| text.contains("exit_code: 3")), "{text}");

    // With a scope of its own it is for the folder, and waits.
    home.exchange("s1", &json!({ "point": "turn_end", "carrier": "c4", "turn": "t2" }));
    let args = ["run", "--workspace", &home.work(), "--", "sh", "-c", "exit 4"];
    assert_eq!(home.run(&args).status.code(), Some(4));
    let found =
        eventually("the end", || Some(home.get("/v1/sessions/s1")).filter(|session| session["pending"] == 1));
    assert_eq!(found["wake"], Value::Null);
}

#[test]
fn an_end_that_the_client_reports_wakes_nobody() {
    let home = home();
    let _daemon = home.serve();
    let stop = json!({ "hook_event_name": "Stop", "session_id": "s1", "cwd": home.work(),
        "transcript_path": home.path("claude/projects/-w/s1.jsonl") });
    tell(&home, &stop.to_string());
    assert_eq!(home.run(&["run", "--", "sh", "-c", "exit 3"]).status.code(), Some(3));
    // One that the client does not run any more, since its shell has ended, is not reported by it.
    let program = home.command(&[]).get_program().to_owned();
    let mut shell = std::process::Command::new("sh");
    let script = "\"$0\" run -- sh -c 'sleep 0.5; exit 4' >/dev/null 2>&1 &";
    // Where the shell has ended before the task is known, a variable of the client names it.
    shell.args(["-c", script]).arg(program).env_clear().env("CLAUDE_CODE_SESSION_ID", "s1");
    for (name, value) in home.command(&[]).get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    shell.current_dir(home.work()).status().expect("a shell");
    assert_eq!(woken_for(&home, "s1")["reason"], "high: background_task");
    let context = prompted(&home, "s1", "go");
    assert!(context.contains("exit_code: 4") && !context.contains("exit_code: 3"), "{context}");
}

#[test]
fn an_agents_message_wakes_and_is_not_critical() {
    let home = home();
    let _daemon = home.serve();
    own_idle_session(&home, "s1", std::process::id());
    own_idle_session(&home, "s2", 1);
    let send = ["publish", "message.agent.sent", "--session", "s2", "--severity", "critical", "text=Look."];
    home.print(&send);
    assert_eq!(woken_for(&home, "s2")["reason"], "high: message");
    let start = json!({ "point": "turn_start", "carrier": "c3", "turn": "t2" });
    let answer = home.exchange("s2", &start).json();
    let text = answer["text"].as_str().expect("a text");
    assert!(text.contains("Look.") && text.contains("untrusted"), "{text}");

    // A source that is not trusted wakes nobody.
    home.exchange("s2", &json!({ "point": "turn_end", "carrier": "c4", "turn": "t2" }));
    home.publish(
        &json!({ "type": "task.failed", "source": "planner", "session": "s2", "payload": { "task": "t" } }),
    );
    let found =
        eventually("the end", || Some(home.get("/v1/sessions/s2")).filter(|session| session["pending"] == 1));
    assert_eq!(found["wake"], Value::Null);
}

/// The bytes of every file below `folder`.
fn walk(folder: &std::path::Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        bytes.extend(if path.is_dir() { walk(&path) } else { std::fs::read(&path).unwrap_or_default() });
    }
    bytes
}

#[test]
fn prompt_notification_waits_for_the_users_decision() {
    let home = home();
    let _daemon = home.serve();
    let stop = r#"{"hook_event_name":"Stop","session_id":"s1","cwd":"/w"}"#;
    home.hook(stop);
    home.publish(&json!({ "type": "shop.offer.made", "session": "s1", "payload": { "n": 1 } }));
    let shown = text(&home.hook(stop).stdout);
    assert_eq!(shown, "{\"systemMessage\":\"aside: 1 waiting for you: offers\"}");
    assert_eq!(text(&home.hook(stop).stdout), "");
    let mut statusline = home
        .command(&["statusline", "claude", "--wrap", "printf main; cat >/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    statusline.stdin.take().expect("piped").write_all(b"{\"session_id\":\"s1\"}").expect("read");
    assert_eq!(
        text(&statusline.wait_with_output().expect("it ends").stdout),
        "main | aside \u{25cf} 1 for you"
    );
    let listed = home.print(&["inbox"]);
    assert!(listed.contains("high offers") && listed.contains("for the user of s1"), "{listed}");
    let id = listed.split_whitespace().next().expect("an id");
    home.print(&["inbox", "discuss", id]);
    let delivered = eventually("the agent gets it", || {
        let prompt = r#"{"hook_event_name":"UserPromptSubmit","session_id":"s1","cwd":"/w","prompt":"go"}"#;
        Some(text(&home.hook(prompt).stdout)).filter(|stdout| stdout.contains("additionalContext"))
    });
    assert!(delivered.contains("shop.offer.made"), "{delivered}");
    assert_eq!(home.print(&["inbox"]), "no pending notifications\n");
    let output = home.run(&["inbox", "dismiss", "n000000000000"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("there is no pending notification"), "{output:?}");
}
