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
}

#[cfg(test)]
mod tests {
    use hook::harness::HARNESSES;

    use super::Kind;

    #[test]
    fn a_hook_forwards_for_every_harness() {
        assert_eq!(Kind::words().collect::<Vec<_>>(), HARNESSES.map(|harness| harness.word));
    }
}
