//! The output of commands for people: on a pipe, and on a terminal that is too narrow for it.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    os::fd::OwnedFd,
    process::Stdio,
};

use regex::Regex;
use rustix::{
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use serde_json::json;

use crate::{
    socket::EACH,
    support::daemon::{Home, eventually, text},
};

const SESSION: &str = "b1c2d3e4-0000-4000-8000-000000000001";

fn home() -> Home {
    Home::with(&[("subscribers/each.toml", EACH)])
}

/// Delivers one notification to the session, and leaves another one pending.
fn fill(home: &Home) {
    let workspace = "/srv/customers/of-the-region/north/shop";
    let exchange = |carrier: &str| {
        let body =
            json!({ "point": "after_tool", "carrier": carrier, "harness": { "workspace": workspace } });
        home.exchange(SESSION, &body)
    };
    exchange("c1");
    home.publish(&json!({ "type": "test.each", "source": "ci", "session": SESSION, "payload": { "n": 1 } }));
    assert_eq!(exchange("c2").status(), 200);
    let long = "a long message that no line of a narrow terminal has room for, ".repeat(3);
    home.publish(
        &json!({ "type": "test.each", "source": "ci", "session": SESSION, "payload": { "n": long } }),
    );
    eventually("it is in the history", || {
        let all = home.get("/v1/notifications");
        (all["notifications"].as_array().map(Vec::len) == Some(2)).then_some(())
    });
}

#[test]
fn overview_shows_daemon_state_and_how_to_start() {
    let home = home();
    let absent = home.print(&[]);
    assert!(absent.starts_with(&format!("no daemon runs at {}\n", home.socket().display())), "{absent}");
    assert!(absent.contains("\n  aside up  "), "{absent}");
    assert_eq!(home.run(&["status"]).status.code(), Some(1));

    let _daemon = home.serve();
    let empty = home.print(&[]);
    for said in
        ["no open session", "no pending notifications", "no recent deliveries", "SOURCES  none published"]
    {
        assert!(empty.contains(&format!("\n{said}")), "{empty}");
    }
    fill(&home);
    let screen = home.print(&[]);
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines.len() < 24, "{screen}");
    for (line, begin) in [
        (0, "aside 0."),
        (2, "SESSION "),
        (3, "b1c2@shop  /srv/customers/"),
        (5, "WAITS "),
        (8, "DELIVERED "),
        (11, "SOURCES  ci 2 ("),
    ] {
        assert!(lines[line].starts_with(begin), "{begin}: {screen}");
    }
    assert!(lines[3].contains("  idle  ") || lines[3].contains("  tool complete  "), "{screen}");
    assert!(lines[3].contains("  1 (1 high)  "), "{screen}");
    let exact = home.print(&["--utc"]);
    assert!(!exact.contains(" ago") && exact.contains("Z"), "{exact}");
}

#[test]
fn short_ids_and_session_names_are_resolved() {
    let home = home();
    let _daemon = home.serve();
    fill(&home);
    let newest = home.get("/v1/notifications")["notifications"][0]["id"].as_str().expect("an id").to_owned();
    assert!(home.print(&["why", "last"]).starts_with(&format!("notification {newest}: each, ")));
    assert!(home.print(&["why", &newest[..8]]).starts_with(&format!("notification {newest}: each, ")));
    for session in ["b1c2", "b1c2@shop", SESSION] {
        let listed = home.print(&["inbox", "--session", session]);
        assert!(
            listed.contains("high each, ") && listed.contains("for the agent of b1c2@shop\n"),
            "{listed}"
        );
    }
    // For publishing, the beginning of an id alone would address a session of that name.
    let said = home.print(&["publish", "test.each", "n=3", "--session", "b1c2@shop"]);
    assert!(said.contains(&format!("each takes it for session {SESSION}\n")), "{said}");
    let said = home.print(&["publish", "test.each", "n=4", "--session", "b1c2"]);
    assert!(said.contains("for session b1c2, which is not open yet"), "{said}");

    assert_eq!(home.print(&["inbox", "dismiss", &newest[..8]]), format!("dismissed {newest}\n"));
    let refused = home.run(&["inbox", "dismiss", &newest[..8]]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("there is no pending notification"), "{refused:?}");
}

