//! `aside silence` and the holds that people see, with a running daemon.

use serde_json::json;

use crate::{
    acting::Client,
    support::daemon::{Home, at, eventually, text},
};

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

const LATER: &str = r#"[subscriber]
id = "later"
[events]
types = ["later.thing.happened"]
[batching]
window_ms = 0
[limits]
deliver_after = ["3 turns", "tool:Bash"]
"#;

fn alert(name: &str) -> serde_json::Value {
    json!({ "id": name, "type": "pager.alert.fired", "source": "prometheus", "payload": { "name": name, "zone": "eu" } })
}

/// Fails unless `text` names an end some hours ahead after `what`; from the evening on it is of the next day.
fn assert_ends(text: &str, what: &str) {
    let named = |time| text.contains(&format!("{what} ends {time} "));
    assert!(named("in") || named("tomorrow"), "{what}: {text}");
}

#[test]
fn the_list_shows_who_is_silenced_and_when() {
    let home = Home::with(&[("subscribers/pager.toml", PAGER)]);
    let _daemon = home.serve();
    home.print(&["silence", "add", "--subscriber", "timer", "--type", "timer.done", "--for", "1h"]);
    let made = home.print(&["disable", "pager", "--for", "2h"]);
    let id = made.split_whitespace().next().expect("an id");
    let listed = home.print(&["subscribers"]);
    let row = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(row("pager  silenced").contains("user"), "{listed}");
    assert!(row("pager  silenced for").ends_with(&format!(": aside silence expire {id}")), "{listed}");
    assert_eq!(row("timer"), "", "only a part of it is silenced: {listed}");
    home.print(&["silence", "expire", id]);
    assert!(!home.print(&["subscribers"]).contains("silenced"));
}

#[test]
fn a_silence_is_made_seen_kept_and_ended() {
    let home = Home::with(&[("subscribers/pager.toml", PAGER)]);
    let daemon = home.serve();
    home.exchange("s1", &json!({ "point": "turn_start", "carrier": "c1" }));
    home.publish(&alert("disk"));
    let made = home.print(&["silence", "add", "--where", "payload.zone == 'eu'", "--comment", "db move"]);
    let id = made.split_whitespace().next().expect("an id").to_owned();
    assert_ends(&made, "silences where payload.zone == 'eu',");
    assert!(made.contains("now: 1 pending and 0 in open batches; critical ones pass"), "{made}");
    let inbox = home.print(&["inbox", "--list"]);
    assert_ends(&inbox, &format!("held: silenced by {id},"));
    assert!(home.print(&["status", "--verbose"]).contains("1 pending, 1 of them held (1 silenced)"));
    let answer = home.exchange("s1", &json!({ "point": "turn_start", "carrier": "c2" }));
    assert_eq!(answer.status(), 204);
    // A kill forgets nothing.
    daemon.kill();
    let _daemon = home.serve();
    let list = home.print(&["silence"]);
    assert!(list.contains(&id) && list.contains("where payload.zone == 'eu': db move"), "{list}");
    let longer = home.print(&["silence", "extend", &id, "--for", "3h"]);
    assert!(longer.starts_with(&id), "{longer}");
    assert_ends(&longer, &id);
    assert_eq!(home.print(&["silence", "expire", &id]), format!("ended {id}\n"));
    let answer = home.exchange("s1", &json!({ "point": "turn_start", "carrier": "c3" })).json();
    assert!(at(&answer, "/text").as_str().is_some_and(|text| text.contains("alert: disk")), "{answer}");
    assert_eq!(home.print(&["silence"]), "no silences\n");
    assert!(home.print(&["silence", "--all"]).contains(&id));
}

#[test]
fn a_silence_of_a_subscriber_needs_no_events() {
    let home = Home::with(&[("subscribers/pager.toml", PAGER), ("subscribers/later.toml", LATER)]);
    let _daemon = home.serve();
    for session in ["s1", "s2"] {
        home.exchange(session, &json!({ "point": "turn_start", "carrier": "c1" }));
    }
    home.publish(&alert("disk"));
    // The engine forgets the events of older notifications beyond 8 MiB.
    let long = "x".repeat(60_000);
    for number in 0..150 {
        let payload = json!({ "number": number, "long": long });
        home.publish(&json!({ "type": "later.thing.happened", "session": "s2", "payload": payload }));
    }
    assert!(home.print(&["silence", "add", "--type", "pager.**"]).contains("now: 0 pending"));
    assert!(home.print(&["silence", "add", "--subscriber", "pager"]).contains("now: 1 pending"));
    let answer = home.exchange("s1", &json!({ "point": "turn_start", "carrier": "c2" }));
    assert_eq!(answer.status(), 204);
}

