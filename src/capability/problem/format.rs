//! Machine-readable output formats of tools: whole documents, and lines of JSON.

mod cargo;
mod eslint;
mod go_test;
mod junit;
mod sarif;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod variants;

use strum::{IntoStaticStr, VariantArray};

pub use self::{cargo::Cargo, go_test::GoTest};
use super::{
    Problem,
    text::{LINE_BYTES_MAX, PROBLEMS_MAX, text_of},
};
use engine::request::shortened;

/// Largest document, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

engine::words::impl_as_str!(Format);

/// An output format. The word of a format that many tools write is also the name of the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Format {
    /// Lines of `cargo --message-format=json` and of `rustc --error-format=json`.
    CargoJson,
    /// Lines of `go test -json`.
    GoTestJson,
    /// `eslint -f json`.
    EslintJson,
    /// SARIF 2.1.0.
    Sarif,
    /// JUnit XML, which most test runners can write.
    Junit,
}

/// Why a document cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// It is not JSON or XML of this format, or it has a document type, with which entities could
    /// expand it.
    #[error("{0}")]
    Form(String),
    /// It is too large.
    #[error("larger than {DOCUMENT_BYTES_MAX} bytes")]
    Large,
}

impl Format {
    /// The tool of the problems; for a tool's JSON the same as for its text output.
    pub fn tool(self) -> &'static str {
        match self {
            Self::CargoJson => "cargo",
            Self::GoTestJson => "go",
            Self::EslintJson => "eslint",
            Self::Sarif | Self::Junit => self.as_str(),
        }
    }

    /// The format of a command's standard output, detected from its words; `None` for text.
    pub fn of_command(words: &[String]) -> Option<Self> {
        let has = |word: &str| words.iter().any(|other| other == word);
        let follows = |option: &str, value: &str| {
            words.windows(2).any(|pair| matches!(pair, [a, b] if a == option && b == value))
                || words.iter().any(|word| word.strip_prefix(option) == Some(&format!("={value}")))
        };
        let starts = |prefix: &str| words.iter().any(|word| word.starts_with(prefix));
        let is_tool = |name: &str| words.iter().any(|word| word.rsplit('/').next() == Some(name));
        let is_spaced = words.windows(2).any(|pair| {
            matches!(pair, [option, value] if option == "--message-format" && value.starts_with("json"))
        });
        if is_tool("cargo") && (starts("--message-format=json") || is_spaced) {
            return Some(Self::CargoJson);
        }
        if is_tool("go") && has("test") && has("-json") {
            return Some(Self::GoTestJson);
        }
        let asks = |value: &str| {
            ["-f", "--format", "--output-format", "-fmt"].iter().any(|option| follows(option, value))
        };
        if is_tool("eslint") && asks("json") {
            return Some(Self::EslintJson);
        }
        asks("sarif").then_some(Self::Sarif)
    }

    /// Whether each line is one message.
    pub const fn is_lines(self) -> bool {
        matches!(self, Self::CargoJson | Self::GoTestJson)
    }

    /// Like [`Format::read`], for the bytes of a document.
    ///
    /// Errors: also if it is larger than [`DOCUMENT_BYTES_MAX`].
    pub fn read_document(self, document: Vec<u8>) -> Result<Vec<Problem>, FormatError> {
        if document.len() > DOCUMENT_BYTES_MAX {
            return Err(FormatError::Large);
        }
        self.read(&text_of(document))
    }

    /// All problems of a document, at most `PROBLEMS_MAX`.
    ///
    /// Shape: in linear time, and in about the memory of `text`. Errors: the first error, with its
    /// place. Invalid and very long lines are skipped.
    pub fn read(self, text: &str) -> Result<Vec<Problem>, FormatError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut found = Vec::new();
        let mut take = |problem| {
            if found.len() < PROBLEMS_MAX {
                found.push(problem);
            }
        };
        let wrong = |error| FormatError::Form(shortened(error));
        let lines = text.lines().filter(|line| line.len() <= LINE_BYTES_MAX);
        match self {
            Self::CargoJson => {
                let mut cargo = Cargo::default();
                lines.filter_map(|line| cargo.line(line)).for_each(&mut take);
                cargo.finish().into_iter().for_each(take);
            }
            Self::GoTestJson => {
                let mut tests = GoTest::default();
                lines.filter_map(|line| tests.line(line)).for_each(take);
            }
            Self::EslintJson => eslint::read(text, take).map_err(wrong)?,
            Self::Sarif => sarif::read(text, take).map_err(wrong)?,
            Self::Junit => found = junit::read(text).map_err(wrong)?,
        }
        Ok(found)
    }
}
