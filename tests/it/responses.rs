//! Answers to notifications, and what is repeated without one, with a running daemon.

use serde_json::json;

use crate::{
    acting::Client,
    support::daemon::{Home, at, eventually, text},
};

const APPROVAL: &str = r#"[subscriber]
id = "approval"
[events]
types = ["approval.wanted"]
[batching]
window_ms = 0
[repeat]
after = ["1 turn", "1 turn"]
[output]
priority = "high"
inject_at = "after_tool"
requires_response = true
one = "wanted: {{ payload.name }}"
"#;

fn wanted(name: &str) -> serde_json::Value {
    json!({ "id": name, "type": "approval.wanted", "payload": { "name": name } })
}

/// The text of a turn of `s1`, which ends.
fn turn(home: &Home, number: u32) -> String {
    let start =
        json!({ "point": "turn_start", "carrier": format!("p{number}"), "turn": format!("t{number}") });
    let reply = home.exchange("s1", &start);
    let text = if reply.status() == 204 { String::new() } else { at(&reply.json(), "/text").to_string() };
    home.exchange(
        "s1",
        &json!({ "point": "turn_end", "carrier": format!("e{number}"), "turn": format!("t{number}") }),
    );
    text
}

/// The id by which an agent answers.
fn asked(text: &str) -> String {
    let (_, rest) = text.split_once("respond: ").unwrap_or_else(|| panic!("{text}"));
    rest.chars().take_while(char::is_ascii_alphanumeric).collect()
}

#[test]
fn an_unanswered_notification_comes_again() {
    let home = Home::with(&[("subscribers/approval.toml", APPROVAL)]);
    let daemon = home.serve();
    turn(&home, 1);
    home.publish(&wanted("deploy"));
    let first = turn(&home, 2);
    assert!(first.contains("wanted: deploy") && !first.contains("reminder"), "{first}");
    let again = turn(&home, 3);
    assert!(again.contains("wanted: deploy") && again.contains("reminder: 1"), "{again}");
    // A kill forgets nothing.
    daemon.kill();
    let _daemon = home.serve();
    let again = turn(&home, 4);
    assert!(again.contains("reminder: 2"), "{again}");
    assert_eq!(turn(&home, 5), "");
    let why = eventually("it is known", || {
        let why = text(&home.run(&["why", "deploy"]).stdout);
        why.contains("nobody answered it").then_some(why)
    });
    assert!(why.contains("waits in session s1 for its repetition 2"), "{why}");
    let notices = eventually("the user is notified", || {
        let notices = home.get("/v1/events?type=user.notice").to_string();
        notices.contains("nobody answered").then_some(notices)
    });
    assert!(notices.contains(" of approval: deploy; aside why"), "{notices}");
}

#[test]
fn a_user_answers_by_the_short_id() {
    let home = Home::with(&[("subscribers/approval.toml", APPROVAL)]);
    let _daemon = home.serve();
    turn(&home, 1);
    home.publish(&wanted("deploy"));
    let id = asked(&turn(&home, 2));
    let pending = home.print(&["inbox", "--list"]);
    assert!(pending.contains("held: deferred"), "{pending}");
    let done = home.print(&["inbox", "acknowledge", &id]);
    assert!(done.starts_with(&format!("acknowledged {id}")), "{done}");
    assert_eq!((turn(&home, 3), turn(&home, 4)), (String::new(), String::new()));
    let why = eventually("it is known", || {
        let why = text(&home.run(&["why", "deploy"]).stdout);
        why.contains("is acknowledged in session s1").then_some(why)
    });
    assert!(!why.contains("nobody answered"), "{why}");
    let list = home.print(&["history", "--notifications"]);
    assert!(list.contains("s1: acknowledged"), "{list}");
    let messages = home.get("/v1/sessions/s1/messages");
    let answered = (at(&messages, "/messages/0/response"), at(&messages, "/messages/0/state"));
    assert_eq!(answered, (&json!("acknowledged"), &json!("confirmed")), "{messages}");
}

#[test]
fn the_inbox_lists_what_is_taken_up() {
    let home = Home::with(&[("subscribers/approval.toml", APPROVAL)]);
    let _daemon = home.serve();
    turn(&home, 1);
    home.publish(&wanted("deploy"));
    let id = asked(&turn(&home, 2));
    let path = format!("/v1/notifications/{id}/respond");
    assert_eq!(home.ask("POST", &path, r#"{"action":"investigate","by":"ann"}"#).status(), 204);
    let inbox = home.print(&["inbox", "--list"]);
    let (_, age) = inbox.split_once("high approval, taken up by ann ").expect("it is taken up");
    assert!(age.split_once("s ago").is_some_and(|(_, rest)| rest.starts_with("\n    deploy")), "{inbox}");
    let listed = home.get("/v1/inbox?session=s1");
    let (by, pending) = (at(&listed, "/taken_up/0/by"), at(&listed, "/notifications"));
    assert_eq!((by, pending), (&json!("ann"), &json!([])), "{listed}");
    home.print(&["inbox", "acknowledge", &id]);
    assert_eq!(home.print(&["inbox", "--list"]), "no pending notifications\n");
}

#[test]
fn wrong_answers_are_refused_with_the_state() {
    let home = Home::with(&[("subscribers/approval.toml", APPROVAL)]);
    let _daemon = home.serve();
    turn(&home, 1);
    home.publish(&wanted("deploy"));
    let path = |id: &str| format!("/v1/notifications/{id}/respond");
    let inbox = home.get("/v1/inbox");
    let id = at(&inbox, "/notifications/0/id").as_str().expect("an id").to_owned();
    for (id, body, status, said) in [
        (&*id, r#"{"action":"acknowledge"}"#, 409, "is pending: it was not delivered yet"),
        ("n0000000", r#"{"action":"acknowledge"}"#, 404, "n0000000"),
        (&*id, r#"{"action":"agree"}"#, 400, "must be one of acknowledge, investigate, dismiss, snooze"),
        (&*id, r#"{"action":"dismiss","for":"1h"}"#, 400, "belongs to `snooze`"),
        (&*id, r#"{"action":"snooze","for":"25h"}"#, 400, "at most 24 hours"),
    ] {
        let answer = home.ask("POST", &path(id), body);
        let text = answer.json().to_string();
        assert!(answer.status() == status && text.contains(said), "{body}: {} {text}", answer.status());
    }
    turn(&home, 2);
    for _ in 0..3 {
        assert_eq!(home.ask("POST", &path(&id), r#"{"action":"snooze","for":"1h"}"#).status(), 204);
    }
    let fourth = home.ask("POST", &path(&id), r#"{"action":"snooze","for":"1h"}"#);
    assert!(fourth.status() == 409 && fourth.json().to_string().contains("snoozed three times"));
    assert_eq!(home.ask("POST", &path(&id), r#"{"action":"dismiss"}"#).status(), 204);
    assert_eq!(turn(&home, 3), "");
}

#[test]
fn an_agent_answers_only_what_it_received() {
    let home = Home::with(&[("subscribers/approval.toml", APPROVAL)]);
    let _daemon = home.serve();
    turn(&home, 1);
    home.publish(
        &json!({ "id": "x", "type": "approval.wanted", "session": "s1", "payload": { "name": "x" } }),
    );
    let id = asked(&turn(&home, 2));
    let mut client = Client::new(&home, "agent-1");
    let output = client.run(&format!("\"$ASIDE\" inbox acknowledge {id}"));
    assert!(output.ends_with("1\n") && output.contains(&id), "{output}");
    assert!(turn(&home, 3).contains("reminder: 1"), "the other agent answered nothing");
}
