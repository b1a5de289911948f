//! `aside explain` before an event, and `aside why` after it: both name the same rule.

use serde_json::{Value, json};

use crate::support::daemon::{Home, at, eventually, text};

/// A reason why an event is not delivered. The line of the rule in the file ends with [`MARK`].
struct Planted {
    /// Its subscriber, and its source.
    name: &'static str,
    /// The rest of the file after the id.
    file: &'static str,
    /// The events that come first.
    before: &'static [&'static str],
    event: &'static str,
    /// What `aside why` says.
    reason: &'static str,
}

const MARK: &str = "# rule";

const PLANTED: [Planted; 18] = [
    Planted {
        name: "of_source",
        file: "[events]\ntypes = [\"plant.of_source.a\"]\nsources = [\"another\"] # rule\n",
        before: &[],
        event: r#"{"type":"plant.of_source.a"}"#,
        reason: "of_source filtered it: sources",
    },
    Planted {
        name: "severity",
        file: "[events]\ntypes = [\"plant.severity.a\"]\nseverity_filter = \"error\" # rule\n",
        before: &[],
        event: r#"{"type":"plant.severity.a"}"#,
        reason: "severity filtered it: severity_filter",
    },
    Planted {
        name: "lowered",
        file: "[events]\ntypes = [\"plant.lowered.a\"]\nseverity_filter = \"warning\" # rule\n\
               severity_when = [{ is = \"debug\", where = \"payload.n == 1\" }]\n",
        before: &[],
        event: r#"{"type":"plant.lowered.a","severity":"error","payload":{"n":1}}"#,
        reason: "lowered filtered it: severity_filter",
    },
    Planted {
        name: "where_false",
        file: "[events]\ntypes = [\"plant.where_false.a\"]\nwhere = \"payload.n > 1\" # rule\n",
        before: &[],
        event: r#"{"type":"plant.where_false.a","payload":{"n":1}}"#,
        reason: "where_false filtered it: where",
    },
    Planted {
        name: "where_fails",
        file: "[events]\ntypes = [\"plant.where_fails.a\"]\nwhere = \"payload.n > 1\" # rule\n",
        before: &[],
        event: r#"{"type":"plant.where_fails.a","payload":{"n":"x"}}"#,
        reason: "where_fails filtered it: where could not be evaluated",
    },
    Planted {
        name: "repeat",
        file: "[events]\ntypes = [\"plant.repeat.a\"]\n[batching]\ndedupe_window_ms = 60000\n\
               dedupe_key = \"payload.n\" # rule\n",
        before: &[r#"{"type":"plant.repeat.a","payload":{"n":1}}"#],
        event: r#"{"type":"plant.repeat.a","payload":{"n":1}}"#,
        reason: "repeat counted it as a repeat of ",
    },
    Planted {
        name: "own_key",
        file: "[events]\ntypes = [\"plant.own_key.a\"]\n[batching]\nwindow_ms = 0\ndedupe_window_ms = 60000\n\
               dedupe_key = \"payload.n\" # rule\n",
        before: &[r#"{"type":"plant.own_key.a","dedupe_key":"k","payload":{"n":1}}"#],
        event: r#"{"type":"plant.own_key.a","dedupe_key":"k","payload":{"n":2}}"#,
        reason: "own_key counted it as a repeat of ",
    },
    Planted {
        name: "threshold",
        file: "[events]\ntypes = [\"plant.threshold.a\"]\n[threshold]\ncount = true\nwithin = \"1h\"\nat = [3] # rule\n",
        before: &[],
        event: r#"{"type":"plant.threshold.a"}"#,
        reason: "threshold counted it; it reached no level",
    },
    Planted {
        name: "event_rate",
        file: "[events]\ntypes = [\"plant.event_rate.a\"]\n[limits]\nrate_of = \"events\"\nrate = \"1/h\" # rule\n",
        before: &[r#"{"type":"plant.event_rate.a"}"#],
        event: r#"{"type":"plant.event_rate.a"}"#,
        reason: "event_rate was rate-limited until ",
    },
    Planted {
        name: "rate",
        file: "[events]\ntypes = [\"plant.rate.a\"]\n[batching]\nwindow_ms = 0\n[limits]\nrate = \"1/h\" # rule\n",
        before: &[r#"{"type":"plant.rate.a"}"#],
        event: r#"{"type":"plant.rate.a"}"#,
        reason: "rate was rate-limited until ",
    },
    Planted {
        name: "late_rate",
        file: "[events]\ntypes = [\"plant.late_rate.a\"]\n[batching]\nwindow_ms = 300\n\
               close_when = \"payload.n == 1\"\n[limits]\nrate = \"1/h\" # rule\n",
        before: &[r#"{"type":"plant.late_rate.a","payload":{"n":1}}"#],
        event: r#"{"type":"plant.late_rate.a","payload":{"n":2}}"#,
        reason: "late_rate was rate-limited until ",
    },
    Planted {
        name: "inhibited",
        file: "[events]\ntypes = [\"plant.inhibited.a\"]\n[limits]\ninhibited_by = [\"plant.inhibited.b\"] # rule\n\
               inhibit_equal = \"\"\n",
        before: &[r#"{"type":"plant.inhibited.b"}"#],
        event: r#"{"type":"plant.inhibited.a"}"#,
        reason: "inhibited did not take it: the event ",
    },
    Planted {
        name: "inhibited_long",
        file: "[events]\ntypes = [\"plant.inhibited_long.a\"]\n[[limits.inhibit]]\nby = [\"plant.inhibited_long.b\"]\n\
               equal = \"\"\nfor = \"1h\"\n[[limits.inhibit]]\nequal = \"payload.zone\"\n\
               by = [\"plant.inhibited_long.c\"] # rule\nuntil = [\"plant.inhibited_long.d\"]\n",
        before: &[r#"{"type":"plant.inhibited_long.c","payload":{"zone":"eu"}}"#],
        event: r#"{"type":"plant.inhibited_long.a","payload":{"zone":"eu"}}"#,
        reason: "inhibited_long did not take it: the event ",
    },
    Planted {
        name: "stale",
        file: "[events]\ntypes = [\"plant.stale.a\"]\n[limits]\nsupersede_key = \"payload.pr\"\n\
               order_by = \"payload.n\" # rule\n",
        before: &[r#"{"type":"plant.stale.a","payload":{"pr":1,"n":2}}"#],
        event: r#"{"type":"plant.stale.a","payload":{"pr":1,"n":1}}"#,
        reason: "stale knows a newer state of the same",
    },
    Planted {
        name: "disabled",
        file: "enabled = false # rule\n[events]\ntypes = [\"plant.disabled.a\"]\n",
        before: &[],
        event: r#"{"type":"plant.disabled.a"}"#,
        reason: "disabled is switched off",
    },
    Planted {
        name: "resolves",
        file: "[events]\ntypes = [\"plant.resolves.a\"]\n[limits]\nresolved_by = [\"plant.resolves.b\"] # rule\n\
               equal = \"payload.n\"\n",
        before: &[r#"{"type":"plant.resolves.a","payload":{"n":1}}"#],
        event: r#"{"type":"plant.resolves.b","payload":{"n":1}}"#,
        reason: "resolves withdraws what this resolves",
    },
    Planted {
        name: "inhibits",
        file: "[events]\ntypes = [\"plant.inhibits.a\"]\n[limits]\ninhibited_by = [\"plant.inhibits.b\"] # rule\n\
               inhibit_equal = \"\"\n",
        before: &[],
        event: r#"{"type":"plant.inhibits.b"}"#,
        reason: "inhibits inhibits what it takes",
    },
    // A file that inherits from the shipped one.
    Planted {
        name: "background_task",
        file: "inherit = true\n[events]\nwhere = \"payload.task == 'x'\" # rule\n",
        before: &[],
        event: r#"{"type":"task.failed","payload":{"task":"y"}}"#,
        reason: "background_task filtered it: where",
    },
];

/// The line of the rule in a file, as people read it.
fn marked(file: &str, text: &str) -> String {
    let line = text.lines().position(|line| line.ends_with(MARK)).expect("a marked line");
    format!("{file}:{}", line + 1)
}

impl Planted {
    fn path(&self) -> String {
        format!("subscribers/{}.toml", self.name)
    }

    fn text(&self) -> String {
        format!("[subscriber]\nid = \"{}\"\n{}", self.name, self.file)
    }

    /// An event of its own source.
    fn event(&self, event: &str, id: &str) -> Value {
        let mut event: Value = serde_json::from_str(event).expect("JSON");
        event["source"] = json!(self.name);
        event["id"] = json!(id);
        event
    }
}

/// The page of `aside explain` about an event.
fn page(home: &Home, event: &Value, more: &[&str]) -> String {
    let file = home.path("event.json");
    std::fs::write(&file, event.to_string()).expect("written");
    home.print(&[&["explain", &file.display().to_string(), "--everywhere"], more].concat())
}

/// The same as JSON.
fn explained(home: &Home, event: &Value) -> Value {
    serde_json::from_str(&page(home, event, &["--json"])).expect("JSON")
}

/// What it says about one subscriber.
fn of_subscriber<'v>(explained: &'v Value, name: &str) -> &'v Value {
    let all = explained["subscribers"].as_array().expect("a list");
    all.iter().find(|one| one["subscriber"] == name).expect("a subscriber")
}

/// The rule that decides, as people read it.
fn rule_of(outcome: &Value) -> String {
    let file = outcome["rule"]["file"].as_str().expect("a rule");
    let name = file.rfind("subscribers/").or_else(|| file.rfind("aside.toml")).expect("a file of a layer");
    format!("{}:{}", &file[name..], outcome["rule"]["line"])
}

fn why(home: &Home, id: &str, words: &str) -> String {
    eventually(words, || {
        let why = text(&home.run(&["why", id]).stdout);
        why.contains(words).then_some(why)
    })
}

#[test]
fn explain_and_why_name_the_same_rule() {
    let files: Vec<(String, String)> = PLANTED.iter().map(|one| (one.path(), one.text())).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (&**name, &**text)).collect();
    let home = Home::with(&files);
    let _daemon = home.serve();
    for planted in &PLANTED {
        let name = planted.name;
        for (number, before) in planted.before.iter().enumerate() {
            home.publish(&planted.event(before, &format!("{name}-before-{number}")));
        }
        let event = planted.event(planted.event, &format!("{name}-it"));
        let expected = marked(&planted.path(), &planted.text());
        let explained = explained(&home, &event);
        let outcome = of_subscriber(&explained, name);
        assert_eq!(outcome["fate"], "ended", "{name}: {outcome}");
        assert_eq!(rule_of(outcome), expected, "{name}: {outcome}");
        home.publish(&event);
        let why = why(&home, &format!("{name}-it"), planted.reason);
        let line = why.lines().find(|line| line.contains(planted.reason)).expect("the reason");
        assert!(line.ends_with(&format!(" ({expected})")), "{name}: {why}");
    }
    for (name, first) in [("repeat", "plant.repeat.a"), ("inhibited", "plant.inhibited.b")] {
        let why = text(&home.run(&["why", &format!("{name}-it")]).stdout);
        assert!(why.contains(&format!(", {first} ")), "{why}");
    }
    let unknown = text(&home.run(&["explain", "nothing"]).stderr);
    assert!(unknown.contains("there is no event `nothing`; a type has a dot"), "{unknown}");
    // The same event again: it is decided as it was then.
    let again = home.print(&["explain", "where_false-it"]);
    assert!(again.contains("  then         the same\n  payload.n > 1     1 is not above 1\n"), "{again}");
}

#[test]
fn both_name_the_same_silence_and_rate() {
    let settings = "[sources]\nrate = \"3/min\" # rule\n";
    let plain =
        "[subscriber]\nid = \"plain\"\n[events]\ntypes = [\"plant.plain.a\"]\n[batching]\nwindow_ms = 0\n";
    let home = Home::with(&[("aside.toml", settings), ("subscribers/plain.toml", plain)]);
    let _daemon = home.serve();
    let event =
        |id: &str| json!({ "type": "plant.plain.a", "source": "p", "id": id, "payload": { "n": id } });
    let made = home.print(&["silence", "add", "--subscriber", "plain"]);
    let silence = made.split_whitespace().next().expect("an id");
    let first = explained(&home, &event("silent"));
    let outcome = of_subscriber(&first, "plain");
    assert_eq!((&outcome["reason"], &outcome["detail"]), (&json!("silenced"), &json!(silence)), "{outcome}");
    home.publish(&event("silent"));
    why(&home, "silent", &format!("plain did not take it: the silence {silence} suppressed it"));
    home.publish(&event("second"));
    home.publish(&event("third"));
    let fourth = explained(&home, &event("fourth"));
    assert_eq!(fourth["throttled"], "source_rate", "{fourth}");
    assert_eq!(rule_of(of_subscriber(&fourth, "plain")), marked("aside.toml", settings));
    home.publish(&event("fourth"));
    why(&home, "fourth", "throttled: source over its rate (aside.toml:2)");
}

#[test]
fn the_end_of_a_pending_notification_is_foreseen() {
    let newer = "[subscriber]\nid = \"newer\"\n[events]\ntypes = [\"plant.newer.a\"]\n[batching]\nwindow_ms = 0\n\
                 [limits]\nsupersede_key = \"payload.pr\" # rule\n";
    let state = "[subscriber]\nid = \"state\"\n[events]\ntypes = [\"plant.state.a\"]\n[batching]\nwindow_ms = 0\n\
                 [limits]\nequal = \"payload.pr\"\nresolved_by = [\"plant.state.b\"] # rule\n";
    let brief = "[subscriber]\nid = \"brief\"\n[events]\ntypes = [\"plant.brief.a\"]\n[batching]\nwindow_ms = 0\n\
                 [limits]\nttl = \"1s\" # rule\n";
    let home = Home::with(&[
        ("subscribers/newer.toml", newer),
        ("subscribers/state.toml", state),
        ("subscribers/brief.toml", brief),
    ]);
    let _daemon = home.serve();
    home.exchange("s1", &json!({ "point": "turn_start", "carrier": "c1" }));
    let event = |event_type: &str, id: &str| json!({ "type": event_type, "id": id, "source": "p", "payload": { "pr": 7, "n": id } });
    home.publish(&event("plant.newer.a", "old"));
    home.publish(&event("plant.state.a", "open"));
    for (event_type, name, file, step, id, reason) in [
        (
            "plant.newer.a",
            "newer",
            newer,
            "replaces     1 pending",
            "old",
            "a newer one about the same state replaces it",
        ),
        ("plant.state.b", "state", state, "resolves     1 pending", "open", "its condition was resolved"),
        ("plant.brief.a", "brief", brief, "expires      in ", "b", "its time to live ended"),
    ] {
        let expected = marked(&format!("subscribers/{name}.toml"), file);
        let next = event(event_type, if name == "brief" { "b" } else { name });
        let page = page(&home, &next, &[]);
        let line = page.lines().find(|line| line.contains(step)).unwrap_or_else(|| panic!("{step}: {page}"));
        assert!(line.ends_with(&expected), "{page}");
        home.publish(&next);
        let why = why(&home, id, reason);
        assert!(why.contains(&format!("{reason} ({expected})")), "{why}");
    }
}

#[test]
fn explaining_changes_nothing() {
    let file =
        "[subscriber]\nid = \"plain\"\n[events]\ntypes = [\"plant.plain.a\"]\n[batching]\nwindow_ms = 9000\n";
    let home = Home::with(&[("subscribers/plain.toml", file)]);
    let _daemon = home.serve();
    let head = || at(&home.get("/v1/status"), "/journal/head").clone();
    home.publish(&json!({ "type": "plant.plain.a", "payload": { "n": 1 } }));
    let before = head();
    for _ in 0..3 {
        let page = home.print(&["explain", "plant.plain.a", "n=2", "--everywhere"]);
        assert!(page.contains("joins the batch, 2 rows"), "{page}");
        assert!(page.contains("text of plain"), "{page}");
    }
    assert_eq!(head(), before);
    // Without a daemon's state there is no batch.
    let config = home.path("config").display().to_string();
    let page = home.print(&["explain", "plant.plain.a", "n=2", "--everywhere", "--config", &config]);
    assert!(page.contains("begins the batch") || page.contains("state    a fresh start"), "{page}");
}

#[test]
fn places_are_those_of_the_rules_in_force() {
    let file = "[subscriber]\nid = \"plain\"\n[events]\ntypes = [\"plant.plain.a\"]\nwhere = \"payload.n > 1\" # rule\n";
    let home = Home::with(&[("subscribers/plain.toml", file)]);
    let _daemon = home.serve();
    let place = marked("subscribers/plain.toml", file);
    let note = "the files have changed since the daemon read them: aside reload";
    home.publish(&json!({ "type": "plant.plain.a", "id": "one", "payload": { "n": 1 } }));
    let ask = || {
        let why = why(&home, "one", "plain filtered it: where");
        [home.print(&["explain", "plant.plain.a", "n=1", "--everywhere"]), why]
    };
    assert!(ask().iter().all(|page| page.contains(&place) && !page.contains(note)), "{:?}", ask());
    // Two lines above it, which the daemon has not read.
    let newer = format!("# a comment\n\n{file}");
    home.configure("subscribers/plain.toml", &newer);
    assert!(ask().iter().all(|page| page.contains(&place) && page.contains(note)), "{:?}", ask());
    home.print(&["reload"]);
    let place = marked("subscribers/plain.toml", &newer);
    assert!(ask().iter().all(|page| page.contains(&place) && !page.contains(note)), "{:?}", ask());
}

#[test]
fn a_change_of_the_rules_is_marked() {
    let file = "[subscriber]\nid = \"plain\"\n[events]\ntypes = [\"plant.plain.a\"]\nwhere = \"payload.n > 1\" # rule\n";
    let home = Home::with(&[("subscribers/plain.toml", file)]);
    let _daemon = home.serve();
    home.publish(&json!({ "type": "plant.plain.a", "id": "one", "payload": { "n": 1 } }));
    why(&home, "one", "plain filtered it: where");
    let page = home.print(&["explain", "one"]);
    assert!(page.contains("  then         the same\n"), "{page}");
    home.configure("subscribers/plain.toml", &file.replace("payload.n > 1", "payload.n > 0"));
    home.print(&["reload"]);
    let page = home.print(&["explain", "one"]);
    assert!(page.contains("plain          takes it"), "{page}");
    assert!(page.contains("  then         DIFFERS: filtered it: where"), "{page}");
    assert!(page.contains("  payload.n > 0     1 is above 0\n"), "{page}");
}

#[test]
fn a_part_of_the_sessions_is_refused() {
    let file = "[subscriber]\nid = \"plain\"\n[events]\ntypes = [\"plant.plain.a\"]\n[batching]\nwindow_ms = 0\n\
                [limits]\ninhibit_equal = \"\"\ninhibited_by = [\"plant.plain.b\"] # rule\n";
    let home = Home::with(&[("subscribers/plain.toml", file)]);
    let _daemon = home.serve();
    for session in ["silent", "inhibited", "open"] {
        home.exchange(session, &json!({ "point": "turn_start", "carrier": "c1" }));
    }
    let made = home.print(&["silence", "add", "--subscriber", "plain", "--session", "silent"]);
    let silence = made.split_whitespace().next().expect("an id");
    home.publish(&json!({ "type": "plant.plain.b", "source": "p", "session": "inhibited" }));
    let event = json!({ "type": "plant.plain.a", "source": "p", "id": "it", "payload": { "n": 1 } });
    let page = page(&home, &event, &[]);
    let place = marked("subscribers/plain.toml", file);
    for part in [
        format!("not to silent: the silence {silence} suppressed it"),
        "not to inhibited: inhibited by plant.plain.b (".to_owned(),
        place.clone(),
        "after_tool, normal, to open".to_owned(),
    ] {
        assert!(page.contains(&part), "{part}: {page}");
    }
    home.publish(&event);
    let why = why(&home, "it", "ended in session inhibited: the event ");
    assert!(why.contains(", plant.plain.b ") && why.contains(&format!("({place})")), "{why}");
    assert!(why.contains(&format!("ended in session silent: the silence {silence} suppressed it")), "{why}");
    let page = home.print(&["explain", "plant.plain.a", "--session", "open"]);
    assert!(page.starts_with("event    plant.plain.a, info, from cli, trusted\nfor      open\n"), "{page}");
}