/// A subscriber that collects for longer than a test takes.
const SLOW: &str = r#"
[subscriber]
id = "slow"
[events]
types = ["test.slow"]
[batching]
window_ms = 10000
max_size = 2
"#;

#[test]
fn collected_events_count_as_open_batches() {
    let home = Home::with(&[("subscribers/slow.toml", SLOW)]);
    let _daemon = home.serve();
    let publish = || home.print(&["publish", "test.slow", "--session", SESSION]);
    let shown = || {
        let open = home.get("/v1/status")["notifications"]["batches_open"].clone();
        (open, home.print(&["status"]), home.print(&["status", "--verbose"]))
    };
    for (expected, line, count) in [
        (0, "no pending notifications\n\n", "0 open batches"),
        (
            1,
            "no pending notifications\n1 open batch: events are collected for a notification\n",
            "1 open batch",
        ),
    ] {
        let (open, screen, counts) = shown();
        assert_eq!(open, expected);
        assert!(screen.contains(line) && counts.contains(count), "{screen}{counts}");
        publish();
    }
    eventually("the full batch is a notification", || (shown().0 == 0).then_some(()));
}

/// A subscriber whose text for the agent and sentence for a person have no words in common.
const ORDERS: &str = r#"
[subscriber]
id = "orders"
[events]
types = ["test.order.*"]
[batching]
window_ms = 0
[output]
priority = "high"
sentence = "order {{ payload.id }} failed: {{ payload.why }}"
one = """
failure_of: {{ payload.id }}
reason: {{ payload.why }}
"""
"#;

/// The output of a command without the values of this run, and of an overview only the tables of
/// notifications.
fn screen(home: &Home, args: &[&str]) -> String {
    let shown = home.print(args);
    let shown = match shown.find("\nWAITS ").zip(shown.find("\nSOURCES ")) {
        Some((from, until)) => shown[from + 1..until].to_owned(),
        None => shown,
    };
    let values = [
        // Zeros at the end of a time are not written, so its column has varying blanks.
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z +", "TIME  "),
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
        (r"(WAITS   PRIORITY  FOR   MADE|DELIVERED|TIME) {3,}", "$1  "),
        (r"\bn[0-9a-f]{12}\b", "NOTIFICATION"),
        (r"\bn[0-9a-f]{5}\b", "NSHORT"),
        (r"injection [0-9a-z]{6}\b", "injection INJECT"),
        (r#" id="[0-9a-z]{6}""#, r#" id="INJECT""#),
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12} \(\d+\): test", "EVENT (SEQ): test"),
        (r"aside why [0-9a-z]{6} ", "aside why INJECT "),
    ];
    values.iter().fold(shown, |text, (value, name)| {
        Regex::new(value).expect("a pattern").replace_all(&text, *name).into_owned()
    })
}

