//! Changes of the client's context: it is compacted, it is read again, and subagents have their
//! own.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    TOOL_SAYS,
    api::{Api, Turn},
    assert_only_added, bash,
    calls::delivered,
    client::run_headless,
    count, fail, fail_for, home,
    terminal::Seat,
};
use crate::support::daemon::Home;

/// The mark of a redelivered notification.
const AGAIN: &str = "redelivered: true";

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn compaction_redelivers_no_delivered_notification() {
    let summary = "<analysis>none</analysis><summary>The user said little.</summary>";
    let seat = Seat::taken(&["ready", "heard", summary], &["go"]);
    seat.next_request(1);
    let session = seat.idle_session();
    seat.fail_for(&session, "marker_delivered");
    assert_eq!(count(&seat.prompt("before it"), "marker_delivered"), 1);
    seat.fail_for(&session, "marker_waiting");

    let mut starts = seat
        .home
        .client()
        .stream("/v1/events/stream?pattern=agent.session.start", &[])
        .expect("the daemon answers")
        .unwrap_or_else(|refused| panic!("{refused:?}"));
    seat.enter("/compact");
    let event = starts.next_event().expect("an answer").expect("an event");
    let event: Value = serde_json::from_str(&event.data).expect("JSON");
    assert_eq!(event["payload"]["start"], "compact");
    assert_eq!(seat.idle_session(), session);
    let request = seat.prompt("after it");
    let delivered = ["marker_delivered", "marker_waiting", AGAIN].map(|words| count(&request, words));
    assert_eq!(delivered, [0, 1, 0], "{request:?}");
    // The client lists the hooks that it runs at a compaction.
    assert_eq!(count(&request, "aside hook claude"), 0, "{request:?}");
    assert!(!seat.sight().contains("Compact ["), "{}", seat.sight());
    let request = seat.prompt("and later");
    let delivered = ["marker_delivered", "marker_waiting", AGAIN].map(|words| count(&request, words));
    assert_eq!(delivered, [0, 1, 0], "{request:?}");
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn resumed_conversation_gets_only_pending_notifications() {
    let mut seat = Seat::taken(&[], &["go"]);
    seat.next_request(1);
    let session = seat.idle_session();
    seat.fail_for(&session, "marker_delivered");
    assert_eq!(count(&seat.prompt("before it"), "marker_delivered"), 1);
    seat.fail_for(&session, "marker_waiting");
    seat.come_back(&["--continue"]);
    assert_eq!(seat.idle_session(), session);
    let resumed = seat.prompt("after it");
    let delivered =
        |request: &[Value]| ["marker_delivered", "marker_waiting", AGAIN].map(|words| count(request, words));
    assert_eq!(delivered(&resumed), [1, 1, 0], "the history has the first one");
    let later = seat.prompt("and later");
    assert_eq!(delivered(&later), [1, 1, 0]);
    assert_only_added(&[resumed, later]);
}

/// Publishes a failure for the running subagent; the text for it contains `words`.
fn fail_for_the_subagent(home: &Home, words: &str) {
    let list = home.get("/v1/sessions");
    let ids =
        list["sessions"].as_array().expect("a list").iter().filter_map(|session| session["id"].as_str());
    let subagent = ids.into_iter().find(|id| id.contains('/')).expect("a subagent is at work");
    fail_for(home, ("session", subagent), "error", words);
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn subagent_gets_only_its_own_notifications() {
    let home = home();
    let _daemon = home.serve();
    let during: Arc<Home> = home.clone();
    let task =
        json!({ "description": "Says something", "prompt": "say it", "subagent_type": "general-purpose" });
    let turns = vec![Turn::calls("toolu_1", "Agent", &task), Turn::says("started"), Turn::says("done")];
    let subagents = vec![
        bash("toolu_2").after(move || {
            fail(&during, "error", "marker_parent");
            fail_for_the_subagent(&during, "marker_child");
        }),
        bash("toolu_3"),
        Turn::says("said"),
    ];
    let api = Api::playing_both(turns, subagents);
    run_headless(&home, &api.url());
    let (parent, subagent) = (api.conversation(), api.subagents());
    assert_only_added(&parent);
    assert_only_added(&subagent);
    assert_eq!(delivered(&subagent, TOOL_SAYS), [0, 1, 2], "all of its tools ran");
    assert_eq!(delivered(&subagent, "marker_child"), [0, 1, 1]);
    assert_eq!(delivered(&subagent, "marker_parent"), [0, 0, 0]);
    assert_eq!(delivered(&parent, "marker_child"), vec![0; parent.len()]);
    assert_eq!(delivered(&parent, "marker_parent").last(), Some(&1), "{parent:?}");
}
