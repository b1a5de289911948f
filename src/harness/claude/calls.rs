//! Claude Code's tool calls: the files that they change, the background commands that they start,
//! and the parts by which they are compared.

use std::sync::Arc;

use engine::{
    call::{
        Call, Edit, Touch, TouchKind, Written,
        command::{absolute, shown},
        push::pushes,
    },
    event::{cut_text, strip_text},
};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{servers, stdin::ToolCall};
use crate::harness::digest;

/// The text before the list of files that a command changed, in its result.
///
/// Source: measured with 2.1.330; 2.1.197 does not have it.
const CHANGED_BY_COMMAND: (&str, &str, &str) =
    ("[This command modified ", "previously read: ", ". Call Read");
/// Prefixes, in JSON, of the result of a call that failed or that a hook denied: such a call wrote
/// nothing.
///
/// Source: measured with 2.1.331, where the text of an edit was not found, and where a hook denied
/// it; 2.1.197 has only the hook's reason, which is ours. The last one is from earlier versions of
/// aside, in transcripts that are resumed.
const FAILED: [&str; 4] =
    ["\"<tool_use_error>", "\"PreToolUse:", "\"aside cancelled this call", "\"aside held this back"];
/// The text after a background command's id in its result; the id follows [`ID`].
///
/// Source: measured with 2.1.197 and 2.1.330: `Command running in background with ID: b1. Output is
/// being written to: ...`; one that was moved there after a timeout has `(ID: b1). Output is ...`.
const GOES_ON: &str = ". Output is being written to: ";
/// The end of the file name after [`GOES_ON`].
///
/// Source: measured with 2.1.197 and 2.1.332: `.../tasks/b1.output. You will be notified ...`.
const OUTPUT_ENDING: &str = ".output";
const ID: &str = "ID: ";
/// Tools that show a background command's output, and tools that end it, with the names of earlier
/// versions.
const SHOWING: [&str; 3] = ["TaskOutput", "BashOutput", "AgentOutput"];
const ENDING: [&str; 3] = ["TaskStop", "KillShell", "KillBash"];
/// Markers of a running task in the result of [`SHOWING`].
const STILL_RUNNING: [&str; 3] = ["<status>running", "\"status\":\"running\"", "<status>pending"];

/// Arguments that name files, the command, and background commands.
#[derive(Debug, Default, Deserialize)]
struct Arguments {
    command: Option<String>,
    file_path: Option<String>,
    notebook_path: Option<String>,
    #[serde(alias = "bash_id", alias = "shell_id")]
    task_id: Option<String>,
    #[serde(default)]
    run_in_background: bool,
}

/// Longest written text that is compared with the file, in bytes.
const WRITTEN_BYTES_MAX: usize = 64 * 1024;

/// Arguments that say what a call writes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WriteArguments {
    content: Option<String>,
    old_string: Option<String>,
    new_string: String,
    replace_all: bool,
    edits: Vec<WriteArguments>,
}

impl WriteArguments {
    fn edit(self) -> Option<Edit> {
        Some(Edit { old: self.old_string?, new: self.new_string, is_everywhere: self.replace_all })
    }
}

/// What a call writes into its file; `None` if it does not say that, as for a notebook.
fn written(tool_name: &str, input: &str) -> Option<Written> {
    if !writes(tool_name) || input.len() > WRITTEN_BYTES_MAX {
        return None;
    }
    let mut arguments: WriteArguments = serde_json::from_str(input).ok()?;
    if let Some(content) = arguments.content {
        return Some(Written::Content(content));
    }
    let edits = std::mem::take(&mut arguments.edits);
    let edits = if edits.is_empty() { vec![arguments] } else { edits };
    edits.into_iter().map(WriteArguments::edit).collect::<Option<_>>().map(Written::Edits)
}

/// Whether a tool writes the file in its arguments.
pub(super) fn writes(tool_name: &str) -> bool {
    ["Edit", "MultiEdit", "NotebookEdit", "Write"].contains(&tool_name)
}

