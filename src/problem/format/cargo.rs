//! Lines of `cargo --message-format=json`. Source:
//! <https://doc.rust-lang.org/cargo/reference/external-tools.html#json-messages>.

use serde::Deserialize;

use crate::problem::{Level, Problem};

#[derive(Deserialize)]
struct Line {
    message: Message,
}

/// A message of rustc, which writes it without cargo's envelope.
#[derive(Deserialize)]
struct Message {
    message: String,
    level: String,
    code: Option<Code>,
    spans: Vec<Span>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
    line_start: u32,
    column_start: u32,
    is_primary: bool,
}

/// The problem in a line. A message without a location, such as the number of errors, is skipped.
pub fn line(line: &str) -> Option<Problem> {
    if !line.starts_with('{') {
        return None;
    }
    let message = match serde_json::from_str::<Line>(line) {
        Ok(line) => line.message,
        Err(_) => serde_json::from_str::<Message>(line).ok()?,
    };
    let span = message.spans.into_iter().find(|span| span.is_primary)?;
    Some(Problem {
        file: Some(span.file_name),
        line: Some(span.line_start),
        column: Some(span.column_start),
        severity: Level::of_word(&message.level).unwrap_or(Level::Error),
        code: message.code.map(|code| code.code),
        message: message.message,
    })
}
