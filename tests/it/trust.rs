//! Workspaces with files of their own, as their user and their agents see them.

use std::fs;

use serde_json::{Value, json};

use crate::{
    acting::Client,
    support::daemon::{Home, eventually},
};

/// A subscriber for the example that the tests publish.
const DEPLOY: &str = "[subscriber]\nid = \"deploy\"\n[events]\ntypes = [\"test.deploy.done\"]\n[batching]\n\
                      window_ms = 0\n[output]\npriority = \"high\"\none = \"deploy: {{ payload.n }}\"\n";

fn write(home: &Home, name: &str, text: &str) {
    let path = home.path("work/.aside").join(name);
    fs::create_dir_all(path.parent().expect("has one")).expect("made");
    fs::write(path, text).expect("written");
}

/// A daemon's home whose workspace has a subscriber.
fn with_deploy() -> Home {
    let home = Home::with(&[("aside.toml", "[sinks]\ndefault = [\"log\"]\n")]);
    write(&home, "subscribers/deploy.toml", DEPLOY);
    home
}

/// Real paths are compared.
fn work(home: &Home) -> String {
    fs::canonicalize(home.path("work")).expect("real").display().to_string()
}

/// An exchange of a session in the workspace; returns its text.
fn exchange(home: &Home, session: &str, carrier: &str) -> String {
    let body = json!({ "point": "turn_start", "carrier": carrier, "turn": carrier, "harness": { "workspace": work(home) } });
    home.exchange(session, &body).json()["text"].as_str().unwrap_or_default().to_owned()
}

fn deployed(home: &Home, number: u64) {
    let event = json!({ "type": "test.deploy.done", "id": format!("d{number}"), "payload": { "n": number } });
    home.publish(&event);
}

fn states(home: &Home) -> Vec<String> {
    let listed = home.get("/v1/trust");
    let workspaces = listed["workspaces"].as_array().expect("a list").iter();
    workspaces.map(|one| one["state"].as_str().expect("a word").to_owned()).collect()
}

fn become_state(home: &Home, state: &str) {
    eventually(state, || (states(home) == [state]).then_some(()));
}

fn trust(home: &Home, args: &[&str]) -> (String, bool) {
    let folder = work(home);
    let output = home.run(&[&["trust", &folder], args].concat());
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).expect("text"), output.status.success())
}

