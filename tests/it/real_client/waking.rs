//! An idle client is woken: through its monitor, also after its process changed the session, and
//! through its message socket. A client that has neither gets the same text with the next prompt.

use std::{
    fs,
    io::Write,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use toon::tokens::estimate;

use super::{
    api::{Api, Turn},
    client::{client, version},
    count, fail, home,
    terminal::{PATIENCE, Seat, Terminal, within},
    texts,
};
use crate::support::daemon::Home;

/// The longest time that a person perceives as immediate.
const WAKE_MAX: Duration = Duration::from_secs(2);
/// The client's name for the tool of the plugin's server.
const WATCH_TOOL: &str = "mcp__plugin_aside_aside__watch";
/// The beginning of a monitor's line.
const BY_MONITOR: &str = "<event>aside: ";
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

/// What the model has not answered yet, as one text.
fn newest(request: &[Value]) -> String {
    let answered = request.iter().rposition(|message| message["role"] == "assistant");
    let new = request.iter().skip(answered.map_or(0, |at| at + 1));
    new.flat_map(texts).collect::<Vec<_>>().join("\n")
}

fn one_watcher(seat: &Seat) {
    let expected = usize::from(seat.can_be_woken);
    assert!(within(PATIENCE, || seat.watchers() == expected), "not {expected} watcher; {}", seat.sight());
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn idle_session_wakes_and_follower_ends_with_client() {
    let seat = Seat::taken(&["waiting", "seen"], &["go"]);
    seat.next_request(1);
    one_watcher(&seat);
    woken(&seat, "marker_wake", 2);
    kill_process(seat.pid(), Signal::KILL).expect("it runs");
    assert!(within(PATIENCE, || seat.watchers() == 0), "the watcher outlives its client");
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn pending_messages_reach_model_whole_with_critical_wake() {
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
fn queue_and_follower_survive_clear_branch_and_resume() {
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
fn client_without_monitor_is_woken_through_message_socket() {
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
fn watch_command_wakes_the_agent_once_with_note() {
    let command = format!("{} watch 'file built' --note 'marker_note'", env!("CARGO_BIN_EXE_aside"));
    let call = json!({ "command": command, "description": "Wait for the build" });
    asks_once("Bash", &call, |id, session| format!("watching {id} for {session}, until in 1h"));
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn watch_tool_wakes_the_agent_once_with_note() {
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
    let said = newest(&request);
    // The frames around the line and the text are the client's own.
    let part = |begin: &str, end: &str| {
        let (_, rest) = said.split_once(begin)?;
        rest.split_once(end).map(|(part, _)| part.to_owned())
    };
    let text = part("<notifications", "</notifications>").expect("a text");
    let line = part("<event>", "</event>").unwrap_or_default();
    for words in ["file built", "it exists", "marker_note"] {
        assert_eq!(text.matches(words).count(), 1, "{words}: {said}");
        assert_eq!(line.matches(words).count(), usize::from(seat.can_be_woken), "{words}: {said}");
    }
    let said = line + &text;
    let result = result(id, &session);
    let tokens: u32 = [&call.to_string(), &result, &said].iter().map(|text| estimate(text).0).sum();
    writeln!(std::io::stderr(), "{tokens} tokens").expect("somebody reads");
    assert!(tokens <= WAIT_TOKENS_MAX, "{tokens} tokens");
}

/// Publishes an event for the seat's session, and checks that it begins a turn once.
fn wakes_for(seat: &Seat, event: &Value, words: &str, number: usize) {
    let mut event = event.clone();
    event["session"] = json!(seat.idle_session());
    #[expect(clippy::disallowed_methods, reason = "how long a person waits is what is asked here")]
    let begin = Instant::now();
    seat.home.publish(&event);
    if seat.can_be_woken {
        assert!(seat.api.wait_for(number, WAKE_MAX), "not woken in {WAKE_MAX:?}; {}", seat.sight());
        writeln!(std::io::stderr(), "woken after {:?}", begin.elapsed()).expect("somebody reads");
    } else {
        seat.enter("is there anything");
    }
    let request = seat.next_request(number);
    assert_eq!(count(&request, words), 1, "{}", newest(&request));
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn addressed_text_wakes_an_idle_session_once() {
    let seat = Seat::taken(&[], &["go"]);
    seat.next_request(1);
    one_watcher(&seat);
    let message =
        json!({ "type": "message.agent.sent", "payload": { "from": "ann", "text": "marker_message" } });
    wakes_for(&seat, &message, "marker_message", 2);
    let check = json!({ "type": "ci.check.failed", "severity": "error",
        "payload": { "check": "marker_check", "branch": "fix-cart" } });
    wakes_for(&seat, &check, "marker_check", 3);
    let task = json!({ "type": "task.failed", "severity": "error",
        "payload": { "command": "marker_task", "exit_code": 3 } });
    wakes_for(&seat, &task, "marker_task", 4);
    // For the folder it waits.
    seat.home.publish(&json!({ "type": "task.failed", "severity": "error", "workspace": seat.home.work(),
        "payload": { "command": "marker_folder", "exit_code": 3 } }));
    assert!(!seat.api.wait_for(5, WAKE_MAX), "a turn that nobody asked for");
    assert_eq!(count(&seat.prompt("next"), "marker_folder"), 1);
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_tasks_end_wakes_an_idle_session() {
    let program = env!("CARGO_BIN_EXE_aside");
    let command = format!("{program} run -- sh -c 'sleep 4; exit 3' > /dev/null 2>&1 &");
    let call = json!({ "command": command, "description": "Starts a task" });
    let seat = Seat::playing(vec![Turn::calls("toolu_1", "Bash", &call), Turn::says("waiting")], &[]);
    seat.enter("go");
    seat.next_request(2);
    one_watcher(&seat);
    if seat.can_be_woken {
        assert!(seat.api.wait_for(3, Duration::from_secs(4) + WAKE_MAX), "not woken; {}", seat.sight());
    } else {
        let pending = || seat.home.get(&format!("/v1/sessions/{}", seat.idle_session()))["pending"] == 1;
        assert!(within(PATIENCE, pending), "{}", seat.sight());
        seat.enter("is there anything");
    }
    assert_eq!(count(&seat.next_request(3), "exit_code: 3"), 1);
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_wake_is_short_and_its_text_whole() {
    let seat = Seat::taken(&[], &["go"]);
    seat.next_request(1);
    one_watcher(&seat);
    for name in ["first", "second", "third"] {
        let message = format!("{} {name}_end", "m".repeat(290 - name.len() - 5));
        seat.home.publish(
            &json!({ "type": "tool.call.failure", "severity": "error", "workspace": seat.home.work(),
            "payload": { "tool_name": name, "error_type": "timeout", "error_message": message } }),
        );
    }
    let request = woken(&seat, "marker_critical", 2);
    let said = newest(&request);
    for end in ["first_end", "second_end", "third_end"] {
        assert_eq!(count(&request, end), 1, "{end}: {said}");
    }
    assert!(!said.contains("omitted") && !said.contains("in full"), "{said}");
    if seat.can_be_woken {
        let (_, line) = said.split_once("<event>").expect("an event");
        let (line, _) = line.split_once("</event>").expect("its end");
        assert!(line.starts_with("aside: ") && line.chars().count() <= 100, "{line}");
        let own = said.split_once("<notifications").map_or(0, |(_, text)| text.chars().count());
        let frame = said.chars().count().saturating_sub(own + line.chars().count());
        writeln!(std::io::stderr(), "{frame} characters of frame").expect("somebody reads");
    }
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn two_idle_sessions_in_a_folder_wake_once() {
    let seat = Seat::taken(&[], &["go"]);
    seat.next_request(1);
    one_watcher(&seat);
    let api = Api::playing(vec![Turn::says("the second one")]);
    let plugin = seat.home.path("plugin/aside").to_string_lossy().into_owned();
    let other = Terminal::of_client(&seat.home, &api.url(), &["--plugin-dir", &plugin, "go"]);
    let watchers = if seat.can_be_woken { 2 } else { 0 };
    let is_ready = || seat.watchers() == watchers && other.says_idle(&seat.home);
    assert!(api.wait_for(1, PATIENCE) && within(PATIENCE, is_ready), "{}", other.screen());
    let states = || {
        let list = seat.home.get("/v1/sessions");
        let all = list["sessions"].as_array().cloned().unwrap_or_default();
        all.iter().filter(|session| session["state"] == "idle").count()
    };
    assert!(within(PATIENCE, || states() == 2), "{}", seat.sight());
    seat.fail("critical", "marker_one");
    if seat.can_be_woken {
        assert!(api.wait_for(2, PATIENCE), "the one that was active last is not woken: {}", other.screen());
        assert!(!seat.api.wait_for(2, WAKE_MAX), "both are woken: {}", seat.sight());
    }
    seat.enter("next");
    assert!(seat.api.wait_for(2, PATIENCE), "{}", seat.sight());
    let request = seat.api.conversation().pop().expect("one is there");
    assert_eq!(count(&request, "marker_one"), 1, "{}", newest(&request));
}

/// A client that its host sends prompts, as an SDK does.
struct Host {
    child: Child,
    api: Api,
    home: std::sync::Arc<Home>,
}

impl Host {
    fn new(home: std::sync::Arc<Home>, mode: &str) -> Self {
        let api = Api::playing(Vec::new());
        let fixed = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"];
        let mut command = client(&home, &api.url(), &[&fixed[..], &["--permission-mode", mode]].concat());
        // The client asks for that where it runs as root.
        command.env("IS_SANDBOX", "1").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("the client runs");
        Self { child, api, home }
    }

    /// Sends a prompt; returns the request `number` with it, once its turn is over.
    fn prompt(&mut self, text: &str, number: usize) -> Vec<Value> {
        let line = json!({ "type": "user", "message": { "role": "user", "content": text } });
        let stdin = self.child.stdin.as_mut().expect("piped");
        writeln!(stdin, "{line}").expect("the client reads");
        self.request(number)
    }

    fn request(&self, number: usize) -> Vec<Value> {
        assert!(self.api.wait_for(number, PATIENCE), "no request {number}: {}", self.session());
        assert!(within(PATIENCE, || self.session()["state"] == "idle"), "{}", self.session());
        self.api.conversation().pop().expect("one is there")
    }

    fn session(&self) -> Value {
        self.home.get("/v1/sessions")["sessions"][0].clone()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Whether this client has a message socket without a terminal.
fn has_socket() -> bool {
    super::client::can_be_woken()
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_critical_one_survives_held_messages() {
    let home = home();
    let _daemon = home.serve();
    let mut host = Host::new(home.clone(), "bypassPermissions");
    host.prompt("go", 1);
    fail(&home, "critical", "marker_held");
    assert!(!host.api.wait_for(2, WAKE_MAX), "{} {}", version(), host.session());
    assert_eq!(host.session()["pending"], 1, "{}", host.session());
    if has_socket() {
        assert_eq!(home.get("/v1/clients")["attached"][0]["is_held"], true);
    }
    let request = host.prompt("next", 2);
    assert_eq!(count(&request, "marker_held"), 1, "{}", newest(&request));
    assert_eq!(host.session()["pending"], 0);
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_client_that_is_sent_prompts_is_woken() {
    let home = home();
    let _daemon = home.serve();
    let mut host = Host::new(home.clone(), "default");
    host.prompt("go", 1);
    fail(&home, "critical", "marker_sent");
    let request = if has_socket() { host.request(2) } else { host.prompt("next", 2) };
    assert_eq!(count(&request, "marker_sent"), 1, "{}", newest(&request));
    assert_eq!(count(&request, BY_SOCKET), usize::from(has_socket()));
}
