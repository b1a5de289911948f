//! What users switch off for their sessions, with a running daemon.

use serde_json::json;

use crate::{
    acting::Client,
    support::daemon::{Home, at, eventually, text},
};

const CHAT: &str = r#"[subscriber]
id = "chat"
[events]
types = ["chat.**"]
[batching]
window_ms = 0
[output]
activation = "active"
priority = "high"
inject_at = "after_tool"
one = "said: {{ payload.text }}"
"#;

fn said(words: &str) -> serde_json::Value {
    json!({ "id": words, "type": "chat.message.came", "payload": { "text": words } })
}

fn turn(home: &Home, session: &str, carrier: &str) -> String {
    let reply = home.exchange(session, &json!({ "point": "turn_start", "carrier": carrier }));
    if reply.status() == 204 { String::new() } else { at(&reply.json(), "/text").to_string() }
}

#[test]
fn a_disabled_subscriber_is_said_and_enabled_again() {
    let home = Home::with(&[("subscribers/chat.toml", CHAT)]);
    let daemon = home.serve();
    turn(&home, "s1", "c1");
    assert_eq!(home.print(&["mute"]), "nothing is muted or disabled\n");
    assert_eq!(home.print(&["disable", "chat"]), "disabled chat; undo it: aside enable chat\n");
    home.publish(&said("one"));
    let why = eventually("the history has it", || {
        let why = text(&home.run(&["why", "one"]).stdout);
        why.contains("you disabled chat").then_some(why)
    });
    assert!(why.contains("aside mute lists what is muted"), "{why}");
    // A kill forgets nothing.
    daemon.kill();
    let _daemon = home.serve();
    let listed = home.print(&["subscribers"]);
    assert!(listed.contains("disabled by you: aside enable chat"), "{listed}");
    assert_eq!(home.print(&["mute"]), "disabled chat\n");
    assert_eq!(turn(&home, "s1", "c2"), "");
    assert_eq!(home.print(&["enable", "chat"]), "enabled chat; it delivers what comes from now on\n");
    home.publish(&said("two"));
    let text = turn(&home, "s1", "c3");
    assert!(text.contains("said: two") && !text.contains("one"), "{text}");
    let again = home.run(&["enable", "chat"]);
    assert!(!again.status.success());
}

#[test]
fn a_mute_wakes_nobody() {
    let home = Home::with(&[("subscribers/chat.toml", CHAT)]);
    let _daemon = home.serve();
    turn(&home, "s1", "c1");
    home.exchange("s1", &json!({ "point": "turn_end", "carrier": "c2" }));
    let muted = home.print(&["mute", "--type", "chat.**", "--where", "payload.text != 'real'"]);
    assert!(muted.starts_with("muted types chat.**, where payload.text != 'real'; undo it:"), "{muted}");
    home.publish(&said("noise"));
    // The loop has taken what was published before.
    assert_eq!(at(&home.get("/v1/inbox"), "/notifications"), &json!([]));
    let waited = home.ask("GET", "/v1/sessions/s1/wait?timeout=1ms", "");
    assert_eq!(waited.status(), 204, "{waited:?}");
    home.publish(&said("real"));
    let state = home.get("/v1/sessions/s1/wait?timeout=20s");
    assert_eq!((at(&state, "/pending"), at(&state, "/wake")), (&json!(1), &json!("start_turn")), "{state}");
    assert_eq!(home.print(&["mute"]), "1  types chat.**, where payload.text != 'real'\n");
    assert_eq!(home.print(&["unmute", "1"]), "unmuted types chat.**, where payload.text != 'real'\n");
    let wrong = home.run(&["unmute", "7"]);
    assert!(text(&wrong.stderr).contains("there is no mute 7"), "{wrong:?}");
}

