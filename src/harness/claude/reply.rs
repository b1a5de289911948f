//! What goes back to a hook: one line of JSON, or nothing.

use serde::Serialize;

use crate::{
    exchange::{Answer, Directive, Injection},
    harness::{HookCall, caps::CLAUDE_CODE},
};

/// What stands below the notifications that come in place of a call: what became of the call. It is one of the facts, and asks
/// for nothing.
const NOT_RUN: &str = "\n\nThe call was held back so that this could be read first; it was not run. The same call can be made again.";

/// Most characters of an injection that comes in place of a call; the rest is for [`NOT_RUN`].
pub(super) const DENY_CHARS_MAX: u32 = CLAUDE_CODE.chars_max - NOT_RUN.len() as u32;

/// What belongs on the hook's stdout: one line of JSON, or nothing.
pub fn reply(call: &HookCall, answer: &Answer) -> Option<String> {
    let system_message = answer.notice.as_deref();
    if answer.injection.is_none() && system_message.is_none() {
        return None;
    }
    let hook_specific_output = answer.injection.as_ref().map(|injection| match answer.directive {
        Some(Directive::Cancel { .. }) => deny(&call.hook, injection),
        Some(Directive::Continue { .. }) | None => Output {
            hook_event_name: &call.hook,
            additional_context: Some(&injection.text),
            permission_decision: None,
            permission_decision_reason: None,
        },
    });
    let stdout = Stdout { system_message, hook_specific_output };
    Some(serde_json::to_string(&stdout).expect("strings in structs always serialize"))
}

fn deny<'a>(hook: &'a str, injection: &Injection) -> Output<'a> {
    Output {
        hook_event_name: hook,
        additional_context: None,
        permission_decision: Some("deny"),
        permission_decision_reason: Some(format!("{}{NOT_RUN}", injection.text)),
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Stdout<'a> {
    /// Shown to the user; the model does not get it.
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
    additional_context: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permission_decision: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permission_decision_reason: Option<String>,
}
