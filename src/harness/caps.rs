//! Capabilities of a harness.

use engine::exchange::{Budget, Conversations, Format};

/// Capabilities of one harness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Its name, which is also the source of the events it reports.
    pub name: &'static str,
    /// Most characters of one injection.
    pub chars_max: u32,
    /// The format of its injections.
    pub format: Format,
    /// How many concurrent conversations one of its processes can have.
    pub conversations: Conversations,
}

impl Caps {
    /// The limits in the form of an exchange's budget.
    pub const fn budget(&self) -> Budget {
        Budget { max_notifications: None, max_tokens: None, max_chars: Some(self.chars_max) }
    }
}
