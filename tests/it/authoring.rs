//! `aside new`, `aside subscribers` and their neighbours with a running daemon.

use std::fs;

use serde_json::json;

use crate::support::daemon::{Home, text};

fn deploy(number: usize) -> serde_json::Value {
    let service = ["web", "api", "jobs", "mail"][number % 4];
    let mut payload = json!({ "service": service, "version": format!("1.{number}"), "seconds": number });
    if number > 1 {
        payload["url"] = format!("https://h/{number}").into();
    }
    json!({ "id": format!("d{number}"), "type": "deploy.web.finished", "source": "ci", "payload": payload })
}

#[test]
fn tests_of_new_subscribers_notice_changes() {
    for (id, args) in [
        ("one", &["--type", "tool.call.failure", "--from", "example"][..]),
        ("invented", &["--type", "shop.order.placed"]),
        ("pattern", &["--type", "shop.*.finished"]),
        ("types", &["--type", "ci.check.failed", "--type", "ci.check.passed", "--from", "example"]),
        (
            "keys",
            &[
                "--type",
                "tool.call.failure",
                "--from",
                "example",
                "--priority",
                "high",
                "--point",
                "turn_start",
            ],
        ),
        ("template", &["--type", "tool.call.failure", "--from", "example", "--template"]),
    ] {
        let home = Home::new();
        home.print(&[&["new", "subscriber", id], args].concat());
        let mutated = home.run(&["test", id, "--mutate", "--format", "json"]);
        let mutated: serde_json::Value = serde_json::from_slice(&mutated.stdout).expect("JSON");
        let mutated = &mutated["subscribers"][0];
        let [noticed, unnoticed] =
            [mutated["noticed"].as_u64(), mutated["unnoticed"].as_array().map(|all| all.len() as u64)];
        let (noticed, unnoticed) = noticed.zip(unnoticed).unwrap_or_else(|| panic!("{mutated}"));
        assert!(noticed > 3 && unnoticed * 10 <= noticed + unnoticed, "{id}: {mutated}");
    }
}

#[test]
fn preview_of_unknown_type_names_next_command() {
    let own = "[subscriber]\nid = \"orders\"\n[events]\ntypes = [\"shop.order.placed\"]\n";
    let home = Home::with(&[("subscribers/orders.toml", own)]);
    let preview = home.print(&["preview", "orders"]);
    assert!(preview.ends_with("\nnext: aside new event shop.order.placed\n"), "{preview}");
    home.print(&["new", "subscriber", "fails", "--type", "tool.call.failure", "--from", "example"]);
    assert!(!home.print(&["preview", "fails"]).contains("next: aside new event"));
}

