//! Files that somebody else changes under the agent, with only aside installed: each change is
//! reported once, by the client or by aside, and the agent's own changes are not reported.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::json;

use super::{
    api::{Api, Turn},
    calls::{BLOCK, bash, call, delivered, edit, path, put, read, user_writes},
    client::run_headless,
    home, play,
};
use crate::support::daemon::eventually;

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn content_change_of_read_file_is_delivered_once() {
    let home = home();
    let _daemon = home.serve();
    for name in ["a.txt", "d.txt"] {
        put(&home, name, "one\ntwo\nthree\n");
    }
    let touched = home.clone();
    let turns = vec![
        read(&home, 1, "a.txt"),
        read(&home, 2, "d.txt"),
        bash(3, "sleep 3; echo waited").after(user_writes(&home, "a.txt", "one\nTWO\nthree\n")),
        bash(4, "echo meanwhile"),
        read(&home, 5, "a.txt"),
        bash(6, "sleep 3; echo waited").after(user_writes(&home, "a.txt", "ONE\nTWO\nthree\n")),
        bash(7, "echo touched").after(move || {
            let content = fs::read(path(&touched, "d.txt")).expect("there");
            fs::write(path(&touched, "d.txt"), content).expect("written");
        }),
        Turn::says("done"),
    ];
    let conversation = play(&home, turns);
    assert_eq!(delivered(&conversation, "file_changed: a.txt"), [0, 0, 0, 1, 1, 1, 2, 2]);
    assert_eq!(delivered(&conversation, "file_changed: d.txt"), [0; 8]);
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn client_reports_first_change_and_aside_the_next() {
    for (name, begin) in [("b.txt", None), ("c.txt", Some("cat c.txt"))] {
        let home = home();
        let _daemon = home.serve();
        put(&home, name, "one\ntwo\nthree\n");
        let begin = match begin {
            Some(command) => vec![bash(1, command), bash(2, "echo nothing")],
            None => vec![read(&home, 1, name), edit(&home, 2, name, "two", "TWO")],
        };
        let rest = [
            bash(3, "sleep 3; echo waited").after(user_writes(&home, name, "one\nkumquat\nthree\n")),
            bash(4, "echo meanwhile"),
            bash(5, "sleep 3; echo waited").after(user_writes(&home, name, "one\ndurian\nthree\n")),
            bash(6, "echo meanwhile"),
            Turn::says("done"),
        ];
        let conversation = play(&home, begin.into_iter().chain(rest).collect());
        assert_eq!(
            delivered(&conversation, &format!("file_changed: {name}")),
            [0, 0, 0, 0, 0, 1, 1],
            "{name}"
        );
        // The client's own words differ between versions; it shows the changed line.
        let by_client = delivered(&conversation, "kumquat");
        assert!(by_client.last().is_some_and(|count| *count == 1), "{name}: {by_client:?}");
    }
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn own_changes_of_the_agent_deliver_nothing() {
    let home = home();
    let _daemon = home.serve();
    for name in ["a.txt", "b.txt", "e.txt"] {
        put(&home, name, "one\ntwo\nthree\n");
    }
    let git = "git -c user.name=a -c user.email=a@b";
    let commands = [
        "git init -q . && git add -A".to_owned(),
        format!("{git} commit -qm first"),
        "sed -i s/one/ONE/ e.txt".to_owned(),
        "printf 'x\\n' >> a.txt".to_owned(),
        format!("{git} commit -qam second"),
        "git checkout -q -b other".to_owned(),
        "python3 -c \"open('a.txt','w').write('generated')\"".to_owned(),
        format!("{git} commit -qam third --amend"),
        "git stash -q; echo x > b.txt; git stash -q; git stash pop -q".to_owned(),
        "git checkout -q -".to_owned(),
        "mv a.txt z.txt && mv z.txt a.txt".to_owned(),
        "rm e.txt".to_owned(),
    ];
    let reads = ["a.txt", "b.txt", "e.txt"].into_iter().zip(1..).map(|(name, id)| read(&home, id, name));
    let own = [edit(&home, 4, "b.txt", "two", "TWO")];
    let ran = commands.iter().zip(5..).map(|(command, id)| bash(id, command));
    let conversation = play(&home, reads.chain(own).chain(ran).chain([Turn::says("done")]).collect());
    assert_eq!(delivered(&conversation, BLOCK), vec![0; conversation.len()]);
    assert_eq!(conversation.len(), 3 + 1 + commands.len() + 1);
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn subagent_edit_of_parents_file_is_delivered_once() {
    let home = home();
    let _daemon = home.serve();
    put(&home, "a.txt", "one\ntwo\n");
    let task = json!({ "description": "Edits", "prompt": "edit a.txt", "subagent_type": "general-purpose" });
    // Newer clients let the parent continue while its subagent works.
    let is_done = Arc::new(AtomicBool::new(false));
    let (done, is_awaited) = (is_done.clone(), move || is_done.load(Ordering::Relaxed).then_some(()));
    let turns = vec![
        read(&home, 1, "a.txt"),
        call(2, "Agent", &task),
        bash(3, "echo meanwhile").after(move || eventually("the subagent is done", is_awaited)),
        bash(4, "echo meanwhile"),
        Turn::says("done"),
    ];
    let subagent = vec![
        read(&home, 11, "a.txt"),
        edit(&home, 12, "a.txt", "two", "TWO"),
        bash(13, "echo x"),
        Turn::says("edited").after(move || done.store(true, Ordering::Relaxed)),
    ];
    let api = Api::playing_both(turns, subagent);
    run_headless(&home, &api.url());
    let conversation = api.conversation();
    let last = delivered(&conversation, "file_changed: a.txt").last().copied();
    assert_eq!(last, Some(1), "{:?}", delivered(&conversation, "by: your subagent"));
    assert_eq!(delivered(&conversation, "by: your subagent").last(), Some(&1));
    assert_eq!(delivered(&api.subagents(), BLOCK).last(), Some(&0));
}
