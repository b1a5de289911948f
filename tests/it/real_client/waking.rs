//! An idle client is woken: through its monitor, also after its process changed the session, and
//! through its message socket. A client that has neither gets the same text with the next prompt.

use std::{
    fs,
    io::Write,
    time::{Duration, Instant},
};

use aside::tokens::estimate;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::{
    api::Turn,
    count,
    terminal::{PATIENCE, Seat, within},
};

/// The longest time that a person perceives as immediate.
const WAKE_MAX: Duration = Duration::from_secs(2);
/// The client's name for the tool of the plugin's server.
const WATCH_TOOL: &str = "mcp__plugin_aside_aside__watch";
/// A text that is only in the line of a monitor.
const BY_MONITOR: &str = "{\"subscriber\":\"tool_failure\",\"severity\"";
/// The beginning of a message at the client's socket.
const BY_SOCKET: &str = "aside (automated notification): ";

/// Publishes a critical failure; returns the messages of request `number`, which has to contain it.
fn woken(seat: &Seat, words: &str, number: usize) -> Vec<Value> {
    woken_within(WAKE_MAX, seat, words, number)
}

/// Like [`woken`], for a client that may take longer.
pub(super) fn woken_within(longest: Duration, seat: &Seat, words: &str, number: usize) -> Vec<Value> {
    #[expect(clippy::disallowed_methods, reason = "how long a person waits is what is asked here")]
    let begin = Instant::now();
    seat.fail("critical", words);
    if seat.can_be_woken {
        assert!(seat.api.wait_for(number, longest), "not woken in {longest:?}; {}", seat.sight());
        writeln!(std::io::stderr(), "woken after {:?}", begin.elapsed()).expect("somebody reads");
    } else {
        seat.enter("is there anything");
    }
    let request = seat.next_request(number);
    assert_eq!(count(&request, words), 1, "{:?}", request.last());
    request
}

