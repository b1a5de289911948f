//! Positions in the journal.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The position of a record in the journal; the first record has 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Seq(pub u64);

impl Seq {
    /// The position before the first record.
    pub const ZERO: Self = Self(0);

    /// The next position; saturates, because clients send positions too.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The previous position; the first one and [`Seq::ZERO`] return [`Seq::ZERO`].
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_position_is_its_own_next() {
        assert_eq!(Seq(6).next(), Seq(7));
        assert_eq!(Seq(u64::MAX).next(), Seq(u64::MAX));
    }
}
