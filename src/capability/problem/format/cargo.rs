//! Lines of `cargo --message-format=json`. Source:
//! <https://doc.rust-lang.org/cargo/reference/external-tools.html#json-messages>, and rustc's
//! documentation of its JSON.

use serde::Deserialize;

use crate::capability::problem::{Level, Problem, trace};

/// Beginnings of messages that only count others.
const SUMMARIES: [&str; 3] = ["aborting due to ", "could not compile ", "For more information about "];

#[derive(Deserialize)]
struct Line {
    message: Message,
}

/// The line at the end of a build.
#[derive(Deserialize)]
struct Finished {
    reason: String,
    success: bool,
}

/// A message of rustc, which writes it without cargo's envelope.
#[derive(Deserialize)]
struct Message {
    message: String,
    level: String,
    code: Option<Code>,
    #[serde(default)]
    spans: Vec<Span>,
    #[serde(default)]
    children: Vec<Child>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct Child {
    message: String,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
    line_start: u32,
    column_start: u32,
    is_primary: bool,
    expansion: Option<Box<Expansion>>,
}

/// The macro that the code of a span is from.
#[derive(Deserialize)]
struct Expansion {
    span: Span,
}

/// The state between the lines.
#[derive(Debug, Clone, Default)]
pub struct Cargo {
    has_error: bool,
    has_failed: bool,
}

impl Cargo {
    /// The problem in a line.
    pub fn line(&mut self, line: &str) -> Option<Problem> {
        if !line.starts_with('{') {
            return None;
        }
        if let Ok(end) = serde_json::from_str::<Finished>(line) {
            self.has_failed |= end.reason == "build-finished" && !end.success;
            return None;
        }
        let found = problem(line)?;
        self.has_error |= found.severity == Level::Error;
        Some(found)
    }

    /// The problem of a build that failed without an error in a message: a build script, or cargo
    /// itself, which write text.
    pub fn finish(&mut self) -> Option<Problem> {
        let is_silent = std::mem::take(&mut self.has_failed) && !std::mem::take(&mut self.has_error);
        is_silent.then(|| Problem {
            file: None,
            line: None,
            column: None,
            severity: Level::Error,
            code: None,
            message: "the build failed, and no message of the compiler says why".to_owned(),
        })
    }
}

/// The problem in a message. One that only counts others is skipped.
fn problem(line: &str) -> Option<Problem> {
    let Message { message, level, code, spans, children } = match serde_json::from_str::<Line>(line) {
        Ok(line) => line.message,
        Err(_) => serde_json::from_str::<Message>(line).ok()?,
    };
    let severity = Level::of_word(&level).unwrap_or(Level::Error);
    let code = code.map(|code| code.code);
    let is_primary = |span: &Span| span.is_primary;
    let at = spans.iter().position(is_primary).unwrap_or(0);
    let Some(span) = spans.into_iter().nth(at) else {
        let is_count = SUMMARIES.iter().any(|begin| message.starts_with(begin))
            || (message.ends_with(" emitted") && message.starts_with(|c: char| c.is_ascii_digit()));
        // Notes and helps of their own, and `failure-note`, explain other messages.
        let is_wrong = level.starts_with("error") || level == "warning";
        let message = with_reason(message, &children);
        let problem = Problem::at(None, severity, code, message);
        return Some(problem).filter(|_| is_wrong && !is_count);
    };
    let span = macro_use_site(span);
    let (line, column) = (Some(span.line_start), Some(span.column_start));
    Some(Problem { file: Some(span.file_name), line, column, severity, code, message })
}

/// The place where a macro of another crate is used.
fn macro_use_site(mut span: Span) -> Span {
    while trace::is_foreign(&span.file_name) {
        match span.expansion {
            Some(expansion) => span = expansion.span,
            None => break,
        }
    }
    span
}

/// A message, and what its notes say is wrong: for the linker its output, whose command is left
/// out.
fn with_reason(message: String, children: &[Child]) -> String {
    let mut lines = children.iter().flat_map(|child| child.message.lines()).map(str::trim);
    let is_reason = |line: &&str| {
        let text = [
            "cannot find ",
            "undefined ",
            "duplicate ",
            "multiple definition",
            "error: ",
            "not found",
            "unable to",
        ];
        !line.starts_with('"')
            && !line.contains("ld returned ")
            && text.iter().any(|part| line.contains(part))
    };
    match lines.find(is_reason) {
        Some(reason) => format!("{message}: {reason}"),
        None => message,
    }
}
