//! The output of a hook: one line of JSON, or nothing; and hooks for testing the delivery to the
//! agent.

use std::{borrow::Cow, path::Path};

use engine::exchange::{Answer, Directive, Injection, LINE_BEGIN, NOT_RUN};
use serde::Serialize;
use serde_json::{Value, json};

use crate::harness::{
    HookCall,
    claude::native::CAPS,
    kind::{MadeUp, RoundTrip},
};

/// Prefix of the reason for denying a call. A user at a terminal sees only its first line.
const CANCELLED: &str = "aside cancelled this call: ";

/// Most characters of the reason after [`CANCELLED`]; it names subscribers, and one line of a
/// terminal has no more room.
const REASON_CHARS_MAX: u32 = 200;

/// Most characters of an injection that replaces a call; the rest is for the first line.
pub(super) const DENY_CHARS_MAX: u32 =
    CAPS.chars_max - (CANCELLED.len() + "\n\n".len()) as u32 - REASON_CHARS_MAX;

/// The stdout of the hook: one line of JSON, or nothing.
pub fn reply(call: &HookCall, answer: &Answer) -> Option<String> {
    let system_message = answer.notice.as_deref();
    let hook_specific_output = match (&answer.directive, &answer.injection) {
        (Some(Directive::Cancel { reason }), injection) => Some(deny(&call.hook, reason, injection.as_ref())),
        (Some(Directive::Continue { .. }), Some(injection)) => {
            // The client shows its user the text for which the agent continues, so it begins with
            // its subject. The sentence fits into the reserve of `CAPS`.
            let text = format!("{LINE_BEGIN}{}\n\n{}", injection.sentence, injection.text);
            Some(context(&call.hook, text.into()))
        }
        (None, Some(injection)) => Some(context(&call.hook, Cow::Borrowed(&injection.text))),
        (Some(Directive::Continue { .. }) | None, None) => None,
    };
    if hook_specific_output.is_none() && system_message.is_none() {
        return None;
    }
    let stdout = Stdout { system_message, hook_specific_output };
    Some(serde_json::to_string(&stdout).expect("strings in structs always serialize"))
}

fn context<'a>(hook: &'a str, text: Cow<'a, str>) -> Output<'a> {
    Output {
        hook_event_name: hook,
        additional_context: Some(text),
        permission_decision: None,
        permission_decision_reason: None,
    }
}

/// Denies a call. Of parallel calls, only one has the text; the others have its first sentence.
fn deny<'a>(hook: &'a str, reason: &str, injection: Option<&Injection>) -> Output<'a> {
    let line = reason.chars().take(usize::try_from(REASON_CHARS_MAX).unwrap_or(usize::MAX));
    let mut said: String = CANCELLED.chars().chain(line).collect();
    said.push_str("\n\n");
    said.push_str(injection.map_or(NOT_RUN, |injection| &injection.text));
    Output {
        hook_event_name: hook,
        additional_context: None,
        permission_decision: Some("deny"),
        permission_decision_reason: Some(said),
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Stdout<'a> {
    /// Shown to the user, not to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    system_message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hook_specific_output: Option<Output<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Output<'a> {
    hook_event_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    additional_context: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permission_decision: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permission_decision_reason: Option<String>,
}

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
