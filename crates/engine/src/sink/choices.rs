//! The choices of a question.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use journal::time::Timestamp;

/// Fewest and most choices: with fewer it would be a notice, and a desktop shows at most that many
/// buttons.
pub const CHOICES: std::ops::RangeInclusive<usize> = 2..=4;
/// Longest choice, in characters.
pub const CHOICE_CHARS_MAX: usize = 40;
/// Shown characters of a question's id, which are enough to identify it.
pub(super) const SHORT_CHARS: usize = 7;

/// The part of a notice that makes it a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choices {
    /// The choices, in the order in which they are shown.
    pub words: Vec<Arc<str>>,
    /// When the question expires.
    pub expires_at: Timestamp,
}

/// The shown beginning of a question's id.
pub fn short(id: &str) -> &str {
    id.get(..SHORT_CHARS).unwrap_or(id)
}
