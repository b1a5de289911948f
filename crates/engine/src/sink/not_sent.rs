//! Counts of notices that were not sent before a notice.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Counts of a speaker's notices that were suppressed before one that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NotSent {
    /// Repeats of a notice that was sent.
    pub repeats: u64,
    /// Notices over the rate limit.
    pub rate_limited: u64,
}

impl NotSent {
    /// Whether both counts are zero.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |count: u64, what: &str| (count > 0).then(|| format!("{count} {what}"));
        let repeats = part(self.repeats, if self.repeats == 1 { "repeat" } else { "repeats" });
        let parts = repeats.into_iter().chain(part(self.rate_limited, "over the rate limit"));
        write!(f, "not sent before: {}", parts.collect::<Vec<_>>().join(", "))
    }
}
