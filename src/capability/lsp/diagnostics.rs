//! Converts servers' diagnostics to problems: only errors, with lines and columns from 1.

use serde_json::Value;

use crate::capability::problem::{Level, Problem};

/// Most errors of one file.
const OF_FILE_MAX: usize = 200;
/// Longest message, in characters; some 25 tokens per row should be enough.
const MESSAGE_CHARS_MAX: usize = 200;
/// The protocol's number for an error.
const ERROR: u64 = 1;

/// The errors among the diagnostics of a file.
///
/// Shape: in the server's order, at most 200. A diagnostic without severity is an error, because
/// the protocol leaves that to the client.
pub fn errors(path: &str, diagnostics: &Value) -> Vec<Problem> {
    let all = diagnostics.as_array().into_iter().flatten();
    let is_error = |one: &&Value| one.get("severity").and_then(Value::as_u64).unwrap_or(ERROR) == ERROR;
    all.filter(is_error).take(OF_FILE_MAX).map(|one| problem(path, one)).collect()
}

fn problem(path: &str, diagnostic: &Value) -> Problem {
    let start = |field: &str| {
        let number = diagnostic.pointer("/range/start").and_then(|start| start.get(field))?.as_u64()?;
        u32::try_from(number).ok()?.checked_add(1)
    };
    let code = diagnostic.get("code").map(|code| code.get("value").unwrap_or(code));
    let code = code.and_then(|code| match code.as_str() {
        Some(text) => Some(text.to_owned()),
        None => code.as_i64().map(|number| number.to_string()),
    });
    let message = diagnostic.get("message").map(|message| message.get("value").unwrap_or(message));
    let message = message.and_then(Value::as_str).unwrap_or_default();
    Problem {
        file: Some(path.to_owned()),
        line: start("line"),
        column: start("character"),
        severity: Level::Error,
        code: code.map(|code| named(diagnostic, code)),
        message: message.chars().take(MESSAGE_CHARS_MAX).collect(),
    }
}

/// A code in its usual form: the compiler of TypeScript prints `TS2322` where its server sends
/// 2322.
fn named(diagnostic: &Value, code: String) -> String {
    let source = diagnostic.get("source").and_then(Value::as_str).unwrap_or_default();
    let is_number = code.bytes().all(|byte| byte.is_ascii_digit());
    if matches!(source, "typescript" | "ts") && is_number { format!("TS{code}") } else { code }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_are_taken_with_lines_from_one() {
        let range = |line: u32| json!({ "start": { "line": line, "character": 8 }, "end": { "line": line, "character": 9 } });
        let all = json!([
            { "range": range(41), "severity": 1, "code": "E0425", "source": "rustc", "message": "cannot find `x`" },
            { "range": range(1), "severity": 2, "message": "unused" },
            { "range": range(0), "severity": 1, "code": 2322, "source": "typescript", "message": "no" },
            { "range": range(0), "code": { "value": "E0308", "target": "https://x" }, "message": { "kind": "markdown", "value": "m" } },
            { "severity": 1, "message": 5 },
            "nonsense",
        ]);
        let found: Vec<_> = errors("/w/a.rs", &all)
            .into_iter()
            .map(|one| (one.line, one.column, one.code.unwrap_or_default(), one.message))
            .collect();
        let row = |line: Option<u32>, code: &str, message: &str| {
            (line, line.map(|_| 9), code.to_owned(), message.to_owned())
        };
        let expected = [
            row(Some(42), "E0425", "cannot find `x`"),
            row(Some(1), "TS2322", "no"),
            row(Some(1), "E0308", "m"),
            row(None, "", ""),
            row(None, "", ""),
        ];
        assert_eq!(found, expected);
        assert_eq!(errors("/w/a.rs", &json!("nonsense")), []);
        let many = Value::Array(vec![json!({ "message": "x".repeat(9_000) }); 1_000]);
        let many = errors("/w/a.rs", &many);
        assert_eq!(
            (many.len(), many.first().map(|one| one.message.len())),
            (OF_FILE_MAX, Some(MESSAGE_CHARS_MAX))
        );
    }
}
