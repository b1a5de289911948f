//! Commands of a user in a shell that evaluated `aside shell-init`: real shells at a terminal of
//! their own.

use std::{
    collections::BTreeSet,
    fs,
    io::{PipeReader, Read},
    os::unix::fs::PermissionsExt,
    process::Stdio,
};

use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::{Value, json};

use crate::support::daemon::{Home, at, eventually};

/// The shells: name, command to start it without the machine's files, and syntax to evaluate a
/// command's output.
const SHELLS: [(&str, &str, &str); 3] = [
    ("bash", "bash --norc --noprofile -i", "eval \"$(PROGRAM shell-init bash)\""),
    ("zsh", "zsh -f -i", "eval \"$(PROGRAM shell-init zsh)\""),
    ("fish", "fish -i", "PROGRAM shell-init fish | source"),
];

/// Types `lines` into a shell, like a user at a terminal.
fn type_into(home: &Home, shell: (&str, &str, &str), lines: &[&str]) {
    let (name, start, evaluate) = shell;
    let first = evaluate.replace("PROGRAM", env!("CARGO_BIN_EXE_aside"));
    type_lines(home, name, start, &[&[&*first], lines].concat());
}

/// Types exactly `lines` into the shell that `start` starts, then `exit`. The returned pipe ends with
/// the last process that the shell started.
fn type_lines(home: &Home, name: &str, start: &str, lines: &[&str]) -> PipeReader {
    let input = home.path(&format!("typed-{name}"));
    fs::write(&input, format!("{}\nexit\n", lines.join("\n"))).expect("written");
    let places = home.command(&[]);
    let (ends, held) = std::io::pipe().expect("a pipe");
    fcntl_setfd(&held, FdFlags::empty()).expect("it is inherited");
    // fish fills this folder in the background when a user has none.
    fs::create_dir_all(home.path("work/.local/share/fish/generated_completions")).expect("made");
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
    ends
}

/// A shell that is started with a startup file: how it is started, the file, and the line of it that
/// evaluates the reporting code and then names another program for the reports.
const STARTED: [(&str, &str, &str, &str); 4] = [
    (
        "bash",
        "bash --noprofile --rcfile .bashrc -i",
        ".bashrc",
        "eval \"$(PROGRAM shell-init bash)\"; _aside_program=$HOME/record",
    ),
    ("zsh", "zsh -d -i", ".zshrc", "eval \"$(PROGRAM shell-init zsh)\"; _aside_program=$HOME/record"),
    (
        "fish",
        "fish -i",
        ".config/fish/config.fish",
        "PROGRAM shell-init fish | source; set _aside_program $HOME/record",
    ),
    (
        "fish -P",
        "fish -P -i",
        ".config/fish/config.fish",
        "PROGRAM shell-init fish | source; set _aside_program $HOME/record",
    ),
];

/// Lines of a shell and whether each is reported. In the startup file `INIT` is the reporting code.
type Typed = (&'static str, &'static str, &'static [(&'static str, bool)]);

