//! A live round trip: an event goes in, and a hook brings its text out.
//!
//! The session is made up, and is a subagent's, whose parent is nowhere: such a session gets what is addressed to it and nothing
//! else, so nothing that waits for a real one is taken.

use std::{
    env,
    io::{self, Write},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use uuid::Uuid;

use super::Check;
use crate::client::Client;

pub(super) const NAME: &str = "round trip";
/// The type of the event: a core subscriber's, which cannot be switched off.
const EVENT_TYPE: &str = "tool.call.failure";
/// The made-up subagent.
const AGENT: &str = "doctor";
/// Where its event comes from.
pub(in crate::cli) const SOURCE: &str = "doctor";
/// What the made-up session's id begins with.
const SESSION: &str = "doctor-";

/// Whether this is the session of a round trip, about which nobody asks who looks at what happened.
pub(in crate::cli) fn is_probe(session: Option<&str>) -> bool {
    let parts = session.and_then(|session| session.split_once('/'));
    parts.is_some_and(|(parent, agent)| parent.starts_with(SESSION) && agent == AGENT)
}

pub(super) fn check(client: &Client) -> Check {
    let id = format!("{SESSION}{}", Uuid::now_v7());
    let outcome = try_out(client, &id);
    // The daemon closes a session that nobody uses; this one should not be seen until then.
    let closing = json!({ "hook_event_name": "SubagentStop", "session_id": id, "agent_id": AGENT, "agent_type": AGENT });
    let closed = hook(client, &closing);
    match (outcome, closed) {
        (Ok(characters), Ok(_)) => {
            Check::ok(NAME, format!("an event came back once, as {characters} characters of text"))
        }
        (Err(trouble), _) => Check::fail(NAME, trouble, "aside status, and the daemon's log"),
        (Ok(_), Err(error)) => {
            Check::warn(NAME, format!("the session {id} could not be closed: {error}"), "aside sessions")
        }
    }
}

/// Gives the number of characters that the agent would have got.
fn try_out(client: &Client, id: &str) -> Result<usize, String> {
    let session = format!("{id}/{AGENT}");
    let event = json!({
        "id": id, "type": EVENT_TYPE, "source": SOURCE, "session": session,
        "payload": { "tool_name": "doctor", "error_type": "none", "error_message": "a test of the way" },
    });
    let answer = client
        .request("POST", "/v1/events", &[("content-type", "application/json")], event.to_string().as_bytes())
        .map_err(|error| error.to_string())?;
    if answer.status != 200 {
        return Err(format!("the event was refused with HTTP status {}", answer.status));
    }
    let characters =
        match batch(client, id, "first")? {
            None => Err("the hook was silent: it got no answer in time, or the event became no notification"
                .to_owned()),
            Some(text) => Ok(text.chars().count()),
        }?;
    // Also confirms that the text has arrived, so that it is not told again to whoever comes later.
    match batch(client, id, "second")? {
        None => Ok(characters),
        Some(_) => Err("the event was told twice".to_owned()),
    }
}

/// Says that a batch of tools has ended; gives the text for the agent, if there is one.
fn batch(client: &Client, id: &str, tool_use: &str) -> Result<Option<String>, String> {
    let call = json!({
        "hook_event_name": "PostToolBatch", "session_id": id, "agent_id": AGENT, "prompt_id": id, "cwd": "/",
        "tool_calls": [{ "tool_name": "doctor", "tool_use_id": format!("{id}-{tool_use}") }],
    });
    let output = hook(client, &call).map_err(|error| format!("the hook cannot be run: {error}"))?;
    if output.is_empty() {
        return Ok(None);
    }
    let output: Value = serde_json::from_slice(&output)
        .map_err(|error| format!("the hook printed something else than JSON: {error}"))?;
    let text = output.pointer("/hookSpecificOutput/additionalContext").and_then(Value::as_str);
    text.map(|text| Some(text.to_owned())).ok_or_else(|| "the hook printed no text for the agent".to_owned())
}

/// Runs the hook as the client does; gives what it prints.
fn hook(client: &Client, call: &Value) -> io::Result<Vec<u8>> {
    let mut child = Command::new(env::current_exe()?)
        .args(["hook", "claude"])
        .env("ASIDE_SOCKET", client.socket())
        .env_remove("CLAUDE_PROJECT_DIR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(call.to_string().as_bytes())?;
    }
    child.wait_with_output().map(|output| output.stdout)
}
