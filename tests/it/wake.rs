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
    [output]\npriority = \"high\"\nactivation = \"active\"\ntemplate = \"generic\"\n";
const PROMPT: &str = "[subscriber]\nid = \"offers\"\n[events]\ntypes = [\"shop.offer.*\"]\nseverity_filter = \"debug\"\n\
    [output]\npriority = \"high\"\nactivation = \"prompt\"\ntemplate = \"generic\"\n";

fn home() -> Home {
    Home::with(&[("subscribers/orders.toml", ACTIVE), ("subscribers/offers.toml", PROMPT)])
}

fn order(home: &Home, note: &str) {
    home.publish(&json!({ "type": "shop.order.placed", "session": "s1", "payload": { "note": note } }));
}

fn session(home: &Home) -> Value {
    home.get("/v1/sessions/s1")
}

/// A client as a plugin's monitor sees it: a shell that starts the monitor and stays its parent.
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

/// Waits until the monitor follows the session's queue.
fn attached(home: &Home, count: u64) {
    eventually("a monitor", || (home.get("/v1/status")["sessions"]["waiting"] == count).then_some(()));
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
    receiver.recv_timeout(PATIENCE).expect("the monitor ends")
}

#[test]
fn a_monitor_prints_each_wake_as_one_line_and_dies_with_its_client() {
    let home = home();
    let daemon = home.serve();
    home.exchange("s1", &json!({ "point": "turn_end", "carrier": "c1" }));
    let (mut child, mut lines) = client(&home);
    attached(&home, 1);
    order(&home, "two\nlines </event>");
    let line = next_line(&mut lines);
    assert!(line.starts_with("aside: orders: ") && !line.contains("</event>"), "{line}");
    let (_, said) = line.split_once(" id=").expect("a name");
    let (id, said) = said.split_once(' ').expect("the content");
    assert_eq!(id.len(), 6, "{line}");
    let said: Value = serde_json::from_str(said).expect("one line of JSON");
    assert_eq!(at(&said, "/subscriber"), "orders");
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

#[test]
fn what_waits_with_a_critical_one_is_printed_whole_as_far_as_the_client_shows_it_and_the_rest_stays() {
    let home = home();
    let _daemon = home.serve();
    home.exchange("s1", &json!({ "point": "turn_end", "carrier": "c1" }));
    let fail = |severity: &str, note: &str| {
        home.publish(
            &json!({ "type": "tool.call.failure", "source": "cli", "severity": severity, "session": "s1",
            "payload": { "tool_name": note, "error_type": "timeout", "error_message": "m".repeat(280) } }),
        );
    };
    // Of eight lines, six fit into the part of a burst that the client shows.
    let marks: Vec<String> = (0..8).map(|number| format!("marker{number}")).collect();
    for mark in &marks {
        fail("error", mark);
        home.exchange(
            "s1",
            &json!({ "point": "after_tool", "carrier": "close", "budget": { "max_notifications": 0 } }),
        );
        home.exchange(
            "s1",
            &json!({ "point": "turn_end", "carrier": mark, "budget": { "max_notifications": 0 } }),
        );
    }
    let (mut child, mut lines) = client(&home);
    attached(&home, 1);
    fail("critical", "now");
    let mut burst = Vec::new();
    while !burst.last().is_some_and(|line: &String| line.contains(" more pending: ")) {
        burst.push(next_line(&mut lines));
    }
    let length: usize = burst.iter().map(|line| line.chars().count()).sum();
    assert!(length <= 2_900 && burst.iter().all(|line| line.chars().count() <= 481), "{burst:#?}");
    assert!(burst[0].starts_with("aside: critical: now timeout"), "{burst:#?}");
    assert!(burst[0].ends_with(" more\n") || burst[0].ends_with(" more"), "{burst:#?}");
    assert!(burst[0].contains("now timeout: mmm") && burst[0].chars().count() <= 101, "{burst:#?}");
    assert!(burst[1].starts_with("aside: critical: now timeout"), "{burst:#?}");
    let delivered: Vec<&String> =
        marks.iter().filter(|mark| burst.iter().any(|line| line.contains(*mark))).collect();
    assert!(delivered.len() >= 3, "{burst:#?}");
    let whole = burst.iter().filter(|line| line.contains(&"m".repeat(280)));
    assert_eq!(whole.count(), delivered.len() + 1, "each that was printed is whole: {burst:#?}");
    let rest = marks.len() - delivered.len();
    assert_eq!(session(&home)["pending"], rest);

    // The turn that begins with them delivers the rest.
    let prompt = format!("<task-notification>{}</task-notification>", burst.concat());
    let prompt =
        json!({ "hook_event_name": "UserPromptSubmit", "session_id": "s1", "cwd": "/w", "prompt": prompt });
    let prompt = prompt.to_string();
    let headers = [("content-type", "application/json")];
    let answer = home.client().request("POST", "/v1/hooks/claude", &headers, prompt.as_bytes());
    let context = text(&answer.expect("answered").body);
    assert_eq!(marks.iter().filter(|mark| context.contains(*mark)).count(), rest, "{context}");
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
fn a_conversation_that_nobody_has_written_to_yet_is_woken() {
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
        tell(&home, r#"{"hook_event_name":"SessionEnd","session_id":"s1","reason":"other"}"#);
        child.kill().expect("it runs");
        child.wait().expect("killed");
        attached(&home, 0);
    }
}

#[test]
fn a_monitor_goes_on_where_its_process_does() {
    let home = home();
    let daemon = home.serve();
    tell(&home, r#"{"hook_event_name":"Stop","session_id":"s1","cwd":"/w"}"#);
    let (mut child, mut lines) = client(&home);
    attached(&home, 1);
    tell(&home, r#"{"hook_event_name":"SessionEnd","session_id":"s1","cwd":"/w","reason":"clear"}"#);
    tell(&home, r#"{"hook_event_name":"SessionStart","session_id":"s2","cwd":"/w","source":"clear"}"#);
    order(&home, "cleared");
    assert!(next_line(&mut lines).contains("cleared"));
    assert_eq!(home.get("/v1/sessions/s2")["state"], "streaming");

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
fn a_monitor_that_another_one_takes_the_place_of_stays_and_says_nothing() {
    let home = home();
    let _daemon = home.serve();
    home.exchange("s1", &json!({ "point": "turn_end", "carrier": "c1" }));
    let (mut first, first_lines) = client(&home);
    attached(&home, 1);
    let follow = home.client();
    let mut stream = follow
        .stream("/v1/sessions/s1/stream?wake_route=monitor", &[])
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
fn a_monitor_nobody_reads_ends_and_loses_nothing() {
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

/// Reads a whole request; returns the carrier in its body.
fn carrier_of(connection: &mut impl Read) -> String {
    let mut request = String::new();
    let mut part = [0; 4_096];
    while !request.contains("\"carrier\"") || !request.ends_with('}') {
        let read = connection.read(&mut part).expect("a request");
        assert_ne!(read, 0, "the request ends early: {request}");
        request.push_str(std::str::from_utf8(&part[..read]).expect("text"));
    }
    let body = request.split_once("\r\n\r\n").expect("a body").1;
    let body: Value = serde_json::from_str(body).expect("JSON");
    body["carrier"].as_str().expect("a carrier").to_owned()
}

#[test]
fn a_monitor_whose_exchange_was_not_answered_makes_it_again_under_its_name() {
    let home = home();
    let listener = UnixListener::bind(home.socket()).expect("a daemon's place");
    let (mut child, _lines) = client(&home);
    let (mut stream, _) = listener.accept().expect("the monitor follows");
    let _read = stream.read(&mut [0; 4_096]).expect("its request");
    let pending = "event: pending\ndata: {\"session\":\"s1\",\"pending\":1,\"wake\":\"start_turn\"}\n\n";
    let chunk = format!("{:x}\r\n{pending}\r\n", pending.len());
    stream
        .write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        )
        .expect("answered");
    // The first daemon dies, the second answers that it stops, the third has nothing to deliver.
    let answers: [&[u8]; 4] = [
        b"",
        b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ];
    let carriers = answers.map(|answer| {
        stream.write_all(chunk.as_bytes()).expect("followed");
        let (mut exchange, _) = listener.accept().expect("an exchange");
        let carrier = carrier_of(&mut exchange);
        exchange.write_all(answer).expect("answered");
        carrier
    });
    child.kill().expect("it runs");
    child.wait().expect("killed");
    assert_eq!((&carriers[0], &carriers[1]), (&carriers[1], &carriers[2]));
    assert_ne!(carriers[2], carriers[3]);
}

/// Runs a hook of the client whose message socket is at `socket`.
fn hook_with_socket(home: &Home, socket: &std::path::Path, stdin: &str) -> Output {
    let mut child = home
        .command(&["hook", "claude"])
        .env("CLAUDE_CODE_SESSION_ID", "s1")
        .env("CLAUDE_CODE_ENTRYPOINT", "cli")
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
fn a_session_without_a_monitor_is_woken_through_its_message_socket() {
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
    assert!(said.contains("<notifications count=\"1\" id=\"") && said.contains("pushed"), "{said}");
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
fn a_prompt_is_shown_to_the_user_who_decides() {
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
    let output = home.run(&["inbox", "dismiss", id]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("there is no pending notification"), "{output:?}");
}
