//! The input of a renderer, the bounds of its text, and errors of templates.

use std::{ops::Range, sync::Arc};

use journal::time::Timestamp;

use crate::{
    notification::{SubscriberId, Tokens},
    pipeline::row::Row,
};

/// Most rows of one notification, so that a table stays near its header; further rows are counted.
pub const ROWS_MAX: usize = 15;
/// Largest output of a template, in bytes, checked before its tokens.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// The input for one notification.
#[derive(Debug, Clone, Copy)]
pub struct RenderInput<'a> {
    /// The subscriber.
    pub subscriber: &'a SubscriberId,
    /// Its name for people.
    pub subscriber_name: &'a str,
    /// The rows, oldest first.
    pub rows: &'a [Row],
    /// By row, the untrusted source that a table names in it; empty if rows name none.
    pub origins: &'a [Option<Arc<str>>],
    /// Repeats of rows in earlier notifications.
    pub repeats: u32,
    /// Rate-limited events since the last notification.
    pub suppressed: u32,
    /// The time at which the batch closed.
    pub now: Timestamp,
    /// Most tokens of the content.
    pub max_tokens: Tokens,
}

impl<'a> RenderInput<'a> {
    /// Rows of a batch that closed at time zero, without counts of earlier notifications.
    ///
    /// Shape: the name for people is the subscriber's id.
    pub fn new(subscriber: &'a SubscriberId, rows: &'a [Row], max_tokens: Tokens) -> Self {
        Self {
            subscriber,
            subscriber_name: subscriber.as_str(),
            rows,
            origins: &[],
            repeats: 0,
            suppressed: 0,
            now: Timestamp::ZERO,
            max_tokens,
        }
    }
}

/// Why and where a source is not a valid template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// The fault, and how to correct it.
    pub message: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// The byte range of the fault in the source, if known.
    pub range: Option<Range<usize>>,
}
