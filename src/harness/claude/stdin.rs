//! The used fields of Claude Code's hook input; all others are skipped without being built.

use serde::Deserialize;
use serde_json::value::RawValue;

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
pub(super) struct UserPromptSubmit {
    pub(super) prompt: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct PostToolBatch {
    pub(super) tool_calls: Vec<ToolCall>,
}

/// A call before it runs; its input is not parsed.
#[derive(Debug, Deserialize)]
pub(super) struct PendingCall {
    pub(super) tool_name: String,
    pub(super) tool_use_id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ToolCall {
    pub(super) tool_name: String,
    pub(super) tool_use_id: String,
    pub(super) tool_input: Option<Box<RawValue>>,
    pub(super) tool_response: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PostToolUseFailure {
    pub(super) tool_name: String,
    pub(super) tool_use_id: String,
    pub(super) tool_input: Option<Box<RawValue>>,
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

impl ToolCall {
    /// Its tool and its id.
    pub(super) fn names(&self) -> (&str, &str) {
        (&self.tool_name, &self.tool_use_id)
    }
}

impl PostToolUseFailure {
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