#[test]
fn each_screen_shows_sentences_and_texts_on_request() {
    let home = Home::with(&[("subscribers/orders.toml", ORDERS)]);
    let _daemon = home.serve();
    let exchange =
        |carrier: &str| home.exchange(SESSION, &json!({ "point": "after_tool", "carrier": carrier }));
    exchange("c1");
    home.print(&["publish", "test.order.failed", "id=o1", "why=no stock", "--session", SESSION]);
    assert_eq!(exchange("c2").status(), 200);
    let why = "card \u{1b}[31m<refused>\u{202e} with password=hunter2secret";
    home.publish(&json!({
        "type": "test.order.failed", "source": "ci", "session": SESSION, "payload": { "id": "o2", "why": why },
    }));
    eventually("both are in the history", || {
        let all = home.get("/v1/notifications");
        let all = all["notifications"].as_array()?;
        let is_delivered = all.iter().any(|one| one["deliveries"][0]["state"] == "injected");
        (all.len() == 2 && is_delivered).then_some(())
    });
    let delivered = home.get("/v1/notifications?state=injected")["notifications"][0].clone();
    assert_eq!(delivered["sentence"], "order o1 failed: no stock");
    let (id, injection) = (&delivered["id"], &delivered["deliveries"][0]["injection"]);
    let (id, injection) = (id.as_str().expect("an id"), injection.as_str().expect("an id"));
    let mut shown = String::new();
    for (name, args) in [
        ("aside", &[][..]),
        ("aside inbox", &["inbox"]),
        ("aside inbox --text", &["inbox", "--text"]),
        ("aside history --notifications", &["history", "--notifications"]),
        ("aside why NOTIFICATION", &["why", id]),
        ("aside why INJECTION", &["why", injection]),
    ] {
        let screen = screen(&home, &[&["--utc"], args].concat());
        let has_text = args.contains(&"--text") || args.contains(&"why");
        assert_eq!(screen.contains("failure_of"), has_text, "{name}: {screen}");
        assert!(screen.contains(" failed: ") && !screen.contains("hunter2secret"), "{name}: {screen}");
        shown.push_str(&format!("$ {name}\n{screen}\n"));
    }
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("screens", shown);
    });
}

/// A terminal of `columns`: the test's end and the program's end.
pub(crate) fn terminal_of(columns: u16) -> (File, OwnedFd) {
    let terminal =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("it can be used");
    tcsetwinsize(&terminal, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })
        .expect("a size");
    let other_end =
        ioctl_tiocgptpeer(&terminal, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("its other end");
    (File::from(terminal), other_end)
}

/// The output of a command on a terminal of `columns`, which succeeds.
fn on_terminal(home: &Home, columns: u16, variables: &[(&str, &str)], args: &[&str]) -> String {
    let (shown, has_succeeded) = shown_on_terminal(home, columns, variables, args);
    assert!(has_succeeded, "{args:?}");
    shown
}

/// The output of a command on a terminal of `columns`, and whether it succeeded.
pub(crate) fn shown_on_terminal(
    home: &Home,
    columns: u16,
    variables: &[(&str, &str)],
    args: &[&str],
) -> (String, bool) {
    let (mut terminal, other_end) = terminal_of(columns);
    let mut command = home.command(args);
    command.stdout(other_end).stderr(Stdio::inherit()).envs(variables.iter().copied());
    let mut child = command.spawn().expect("the program runs");
    drop(command);
    let mut shown = Vec::new();
    // The read ends with an error once all copies of the other end are closed.
    terminal.read_to_end(&mut shown).ok();
    let has_succeeded = child.wait().expect("it ends").success();
    (text(&shown).replace("\r\n", "\n"), has_succeeded)
}

/// The text without colours, and whether it had any.
pub(crate) fn without_colours(shown: &str) -> (String, bool) {
    let mut parts = shown.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once('m').expect("a colour").1);
    let plain = rest.fold(first, |text, part| text + part);
    let has_colours = plain != shown;
    (plain, has_colours)
}

#[test]
fn output_fits_80_columns_coloured_only_on_terminals() {
    let home = home();
    let _daemon = home.serve();
    fill(&home);
    for args in [
        &[][..],
        &["status", "--verbose"],
        &["sessions"],
        &["sources", "--all"],
        &["inbox"],
        &["history"],
        &["history", "--notifications"],
        &["why", "last"],
    ] {
        let (plain, has_colours) = without_colours(&on_terminal(&home, 80, &[], args));
        assert!(has_colours, "{args:?}: {plain}");
        for line in plain.lines() {
            assert!(line.chars().count() <= 80, "{args:?}: {line}");
            assert_eq!(line.trim_end(), line, "{args:?}");
        }
        for variables in [[("NO_COLOR", "1")], [("TERM", "dumb")]] {
            assert!(!without_colours(&on_terminal(&home, 80, &variables, args)).1, "{args:?} {variables:?}");
        }
        assert!(!home.print(args).contains('\u{1b}'), "{args:?}");
    }
    let narrow = without_colours(&on_terminal(&home, 60, &[], &["sessions"])).0;
    assert!(narrow.contains("  \u{2026}") && narrow.contains("north/shop  "), "{narrow}");
}