#[test]
fn a_silenced_occurrence_names_its_silence() {
    let occurrence =
        PAGER.replace("resolved_by = [\"pager.alert.resolved\"]\nequal = \"payload.name\"\n", "");
    let home = Home::with(&[("subscribers/pager.toml", &occurrence)]);
    let _daemon = home.serve();
    let body = json!({ "id": "move", "subscriber": "pager", "for": "2h" }).to_string();
    assert_eq!(home.ask("POST", "/v1/silences", &body).status(), 201);
    home.publish(&alert("disk"));
    let why = eventually("the history has it", || {
        let why = text(&home.run(&["why", "disk"]).stdout);
        why.contains("silence move").then_some(why)
    });
    assert!(why.contains("pager did not take it: the silence move suppressed it"), "{why}");
    let listed = home.print(&["history", "--reason", "silenced"]);
    assert!(listed.contains("pager.alert.fired") && listed.contains("silenced (pager)"), "{listed}");
    assert!(!home.print(&["history", "--reason", "expired"]).contains("pager"));
    let refused = home.run(&["history", "--reason", "silencd"]);
    assert!(text(&refused.stderr).contains("did you mean `silenced`?"), "{refused:?}");
    home.print(&["silence", "expire", "--all"]);
    let answer = eventually("the silence said what it did", || {
        let exchange = json!({ "point": "turn_end", "carrier": "c1" });
        let answer = home.exchange("s1", &exchange);
        (answer.status() == 200).then(|| answer.json())
    });
    let said = at(&answer, "/text").to_string();
    assert!(said.contains("silenced_until_now: 1 of pager (move)"), "{said}");
}

#[test]
fn a_wrong_silence_is_refused_by_field() {
    let home = Home::with(&[("subscribers/pager.toml", PAGER)]);
    let _daemon = home.serve();
    for (body, part) in [
        (json!({}), "a silence names what it suppresses"),
        (json!({ "subscriber": "pagr" }), "did you mean `pager`?"),
        (json!({ "where": "paylod.zone" }), "is not an expression"),
        (json!({ "types": ["pager..x"] }), "has no pattern of types"),
        (json!({ "subscriber": "*", "for": "40d" }), "at most 30 days"),
        (json!({ "subscriber": "*", "for": "1h", "until": "2030-01-01T00:00:00Z" }), "exclude each other"),
        (json!({ "subscriber": "*", "id": "a b" }), "must be 1 to 15 letters"),
        (json!({ "session": "nobody" }), "nobody"),
        (json!({ "subscribr": "pager" }), "subscriber"),
    ] {
        let answer = home.ask("POST", "/v1/silences", &body.to_string());
        let said = answer.json().to_string();
        assert!(answer.status() >= 400 && said.contains(part), "{body}: {said}");
    }
    assert_eq!(home.ask("DELETE", "/v1/silences/none", "").status(), 404);
    assert_eq!(home.print(&["silence"]), "no silences\n");
}

#[test]
fn matchers_that_match_nothing_are_doubted() {
    let home = Home::with(&[("subscribers/pager.toml", PAGER)]);
    let _daemon = home.serve();
    let field = "warning: no example of these events has a field `brnch` in its payload; did you mean \
                 `payload.branch`?\n";
    let constant = "warning: `where` uses no field of the event, so it matches all events or none\n";
    let pattern = "warning: `ci.chek.*` matches no type of the catalogue; did you mean `ci.check.ended`?\n";
    for (args, warning) in [
        (&["--subscriber", "ci_check", "--where", "payload.brnch == 'main'"][..], field),
        (&["--type", "ci.check.**", "--where", "payload.brnch == 'main'"], field),
        (&["--subscriber", "ci_check", "--where", "1 == 1"], constant),
        (&["--type", "ci.chek.*"], pattern),
        (&["--subscriber", "ci_check", "--where", "payload.branch == 'main'"], ""),
        (&["--subscriber", "pager", "--where", "payload.zoone == 'eu'"], ""),
        (&["--where", "payload.zoone == 'eu'"], ""),
        (&["--type", "pager.**"], ""),
    ] {
        let made = home.print(&[&["silence", "add"], args].concat());
        let (_, found) = made.split_once("critical ones pass\n").expect("it is made");
        assert_eq!(found.trim_start(), warning, "{args:?}");
        let muted = home.print(&[&["mute"], args].concat());
        assert!(muted.ends_with(found), "{args:?}: {muted}");
    }
}

