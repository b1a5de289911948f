//! The comparable parts of a tool call for its event: digests of its arguments and its result, and
//! its subject.

use engine::event::{cut_text, strip_text};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::harness::digest;

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
struct Arguments {
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
    let Arguments { command, file_path, notebook_path, pattern, url, query, description } =
        serde_json::from_str(input.get()).ok()?;
    let first = command.or(file_path).or(notebook_path).or(pattern).or(url).or(query).or(description)?;
    let line = first.trim().lines().next().unwrap_or_default();
    let subject = cut_text(strip_text(line), SUBJECT_CHARS_MAX);
    (!subject.is_empty()).then(|| subject.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

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
