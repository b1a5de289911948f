//! What a notification is rendered from.

use crate::{
    notification::{SubscriberId, Tokens},
    pipeline::row::Row,
    time::Timestamp,
};

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
