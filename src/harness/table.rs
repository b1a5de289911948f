//! The table of harnesses.

use crate::harness::{claude, kind::Kind};

/// All harnesses.
pub const KINDS: [&Kind; 1] = [&claude::KIND];

impl Kind {
    /// The harness of this command name.
    pub fn of_word(word: &str) -> Option<&'static Self> {
        KINDS.into_iter().find(|kind| kind.word == word)
    }

    /// The harness of this name, as in a session's harness.
    pub fn of_name(name: &str) -> Option<&'static Self> {
        KINDS.into_iter().find(|kind| kind.caps.name == name)
    }

    /// The command names of all harnesses.
    pub fn words() -> impl Iterator<Item = &'static str> {
        KINDS.into_iter().map(|kind| kind.word)
    }

    /// The variables forwarded by a hook of this harness; none for an unknown one.
    pub fn forwarded(word: &str) -> &'static [(&'static str, &'static str)] {
        Self::of_word(word).map_or(&[], |kind| kind.variables.forwarded)
    }
}
