//! A repository that somebody else moves, and another session in the same folder, with only aside
//! installed.

use std::sync::Arc;

use super::{
    api::{Api, Turn},
    calls::{bash, delivered, edit, git, make_repository, read},
    client::run_headless,
    home, play,
};
use crate::support::daemon::Home;

fn repository() -> Arc<Home> {
    let home = home();
    make_repository(&home);
    home
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn users_branch_switch_is_delivered_with_changed_files() {
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
    assert_eq!(delivered(&conversation, "main -> other (checkout"), [0, 0, 0, 1, 1]);
    assert_eq!(delivered(&conversation, "changed_that_you_read: a.txt"), [0, 0, 0, 1, 1]);
    assert_eq!(delivered(&conversation, "file_changed"), [0; 5], "one cause, one line");
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn another_sessions_changes_are_delivered_with_its_name() {
    let home = repository();
    let _daemon = home.serve();
    let (edits, switches) = (home.clone(), home.clone());
    let api_of_other = |turns: Vec<Turn>| Arc::new(Api::playing(turns));
    let editing = api_of_other(vec![
        read(&home, 11, "b.txt"),
        edit(&home, 12, "b.txt", "two", "TWO"),
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
    assert_eq!(delivered(&conversation, "file_changed: b.txt"), [0, 0, 0, 1, 1, 1]);
    assert_eq!(delivered(&conversation, "by: session "), [0, 0, 0, 1, 1, 1], "the line says who");
    assert_eq!(delivered(&conversation, "main -> other (checkout"), [0, 0, 0, 0, 1, 1]);
    assert_eq!(delivered(&conversation, "by session "), [0, 0, 0, 0, 1, 1], "and so does the branch");
    for other in [editing, switching] {
        let last = other.conversation();
        assert_eq!(delivered(&last, "file_changed").last(), Some(&0));
        assert_eq!(delivered(&last, "-> other").last(), Some(&0));
    }
}
