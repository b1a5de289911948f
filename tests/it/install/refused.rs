//! Settings in which nothing is installed: they are refused, and left as they are.

use std::{fs, process::Command};

use super::{OURS_IN_SETTINGS, UNINSTALL, client, files, print, refusal, settings};
use crate::support::daemon::Home;

/// A shell command that makes `$1`, and why the settings there are refused.
const UNREADABLE: [(&str, &str); 4] = [
    ("mkfifo \"$1\"", "it is not a regular file"),
    ("ln -s /dev/zero \"$1\"", "it is not a regular file"),
    ("mkdir \"$1\"", "it is not a regular file"),
    ("truncate -s 1T \"$1\"", "it is larger than 16777216 bytes"),
];

#[test]
fn settings_that_are_no_bounded_file_are_refused() {
    for (make, why) in UNREADABLE {
        let home = Home::new();
        fs::create_dir_all(client(&home)).expect("made");
        let path = client(&home).join("settings.json");
        let made = Command::new("sh").args(["-c", make, "sh"]).arg(&path).status().expect("it runs");
        assert!(made.success(), "{make}");
        for args in [&OURS_IN_SETTINGS[..], &["install", "claude-code"], &UNINSTALL] {
            let said = refusal(&home, args);
            let expected = format!(": read ~/home/.claude/settings.json: {why}\n");
            assert!(said.ends_with(&expected), "{make} {args:?}: {said}");
        }
        let left: Vec<_> = fs::read_dir(client(&home)).expect("there").collect();
        assert_eq!(left.len(), 1, "{make}: nothing is installed: {left:?}");
    }
}

#[test]
fn unreadable_settings_of_a_project_change_no_installation() {
    let home = Home::new();
    print(&home, &["install", "claude-code"]);
    let broken = home.path("work/.claude/settings.json");
    fs::create_dir_all(broken.parent().expect("a folder")).expect("made");
    fs::write(&broken, "{").expect("written");
    print(&home, &UNINSTALL);
    assert_eq!(files(&client(&home)), []);
}

#[test]
fn settings_that_the_client_skips_are_refused() {
    for (text, expected) in [
        ("{\n  \"a\": 1\n  \"b\": 2\n}", ":2:9: expected comma"),
        ("{ \"a\": ", ":1:8: expected value after colon in object property"),
        ("{ // mine\n\"permissions\": {} }", ":1:3: comments are not allowed"),
        ("{\n  \"permissions\": {}, /* mine */ \"a\": 1 }", ":2:22: comments are not allowed"),
        ("{ \"permissions\": {},\n}", ":1:20: trailing commas are not allowed"),
        ("{ \"env\": { \"A\": \"1\", } }", ":1:20: trailing commas are not allowed"),
        ("{ 'a': 1 }", ":1:3: single-quoted strings are not allowed"),
        ("{ a: 1 }", ":1:3: expected string for object property"),
        ("{} {}", ":1:4: text cannot contain more than one JSON value"),
        ("{ \"a\": 01 }", ":1:9: expected comma"),
        (
            "{ \"\u{e9}\": \"a\tb\" }",
            ":1:10: control character (\\u0000-\\u001F) found while parsing a string",
        ),
        ("{ \"a\": NaN }", ":1:8: unexpected word"),
        ("[]", ": the file is not an object"),
        (
            "{ \"hooks\": {}, \"hooks\": {} }",
            ":1:16: `hooks` is given twice, and the client reads only the last one",
        ),
        (
            "{ \"hooks\": { \"Stop\": [],\n\"Stop\": [] } }",
            ":2:1: `hooks.Stop` is given twice, and the client reads only the last one",
        ),
        ("{\"hooks\": {\"Stop\": {}}}", ":1:20: `hooks.Stop` is not an array or null"),
        ("{\"hooks\": {\"Stop\": [{}]}}", ":1:21: `hooks.Stop.0.hooks` is not an array"),
        (
            "{\"hooks\": {\"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": 1}]}]}}",
            ":1:63: `hooks.Stop.0.hooks.0.command` is not a string",
        ),
        (
            "{\"hooks\": {\"Stop\": [{\"matcher\": {}, \"hooks\": []}]}}",
            ":1:33: `hooks.Stop.0.matcher` is not a string",
        ),
        ("{\"statusLine\": {}}", ":1:16: `statusLine.type` is not a string"),
        ("{ \"permissions\": [] }", ":1:18: `permissions` is not an object"),
        ("{ \"permissions\": { \"allow\": \"Bash\" } }", ":1:29: `permissions.allow` is not an array"),
        ("{ \"env\": [] }", ":1:10: `env` is not an object"),
        ("{ \"model\": 4 }", ":1:12: `model` is not a string"),
        ("{ \"verbose\": \"yes\" }", ":1:14: `verbose` is not true or false"),
    ] {
        for args in [&OURS_IN_SETTINGS[..], &["install", "claude-code"]] {
            let home = Home::new();
            settings(&home, "settings.json", text.as_bytes());
            let said = refusal(&home, args);
            let is_placed = !expected.starts_with(": ");
            let effect = if is_placed { "; the client skips a file with an error whole" } else { "" };
            let end = format!("{effect}; nothing was changed\n");
            assert!(said.ends_with(&format!("settings.json{expected}{end}")), "{text}: {said}");
            assert_eq!(files(&client(&home)), [("settings.json".to_owned(), text.to_owned())]);
        }
    }
}
