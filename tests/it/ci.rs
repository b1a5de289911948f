//! Follows a push with a real daemon, the hooks of a client, a real repository, and a stand-in for
//! `gh` that answers from files.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use serde_json::{Value, json};

use crate::support::daemon::{Home, at, eventually};

/// Answers each call with the files in its folder, and logs the call.
const GH: &str = "#!/bin/sh
here=$(dirname \"$0\")/../gh
echo \"in $(pwd): $1 $2 $3\" >>\"$here/calls\"
cat \"$here/stdout\"
cat \"$here/stderr\" >&2
exit $(cat \"$here/code\")
";
/// A subscriber that is off; the API still lists what it asks for.
const ANSWERS_TOO: &str =
    "[subscriber]\nid = \"answers\"\nenabled = false\n[events]\ntypes = [\"ci.answered\"]\n";
const SESSION: &str = "b1c2";

/// A home whose work folder is a repository with a commit; `gh` is in the daemon's `PATH`.
fn home() -> Home {
    let home = Home::new();
    fs::create_dir(home.path("bin")).expect("made");
    fs::create_dir(home.path("gh")).expect("made");
    fs::write(home.path("bin/gh"), GH).expect("written");
    fs::set_permissions(home.path("bin/gh"), fs::Permissions::from_mode(0o755)).expect("set");
    fs::write(home.path("gh/calls"), "").expect("written");
    let setup = "git init -q -b main . && git commit -q --allow-empty -m one && git checkout -q -b fix-cart && git remote add origin git@github.com:acme/shop.git";
    let mut shell = Command::new("sh");
    shell.args(["-c", setup]).current_dir(home.path("work"));
    for (name, value) in [("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")] {
        shell.env(name, value);
    }
    for role in ["AUTHOR", "COMMITTER"] {
        shell.env(format!("GIT_{role}_NAME"), "a").env(format!("GIT_{role}_EMAIL"), "a@example.org");
    }
    assert!(shell.status().expect("it runs").success());
    home
}

/// Sets the answer of all later `gh` calls.
fn answers(home: &Home, code: i32, stdout: &str, stderr: &str) {
    for (name, text) in [("code", code.to_string().as_str()), ("stdout", stdout), ("stderr", stderr)] {
        fs::write(home.path("gh").join(name), text).expect("written");
    }
}

/// Answers with these checks: check runs and commit statuses.
fn answers_with(home: &Home, contexts: &Value) {
    answers_with_branch(home, contexts, &Value::Null);
}

/// Like [`answers_with`], with the branch at a commit.
fn answers_with_branch(home: &Home, contexts: &Value, branch: &Value) {
    let rollup = json!({ "state": "FAILURE", "contexts": { "nodes": contexts } });
    let repository =
        json!({ "nameWithOwner": "acme/shop", "ref": branch, "object": { "statusCheckRollup": rollup } });
    let body = json!({ "data": { "repository": repository } });
    answers(home, 0, &format!("HTTP/2.0 200 OK\r\nX-Ratelimit-Remaining: 4999\r\n\r\n{body}"), "");
}

fn calls(home: &Home) -> usize {
    fs::read_to_string(home.path("gh/calls")).expect("it is there").lines().count()
}

fn events(home: &Home, event_type: &str) -> Vec<Value> {
    let found = home.get(&format!("/v1/events?type={event_type}&limit=1000"));
    found["events"].as_array().expect("a list").iter().map(|found| found["event"].clone()).collect()
}

fn event(home: &Home, id: &str) -> Value {
    home.get(&format!("/v1/events/{id}"))["event"].clone()
}

fn hook(home: &Home, name: &str, more: &Value) -> String {
    let mut stdin =
        json!({ "hook_event_name": name, "session_id": SESSION, "cwd": home.work(), "prompt_id": "p1" });
    let fields = stdin.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    let output = home.hook(&stdin.to_string());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs the hook of a batch with one call, which runs `command`.
fn ran(home: &Home, id: &str, command: &str) -> String {
    let input = json!({ "command": command });
    let call =
        json!({ "tool_name": "Bash", "tool_use_id": id, "tool_input": input, "tool_response": "done" });
    hook(home, "PostToolBatch", &json!({ "tool_calls": [call] }))
}

/// Waits until a notification is pending for the session.
fn wait(home: &Home) {
    let waited = home.get(&format!("/v1/sessions/{SESSION}/wait?timeout=25s"));
    assert!(waited["pending"].as_u64().is_some_and(|pending| pending > 0), "{waited}");
}

#[test]
fn push_result_is_delivered_once_across_daemon_kill() {
    let home = home();
    let failed = json!({ "name": "unit", "status": "COMPLETED", "conclusion": "FAILURE", "title": "3 failed", "detailsUrl": "https://ci.example/9001" });
    answers_with(&home, &json!([{ "context": "lint", "state": "SUCCESS" }, failed]));
    let daemon = home.serve();
    hook(&home, "SessionStart", &json!({ "source": "startup" }));
    assert_eq!(ran(&home, "t1", "cargo test && git push -u origin HEAD 2>&1 | tail -2"), "");
    wait(&home);
    assert_eq!(calls(&home), 1, "ten seconds after the push");
    let text = ran(&home, "t2", "ls");
    assert!(text.contains("ci_failed: unit") && text.contains("https://ci.example/9001"), "{text}");
    let failed = events(&home, "ci.check.failed");
    let fields = ["/payload/branch", "/session"].map(|field| at(&failed[0], field));
    assert_eq!(fields, ["fix-cart", SESSION]);
    daemon.kill();
    let _daemon = home.serve();
    wait(&home);
    let text = ran(&home, "t3", "ls");
    assert!(text.contains("1 of 2 checks failed") && !text.contains("3 failed"), "{text}");
    let ended = events(&home, "ci.run.failed");
    assert_eq!((ended.len(), events(&home, "ci.check.failed").len(), calls(&home)), (1, 1, 2));
    let asked = fs::read_to_string(home.path("gh/calls")).expect("it is there");
    let state = fs::canonicalize(home.state()).expect("it is there");
    assert!(asked.starts_with(&format!("in {}/programs: api -i graphql\n", state.display())), "{asked}");
}

#[test]
fn failed_push_or_disabled_ci_starts_no_follow() {
    let home = home();
    answers_with(&home, &json!([]));
    let calls_too = "[subscriber]\nid = \"calls\"\n[events]\ntypes = [\"tool.call.success\"]\nseverity_filter = \"debug\"\n";
    home.configure("subscribers/calls.toml", calls_too);
    let daemon = home.serve();
    hook(&home, "SessionStart", &json!({ "source": "startup" }));
    let input = json!({ "command": "git push" });
    let failure = json!({ "tool_name": "Bash", "tool_use_id": "t1", "tool_input": input, "error": "Exit code 1\nrejected" });
    hook(&home, "PostToolUseFailure", &failure);
    ran(&home, "t1", "git push");
    ran(&home, "t2", "git push --dry-run");
    ran(&home, "t3", "git push");
    // `t1` counts as failed, as the failure was reported first.
    let push = json!([{ "folder": home.work() }]);
    for (call, event_type, pushed) in [
        ("t1", "tool.call.failure", Value::Null),
        ("t2", "tool.call.success", Value::Null),
        ("t3", "tool.call.success", push),
    ] {
        let event = event(&home, &format!("{SESSION}:outcome:{call}"));
        assert_eq!((at(&event, "/type"), at(&event, "/payload/pushed")), (&json!(event_type), &pushed));
    }
    drop(daemon);
    home.configure("aside.toml", "[sources.ci]\nenabled = false\n");
    let _daemon = home.serve();
    let sources = home.get("/v1/sources");
    let ci = sources["sources"].as_array().expect("a list").iter().find(|source| source["name"] == "ci");
    assert_eq!(ci.expect("a row")["is_on"], false, "{sources}");
    assert_eq!(calls(&home), 0);
}

/// Makes the session wait for `condition` until it holds; returns the notification.
fn watched(home: &Home, condition: &str) -> String {
    let body = json!({ "conditions": [condition], "session": SESSION, "cwd": home.work() });
    let set = home.ask("POST", "/v1/watches", &body.to_string());
    assert_eq!(set.status(), 201, "{set:?}");
    wait(home);
    ran(home, condition, "ls")
}

#[test]
fn ci_watch_without_accessible_checks_fails() {
    let home = home();
    let _daemon = home.serve();
    hook(&home, "SessionStart", &json!({ "source": "startup" }));
    answers(&home, 4, "", "To get started with GitHub CLI, please run:  gh auth login");
    let text = watched(&home, "ci");
    assert!(text.contains("watch_failed: ci") && text.contains("gh has no access: To get started"), "{text}");
    let refused = |condition: &str, cwd: &str| {
        let body = json!({ "conditions": ["in 1h", condition], "session": SESSION, "cwd": cwd });
        let refused = home.ask("POST", "/v1/watches", &body.to_string());
        assert_eq!(refused.status(), 400, "{condition} {cwd}: {refused:?}");
        let error = refused.json()["error"].take();
        assert_eq!(error["field"], "conditions[1]", "{error}");
        error["message"].to_string()
    };
    let work = home.work();
    let unknown = refused("ci no-such-branch", &work);
    assert!(unknown.contains("no branch or commit `no-such-branch` in"), "{unknown}");
    assert!(refused("ci", "/").contains("/ is in no git repository"));
    let mut removed = Command::new("git");
    removed.args(["remote", "remove", "origin"]).current_dir(home.path("work"));
    assert!(removed.status().expect("git runs").success());
    let foreign = refused("ci fix-cart", &work);
    assert!(foreign.contains("is at GitHub"), "{foreign}");
    assert_eq!(calls(&home), 1, "git says so");
    assert!(refused("ci -x", &work).contains("one name"));
    assert_eq!(home.get("/v1/watches")["watches"], json!([]));
}

#[test]
fn a_watch_for_checks_needs_gh() {
    let home = home();
    fs::remove_file(home.path("bin/gh")).expect("removed");
    let _daemon = home.serve();
    hook(&home, "SessionStart", &json!({ "source": "startup" }));
    let body = json!({ "conditions": ["ci"], "session": SESSION, "cwd": home.work() });
    let refused = home.ask("POST", "/v1/watches", &body.to_string());
    assert_eq!(refused.status(), 400, "{refused:?}");
    let error = &refused.json()["error"];
    assert_eq!(error["field"], "conditions[0]", "{error}");
    assert!(error["message"].to_string().contains("gh is not in the daemon's PATH"), "{error}");
}

#[test]
fn commit_statuses_alone_end_a_ci_watch_once() {
    let home = home();
    answers_with(
        &home,
        &json!([{ "context": "ci/jenkins", "state": "SUCCESS" }, { "context": "cla", "state": "SUCCESS" }]),
    );
    let _daemon = home.serve();
    hook(&home, "SessionStart", &json!({ "source": "startup" }));
    let text = watched(&home, "ci");
    assert!(text.contains("state: 2 checks passed") && !text.contains("ci_completed"), "{text}");
    assert_eq!((calls(&home), events(&home, "ci.run.completed").len()), (2, 1));
}

#[test]
fn github_rate_limit_delays_calls_across_restart() {
    let home = home();
    home.configure("subscribers/answers.toml", ANSWERS_TOO);
    answers(&home, 1, "HTTP/2.0 403 Forbidden\r\nRetry-After: 60\r\n\r\n{}", "gh: HTTP 403");
    let daemon = home.serve();
    hook(&home, "SessionStart", &json!({ "source": "startup" }));
    let body = json!({ "conditions": ["ci"], "session": SESSION, "cwd": home.work() });
    let id = home.ask("POST", "/v1/watches", &body.to_string()).json()["watch"]["id"].clone();
    eventually("the first answer", || (events(&home, "ci.answered").len() == 1).then_some(()));
    daemon.kill();
    let _daemon = home.serve();
    let body = json!({ "conditions": ["in 2s"], "session": SESSION });
    assert_eq!(home.ask("POST", "/v1/watches", &body.to_string()).status(), 201);
    wait(&home);
    assert_eq!(calls(&home), 1, "two seconds after the start");
    assert_eq!(home.get("/v1/watches")["watches"][0]["id"], id);
}

#[test]
fn force_push_ends_follow_but_not_branch_watch() {
    let home = home();
    let head = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(home.path("work")).output();
    let head = String::from_utf8(head.expect("git runs").stdout).expect("text");
    let at_commit = |commit: &str| json!({ "target": { "oid": commit } });
    let pending = json!([{ "context": "ci/jenkins", "state": "PENDING" }]);
    home.configure("subscribers/answers.toml", ANSWERS_TOO);
    answers_with_branch(&home, &pending, &at_commit(head.trim()));
    let _daemon = home.serve();
    hook(&home, "SessionStart", &json!({ "source": "startup" }));
    let body = json!({ "conditions": ["ci"], "session": SESSION, "cwd": home.work() });
    let id = home.ask("POST", "/v1/watches", &body.to_string()).json()["watch"]["id"].clone();
    eventually("the first answer", || (events(&home, "ci.answered").len() == 1).then_some(()));
    answers_with_branch(&home, &pending, &at_commit(&"2".repeat(40)));
    let body = json!({ "conditions": ["event ci.follow.ended"], "session": SESSION });
    assert_eq!(home.ask("POST", "/v1/watches", &body.to_string()).status(), 201);
    wait(&home);
    let ended = events(&home, "ci.follow.ended");
    assert_eq!((ended.len(), at(&ended[0], "/payload/reason")), (1, &json!("superseded")));
    assert_eq!((calls(&home), home.get("/v1/watches")["watches"][0]["id"].clone()), (2, id));
}
