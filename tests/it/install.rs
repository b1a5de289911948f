//! `aside install` and `aside uninstall`, in homes of their own.
//!
//! Each file in `tests/fixtures/claude-code/settings` is an existing settings file; the result is
//! compared with a snapshot.

mod refused;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Output,
};

use serde_json::Value;

use crate::support::daemon::{Home, text};

const OURS_IN_SETTINGS: [&str; 4] = ["install", "claude-code", "--settings", "--statusline"];
const WITHOUT_STATUS_LINE: [&str; 3] = ["install", "claude-code", "--no-statusline"];
const UNINSTALL: [&str; 2] = ["uninstall", "claude-code"];

#[test]
fn install_prints_next_steps_and_uninstall_prints_leftovers() {
    let home = Home::new();
    let said = print(&home, &["install", "claude-code"]);
    let place = |words: &str| said.find(words).unwrap_or_else(|| panic!("no `{words}` in {said}"));
    assert!(place("aside up ") < place("aside doctor "), "{said}");
    let daemon = home.serve();
    let said = print(&home, &UNINSTALL);
    assert!(said.contains("note: the daemon keeps running; `aside down` stops it\n"), "{said}");
    assert!(said.ends_with("note: what it recorded stays in ~/state\n"), "{said}");
    drop(daemon);
    print(&home, &["install", "claude-code"]);
    let said = print(&home, &UNINSTALL);
    assert!(!said.contains("the daemon goes on"), "{said}");
}

/// The client's folder of this home.
fn client(home: &Home) -> PathBuf {
    home.path("home/.claude")
}

/// Runs a command as a user with this home, whose client reports `version`.
fn run_with_client(home: &Home, version: &str, args: &[&str]) -> Output {
    let programs = home.path("programs");
    fs::create_dir_all(&programs).expect("a folder");
    let claude = programs.join("claude");
    if !claude.exists() {
        fs::write(&claude, format!("#!/bin/sh\necho '{version} (Claude Code)'\n")).expect("written");
        fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).expect("a program");
    }
    let path = format!("{}:/usr/bin:/bin", programs.display());
    let mut command = home.command(args);
    command.env("HOME", home.path("home")).env("PATH", path).output().expect("the program runs")
}

fn run(home: &Home, args: &[&str]) -> Output {
    run_with_client(home, "2.1.330", args)
}

/// Runs a command that succeeds; returns its output.
fn print(home: &Home, args: &[&str]) -> String {
    let output = run(home, args);
    assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    shown(home, &output.stdout)
}

/// Runs a command that fails; returns its error message, which is one line.
fn refusal(home: &Home, args: &[&str]) -> String {
    let output = run(home, args);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{args:?}: {output:?}");
    shown(home, &output.stderr)
}

/// The output without the parts that differ between machines.
fn shown(home: &Home, output: &[u8]) -> String {
    let root = home.path("");
    let root = root.to_str().expect("text").trim_end_matches('/');
    text(output).replace(root, "~").replace(env!("CARGO_BIN_EXE_aside"), "/bin/aside")
}

fn settings(home: &Home, name: &str, text: &[u8]) -> PathBuf {
    let path = client(home).join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(&path, text).expect("written");
    path
}

