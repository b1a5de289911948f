//! Nothing in a repository makes the daemon run a program: every key of git's settings that could
//! name one names a trap, and so do hooks, attributes, included files and entries of `PATH`.

mod trapped;

use std::{fs, os::unix::fs::symlink};

use serde_json::{Value, json};

use self::trapped::Trapped;
use crate::support::daemon::{Home, at, eventually};

const SESSION: &str = "b1c2";

fn hook(home: &Home, name: &str, more: &Value) -> String {
    let mut stdin =
        json!({ "hook_event_name": name, "session_id": SESSION, "cwd": home.work(), "prompt_id": "p1" });
    stdin.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let output = home.hook(&stdin.to_string());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Makes a call of `tool`, with the hooks before and after it; returns what the agent gets.
fn call(home: &Home, id: &str, tool: &str, input: &Value) -> String {
    let call = json!({ "tool_name": tool, "tool_use_id": id, "tool_input": input, "tool_response": "done" });
    hook(home, "PreToolUse", &json!({ "tool_name": tool, "tool_use_id": id, "tool_input": input }));
    hook(home, "PostToolBatch", &json!({ "tool_calls": [call] }))
}

/// The exchanges of a turn, of which some look at the repository.
fn turn(home: &Home, number: u32) -> String {
    let mut said = hook(home, "UserPromptSubmit", &json!({ "prompt": "go on" }));
    said += &call(home, &format!("t{number}"), "Bash", &json!({ "command": "ls" }));
    said += &call(home, &format!("e{number}"), "Edit", &json!({ "file_path": format!("{}/b", home.work()) }));
    said + &hook(home, "Stop", &json!({}))
}

/// Sets a watch of the session; returns its id.
fn watch(home: &Home, condition: &str) -> Value {
    let body = json!({ "conditions": [condition], "session": SESSION, "cwd": home.work() });
    let set = home.ask("POST", "/v1/watches", &body.to_string());
    assert_eq!(set.status(), 201, "{condition}: {set:?}");
    set.json()["watch"]["id"].clone()
}

/// Asks for the checks of the checkout; returns what `gh` was asked.
fn ask_gh(home: &Home, calls: usize) -> String {
    watch(home, "ci");
    eventually("gh is asked", || {
        let asked = fs::read_to_string(home.path("gh-calls")).unwrap_or_default();
        (asked.matches("called ").count() > calls).then_some(asked)
    })
}

#[test]
fn no_key_of_a_repository_runs_a_program() {
    let home = Home::with(&[("aside.toml", "[sinks.log]\n")]);
    let trapped = Trapped::make(&home);
    let _daemon = home.serve();
    hook(&home, "SessionStart", &json!({ "source": "startup" }));
    call(&home, "r1", "Read", &json!({ "file_path": format!("{}/a", home.work()) }));
    trapped.set();
    trapped.move_head("fix");
    let said = turn(&home, 1);
    // The commits were compared: only then the file is named.
    assert!(said.contains("main -> fix") && said.contains("changed_that_you_read: a"), "{said}");
    for condition in ["change *", "file c", "no file b", "line a /x/", "in 1h", "port 1"] {
        watch(&home, condition);
    }
    let asked = ask_gh(&home, 0);
    trapped.move_head("main");
    turn(&home, 2);
    call(&home, "p1", "Bash", &json!({ "command": "git push -u origin HEAD" }));
    turn(&home, 3);
    assert_eq!(trapped.marks(), "", "nothing of the repository ran");
    let state = fs::canonicalize(home.state()).expect("it is there");
    assert!(asked.contains(&format!("in {}/programs\n", state.display())), "{asked}");
    assert!(asked.contains("owner=acme") && asked.contains("name=shop"), "{asked}");
    assert!(!asked.contains("of a repository") && !asked.contains("SECRET"), "{asked}");
    trapped.springs();
}

#[test]
fn programs_in_a_workspace_are_not_run() {
    let mut home = Home::new();
    let trapped = Trapped::make(&home);
    trapped.set();
    // Relative and empty entries, and folders of the workspace, before those of the machine.
    let machine = home.programs();
    let work = home.work();
    for name in ["git", "gh", "notify-send", "apprise"] {
        symlink(home.path("trap"), home.path("work").join(name)).expect("linked");
    }
    symlink(home.path("work"), home.path("linked")).expect("linked");
    let folders = format!(".::{work}:{}:{}", home.path("linked").display(), machine.to_string_lossy());
    home.set("PATH", folders);
    let _daemon = home.serve();
    hook(&home, "SessionStart", &json!({ "source": "startup" }));
    call(&home, "r1", "Read", &json!({ "file_path": format!("{work}/a") }));
    trapped.move_head("fix");
    let said = turn(&home, 1);
    assert!(said.contains("changed_that_you_read: a"), "{said}");
    ask_gh(&home, 0);
    assert_eq!(trapped.marks(), "");
}

#[test]
fn a_repository_that_points_elsewhere_runs_nothing() {
    let home = Home::new();
    let trapped = Trapped::make(&home);
    let (work, elsewhere) = (home.path("work"), home.path("elsewhere"));
    trapped.set();
    fs::rename(work.join(".git"), &elsewhere).expect("moved");
    fs::write(work.join(".git"), format!("gitdir: {}\n", elsewhere.display())).expect("written");
    let settings = fs::read_to_string(elsewhere.join("config")).expect("readable");
    let tree = format!("{settings}\n[core]\n\tworktree = {}\n", home.path("gh").display());
    fs::write(elsewhere.join("config"), tree).expect("written");
    let _daemon = home.serve();
    hook(&home, "SessionStart", &json!({ "source": "startup" }));
    call(&home, "r1", "Read", &json!({ "file_path": work.join("a") }));
    trapped.move_head_in(&elsewhere, "fix");
    let said = turn(&home, 1);
    assert!(said.contains("main -> fix") && said.contains("changed_that_you_read: a"), "{said}");
    let asked = ask_gh(&home, 0);
    assert!(asked.contains("owner=acme"), "{asked}");
    assert_eq!(trapped.marks(), "");
}

#[test]
fn a_token_leaves_for_no_foreign_host() {
    let home = Home::new();
    let trapped = Trapped::make(&home);
    trapped.set_remote("https://evil.example/acme/shop.git");
    let _daemon = home.serve();
    hook(&home, "SessionStart", &json!({ "source": "startup" }));
    let body = json!({ "conditions": ["ci"], "session": SESSION, "cwd": home.work() });
    let refused = home.ask("POST", "/v1/watches", &body.to_string());
    assert_eq!(refused.status(), 400, "{refused:?}");
    call(&home, "push", "Bash", &json!({ "command": "git push" }));
    let ended = eventually("it has ended", || {
        let ended = home.get("/v1/events?type=ci.follow.ended&limit=10");
        (!ended["events"].as_array().expect("a list").is_empty()).then_some(ended)
    });
    assert_eq!(at(&ended, "/events/0/event/payload/reason"), &json!("not_github"), "{ended}");
    assert!(!home.path("gh-calls").exists(), "gh was not asked");
}
