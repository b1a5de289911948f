//! The tool calls of an agent and their effects on files, as reported by its harness.
//!
//! A harness adapter derives them from the hook's report. A custom loop reports them in the
//! payloads of the events that it observes. Only the probes of the same exchange use them; they are
//! not recorded.

pub mod command;
pub mod push;
pub mod written;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::{command::absolute, written::Written};

/// The field of `agent.turn.end` with the ids of the commands that still run in the background.
pub const RUNNING: &str = "running";

/// One call that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Call {
    /// The shell command, if the call ran one.
    pub command: Option<String>,
    /// Whether that command still runs after the call's result.
    pub in_background: bool,
    /// The files that the call touched, by absolute paths.
    pub touched: Vec<Touch>,
    /// The names of files that the result reports as changed.
    pub said_changed: Vec<String>,
    /// The harness's id of the command that still runs in the background.
    pub started: Option<String>,
    /// The output file of this command, as an absolute path.
    pub output: Option<String>,
    /// The background commands whose end is reported by the result, or by the harness instead.
    pub ended: Vec<String>,
    /// The state of an MCP server, if the call used one of its tools.
    pub server: Option<ServerCall>,
}

/// The state of an MCP server, as seen in a call of its tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCall {
    /// The server's name in the client.
    pub server: String,
    /// Whether the client had a connection to it.
    pub is_connected: bool,
}

/// One file that a call touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    /// The absolute path.
    pub path: Arc<str>,
    /// The kind of access.
    pub by: TouchKind,
    /// What was written, if the call says so.
    pub written: Option<Written>,
}

/// How the content of a file reached an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TouchKind {
    /// A read tool returned its content.
    Read,
    /// A command printed it.
    Shown,
    /// The agent wrote it.
    Written,
}

impl Call {
    /// Reads the report of a custom loop on a call from the payload of a `tool.call.*` event:
    /// `files`, a list of `path` and `by` (`read`, `shown` or `written`), `command`, and
    /// `in_background`. Relative paths are relative to `folder`.
    ///
    /// Errors: none. A missing field counts as unknown; a malformed one makes the whole report
    /// unknown.
    pub fn of_event(event_type: &str, payload: &str, folder: Option<&str>) -> Option<Self> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Said<'a> {
            #[serde(borrow)]
            files: Vec<SaidFile<'a>>,
            command: Option<String>,
            in_background: bool,
        }
        #[derive(Deserialize)]
        struct SaidFile<'a> {
            #[serde(borrow)]
            path: std::borrow::Cow<'a, str>,
            by: TouchKind,
        }
        let has_ended = ["tool.call.success", "tool.call.failure", "tool.call.timeout"].contains(&event_type);
        let Said { files, command, in_background } =
            has_ended.then(|| serde_json::from_str(payload).ok())??;
        let touched = files.iter().filter_map(|file| {
            let folder = if file.path.starts_with('/') { Some("/") } else { folder };
            Some(Touch { path: absolute(&file.path, folder?).into(), by: file.by, written: None })
        });
        let touched: Vec<Touch> = touched.collect();
        let says_something = !touched.is_empty() || command.is_some();
        says_something.then_some(Self { command, in_background, touched, ..Self::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_says_what_a_call_touched() {
        let of = |event_type: &str, payload: &str| Call::of_event(event_type, payload, Some("/w"));
        let payload = r#"{"tool_name":"edit","files":[{"path":"src/a.rs","by":"written"},{"path":"/b","by":"read"}],"command":"make"}"#;
        let call = of("tool.call.success", payload).expect("it says so");
        let touched: Vec<(&str, TouchKind)> =
            call.touched.iter().map(|touch| (&*touch.path, touch.by)).collect();
        assert_eq!(touched, [("/w/src/a.rs", TouchKind::Written), ("/b", TouchKind::Read)]);
        assert_eq!(call.command.as_deref(), Some("make"));
        for (event_type, payload) in [
            ("tool.call.pending", payload),
            ("tool.call.success", r#"{"tool_name":"grep"}"#),
            ("tool.call.success", r#"{"files":[{"path":"a","by":"seen"}]}"#),
            ("tool.call.success", r#"{"files":"a"}"#),
        ] {
            assert_eq!(of(event_type, payload), None, "{event_type} {payload}");
        }
    }
}