/// Every file below `folder` with its text, sorted.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).into_iter().flatten() {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("below").display().to_string();
                found.push((name, fs::read_to_string(path).expect("text")));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn install_and_uninstall_preserve_the_users_other_settings() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/claude-code/settings");
    let samples = files(&folder);
    assert!(samples.len() >= 8, "samples are missing: {samples:?}");
    for (name, before) in samples {
        let home = Home::new();
        let path = settings(&home, "settings.json", before.as_bytes());
        print(&home, &OURS_IN_SETTINGS);
        let installed = fs::read_to_string(&path).expect("there");
        let stem = name.split('.').next().expect("a name");
        insta::assert_snapshot!(
            format!("settings_{stem}"),
            installed.replace(env!("CARGO_BIN_EXE_aside"), "/bin/aside").replace('\r', "<CR>")
        );
        assert!(print(&home, &OURS_IN_SETTINGS).starts_with("everything is installed already\n"), "{name}");
        assert_eq!(fs::read_to_string(&path).expect("there"), installed, "{name}: the second time");
        print(&home, &UNINSTALL);
        let after = fs::read_to_string(&path).expect("there");
        if name.starts_with("our_") {
            insta::assert_snapshot!("settings_without_our_older_form", after);
            continue;
        }
        assert_eq!(after, before, "{name}: taken out again");
        assert_eq!(files(&client(&home)).len(), 1, "{name}: something is left");

        for after_that in [&["install", "claude-code"][..], &WITHOUT_STATUS_LINE, &OURS_IN_SETTINGS] {
            print(&home, &["install", "claude-code"]);
            print(&home, after_that);
            print(&home, &UNINSTALL);
            let left = [("settings.json".to_owned(), before.clone())];
            assert_eq!(files(&client(&home)), left, "{name}: after {after_that:?}");
        }
    }
}

#[test]
fn install_sets_status_line_unless_occupied_or_declined() {
    let home = Home::new();
    let path = client(&home).join("settings.json");
    let set = |path: &Path| -> Value {
        let settings: Value = serde_json::from_str(&fs::read_to_string(path).expect("there")).expect("JSON");
        settings["statusLine"].clone()
    };
    print(&home, &["install", "claude-code"]);
    let ours = format!("{} statusline claude", env!("CARGO_BIN_EXE_aside"));
    assert_eq!(set(&path), serde_json::json!({ "type": "command", "command": ours, "refreshInterval": 5 }));
    assert_eq!(
        print(&home, &WITHOUT_STATUS_LINE).lines().next(),
        Some("removed ~/home/.claude/settings.json")
    );
    assert!(print(&home, &WITHOUT_STATUS_LINE).starts_with("everything is installed already\n"));
    print(&home, &UNINSTALL);
    assert_eq!(files(&client(&home)), []);

    let own = r#"{ "statusLine": { "type": "command", "command": "line" } }"#;
    settings(&home, "settings.json", own.as_bytes());
    let note = "note: the status line in ~/home/.claude/settings.json is unchanged; with --statusline it also shows pending notifications\n";
    for args in [&["install", "claude-code"][..], &["install", "claude-code", "--settings"]] {
        assert!(print(&home, args).contains(note), "{args:?}");
        assert_eq!(set(&path)["command"], "line", "{args:?}");
    }
    print(&home, &OURS_IN_SETTINGS);
    let wrapped = set(&path);
    assert!(
        wrapped["command"].as_str().is_some_and(|command| command.ends_with(" --wrap line")),
        "{wrapped}"
    );
    assert!(
        print(&home, &["install", "claude-code", "--settings"])
            .starts_with("everything is installed already")
    );
    print(&home, &["install", "claude-code", "--settings", "--no-statusline"]);
    assert_eq!(set(&path)["command"], "line");
    print(&home, &UNINSTALL);
    assert_eq!(files(&client(&home)), [("settings.json".to_owned(), own.to_owned())]);

    // A project's line would replace the user's own.
    let local = home.path("work/.claude/settings.local.json");
    assert!(print(&home, &["install", "claude-code", "--project"]).contains(note));
    assert_eq!(set(&local), Value::Null);
    fs::remove_file(&path).expect("removed");
    print(&home, &["install", "claude-code", "--project"]);
    assert_eq!(set(&local)["command"], ours);
    print(&home, &["uninstall", "claude-code", "--project"]);
    assert!(!home.path("work/.claude").exists());
}

