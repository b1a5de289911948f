//! The finding of a detector, before it becomes an event.

use serde_json::Value;

use crate::event::Severity;

/// The finding of a detector.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The event type.
    pub(super) event_type: &'static str,
    pub(super) severity: Severity,
    /// Distinguishes it from other findings of the session for the same event.
    pub(super) name: String,
    pub(super) payload: Value,
}