#[test]
fn errors_and_findings_fit_eighty_columns() {
    let deep = "a-folder-with-a-long-name/".repeat(2);
    let mut home =
        Home::with(&[("subscribers/x.toml", "[subscriber]\nid = \"x\"\n[events]\ntypes = [\"made.up\"]\n")]);
    home.set("HOME", home.path(&deep));
    for (args, has_succeeded) in [
        (&["status"][..], false),
        (&["publish", "a.b"], false),
        (&["publish", "A"], false),
        (&["exchange", "demo", "aftertool"], false),
        (&["edit", "nosuch"], false),
        (&["test"], true),
        (&["edit", "reminder", "priority=normal", "window_ms=500"], true),
        (&["token", "list"], true),
        (&["check"], true),
        (&["install", "claude-code"], true),
        (&["edit", "tool_failure"], true),
    ] {
        let (mut terminal, other_end) = terminal_of(80);
        let mut command = home.command(args);
        command.stderr(other_end.try_clone().expect("another end")).stdout(other_end);
        let mut child = command.spawn().expect("the program runs");
        drop(command);
        let mut shown = Vec::new();
        terminal.read_to_end(&mut shown).ok();
        assert_eq!(child.wait().expect("it ends").success(), has_succeeded, "{args:?}");
        let (plain, _) = without_colours(&text(&shown).replace("\r\n", "\n"));
        assert!(!plain.is_empty(), "{args:?}");
        for line in plain.lines() {
            let is_one_word = !line.trim().contains(' ');
            assert!(line.chars().count() <= 80 || is_one_word, "{args:?}: {line}");
        }
    }
}

/// Characters that a terminal or a reader of lines may interpret, and JSON need not escape.
const INVISIBLE: [char; 9] =
    ['\u{200b}', '\u{202e}', '\u{2028}', '\u{2029}', '\u{2066}', '\u{feff}', '\u{ad}', '\u{9b}', '\u{e0041}'];

#[test]
fn no_command_prints_an_invisible_character() {
    let home = home();
    let _daemon = home.serve();
    fill(&home);
    let hostile: String = INVISIBLE.iter().map(|c| format!("a{c}")).collect();
    let event = json!({
        "id": "e1", "type": "test.each", "source": "ci", "session": SESSION,
        "severity": "error", "payload": { "n": hostile, &hostile: [hostile] },
    });
    home.publish(&event);
    let asked = json!({ "message": hostile, "choices": ["yes", "no"], "context": hostile });
    home.ask("POST", "/v1/notify", &asked.to_string());
    let newest = eventually("it is in the history", || {
        let all = home.get("/v1/notifications");
        let all = all["notifications"].as_array()?.clone();
        (all.len() >= 3).then(|| all[0]["id"].as_str().expect("an id").to_owned())
    });
    let commands: [&[&str]; 25] = [
        &[],
        &["status"],
        &["status", "--json"],
        &["history"],
        &["history", "--json"],
        &["history", "--notifications"],
        &["history", "--notifications", "--json"],
        &["inbox"],
        &["inbox", "--json"],
        &["sessions"],
        &["sessions", "--json"],
        &["sources"],
        &["sources", "--all"],
        &["sources", "--json"],
        &["why", &newest],
        &["why", &newest, "--json"],
        &["why", "last"],
        &["why", "e1"],
        &["why", "e1", "--json"],
        &["watch"],
        &["watch", "--json"],
        &["logs"],
        &["doctor", "--json"],
        &["exchange", SESSION, "turn_start", "--carrier", "c9", "--json"],
        &["exchange", SESSION, "turn_start", "--carrier", "c9"],
    ];
    for args in commands {
        let output = home.run(args);
        let streams = text(&output.stdout) + &text(&output.stderr);
        assert!(!streams.contains(INVISIBLE), "{args:?}\n{streams:?}");
        let shown = shown_on_terminal(&home, 80, &[], args).0;
        assert!(!shown.contains(INVISIBLE), "{args:?}\n{shown:?}");
    }
    let history = home.print(&["history", "--json"]);
    assert!(history.contains("a\\u202e") && history.contains("\\udb40\\udc41"), "{history}");
}