#[test]
fn uninstall_preserves_settings_changed_after_install() {
    let home = Home::new();
    let path = settings(&home, "settings.json", b"{\n  \"model\": \"opus\"\n}\n");
    print(&home, &OURS_IN_SETTINGS);
    let installed = fs::read_to_string(&path).expect("there");
    fs::write(&path, installed.replace("\"opus\"", "\"sonnet\"")).expect("written");
    let said = print(&home, &UNINSTALL);
    assert_eq!(fs::read_to_string(&path).expect("there"), "{\n  \"model\": \"sonnet\"\n}\n");
    assert!(said.contains("settings.json.aside-backup is kept"), "{said}");
}

#[test]
fn install_adds_only_the_plugin_and_status_line() {
    let home = Home::new();
    let said = print(&home, &["install", "claude-code"]);
    insta::assert_snapshot!("install_says", said);
    let installed = files(&client(&home));
    let listing: String = installed
        .iter()
        .filter(|(name, _)| !name.ends_with(".md"))
        .map(|(name, text)| format!("== {name}\n{text}"))
        .collect();
    let listing = listing.replace(env!("CARGO_BIN_EXE_aside"), "/bin/aside");
    insta::assert_snapshot!("plugin", listing.replace(aside::daemon::version::BUILD, "BUILD"));
    assert_eq!(installed.len(), 4, "{installed:?}");
    print(&home, &UNINSTALL);
    assert!(!client(&home).exists(), "{:?}", files(&client(&home)));
    assert_eq!(print(&home, &UNINSTALL), "nothing of aside is installed\n");
}

#[test]
fn plugin_install_removes_older_hooks_from_settings() {
    let home = Home::new();
    let hooks = r#"{ "model": "opus", "hooks": { "Stop": [{ "hooks": [{ "type": "command", "command": "aside hook claude" }] }] } }"#;
    let path = settings(&home, "settings.json", hooks.as_bytes());
    let said = print(&home, &["install", "claude-code", "--autostart"]);
    let note = "note: the plugin in ~/home/.claude/skills/aside replaces the hooks in ~/home/.claude/settings.json\n";
    assert!(said.contains(note), "{said}");
    let after: Value = serde_json::from_str(&fs::read_to_string(&path).expect("there")).expect("JSON");
    assert_eq!((&after["model"], after.get("hooks")), (&Value::from("opus"), None));
    let hooks = fs::read_to_string(client(&home).join("skills/aside/hooks/hooks.json")).expect("there");
    let hooks: Value = serde_json::from_str(&hooks).expect("JSON");
    let args = |event: &str| hooks["hooks"][event][0]["hooks"][0]["args"].clone();
    assert_eq!(args("SessionStart"), serde_json::json!(["claude", "--start"]));
    assert_eq!(args("Stop"), serde_json::json!(["claude"]));
}

#[test]
fn settings_install_replaces_the_plugin_with_hooks() {
    let home = Home::new();
    print(&home, &["install", "claude-code"]);
    let said = print(&home, &["install", "claude-code", "--settings"]);
    let note =
        "note: the hooks in ~/home/.claude/settings.json replace the plugin in ~/home/.claude/skills/aside\n";
    assert!(said.contains(note), "{said}");
    let names: Vec<String> = files(&client(&home)).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["settings.json"]);
    assert!(!print(&home, &["install", "claude-code", "--settings"]).contains("note: the hooks"));
}

#[test]
fn files_that_somebody_put_beside_ours_stay() {
    let home = Home::new();
    print(&home, &["install", "claude-code"]);
    settings(&home, "skills/aside/notes.txt", b"mine");
    print(&home, &UNINSTALL);
    assert_eq!(files(&client(&home)), [("skills/aside/notes.txt".to_owned(), "mine".to_owned())]);
    let said = refusal(&home, &["install", "claude-code"]);
    assert!(said.contains("~/home/.claude/skills/aside exists already and is not from aside"), "{said}");
}

