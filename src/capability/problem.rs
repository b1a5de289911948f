//! Problems: findings of a compiler, a linter, a test run or a language server in files.
//!
//! [`Problems`] compares a tool's current problems with its known ones, and returns the
//! differences. [`Change::reports`] writes them as one event per problem, so that a problem is
//! delivered once and not again with the next one of its file. This module does not know where the
//! problems come from. docs/design/problems.md has the reasons.

pub mod collector;
pub mod cycle;
pub mod format;
pub mod lines;
pub mod matcher;

mod known;
mod report;
mod trace;

use std::borrow::Cow;

use engine::event::{cut_text, strip_text};
use strum::IntoStaticStr;

pub use self::{
    known::{Change, FOUND_MAX, KNOWN_MAX, Listed, Problems},
    report::{CLEARED, FIXED, FOUND, Origin, Report},
};

/// Longest file name, in characters.
const FILE_CHARS_MAX: usize = 400;
/// Longest code, in characters.
const CODE_CHARS_MAX: usize = 100;
/// Longest message, in characters.
const MESSAGE_CHARS_MAX: usize = 500;

engine::words::impl_as_str!(Level);

/// The level of a problem, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Level {
    /// The code does not compile, or a test fails.
    Error,
    /// The code works and should be checked.
    Warning,
    /// A hint.
    Info,
}

impl Level {
    /// Parses a tool's name of a level; `None` for an unknown name.
    pub fn of_word(word: &str) -> Option<Self> {
        match word.trim().trim_end_matches(':').to_ascii_lowercase().as_str() {
            "error" | "fatal error" | "fatal" | "failure" | "failed" | "e" | "f" | "2" => Some(Self::Error),
            "warning" | "warn" | "w" | "1" => Some(Self::Warning),
            "info" | "information" | "note" | "notice" | "hint" | "help" | "style" | "convention"
            | "refactor" | "suggestion" | "message" | "c" | "r" | "i" | "n" => Some(Self::Info),
            _ => None,
        }
    }
}

/// One finding of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, as named by the tool.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column, from 1, in the tool's unit.
    pub column: Option<u32>,
    /// The level.
    pub severity: Level,
    /// The tool's code for this kind of problem, such as `E0425`.
    pub code: Option<String>,
    /// The message.
    pub message: String,
}

impl Problem {
    /// The same with texts of bounded length, each on one line and without terminal escapes.
    fn bounded(self) -> Self {
        let named = |text: Option<String>, chars_max| {
            text.map(|text| one_line(&text, chars_max)).filter(|text| !text.is_empty())
        };
        Self {
            file: named(self.file, FILE_CHARS_MAX),
            line: self.line.filter(|line| *line > 0),
            column: self.column.filter(|column| *column > 0),
            severity: self.severity,
            code: named(self.code, CODE_CHARS_MAX),
            message: one_line(&self.message, MESSAGE_CHARS_MAX),
        }
    }
}

fn one_line(text: &str, chars_max: usize) -> String {
    let text = strip_text(text);
    let words = text.split(['\n', '\r', '\t']).map(str::trim).filter(|part| !part.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    cut_text(Cow::Owned(line), chars_max).into_owned()
}
