//! The input of a renderer, the bounds of its text, the output of an attempt to render a batch, before
//! it is measured, and the cut of one that is too large: first rows of its tables, then fields.
//!
//! Only the output is cut, so values that a template calculated from the whole batch stay correct.

use std::{ops::Range, sync::Arc, time::Duration};

use journal::time::Timestamp;
use serde_json::{Map, Value};

use crate::{
    notification::{SubscriberId, TemplateNotice, Tokens},
    pipeline::row::Row,
};

/// Why an attempt to render failed.
#[derive(Debug)]
pub(super) enum Attempt {
    /// Too large; fewer rows or shorter fields may fit.
    TooBig,
    /// It prints nothing for the batch.
    Nothing,
    /// A failure for all sizes; another template is needed.
    Failed { line: Option<usize>, range: Option<Range<usize>>, message: String },
}

/// A template's output for a batch.
pub(super) struct Draft {
    pub(super) body: Body,
    pub(super) printed: Printed,
    /// Number of events whose rows were not written.
    pub(super) left_out: u64,
    /// Columns that were named and that no row has.
    pub(super) absent: Vec<String>,
    /// Notices for the user.
    pub(super) words: Vec<TemplateNotice>,
}

/// The counts and marks that a text has itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Printed {
    /// The occurrences of each row.
    pub(super) row_repeats: bool,
    pub(super) repeats: bool,
    pub(super) suppressed: bool,
    /// The untrusted source of each row.
    pub(super) sources: bool,
}

/// A document of strict TOON.
pub(super) enum Body {
    /// Canonical, with these keys at its root.
    Written { text: String, keys: Vec<String>, shows_repeats: bool },
    /// The decoded value of the author's text; `comments` is the text if it has comment lines.
    Decoded { value: Value, comments: Option<String> },
}

impl Body {
    /// Whether one of its tables has more rows than a notification may show.
    pub(super) fn has_long_table(&self) -> bool {
        match self {
            Self::Written { .. } => false,
            Self::Decoded { value, .. } => has_long_table(value),
        }
    }

    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::Written { text, .. } => toon::decode(text).expect("it is known to be strict TOON"),
            Self::Decoded { value, .. } => value.clone(),
        }
    }

    /// Adds `extras` as fields at the root, under free keys, and writes the document.
    pub(super) fn write(&self, subscriber: &SubscriberId, extras: &[(&str, u64)]) -> String {
        match self {
            Self::Written { text, keys, .. } => with_counts(text, keys.clone(), extras),
            Self::Decoded { value, comments: Some(text) } if extras.is_empty() || value.is_object() => {
                let keys = value.as_object().into_iter().flat_map(Map::keys).cloned().collect();
                with_counts(text, keys, extras)
            }
            Self::Decoded { value, .. } if extras.is_empty() => toon::encode(value),
            Self::Decoded { value, .. } => {
                let mut root = match value.as_object() {
                    Some(fields) => fields.clone(),
                    None => Map::from_iter([(subscriber.as_str().to_owned(), value.clone())]),
                };
                for (name, count) in extras {
                    let key = free_key(name, |key| root.contains_key(key));
                    root.insert(key, Value::from(*count));
                }
                toon::encode(&Value::Object(root))
            }
        }
    }
}

fn with_counts(text: &str, mut keys: Vec<String>, counts: &[(&str, u64)]) -> String {
    let mut text = text.to_owned();
    for (name, count) in counts {
        let key = free_key(name, |key| keys.iter().any(|taken| taken == key));
        text.push('\n');
        text.push_str(&toon::encode_field(&key, &Value::from(*count)));
        keys.push(key);
    }
    text
}

/// `name`, with as many `_more` as needed to be free.
pub(super) fn free_key(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut key = name.to_owned();
    while is_taken(&key) {
        key.push_str("_more");
    }
    key
}

/// A list or table that lost rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lost {
    /// Number of rows before.
    pub(super) of: usize,
    /// Number of rows now.
    pub(super) kept: usize,
}

