//! The table that every batch can have: type, source, severity and the best message there is.

use serde_json::{Map, Value};

use super::rows::CleanEvent;
use crate::{event::cut_text, notification::SubscriberId};

/// Payload fields that say in words what happened, best first.
const MESSAGE_FIELDS: [&str; 5] = ["message", "error_message", "summary", "text", "reason"];

/// One event as fields, several as a table named after the subscriber.
pub(super) fn document(subscriber: &SubscriberId, events: &[CleanEvent]) -> Value {
    let repeated = events.iter().any(|event| event.repeats > 1);
    let mut rows: Vec<Value> = events.iter().map(|event| row(event, repeated)).collect();
    match rows.len() {
        1 => rows.remove(0),
        _ => Value::Object(Map::from_iter([(subscriber.as_str().to_owned(), rows.into())])),
    }
}

fn row(event: &CleanEvent, repeated: bool) -> Value {
    let mut row = Map::new();
    row.insert("type".into(), event.event_type().into());
    row.insert("source".into(), event.source().into());
    row.insert("severity".into(), event.severity().into());
    row.insert("message".into(), message(event));
    if repeated {
        row.insert("repeats".into(), event.repeats.into());
    }
    Value::Object(row)
}

fn message(event: &CleanEvent) -> Value {
    let in_words =
        MESSAGE_FIELDS.iter().filter_map(|field| event.payload().get(field)).find(|value| value.is_string());
    match (in_words, event.payload()) {
        (Some(words), _) => words.clone(),
        (None, Value::Object(fields)) if !fields.is_empty() => {
            cut_text(event.payload().to_string().into(), event.field_chars).into_owned().into()
        }
        (None, _) => Value::Null,
    }
}