fn one_watcher(seat: &Seat) {
    let expected = usize::from(seat.can_be_woken);
    assert!(within(PATIENCE, || seat.watchers() == expected), "not {expected} watcher; {}", seat.sight());
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn an_idle_session_is_woken_and_its_watcher_ends_with_the_client() {
    let seat = Seat::taken(&["waiting", "seen"], &["go"]);
    seat.next_request(1);
    one_watcher(&seat);
    woken(&seat, "marker_wake", 2);
    kill_process(seat.pid(), Signal::KILL).expect("it runs");
    assert!(within(PATIENCE, || seat.watchers() == 0), "the watcher outlives its client");
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn what_waits_with_a_critical_one_reaches_the_model_whole() {
    let seat = Seat::taken(&[], &["go"]);
    seat.next_request(1);
    one_watcher(&seat);
    let session = seat.idle_session();
    let texts = ["first", "second", "third"].map(|name| {
        // The text is whole only with its end; its beginning distinguishes it from the others.
        let text = format!("{name} {}", "of three hundred characters ".repeat(20));
        format!("{}{name}_end", text.chars().take(300 - name.len() - 4).collect::<String>())
    });
    for text in &texts {
        assert_eq!(text.len(), 300);
        seat.home.publish(&json!({
            "type": "message.agent.sent", "workspace": seat.home.work(), "payload": { "from": "ann", "text": text },
        }));
    }
    let pending = || seat.home.get(&format!("/v1/sessions/{session}"))["pending"].clone();
    assert!(within(PATIENCE, || pending() == 3), "{}", seat.sight());
    let request = woken(&seat, "marker_critical", 2);
    for text in &texts {
        assert_eq!(count(&request, text), 1, "{text} in {:?}", request.last());
    }
    assert!(within(PATIENCE, || pending() == 0), "{}", seat.sight());
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn the_queue_and_the_watcher_go_on_where_the_client_does() {
    let seat = Seat::taken(&[], &["go"]);
    let wakes = usize::from(seat.can_be_woken);
    seat.next_request(1);
    one_watcher(&seat);
    let first = seat.idle_session();
    seat.fail_for(&first, "marker_waiting");

    // None of these commands is a turn.
    seat.enter("/clear");
    let cleared = seat.session_other_than(&first);
    let request = seat.prompt("after the clear");
    assert_eq!(count(&request, "marker_waiting"), 1, "what waited waits in the next session");
    let request = woken(&seat, "marker_cleared", 3);
    assert_eq!([count(&request, BY_MONITOR), count(&request, "marker_waiting")], [wakes, 1]);

    seat.fail_for(&cleared, "marker_copied");
    seat.enter("/branch");
    let branch = seat.session_other_than(&cleared);
    let request = seat.prompt("in the branch");
    // A client older than message sockets reports a copy as resumed; then pending notifications
    // stay with the original.
    let copies = wakes;
    assert_eq!([count(&request, "marker_copied"), count(&request, "marker_cleared")], [copies, 1]);
    let request = woken(&seat, "marker_branch", 5);
    assert_eq!([count(&request, BY_MONITOR), count(&request, "marker_copied")], [2 * wakes, copies]);

    // The original kept its pending notifications, and got none of the branch's.
    seat.enter(&format!("/resume {cleared}"));
    assert_eq!(seat.session_other_than(&branch), cleared);
    let request = seat.prompt("back in the original");
    assert_eq!([count(&request, "marker_copied"), count(&request, "marker_branch")], [1, 0]);
    let request = woken(&seat, "marker_resumed", 7);
    assert_eq!([count(&request, BY_MONITOR), count(&request, "marker_copied")], [2 * wakes, 1]);
    one_watcher(&seat);
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_client_without_a_monitor_is_woken_through_its_message_socket() {
    let seat = Seat::taken_without_monitor(&[], &[]);
    let first = seat.idle_session();
    let wakes = usize::from(seat.can_be_woken);
    let request = woken(&seat, "marker_socket", 1);
    assert_eq!(count(&request, BY_SOCKET), wakes);
    seat.enter("/clear");
    seat.session_other_than(&first);
    let request = woken(&seat, "marker_cleared", 2);
    // The context is empty, and a delivered notification does not come again.
    assert_eq!([count(&request, BY_SOCKET), count(&request, "marker_socket")], [wakes, 0]);
    assert_eq!(seat.watchers(), 0);
}

/// Most tokens of a whole wait: the call, its result, and the text that wakes the agent.
const WAIT_TOKENS_MAX: u32 = 150;

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn an_agent_asks_once_and_is_woken_with_its_note() {
    let command = format!("{} watch 'file built' --note 'marker_note'", env!("CARGO_BIN_EXE_aside"));
    let call = json!({ "command": command, "description": "Wait for the build" });
    asks_once("Bash", &call, |id, session| format!("watching {id} for {session}, until in 1h"));
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn an_agent_asks_once_by_its_tool_and_is_woken_with_its_note() {
    let call = json!({ "conditions": ["file built"], "note": "marker_note" });
    asks_once(WATCH_TOOL, &call, |id, _| format!("watching {id}, 1h00m at most"));
}

/// Makes the model call a wait for a file, which then appears.
fn asks_once(tool: &str, call: &Value, result: impl Fn(&str, &str) -> String) {
    let turns = vec![Turn::calls("toolu_w1", tool, call), Turn::says("waiting"), Turn::says("seen")];
    let is_tool = tool == WATCH_TOOL;
    let seat = if is_tool { Seat::playing_with_tools(turns) } else { Seat::playing(turns, &[]) };
    // An earlier version does not wait for its servers before the first turn.
    assert!(within(PATIENCE, || seat.servers() == usize::from(is_tool)), "no server; {}", seat.sight());
    seat.enter("go");
    let request = seat.next_request(2);
    one_watcher(&seat);
    let session = seat.idle_session();
    let open = seat.home.get("/v1/watches");
    assert_eq!(open["watches"][0]["session"], session, "{open}");
    let id = open["watches"][0]["id"].as_str().and_then(|id| id.get(..7)).expect("an id");
    assert_eq!(count(&request, &format!("watching {id}")), 1, "{:?}", request.last());
    #[expect(clippy::disallowed_methods, reason = "how long an agent waits is what is asked here")]
    let begin = Instant::now();
    fs::write(seat.home.path("work").join("built"), "").expect("written");
    if seat.can_be_woken {
        assert!(seat.api.wait_for(3, WAKE_MAX), "not woken in {WAKE_MAX:?}; {}", seat.sight());
        writeln!(std::io::stderr(), "woken after {:?}", begin.elapsed()).expect("somebody reads");
    } else {
        let pending = || seat.home.get(&format!("/v1/sessions/{session}"))["pending"].clone();
        assert!(within(PATIENCE, || pending() == 1), "{}", seat.sight());
        seat.enter("is there anything");
    }
    let request = seat.next_request(3);
    let said = request.last().expect("a message").to_string();
    // A monitor's line contains it twice: for the user, and for the agent.
    let times = if seat.can_be_woken { 2 } else { 1 };
    for words in ["file built", "it exists", "marker_note"] {
        assert_eq!(said.matches(words).count(), times, "{words}: {said}");
    }
    // The frame around the line is the client's own.
    let line = said.split_once("<event>").and_then(|(_, rest)| rest.split_once("</event>"));
    let said = line.map_or(said.as_str(), |(line, _)| line);
    let result = result(id, &session);
    let tokens: u32 = [&call.to_string(), &result, said].iter().map(|text| estimate(text).0).sum();
    writeln!(std::io::stderr(), "{tokens} tokens").expect("somebody reads");
    assert!(tokens <= WAIT_TOKENS_MAX, "{tokens} tokens");
}