/// Whether a list or keyed table of objects somewhere in `value` has more than [`ROWS_MAX`] rows.
pub(super) fn has_long_table(value: &Value) -> bool {
    match value {
        Value::Array(items) => {
            (items.len() > ROWS_MAX && items.iter().any(Value::is_object)) || items.iter().any(has_long_table)
        }
        Value::Object(fields) => is_long_keyed_table(fields) || fields.values().any(has_long_table),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn is_long_keyed_table(fields: &Map<String, Value>) -> bool {
    fields.len() > ROWS_MAX && fields.values().all(Value::is_object)
}

/// Cuts each list of objects to `rows_max` rows, each keyed table with more than [`ROWS_MAX`] rows
/// too, and if `rows_max` is below [`ROWS_MAX`], each other list to as many items.
///
/// Shape: `kept` says for a number of rows which of them stay.
pub(super) fn limit_rows(value: &mut Value, rows_max: usize, kept: &dyn Fn(usize) -> Kept) -> Vec<Lost> {
    let mut lost = Vec::new();
    cut_rows(value, rows_max, kept, &mut lost);
    lost
}

fn cut_rows(value: &mut Value, rows_max: usize, kept: &dyn Fn(usize) -> Kept, lost: &mut Vec<Lost>) {
    match value {
        Value::Array(items) => {
            let may_cut = rows_max < ROWS_MAX || items.iter().any(Value::is_object);
            if items.len() > rows_max && may_cut {
                lost.push(Lost { of: items.len(), kept: rows_max });
                let places = kept(items.len()).places(items.len(), rows_max);
                items.truncate(places.end);
                items.drain(..places.start);
                if !drop_empty_columns(items) {
                    *value = Value::from(rows_max);
                    return;
                }
            }
            items.iter_mut().for_each(|item| cut_rows(item, rows_max, kept, lost));
        }
        Value::Object(fields) => {
            if is_long_keyed_table(fields) {
                lost.push(Lost { of: fields.len(), kept: rows_max });
                let places = kept(fields.len()).places(fields.len(), rows_max);
                *fields = std::mem::take(fields).into_iter().take(places.end).skip(places.start).collect();
            }
            fields.values_mut().for_each(|field| cut_rows(field, rows_max, kept, lost));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Removes columns that are null in all remaining rows, so that the table equals one written for
/// these rows; returns false if no column remains.
fn drop_empty_columns(rows: &mut [Value]) -> bool {
    let has = |name: &String| rows.iter().any(|row| row.get(name).is_some_and(|cell| !cell.is_null()));
    let Some(first) = rows.first().and_then(Value::as_object) else { return true };
    let kept: Vec<String> = first.keys().filter(|name| has(name)).cloned().collect();
    if kept.is_empty() || kept.len() == first.len() {
        return !kept.is_empty();
    }
    for row in rows.iter_mut().filter_map(Value::as_object_mut) {
        row.retain(|name, _| kept.contains(name));
    }
    true
}

/// Number of fields that can be removed: columns of the only table, or else fields at the root.
pub(super) fn field_count(value: &Value) -> usize {
    let Value::Object(fields) = value else { return 0 };
    match only_table(fields) {
        Some(rows) => rows.iter().filter_map(Value::as_object).map(Map::len).max().unwrap_or(0),
        None => fields.len(),
    }
}

/// Keeps the first `count` of those fields.
pub(super) fn cut_fields(value: &mut Value, count: usize) {
    let Value::Object(fields) = value else { return };
    if only_table(fields).is_none() {
        return keep(fields, count);
    }
    let rows = fields.values_mut().filter_map(Value::as_array_mut).flatten();
    rows.filter_map(Value::as_object_mut).for_each(|row| keep(row, count));
}

fn only_table(fields: &Map<String, Value>) -> Option<&Vec<Value>> {
    let mut fields = fields.values();
    let table = fields.next()?.as_array().filter(|rows| rows.iter().all(Value::is_object))?;
    fields.next().is_none().then_some(table)
}

fn keep(fields: &mut Map<String, Value>, count: usize) {
    *fields = std::mem::take(fields).into_iter().take(count).collect();
}

/// The rows that a text keeps if it cannot show all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kept {
    /// The first ones.
    #[default]
    Oldest,
    /// The last ones.
    Newest,
}

impl Kept {
    /// The places of the rows that stay when `all` are cut to `count`.
    pub(super) fn places(self, all: usize, count: usize) -> Range<usize> {
        let count = count.min(all);
        match self {
            Self::Oldest => 0..count,
            Self::Newest => all - count..all,
        }
    }

    /// The `count` rows that stay, and the others.
    pub(super) fn split(self, rows: &[Row], count: usize) -> (&[Row], &[Row]) {
        let Range { start, end } = self.places(rows.len(), count);
        let (before, after) = match self {
            Self::Oldest => rows.split_at(end),
            Self::Newest => rows.split_at(start),
        };
        match self {
            Self::Oldest => (before, after),
            Self::Newest => (after, before),
        }
    }
}

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
    /// Those of the rows that stay in a text that cannot show all.
    pub kept: Kept,
    /// By row, the untrusted source that a table names in it; empty if rows name none.
    pub origins: &'a [Option<Arc<str>>],
    /// Repeats of rows in earlier notifications.
    pub repeats: u32,
    /// Rate-limited events since the last notification.
    pub suppressed: u32,
    /// Events of rows that the batch did not keep.
    pub omitted: u32,
    /// Since when quiet hours kept the batch open, if they did.
    pub held_since: Option<Timestamp>,
    /// How long nothing came, if that is what it reports.
    pub absent_for: Option<Duration>,
    /// The time at which the batch closed.
    pub now: Timestamp,
    /// Most tokens of the content.
    pub max_tokens: Tokens,
}

impl<'a> RenderInput<'a> {
    /// The rows of a list of `count` items that stay if it is too long: those of the batch if the
    /// list has an item for each of its rows, up to the limit of a filter; else the first, because
    /// its author chose the order.
    pub(super) fn kept_of(&self, count: usize) -> Kept {
        let all = self.rows.len();
        if count == all || count == all.min(ROWS_MAX) { self.kept } else { Kept::Oldest }
    }

    /// Rows of a batch that closed at time zero, without counts of earlier notifications.
    ///
    /// Shape: the name for people is the subscriber's id.
    pub fn new(subscriber: &'a SubscriberId, rows: &'a [Row], max_tokens: Tokens) -> Self {
        Self {
            subscriber,
            subscriber_name: subscriber.as_str(),
            rows,
            kept: Kept::default(),
            origins: &[],
            repeats: 0,
            suppressed: 0,
            omitted: 0,
            held_since: None,
            absent_for: None,
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_are_cut_at_the_end_and_counted() {
        let table = |count: usize| (0..count).map(|n| json!({ "n": n })).collect::<Vec<_>>();
        let mut value =
            json!({ "sum": 9, "a": table(20), "b": table(3), "list": (0..30).collect::<Vec<_>>() });
        assert!(has_long_table(&value));
        let oldest = |_| Kept::Oldest;
        assert_eq!(limit_rows(&mut value, ROWS_MAX, &oldest), [Lost { of: 20, kept: ROWS_MAX }]);
        assert!(!has_long_table(&value));
        assert_eq!(limit_rows(&mut value, 2, &oldest).len(), 3);
        assert_eq!(value, json!({ "sum": 9, "a": table(2), "b": table(2), "list": [0, 1] }));
    }

    #[test]
    fn newest_rows_of_a_digest_stay() {
        let table = |range: Range<usize>| range.map(|n| json!({ "n": n })).collect::<Vec<_>>();
        let keyed =
            |range: Range<usize>| range.map(|n| (format!("k{n:02}"), json!({ "n": n }))).collect::<Value>();
        let mut value = json!({ "rows": table(0..40), "groups": table(0..20), "keyed": keyed(0..40) });
        let kept = |count| if count == 40 { Kept::Newest } else { Kept::Oldest };
        assert_eq!(limit_rows(&mut value, ROWS_MAX, &kept).len(), 3);
        let expected = json!({ "rows": table(25..40), "groups": table(0..15), "keyed": keyed(25..40) });
        assert_eq!(value, expected);
    }

    #[test]
    fn fields_are_cut_from_single_table_or_root() {
        let mut table = json!({ "t": [{ "a": 1, "b": 2 }, { "a": 3, "b": 4 }] });
        assert_eq!(field_count(&table), 2);
        cut_fields(&mut table, 1);
        assert_eq!(table, json!({ "t": [{ "a": 1 }, { "a": 3 }] }));
        let mut flat = json!({ "a": 1, "b": 2, "c": 3 });
        assert_eq!(field_count(&flat), 3);
        cut_fields(&mut flat, 2);
        assert_eq!(flat, json!({ "a": 1, "b": 2 }));
    }
}