#[test]
fn an_id_in_force_is_not_reused() {
    let home = Home::with(&[("subscribers/pager.toml", PAGER)]);
    let _daemon = home.serve();
    let body = json!({ "id": "move", "subscriber": "pager", "for": "2h", "comment": "a" });
    let post = |changes: serde_json::Value| {
        let mut body = body.clone();
        let fields = changes.as_object().expect("fields").clone();
        body.as_object_mut().expect("an object").extend(fields);
        home.ask("POST", "/v1/silences", &body.to_string())
    };
    let made = post(json!({}));
    assert_eq!(made.status(), 201);
    let again = post(json!({}));
    assert_eq!((again.status(), at(&again.json(), "/until")), (201, at(&made.json(), "/until")));
    for changes in [
        json!({ "subscriber": "*" }),
        json!({ "types": ["pager.alert.fired"] }),
        json!({ "comment": "b" }),
        json!({ "for": "3h" }),
        json!({ "critical": true }),
        json!({ "source": "x", "extend": true }),
    ] {
        let other = post(changes.clone());
        assert_eq!(other.status(), 409, "{changes}");
        assert!(other.json().to_string().contains("another silence `move` is in force"), "{changes}");
    }
    let list = home.get("/v1/silences");
    assert_eq!(at(&list, "/silences/0/until"), at(&made.json(), "/until"));
    assert_eq!(post(json!({ "for": "3h", "extend": true })).status(), 201);
    assert_ne!(at(&home.get("/v1/silences"), "/silences/0/until"), at(&made.json(), "/until"));
    // Another one with the id of an ended one is new.
    home.print(&["silence", "expire", "move"]);
    assert_eq!(post(json!({ "extend": true })).status(), 404);
    assert_eq!(post(json!({ "comment": "b" })).status(), 201);
}

#[test]
fn a_silence_of_everything_names_all_subscribers() {
    let home = Home::with(&[("subscribers/pager.toml", PAGER)]);
    let _daemon = home.serve();
    for args in [
        &["--type", "**"][..],
        &["--where", "true"],
        &["--where", "1 == 1", "--type", "**"],
        &["--type", "pager.*", "--type", "**"],
    ] {
        let refused = home.run(&[&["silence", "add"], args].concat());
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains("`*` asks for that"), "{args:?}: {said}");
        home.print(&[&["silence", "add", "--subscriber", "*"], args].concat());
    }
    for args in [&["--type", "**", "--source", "x"][..], &["--where", "payload.a", "--type", "**"]] {
        home.print(&[&["silence", "add"], args].concat());
    }
}

#[test]
fn a_delay_is_seen_in_the_inbox() {
    let home = Home::with(&[("subscribers/later.toml", LATER)]);
    let _daemon = home.serve();
    home.exchange("s1", &json!({ "point": "turn_start", "carrier": "c1" }));
    home.publish(&json!({ "type": "later.thing.happened", "source": "x", "payload": { "n": 1 } }));
    let inbox = home.print(&["inbox", "--list"]);
    let rule = "deferred by limits.deliver_after (subscribers/later.toml:8)";
    let held = format!("held: {rule}, after 3 turns or after tool:Bash");
    assert!(inbox.contains(&held), "{inbox}");
    let event = home.print(&["why", "3"]);
    assert!(event.contains(&format!("\nheld\n  in session s1: {rule}")), "{event}");
    assert!(event.contains("it is released when nothing holds it"), "{event}");
    let why = home.print(&["why", "last"]);
    let held = format!("\nheld\n  in session s1: {rule}, began ");
    for part in
        [held.as_str(), " ago, after 3 turns or after tool:Bash\n", "it is released when nothing holds it"]
    {
        assert!(why.contains(part), "{part}: {why}");
    }
    let exchange = json!({ "point": "after_tool", "carrier": "c2", "tool": "Bash", "turn": "1" });
    let answer = home.exchange("s1", &exchange);
    assert_eq!(answer.status(), 200);
}

