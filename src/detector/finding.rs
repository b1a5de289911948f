//! What a detector found, before it is an event.

use serde_json::Value;

use crate::event::Severity;

/// What a detector found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The event type.
    pub(super) event_type: &'static str,
    pub(super) severity: Severity,
    /// Distinguishes it from other findings of the session for the same event.
    pub(super) name: String,
    pub(super) payload: Value,
}
