//! `aside doctor` against a real daemon and homes in different states.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
};

use aside::config::producers::PRODUCERS;
use serde_json::{Value, json};

use crate::support::daemon::{Daemon, Home, at, eventually, text};

/// The program with this home's folders for a client too, and a client that reports its version.
fn command(home: &Home, args: &[&str]) -> Command {
    command_with_client(home, "2.1.330", args)
}

fn command_with_client(home: &Home, version: &str, args: &[&str]) -> Command {
    let programs = home.path("programs");
    fs::create_dir_all(&programs).expect("a folder");
    let claude = programs.join("claude");
    fs::write(&claude, format!("#!/bin/sh\necho '{version} (Claude Code)'\n")).expect("written");
    fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).expect("a program");
    let mut command = home.command(args);
    command.env("HOME", home.path("home")).env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    command
}

fn run(home: &Home, args: &[&str]) -> Output {
    command(home, args).output().expect("the program runs")
}

/// The exit code, and the verdict of each check of one harness. Leaves out the checks of this build
/// and this machine, which tests cannot choose.
fn verdicts(home: &Home) -> (Option<i32>, Vec<String>) {
    let output = run(home, &["doctor", "claude-code", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = answer["checks"].as_array().expect("a list").iter();
    let line = |check: &Value| {
        format!(
            "{} {}",
            at(check, "/name").as_str().expect("text"),
            at(check, "/verdict").as_str().expect("text")
        )
    };
    let lines =
        checks.map(line).filter(|line| !line.starts_with("program ") && !line.starts_with("hook time "));
    assert_eq!(answer["ok"], output.status.success(), "{answer}");
    (output.status.code(), lines.collect())
}

fn remedy(home: &Home, name: &str) -> String {
    let output = run(home, &["doctor", "claude-code", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = answer["checks"].as_array().expect("a list").iter();
    let bad = checks.filter(|check| check["name"] == name && check["verdict"] != "ok");
    bad.map(|check| {
        format!("{}: {}", check["found"].as_str().expect("text"), check["remedy"].as_str().expect("text"))
    })
    .collect()
}

fn installed() -> (Home, Daemon) {
    let home = Home::new();
    let daemon = home.serve();
    assert!(run(&home, &["install", "claude-code"]).status.success());
    (home, daemon)
}

#[test]
fn doctor_passes_after_install_with_daemon() {
    let (home, daemon) = installed();
    let before = [
        "daemon", "clock", "journal", "config", "socket", "state", "client", "native", "hooks", "once",
        "sessions",
    ];
    let sources =
        PRODUCERS.iter().filter(|row| row.kind.is_switched()).map(|row| format!("source {}", row.name));
    let names = before.map(str::to_owned).into_iter().chain(sources);
    let names = names.chain(
        ["look", "sink harness", "sink desktop", "sink log", "tools", "round trip"].map(str::to_owned),
    );
    assert_eq!(verdicts(&home), (Some(0), names.map(|name| name + " ok").collect()));
    assert_eq!(daemon.stop().status.code(), Some(0));
}

#[test]
fn doctor_checks_tools_and_webhook_secrets() {
    let home = Home::new();
    let secret = home.write_secret("secret", "a secret\n");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).expect("set");
    let settings = format!(
        "[webhooks.github]\nenabled = true\nsecret_file = {secret:?}\n[webhooks.alertmanager]\nenabled = true\n"
    );
    home.configure("aside.toml", &settings);
    let _daemon = home.serve();
    assert!(run(&home, &["install", "claude-code", "--tools"]).status.success());
    let said = text(&run(&home, &["doctor", "--verbose"]).stdout);
    let line = |name: &str| {
        let found = said.lines().find(|line| line.get(6..).is_some_and(|line| line.starts_with(name)));
        found.unwrap_or_else(|| panic!("{name}: {said}")).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let tools = line("tools");
    assert!(tools.starts_with("ok tools watch, inbox, notify, publish by `aside mcp`, "), "{tools}");
    assert!(tools.ends_with(" tokens; installed in claude-code"), "{tools}");
    let github = line("webhook github");
    let problem =
        format!("fail webhook github other users can access {}: chmod 600 it -> fix", secret.display());
    assert!(github.starts_with(&problem), "{github}");
    let alerts = line("webhook alertmanager");
    assert!(alerts.starts_with("warn webhook alertmanager accepted at /v1/webhooks/alertmanager of the Unix socket only -> set `listen`"), "{alerts}");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("set");
    let said = text(&run(&home, &["doctor", "--verbose"]).stdout);
    assert!(said.contains("webhook github"), "{said}");
    assert!(!said.contains("others may use"), "{said}");
}

#[test]
fn doctor_lists_native_messages_of_client_version() {
    let home = Home::new();
    let said = |version: &str| {
        let output = command_with_client(&home, version, &["doctor", "claude-code", "--verbose"])
            .output()
            .expect("the program runs");
        let lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
        lines.into_iter().find(|line| line.starts_with("ok    native")).expect("a line")
    };
    let printed = "a file that the agent edited, or printed";
    let by_command = "a file that a command of the agent changed";
    for (version, is_newer) in [("2.1.330", true), ("2.1.197", false)] {
        let said = said(version);
        assert_eq!([printed, by_command].map(|what| said.contains(what)), [true, is_newer], "{said}");
    }
}

#[test]
fn unknown_harness_hook_is_silent_and_reported() {
    let (home, _daemon) = installed();
    let asked = home.ask("POST", "/v1/hooks/claud", "{}");
    assert_eq!(asked.status(), 404);
    let said = remedy(&home, "hook input");
    assert!(said.starts_with("unknown_harness claud (1 time): unknown harness `claud`"), "{said}");
    assert!(said.ends_with("correct the settings that name another"), "{said}");
    assert_eq!(verdicts(&home).0, Some(0));
}

#[test]
fn doctor_round_trip_takes_no_pending_notification() {
    let (home, daemon) = installed();
    home.publish(&json!({ "type": "tool.call.failure", "source": "t", "payload": { "tool_name": "grep", "error_type": "x" } }));
    assert_eq!(verdicts(&home).0, Some(0));
    // A hook closes its session, and a request may be answered before the event loop reads that.
    eventually("the session of the round trip is closed", || {
        (at(&home.get("/v1/sessions"), "/sessions") == &json!([])).then_some(())
    });
    let answer = home.exchange("real", &json!({ "point": "after_tool", "carrier": "c1" })).json();
    let text = at(&answer, "/text").as_str().expect("text");
    assert!(text.contains("grep") && !text.contains("doctor"), "{text}");
    assert_eq!(daemon.stop().status.code(), Some(0));
}

#[test]
fn a_template_that_fails_is_seen() {
    let home = Home::with(&[
        (
            "subscribers/own.toml",
            "[subscriber]\nid = \"own\"\n[events]\ntypes = [\"own.event\"]\n[batching]\nwindow_ms = 0\n[output]\npriority = \"high\"\n",
        ),
        ("templates/own.toon.j2", "a: 1\nb: {{ events[0].payload.nope }}\n"),
    ]);
    let daemon = home.serve_logging("warn");
    for n in 0..2 {
        home.publish(&json!({ "type": "own.event", "source": "t", "payload": { "n": n } }));
    }
    assert_eq!(home.exchange("s", &json!({ "point": "turn_end", "carrier": "c1" })).status(), 200);
    let failing = at(&home.get("/v1/status"), "/subscribers/own/failing/0").clone();
    assert_eq!((at(&failing, "/line"), at(&failing, "/times")), (&json!(2), &json!(2)), "{failing}");
    assert!(remedy(&home, "templates").contains("own: templates/own.toon.j2:2 failed 2 times"));
    let said = run(&home, &["status"]);
    assert!(text(&said.stdout).contains("own: templates/own.toon.j2:2 failed 2 times"));
    let seq = home.publish(&json!({ "type": "own.event", "source": "t", "payload": { "n": 2 } }));
    let why = text(&run(&home, &["why", &seq[0].to_string()]).stdout);
    assert!(why.contains("failing now: own: templates/own.toon.j2:2 failed 3 times"), "{why}");
    let metrics = text(&home.ask("GET", "/metrics", "").0.body);
    assert!(metrics.contains("aside_subscriber_failures_total{subscriber=\"own\"} 3"), "{metrics}");
    let log = daemon.stop().log;
    assert_eq!(log.matches("a template or `where` failed").count(), 1, "{log}");
}

#[test]
fn doctor_names_missing_parts_with_remedies() {
    let home = Home::new();
    let lines = ["daemon fail", "client ok", "native ok", "hooks fail", "round trip fail"];
    assert_eq!(verdicts(&home), (Some(1), lines.map(str::to_owned).to_vec()));
    assert_eq!(remedy(&home, "hooks"), "not installed: aside install claude-code");
    assert!(remedy(&home, "daemon").ends_with(": aside up"));
}

#[test]
fn unusable_state_folder_is_found() {
    let mut home = Home::new();
    let file = home.path("file");
    fs::write(&file, "").expect("written");
    home.set("ASIDE_STATE", file.join("state"));
    let said = remedy(&home, "state");
    assert!(said.starts_with(&format!("{} cannot be used: ", file.display())), "{said}");
    assert!(said.ends_with("set ASIDE_STATE to another one"), "{said}");
}

#[test]
fn doctor_finds_duplicate_foreign_or_missing_hooks() {
    let (home, daemon) = installed();
    let plugin_hooks = home.path("home/.claude/skills/aside/hooks/hooks.json");
    let shared = home.path("work/.claude/settings.json");
    fs::create_dir_all(shared.parent().expect("a folder")).expect("made");
    fs::write(&shared, fs::read_to_string(&plugin_hooks).expect("there")).expect("written");
    let said = remedy(&home, "once");
    assert!(said.contains("so every hook runs twice: aside uninstall claude-code --project"), "{said}");

    fs::write(&shared, r#"{ "disableAllHooks": true }"#).expect("written");
    let said = remedy(&home, "hooks");
    assert!(said.contains("disables all hooks: remove `disableAllHooks` from it"), "{said}");

    fs::remove_file(&shared).expect("removed");
    let text = fs::read_to_string(&plugin_hooks).expect("there");
    for gone in ["/gone/aside-hook", "/bin/aside-hook"] {
        let text = text.replace(env!("CARGO_BIN_EXE_aside-hook"), gone);
        fs::write(&plugin_hooks, text).expect("written");
        let said = remedy(&home, "hooks");
        let expected = format!("calls {gone}, which does not exist: aside install claude-code");
        assert!(said.ends_with(&expected), "{said}");
    }

    let other = text.replace("\"timeout\": 2", "\"timeout\": 3");
    fs::write(&plugin_hooks, other).expect("written");
    let said = remedy(&home, "hooks");
    assert!(said.ends_with("hooks.json is of another version of aside: aside install claude-code"), "{said}");

    fs::write(&plugin_hooks, "{").expect("written");
    let said = remedy(&home, "hooks");
    assert!(said.ends_with("has none that are readable: aside install claude-code"), "{said}");

    fs::write(&plugin_hooks, text.replace("\"Stop\"", "\"Other\"")).expect("written");
    let said = remedy(&home, "hooks");
    assert!(said.ends_with("has none at Stop: aside install claude-code"), "{said}");
    assert_eq!(daemon.stop().status.code(), Some(0));
}

#[test]
fn doctor_finds_state_folder_open_to_others() {
    let (home, daemon) = installed();
    fs::set_permissions(home.state(), fs::Permissions::from_mode(0o755)).expect("open");
    let said = remedy(&home, "state");
    assert!(said.contains("is accessible to other users (mode 755): chmod 700 "), "{said}");
    assert_eq!(daemon.stop().status.code(), Some(0));
}

#[test]
fn doctor_reports_an_unreadable_client_file() {
    let (home, daemon) = installed();
    let settings = home.path("home/.claude/settings.json");
    fs::remove_file(&settings).expect("it has the status line");
    fs::create_dir_all(&settings).expect("a folder in its place");
    let said = remedy(&home, "hooks");
    assert!(
        said.contains("settings.json: it is not a regular file") && said.ends_with(": repair the file"),
        "{said}"
    );
    assert_eq!(daemon.stop().status.code(), Some(0));
}

#[test]
fn settings_that_the_client_skips_fail() {
    let (home, daemon) = installed();
    let settings = home.path("home/.claude/settings.json");
    for (text, expected) in [
        ("{ // mine\n}", ":1:3: comments are not allowed"),
        ("{ \"permissions\": { \"allow\": \"Bash\" } }", ":1:29: `permissions.allow` is not an array"),
    ] {
        fs::write(&settings, text).expect("written");
        let said = remedy(&home, "settings");
        let end = format!("settings.json{expected}; the client skips the whole file: repair the file");
        assert!(said.ends_with(&end), "{said}");
    }
    assert_eq!(daemon.stop().status.code(), Some(0));
}

#[test]
fn doctor_suggests_setting_home_when_unset() {
    let home = Home::new();
    let output =
        command(&home, &["doctor", "--verbose"]).env_remove("HOME").output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("neither CLAUDE_CONFIG_DIR nor HOME is set -> set one of them\n"), "{said}");
}
