//! What Claude Code's tool calls do to files, and what the client itself says of files that changed.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::stdin::ToolCall;
use crate::call::{
    Call, Touch, TouchKind,
    command::{absolute, shown},
};

/// What the result of a command begins its list of files with that the command changed.
///
/// Source: measured with 2.1.330; 2.1.197 does not say it.
const CHANGED_BY_COMMAND: (&str, &str, &str) =
    ("[This command modified ", "previously read: ", ". Call Read");
/// The type of what a transcript holds of a file that changed.
///
/// Source: measured with 2.1.330 and 2.1.197.
const EDITED_TEXT_FILE: &str = "edited_text_file";

/// The arguments that name files, and the command.
#[derive(Debug, Default, Deserialize)]
struct Arguments {
    command: Option<String>,
    file_path: Option<String>,
    notebook_path: Option<String>,
    #[serde(default)]
    run_in_background: bool,
}

/// What the call did to files; `folder` is the one that the client is in.
pub(super) fn of(tool: &ToolCall, folder: &str) -> Call {
    let input = tool.tool_input.as_deref().map(RawValue::get);
    let arguments = input.and_then(|input| serde_json::from_str(input).ok());
    let Arguments { command, file_path, notebook_path, run_in_background } = arguments.unwrap_or_default();
    let touch = |path: &str, by| Touch { path: Arc::from(absolute(path, folder)), by };
    let by = match tool.tool_name.as_str() {
        "Read" | "NotebookRead" => Some(TouchKind::Read),
        "Edit" | "MultiEdit" | "NotebookEdit" | "Write" => Some(TouchKind::Written),
        _ => None,
    };
    let named = file_path.as_deref().or(notebook_path.as_deref()).zip(by).map(|(path, by)| touch(path, by));
    let printed = command.as_deref().filter(|_| !run_in_background).map(|command| shown(command, folder));
    let printed =
        printed.into_iter().flatten().map(|path| Touch { path: Arc::from(path), by: TouchKind::Shown });
    let response = tool.tool_response.as_deref().map(RawValue::get).filter(|_| command.is_some());
    Call {
        touched: named.into_iter().chain(printed).collect(),
        said_changed: response.map(changed_by_command).unwrap_or_default(),
        in_background: run_in_background,
        command,
    }
}

/// The files that the result says the command changed, as it names them.
fn changed_by_command(response: &str) -> Vec<String> {
    let (begin, list, end) = CHANGED_BY_COMMAND;
    let names = response.rsplit_once(begin).and_then(|(_, rest)| rest.split_once(list)).map(|(_, rest)| rest);
    let names = names.and_then(|names| names.split_once(end)).map_or("", |(names, _)| names);
    names.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The files that the client announced as changed, as a part of a transcript says.
pub(super) fn said_changed(transcript: &[u8]) -> Vec<String> {
    #[derive(Deserialize)]
    struct Line {
        attachment: Attachment,
    }
    #[derive(Deserialize)]
    struct Attachment {
        r#type: String,
        filename: String,
    }
    let lines = transcript.split(|byte| *byte == b'\n');
    let announced = lines.filter(|line| memchr::memmem::find(line, EDITED_TEXT_FILE.as_bytes()).is_some());
    announced
        .filter_map(|line| serde_json::from_slice::<Line>(line).ok())
        .filter(|line| line.attachment.r#type == EDITED_TEXT_FILE)
        .map(|line| line.attachment.filename)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str, input: &serde_json::Value, response: &str) -> Call {
        let raw = |text: String| Some(RawValue::from_string(text).expect("JSON"));
        let tool = ToolCall {
            tool_name: name.to_owned(),
            tool_use_id: "t1".to_owned(),
            tool_input: raw(input.to_string()),
            tool_response: raw(json!(response).to_string()),
        };
        of(&tool, "/w")
    }

    #[test]
    fn a_call_touches_the_files_that_its_arguments_name() {
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
        }
    }

    #[test]
    fn what_a_result_and_a_transcript_say_of_changed_files_is_read() {
        let said = "own_sed\n[This command modified 2 files you've previously read: e.txt, src/f.txt. Call Read before editing.]";
        let call = call("Bash", &json!({ "command": "sed -i s/a/b/ e.txt" }), said);
        assert_eq!(call.said_changed, ["e.txt", "src/f.txt"]);
        let transcript = concat!(
            r#"{"type":"user","message":"edited_text_file"}"#,
            "\n",
            r#"{"type":"attachment","attachment":{"type":"edited_text_file","filename":"/w/b.txt","snippet":"x"}}"#,
            "\n",
            r#"{"type":"attachment","attachment":{"type":"date","filename":"edited_text_file"}}"#,
            "\ncut {",
        );
        assert_eq!(said_changed(transcript.as_bytes()), ["/w/b.txt"]);
    }
}
