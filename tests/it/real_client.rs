//! The newest client that can be installed, against a scripted Messages API: which notifications
//! reach the model, where, and how often.
//!
//! Not a part of the usual test run, as it needs a client: `scripts/real-client` installs one and
//! runs these tests.

mod api;
mod calls;
mod client;
mod contexts;
mod desk;
mod detectors;
mod files;
mod language_servers;
mod repository;
mod said;
mod servers;
mod sessions;
mod sight;
mod signals;
mod silence;
mod stage;
mod terminal;
mod waking;

use std::sync::{Arc, Mutex};

use aside::api::wire::formats::INSTRUCTIONS;
use serde_json::{Value, json};

use self::{
    api::{Api, Turn},
    calls::delivered,
    client::{aside, run_headless, settle},
};
use crate::support::daemon::{Daemon, Home};

/// The client's label for the text of a hook.
const LABEL: &str = "hook additional context:";
/// The output of the scripted tool.
const TOOL_SAYS: &str = "from the tool";

/// A home in which the client has been used before.
fn settled_home() -> Arc<Home> {
    let mut home = Home::new();
    // The daemon must find the client's files in its cache folder.
    home.set("HOME", home.path(""));
    settle(&home);
    Arc::new(home)
}

/// [`settled_home`] with aside installed.
fn home() -> Arc<Home> {
    let home = settled_home();
    install(&home);
    home
}

fn install(home: &Home) {
    aside(home, &["install", "claude-code", "--user"]);
}

fn bash(id: &str) -> Turn {
    Turn::calls(id, "Bash", &says())
}

fn says() -> Value {
    json!({ "command": format!("echo {TOOL_SAYS}"), "description": "Says something" })
}

/// Publishes a failure for every session in this home's folder; the text for the agent contains
/// `words`.
fn fail(home: &Home, severity: &str, words: &str) {
    fail_for(home, ("workspace", &home.work()), severity, words);
}

/// Like [`fail`], for a scope of this kind.
fn fail_for(home: &Home, (kind, scope): (&str, &str), severity: &str, words: &str) {
    home.publish(&json!({
        "type": "tool.call.failure", "severity": severity, kind: scope,
        "payload": { "tool_name": words, "error_type": "timeout" },
    }));
}

