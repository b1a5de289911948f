//! What a harness can take.

use crate::exchange::{Budget, Conversations, Format};

/// What one harness can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Its name, which is also the source of the events it reports.
    pub name: &'static str,
    /// Most characters of one injection.
    pub chars_max: u32,
    /// How an injection is written for it.
    pub format: Format,
    /// How many conversations one of its processes can have.
    pub conversations: Conversations,
}

impl Caps {
    /// The limits as an exchange states them.
    pub const fn budget(&self) -> Budget {
        Budget { max_notifications: None, max_tokens: None, max_chars: Some(self.chars_max) }
    }
}