/// The ways in which a user keeps a line private, or has the history show another one.
const TYPED: [Typed; 25] = [
    // bash reads its history after the startup file.
    ("bash", "HISTCONTROL=ignorespace\nINIT", &[(" (exit 31)", false), ("(exit 32)", true)]),
    (
        "bash",
        "HISTCONTROL=ignoreboth\nINIT",
        &[("(exit 3)", true), ("(exit 3)", false), (" (exit 3)", false)],
    ),
    ("bash", "INIT", &[("(exit 3)", true), ("(exit 3)", true), ("", false), ("", false), ("# a", false)]),
    (
        "bash",
        "HISTCONTROL=erasedups\nINIT",
        &[("(exit 3)", true), ("(exit 4)", true), ("sleep 1.1", true), ("(exit 3)", true)],
    ),
    (
        "bash",
        "HISTIGNORE='&:*secret*'\nINIT",
        &[("(exit 3) # secret", false), ("(exit 4)", true), ("(exit 4)", false)],
    ),
    (
        "bash",
        "INIT",
        &[
            ("set +o history", false),
            ("(exit 3)", false),
            ("set -o history", false),
            ("(exit 4)", true),
            ("set +o history; (exit 5)", false),
        ],
    ),
    // Lines of another shell are read at each prompt.
    (
        "bash",
        "HISTCONTROL=ignorespace\nPROMPT_COMMAND='history -s \"echo old $SECONDS$RANDOM\"'\nINIT",
        &[(" (exit 3)", false), ("(exit 4)", true), (" (exit 5)", false), ("(exit 6)", true)],
    ),
    (
        "bash",
        "INIT\nPROMPT_COMMAND+='; history -s \"echo old $RANDOM\"'\nHISTCONTROL=ignorespace",
        &[(" (exit 3)", false), ("true", false), (" (exit 5)", false), ("(exit 6)", true)],
    ),
    (
        "bash",
        "INIT",
        &[
            ("history -s x; history -s y; (exit 3)", false),
            ("history -c; (exit 4)", false),
            ("(exit 5)", true),
        ],
    ),
    (
        "bash",
        "HISTSIZE=2\nINIT",
        &[("(exit 3)", true), ("(exit 4)", true), ("(exit 5)", true), ("(exit 6)", true)],
    ),
    (
        "bash",
        "INIT",
        &[("for i in 1\ndo (exit 3)\ndone", true), ("unset HISTFILE", false), ("(exit 4)", false)],
    ),
    (
        "bash",
        "PROMPT_COMMAND=(true :)\nHISTCONTROL=ignoreboth\nINIT",
        &[(" (exit 3)", false), ("(exit 4)", true)],
    ),
    // zsh keeps what it refused until the next line.
    ("zsh", "setopt hist_ignore_space\nINIT", &[(" (exit 3)", false), ("(exit 4)", true), ("", false)]),
    ("zsh", "setopt hist_ignore_space\nalias x=' (exit 3)'\nINIT", &[("x", false), ("(exit 4)", true)]),
    ("zsh", "setopt hist_ignore_all_dups\nINIT", &[("(exit 3)", true), ("(exit 3)", true)]),
    ("zsh", "HISTORY_IGNORE='(ls|*secret*)'\nINIT", &[(": secret; (exit 3)", false), ("(exit 4)", true)]),
    (
        "zsh",
        "zshaddhistory() { [[ $1 != *secret* ]] }\nINIT",
        &[(": secret; (exit 3)", false), ("(exit 4)", true)],
    ),
    (
        "zsh",
        "HISTFILE=$HOME/.kept\nSAVEHIST=9\nINIT",
        &[
            ("for i in 1\ndo (exit 3)\ndone", true),
            ("fc -p", false),
            ("(exit 4)", false),
            ("fc -P", false),
            ("(exit 5)", true),
        ],
    ),
    ("zsh", "INIT", &[("(exit 3)", true), ("\t(exit 4)", false), ("", false), ("", false)]),
    (
        "fish",
        "INIT",
        &[("sh -c 'exit 3'", true), ("sh -c 'exit 3'", true), ("", false), ("  sh -c 'exit 4'", false)],
    ),
    (
        "fish",
        "set -e fish_history\nINIT",
        &[
            ("sh -c 'exit 3'", true),
            ("set -g fish_history ''", false),
            ("sh -c 'exit 4'", false),
            ("set -e fish_history", false),
            ("sh -c 'exit 5'", true),
        ],
    ),
    ("fish", "INIT", &[("set -g fish_private_mode 1", false), ("sh -c 'exit 3'", false)]),
    ("fish -P", "INIT", &[("sh -c 'exit 3'", false)]),
    (
        "fish",
        "function fish_should_add_to_history\n not string match -q '*secret*' -- $argv\nend\nINIT",
        &[("sh -c 'exit 3' secret", false), ("sh -c 'exit 4'", true)],
    ),
    ("fish", "INIT", &[("for i in 1\nsh -c 'exit 3'\nend", true)]),
];

#[test]
fn only_surely_typed_lines_are_reported() {
    for (name, startup, typed) in TYPED {
        let home = Home::new();
        let (_, start, file, init) = STARTED.into_iter().find(|row| row.0 == name).expect("listed");
        let init = init.replace("PROGRAM", env!("CARGO_BIN_EXE_aside"));
        fs::create_dir_all(home.path("work/.config/fish")).expect("made");
        let write = |name: &str, text: &str| fs::write(home.path("work").join(name), text).expect("written");
        write(file, &startup.replace("INIT", &init));
        write(".bash_history", "echo older line\necho old line of yesterday\n");
        write(
            "record",
            "#!/bin/sh\nshift 5\nprintf '%s\\n' \"$(printf %s \"$2\" | tr '\\n' ' ')\" >>\"$HOME/reports\"\n",
        );
        let record = home.path("work").join("record");
        fs::set_permissions(&record, fs::Permissions::from_mode(0o755)).expect("its permissions");
        let lines: Vec<&str> = typed.iter().map(|row| row.0).collect();
        let mut ends = type_lines(&home, name, start, &lines);
        ends.read_to_end(&mut Vec::new()).expect("it ends");
        let mut expected: Vec<String> =
            typed.iter().filter(|row| row.1).map(|row| row.0.replace('\n', " ")).collect();
        let text = fs::read_to_string(home.path("work").join("reports")).unwrap_or_default();
        let mut reports: Vec<String> = text.lines().map(|line| line.replace("; ", " ")).collect();
        reports.sort_unstable();
        expected.sort_unstable();
        assert_eq!(reports, expected, "{name}: {startup}");
    }
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
fn failed_user_command_is_reported_unless_space_prefixed() {
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
fn agent_command_or_sessionless_folder_publishes_nothing() {
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