/// File changes of the call; `folder` is the client's current folder.
pub(super) fn of(tool: &ToolCall<'_>, folder: &str) -> Call {
    let input = tool.tool_input.map(RawValue::get);
    let arguments = input.and_then(|input| serde_json::from_str(input).ok());
    let Arguments { command, file_path, notebook_path, task_id, run_in_background } =
        arguments.unwrap_or_default();
    let touch = |path: &str, by| {
        // Before the call nothing is written.
        let input = input.filter(|_| tool.tool_response.is_some());
        let written = input.and_then(|input| written(&tool.tool_name, input));
        Touch { path: Arc::from(absolute(path, folder)), by, written }
    };
    let by = match tool.tool_name.as_str() {
        "Read" | "NotebookRead" => Some(TouchKind::Read),
        name if writes(name) => Some(TouchKind::Written),
        _ => None,
    };
    let response = tool.tool_response.map(RawValue::get).unwrap_or_default();
    let by = by.filter(|_| !FAILED.iter().any(|begin| response.starts_with(begin)));
    let named = file_path.as_deref().or(notebook_path.as_deref()).zip(by).map(|(path, by)| touch(path, by));
    let printed = command.as_deref().filter(|_| !run_in_background).map(|command| shown(command, folder));
    let printed = printed.into_iter().flatten().map(|path| Touch {
        path: path.into(),
        by: TouchKind::Shown,
        written: None,
    });
    let of_command = if command.is_some() { response } else { "" };
    let started = started(of_command);
    let tool = tool.tool_name.as_str();
    let is_over = ENDING.contains(&tool)
        || SHOWING.contains(&tool) && !STILL_RUNNING.iter().any(|words| response.contains(words));
    Call {
        touched: named.into_iter().chain(printed).collect(),
        said_changed: changed_by_command(of_command),
        in_background: run_in_background || started.is_some(),
        output: started.as_ref().and_then(|_| output(of_command)),
        started,
        server: servers::of_call(tool, response),
        ended: task_id.filter(|_| is_over).into_iter().collect(),
        command,
    }
}

/// Branches pushed by the call, if it has ended.
pub(super) fn pushed(tool: &ToolCall<'_>, folder: &str) -> Option<Value> {
    let input = tool.tool_input?.get();
    // Most calls push nothing.
    if !input.contains("push") && !input.contains("pr ") {
        return None;
    }
    let Arguments { command, run_in_background, .. } = serde_json::from_str(input).ok()?;
    let response = tool.tool_response.map(RawValue::get).unwrap_or_default();
    let pushes = pushes(&command.filter(|_| !run_in_background && started(response).is_none())?, folder);
    (!pushes.is_empty()).then(|| serde_json::json!(pushes))
}

/// The id of the background command.
fn started(response: &str) -> Option<String> {
    let (before, _) = response.split_once(GOES_ON)?;
    let (_, id) = before.rsplit_once(ID)?;
    Some(id.trim_end_matches(')').to_owned()).filter(|id| !id.is_empty() && !id.contains(char::is_whitespace))
}

/// The file of its output, if the path needs no JSON escapes.
fn output(response: &str) -> Option<String> {
    let (_, behind) = response.split_once(GOES_ON)?;
    let path = behind.get(..behind.find(OUTPUT_ENDING)? + OUTPUT_ENDING.len())?;
    (path.starts_with('/') && !path.contains(['\\', '"', '\n'])).then(|| path.to_owned())
}

