//! The capabilities of Claude Code.

use engine::exchange::{Conversations, Format};

use crate::harness::caps::Caps;

/// Capabilities of Claude Code.
///
/// Source: measured: from 10,000 characters on, the model gets a file name and a preview instead of
/// the text; 500 are reserved.
pub(super) const CAPS: Caps = Caps {
    name: "claude-code",
    chars_max: 9_500,
    format: Format::Xml,
    conversations: Conversations::OnePerProcess,
};
