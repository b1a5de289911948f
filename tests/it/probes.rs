//! Probes in the real daemon: real files, real hooks.

mod borders;
mod hanging_mount;

use std::{
    cell::Cell,
    fs::{self, File},
    io::Write,
    net::TcpListener,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use self::hanging_mount::HangingMount;
use crate::support::{
    daemon::{Home, PATIENCE, at, eventually, text},
    mounts::has_own_mounts,
};

/// Default time that a hook waits.
const HOOK_TIMEOUT: Duration = Duration::from_millis(150);

/// The client of a session in the folder `work`.
struct Client<'h> {
    home: &'h Home,
    session: &'static str,
    work: &'h Path,
    calls: u32,
    /// The number of its current prompt.
    turn: Cell<u32>,
    /// The time after which its hooks give up.
    limit: Duration,
}

impl<'h> Client<'h> {
    fn new(home: &'h Home, session: &'static str, work: &'h Path) -> Self {
        Self { home, session, work, calls: 0, turn: Cell::new(1), limit: PATIENCE }
    }

    /// Runs a hook; returns the text for the agent.
    fn hook(&self, name: &str, fields: Value) -> Option<String> {
        let said = self.answer(name, fields)?;
        Some(at(&said, "/hookSpecificOutput/additionalContext").as_str().expect("text").to_owned())
    }

