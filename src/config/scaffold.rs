//! What `aside new` writes: a subscriber with its tests, an entry of `events.toml`, a test of real
//! events. Fields are proposed by rule from events, whose payloads are cleaned as for a template
//! before they are written.
//!
//! Pure: the same events give the same files. What a test expects is what the engine makes of its
//! events.

pub mod case;
pub mod entry;
pub mod fields;
mod literal;
pub mod subscriber;

use engine::{event::FIELD_CHARS_MAX, pipeline::render::clean_value};
use serde_json::Value as Json;

use crate::config::case::TestEvent;

/// The event as it is written: its payload without control characters, secrets and long texts, and
/// without what TOML cannot express.
pub fn cleaned(event: &TestEvent) -> TestEvent {
    let clean = |text: &str| match clean_value(&text.into(), FIELD_CHARS_MAX) {
        Json::String(clean) => clean.into(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => text.into(),
    };
    let payload = literal::expressible(&clean_value(&event.payload, FIELD_CHARS_MAX));
    TestEvent {
        payload: payload.unwrap_or_else(|| Json::Object(serde_json::Map::new())),
        source: event.source.as_deref().map(clean),
        dedupe_key: event.dedupe_key.as_deref().map(clean),
        ..event.clone()
    }
}
