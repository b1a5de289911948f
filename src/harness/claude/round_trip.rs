//! Hooks for testing the delivery to the agent.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::round_trip::{MadeUp, RoundTrip};

/// An undefined hook.
pub(super) const HARMLESS: &str = r#"{"hook_event_name":"AsideDoctor","session_id":"doctor"}"#;

pub(super) const ROUND_TRIP: RoundTrip = RoundTrip { ask, end, text };

/// A batch of tools has ended.
fn ask(made_up: &MadeUp<'_>, call: &str, read: Option<&Path>) -> String {
    let MadeUp { conversation, agent } = made_up;
    let id = format!("{conversation}-{call}");
    let tool = match read {
        Some(path) => json!({ "tool_name": "Read", "tool_use_id": id, "tool_input": { "file_path": path } }),
        None => json!({ "tool_name": agent, "tool_use_id": id }),
    };
    let hook = json!({
        "hook_event_name": "PostToolBatch", "session_id": conversation, "agent_id": agent, "prompt_id": conversation,
        "cwd": "/", "tool_calls": [tool],
    });
    hook.to_string()
}

fn end(made_up: &MadeUp<'_>) -> String {
    let MadeUp { conversation, agent } = made_up;
    let hook = json!({
        "hook_event_name": "SubagentStop", "session_id": conversation, "agent_id": agent, "agent_type": agent,
    });
    hook.to_string()
}

fn text(stdout: &[u8]) -> Option<String> {
    let output: Value = serde_json::from_slice(stdout).ok()?;
    output.pointer("/hookSpecificOutput/additionalContext")?.as_str().map(str::to_owned)
}
