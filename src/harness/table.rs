//! The table of harnesses.

use crate::harness::{claude, kind::Kind};

/// All harnesses.
pub const KINDS: [&Kind; 1] = [&claude::KIND];

/// Further rows that are found and not listed: tests have one of each form.
#[cfg(not(test))]
const FOUND: [&Kind; 0] = [];
#[cfg(test)]
const FOUND: [&Kind; 2] = crate::harness::trial::KINDS;

impl Kind {
    /// The harness of this command name.
    pub fn of_word(word: &str) -> Option<&'static Self> {
        KINDS.into_iter().chain(FOUND).find(|kind| kind.word == word)
    }

    /// The harness of this name, as in a session's harness.
    pub fn of_name(name: &str) -> Option<&'static Self> {
        KINDS.into_iter().chain(FOUND).find(|kind| kind.caps.name == name)
    }

    /// The command names of the harnesses with hooks.
    pub fn hook_words() -> impl Iterator<Item = &'static str> {
        KINDS.into_iter().filter_map(Self::hooked).map(|hooked| hooked.kind.word)
    }
}

#[cfg(test)]
mod tests {
    use hook::harness::HARNESSES;

    use super::Kind;

    #[test]
    fn a_hook_forwards_for_every_harness() {
        assert_eq!(Kind::hook_words().collect::<Vec<_>>(), HARNESSES.map(|harness| harness.word));
    }
}