#[test]
fn a_mute_of_the_configuration_holds_for_all() {
    let config = "[[delivery.mute]]\ntypes = [\"chat.**\"]\nbelow = \"critical\"\n";
    let home = Home::with(&[("subscribers/chat.toml", CHAT), ("aside.toml", config)]);
    let _daemon = home.serve();
    turn(&home, "s1", "c1");
    home.publish(&said("noise"));
    assert_eq!(turn(&home, "s1", "c2"), "");
    assert_eq!(home.print(&["mute"]), "-  types chat.**, below critical (aside.toml)\n");
    let why = eventually("the history has it", || {
        let why = text(&home.run(&["why", "noise"]).stdout);
        why.contains("aside.toml mutes types chat.**, below critical").then_some(why)
    });
    assert!(why.contains("chat"), "{why}");
}

#[test]
fn a_level_limits_what_wakes_the_users_agent() {
    let home = Home::with(&[("subscribers/chat.toml", CHAT)]);
    let _daemon = home.serve();
    turn(&home, "s1", "c1");
    home.exchange("s1", &json!({ "point": "turn_end", "carrier": "c2" }));
    assert_eq!(home.ask("PUT", "/v1/users/me/settings", r#"{"level":"passive"}"#).status(), 200);
    home.publish(&said("one"));
    let state = home.get("/v1/sessions/s1/wait?timeout=20s");
    assert_eq!((at(&state, "/pending"), state.get("wake")), (&json!(1), None), "{state}");
    assert_eq!(home.ask("PUT", "/v1/users/me/settings", r#"{"level":"active"}"#).status(), 200);
    let state = home.get("/v1/sessions/s1/wait?timeout=20s");
    assert_eq!(at(&state, "/wake"), &json!("start_turn"), "{state}");
}

#[test]
fn wrong_settings_are_refused_by_their_field() {
    let home = Home::with(&[("subscribers/chat.toml", CHAT)]);
    let _daemon = home.serve();
    for (body, expected) in [
        (json!({}), "is missing: a body names"),
        (json!({ "disabled": ["chatt"] }), "`chatt` is no subscriber; did you mean `chat`?"),
        (json!({ "disabled": ["tool_failure"] }), "`tool_failure` is a core subscriber"),
        (json!({ "mute": [{}] }), "names nothing: a mute has"),
        (json!({ "mute": [{ "typ": ["a.b"] }] }), "mute[0].typ"),
        (json!({ "mute": [{ "types": ["a..b"] }] }), "has no pattern"),
        (json!({ "mute": [{ "where": "payload.x >" }] }), "is not an expression"),
        (json!({ "mute": [{ "below": "urgent" }] }), "must be one of"),
        (json!({ "mute": [{ "subscriber": "tool_failure" }] }), "core subscriber"),
        (json!({ "quiet": ["25:00-26:00"] }), "has hours like"),
        (json!({ "quiet": ["00:00-12:00", "12:00-00:00"] }), "is the whole week"),
        (json!({ "quiet": ["00:00-24:00"] }), "is the whole week"),
        (json!({ "level": "loud" }), "must be one of passive, prompt, active"),
    ] {
        let answer = home.ask("PUT", "/v1/users/me/settings", &body.to_string());
        let said = answer.json().to_string();
        assert!(answer.status() == 400 && said.contains(expected), "{body}: {said}");
    }
    assert_eq!(home.get("/v1/users/me/settings"), json!({ "user": "me" }));
}

#[test]
fn a_mute_in_a_session_concerns_its_user() {
    let home = Home::with(&[("subscribers/chat.toml", CHAT)]);
    let _daemon = home.serve();
    let body = json!({ "point": "turn_start", "carrier": "c1", "harness": { "user": "bob" } });
    home.exchange("s-bob", &body);
    turn(&home, "s1", "c1");
    let disabled = home.print(&["disable", "chat", "--session", "s-bob"]);
    assert_eq!(disabled, "disabled chat in session s-bob; undo it: aside enable chat --user bob\n");
    home.publish(&said("one"));
    assert_eq!(turn(&home, "s-bob", "c2"), "");
    assert!(turn(&home, "s1", "c2").contains("said: one"));
    assert_eq!(home.print(&["mute", "--user", "bob"]), "1  subscriber chat, in session s-bob\n");
    let wrong = home.run(&["mute", "--type", "chat.**", "--session", "s-bob", "--user", "ada"]);
    let wrong = text(&wrong.stderr);
    assert!(wrong.contains("`s-bob` is a session of the user `bob`"), "{wrong}");
    home.print(&["enable", "chat", "--user", "bob"]);
    let muted = home.print(&["mute", "--type", "chat.**", "--session", "s-bob"]);
    assert!(muted.ends_with("undo it: aside unmute 1 --user bob\n"), "{muted}");
}

#[test]
fn publish_says_what_settings_keep_from_sessions() {
    let inhibited = format!(
        "{CHAT}[limits]\ninhibit = [{{ by = [\"maint.begun\"], until = [\"maint.ended\"], equal = \"\" }}]\n"
    );
    let home = Home::with(&[("subscribers/chat.toml", &inhibited)]);
    let _daemon = home.serve();
    turn(&home, "s1", "c1");
    turn(&home, "s2", "c1");
    let publish = |event_type: &str| {
        let published = home.print(&["publish", event_type, "text=hi", "--everywhere"]);
        published.split_once('\n').map(|(_, said)| said.to_owned()).unwrap_or_default()
    };
    assert_eq!(publish("maint.begun"), "chat does not take it: it inhibits what this subscriber takes\n");
    assert_eq!(publish("maint.ended"), "chat does not take it: it ends what was inhibited\n");
    home.print(&["disable", "chat", "--session", "s1"]);
    assert_eq!(publish("chat.a"), "chat takes it for session s2\n");
    home.print(&["disable", "chat", "--session", "s2", "--for", "1h"]);
    assert_eq!(publish("chat.b"), "chat takes it for nobody: you muted subscriber chat, in session s1\n");
    home.print(&["enable", "chat"]);
    assert_eq!(publish("chat.c"), "chat takes it for sessions s1, s2\n");
    home.print(&["disable", "chat"]);
    assert_eq!(publish("chat.d"), "chat takes it for nobody: you disabled chat\n");
    let asked = home.ask("POST", "/v1/match", r#"{"type":"chat.e","payload":{"text":"hi"}}"#).json();
    let own = json!({ "subscriber": "chat", "verdict": "muted", "muted_by": "you disabled chat" });
    assert_eq!(at(&asked, "/subscribers/0"), &own);
}

#[test]
fn an_equal_mute_is_added_once() {
    let home = Home::with(&[("subscribers/chat.toml", CHAT)]);
    let _daemon = home.serve();
    turn(&home, "s1", "c1");
    let add = ["mute", "--type", "chat.**", "--below", "critical"];
    let done = "muted types chat.**, below critical; undo it: aside unmute 1\n";
    assert_eq!(home.print(&add), done);
    home.print(&["mute", "--source", "ide"]);
    assert_eq!(home.print(&add), format!("already {done}"));
    let disable = ["disable", "chat", "--session", "s1"];
    let done = "disabled chat in session s1; undo it: aside enable chat\n";
    assert_eq!((home.print(&disable), home.print(&disable)), (done.to_owned(), format!("already {done}")));
    assert_eq!(home.print(&["mute"]).lines().count(), 3);
    home.print(&["unmute", "1"]);
    assert_eq!(home.print(&["mute"]), "1  source ide\n2  subscriber chat, in session s1\n");
}

#[test]
fn an_agent_changes_no_settings() {
    let home = Home::with(&[("subscribers/chat.toml", CHAT)]);
    let _daemon = home.serve();
    let mut client = Client::new(&home, "agent-1");
    for command in ["disable chat", "mute --type 'chat.**'", "disable chat --for 1h"] {
        let output = client.run(&format!("\"$ASIDE\" {command}"));
        assert!(output.contains("; its user can, in a terminal of their own"), "{command}: {output}");
    }
    assert_eq!(home.print(&["mute"]), "nothing is muted or disabled\n");
}
