//! What the tool calls of an agent did to files, as far as its harness says.
//!
//! A harness's adapter makes it of what a hook reports; a loop of one's own says it in the payloads
//! of the events that it observes. It is for the probes of the same exchange and goes into no
//! record.

pub mod command;
pub mod push;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::command::absolute;

/// The field of `agent.turn.end` with the ids of the commands that go on in the background.
pub const RUNNING: &str = "running";

/// One call that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Call {
    /// The command, if it ran one.
    pub command: Option<String>,
    /// Whether that command goes on after its result.
    pub in_background: bool,
    /// The files that it touched, by absolute paths.
    pub touched: Vec<Touch>,
    /// The names of files that its result says it has changed.
    pub said_changed: Vec<String>,
    /// What its harness calls the command that goes on in the background.
    pub started: Option<String>,
    /// The file, by its absolute path, that this command writes its output to.
    pub output: Option<String>,
    /// The commands in the background whose end its result, or its harness in its stead, reports.
    pub ended: Vec<String>,
    /// What it showed of an MCP server whose tool it called.
    pub server: Option<ServerCall>,
}

/// What a call of an MCP server's tool shows of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCall {
    /// The server, as the client names it.
    pub server: String,
    /// Whether the client had a connection to it.
    pub is_connected: bool,
}

/// One file that a call touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    /// Its absolute path.
    pub path: Arc<str>,
    /// In which way.
    pub by: TouchKind,
}

/// How an agent came to know a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TouchKind {
    /// A tool for reading gave its content.
    Read,
    /// A command printed it.
    Shown,
    /// The agent wrote it.
    Written,
}

impl Call {
    /// Reads what a loop of one's own says of a call in the payload of a `tool.call.*` event:
    /// `files`, a list of `path` and `by` (`read`, `shown` or `written`), `command`, and
    /// `in_background`. Relative paths are of `folder`.
    ///
    /// Errors: none. Of a payload that says nothing of that, or says it otherwise, nothing is
    /// known.
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
            Some(Touch { path: absolute(&file.path, folder?).into(), by: file.by })
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
