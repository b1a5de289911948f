//! `[[sources.log]]`, `[[sources.paths]]` and `[[sources.schedule]]` with a real daemon, real files
//! and the real clock.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Write,
    path::Path,
};

use serde_json::{Value, json};

use crate::support::daemon::{Home, at, eventually};

const LOG: &str = "[[sources.log]]\npath = \"dev.log\"\nname = \"dev\"\nmatch = \"ERROR|panicked\"\n";
const PATHS: &str = "[[sources.paths]]\nglob = \"schemas/**/*.sql\"\n";

/// Opens a session of the work folder; `call` is a call of its agent.
fn exchange(home: &Home, session: &str, carrier: &str, call: Option<&Value>) -> String {
    let harness = json!({ "name": "loop", "workspace": home.work() });
    let observe: Vec<Value> =
        call.iter().map(|payload| json!({ "type": "tool.call.success", "payload": payload })).collect();
    let body = json!({
        "point": "after_tool", "carrier": carrier, "turn": "t1", "harness": harness, "observe": observe,
    });
    let answer = home.exchange(session, &body);
    if answer.status() == 204 {
        return String::new();
    }
    answer.json()["text"].as_str().unwrap_or_default().to_owned()
}

/// The first notification with `words` that the session's next calls get.
fn notified(home: &Home, session: &str, words: &str) -> String {
    let mut calls = 0;
    eventually("a notification", || {
        calls += 1;
        let text = exchange(home, session, &format!("{words}{calls}"), None);
        text.contains(words).then_some(text)
    })
}

fn pending(home: &Home, session: &str) -> u64 {
    home.get(&format!("/v1/sessions/{session}"))["pending"].as_u64().expect("a number")
}

fn events(home: &Home, event_type: &str) -> Vec<Value> {
    let found = home.get(&format!("/v1/events?type={event_type}&limit=1000"));
    found["events"].as_array().expect("a list").iter().map(|found| found["event"].clone()).collect()
}

/// The number of matched lines, including those that were only counted.
fn lines(home: &Home) -> u64 {
    let further = |event: &Value| event["payload"]["further"].as_u64().unwrap_or(0);
    events(home, "log.line.matched").iter().map(|event| 1 + further(event)).sum()
}

fn is_said(home: &Home, line: &str) -> bool {
    events(home, "log.line.matched").iter().any(|event| event["payload"]["line"] == line)
}

fn append(path: &Path, text: &str) {
    let file = File::options().append(true).create(true).open(path);
    file.expect("opened").write_all(text.as_bytes()).expect("written");
}

fn row(home: &Home, name: &str) -> Value {
    let sources = home.get("/v1/sources");
    let found = sources["sources"].as_array().expect("a list").iter().find(|source| source["name"] == name);
    found.expect("a row").clone()
}

#[test]
fn every_log_line_is_reported_across_rotation() {
    let home = Home::new();
    let _daemon = home.serve();
    assert_eq!(row(&home, "log")["why"], "aside.toml has no [[sources.log]]");
    exchange(&home, "s1", "c1", None);
    let path = home.path("work").join("dev.log");
    append(&path, "ERROR from before\n");
    home.configure("aside.toml", LOG);
    home.print(&["reload"]);
    assert_eq!(row(&home, "log")["is_on"], true);
    // Following starts at some moment after the reload.
    eventually("the first line", || {
        append(&path, "ERROR ready\n");
        (lines(&home) > 0).then_some(())
    });
    append(&path, "ERROR last of the first ones\n");
    eventually("all of those", || is_said(&home, "ERROR last of the first ones").then_some(()));
    let before = lines(&home);
    append(&path, "fine\nERROR at the end of the old one\nERROR beg");
    append(&path, "un\n");
    fs::rename(&path, path.with_extension("log.1")).expect("renamed");
    append(&path, "ERROR in the new one\n");
    eventually("the lines around a rename", || (lines(&home) >= before + 3).then_some(()));
    assert_eq!(lines(&home), before + 3);
    assert!(is_said(&home, "ERROR in the new one"));
    fs::write(&path, "").expect("cut");
    let before = lines(&home);
    let mut after = 0;
    eventually("a line after a truncation", || {
        after += 1;
        append(&path, "panicked after it was cut\n");
        (lines(&home) > before).then_some(())
    });
    let said = events(&home, "log.line.matched");
    let newest = said.iter().find(|event| event["payload"]["line"] == "panicked after it was cut");
    let newest = newest.expect("it is said");
    assert_eq!((at(newest, "/payload/name"), at(newest, "/workspace")), (&json!("dev"), &json!(home.work())));
    assert!(said.iter().all(|event| event["payload"]["line"] != "ERROR from before"), "{said:?}");
    notified(&home, "s1", "panicked after it was cut");
}

