//! Clients that die, stop without a report, or ran before the daemon; and hooks with odd input.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

use serde_json::{Value, json};

use crate::support::daemon::{Home, eventually, text};

const ACTIVE: &str = "[subscriber]\nid = \"orders\"\n[events]\ntypes = [\"shop.order.*\"]\nseverity_filter = \"debug\"\n\
    [batching]\nwindow_ms = 0\n[output]\npriority = \"critical\"\nactivation = \"active\"\ntemplate = \"generic\"\n";

/// A client: a process that reads lines and runs a hook for each, with the line as its stdin.
struct FakeClient {
    child: Child,
    hooks: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl FakeClient {
    fn start(home: &Home) -> Self {
        Self::with(home, "CLAUDE_PID=$$")
    }

    /// `names`: the variables that it sets for its hooks.
    fn with(home: &Home, names: &str) -> Self {
        let aside = home.command(&[]);
        let loop_ =
            format!("while read -r line; do printf '%s' \"$line\" | {names} \"$0\" hook claude; echo; done");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &loop_]).arg(aside.get_program()).env_clear();
        shell.envs(aside.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut child = shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .current_dir(home.work())
            .spawn()
            .expect("a shell");
        let hooks = child.stdin.take().expect("piped");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, hooks, said }
    }

    /// Opens the session. A hook gives up on a busy machine, so this repeats it until the daemon
    /// knows the client's process.
    fn open(&mut self, home: &Home, session: &str) {
        let pid = self.child.id();
        let start = json!({ "hook_event_name": "SessionStart", "session_id": session, "source": "startup", "cwd": home.work(),
            "transcript_path": home.path("client/projects/w/s.jsonl") });
        eventually("the session is open", || {
            self.hook(&start);
            let harness = home.get(&format!("/v1/sessions/{session}"))["harness"].clone();
            (harness["pid"] == pid && harness["pid_started"].is_u64()).then_some(())
        });
    }

    /// Runs a hook; returns its output.
    fn hook(&mut self, fields: &Value) -> String {
        writeln!(self.hooks, "{fields}").expect("it reads");
        let mut said = String::new();
        self.said.read_line(&mut said).expect("text");
        said.trim_end().to_owned()
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("killed");
    }
}

fn home() -> Home {
    Home::with(&[("subscribers/orders.toml", ACTIVE)])
}

fn is_open(home: &Home, session: &str) -> bool {
    home.get(&format!("/v1/sessions/{session}"))["is_open"] == true
}

fn order_for_the_folder(home: &Home, note: &str) {
    home.publish(
        &json!({ "type": "shop.order.placed", "workspace": home.work(), "payload": { "note": note } }),
    );
}

#[test]
fn event_after_client_kill_reaches_the_next_session() {
    let home = home();
    let _daemon = home.serve();
    let mut first = FakeClient::start(&home);
    first.open(&home, "s1");
    assert!(is_open(&home, "s1"));
    first.kill();
    eventually("the session is closed", || (!is_open(&home, "s1")).then_some(()));
    order_for_the_folder(&home, "mail");
    let mut second = FakeClient::start(&home);
    let start = json!({ "hook_event_name": "SessionStart", "session_id": "s2", "source": "startup", "cwd": home.work() });
    let said =
        eventually("the next one gets it", || Some(second.hook(&start)).filter(|said| said.contains("mail")));
    assert!(said.contains("additionalContext"), "{said}");
}

#[test]
fn daemon_start_closes_sessions_of_dead_clients_only() {
    let home = home();
    let daemon = home.serve();
    let (mut dead, mut alive) = (FakeClient::start(&home), FakeClient::start(&home));
    dead.open(&home, "dead");
    alive.open(&home, "alive");
    drop(daemon);
    dead.kill();
    let _daemon = home.serve();
    eventually("the session is closed", || (!is_open(&home, "dead")).then_some(()));
    assert!(is_open(&home, "alive"));
    alive.kill();
    eventually("the other one is watched", || (!is_open(&home, "alive")).then_some(()));
}

#[test]
fn unconfirmed_injection_returns_when_client_is_killed() {
    let home = home();
    let _daemon = home.serve();
    let mut client = FakeClient::start(&home);
    client.open(&home, "s1");
    home.publish(&json!({ "type": "shop.order.placed", "session": "s1", "payload": { "note": "leased" } }));
    let prompt = json!({ "hook_event_name": "UserPromptSubmit", "session_id": "s1", "cwd": home.work(), "prompt": "go" });
    eventually("it is given", || client.hook(&prompt).contains("leased").then_some(()));
    client.kill();
    let closed = eventually("the session is closed", || {
        Some(home.get("/v1/sessions/s1")).filter(|session| session["is_open"] == false)
    });
    assert_eq!([&closed["unconfirmed"], &closed["pending"]], [0, 1], "{closed}");
}