#[test]
fn install_dry_run_prints_diff_and_writes_nothing() {
    let home = Home::new();
    let before = "{\n  \"statusLine\": { \"type\": \"command\", \"command\": \"line\" }\n}\n";
    settings(&home, "settings.json", before.as_bytes());
    let said = print(&home, &["install", "claude-code", "--statusline", "--dry-run"]);
    for line in [
        "-  \"statusLine\": { \"type\": \"command\", \"command\": \"line\" }\n",
        "\"command\": \"/bin/aside statusline claude --wrap line\"",
        "\"refreshInterval\": 5",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(said.contains("+++ ~/home/.claude/skills/aside/hooks/hooks.json\n"), "{said}");
    assert_eq!(files(&client(&home)), [("settings.json".to_owned(), before.to_owned())]);
}

#[test]
fn a_dry_run_without_a_difference_says_so() {
    let home = Home::new();
    assert_eq!(print(&home, &["uninstall", "claude-code", "--dry-run"]), "nothing of aside is installed\n");
    print(&home, &["install", "claude-code"]);
    assert_eq!(print(&home, &["install", "claude-code", "--dry-run"]), "everything is installed already\n");
}

#[test]
fn install_refuses_a_binary_not_named_aside() {
    let home = Home::new();
    let other = home.path("aside-0.1");
    fs::copy(env!("CARGO_BIN_EXE_aside"), &other).expect("copied");
    let output = std::process::Command::new(&other)
        .args(["install", "claude-code", "--settings"])
        .env("HOME", home.path("home"))
        .output()
        .expect("the program runs");
    let said = shown(&home, &output.stderr);
    assert!(said.contains("~/aside-0.1 is not named `aside`, which identifies its hooks later"), "{said}");
    assert_eq!(files(&client(&home)), []);
}

#[test]
fn plugin_calls_aside_if_aside_hook_is_missing() {
    let home = Home::new();
    let alone = home.path("aside");
    fs::copy(env!("CARGO_BIN_EXE_aside"), &alone).expect("copied");
    let mut install = std::process::Command::new(&alone);
    install.args(["install", "claude-code"]).env("HOME", home.path("home"));
    assert!(install.output().expect("the program runs").status.success());
    let hooks = fs::read_to_string(client(&home).join("skills/aside/hooks/hooks.json")).expect("there");
    let hooks: Value = serde_json::from_str(&hooks).expect("JSON");
    let hook = &hooks["hooks"]["Stop"][0]["hooks"][0];
    assert_eq!(hook["args"], serde_json::json!(["hook", "claude"]));
    assert_eq!(hook["command"].as_str().map(Path::new), Some(&*alone));
}

#[test]
fn an_installation_that_fails_midway_is_taken_back() {
    let home = Home::new();
    let manifest =
        settings(&home, "skills/aside/.claude-plugin/plugin.json", br#"{ "name": "aside", "version": "0" }"#);
    settings(&home, "skills/aside/hooks", b"a file where a folder belongs");
    let before = files(&client(&home));
    let said = refusal(&home, &["install", "claude-code"]);
    assert!(said.contains("write ~/home/.claude/skills/aside/hooks/hooks.json: "), "{said}");
    assert_eq!(files(&client(&home)), before);

    fs::remove_file(&manifest).expect("removed");
    fs::remove_file(client(&home).join("skills/aside/hooks")).expect("removed");
    assert!(print(&home, &["install", "claude-code"]).starts_with("wrote "), "empty folders are nobody's");
}

#[test]
fn install_refuses_a_missing_project_folder() {
    let home = Home::new();
    let said = refusal(&home, &["install", "claude-code", "--project", "tpyo"]);
    assert!(said.ends_with("the folder ~/work/tpyo does not exist\n"), "{said}");
    assert!(!home.path("work/tpyo").exists());
}

#[test]
fn settings_that_the_client_reads_are_accepted() {
    for text in [
        "\u{feff}{}",
        " \n",
        "{ \"model\": \"a\", \"model\": \"b\" }",
        "{ \"unknown\": [1], \"permissions\": { \"allow\": [1, \"Bash(\"] } }",
        "{ \"env\": { \"A\": 1, \"B\": true, \"C\": null } }",
        "{ \"hooks\": { \"NoSuchEvent\": [], \"Stop\": [{ \"hooks\": [], \"more\": 1 }] } }",
        "{ \"a\": 1e999 }",
    ] {
        let home = Home::new();
        let path = settings(&home, "settings.json", text.as_bytes());
        print(&home, &OURS_IN_SETTINGS);
        assert!(fs::read_to_string(&path).expect("there").contains("PostToolBatch"), "{text}");
        print(&home, &UNINSTALL);
        assert_eq!(fs::read_to_string(&path).expect("there"), text);
    }
}

#[test]
fn hooks_leave_settings_with_later_comments() {
    let home = Home::new();
    let path = settings(&home, "settings.json", b"{\n  \"model\": \"opus\"\n}\n");
    print(&home, &OURS_IN_SETTINGS);
    let installed = fs::read_to_string(&path).expect("there");
    fs::write(&path, installed.replace("\"opus\"", "\"opus\" /* mine */")).expect("written");
    print(&home, &UNINSTALL);
    assert_eq!(fs::read_to_string(&path).expect("there"), "{\n  \"model\": \"opus\" /* mine */\n}\n");
}

#[test]
fn install_preserves_symlink_and_mode_of_settings_file() {
    let home = Home::new();
    let real = settings(&home, "../dotfiles/claude.json", b"{}\n");
    fs::create_dir_all(client(&home)).expect("a folder");
    let link = client(&home).join("settings.json");
    symlink(&real, &link).expect("a link");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).expect("private");
    print(&home, &OURS_IN_SETTINGS);
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    assert_eq!(fs::metadata(&real).expect("there").permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&real).expect("there").contains("PostToolBatch"));
    print(&home, &UNINSTALL);
    assert_eq!(fs::read_to_string(&real).expect("there"), "{}\n");

    fs::set_permissions(&real, fs::Permissions::from_mode(0o400)).expect("read-only");
    let said = refusal(&home, &OURS_IN_SETTINGS);
    assert!(said.ends_with("settings.json: it is read-only\n"), "{said}");
    assert_eq!(fs::read_to_string(&real).expect("there"), "{}\n");
}

