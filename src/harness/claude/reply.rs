//! The output of a hook: one line of JSON, or nothing.

use std::borrow::Cow;

use engine::exchange::{Answer, Directive, Injection, LINE_BEGIN, NOT_RUN};
use serde::Serialize;

use crate::harness::{HookCall, claude::caps::CAPS};

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
