//! `aside new`, `aside subscribers` and their neighbours with a running daemon.

use serde_json::json;

use crate::support::daemon::{Home, text};

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
    assert_eq!(row[..6], ["pager", "on", "user", "3", "3", "2"], "{list}");
    assert!(list.contains("pager  silenced by ") && list.contains(", 1 notification is held\n"), "{list}");
    assert!(list.contains(" without an event in 7 days: --all\n") && !list.contains("ci_check"), "{list}");
    assert!(home.print(&["subscribers", "--all"]).contains("ci_check"));
    let page = home.print(&["subscribers", "pager"]);
    for part in [
        "pager: on, from user\ntakes pager.alert.fired\ndelivers each event alone as normal notifications at after_tool",
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