/// Every text of a message, including those inside tool results.
fn texts(message: &Value) -> Vec<&str> {
    fn collect<'v>(value: &'v Value, into: &mut Vec<&'v str>) {
        match value {
            Value::String(text) => into.push(text),
            Value::Array(items) => items.iter().for_each(|item| collect(item, into)),
            Value::Object(fields) => {
                let parts = ["text", "content"].into_iter().filter_map(|name| fields.get(name));
                parts.for_each(|part| collect(part, into));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut found = Vec::new();
    collect(&message["content"], &mut found);
    found
}

/// How often these messages contain `words`. The sentence at the beginning of a text only repeats
/// its content, so only the first words of the sentence count.
fn count(messages: &[Value], words: &str) -> usize {
    let lines = messages.iter().flat_map(texts).flat_map(str::lines);
    lines.map(|line| less_sentence(line).matches(words).count()).sum()
}

fn less_sentence(line: &str) -> &str {
    let begins = ["aside: ", "aside cancelled this call: ", "aside (automated notification): "];
    let end = begins.iter().find_map(|begin| Some(line.find(begin)? + begin.len()));
    end.and_then(|end| line.get(..end)).unwrap_or(line)
}

/// The index of the first message that contains `words`.
fn place(messages: &[Value], words: &str) -> Option<usize> {
    messages.iter().position(|message| texts(message).iter().any(|text| text.contains(words)))
}

/// Checks that each request repeats the previous one unchanged and only adds to it.
fn assert_only_added(conversation: &[Vec<Value>]) {
    for (number, pair) in conversation.windows(2).enumerate() {
        for (index, message) in pair[0].iter().enumerate() {
            assert_eq!(pair[1].get(index), Some(message), "message {index} of request {number} was changed");
        }
    }
}

/// Plays `turns`; returns every request of the conversation.
fn play(home: &Home, turns: Vec<Turn>) -> Vec<Vec<Value>> {
    let api = Api::playing(turns);
    run_headless(home, &api.url());
    let conversation = api.conversation();
    assert_only_added(&conversation);
    conversation
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn the_model_has_the_instructions_from_the_start() {
    // By the description of the skill, and by the server of the tools, if there is one.
    for (tools, times) in [(None, 1), (Some("--tools"), 2)] {
        let home = settled_home();
        let args: Vec<&str> = ["install", "claude-code", "--user"].into_iter().chain(tools).collect();
        aside(&home, &args);
        let _daemon = home.serve();
        let conversation = play(&home, vec![Turn::says("done")]);
        let found = conversation[0].iter().flat_map(texts).map(|text| text.matches(INSTRUCTIONS).count());
        assert_eq!(found.sum::<usize>(), times, "{tools:?}");
    }
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn event_during_tool_is_delivered_once_with_result() {
    let home = home();
    let _daemon = home.serve();
    let during = home.clone();
    let turns = vec![
        bash("toolu_1").after(move || fail(&during, "error", "marker_during")),
        bash("toolu_2"),
        Turn::says("done"),
    ];
    let conversation = play(&home, turns);
    assert_eq!(conversation.len(), 3);
    assert_eq!(delivered(&conversation, "marker_during"), [0, 1, 1]);
    let (result, text) = (place(&conversation[1], TOOL_SAYS), place(&conversation[1], "marker_during"));
    assert!(result.is_some() && text >= result, "the result at {result:?}, the text at {text:?}");
    assert_eq!(conversation[2].iter().filter(|message| message["role"] == "assistant").count(), 2);
    let second_call = conversation[2].iter().rposition(|message| message["role"] == "assistant");
    assert!(text < second_call, "the text at {text:?}, the next call at {second_call:?}");
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn event_before_session_is_delivered_with_first_prompt() {
    let home = home();
    let _daemon = home.serve();
    fail(&home, "error", "marker_before");
    let conversation = play(&home, vec![bash("toolu_1"), Turn::says("done")]);
    assert_eq!(delivered(&conversation, "marker_before"), [1, 1]);
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn something_critical_stops_the_next_call_once() {
    let home = home();
    let _daemon = home.serve();
    let during = home.clone();
    let turns = vec![
        bash("toolu_1").after(move || fail(&during, "critical", "marker_critical")),
        bash("toolu_2"),
        Turn::says("done"),
    ];
    let conversation = play(&home, turns);
    assert_eq!(delivered(&conversation, "marker_critical"), [0, 1, 1]);
    let ran = delivered(&conversation, TOOL_SAYS);
    // The calls themselves contain the words too, and `texts` does not read calls.
    assert_eq!(ran, [0, 0, 1], "the first call was not run, the second one was");
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn parallel_calls_are_all_cancelled_once() {
    let home = home();
    let _daemon = home.serve();
    let during = home.clone();
    let three = |ids: [&str; 3]| Turn::calls_together(&ids, "Bash", &says());
    let turns = vec![
        three(["toolu_1", "toolu_2", "toolu_3"]).after(move || fail(&during, "critical", "marker_critical")),
        three(["toolu_4", "toolu_5", "toolu_6"]),
        Turn::says("done"),
    ];
    let conversation = play(&home, turns);
    assert_eq!(delivered(&conversation, "marker_critical"), [0, 1, 1]);
    assert_eq!(delivered(&conversation, TOOL_SAYS), [0, 0, 3], "{:?}", conversation[1].last());
    assert_eq!(
        delivered(&conversation, "aside cancelled this call"),
        [0, 3, 3],
        "{:?}",
        conversation[1].last()
    );
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn critical_event_at_turn_end_continues_agent_once() {
    let home = home();
    let _daemon = home.serve();
    let during = home.clone();
    let turns = vec![
        Turn::says("done").after(move || fail(&during, "critical", "marker_end")),
        Turn::says("looked at it"),
    ];
    let conversation = play(&home, turns);
    assert_eq!(delivered(&conversation, "marker_end"), [0, 1]);
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn daemon_changes_transcript_only_by_its_own_text() {
    let home = home();
    let turns = || vec![bash("toolu_1"), bash("toolu_2"), Turn::says("done")];
    let absent = play(&home, turns());
    assert_eq!((absent.len(), count(&absent[2], LABEL)), (3, 0));

    let daemon = home.serve();
    assert_eq!(play(&home, turns()), absent, "nothing to tell");

    fail(&home, "error", "marker_delivered");
    let conversation = play(&home, turns());
    assert_eq!(count(&conversation[2], "marker_delivered"), 1);
    let less: Vec<_> = conversation.iter().map(|messages| less_our_text(messages)).collect();
    assert_eq!(less, absent, "delivered");

    // Killed while the model works on the result of the first tool.
    let daemon = Arc::new(Mutex::new(Some(daemon)));
    let (victim, during) = (daemon.clone(), home.clone());
    let mut killed = turns();
    killed[1] = bash("toolu_2").after(move || {
        fail(&during, "error", "marker_lost");
        let daemon = victim.lock().expect("no panic").take();
        daemon.map(Daemon::kill).expect("it ran until now");
    });
    assert_eq!(play(&home, killed), absent, "killed in the midst of the turn");
}

/// The messages without the texts of hooks.
fn less_our_text(messages: &[Value]) -> Vec<Value> {
    let mut messages = messages.to_vec();
    for message in &mut messages {
        let Some(blocks) = message["content"].as_array_mut() else { continue };
        for block in blocks.iter_mut() {
            let Some(text) = block["text"].as_str() else { continue };
            block["text"] = json!(less_labelled(text));
        }
        blocks.retain(|block| block["text"] != "");
    }
    messages.retain(|message| message["content"] != json!([]));
    messages
}

fn less_labelled(text: &str) -> String {
    let Some(label) = text.find(LABEL) else { return text.to_owned() };
    let begin = text[..label].rfind('\n').map_or(0, |line| line + 1);
    let close = "</notifications>";
    let end = text[label..].find(close).map_or(text.len(), |at| label + at + close.len());
    format!("{}{}", text[..begin].trim_end(), &text[end..]).trim_start().to_owned()
}