    fn answer(&self, name: &str, fields: Value) -> Option<Value> {
        let mut input = json!({
            "hook_event_name": name, "session_id": self.session, "prompt_id": format!("p{}", self.turn.get()), "cwd": self.work,
            "transcript_path": self.transcript(),
        });
        input.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        let output = self.home.hook_within(self.limit, 1_000, &input.to_string());
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        (!output.stdout.is_empty()).then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    fn transcript(&self) -> PathBuf {
        self.home.path(self.session)
    }

    /// Appends a line to the client's transcript.
    fn writes_down(&self, line: &Value) {
        let mut file =
            File::options().create(true).append(true).open(self.transcript()).expect("a transcript");
        writeln!(file, "{line}").expect("written");
    }

    /// Why a call is denied; `None` if it runs.
    fn denied(&self, call: Value) -> Option<String> {
        let said = self.answer("PreToolUse", call)?;
        Some(at(&said, "/hookSpecificOutput/permissionDecisionReason").as_str().expect("text").to_owned())
    }

    fn prompt(&self) -> Option<String> {
        self.turn.set(self.turn.get() + 1);
        self.hook("UserPromptSubmit", json!({ "prompt": "go on" }))
    }

    /// Makes a call of `tool` with this input.
    fn call(&mut self, tool: &str, input: Value) -> Option<String> {
        self.call_that_says(tool, input, "ok")
    }

    fn call_that_says(&mut self, tool: &str, input: Value, result: &str) -> Option<String> {
        self.calls += 1;
        let id = format!("{}-{}", self.session, self.calls);
        self.hook("PreToolUse", json!({ "tool_name": tool, "tool_use_id": id, "tool_input": input.clone() }));
        let call =
            json!({ "tool_name": tool, "tool_use_id": id, "tool_input": input, "tool_response": result });
        self.hook("PostToolBatch", json!({ "tool_calls": [call] }))
    }

    fn read(&mut self, name: &str) -> Option<String> {
        self.call("Read", json!({ "file_path": self.work.join(name) }))
    }

    fn run(&mut self, command: &str) -> Option<String> {
        self.call("Bash", json!({ "command": command }))
    }
}

fn home() -> Home {
    with_sources("")
}

/// A home whose daemon does not report other sessions and loops, with more settings.
fn with_sources(more: &str) -> Home {
    let settings = "[sources.sessions]\nenabled = false\n[sources.loop]\nenabled = false\n";
    Home::with(&[("aside.toml", &format!("{settings}{more}"))])
}

#[test]
fn file_change_is_delivered_once_across_daemon_restarts() {
    let home = home();
    let daemon = home.serve();
    let work = tempfile::tempdir().expect("a folder");
    let path = work.path().join("a.rs");
    fs::write(&path, "one\ntwo\n").expect("written");
    let mut client = Client::new(&home, "s1", work.path());
    assert_eq!(client.read("a.rs"), None);
    daemon.kill();
    let daemon = home.serve();
    fs::write(&path, "one\nTWO\n").expect("written");
    let delivered = client.run("sleep 0").expect("it is delivered");
    // The new daemon does not have the earlier text, so it names no lines.
    assert!(delivered.contains("file_changed: a.rs") && !delivered.contains("lines"), "{delivered}");
    // The end of the turn proves that the agent has it.
    assert_eq!(client.hook("Stop", json!({})), None);
    daemon.kill();
    let daemon = home.serve();
    assert_eq!((client.prompt(), client.run("ls")), (None, None), "once, whatever dies");
    for (content, lines) in [("ONE\nTWO\n", None), ("ONE\ntwo\n", Some("lines: 2"))] {
        fs::write(&path, content).expect("written");
        let delivered = client.run("ls").expect("it changed again");
        assert!(
            delivered.contains("file_changed: a.rs") && delivered.contains(lines.unwrap_or_default()),
            "{delivered}"
        );
    }
    assert_eq!(daemon.stop().status.code(), Some(0));
}

#[test]
fn source_list_shows_deliveries_and_reasons_for_disabling() {
    let home = home();
    let _daemon = home.serve();
    let work = tempfile::tempdir().expect("a folder");
    let path = work.path().join("a.rs");
    fs::write(&path, "one\n").expect("written");
    let mut client = Client::new(&home, "s1", work.path());
    client.read("a.rs");
    fs::write(&path, "two\n").expect("written");
    client.run("ls").expect("it changed");
    let view = eventually("it is counted", || {
        let view = home.get("/v1/sources");
        (at(&view, "/sources/0/delivered") == &json!(1)).then_some(view)
    });
    let files = at(&view, "/sources/0");
    assert_eq!(
        (&files["name"], &files["is_on"], &files["events"]),
        (&json!("files"), &json!(true), &json!(1))
    );
    assert!(files["tokens"].as_u64() > Some(5) && files["last_at"].is_string(), "{files}");
    assert!(at(&view, "/looks/count").as_u64() >= Some(2) && at(&view, "/looks/mean_us").as_u64() > Some(0));
    let metrics = text(&home.ask("GET", "/metrics", "").0.body);
    assert!(!metrics.contains("aside_look_duration_seconds_count 0\n"), "{metrics}");
    let shown = home.print(&["sources", "--all"]);
    for line in [
        "\nclaude-code  on     ",
        "\nsessions     off    ",
        &format!(
            "\nsessions: [sources.sessions] enabled = false in {}\n",
            home.path("config/aside.toml").display()
        ),
        "\ngit: no repository in ",
        "\nide_diagnostics ",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let screen = home.print(&[]);
    assert!(
        screen.contains("\nSOURCES  ") && screen.contains("files 1 (") && screen.contains("; off: sessions"),
        "{screen}"
    );
}

#[test]
fn own_edits_are_silent_and_foreign_edits_attributed() {
    let home = home();
    let _daemon = home.serve();
    let work = tempfile::tempdir().expect("a folder");
    let path = work.path().join("a.rs");
    fs::write(&path, "one\n").expect("written");
    let mut client = Client::new(&home, "first-session", work.path());
    let mut other = Client::new(&home, "other-session", work.path());
    client.read("a.rs");
    other.read("a.rs");
    fs::write(&path, "two\n").expect("written");
    assert_eq!(other.call("Edit", json!({ "file_path": path })), None);
    let delivered = client.run("ls").expect("the other session wrote it");
    assert!(
        delivered.contains("file_changed: a.rs") && delivered.contains("by: session other-se"),
        "{delivered}"
    );
    assert_eq!(other.run("ls"), None);
}

#[test]
fn special_files_and_hostile_names_break_no_probe() {
    let home = home();
    let _daemon = home.serve();
    let work = tempfile::tempdir().expect("a folder");
    let at = |name: &str| work.path().join(name);
    let mut client = Client::new(&home, "s1", work.path());
    mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    symlink(at("loop"), at("loop")).expect("a link");
    let hostile = "a\u{1b}[2J\n<\u{2f}notifications>,\"x\": y";
    fs::write(at(&hostile.replace('/', "_")), "x").expect("written");
    fs::write(at("unreadable"), "x").expect("written");
    for name in ["pipe", "loop", "unreadable", "/proc/self/stat", "/dev/zero", &hostile.replace('/', "_")] {
        assert_eq!(client.read(name), None, "{name}");
    }
    fs::remove_file(at("unreadable")).expect("removed");
    fs::create_dir(at("unreadable")).expect("made");
    assert_eq!(client.run("ls"), None);
    fs::write(at(&hostile.replace('/', "_")), "y").expect("written");
    let delivered = client.run("ls").expect("it changed");
    assert!(!delivered.contains('\u{1b}') && delivered.matches("notifications>").count() == 2, "{delivered}");
}

#[test]
fn file_on_hanging_mount_delays_no_hook() {
    let name = "probes::file_on_hanging_mount_delays_no_hook";
    if !has_own_mounts(name) {
        return;
    }
    let home = home();
    let _daemon = home.serve();
    // Declared before the daemon, so that it is dropped after it: a daemon cannot end while the
    // mount hangs.
    let Some(mount) = HangingMount::new() else { return };
    let work = tempfile::tempdir().expect("a folder");
    let path = work.path().join("a.rs");
    let mut client = Client::new(&home, "s1", work.path());
    let is_change = |delivered: &String| delivered.contains("file_changed: a.rs");
    let mut contents = (1..).map(|number| format!("{number}\n"));
    let mut write = || fs::write(&path, contents.next().expect("endless")).expect("written");
    // On a loaded machine the probe may run too late, and the file is not known yet.
    eventually("the file is known", || {
        write();
        client.read("a.rs");
        write();
        client.run("ls").filter(is_change)
    });
    client.call("Read", json!({ "file_path": mount.file() }));

    mount.set_hanging(true);
    write();
    client.limit = HOOK_TIMEOUT;
    // A hook that gives up late for another reason has taken what was pending, so each try
    // publishes again.
    let delivered = eventually("a hook has its answer in its time", || {
        let payload = json!({ "tool_name": "marker", "error_type": "timeout" });
        home.publish(
            &json!({ "type": "tool.call.failure", "severity": "error", "session": "s1", "payload": payload }),
        );
        client.run("ls")
    });
    assert!(delivered.contains("marker") && !is_change(&delivered), "{delivered}");
    eventually("the mount is asked", || mount.holds_somebody_up().then_some(()));
    client.limit = PATIENCE;
    assert_eq!(client.run("ls").filter(is_change), None, "it still hangs");

    mount.set_hanging(false);
    eventually("the change is said", || client.run("ls").filter(is_change));
    assert_eq!(client.run("ls").filter(is_change), None, "once");
}

#[test]
fn a_source_that_is_off_says_nothing() {
    let home = with_sources("[sources.files]\nenabled = false\n");
    let _daemon = home.serve();
    let work = tempfile::tempdir().expect("a folder");
    fs::write(work.path().join("a.rs"), "one").expect("written");
    let mut client = Client::new(&home, "s1", work.path());
    client.read("a.rs");
    fs::write(work.path().join("a.rs"), "two").expect("written");
    assert_eq!(client.run("ls"), None);
}

#[test]
fn custom_agent_loop_reports_files_in_observed_calls() {
    let home = home();
    let _daemon = home.serve();
    let work = tempfile::tempdir().expect("a folder");
    fs::write(work.path().join("a.rs"), "one").expect("written");
    let exchange = |carrier: &str, observe: Value| {
        let harness = json!({ "name": "own-loop", "workspace": work.path() });
        home.exchange(
            "s1",
            &json!({ "point": "after_tool", "carrier": carrier, "harness": harness, "observe": observe }),
        )
    };
    let files = json!([{ "path": "a.rs", "by": "read" }]);
    let call = json!({ "type": "tool.call.success", "payload": { "tool_name": "read", "files": files } });
    assert_eq!(exchange("c1", json!([call])).status(), 204);
    fs::write(work.path().join("a.rs"), "two").expect("written");
    let answer = exchange("c2", json!([])).json();
    let delivered = at(&answer, "/text").as_str().expect("a text");
    assert!(delivered.contains("file_changed: a.rs"), "{delivered}");
}

/// The client's transcript lines for a message of the model, and for an automatic compaction.
fn message(tokens: u64) -> Value {
    let usage =
        json!({ "input_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": tokens - 9 });
    json!({ "type": "assistant", "isSidechain": false, "message": { "model": "m-1", "usage": usage } })
}

fn compaction(tokens: u64) -> Value {
    let metadata = json!({ "trigger": "auto", "preTokens": tokens });
    json!({ "type": "system", "subtype": "compact_boundary", "compactMetadata": metadata })
}

#[test]
fn nearly_full_context_is_reported_with_known_limit() {
    let home = home();
    let _daemon = home.serve();
    let work = tempfile::tempdir().expect("a folder");
    let mut client = Client::new(&home, "s1", work.path());
    client.writes_down(&message(150_000));
    assert_eq!(client.run("ls"), None, "no limit is known");
    client.writes_down(&compaction(160_000));
    assert_eq!(client.hook("SessionStart", json!({ "source": "compact" })), None);
    client.writes_down(&message(20_000));
    assert_eq!(client.run("ls"), None);
    client.writes_down(&message(130_000));
    let delivered = client.run("ls").expect("80 percent are reached");
    assert!(delivered.contains("budget_warning: context 81% of 160k used"), "{delivered}");
    assert_eq!(client.run("ls"), None);
    client.writes_down(&compaction(150_000));
    assert_eq!(client.hook("SessionStart", json!({ "source": "compact" })), None, "it holds no more");
    let mut other = Client::new(&home, "s2", work.path());
    other.writes_down(&message(141_000));
    let delivered = other.run("ls").expect("this model's limit is known");
    assert!(delivered.contains("budget_warning: context 94% of 150k used"), "{delivered}");
}

#[test]
fn trailing_attachment_does_not_hide_a_full_context() {
    let home = home();
    let _daemon = home.serve();
    let work = tempfile::tempdir().expect("a folder");
    let mut client = Client::new(&home, "s1", work.path());
    client.writes_down(&message(150_000));
    client.writes_down(&compaction(160_000));
    client.writes_down(&message(130_000));
    // 2.1.332 does so too, with a copy of its prompt.
    client.writes_down(
        &json!({ "type": "attachment", "attachment": { "type": "x", "text": "y".repeat(66_000) } }),
    );
    let said = client.run("ls").expect("80 percent are reached");
    assert!(said.contains("budget_warning: context 81% of 160k used"), "{said}");
    assert_eq!(client.run("ls"), None);
}

#[test]
fn context_limit_is_learned_from_the_status_line() {
    let home = home();
    let _daemon = home.serve();
    let work = tempfile::tempdir().expect("a folder");
    let mut client = Client::new(&home, "s1", work.path());
    client.writes_down(&message(150_000));
    assert_eq!(client.run("ls"), None);
    let window = json!({ "used_percentage": 75, "context_window_size": 200_000 });
    let status = json!({ "session_id": "s1", "context_window": window }).to_string();
    let drawn = home.ask("POST", "/v1/statusline/claude", &status);
    assert_eq!(drawn.status(), 204);
    assert_eq!(client.run("ls"), None);
    client.writes_down(&message(170_000));
    let delivered = client.run("ls").expect("it is nearly full");
    assert!(delivered.contains("budget_warning: context 85% of 200k used"), "{delivered}");
}

#[test]
fn unreported_background_task_end_is_delivered_once() {
    let home = with_sources("[sources.background]\ngrace = \"1s\"\n");
    let _daemon = home.serve();
    let work = tempfile::tempdir().expect("a folder");
    let mut client = Client::new(&home, "s1", work.path());
    let running = |id: &str| {
        format!("Command running in background with ID: {id}. Output is being written to: /t/{id}.output.")
    };
    for id in ["b1", "b2", "b3"] {
        let command = json!({ "command": format!("make {id}"), "run_in_background": true });
        assert_eq!(client.call_that_says("Bash", command, &running(id)), None);
    }
    let stop = |client: &Client<'_>, ids: &[&str]| {
        let tasks: Vec<Value> = ids.iter().map(|id| json!({ "id": id, "type": "shell" })).collect();
        client.hook("Stop", json!({ "stop_hook_active": false, "background_tasks": tasks }))
    };
    assert_eq!(stop(&client, &["b1", "b2", "b3"]), None);
    client.turn.set(2);
    let report =
        "<task-notification>\n<task-id>b2</task-id>\n<status>completed</status>\n</task-notification>";
    assert_eq!(client.hook("UserPromptSubmit", json!({ "prompt": report })), None);
    client.writes_down(&json!({ "attachment": { "prompt": report.replace("b2", "b3") } }));
    assert_eq!(stop(&client, &[]), None);
    let delivered = eventually("its end is said", || client.prompt());
    assert!(
        delivered.contains("background_ended: b1 make b1")
            && delivered.contains("client_did_not_report_it: true"),
        "{delivered}"
    );
    assert!(!delivered.contains("make b2") && !delivered.contains("make b3"), "{delivered}");
    assert_eq!((client.prompt(), client.run("ls")), (None, None), "once");
}

/// A server in the background of a client: its listener, and its output file.
struct Server {
    listener: Option<TcpListener>,
    port: u16,
}

impl Server {
    /// Starts one as `id`; the client reports its command as running.
    fn start(client: &mut Client<'_>, id: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let output = client.home.path(&format!("{id}.output"));
        fs::write(&output, format!("ready\n  Local: http://localhost:{port}/\n")).expect("written");
        let said = format!(
            "Command running in background with ID: {id}. Output is being written to: {}. You will be notified.",
            output.display()
        );
        let command = json!({ "command": "npm run dev", "run_in_background": true });
        assert_eq!(client.call_that_says("Bash", command, &said), None);
        Self { listener: Some(listener), port }
    }

