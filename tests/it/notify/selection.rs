//! Which notices a sink takes and the history lists, and what of a notice with code each shows.

use serde_json::{Value, json};

use super::{exchange, home, logged, notify, shown};
use crate::support::daemon::eventually;

#[test]
fn sinks_and_history_select_by_category_and_level() {
    let home = home(
        "[sinks]\ndefault = [\"log\", \"command\"]\n[sinks.log]\ncategories = [\"safety\"]\n\
         [sinks.command]\ncommand = [\"show\", \"{text}\"]\nstdin = \"none\"\nlevel = \"error\"\n",
    );
    let _daemon = home.serve();
    let said = |message: &str, level: &str, category: Option<&str>| {
        notify(&home, &json!({ "message": message, "level": level, "category": category }))
    };
    let safe = said("keys are public", "warn", Some("safety"));
    assert_eq!(safe["sinks"], json!(["log"]));
    assert_eq!(said("disk is full", "error", Some("workflow"))["sinks"], json!(["command"]));
    let none = said("it goes on", "info", None);
    assert_eq!(none["suppressed"], json!("filtered"));
    assert_eq!(none["text"], "Notification not sent: it goes on (no sink takes its level and category)");
    eventually("both", || {
        (logged(&home).len() == 1 && shown(&home, "command") == "disk is full|\n").then_some(())
    });
    let why = home.print(&["why", safe["id"].as_str().expect("an id")]);
    assert!(why.contains("command does not take it: its level or its category is filtered out"), "{why}");
    let listed = |arguments: &[&str]| {
        let asked = [&["history", "--json"], arguments].concat();
        let found: Value = serde_json::from_str(&home.print(&asked)).expect("JSON");
        let events = found["events"].as_array().expect("a list").iter();
        events
            .map(|line| line["event"]["payload"]["message"].as_str().unwrap_or("-").to_owned())
            .collect::<Vec<_>>()
    };
    let of = |arguments: &[&str], count: usize| {
        eventually("the history", || Some(listed(arguments)).filter(|found| found.len() == count))
    };
    assert_eq!(of(&["--category", "safety"], 1), ["keys are public"]);
    assert_eq!(of(&["--level", "warn"], 2), ["disk is full", "keys are public"]);
    assert_eq!(of(&["--level", "error", "--category", "safety"], 0), [""; 0]);
    let wrong = home.run(&["history", "--category", "safty"]);
    let error = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(error.contains("`safty` is not a category; did you mean `safety`?"), "{error}");
}

#[test]
fn fenced_code_keeps_its_lines() {
    let home = home("[sinks]\ndefault = [\"desktop\", \"log\", \"apprise\", \"harness\"]\n");
    let _daemon = home.serve();
    exchange(&home, "c1");
    let message = "It **fails**:\n```rust\nlet a = <b>;\n\u{1b}[31m    c();\u{1b}[0m\n```\nsee it";
    let said = notify(&home, &json!({ "message": message, "markdown": true, "session": "s1" }));
    assert_eq!(said["text"], "Notification sent: It **fails**: ```rust let a = <b>;     c(); ``` see it");
    let line = "It fails: let a = <b>; \u{23ce} c(); see it";
    assert_eq!(exchange(&home, "c2")["notice"], format!("aside: llm: {line}"));
    let desktop = eventually("the window", || Some(shown(&home, "desktop")).filter(|text| !text.is_empty()));
    assert!(desktop.contains("It <b>fails</b>:\nlet a = &lt;b&gt;;\n    c();\nsee it|"), "{desktop}");
    let markdown = "It **fails**:\n```rust\nlet a = <b>;\n    c();\n```\nsee it";
    eventually("the mail", || shown(&home, "apprise").contains(markdown).then_some(()));
    let logged = eventually("its line", || logged(&home).into_iter().next());
    assert_eq!((&logged["message"], &logged["markdown"]), (&json!(line), &json!(markdown)));
}