/// The changed files according to the result, as named there.
pub(super) fn changed_by_command(response: &str) -> Vec<String> {
    let (begin, list, end) = CHANGED_BY_COMMAND;
    let names = response.rsplit_once(begin).and_then(|(_, rest)| rest.split_once(list)).map(|(_, rest)| rest);
    let names = names.and_then(|names| names.split_once(end)).map_or("", |(names, _)| names);
    names.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Most characters of the subject.
const SUBJECT_CHARS_MAX: usize = 100;

/// `subject`, `args` and `result` of a call, if the client reports them.
pub(super) fn compared(input: Option<&RawValue>, result: Option<&str>) -> [Option<Value>; 3] {
    [
        input.and_then(subject).map(Value::from),
        input.map(|input| json!(digest::of_arguments(input))),
        result.map(|result| json!(digest::of_result(result))),
    ]
}

/// Arguments that can be the subject; the first one present is used.
#[derive(Deserialize)]
struct SubjectArguments {
    command: Option<String>,
    file_path: Option<String>,
    notebook_path: Option<String>,
    pattern: Option<String>,
    url: Option<String>,
    query: Option<String>,
    description: Option<String>,
}

/// The subject: the first line of the first argument that is present.
fn subject(input: &RawValue) -> Option<String> {
    let SubjectArguments { command, file_path, notebook_path, pattern, url, query, description } =
        serde_json::from_str(input.get()).ok()?;
    let first = command.or(file_path).or(notebook_path).or(pattern).or(url).or(query).or(description)?;
    let line = first.trim().lines().next().unwrap_or_default();
    let subject = cut_text(strip_text(line), SUBJECT_CHARS_MAX);
    (!subject.is_empty()).then(|| subject.into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with<T>(name: &str, input: &Value, response: &str, then: impl FnOnce(&ToolCall<'_>) -> T) -> T {
        let [input, response] =
            [input, &json!(response)].map(|json| RawValue::from_string(json.to_string()).expect("JSON"));
        then(&ToolCall {
            tool_name: name.to_owned(),
            tool_use_id: "t1".to_owned(),
            tool_input: Some(&input),
            tool_response: Some(&response),
        })
    }

    fn call(name: &str, input: &Value, response: &str) -> Call {
        with(name, input, response, |tool| of(tool, "/w"))
    }

    #[test]
    fn push_is_reported_after_its_command_ends() {
        let pushed =
            |input: &Value, response: &str| with("Bash", input, response, |tool| super::pushed(tool, "/w"));
        let command = json!({ "command": "git -C sub push origin fix" });
        let expected = json!([{ "folder": "/w/sub", "from": "fix", "branch": "fix" }]);
        assert_eq!(pushed(&command, "done"), Some(expected));
        let goes_on =
            "Command running in background with ID: b1x. Output is being written to: /t/b1x.output.";
        for (input, response) in [
            (&command, goes_on),
            (&json!({ "command": "git push", "run_in_background": true }), ""),
            (&json!({ "command": "grep push a" }), "git push"),
            (&json!({ "file_path": "/w/push.rs" }), ""),
        ] {
            assert_eq!(pushed(input, response), None, "{input} {response}");
        }
    }

    #[test]
    fn call_touches_files_named_in_its_arguments() {
        let touched = |call: &Call| {
            let shown = call.touched.iter().map(|touch| format!("{:?} {}", touch.by, touch.path));
            shown.collect::<Vec<_>>().join(", ")
        };
        for (name, input, expected) in [
            ("Read", json!({ "file_path": "/w/a.rs" }), "Read /w/a.rs"),
            ("Edit", json!({ "file_path": "b.rs", "old_string": "x" }), "Written /w/b.rs"),
            ("NotebookEdit", json!({ "notebook_path": "/w/n.ipynb" }), "Written /w/n.ipynb"),
            ("Bash", json!({ "command": "cd src && cat a.rs | head" }), "Shown /w/src/a.rs"),
            ("Bash", json!({ "command": "cat a", "run_in_background": true }), ""),
            ("Grep", json!({ "pattern": "x", "path": "/w" }), ""),
            ("Read", json!(7), ""),
        ] {
            assert_eq!(touched(&call(name, &input, "")), expected, "{name} {input}");
            let failed = touched(&call(name, &input, "<tool_use_error>String to replace not found"));
            assert_eq!(failed, if name == "Bash" { expected } else { "" }, "{name} {input}");
        }
    }

    #[test]
    fn arguments_say_what_a_call_wrote() {
        let edit =
            |old: &str, new: &str, is_everywhere| Edit { old: old.into(), new: new.into(), is_everywhere };
        for (tool, input, expected) in [
            ("Write", json!({ "content": "x" }), Some(Written::Content("x".to_owned()))),
            (
                "Edit",
                json!({ "old_string": "a", "new_string": "b" }),
                Some(Written::Edits(vec![edit("a", "b", false)])),
            ),
            (
                "MultiEdit",
                json!({ "edits": [{ "old_string": "a", "new_string": "b", "replace_all": true },
                                  { "old_string": "c", "new_string": "" }] }),
                Some(Written::Edits(vec![edit("a", "b", true), edit("c", "", false)])),
            ),
            ("NotebookEdit", json!({ "new_source": "x" }), None),
            ("Read", json!({ "content": "x" }), None),
            ("Write", json!({ "content": "x".repeat(WRITTEN_BYTES_MAX) }), None),
            ("Write", json!({ "content": 7 }), None),
        ] {
            assert_eq!(written(tool, &input.to_string()), expected, "{tool} {input}");
        }
    }

    #[test]
    fn changed_files_named_in_a_result_are_read() {
        let said = "own_sed\n[This command modified 2 files you've previously read: e.txt, src/f.txt. Call Read before editing.]";
        let call = call("Bash", &json!({ "command": "sed -i s/a/b/ e.txt" }), said);
        assert_eq!(call.said_changed, ["e.txt", "src/f.txt"]);
    }

    #[test]
    fn background_command_starts_and_ends_are_parsed() {
        let running =
            "Command running in background with ID: b1x. Output is being written to: /t/b1x.output.";
        let moved = "Command exceeded its 2s timeout and was moved to the background (ID: b2). Output is being written to: /t/b2. ID: no";
        let (command, task) = (json!({ "command": "make" }), json!({ "task_id": "b1x" }));
        for (tool, input, response, started, ended) in [
            ("Bash", &command, running, Some("b1x"), &[][..]),
            ("Bash", &command, moved, Some("b2"), &[]),
            ("Bash", &command, "done", None, &[]),
            ("Read", &json!({ "file_path": "/w/a" }), running, None, &[]),
            ("TaskOutput", &task, "<status>completed</status>", None, &["b1x"]),
            ("TaskOutput", &task, "<status>running</status>", None, &[]),
            ("BashOutput", &json!({ "bash_id": "b1x" }), "<status>failed</status>", None, &["b1x"]),
            ("TaskStop", &task, "stopped", None, &["b1x"]),
        ] {
            let call = call(tool, input, response);
            assert_eq!(
                (call.started.as_deref(), &call.ended[..]),
                (started, &ended.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>()[..]),
                "{tool} {response}"
            );
        }
    }
    #[test]
    fn output_file_is_parsed_only_if_absolute() {
        for (path, expected) in [
            ("/tmp/claude/-w/tasks/b1.output", Some("/tmp/claude/-w/tasks/b1.output")),
            ("/home/a b/tasks/b1.output", Some("/home/a b/tasks/b1.output")),
            ("tasks/b1.output", None),
            ("/tmp/\"x/b1.output", None),
            ("/tmp/b1.log", None),
        ] {
            let said = format!(
                "Command running in background with ID: b1. Output is being written to: {path}. You will be notified."
            );
            let found = call("Bash", &json!({ "command": "make" }), &said);
            assert_eq!((found.started.as_deref(), found.output.as_deref()), (Some("b1"), expected), "{path}");
        }
        assert_eq!(call("Bash", &json!({ "command": "make" }), "done").output, None);
    }

    #[test]
    fn call_subject_is_first_line_of_best_argument() {
        for (input, expected) in [
            (r#"{"command":" cargo test\n-p cart","description":"runs"}"#, Some("cargo test")),
            (r#"{"file_path":"/w/a.rs","limit":3}"#, Some("/w/a.rs")),
            (r#"{"pattern":"fn \u001b[31mmain"}"#, Some("fn main")),
            (r#"{"command":7}"#, None),
            (r#"{"command":"  "}"#, None),
            ("[]", None),
        ] {
            let input = RawValue::from_string(input.to_owned()).expect("JSON");
            assert_eq!(subject(&input).as_deref(), expected, "{input}");
        }
        let long = RawValue::from_string(format!(r#"{{"command":"{}"}}"#, "x".repeat(400))).expect("JSON");
        assert_eq!(subject(&long).map(|subject| subject.chars().count()), Some(SUBJECT_CHARS_MAX + 14));
    }
}