    fn close(&mut self) {
        self.listener = None;
    }

    fn open(&mut self) {
        self.listener = Some(TcpListener::bind(("127.0.0.1", self.port)).expect("it is free again"));
    }
}

/// Repeats one command until an answer has text, and returns the text.
fn until_delivered(client: &mut Client<'_>) -> String {
    let mut number = 0;
    eventually("it is delivered", || {
        number += 1;
        client.run(&format!("ls {number}"))
    })
}

#[test]
fn closed_port_and_its_return_are_delivered_once() {
    let home = with_sources("[sources.ports]\ngrace = \"1s\"\n");
    let daemon = home.serve();
    let work = tempfile::tempdir().expect("a folder");
    let mut client = Client::new(&home, "s1", work.path());
    let mut server = Server::start(&mut client, "b1");
    assert_eq!(client.run("ls"), None);
    server.close();
    assert_eq!(client.run("ls"), None, "it may load its program again");
    daemon.kill();
    let _daemon = home.serve();
    let port = server.port;
    let delivered = until_delivered(&mut client);
    assert!(
        delivered.contains(&format!("port_closed: {port}\n"))
            && delivered.contains("was: \"npm run dev, up "),
        "{delivered}"
    );
    assert_eq!((client.prompt(), client.run("ls")), (None, None), "once");
    server.open();
    let delivered = client.run("ls").expect("it is open again");
    assert!(delivered.contains(&format!("port_opened: {port}\n")), "{delivered}");
    assert_eq!(client.run("ls"), None, "once");
}

#[test]
fn server_start_reload_and_own_stop_are_silent() {
    let home = with_sources("[sources.ports]\ngrace = \"1s\"\n");
    let _daemon = home.serve();
    let work = tempfile::tempdir().expect("a folder");
    let mut client = Client::new(&home, "s1", work.path());
    let mut servers = ["b1", "b2"].map(|id| Server::start(&mut client, id));
    let mut said = vec![client.run("ls")];
    for server in &mut servers {
        server.close();
    }
    said.push(client.run("vi a.rs"));
    for server in &mut servers {
        server.open();
    }
    said.extend([client.run("ls"), client.prompt()]);
    for server in &mut servers {
        server.close();
    }
    said.push(client.call("TaskStop", json!({ "task_id": "b1" })));
    said.push(client.run("pkill -f 'npm run dev'"));
    for _ in 0..2 {
        thread::park_timeout(Duration::from_millis(1_100));
        said.push(client.run("ls"));
    }
    said.push(client.prompt());
    assert_eq!(said.iter().flatten().collect::<Vec<_>>(), Vec::<&String>::new());
    let sources = home.get("/v1/sources?since=1d")["sources"].as_array().cloned().expect("a list");
    let ports = sources.iter().find(|one| one["name"] == "ports");
    assert_eq!(ports.map(|ports| &ports["events"]), Some(&json!(0)));
}

#[test]
fn client_log_reports_a_reconnected_mcp_server_once() {
    let mut home = with_sources("");
    home.set("XDG_CACHE_HOME", home.path("caches"));
    let _daemon = home.serve();
    let work = tempfile::tempdir().expect("a folder");
    let mut client = Client::new(&home, "s1", work.path());
    let project = home.path("").file_name().expect("a name").to_owned();
    let logs = home.path("caches/claude-cli-nodejs").join(project).join("mcp-logs-depot");
    fs::create_dir_all(&logs).expect("made");
    let connected = |year: u32| {
        let line = json!({
            "debug": "Successfully connected (transport: stdio) in 64ms", "sessionId": "s1",
            "timestamp": format!("{year}-11-25T16:57:41.462Z"),
        });
        format!("{line}\n")
    };
    fs::write(logs.join("1.jsonl"), connected(2001)).expect("written");
    let lost = "MCP server \"depot\" is not connected";
    assert_eq!(client.call_that_says("mcp__depot__lookup", json!({}), lost), None);
    assert_eq!(client.run("ls"), None, "that was before");
    fs::write(logs.join("2.jsonl"), connected(2999)).expect("written");
    let delivered = until_delivered(&mut client);
    assert!(delivered.contains("mcp_reconnected: depot"), "{delivered}");
    assert_eq!((client.run("ls"), client.prompt()), (None, None), "once");
}

#[test]
fn other_session_in_same_folder_is_reported_once() {
    let home = Home::with(&[("aside.toml", "[sources.loop]\nenabled = false\n")]);
    let work = tempfile::tempdir().expect("a folder");
    let _daemon = home.serve();
    let [mut first, mut second, mut third] = ["s1", "s2", "s3"].map(|id| Client::new(&home, id, work.path()));
    assert_eq!(first.run("ls"), None, "it is alone");
    let delivered = second.run("ls").expect("another one is here");
    assert!(delivered.contains("works_here_too: session s1"), "{delivered}");
    let delivered = first.run("ls").expect("another one came");
    assert!(delivered.contains("works_here_too: session s2"), "{delivered}");
    assert_eq!((first.run("ls"), second.run("ls")), (None, None), "once");
    assert_eq!(second.hook("SessionEnd", json!({ "reason": "other" })), None);
    let delivered = third.run("ls").expect("one is here");
    assert!(
        delivered.contains("works_here_too: session s1") && !delivered.contains("session s2"),
        "{delivered}"
    );
}

#[test]
fn call_overwriting_a_changed_file_is_cancelled_once() {
    let home = with_sources("[sources.files]\nguard = \"overwrite\"\n");
    let _daemon = home.serve();
    let work = tempfile::tempdir().expect("a folder");
    let path = work.path().join("a.rs");
    fs::write(&path, "one\ntwo\n").expect("written");
    let mut client = Client::new(&home, "s1", work.path());
    assert_eq!(client.read("a.rs"), None);
    fs::write(&path, "one\nTWO\n").expect("written");
    let edit = |id: &str| json!({ "tool_name": "Edit", "tool_use_id": id, "tool_input": { "file_path": path, "old_string": "one" } });
    let held = client.denied(edit("t1")).expect("it is held back");
    assert!(
        held.starts_with("aside cancelled this call: critical: a.rs changed since it was read"),
        "{held}"
    );
    assert!(held.contains("changed_lines: 2") && held.contains("next: "), "{held}");
    let batch = |call: Value, result: &str| {
        let mut call = call;
        call["tool_response"] = result.into();
        client.hook("PostToolBatch", json!({ "tool_calls": [call] }))
    };
    assert_eq!(batch(edit("t1"), &format!("PreToolUse:Edit hook error: {held}")), None);
    assert_eq!(client.denied(edit("t2")), None, "the same call again is a decision");
    assert_eq!(batch(edit("t2"), "<tool_use_error>String to replace not found in file."), None);
    fs::write(&path, "one\nTWO\nthree\n").expect("written");
    let delivered =
        batch(edit("t3"), "<tool_use_error>String to replace not found in file.").expect("a change");
    assert!(delivered.contains("file_changed: a.rs"), "an edit that failed hides none: {delivered}");
    assert_eq!(client.run("ls"), None, "nothing is said of it again");
}
