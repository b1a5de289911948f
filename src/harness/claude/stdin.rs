//! The used fields of Claude Code's hook input; all others are skipped without being built.

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error},
};
use serde_json::value::RawValue;

use engine::raw_json;

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
    #[serde(default, deserialize_with = "lenient")]
    pub(super) session_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) cwd: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) transcript_path: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) prompt_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) permission_mode: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) agent_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) agent_type: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SessionStart {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) source: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) model: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct UserPromptSubmit<'a> {
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PostToolBatch<'a> {
    #[serde(default, borrow, deserialize_with = "first::<_, _, CALLS_MAX>")]
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
    #[serde(default, deserialize_with = "lenient")]
    pub(super) error: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) is_interrupt: bool,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) duration_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct StopFailure {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) error: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) last_assistant_message: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Notification {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) message: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) notification_type: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Compaction {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) trigger: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Stop {
    #[serde(default, deserialize_with = "lenient")]
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
    #[serde(default, deserialize_with = "lenient")]
    pub(super) reason: String,
}

/// Reads a field that a call can do without: one of another type counts as absent.
fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(from: D) -> Result<T, D::Error> {
    let value = <&RawValue>::deserialize(from)?;
    Ok(serde_json::from_str(value.get()).unwrap_or_default())
}

/// Reads the first `MAX` items of an array, and skips further ones and those of another type.
fn first<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MAX: usize>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    let value = <&'de RawValue>::deserialize(from)?;
    let mut items = Vec::new();
    let take = |_, item: &'de RawValue| {
        // The error about an item that is not an object would quote it.
        if items.len() < MAX && raw_json::is_object(item) {
            items.extend(serde_json::from_str(item.get()).ok());
        }
        Ok(())
    };
    // What is no array has no items.
    raw_json::each_item(value, take).ok();
    Ok(items)
}

fn first_tasks<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<BackgroundTask>>, D::Error> {
    let tasks = Option::<&'de RawValue>::deserialize(from)?.filter(|value| raw_json::is_array(value));
    tasks.map(first::<_, _, TASKS_MAX>).transpose().map_err(Error::custom)
}

impl<'a> UserPromptSubmit<'a> {
    /// The prompt as JSON writes it, with its escapes: a prompt of any size is searched in place.
    pub(super) fn text(&self) -> &'a str {
        let text = self.prompt.map_or("", RawValue::get);
        text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default()
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
    fn error_type_is_the_exit_code_if_present() {
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
