//! Questions to the user with a real daemon: the asker gets the answer once, even if a process is
//! killed in between.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    process::{Child, Output, Stdio},
};

use serde_json::{Value, json};

use crate::support::daemon::{Home, at, eventually};

/// Settings with only the log, so that only the test answers.
const LOG_ONLY: &str = "[sinks]\ndefault = [\"log\"]\n";

/// A home whose desktop is a script, which gets the arguments of notify-send.
fn home(settings: &str, notify_send: &str) -> Home {
    let mut home = Home::new();
    home.set("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere");
    let path = home.path("bin").join("notify-send");
    fs::create_dir_all(home.path("bin")).expect("a folder");
    fs::write(&path, format!("#!/bin/sh\n{notify_send}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    home.configure("aside.toml", settings);
    home
}

fn exchange(home: &Home, carrier: &str) -> String {
    let asked = json!({
        "point": "turn_start", "carrier": carrier, "turn": carrier,
        "harness": { "name": "loop", "workspace": home.work() },
    });
    let answer = home.exchange("s1", &asked);
    answer.json()["text"].as_str().unwrap_or_default().to_owned()
}

/// Repeats exchanges, each with a new carrier, until one releases something; returns its text.
fn delivered(home: &Home, what: &str) -> String {
    let mut number = 0;
    eventually(what, || {
        number += 1;
        Some(exchange(home, &format!("{what} {number}"))).filter(|text| !text.is_empty())
    })
}

fn ask(home: &Home, body: &Value) -> String {
    let answer = home.ask("POST", "/v1/questions", &body.to_string());
    assert_eq!(answer.status(), 201, "{answer:?}");
    answer.json()["question"]["id"].as_str().expect("an id").to_owned()
}

/// Starts `aside ask`, which waits.
fn asking(home: &Home, args: &[&str]) -> Child {
    let args = [&["ask", "Deploy to staging?", "--choice", "yes", "--choice", "not now"], args].concat();
    home.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
}

fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The id of the only open question.
fn open(home: &Home) -> String {
    eventually("a question", || {
        let listed = home.get("/v1/questions");
        listed["questions"][0]["id"].as_str().map(str::to_owned)
    })
}

fn count_of(home: &Home, event_type: &str) -> usize {
    let page = home.get(&format!("/v1/events?type={event_type}"));
    page["events"].as_array().expect("a list").len()
}

#[test]
fn answer_is_delivered_to_the_asking_session_once() {
    let home = home(LOG_ONLY, "exit 1");
    let _daemon = home.serve();
    exchange(&home, "c1");
    let id = ask(&home, &json!({ "message": "Deploy?", "choices": ["yes", "no"], "session": "s1" }));
    let wrong = home.ask("POST", &format!("/v1/questions/{id}"), r#"{"answer":"yess"}"#);
    assert_eq!((wrong.status(), at(&wrong.json(), "/error/field")), (400, &json!("answer")));
    let listed = home.print(&["answer"]);
    assert!(listed.contains("Deploy?  yes | no"), "{listed}");
    let short = &id[..7];
    assert_eq!(home.print(&["answer", short, "no"]), format!("answered {short}: no\n"));
    let late = home.run(&["answer", short, "yes"]);
    let late = String::from_utf8_lossy(&late.stderr).into_owned();
    assert!(late.contains("was answered already: no, by unknown process"), "{late}");
    assert_eq!(home.print(&["answer"]), "no questions\n");
    let text = delivered(&home, "the answer");
    assert!(text.contains("answer: no") && text.contains("question: Deploy?"), "{text}");
    assert_eq!(exchange(&home, "c3"), "");
    let missing = home.run(&["answer", "q0000000", "yes"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("q0000000"), "{missing:?}");
}

#[test]
fn session_answering_own_question_needs_the_own_flag() {
    let home = home(LOG_ONLY, "exit 1");
    let _daemon = home.serve();
    // This process counts as the client, as its number is in the exchange.
    let harness = json!({ "name": "loop", "workspace": home.work(), "pid": std::process::id() });
    home.exchange("s1", &json!({ "point": "turn_start", "carrier": "c1", "turn": "t1", "harness": harness }));
    let body = json!({ "id": "q00ff00ff00ff00ff", "message": "Deploy?", "choices": ["yes", "no"] });
    let id = ask(&home, &body);
    assert_eq!(
        (id.as_str(), ask(&home, &body)),
        ("q00ff00ff00ff00ff", id.clone()),
        "asked again it is the same"
    );
    let other = json!({ "id": id, "message": "Delete?", "choices": ["yes", "no"] });
    assert_eq!(home.ask("POST", "/v1/questions", &other.to_string()).status(), 409);
    assert_eq!(home.get("/v1/inbox")["questions"], 1);
    assert_eq!(home.print(&["inbox"]), "1 question waits for your answer: aside answer\n");
    let refused = home.run(&["answer", &id, "yes"]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("is a question of s1 to its user"), "{why}");
    home.print(&["answer", &id, "yes", "--own"]);
    let end = home.get(&format!("/v1/questions/{id}/wait?timeout=5s"));
    assert_eq!((&end["answer"], &end["by"]), (&json!("yes"), &json!("session s1")));
    assert_eq!(ask(&home, &body), id, "it has ended, and is no new one");
    assert_eq!(home.get("/v1/inbox")["questions"], 0);
    eventually("its end", || (count_of(&home, "user.answered") == 1).then_some(()));
    assert_eq!(count_of(&home, "user.question"), 1);
}

#[test]
fn waiting_asker_gets_the_answer_once_across_restart() {
    let home = home(LOG_ONLY, "exit 1");
    let daemon = home.serve();
    exchange(&home, "c1");
    let mut child = asking(&home, &["--session", "s1"]);
    let mut how = String::new();
    // `aside ask` has the answer to its first request, and waits.
    BufReader::new(child.stderr.as_mut().expect("piped")).read_line(&mut how).expect("text");
    let id = open(&home);
    assert!(how.starts_with(&format!("aside answer {} yes | not now; it ends ", &id[..7])), "{how}");
    daemon.kill();
    let _daemon = home.serve();
    assert_eq!(open(&home), id, "a restart forgets none");
    home.print(&["answer", &id, "not now"]);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(said(&output), (Some(0), "not now\n".to_owned()), "{output:?}");
    eventually("its end", || (count_of(&home, "user.answered") == 1).then_some(()));
    assert_eq!(exchange(&home, "c2"), "", "it has been delivered");
}

#[test]
fn answer_to_an_abandoned_question_reaches_the_session() {
    let home = home(LOG_ONLY, "exit 1");
    let _daemon = home.serve();
    exchange(&home, "c1");
    let mut child = asking(&home, &["--session", "s1"]);
    let id = open(&home);
    // As Ctrl-C does.
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    home.print(&["answer", &id, "yes"]);
    let text = delivered(&home, "the answer");
    assert!(text.contains("answer: yes"), "{text}");
}

#[test]
fn nobody_answers_in_time() {
    let home = home(LOG_ONLY, "exit 1");
    let _daemon = home.serve();
    exchange(&home, "c1");
    let output = asking(&home, &["--session", "s1", "--for", "1s"]).wait_with_output().expect("it ends");
    assert_eq!(said(&output), (Some(3), String::new()), "{output:?}");
    ask(&home, &json!({ "message": "Now?", "choices": ["a", "b"], "expires": "1s", "session": "s1" }));
    let text = delivered(&home, "its end");
    assert!(text.contains("not_answered: Now?") && !text.contains("Deploy"), "{text}");
}

#[test]
fn the_desktop_answers() {
    let record = "printf '%s|' \"$@\" >> \"${0%/*}/../shown\"; echo 1";
    let home = home("[sinks]\ndefault = [\"desktop\"]\n", record);
    let _daemon = home.serve();
    let output = asking(&home, &["--json"]).wait_with_output().expect("it ends");
    let end: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((at(&end, "/answer"), at(&end, "/by")), (&json!("not now"), &json!("desktop")));
    let shown = fs::read_to_string(home.path("shown")).expect("it was shown");
    assert!(shown.contains("--wait|--expire-time=0|--action=0=yes|--action=1=not now|--|"), "{shown}");
}

#[test]
fn desktop_window_closes_when_question_is_answered_elsewhere() {
    let script = "case \"$*\" in *--wait*) echo $$ > \"${0%/*}/../waits\"; exec sleep 600;; esac
        echo shown > \"${0%/*}/../other\"";
    let home = home("[sinks]\ndefault = [\"desktop\"]\n", script);
    let _daemon = home.serve();
    let id = ask(&home, &json!({ "message": "Deploy?", "choices": ["yes", "no"] }));
    let pid: u32 =
        eventually("its window", || fs::read_to_string(home.path("waits")).ok()?.trim().parse().ok());
    home.print(&["notify", "something else"]);
    eventually("another notice", || fs::read_to_string(home.path("other")).ok());
    home.print(&["answer", &id, "yes"]);
    let is_gone =
        || !fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("sleep"));
    eventually("its window's end", || is_gone().then_some(()));
    let why = home.print(&["why", &id]);
    assert!(why.contains("desktop no longer asks: the question was answered or has expired"), "{why}");
}

#[test]
fn older_desktop_and_other_sinks_show_answer_command() {
    let script = "case \"$*\" in *--wait*) echo 'Unknown option --action' >&2; exit 1;; esac
        printf '%s|' \"$@\" > \"${0%/*}/../shown\"";
    let home = home("[sinks]\ndefault = [\"desktop\", \"log\"]\n", script);
    let _daemon = home.serve();
    let id = ask(&home, &json!({ "message": "Deploy?", "choices": ["yes", "not now"] }));
    let shown =
        eventually("a text", || fs::read_to_string(home.path("shown")).ok().filter(|text| !text.is_empty()));
    let command = format!("Deploy? [aside answer {} yes | 'not now']|", &id[..7]);
    assert!(shown.ends_with(&command), "{shown}");
    let line = eventually("its line", || {
        fs::read_to_string(home.state().join("notices.jsonl")).ok().filter(|text| !text.is_empty())
    });
    let line: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((at(&line, "/choices"), at(&line, "/id")), (&json!(["yes", "not now"]), &json!(id)));
}
