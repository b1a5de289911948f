//! Processes of sessions, and the sessions that they may act for.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::daemon::{Home, eventually};

/// Printed after each command.
const DONE: &str = "-- done";

/// A shell that is the client of a session.
pub(crate) struct Client {
    shell: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: &'static str,
}

impl Client {
    pub(crate) fn new(home: &Home, session: &'static str) -> Self {
        let mut command = Command::new("sh");
        for (name, value) in home.command(&[]).get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let mut shell = command
            .current_dir(home.path("work"))
            .env("ASIDE", env!("CARGO_BIN_EXE_aside"))
            .env("CLAUDE_CODE_SESSION_ID", session)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let to = shell.stdin.take().expect("piped");
        let from = BufReader::new(shell.stdout.take().expect("piped"));
        let mut client = Self { shell, to, from, session };
        let own = client.hook(session, "$$");
        assert!(own.ends_with("0\n"), "{own}");
        client
    }

    /// Runs a command below the client; returns its output and its exit code.
    pub(crate) fn run(&mut self, script: &str) -> String {
        writeln!(self.to, "{{ {script}; }} 2>&1; echo $?; echo '{DONE}'").expect("it reads");
        let mut output = String::new();
        loop {
            let mut line = String::new();
            self.from.read_line(&mut line).expect("text");
            if line.trim_end() == DONE || line.is_empty() {
                return output;
            }
            output.push_str(&line);
        }
    }

    /// Runs a command that leaves the process tree of the client, with `prefix` before it; returns its
    /// output and its exit code.
    pub(crate) fn run_left(&mut self, home: &Home, prefix: &str, script: &str) -> String {
        let script = format!("{{ {script}; }} > left 2>&1; echo $? >> left; mv left left.whole");
        self.run(&format!("{prefix} setsid -f sh -c {}", shlex::try_quote(&script).expect("text")));
        let path = home.path("work/left.whole");
        let output = eventually("its end", || std::fs::read_to_string(&path).ok());
        std::fs::remove_file(path).expect("it is there");
        output
    }

    /// Makes the call of a hook in the name of `session`, with `pid` as the client.
    pub(crate) fn hook(&mut self, session: &str, pid: &str) -> String {
        let stdin = json!({ "hook_event_name": "UserPromptSubmit", "session_id": session, "prompt": "x", "cwd": "/w" });
        self.run(&format!("echo '{stdin}' | CLAUDE_PID={pid} \"$ASIDE\" hook claude"))
    }

