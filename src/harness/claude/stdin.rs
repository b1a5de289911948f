//! The used fields of Claude Code's hook input; all others are skipped without being built.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::harness::{HookError, InputError};

/// Most calls of a batch that are read; an agent makes a few in parallel.
const CALLS_MAX: usize = 128;
/// Most background tasks that are read.
pub(super) const TASKS_MAX: usize = 64;

/// Prefix of a shell command's error.
const EXIT_CODE_PREFIX: &str = "Exit code ";

/// The fields of every hook.
#[derive(Debug, Deserialize)]
pub(super) struct Common {
    pub(super) hook_event_name: String,
    pub(super) session_id: Option<String>,
    pub(super) cwd: Option<String>,
    pub(super) transcript_path: Option<String>,
    pub(super) prompt_id: Option<String>,
    pub(super) permission_mode: Option<String>,
    pub(super) agent_id: Option<String>,
    pub(super) agent_type: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SessionStart {
    pub(super) source: String,
    pub(super) model: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct UserPromptSubmit<'a> {
    #[serde(borrow)]
    prompt: &'a RawValue,
}

#[derive(Debug, Deserialize)]
pub(super) struct PostToolBatch<'a> {
    #[serde(borrow, deserialize_with = "first::<_, _, CALLS_MAX>")]
    pub(super) tool_calls: Vec<ToolCall<'a>>,
}

/// A call before it runs; its input is not parsed.
#[derive(Debug, Deserialize)]
pub(super) struct PendingCall {
    pub(super) tool_name: String,
    pub(super) tool_use_id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ToolCall<'a> {
    pub(super) tool_name: String,
    pub(super) tool_use_id: String,
    #[serde(borrow)]
    pub(super) tool_input: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_response: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PostToolUseFailure<'a> {
    pub(super) tool_name: String,
    pub(super) tool_use_id: String,
    #[serde(borrow)]
    pub(super) tool_input: Option<&'a RawValue>,
    pub(super) error: String,
    #[serde(default)]
    pub(super) is_interrupt: bool,
    pub(super) duration_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct StopFailure {
    pub(super) error: String,
    pub(super) last_assistant_message: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Notification {
    pub(super) message: String,
    pub(super) notification_type: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Compaction {
    pub(super) trigger: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Stop {
    #[serde(default)]
    pub(super) stop_hook_active: bool,
    /// Running background tasks; `None` if the client does not report them.
    #[serde(default, deserialize_with = "first_tasks")]
    pub(super) background_tasks: Option<Vec<BackgroundTask>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct BackgroundTask {
    pub(super) id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct SessionEnd {
    pub(super) reason: String,
}

/// Reads the first `MAX` items of an array, and skips further ones.
fn first<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MAX: usize>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(First::<T, MAX>(PhantomData))
}

fn first_tasks<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<BackgroundTask>>, D::Error> {
    #[derive(Deserialize)]
    struct Tasks(#[serde(deserialize_with = "first::<_, _, TASKS_MAX>")] Vec<BackgroundTask>);
    Ok(Option::<Tasks>::deserialize(from)?.map(|tasks| tasks.0))
}

struct First<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for First<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Vec<T>, A::Error> {
        let mut items = Vec::new();
        while items.len() < MAX {
            let Some(item) = array.next_element()? else { return Ok(items) };
            items.push(item);
        }
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(items)
    }
}

impl<'a> UserPromptSubmit<'a> {
    /// The prompt as JSON writes it, with its escapes: a prompt of any size is searched in place.
    pub(super) fn text(&self) -> Result<&'a str, HookError> {
        let text = self.prompt.get().strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        text.ok_or_else(|| HookError::Input {
            field: "prompt".to_owned(),
            source: InputError::new("it is not a text"),
        })
    }
}

impl ToolCall<'_> {
    /// Its tool and its id.
    pub(super) fn names(&self) -> (&str, &str) {
        (&self.tool_name, &self.tool_use_id)
    }
}

impl PostToolUseFailure<'_> {
    /// The kind of error, and its text.
    pub(super) fn split_error(&self) -> (String, &str) {
        let error = self.error.as_str();
        let exit_code =
            error.strip_prefix(EXIT_CODE_PREFIX).map(|rest| rest.split_once('\n').unwrap_or((rest, "")));
        match exit_code {
            Some((code, output)) if code.bytes().all(|byte| byte.is_ascii_digit()) && !code.is_empty() => {
                (format!("exit_{code}"), output)
            }
            _ => ("error".to_owned(), error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_an_error_is_its_exit_code_if_it_has_one() {
        for (error, expected) in [
            ("Exit code 127\nnot found", ("exit_127", "not found")),
            ("Exit code 1", ("exit_1", "")),
            ("Exit code unknown", ("error", "Exit code unknown")),
            ("File does not exist.", ("error", "File does not exist.")),
        ] {
            let failure = PostToolUseFailure {
                tool_name: String::new(),
                tool_use_id: String::new(),
                tool_input: None,
                error: error.to_owned(),
                is_interrupt: false,
                duration_ms: None,
            };
            let (error_type, message) = failure.split_error();
            assert_eq!((error_type.as_str(), message), expected);
        }
    }
}