#[test]
fn logs_command_shows_and_follows_a_log_file() {
    let home = home();
    let refused = home.run(&["logs"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("/daemon.log does not exist; "), "{refused:?}");

    let log = home.path("its.log").display().to_string();
    let daemon = home.serve_with(&["--log-file", &log]);
    let shown = home.print(&["logs"]);
    assert!(shown.contains(" info aside::daemon: ready "), "{shown}");
    let mut follower =
        home.command(&["logs", "--follow", "-n", "0"]).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(follower.stdout.take().expect("piped")).lines();
    // The test cannot see when following starts, so it makes log lines until one is shown.
    let seen = std::thread::scope(|scope| {
        let seeing = scope.spawn(move || lines.next().expect("a line").expect("text"));
        eventually("the follower shows a line", || {
            home.print(&["reload"]);
            seeing.is_finished().then_some(())
        });
        seeing.join().expect("read")
    });
    assert!(seen.contains(" aside::daemon::reload: "), "{seen}");
    follower.kill().expect("it runs");
    follower.wait().expect("it was started here");
    assert_eq!(daemon.stop().status.code(), Some(0));

    let _piped = home.serve();
    let refused = home.run(&["logs"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("writes it to a pipe of the program that started it"),
        "{refused:?}"
    );
}

#[test]
fn interactive_inbox_shows_and_dismisses_a_notification() {
    let home = home();
    let _daemon = home.serve();
    fill(&home);
    let (mut terminal, other_end) = terminal_of(80);
    let mut command = home.command(&["inbox"]);
    let ends = [(); 2].map(|()| Stdio::from(other_end.try_clone().expect("another one")));
    let [stdin, stdout] = ends;
    command.stdin(stdin).stdout(stdout).stderr(Stdio::inherit()).env("TERM", "xterm");
    let mut child = command.spawn().expect("the program runs");
    drop((command, other_end));
    let mut seen = |words: &str| {
        let (mut shown, mut byte) = (Vec::new(), [0]);
        // A read may end within a character.
        while !String::from_utf8_lossy(&shown).contains(words) {
            let so_far = String::from_utf8_lossy(&shown);
            assert_eq!(terminal.read(&mut byte).ok(), Some(1), "{words}: {so_far}");
            shown.extend(byte);
        }
        // A key that arrives before the program reads keys would be read as a line.
        terminal.try_clone().expect("another one")
    };
    let (enter, down) = ("\r", "\u{1b}[B");
    let keys = |mut terminal: File, keys: &str| terminal.write_all(keys.as_bytes()).expect("written");
    let list = seen("for the agent of b1c2@shop");
    keys(list, enter);
    let asked = seen("show the text for the agent");
    keys(asked, &format!("{down}{down}{enter}"));
    seen("      n: \"a long message ");
    let again = seen("show the text for the agent");
    keys(again, &format!("{down}{enter}"));
    seen("dismissed");
    seen("no pending notifications");
    assert!(child.wait().expect("it ends").success());
    assert!(home.print(&["inbox"]).starts_with("no pending notifications"));
}
