//! What detectors share: a finding before it becomes an event, and any JSON value as a text that is
//! equal for equal values.

use serde::{Deserialize, Deserializer};
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

/// The text of a value in a payload: a string as it is, any other value as JSON whose objects have
/// sorted keys, so the order in which a program writes them does not count.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Comparable(pub(super) String);

/// Reads a field that may have any value: `null` is one, so only an absent field is `None`.
pub(super) fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Comparable>, D::Error> {
    Value::deserialize(from).map(|value| Some(Comparable::of(value)))
}

impl Comparable {
    fn of(value: Value) -> Self {
        Self(match value {
            Value::String(text) => text,
            Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
            Value::Array(_) | Value::Object(_) => {
                let mut value = value;
                // A payload has few levels, so this cannot exhaust the stack.
                value.sort_all_objects();
                value.to_string()
            }
        })
    }
}
