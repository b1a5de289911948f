//! A session's identity is its harness and its id: two loops that both use `main` have one session
//! each, over the real socket.

use serde_json::{Value, json};

use crate::{
    acting::Client,
    socket::EACH,
    support::daemon::{Home, text},
};

fn exchange(home: &Home, id: &str, harness: &str, carrier: &str) -> (u16, Value) {
    let body = json!({ "point": "after_tool", "carrier": carrier, "format": "toon",
        "harness": { "name": harness, "workspace": format!("/w/{harness}") } });
    let answer = home.exchange(id, &body);
    (answer.status(), if answer.status() == 204 { Value::Null } else { answer.json() })
}

fn publish(home: &Home, place: &str, name: &str, n: u64) {
    home.publish(&json!({ "type": "test.each", place: name, "payload": { "n": n } }));
}

fn ids(home: &Home) -> Vec<String> {
    let sessions = home.get("/v1/sessions");
    let sessions = sessions["sessions"].as_array().expect("a list").iter();
    sessions.map(|session| session["id"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn equal_session_ids_of_two_harnesses_stay_separate() {
    let home = Home::with(&[("subscribers/each.toml", EACH)]);
    let daemon = home.serve();
    assert_eq!(exchange(&home, "main", "a", "c1"), (204, Value::Null));
    assert_eq!(home.get("/v1/sessions/main")["id"], "main");
    assert_eq!(exchange(&home, "main", "b", "c1"), (204, Value::Null));
    assert_eq!(ids(&home), ["b:main", "main"]);

    // Each is addressed by its folder or its full name; the id alone is ambiguous.
    publish(&home, "workspace", "/w/b", 1);
    publish(&home, "session", "a:main", 2);
    let pending = |name: &str| home.get(&format!("/v1/sessions/{name}"))["pending"].clone();
    assert_eq!((pending("a:main"), pending("b:main")), (json!(1), json!(1)));
    for path in [
        "/v1/sessions/main",
        "/v1/sessions/main/wait",
        "/v1/sessions/main/messages",
        "/v1/inbox?session=main",
    ] {
        let refused = home.ask("GET", path, "");
        let expected = json!("several harnesses have a session `main`: use one of `a:main` or `b:main`");
        assert_eq!((refused.status(), &refused.json()["error"]["message"]), (409, &expected), "{path}");
    }
    let shown = home.run(&["exchange", "main", "after_tool"]);
    assert!(text(&shown.stderr).contains("use one of `a:main` or `b:main`"), "{}", text(&shown.stderr));
    let body =
        json!({ "point": "after_tool", "carrier": "c3", "harness": { "name": "b", "parent": "main" } });
    assert_eq!(home.exchange("b:main", &body).status(), 400, "it would be its own parent");
    daemon.kill();

    // Names survive a restart.
    let daemon = home.serve();
    let (status, given) = exchange(&home, "main", "b", "c2");
    assert_eq!(
        (status, given["text"].as_str().is_some_and(|text| text.contains("n: 1"))),
        (200, true),
        "{given}"
    );
    let (status, given) = exchange(&home, "main", "a", "c2");
    assert_eq!(
        (status, given["text"].as_str().is_some_and(|text| text.contains("n: 2"))),
        (200, true),
        "{given}"
    );
    assert_eq!(ids(&home), ["b:main", "main"]);
    assert_eq!(daemon.stop().status.code(), Some(0));
}

/// A harness's observations belong to its own session, even if another harness uses the same id.
#[test]
fn observed_event_goes_to_session_of_observing_harness() {
    let home = Home::with(&[("subscribers/each.toml", EACH)]);
    let _daemon = home.serve();
    exchange(&home, "main", "a", "c1");
    let body = json!({ "point": "after_tool", "carrier": "c1", "harness": { "name": "b" },
        "observe": [{ "type": "test.each", "payload": { "n": 1 } }] });
    let answer = home.exchange("main", &body);
    assert_eq!((answer.status(), &answer.json()["notifications"][0]["subscriber"]), (200, &json!("each")));
    assert_eq!(exchange(&home, "main", "a", "c2"), (204, Value::Null));
}

/// Another harness opened a session under the id of a client's conversation before the client did.
#[test]
fn client_with_taken_id_gets_its_own_session() {
    let home = Home::with(&[("subscribers/each.toml", EACH)]);
    let _daemon = home.serve();
    let id = "6a0d21de-0000-4000-8000-00000000c0de";
    exchange(&home, id, "a", "c1");
    let mut client = Client::new(&home, id);
    publish(&home, "session", &format!("claude-code:{id}"), 7);
    let delivered = client.hook(id, "$$");
    assert!(delivered.contains("n: 7"), "{delivered}");
    assert_eq!(home.get(&format!("/v1/sessions/a:{id}"))["pending"], 0);
    let own = home.get(&format!("/v1/sessions/claude-code:{id}"));
    assert_eq!(
        (&own["harness"]["name"], &own["harness"]["workspace"]),
        (&json!("claude-code"), &json!("/w"))
    );
}

#[test]
fn unmatched_events_are_found_by_their_ids() {
    let home = Home::new();
    let _daemon = home.serve();
    home.publish(&json!({ "id": "ue1", "type": "made.up", "source": "x" }));
    let seq = home.publish(&json!({ "type": "made.up", "source": "x" }))[0];
    let own = home.get(&format!("/v1/events/{seq}"))["event"]["id"].as_str().expect("an id").to_owned();
    for id in ["ue1", &own] {
        let shown = home.get(&format!("/v1/events/{id}"));
        assert_eq!((&shown["event"]["id"], &shown["history"][0]["what"]), (&json!(id), &json!("unmatched")));
        let why = home.print(&["why", id]);
        assert!(why.contains("no subscriber matches it"), "{id}: {why}");
    }
}