    /// Runs a command that is refused, because it is for another session.
    fn is_refused(&mut self, command: &str) {
        let output = self.run(&format!("\"$ASIDE\" {command}"));
        let expected = format!("this process belongs to session {}", self.session);
        assert!(output.contains(&expected) && !output.ends_with("\n0\n"), "{command}: {output}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shell.kill().ok();
        self.shell.wait().ok();
    }
}

fn pending(home: &Home, session: &str) -> u64 {
    home.get(&format!("/v1/sessions/{session}"))["pending"].as_u64().expect("a number")
}

fn ask(home: &Home, session: &str) -> String {
    let body = json!({ "message": "Deploy?", "choices": ["yes", "no"], "session": session });
    let answer = home.ask("POST", "/v1/questions", &body.to_string());
    answer.json()["question"]["id"].as_str().expect("an id").to_owned()
}

/// Two sessions, each with its client; one has a notification and a question.
fn two_sessions() -> (Home, crate::support::daemon::Daemon, Client, Client, String) {
    let home = Home::with(&[("aside.toml", "[sinks]\ndefault = [\"log\"]\n")]);
    let daemon = home.serve();
    let (alice, bob) = (Client::new(&home, "alice"), Client::new(&home, "bob"));
    let failure = json!({ "tool_name": "grep", "error_type": "timeout", "error_message": "for alice" });
    home.publish(&json!({ "type": "tool.call.failure", "session": "alice", "payload": failure }));
    eventually("a notification", || (pending(&home, "alice") > 0).then_some(()));
    let question = ask(&home, "alice");
    (home, daemon, alice, bob, question)
}

#[test]
fn a_session_acts_for_itself_only() {
    let (home, _daemon, mut alice, mut bob, question) = two_sessions();
    for command in [
        "watch 'in 5m' --session alice".to_owned(),
        "watch 'in 5m' --workspace /elsewhere".to_owned(),
        "notify hello --session alice".to_owned(),
        "ask 'Now?' --choice a --choice b --no-wait --session alice".to_owned(),
        "inbox --session alice".to_owned(),
        format!("answer {question} yes"),
        format!("answer {question} yes --own"),
    ] {
        bob.is_refused(&command);
    }
    // Calls in another one's name, also with the number of its process.
    let pid = alice.run("echo $$");
    let pid = pid.lines().next().expect("a number").to_owned();
    for pid in ["$$", &pid, ""] {
        let output = bob.hook("alice", pid);
        assert!(!output.contains("for alice"), "{output}");
    }
    assert_eq!(pending(&home, "alice"), 1, "nothing left");
    assert_eq!(home.get("/v1/questions")["questions"][0]["id"], json!(question), "it is open");
    let own = alice.hook("alice", "$$");
    assert!(own.contains("for alice"), "{own}");
    let own = alice.run("\"$ASIDE\" watch 'in 5m'");
    assert!(own.contains("watching"), "{own}");
    let listed = bob.run("\"$ASIDE\" watch");
    assert!(!listed.contains("in 5m"), "{listed}");
    // A process outside of every session acts for any.
    let set = home.ask("POST", "/v1/watches", r#"{"conditions":["in 5m"],"session":"bob"}"#);
    assert_eq!(set.status(), 201, "{set:?}");
}

#[test]
fn a_detached_process_is_known_by_its_environment() {
    let (home, _daemon, _alice, mut bob, question) = two_sessions();
    let own = ask(&home, "bob");
    let answer = |id: &str| format!("\"$ASIDE\" answer {id} yes");
    for id in [&own, &question] {
        let refused = bob.run_left(&home, "", &answer(id));
        assert!(refused.contains("bob") && refused.ends_with("1\n"), "{refused}");
    }
    // Without its environment it could be anybody, and is recorded as such.
    bob.run_left(&home, "env -u CLAUDE_CODE_SESSION_ID", &answer(&own));
    let end: Value = home.get(&format!("/v1/questions/{own}/wait?timeout=5s"));
    assert_eq!((&end["answer"], &end["by"]), (&json!("yes"), &json!("unknown process")));
}

#[test]
fn a_detached_process_writes_as_its_agent() {
    let (home, _daemon, mut alice, mut bob, _) = two_sessions();
    drop(alice.hook("alice", "$$"));
    let message =
        r#"{"type":"message.agent.sent","source":"cli","session":"alice","payload":{"text":"TEXT"}}"#;
    let lines = |text: &str| {
        format!("printf '%s\\n%s\\n' '{{\"type\":\"made.up\"}}' '{}'", message.replace("TEXT", text))
    };
    for (text, publish) in [
        ("argument", "\"$ASIDE\" publish message.agent.sent --session alice text=argument".to_owned()),
        ("array", format!("echo '[{}]' | \"$ASIDE\" publish --input -", message.replace("TEXT", "array"))),
        ("lines", format!("{} | \"$ASIDE\" publish --input -", lines("lines"))),
    ] {
        let published = bob.run_left(&home, "", &publish);
        assert!(published.ends_with("0\n"), "{published}");
        let heard =
            eventually("the message", || Some(alice.hook("alice", "$$")).filter(|said| said.contains(text)));
        assert!(heard.contains("untrusted"), "{heard}");
    }
}

#[test]
fn a_session_starts_others_that_act_for_themselves() {
    let (home, _daemon, _alice, mut bob, _) = two_sessions();
    // A nested client with a process of its own.
    let nested =
        json!({ "hook_event_name": "UserPromptSubmit", "session_id": "nested", "prompt": "x", "cwd": "/w" });
    let script = format!(
        "sh -c 'echo \"$0\" | CLAUDE_PID=$$ \"$ASIDE\" hook claude; echo \"$0\" | CLAUDE_PID=$$ \"$ASIDE\" hook claude; \"$ASIDE\" notify hello --session bob' '{nested}'"
    );
    let output = bob.run(&script);
    assert!(output.contains("this process belongs to session nested"), "{output}");
    assert_eq!(home.get("/v1/sessions/nested")["harness"]["name"], "claude-code");
}
