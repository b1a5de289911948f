//! Parts of scripts: calls of the agent, concurrent actions of its user, and counts of words in
//! requests.

use std::{fs, path::PathBuf, process::Command, sync::Arc, thread, time::Duration};

use serde_json::{Value, json};

use super::{api::Turn, count};
use crate::support::daemon::Home;

/// The beginning of a block of notifications.
pub(super) const BLOCK: &str = "<notifications count";
/// A command that does nothing.
pub(super) const GO_ON: &str = "echo meanwhile";
/// The output of such commands, and prompts.
pub(super) const PRINTED: [&str; 3] = ["meanwhile", "go", "go on"];
/// Time between the request of a call and the user's change of a file: the call is running then.
const INTO_THE_CALL: Duration = Duration::from_millis(1_200);

/// Path of a file in the client's folder.
pub(super) fn path(home: &Home, name: &str) -> PathBuf {
    PathBuf::from(home.work()).join(name)
}

pub(super) fn put(home: &Home, name: &str, content: &str) {
    fs::write(path(home, name), content).expect("written");
}

pub(super) fn call(id: usize, tool: &str, input: &Value) -> Turn {
    Turn::calls(&format!("toolu_{id}"), tool, input)
}

pub(super) fn read(home: &Home, id: usize, name: &str) -> Turn {
    call(id, "Read", &json!({ "file_path": path(home, name) }))
}

pub(super) fn edit(home: &Home, id: usize, name: &str, old: &str, new: &str) -> Turn {
    call(id, "Edit", &json!({ "file_path": path(home, name), "old_string": old, "new_string": new }))
}

pub(super) fn bash(id: usize, command: &str) -> Turn {
    call(id, "Bash", &json!({ "command": command, "description": "Does something" }))
}

pub(super) fn in_background(id: usize, command: &str) -> Turn {
    let input = json!({ "command": command, "description": "Does something", "run_in_background": true });
    call(id, "Bash", &input)
}

/// A call that does nothing and differs from all others.
pub(super) fn go_on(id: usize) -> Turn {
    bash(id, &format!("{GO_ON} # {id}"))
}

/// The user writes `content` into a file while the next call runs.
pub(super) fn user_writes(
    home: &Arc<Home>,
    name: &'static str,
    content: &'static str,
) -> impl FnOnce() + Send + 'static {
    let home = home.clone();
    move || {
        thread::spawn(move || {
            thread::park_timeout(INTO_THE_CALL);
            put(&home, name, content);
        });
    }
}

/// How often each request contains `words`.
pub(super) fn delivered(conversation: &[Vec<Value>], words: &str) -> Vec<usize> {
    conversation.iter().map(|messages| count(messages, words)).collect()
}

/// Runs git as the user does, without anybody's settings.
pub(super) fn git(home: &Home, args: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args).current_dir(home.work());
    let output = command.env("GIT_CONFIG_GLOBAL", "/dev/null").output().expect("git runs");
    assert!(output.status.success(), "{args:?}: {output:?}");
}

/// Makes a repository with `a.txt` and `b.txt` on `main`, and another `a.txt` on `other`.
pub(super) fn make_repository(home: &Home) {
    git(home, &["init", "-q", "-b", "main"]);
    for name in ["a.txt", "b.txt"] {
        put(home, name, "one\ntwo\n");
    }
    git(home, &["add", "-A"]);
    git(home, &["commit", "-qm", "first"]);
    git(home, &["checkout", "-q", "-b", "other"]);
    put(home, "a.txt", "one\nother\n");
    git(home, &["commit", "-qam", "other"]);
    git(home, &["checkout", "-q", "main"]);
}
