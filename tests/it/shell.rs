//! Commands of a user in a shell that evaluated `aside shell-init`: real shells at a terminal of
//! their own.

use std::{collections::BTreeSet, fs, process::Stdio};

use serde_json::{Value, json};

use crate::support::daemon::{Home, at, eventually};

/// The shells: name, command to start it without the machine's files, and syntax to evaluate a
/// command's output.
const SHELLS: [(&str, &str, &str); 3] = [
    ("bash", "bash --norc --noprofile -i", "eval \"$(PROGRAM shell-init bash)\""),
    ("zsh", "zsh -f -i", "eval \"$(PROGRAM shell-init zsh)\""),
    ("fish", "fish --no-config -i", "PROGRAM shell-init fish | source"),
];

/// Types `lines` into a shell, like a user at a terminal.
fn type_into(home: &Home, shell: (&str, &str, &str), lines: &[&str]) {
    let (name, start, evaluate) = shell;
    let input = home.path(&format!("typed-{name}"));
    let first = evaluate.replace("PROGRAM", env!("CARGO_BIN_EXE_aside"));
    fs::write(&input, format!("{first}\n{}\nexit\n", lines.join("\n"))).expect("written");
    let places = home.command(&[]);
    let mut script = std::process::Command::new("script");
    script
        .args(["-qec", start, "/dev/null"])
        .current_dir(home.path("work"))
        .env_clear()
        .envs(places.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("HOME", home.path("work"))
        .env("TERM", "dumb")
        .stdin(fs::File::open(&input).expect("written"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = script.output().expect("`script` runs; scripts/test installs it and the shells");
    assert!(!output.stdout.is_empty(), "{name}: {output:?}");
}

/// The commands that were published, with their exit codes.
fn published(home: &Home) -> BTreeSet<(String, i64)> {
    let found = home.get("/v1/events?type=user.command.ended");
    let events = at(&found, "/events").as_array().cloned().unwrap_or_default();
    let of = |event: &Value| {
        let command = at(event, "/event/payload/command").as_str().map(str::to_owned);
        Some((command?, at(event, "/event/payload/exit_code").as_i64()?))
    };
    events.iter().filter_map(of).collect()
}

fn open(home: &Home, harness: &Value) {
    let answer = home.exchange("s1", &json!({ "point": "turn_start", "carrier": "c1", "harness": harness }));
    assert_eq!(answer.status(), 204, "{answer:?}");
}

#[test]
fn what_failed_in_a_shell_of_the_user_is_said_and_a_line_after_a_space_is_not() {
    for shell in SHELLS {
        let (home, name) = (Home::new(), shell.0);
        home.configure("aside.toml", "[sources.shell]\nmin = \"1s\"\n");
        let _daemon = home.serve();
        open(&home, &json!({ "name": "loop", "workspace": home.work() }));
        let lines =
            ["sh -c 'exit 3'", " sh -c 'exit 4'", "true", "sleep 1.1", "sh -c 'exit 5' \"it's; a <b>\""];
        type_into(&home, shell, &lines);
        let expected: BTreeSet<(String, i64)> =
            [(lines[0], 3), (lines[3], 0), (lines[4], 5)].map(|(line, code)| (line.to_owned(), code)).into();
        // Reports do not wait for each other, and the last one is made after the others.
        eventually(&format!("the reports of {name}"), || (published(&home).len() >= 3).then_some(()));
        assert_eq!(published(&home), expected, "{name}");
        let waits = || at(&home.get("/v1/sessions/s1"), "/pending").as_u64().filter(|pending| *pending > 0);
        eventually("the notification", waits);
        let next = json!({ "point": "turn_start", "carrier": "c2", "turn": "t2" });
        let answer = home.exchange("s1", &next).json();
        let said = at(&answer, "/text").as_str().unwrap_or_default();
        assert!(said.contains("user_ran") && said.contains("sh -c 'exit 3'"), "{name}: {answer}");
    }
}

#[test]
fn nothing_is_said_of_what_an_agent_runs_or_where_none_works() {
    let home = Home::new();
    let _daemon = home.serve();
    let ask = |workspace: &str| {
        let body = json!({ "command": "make", "exit_code": 2, "duration_ms": 10, "workspace": workspace });
        home.ask("POST", "/v1/shell", &body.to_string()).json()
    };
    let not = |reason: &str| json!({ "published": false, "reason": reason });
    assert_eq!(ask(&home.work()), not("no_session"));
    open(&home, &json!({ "name": "loop", "workspace": home.work() }));
    assert_eq!(ask("/elsewhere"), not("no_session"));
    assert_eq!(ask(&home.work()), json!({ "published": true }));
    // From here on this process counts as the client.
    let harness = json!({ "name": "loop", "workspace": home.work(), "pid": std::process::id() });
    home.exchange("s2", &json!({ "point": "turn_start", "carrier": "c1", "harness": harness }));
    assert_eq!(ask(&home.work()), not("agent"));
    let wrong = home.ask("POST", "/v1/shell", r#"{"command":"make","exit":2}"#);
    assert_eq!(wrong.status(), 400);
    let error = json!({ "field": "exit", "message": "unknown field; did you mean `exit_code`?" });
    assert_eq!(wrong.json()["error"], error);
    // Without a daemon a report is discarded without output.
    let output = home.run(&["shell-report", "--exit-code", "-1", "--duration-ms", "5", "--", "make"]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
}