/// The notices of the journal, each once.
fn notices(home: &Home) -> Vec<String> {
    let events: Value = home.get("/v1/events?type=user.notice&limit=100");
    let events = events["events"].as_array().expect("a list").iter();
    events.map(|one| one["event"]["payload"]["message"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn trusted_files_hold_until_they_change() {
    let home = with_deploy();
    let daemon = home.serve();
    exchange(&home, "s1", "c1");
    become_state(&home, "untrusted");
    deployed(&home, 1);
    assert_eq!(exchange(&home, "s1", "c2"), "", "nothing of it is in force");

    let (shown, is_trusted) = trust(&home, &[]);
    assert!(!is_trusted && shown.contains("deploy (new)") && shown.contains("--yes"), "{shown}");
    let (shown, is_trusted) = trust(&home, &["--yes"]);
    assert!(is_trusted && shown.contains("trusted, and in force"), "{shown}");
    assert_eq!(states(&home), ["in_force"]);
    deployed(&home, 2);
    let text = exchange(&home, "s1", "c3");
    assert!(text.contains("deploy: 2"), "{text}");
    let listed = home.print(&["subscribers"]);
    assert!(listed.contains("workspace") && listed.contains("deploy@work-"), "{listed}");

    deployed(&home, 3);
    drop(daemon);
    let daemon = home.serve();
    let text = exchange(&home, "s1", "c4");
    assert!(text.contains("deploy: 3"), "a restart knows the rules: {text}");
    assert_eq!(states(&home), ["in_force"]);

    write(&home, "subscribers/deploy.toml", &DEPLOY.replace("deploy: ", "other: "));
    deployed(&home, 4);
    let text = exchange(&home, "s1", "c5");
    assert!(text.contains("deploy: 4"), "the text that was trusted: {text}");
    drop(daemon);
    let _daemon = home.serve();
    assert_eq!(states(&home), ["changed"]);
    deployed(&home, 5);
    assert_eq!(exchange(&home, "s1", "c6"), "");
    let asked = eventually("both notices", || Some(notices(&home)).filter(|asked| asked.len() == 2));
    assert!(asked.iter().any(|one| one.contains("until you trust them: aside trust")), "{asked:?}");
    assert!(asked.iter().any(|one| one.contains("have changed since you trusted them")), "{asked:?}");
    let doctor = String::from_utf8(home.run(&["doctor"]).stdout).expect("text");
    assert!(doctor.contains("have changed since") && home.print(&["status"]).contains("TRUST: "), "{doctor}");
    home.print(&["reload"]);
    assert_eq!(notices(&home).len(), 2, "each content is asked about once");

    write(&home, "subscribers/deploy.toml", DEPLOY);
    home.print(&["reload"]);
    assert_eq!(states(&home), ["in_force"], "the content that was trusted");
    fs::remove_dir_all(home.path("work/.aside")).expect("removed");
    home.print(&["reload"]);
    assert_eq!(states(&home), ["missing"]);
    home.print(&["trust", "--revoke", &home.work()]);
    assert_eq!(states(&home), [""; 0]);
}

#[test]
fn an_opening_session_has_its_workspace_looked_at() {
    let home = with_deploy();
    let _daemon = home.serve();
    trust(&home, &["--yes"]);
    write(&home, "subscribers/deploy.toml", &DEPLOY.replace("deploy: ", "other: "));
    assert_eq!(states(&home), ["in_force"], "nobody has looked");
    // Half of an edit of the user's is not read by that.
    home.configure("subscribers/half.toml", "[subscriber");
    exchange(&home, "s1", "c1");
    become_state(&home, "changed");
    assert_eq!(home.get("/v1/status")["config"]["state"], json!("in_force"));
    let (shown, is_trusted) = trust(&home, &["--yes"]);
    assert!(is_trusted, "{shown}");
    deployed(&home, 1);
    assert!(exchange(&home, "s1", "c2").contains("other: 1"));
}

#[test]
fn files_that_were_not_shown_stay_untrusted() {
    let home = with_deploy();
    let _daemon = home.serve();
    let ask = |body: Value| home.ask("POST", "/v1/trust", &body.to_string());
    let shown: Value = serde_json::from_str(&trust(&home, &["--json"]).0).expect("JSON");
    write(&home, "subscribers/more.toml", &DEPLOY.replace("\"deploy\"", "\"more\""));
    let refused = ask(json!({ "folder": work(&home), "hash": shown["hash"] }));
    assert_eq!(refused.status(), 409, "{refused:?}");
    assert!(refused.json()["error"]["message"].as_str().is_some_and(|why| why.contains("are not the ones")));
    let gone = ask(json!({ "folder": "/gone", "hash": shown["hash"] }));
    assert_eq!((gone.status(), ask(json!({ "folder": "/gone" })).status()), (409, 409));
    assert_eq!(ask(json!({ "dir": "/gone" })).status(), 400);
    assert_eq!(states(&home), [""; 0]);
}

#[test]
fn a_workspace_sets_no_program_sink_or_budget() {
    let home = with_deploy();
    let _daemon = home.serve();
    let marks = home.path("ran");
    let program = format!("touch {}", marks.display());
    for (name, text) in [
        ("aside.toml", "[sinks.webhook]\nurl = \"http://127.0.0.1:1\"\n".to_owned()),
        ("aside.toml", format!("[sinks.command]\ncommand = [\"sh\", \"-c\", \"{program}\"]\n")),
        ("aside.toml", "[activation]\ntrusted = [\"evil\"]\n".to_owned()),
        ("aside.toml", "[injection]\nmax_tokens = 100000\n".to_owned()),
        ("aside.toml", format!("[[sources.lsp]]\ncommand = [\"sh\", \"-c\", \"{program}\"]\n")),
        ("aside.toml", "[http]\nlisten = \"127.0.0.1:0\"\ntoken_file = \"/tmp/x\"\n".to_owned()),
        ("webhooks.toml", "[[webhook]]\nsource = \"github\"\n".to_owned()),
        ("events.toml", "[[event]]\ntype = \"a.b\"\nseverity = \"critical\"\n".to_owned()),
        (
            "subscribers/a.toml",
            DEPLOY.replace("[output]", "[output]\ncore = true").replace("\"deploy\"", "\"a\""),
        ),
        ("subscribers/a.toml", format!("{DEPLOY}command = \"{program}\"\n").replace("\"deploy\"", "\"a\"")),
    ] {
        write(&home, name, &text);
        let (shown, is_trusted) = trust(&home, &["--yes"]);
        assert!(!is_trusted && shown.contains(name), "{name} {text}: {shown}");
        let checked = home.run(&["check", &work(&home)]);
        assert!(!checked.status.success(), "{name} {text}: {checked:?}");
        fs::remove_file(home.path("work/.aside").join(name)).expect("removed");
    }
    assert!(!marks.exists() && states(&home).is_empty());
}

#[test]
fn types_libraries_and_fixtures_are_trusted_too() {
    let home = with_deploy();
    let library = "{% macro text(n) %}lib {{ n }}{% endmacro %}";
    let uses = DEPLOY.replace("one = \"deploy: {{ payload.n }}\"", "template = \"deploy\"")
        + "[[tests]]\nname = \"a saved deploy\"\nat = [[\"0s\", \"@done\"]]\nexpect = [{ at = \"0s\", text = \"deploy: lib 7\" }]\n";
    let template = "{% from \"lib/words\" import text %}deploy: {{ text(events[0].payload.n) }}\n";
    let event = "{ \"type\": \"test.deploy.done\", \"payload\": { \"n\": 7 } }";
    write(&home, "subscribers/deploy.toml", &uses);
    write(&home, "templates/deploy.toon.j2", template);
    let types = "[[event]]\ntype = \"test.deploy.done\"\nexample = { n = 1 }\n";
    let files =
        [("events.toml", types), ("templates/lib/words.toon.j2", library), ("fixtures/done.json", event)];
    files.iter().for_each(|(name, text)| write(&home, name, text));
    let checked = home.run(&["check", &work(&home), "--deny", "warnings"]);
    assert!(checked.status.success(), "{checked:?}");
    let _daemon = home.serve();
    let (shown, is_trusted) = trust(&home, &["--yes"]);
    assert!(is_trusted && files.iter().all(|(name, _)| shown.contains(name)), "{shown}");
    exchange(&home, "s1", "c1");
    deployed(&home, 1);
    let text = exchange(&home, "s1", "c2");
    assert!(text.contains("deploy: lib 1"), "{text}");
    for (name, before) in files {
        write(&home, name, &format!("{before}\n"));
        home.print(&["reload"]);
        assert_eq!(states(&home), ["changed"], "{name}");
        write(&home, name, before);
        home.print(&["reload"]);
        assert_eq!(states(&home), ["in_force"], "{name}");
    }
}

#[test]
fn an_agent_cannot_decide_what_is_trusted() {
    let home = with_deploy();
    let _daemon = home.serve();
    let mut agent = Client::new(&home, "agent");
    for command in ["trust --yes", "trust --revoke"] {
        if command.contains("revoke") {
            trust(&home, &["--yes"]);
        }
        let output = agent.run(&format!("\"$ASIDE\" {command}"));
        let expected = format!("its user decides what is trusted: aside {}", &command[..5]);
        assert!(output.contains(&expected) && !output.ends_with("\n0\n"), "{output}");
    }
    let left = agent.run_left(&home, "", "\"$ASIDE\" trust --revoke");
    assert!(left.contains("its user decides"), "{left}");
    assert_eq!(states(&home), ["in_force"]);
}

#[test]
fn errors_elsewhere_neither_stop_nor_follow_a_workspace() {
    let home = with_deploy();
    home.configure("subscribers/base.toml", &DEPLOY.replace("\"deploy\"", "\"base\""));
    write(
        &home,
        "subscribers/base.toml",
        "[subscriber]\nid = \"base\"\ninherit = true\n[output]\none = \"mine: 1\"\n",
    );
    let _daemon = home.serve();
    let (shown, is_trusted) = trust(&home, &["--yes"]);
    assert!(is_trusted && shown.contains("base (changes yours)"), "{shown}");
    fs::remove_file(home.path("config/subscribers/base.toml")).expect("removed");
    home.print(&["reload"]);
    assert_eq!(states(&home), ["broken"]);
    let problem = &home.get("/v1/trust")["workspaces"][0]["problem"];
    assert!(problem.as_str().is_some_and(|why| why.contains("to inherit from")), "{problem}");
    assert_eq!(home.get("/v1/status")["config"]["state"], json!("in_force"));
}

#[test]
fn a_replay_needs_no_file_of_the_workspace() {
    let home = with_deploy();
    let daemon = home.serve();
    trust(&home, &["--yes"]);
    exchange(&home, "s1", "c1");
    deployed(&home, 1);
    assert!(exchange(&home, "s1", "c2").contains("deploy: 1"));
    drop(daemon);
    fs::remove_dir_all(home.path("work/.aside")).expect("removed");
    for derived in ["snapshots", "projection.db"] {
        let path = home.state().join(derived);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.ok();
    }
    let _daemon = home.serve();
    assert_eq!(states(&home), ["missing"]);
    let made = eventually("the history", || {
        let list = home.get("/v1/notifications?limit=10");
        Some(list["notifications"].to_string()).filter(|text| text.contains("deploy@work-"))
    });
    assert!(made.contains("confirmed") || made.contains("injected"), "{made}");
    deployed(&home, 2);
    assert_eq!(exchange(&home, "s1", "c3"), "", "it is not in force any more");
}
