//! What can be chosen as the answer of a question.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Fewest and most choices: what is not a choice is a notice, and a desktop shows no more buttons
/// than that.
pub const CHOICES: std::ops::RangeInclusive<usize> = 2..=4;
/// Longest choice, in characters.
pub const CHOICE_CHARS_MAX: usize = 40;
/// How much of a question's id is shown, which is enough to name it.
pub(super) const SHORT_CHARS: usize = 7;

/// What a question adds to its notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choices {
    /// The choices, in the order in which they are shown.
    pub words: Vec<Arc<str>>,
    /// When it ends unanswered.
    pub expires_at: Timestamp,
}

/// The beginning of a question's id, as people type it.
pub fn short(id: &str) -> &str {
    id.get(..SHORT_CHARS).unwrap_or(id)
}
