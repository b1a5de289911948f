//! The generic layout, valid for every batch: type, source and severity of its events, and their
//! flattened payloads.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    ROWS_MAX,
    draft::{Body, Draft, Printed},
    free_key::free_key,
    table::{Origin, clean_event::Shown, rows::Rows},
};
use crate::notification::{SubscriberId, UNTRUSTED_SOURCE};

/// Fields of the event itself, under their names in this layout.
const ENVELOPE: [(&str, Origin); 3] =
    [("type", Origin::Type), ("source", Origin::Source), ("severity", Origin::Severity)];

/// Writes one event as fields, several as a table named after the subscriber; columns that are null
/// in all rows are omitted. `origins` are the untrusted sources by row, or nothing.
pub(super) fn draft(subscriber: &SubscriberId, events: &Shown, origins: &[Option<Arc<str>>]) -> Draft {
    let shown = events.first(ROWS_MAX);
    let rows = Rows::new(shown).with_origins(origins);
    let mut table: Vec<Map<String, Value>> = (0..rows.len()).map(|at| row(&rows, at)).collect();
    let is_empty = |name: &str| table.iter().all(|row| row.get(name).is_none_or(Value::is_null));
    let names = table.first().into_iter().flat_map(Map::keys);
    let empty: Vec<String> = names.filter(|name| is_empty(name)).cloned().collect();
    table.iter_mut().for_each(|row| row.retain(|name, _| !empty.contains(name)));
    let value = match (table.len(), table.pop()) {
        (1, Some(row)) => Value::Object(row),
        (_, last) => {
            let rows: Vec<Value> = table.into_iter().chain(last).map(Value::Object).collect();
            Value::Object(Map::from_iter([(subscriber.as_str().to_owned(), rows.into())]))
        }
    };
    let left_out = events.iter().skip(ROWS_MAX).map(|event| u64::from(event.repeats)).sum();
    Draft {
        body: Body::Decoded { value, comments: None },
        printed: Printed { row_repeats: true, sources: rows.names_origins(), ..Printed::default() },
        left_out,
        absent: Vec::new(),
        words: Vec::new(),
    }
}

/// One row with all columns.
fn row(rows: &Rows, at: usize) -> Map<String, Value> {
    let mut row = Map::new();
    if rows.names_origins() {
        row.insert(UNTRUSTED_SOURCE.to_owned(), rows.first(at, &[Origin::Untrusted]).to_json());
    }
    for (name, origin) in ENVELOPE {
        row.insert(name.to_owned(), rows.first(at, &[origin]).to_json());
    }
    for name in rows.columns() {
        let cell = rows.first(at, &[Origin::Field(name.clone())]).to_json();
        let is_taken = |key: &str| key == UNTRUSTED_SOURCE || row.contains_key(key);
        row.insert(free_key(name, is_taken), cell);
    }
    row
}