#[test]
fn client_without_hook_process_is_found_by_file() {
    let home = home();
    let _daemon = home.serve();
    let mut client = FakeClient::with(&home, "");
    write_file(&home, client.child.id(), "s1", "idle");
    client.open(&home, "s1");
    client.kill();
    eventually("the session is closed", || (!is_open(&home, "s1")).then_some(()));
}

/// Starts a follower whose client is this process.
fn follower(home: &Home, session: &str) -> (Child, BufReader<ChildStdout>) {
    let mut attach = home.command(&["attach", "claude"]);
    attach.env("CLAUDE_CODE_SESSION_ID", session).env("CLAUDE_CONFIG_DIR", home.path("client"));
    let mut child = attach.stdout(Stdio::piped()).spawn().expect("the program runs");
    let lines = BufReader::new(child.stdout.take().expect("piped"));
    (child, lines)
}

fn next_line(lines: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).expect("text");
    line
}

/// Writes a client's own file about the process `pid`.
fn write_file(home: &Home, pid: u32, session: &str, status: &str) {
    let folder = home.path("client/sessions");
    fs::create_dir_all(&folder).expect("a folder");
    let file = json!({ "pid": pid, "sessionId": session, "cwd": home.work(), "status": status });
    fs::write(folder.join(format!("{pid}.json")), file.to_string()).expect("written");
}

#[test]
fn follower_opens_and_wakes_session_older_than_daemon() {
    let home = home();
    let daemon = home.serve();
    order_for_the_folder(&home, "waits");
    drop(daemon);
    // The client continued in another session than the one in which the follower was started.
    write_file(&home, std::process::id(), "s2", "idle");
    let (mut child, mut lines) = follower(&home, "s1");
    let _daemon = home.serve();
    assert!(next_line(&mut lines).contains("waits"));
    let opened = home.get("/v1/sessions/s2");
    assert_eq!((&opened["is_open"], &opened["harness"]["pid"]), (&json!(true), &json!(std::process::id())));
    assert_eq!(opened["harness"]["workspace"], home.work());
    assert_eq!(home.ask("GET", "/v1/sessions/s1", "").status(), 404);
    let clients = home.get("/v1/clients");
    assert_eq!(clients["attached"], json!([{ "session": "s2", "wake_route": "follower" }]));
    child.kill().expect("it runs");
    child.wait().expect("killed");
}

#[test]
fn session_stopped_without_a_hook_is_woken() {
    let home = home();
    let _daemon = home.serve();
    write_file(&home, std::process::id(), "s1", "busy");
    let (mut child, mut lines) = follower(&home, "s1");
    eventually("the follower opens it", || {
        (home.ask("GET", "/v1/sessions/s1", "").status() == 200).then_some(())
    });
    let prompt = json!({ "point": "turn_start", "carrier": "c1", "harness": { "name": "claude-code" } });
    home.exchange("s1", &prompt);
    home.publish(&json!({ "type": "shop.order.placed", "session": "s1", "payload": { "note": "stopped" } }));
    eventually("it waits for the turn", || {
        (home.get("/v1/sessions/s1")["wake"] == "inject_and_continue").then_some(())
    });
    write_file(&home, std::process::id(), "s1", "shell");
    assert!(next_line(&mut lines).contains("stopped"));
    let events = home.get("/v1/events?type=agent.waiting");
    assert_eq!(events["events"], json!([]), "nobody said that the agent waits for its user");
    child.kill().expect("it runs");
    child.wait().expect("killed");
}

#[test]
fn unusual_folder_name_does_not_disable_hooks() {
    let home = home();
    let _daemon = home.serve();
    let ask = |session: &str, cwd: &str| {
        let stdin = json!({ "hook_event_name": "UserPromptSubmit", "session_id": session, "cwd": cwd, "prompt": "go" });
        let headers = [("content-type", "application/json")];
        let answer =
            home.client().request("POST", "/v1/hooks/claude", &headers, stdin.to_string().as_bytes());
        let answer = answer.expect("answered");
        (answer.status, text(&answer.body))
    };
    let odd = "/home/u/\u{645}\u{6cc}\u{200c}\u{62e}\u{648}\u{627}\u{647}\u{645}/\u{1f469}\u{200d}\u{1f4bb}";
    for (session, cwd, expected) in [("zwnj", odd, odd), ("slashes", "//w/./sub/.", "/w/sub")] {
        assert_eq!(ask(session, cwd).0, 204, "{cwd}");
        assert_eq!(home.get(&format!("/v1/sessions/{session}"))["harness"]["workspace"], expected);
        home.publish(
            &json!({ "type": "shop.order.placed", "workspace": cwd, "payload": { "note": session } }),
        );
        let said = eventually("an answer", || Some(ask(session, cwd)).filter(|(status, _)| *status == 200)).1;
        assert!(said.contains(session), "{said}");
    }
    assert_eq!(ask("relative", "w").0, 204);
    let troubles = home.get("/v1/clients")["troubles"].clone();
    assert_eq!(
        (&troubles[0]["kind"], &troubles[0]["count"]),
        (&json!("left_out cwd"), &json!(1)),
        "{troubles}"
    );
}