#[test]
fn new_subscriber_comes_from_unmatched_events() {
    let home = Home::new();
    let _daemon = home.serve();
    for number in 0..24 {
        home.publish(&deploy(number));
    }
    let said = home.print(&["new", "subscriber", "deploys", "--type", "deploy.*.finished"]);
    for part in [
        "read the newest 20 events of deploy.*.finished, the last ",
        "  service   20 of 20   text, 4 values   column, dedupe_key\n",
        "  version   20 of 20   text             column\n",
        "  url       20 of 20   text             column\n",
        "  seconds   20 of 20   number           column\n",
        "subscribers/deploys.toml     1 subscriber, 2 tests\n",
        "added  deploy.web.finished to ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(home.print(&["check"]).starts_with("no errors"));
    assert!(home.print(&["test", "deploys"]).contains("2 ok, 0 failed"));
    assert!(home.print(&["reload"]).contains("in force"));
    home.exchange("s1", &json!({ "point": "turn_start", "carrier": "c1" }));
    home.publish(&deploy(30));
    let answer = home.exchange("s1", &json!({ "point": "turn_end", "carrier": "c2" }));
    assert!(
        answer.json()["text"].as_str().is_some_and(|text| text.contains("version: \"1.30\"")),
        "{:?}",
        answer.json()
    );
    // Tests and fixtures of events that are named by id and by position.
    let said = home.print(&["new", "test", "deploys", "--from", "d3", "d4"]);
    assert!(said.contains("`real events`: 2 events"), "{said}");
    assert!(home.print(&["test", "deploys"]).contains("3 ok, 0 failed"));
    let said = home.print(&["new", "fixture", "two", "--last", "2", "--type", "deploy.**"]);
    assert!(said.contains("fixtures/two.json     2 events"), "{said}");
    let said = home.print(&["preview", "deploys", "--fixture", "two", "--count", "1"]);
    assert!(said.contains("version: \"1.2"), "{said}");
    let unknown = home.run(&["new", "fixture", "none", "--from", "nope"]);
    assert!(text(&unknown.stderr).contains("there is no event `nope`"), "{unknown:?}");
}

#[test]
fn new_subscriber_without_events_or_daemon() {
    let home = Home::new();
    let said =
        home.print(&["new", "subscriber", "tools", "--type", "tool.call.failure", "--priority", "high"]);
    assert!(
        said.contains("read the catalogue's example of tool.call.failure, as no daemon runs\n"),
        "{said}"
    );
    let said = home.print(&["new", "subscriber", "ghosts", "--type", "ghost.*.seen"]);
    assert!(said.contains("read nothing: no daemon runs, so two fields are placeholders\n"), "{said}");
    let said = home.print(&["new", "subscriber", "spooks", "--type", "ghost.old.seen"]);
    assert!(said.contains("added  ghost.old.seen to "), "{said}");
    let entries = fs::read_to_string(home.path("config/events.toml")).expect("written");
    assert!(
        entries.contains("# No event was found: the fields of the example are placeholders.\n"),
        "{entries}"
    );
    let last = home.run(&["new", "event", "a.b.c", "--from", "last"]);
    assert!(text(&last.stderr).contains("no daemon at "), "{last:?}");
    let _daemon = home.serve();
    let said = home.print(&["new", "subscriber", "others", "--type", "other.thing"]);
    assert!(
        said.contains("read nothing: no event of other.thing was published, so two fields are"),
        "{said}"
    );
    // `ghost.old.seen` is known now, so the allowance of the pattern is a finding.
    let checked = text(&home.run(&["check"]).stdout);
    assert!(
        checked.contains("nothing is silenced") && checked.ends_with("0 errors, 1 warning\n"),
        "{checked}"
    );
}

const PAGER: &str = r#"[subscriber]
id = "pager"
[events]
types = ["pager.alert.fired"]
[batching]
window_ms = 0
[limits]
resolved_by = ["pager.alert.resolved"]
equal = "payload.name"
[output]
one = "alert: {{ payload.name }}"
"#;

#[test]
fn subscribers_are_shown_with_what_they_did() {
    let own = "[subscriber]\nid = \"timer\"\ninherit = true\n[output]\npriority = \"low\"\n";
    let home = Home::with(&[("subscribers/pager.toml", PAGER), ("subscribers/timer.toml", own)]);
    let daemon = home.serve();
    home.exchange("s1", &json!({ "point": "turn_start", "carrier": "c1" }));
    for name in ["disk", "cpu"] {
        home.publish(
            &json!({ "id": name, "type": "pager.alert.fired", "source": "p", "payload": { "name": name } }),
        );
    }
    home.exchange("s1", &json!({ "point": "turn_end", "carrier": "c2" }));
    home.publish(
        &json!({ "id": "net", "type": "pager.alert.fired", "source": "p", "payload": { "name": "net" } }),
    );
    home.print(&["silence", "add", "--subscriber", "pager", "--for", "2h"]);
    let list = home.print(&["subscribers"]);
    let row = list.lines().find(|line| line.starts_with("pager ")).unwrap_or_else(|| panic!("{list}"));
    let row: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(row[..6], ["pager", "silenced", "user", "3", "3", "2"], "{list}");
    assert!(list.contains("pager  silenced by ") && list.contains(", 1 notification is held\n"), "{list}");
    assert!(list.contains(" without an event in 7 days: --all\n") && !list.contains("ci_check"), "{list}");
    assert!(home.print(&["subscribers", "--all"]).contains("ci_check"));
    let page = home.print(&["subscribers", "pager"]);
    for part in [
        "pager: silenced, from user\ntakes pager.alert.fired\ndelivers each event alone as normal notifications at after_tool",
        " subscribers/pager.toml:6\n",
        "  output.priority = \"normal\"                                             default\n",
        "tests       none; `aside new test` makes one of real events\n",
        "open        no batch\n",
        "pending     1 notification\n",
        "held        silenced by ",
        "conditions  3 that hold\n",
        "in 7 days   3 events taken, 3 made, 2 sent, ",
        "silence     ",
        ") net\n",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let diff = home.print(&["subscribers", "timer", "--diff"]);
    assert!(diff.contains("- output.priority = \"normal\"\n+ output.priority = \"low\"\n"), "{diff}");
    let none = home.run(&["subscribers", "pager", "--diff"]);
    assert!(text(&none.stderr).contains("`pager` replaces no shipped subscriber"), "{none:?}");
    let json: serde_json::Value =
        serde_json::from_str(&home.print(&["subscribers", "pager", "--json"])).expect("JSON");
    assert_eq!((&json["live"]["sent"], &json["live"]["held"]), (&json!(2), &json!(1)), "{json}");
    home.configure("subscribers/new.toml", &PAGER.replace("\"pager\"", "\"new\""));
    assert!(home.print(&["subscribers"]).contains("new    is not in force yet: aside reload\n"));
    daemon.kill();
    assert!(home.print(&["subscribers"]).contains("there are no counts: no daemon runs\n"));
    assert!(home.print(&["subscribers", "pager"]).contains("open        not known: no daemon runs\n"));
}