#[test]
fn folder_as_log_path_is_reported_by_sources() {
    let home = Home::new();
    home.configure(
        "aside.toml",
        &format!("[[sources.log]]\npath = \"/\"\nname = \"bad\"\nmatch = \"x\"\n{LOG}"),
    );
    let _daemon = home.serve();
    exchange(&home, "s1", "c1", None);
    let trouble = eventually("the trouble", || row(&home, "log")["troubles"][0].as_str().map(str::to_owned));
    assert_eq!(trouble, "bad: / cannot be read: / is not a file");
    let shown = home.print(&["sources", "log"]);
    assert!(shown.contains("[[sources.log]] in aside.toml") && shown.contains(&trouble), "{shown}");
}

/// The kinds of changes of a file, in order.
fn changes(home: &Home, path: &str) -> Vec<String> {
    let mut found: Vec<(u64, String)> = Vec::new();
    let listed = home.get("/v1/events?type=fs.file.*&limit=1000");
    for one in listed["events"].as_array().expect("a list") {
        let payload = at(&one["event"], "/payload");
        if payload["path"] == path {
            found.push((
                one["event"]["seq"].as_u64().unwrap_or(0),
                payload["kind"].as_str().expect("text").to_owned(),
            ));
        }
    }
    found.sort();
    found.into_iter().map(|(_, kind)| kind).collect()
}

/// Writes a file until the watch reports it, so that later changes are reported too.
fn watched(home: &Home, folder: &Path) {
    let mut round = 0;
    eventually("the first file", || {
        round += 1;
        fs::write(folder.join("ready.sql"), format!("{round}")).expect("written");
        (!changes(home, "schemas/ready.sql").is_empty()).then_some(())
    });
}

#[test]
fn save_by_rename_notifies_all_but_its_author() {
    let home = Home::new();
    home.configure("aside.toml", PATHS);
    let folder = home.path("work").join("schemas");
    fs::create_dir(&folder).expect("made");
    fs::write(folder.join("a.sql"), "1").expect("written");
    let _daemon = home.serve();
    exchange(&home, "s1", "c1", None);
    watched(&home, &folder);
    let save = |content: &str| {
        fs::write(folder.join(".a.sql.swp"), content).expect("written");
        fs::rename(folder.join(".a.sql.swp"), folder.join("a.sql")).expect("renamed");
    };
    save("2");
    eventually("the change", || (changes(&home, "schemas/a.sql") == ["modified"]).then_some(()));
    notified(&home, "s1", "schemas/a.sql");
    // Opens a second session of the folder; both take everything that is pending.
    exchange(&home, "s2", "c1", None);
    let mut calls = 0;
    eventually("quiet", || {
        calls += 1;
        for session in ["s1", "s2"] {
            exchange(&home, session, &format!("quiet{calls}"), None);
        }
        (pending(&home, "s1") + pending(&home, "s2") == 0).then_some(())
    });
    save("3");
    let path = folder.join("a.sql");
    let own = json!({ "tool_name": "edit", "files": [{ "path": path, "by": "written" }] });
    exchange(&home, "s1", "c3", Some(&own));
    notified(&home, "s2", "schemas/a.sql");
    assert_eq!(pending(&home, "s1"), 0, "it wrote that itself");
    assert_eq!(changes(&home, "schemas/a.sql"), ["modified", "modified"]);
    // A new subfolder is watched too.
    fs::create_dir_all(folder.join("deep/er")).expect("made");
    fs::write(folder.join("deep/er/b.sql"), "1").expect("written");
    eventually("the new one", || (changes(&home, "schemas/deep/er/b.sql") == ["created"]).then_some(()));
    fs::rename(folder.join("deep/er/b.sql"), folder.join("c.sql")).expect("renamed");
    eventually("its rename", || (changes(&home, "schemas/c.sql") == ["renamed"]).then_some(()));
    fs::remove_file(folder.join("c.sql")).expect("removed");
    eventually("its end", || (changes(&home, "schemas/c.sql").len() == 2).then_some(()));
}

#[test]
fn a_scheduled_time_comes_once_whatever_dies() {
    let mut home = Home::new();
    home.set("TZ", "UTC");
    home.configure(
        "aside.toml",
        "[[sources.schedule]]\nname = \"tick\"\ncron = \"* * * * * *\"\nmessage = \"go on\"\n",
    );
    for round in 1..=3 {
        let daemon = home.serve();
        let before = events(&home, "timer.fired").len();
        eventually("two more", || (events(&home, "timer.fired").len() >= before + 2).then_some(()));
        if round == 1 {
            exchange(&home, "s1", "c1", None);
            let text = notified(&home, "s1", "timer: tick");
            assert!(text.contains("message: go on"), "{text}");
        }
        daemon.kill();
    }
    let _daemon = home.serve();
    let fired = events(&home, "timer.fired");
    let times: BTreeSet<&str> =
        fired.iter().map(|event| event["payload"]["scheduled_at"].as_str().expect("text")).collect();
    assert!(times.len() == fired.len() && fired.len() >= 6, "{fired:?}");
    assert!(times.iter().all(|time| !time.contains('.')), "whole seconds: {times:?}");
}