#[test]
fn two_installations_beside_each_other_are_refused() {
    let home = Home::new();
    let path =
        settings(&home, "settings.json", br#"{ "enabledPlugins": { "aside@team": true, "x@y": true } }"#);
    let said = refusal(&home, &["install", "claude-code"]);
    assert!(
        said.contains("the plugin aside@team") && said.ends_with("claude plugin uninstall aside@team\n"),
        "{said}"
    );
    fs::write(&path, r#"{ "enabledPlugins": { "aside@team": false } }"#).expect("written");
    print(&home, &["install", "claude-code"]);
    let said = refusal(&home, &["install", "claude-code", "--project"]);
    assert!(said.ends_with("remove it first: aside uninstall claude-code\n"), "{said}");
    print(&home, &UNINSTALL);

    print(&home, &["install", "claude-code", "--project"]);
    let local = home.path("work/.claude/settings.local.json");
    assert!(fs::read_to_string(&local).expect("there").contains("PostToolBatch"));
    let said = refusal(&home, &["install", "claude-code"]);
    assert!(said.contains("settings.local.json exists already"), "{said}");
    assert!(print(&home, &UNINSTALL).contains("aside uninstall claude-code --project\n"));
    print(&home, &["uninstall", "claude-code", "--project"]);
    assert!(!home.path("work/.claude").exists());
}

#[test]
fn project_install_updates_hooks_in_shared_settings() {
    let home = Home::new();
    let shared = home.path("work/.claude/settings.json");
    fs::create_dir_all(shared.parent().expect("a folder")).expect("made");
    let old = r#"{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"aside hook claude"}]}]}}"#;
    fs::write(&shared, old).expect("written");
    print(&home, &["install", "claude-code", "--project"]);
    assert!(fs::read_to_string(&shared).expect("there").contains("PostToolBatch"));
    assert!(!home.path("work/.claude/settings.local.json").exists());
}

#[test]
fn old_client_gets_settings_hooks_or_is_refused() {
    let home = Home::new();
    let output = run_with_client(&home, "2.1.150", &["install", "claude-code"]);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("note: the client loads plugins from 2.1.160 on"), "{output:?}");
    assert!(client(&home).join("settings.json").exists() && !client(&home).join("skills").exists());

    let home = Home::new();
    let output = run_with_client(&home, "2.1.120", &["install", "claude-code"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).ends_with(
        "claude is version 2.1.120; these hooks need 2.1.140 or later; update it first: claude update\n"
    ));
    assert!(!client(&home).exists());
}

#[test]
fn plugin_option_writes_a_complete_marketplace_folder() {
    let home = Home::new();
    let said = print(&home, &["install", "claude-code", "--extension", "market"]);
    let market = home.path("work/market").display().to_string();
    for step in [
        format!("\nclaude plugin marketplace add {market} "),
        "\nclaude plugin install aside@aside ".to_owned(),
        format!("\nclaude --plugin-dir {market}/aside "),
    ] {
        assert!(said.contains(&step.replace(&*home.path("").to_string_lossy(), "~/")), "{step}: {said}");
    }
    let names: Vec<String> = files(&home.path("work/market")).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            ".claude-plugin/marketplace.json",
            "aside/.claude-plugin/plugin.json",
            "aside/hooks/hooks.json",
            "aside/skills/aside/SKILL.md"
        ]
    );
}

