//! Probes in the real daemon: real files, real hooks.

use std::{fs, os::unix::fs::symlink, path::Path};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use crate::support::daemon::{Home, at};

/// One client of a session in the folder `work`.
struct Client<'h> {
    home: &'h Home,
    session: &'static str,
    work: &'h Path,
    calls: u32,
}

impl<'h> Client<'h> {
    fn new(home: &'h Home, session: &'static str, work: &'h Path) -> Self {
        Self { home, session, work, calls: 0 }
    }

    /// Runs a hook; gives what the agent gets.
    fn hook(&self, name: &str, fields: Value) -> Option<String> {
        let mut input = json!({ "hook_event_name": name, "session_id": self.session, "prompt_id": "p1", "cwd": self.work });
        input.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        let output = self.home.hook_of(1_000, &input.to_string());
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let said = (!output.stdout.is_empty()).then(|| serde_json::from_slice(&output.stdout).expect("JSON"));
        said.map(|said: Value| {
            at(&said, "/hookSpecificOutput/additionalContext").as_str().expect("text").to_owned()
        })
    }

    fn prompt(&self) -> Option<String> {
        self.hook("UserPromptSubmit", json!({ "prompt": "go on" }))
    }

    /// A call of `tool`, with what it is given.
    fn call(&mut self, tool: &str, input: Value) -> Option<String> {
        self.calls += 1;
        let id = format!("{}-{}", self.session, self.calls);
        self.hook("PreToolUse", json!({ "tool_name": tool, "tool_use_id": id, "tool_input": input.clone() }));
        let call =
            json!({ "tool_name": tool, "tool_use_id": id, "tool_input": input, "tool_response": "ok" });
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
    Home::with(&[("aside.toml", "[sources.sessions]\nenabled = false\n")])
}

#[test]
fn a_file_that_was_only_read_is_announced_once_also_by_the_next_daemon() {
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
    let told = client.run("sleep 0").expect("it is told");
    // The new daemon has not kept the text, so it names no lines.
    assert!(told.contains("file_changed: a.rs") && !told.contains("lines"), "{told}");
    daemon.kill();
    let daemon = home.serve();
    assert_eq!((client.prompt(), client.run("ls")), (None, None), "once, whatever dies");
    for (content, lines) in [("ONE\nTWO\n", None), ("ONE\ntwo\n", Some("lines: \"2\""))] {
        fs::write(&path, content).expect("written");
        let told = client.run("ls").expect("it changed again");
        assert!(told.contains("file_changed: a.rs") && told.contains(lines.unwrap_or_default()), "{told}");
    }
    assert_eq!(daemon.stop().status.code(), Some(0));
}

#[test]
fn the_agents_own_doings_are_silent_and_another_sessions_are_named() {
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
    let told = client.run("ls").expect("the other session wrote it");
    assert!(told.contains("file_changed: a.rs") && told.contains("by: session other-se"), "{told}");
    assert_eq!(other.run("ls"), None);
}

#[test]
fn what_is_no_plain_file_and_what_has_a_hostile_name_harms_nothing() {
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
    let told = client.run("ls").expect("it changed");
    assert!(!told.contains('\u{1b}') && told.matches("notifications>").count() == 2, "{told}");
}

#[test]
fn a_source_that_is_off_says_nothing() {
    let home = Home::with(&[("aside.toml", "[sources.files]\nenabled = false\n")]);
    let _daemon = home.serve();
    let work = tempfile::tempdir().expect("a folder");
    fs::write(work.path().join("a.rs"), "one").expect("written");
    let mut client = Client::new(&home, "s1", work.path());
    client.read("a.rs");
    fs::write(work.path().join("a.rs"), "two").expect("written");
    assert_eq!(client.run("ls"), None);
}

#[test]
fn an_agent_loop_of_ones_own_says_what_its_calls_touch() {
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
    let told = at(&answer, "/text").as_str().expect("a text");
    assert!(told.contains("file_changed: a.rs"), "{told}");
}
