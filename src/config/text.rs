//! The text of a file, with its hash; and the layer in the binary: `config/aside.toml` and every
//! file of `subscribers/` and `templates/`, by its name in a layer.
//!
//! The table is written by hand, so that all shipped files are listed in one place; a test compares
//! it with the folders. Most subscribers declare their layout in their own file; the others name a
//! template.

use std::{
    borrow::Cow,
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use engine::hex::hex;
use sha2::{Digest, Sha256};

/// A file's text; clones share it, and its hash.
#[derive(Clone)]
pub struct Text(Arc<Shared>);

struct Shared {
    held: Held,
    sha256: OnceLock<Box<str>>,
}

enum Held {
    /// In the program, whose tests compile it.
    Program(&'static str),
    /// Read from a file.
    File(Box<str>),
}

impl Text {
    /// A text in the program.
    ///
    /// Shape: the tests of the program compile it, so templates and conditions in it are compiled at
    /// their first use.
    pub(super) fn of_program(text: &'static str) -> Self {
        Self::new(Held::Program(text))
    }

    fn new(held: Held) -> Self {
        Self(Arc::new(Shared { held, sha256: OnceLock::new() }))
    }

    /// Whether it is in the program.
    pub(crate) fn is_of_program(&self) -> bool {
        matches!(self.0.held, Held::Program(_))
    }

    /// Lower-case hex of its SHA-256, computed once.
    pub(crate) fn sha256(&self) -> &str {
        self.0.sha256.get_or_init(|| sha256_hex(self.as_bytes()).into())
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0.held {
            Held::Program(text) => text,
            Held::File(text) => text,
        }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::new(Held::File(text.into()))
    }
}

impl From<Cow<'_, str>> for Text {
    fn from(text: Cow<'_, str>) -> Self {
        Self::new(Held::File(text.into()))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::new(Held::File(text.into()))
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl Eq for Text {}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// Lower-case hex of the SHA-256 of `bytes`.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

macro_rules! files {
    (subscribers: $($name:literal)*; templates: $($template:literal)*;) => {
        /// Name and text of every shipped file.
        pub const FILES: &[(&str, &str)] = &[
            ("aside.toml", include_str!("../../config/aside.toml")),
            $((
                concat!("subscribers/", $name, ".toml"),
                include_str!(concat!("../../subscribers/", $name, ".toml")),
            ),)*
            $((
                concat!("templates/", $template, ".toon.j2"),
                include_str!(concat!("../../templates/", $template, ".toon.j2")),
            ),)*
        ];
    };
}

files! {
    subscribers:
    "alert"
    "answer"
    "background_task"
    "budget_exceeded"
    "budget_warning"
    "changed_file"
    "ci_check"
    "cli_event"
    "closed_port"
    "config_change"
    "custom_event"
    "disk_space"
    "file_change"
    "flaky_check"
    "git_change"
    "ide_diagnostics"
    "ide_file"
    "ide_selection"
    "log_line"
    "loop_detected"
    "mcp_server"
    "message"
    "other_session"
    "own_failure"
    "pr_review"
    "problem"
    "question_expired"
    "rate_limit"
    "reminder"
    "silence_ended"
    "stale_file"
    "subagent"
    "throttled"
    "timer"
    "tool_failure"
    "user_command"
    "watch"
    "welcome_back"
    ;
    templates:
    "background_task"
    "ide_diagnostics"
    "problem"
    ;
}

/// The first line of a subscriber's tests, which are at the end of its file.
const TESTS: &str = "[[tests]]";

/// Name and rules of every shipped file: its text without the tests, which do not affect the rules
/// and are two thirds of a subscriber.
pub fn rules() -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES.iter().map(|&(name, text)| match name.starts_with("subscribers/") {
        true => (name, text.split(TESTS).next().unwrap_or(text)),
        false => (name, text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        compile::compile,
        layers::{LayerKind, SourceFile, Sources},
    };

    #[test]
    fn a_text_is_its_content_wherever_it_is() {
        let (program, file) = (Text::of_program("abc"), Text::from("abc"));
        assert_eq!((&program, program.sha256()), (&file, file.sha256()));
        assert_eq!(file.sha256(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_ne!(program, Text::from("abd"));
        assert_eq!((program.is_of_program(), file.is_of_program()), (true, false));
    }

    #[test]
    fn only_files_are_checked_when_they_are_read() {
        const SUBSCRIBER: &str = "[subscriber]\nid = \"a\"\n[events]\ntypes = [\"a.b\"]\nwhere = \"x\"\n\
                                  [output]\none = \"{{ x }}\"\nsentence = \"{{ x }}\"\n";
        let errors = |subscriber: Text, template: Text| {
            let file = |name: &str, text| SourceFile {
                layer: LayerKind::Shipped,
                name: name.into(),
                path: name.into(),
                text,
            };
            let files = [file("subscribers/a.toml", subscriber), file("templates/a.toon.j2", template)];
            let compiled = compile(&Sources::new(files), &[]);
            (compiled.report.error_count(), compiled.rules.subscribers.len())
        };
        assert_eq!(errors(Text::of_program(SUBSCRIBER), Text::of_program("{{ x }}")), (0, 1));
        assert_eq!(errors(SUBSCRIBER.into(), "{{ x }}".into()), (4, 0));
    }
}
