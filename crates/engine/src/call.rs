//! The tool calls of an agent and their effects on files, as reported by its harness.
//!
//! A harness adapter derives them from the hook's report. A custom loop reports them in the
//! payloads of the events that it observes. Only the probes of the same exchange use them; they are
//! not recorded.
//!
//! The arguments of a call that wrote a file give the file's content after it ([`Written`]).

pub mod command;
pub mod push;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::command::absolute;

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
    /// What came of the call.
    pub outcome: ServerOutcome,
}

/// What came of a call to an MCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerOutcome {
    /// The server answered.
    Answered,
    /// The client has a connection to it, and no answer came within its time.
    TimedOut,
    /// The client has no connection to it.
    NotConnected,
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
        struct Report<'a> {
            #[serde(borrow)]
            files: Vec<ReportedFile<'a>>,
            command: Option<String>,
            in_background: bool,
        }
        #[derive(Deserialize)]
        struct ReportedFile<'a> {
            #[serde(borrow)]
            path: std::borrow::Cow<'a, str>,
            by: TouchKind,
        }
        let has_ended = ["tool.call.success", "tool.call.failure", "tool.call.timeout"].contains(&event_type);
        let Report { files, command, in_background } =
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

/// What a call wrote into one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// The whole content.
    Content(String),
    /// Replacements, one after the other.
    Edits(Vec<Edit>),
}

/// A text that replaces another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The replaced text; empty for a new file.
    pub old: String,
    /// The text in its place.
    pub new: String,
    /// Whether every place is replaced.
    pub is_everywhere: bool,
}

impl Written {
    /// The contents that the file may have after the call, the likeliest first; at most two, none if
    /// unknown. A client that removes whole lines removes their ends, or leaves them, in all its edits.
    ///
    /// Shape: with `\n` at the ends of lines. `before` is the content before the call.
    pub fn contents_after(&self, before: Option<&str>) -> Vec<String> {
        match self {
            Self::Content(content) => vec![content.replace("\r\n", "\n")],
            Self::Edits(edits) => {
                let Some(before) = before.map(|text| text.replace("\r\n", "\n")) else { return Vec::new() };
                let with = |ends: Ends| {
                    edits.iter().try_fold(before.clone(), |text, edit| edit.applied_to(&text, ends))
                };
                let mut contents: Vec<String> =
                    [Ends::Removed, Ends::Left].into_iter().filter_map(with).collect();
                contents.dedup();
                contents
            }
        }
    }
}

/// The ends of lines that an edit removes whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    Removed,
    Left,
}

impl Edit {
    /// The content after the edit; `None` if it does not fit `before`.
    fn applied_to(&self, before: &str, ends: Ends) -> Option<String> {
        let Self { old, new, is_everywhere } = self;
        if old.is_empty() {
            return before.is_empty().then(|| new.clone());
        }
        let count = before.matches(old.as_str()).take(2).count();
        if count == 0 || (count > 1 && !is_everywhere) {
            return None;
        }
        let line = format!("{old}\n");
        let removes_lines = ends == Ends::Removed && new.is_empty() && !old.ends_with('\n');
        let replaced = if removes_lines && before.contains(&line) { &line } else { old };
        Some(before.replace(replaced.as_str(), new))
    }
}

/// Whether two contents differ in no more than ends of lines, which clients choose themselves, and
/// the white space before them.
pub fn is_same_content(one: &str, other: &str) -> bool {
    one.lines().map(str::trim_end).eq(other.lines().map(str::trim_end))
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

    fn edit(old: &str, new: &str, is_everywhere: bool) -> Edit {
        Edit { old: old.to_owned(), new: new.to_owned(), is_everywhere }
    }

    #[test]
    fn edits_give_the_content_or_nothing() {
        for (before, edits, expected) in [
            (Some("a\nb\n"), vec![edit("a", "A", false)], &["A\nb\n"][..]),
            (Some("a\r\nb\r\n"), vec![edit("a\nb", "c", false)], &["c\n"]),
            (Some("a a\n"), vec![edit("a", "b", true)], &["b b\n"]),
            (Some("a a\n"), vec![edit("a", "b", false)], &[]),
            (Some("a\n"), vec![edit("x", "b", false)], &[]),
            (Some("a\n"), vec![edit("a", "b", false), edit("b", "c", false)], &["c\n"]),
            (Some("a\nb\n"), vec![edit("a", "", false)], &["b\n", "\nb\n"]),
            (Some("a = 1;\n"), vec![edit(" = 1", "", false)], &["a;\n"]),
            (Some(""), vec![edit("", "new\n", false)], &["new\n"]),
            (Some("a"), vec![edit("", "new\n", false)], &[]),
            (None, vec![edit("a", "b", false)], &[]),
        ] {
            assert_eq!(
                Written::Edits(edits.clone()).contents_after(before),
                expected,
                "{before:?} {edits:?}"
            );
        }
        assert_eq!(Written::Content("a\r\n".to_owned()).contents_after(None), ["a\n"]);
    }

    #[test]
    fn many_removed_lines_make_two_contents() {
        let before: String = (0..1_000).map(|line| format!("line {line};\n")).collect();
        let edits = (0..1_000).map(|line| edit(&format!("line {line};"), "", false)).collect();
        assert_eq!(Written::Edits(edits).contents_after(Some(&before)), [String::new(), "\n".repeat(1_000)]);
    }

    #[test]
    fn ends_of_lines_are_no_difference() {
        for (one, other, expected) in [
            ("a\nb\n", "a\r\nb", true),
            ("a  \n", "a\n", true),
            ("a\n", " a\n", false),
            ("a\n", "a\n\nb", false),
        ] {
            assert_eq!(is_same_content(one, other), expected, "{one:?} {other:?}");
        }
    }
}
