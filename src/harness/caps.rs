//! What each harness can take: the table.

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

/// Claude Code.
///
/// Source: measured: from 10,000 characters on, the model gets a file name and a preview instead of the text; 500 are kept
/// in reserve.
pub const CLAUDE_CODE: Caps = Caps {
    name: "claude-code",
    chars_max: 9_500,
    format: Format::Xml,
    conversations: Conversations::OnePerProcess,
};

impl Caps {
    /// The limits as an exchange states them.
    pub const fn budget(&self) -> Budget {
        Budget { max_notifications: None, max_tokens: None, max_chars: Some(self.chars_max) }
    }
}