#[test]
fn a_marketplace_or_plugin_of_somebody_else_stays() {
    for (name, text) in [
        (".claude-plugin/marketplace.json", r#"{ "name": "acme", "plugins": [] }"#),
        ("aside/notes.txt", "mine"),
    ] {
        let home = Home::new();
        let path = home.path("work/market").join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, text).expect("written");
        let said = refusal(&home, &["install", "claude-code", "--extension", "market"]);
        assert!(said.ends_with("exists already and is not from aside; move it first\n"), "{said}");
        assert_eq!(files(&home.path("work/market")), [(name.to_owned(), text.to_owned())]);
    }
}

#[test]
fn units_of_somebody_else_stay() {
    let home = Home::new();
    let own = home.path("home/.config/systemd/user/aside.service");
    fs::create_dir_all(own.parent().expect("a folder")).expect("made");
    fs::write(&own, "[Service]\nExecStart=/bin/true\n").expect("written");
    let said = refusal(&home, &["install", "systemd"]);
    assert!(said.ends_with("aside.service exists already and is not from aside; move it first\n"), "{said}");
    let said = print(&home, &["uninstall", "systemd"]);
    assert!(
        said.contains("nothing of aside is installed") && said.contains("is kept; it is not from aside"),
        "{said}"
    );
    assert_eq!(files(own.parent().expect("a folder")).len(), 1);
}

#[test]
fn systemd_install_without_home_names_the_missing_variable() {
    let home = Home::new();
    let mut command = home.command(&["install", "systemd"]);
    command.env("XDG_CONFIG_HOME", home.path("xdg")).env_remove("HOME").env_remove("ASIDE_STATE");
    let said = text(&command.output().expect("the program runs").stderr);
    assert!(said.ends_with(": neither ASIDE_STATE nor HOME is set\n"), "{said}");
}

#[test]
fn systemd_user_units_are_installed_and_removed() {
    let home = Home::new();
    let said = print(&home, &["install", "systemd"]);
    assert!(said.contains("systemctl --user enable --now aside.socket"), "{said}");
    let units = home.path("home/.config/systemd/user");
    let listing: String =
        files(&units).into_iter().map(|(name, text)| format!("== {name}\n{text}")).collect();
    insta::assert_snapshot!("units", shown(&home, listing.as_bytes()));
    print(&home, &["uninstall", "systemd"]);
    assert_eq!(files(&units), []);
}
