//! What a notification is rendered from, the bounds of its text, and why a source is no template.

use std::ops::Range;

use crate::{
    notification::{SubscriberId, Tokens},
    pipeline::row::Row,
    time::Timestamp,
};

/// Most rows that one notification shows, so that a table stays near its header; the rest is
/// counted.
pub const ROWS_MAX: usize = 15;
/// Largest output of a template, in bytes, before it is measured in tokens.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// What one notification is rendered from.
#[derive(Debug, Clone, Copy)]
pub struct RenderInput<'a> {
    /// Whose notification.
    pub subscriber: &'a SubscriberId,
    /// Its name for people.
    pub subscriber_name: &'a str,
    /// What happened, oldest first.
    pub rows: &'a [Row],
    /// Repeats of rows that left with an earlier notification.
    pub repeats: u32,
    /// Events over the subscriber's rate since the last notification.
    pub suppressed: u32,
    /// When the batch closed.
    pub now: Timestamp,
    /// The most the content may cost.
    pub max_tokens: Tokens,
}

/// Why a source is no template, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// What is wrong, and what would be right.
    pub message: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// The bytes of the source at fault, when they are known.
    pub range: Option<Range<usize>>,
}