#[test]
fn a_budget_and_an_inhibition_name_their_rules() {
    let chat = PAGER.replace("pager", "chat").replace("alert: ", "chat: ");
    let pager =
        PAGER.replace("[limits]\n", "[limits]\ninhibited_by = [\"zone.power.lost\"]\ninhibit_equal = \"\"\n");
    let files = [
        ("aside.toml", "[budget]\nturn = 100\n"),
        ("subscribers/chat.toml", &chat),
        ("subscribers/pager.toml", &pager),
    ];
    let home = Home::with(&files);
    let _daemon = home.serve();
    let exchange = |point: &str, carrier: &str| {
        let body = json!({ "point": point, "carrier": carrier, "turn": "t1", "step": carrier });
        home.exchange("s1", &body)
    };
    exchange("turn_start", "c1");
    let long = "a_text_of_some_forty_tokens_".repeat(6);
    for name in ["first", "second"] {
        let payload = json!({ "name": format!("{name}_{long}") });
        home.publish(&json!({ "id": name, "type": "chat.alert.fired", "source": "x", "payload": payload }));
    }
    exchange("after_tool", "c2");
    exchange("after_tool", "c3");
    home.publish(&json!({ "id": "power", "type": "zone.power.lost", "source": "prometheus", "payload": {} }));
    home.publish(&alert("disk"));
    let why = home.print(&["why", "last"]);
    let parts = ["in session s1: inhibited by ", ", zone.power.lost ", " ago (subscribers/pager.toml:"];
    assert!(parts.iter().all(|part| why.contains(part)), "{why}");
    let inbox = home.print(&["inbox", "--list"]);
    assert!(inbox.contains("held: budget by budget.turn (aside.toml:2)"), "{inbox}");
}

#[test]
fn the_inbox_lists_a_held_notice() {
    let later = LATER.replace("[\"3 turns\", \"tool:Bash\"]", "\"1h\"\n[output]\naudience = \"user\"");
    let home = Home::with(&[("subscribers/later.toml", &later)]);
    let daemon = home.serve();
    for n in 0..2 {
        home.publish(&json!({ "type": "later.thing.happened", "source": "x", "payload": { "n": n } }));
    }
    daemon.kill();
    let _daemon = home.serve();
    let pages = ["/v1/inbox?limit=1", "/v1/inbox?from=unclaimed:1"].map(|path| home.get(path));
    let waits = |page: &serde_json::Value| at(page, "/notifications/0/waits_for").clone();
    assert_eq!(pages.each_ref().map(waits), ["sinks", "sinks"]);
    assert_eq!(
        (at(&pages[0], "/next").as_str(), at(&pages[1], "/next").as_str()),
        (Some("unclaimed:1"), None)
    );
    let inbox = home.print(&["inbox", "--list"]);
    for part in
        ["later, ", ", for you\n", "held: deferred by limits.deliver_after (subscribers/later.toml:8)"]
    {
        assert!(inbox.contains(part), "{part}: {inbox}");
    }
    let why = home.print(&["why", "last"]);
    assert!(why.contains("\nheld\n  for you: deferred by limits.deliver_after"), "{why}");
    home.print(&["inbox", "dismiss", "last"]);
    assert_eq!(home.print(&["inbox", "--list"]).matches("for you").count(), 1);
}

#[test]
fn an_agent_cannot_silence() {
    let home = Home::with(&[("subscribers/pager.toml", PAGER)]);
    let _daemon = home.serve();
    let mut client = Client::new(&home, "agent-1");
    for command in ["add --subscriber pager", "expire s1"] {
        let output = client.run(&format!("\"$ASIDE\" silence {command}"));
        assert!(output.contains("an agent cannot silence; its user can"), "{command}: {output}");
    }
    assert_eq!(home.print(&["silence"]), "no silences\n");
}

#[test]
fn the_last_one_is_silenced_by_its_key() {
    let home = Home::with(&[("subscribers/pager.toml", PAGER)]);
    let _daemon = home.serve();
    assert!(text(&home.run(&["silence", "last"]).stderr).contains("nothing was delivered yet"));
    home.exchange("s1", &json!({ "point": "turn_start", "carrier": "c1" }));
    home.publish(&alert("disk"));
    assert_eq!(home.exchange("s1", &json!({ "point": "turn_start", "carrier": "c2" })).status(), 200);
    let made = eventually("the history has it", || {
        let output = home.run(&["silence", "last", "--for", "2h"]);
        output.status.success().then(|| text(&output.stdout))
    });
    assert_ends(&made, "silences pager, where payload.name == \"disk\",");
}
