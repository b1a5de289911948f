//! A repository that somebody else moves, and another session in the same folder, with nothing but an installed aside.

use std::{path::PathBuf, process::Command, sync::Arc};

use serde_json::{Value, json};

use super::{
    api::{Api, Turn},
    client::run_headless,
    count, home, play,
};
use crate::support::daemon::Home;

fn path(home: &Home, name: &str) -> PathBuf {
    PathBuf::from(home.work()).join(name)
}

fn git(home: &Home, args: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args).current_dir(home.work());
    let output = command.env("GIT_CONFIG_GLOBAL", "/dev/null").output().expect("git runs");
    assert!(output.status.success(), "{args:?}: {output:?}");
}

/// A repository with `a.txt` and `b.txt` on `main`, and another `a.txt` on `other`.
fn repository() -> Arc<Home> {
    let home = home();
    git(&home, &["init", "-q", "-b", "main"]);
    for name in ["a.txt", "b.txt"] {
        std::fs::write(path(&home, name), "one\ntwo\n").expect("written");
    }
    git(&home, &["add", "-A"]);
    git(&home, &["commit", "-qm", "first"]);
    git(&home, &["checkout", "-q", "-b", "other"]);
    std::fs::write(path(&home, "a.txt"), "one\nother\n").expect("written");
    git(&home, &["commit", "-qam", "other"]);
    git(&home, &["checkout", "-q", "main"]);
    home
}

fn call(id: usize, tool: &str, input: &Value) -> Turn {
    Turn::calls(&format!("toolu_{id}"), tool, input)
}

fn read(home: &Home, id: usize, name: &str) -> Turn {
    call(id, "Read", &json!({ "file_path": path(home, name) }))
}

fn bash(id: usize, command: &str) -> Turn {
    call(id, "Bash", &json!({ "command": command, "description": "Does something" }))
}

fn told(conversation: &[Vec<Value>], words: &str) -> Vec<usize> {
    conversation.iter().map(|messages| count(messages, words)).collect()
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_branch_that_the_user_switches_is_said_once_with_the_files_that_the_agent_read() {
    let home = repository();
    let _daemon = home.serve();
    let switched = home.clone();
    let turns = vec![
        read(&home, 1, "a.txt"),
        read(&home, 2, "b.txt"),
        bash(3, "echo meanwhile").after(move || git(&switched, &["checkout", "-q", "other"])),
        bash(4, "echo meanwhile"),
        Turn::says("done"),
    ];
    let conversation = play(&home, turns);
    assert_eq!(told(&conversation, "main -> other (checkout"), [0, 0, 0, 1, 1]);
    assert_eq!(told(&conversation, "changed_that_you_read: a.txt"), [0, 0, 0, 1, 1]);
    assert_eq!(told(&conversation, "file_changed"), [0; 5], "one cause, one line");
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn what_another_session_edits_and_switches_here_is_said_with_its_name_and_not_to_itself() {
    let home = repository();
    let _daemon = home.serve();
    let (edits, switches) = (home.clone(), home.clone());
    let api_of_other = |turns: Vec<Turn>| Arc::new(Api::playing(turns));
    let edit = json!({ "file_path": path(&home, "b.txt"), "old_string": "two", "new_string": "TWO" });
    let editing = api_of_other(vec![
        read(&home, 11, "b.txt"),
        call(12, "Edit", &edit),
        bash(13, "echo x"),
        Turn::says("edited"),
    ]);
    let switching =
        api_of_other(vec![bash(21, "git checkout -q other"), bash(22, "echo x"), Turn::says("switched")]);
    let (editing_url, switching_url) = (editing.url(), switching.url());
    let turns = vec![
        read(&home, 1, "a.txt"),
        read(&home, 2, "b.txt"),
        bash(3, "echo meanwhile").after(move || drop(run_headless(&edits, &editing_url))),
        bash(4, "echo meanwhile").after(move || drop(run_headless(&switches, &switching_url))),
        bash(5, "echo meanwhile"),
        Turn::says("done"),
    ];
    let conversation = play(&home, turns);
    assert_eq!(told(&conversation, "file_changed: b.txt"), [0, 0, 0, 1, 1, 1]);
    assert_eq!(told(&conversation, "by: session "), [0, 0, 0, 1, 1, 1], "the line says who");
    assert_eq!(told(&conversation, "main -> other (checkout"), [0, 0, 0, 0, 1, 1]);
    assert_eq!(told(&conversation, "by session "), [0, 0, 0, 0, 1, 1], "and so does the branch");
    for other in [editing, switching] {
        let last = other.conversation();
        assert_eq!(told(&last, "file_changed").last(), Some(&0));
        assert_eq!(told(&last, "-> other").last(), Some(&0));
    }
}
