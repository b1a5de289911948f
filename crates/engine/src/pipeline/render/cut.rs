//! Cuts documents that are too large: first rows of their tables, then fields.
//!
//! Only the output is cut, so values that a template calculated from the whole batch stay correct.

use serde_json::{Map, Value};

use super::ROWS_MAX;

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

/// Cuts each list of objects to its first `rows_max` rows, each keyed table with more than
/// [`ROWS_MAX`] rows too, and if `rows_max` is below [`ROWS_MAX`], each other list to as many
/// items.
pub(super) fn rows(value: &mut Value, rows_max: usize) -> Vec<Lost> {
    let mut lost = Vec::new();
    cut_rows(value, rows_max, &mut lost);
    lost
}

fn cut_rows(value: &mut Value, rows_max: usize, lost: &mut Vec<Lost>) {
    match value {
        Value::Array(items) => {
            let may_cut = rows_max < ROWS_MAX || items.iter().any(Value::is_object);
            if items.len() > rows_max && may_cut {
                lost.push(Lost { of: items.len(), kept: rows_max });
                items.truncate(rows_max);
                if !drop_empty_columns(items) {
                    *value = Value::from(rows_max);
                    return;
                }
            }
            items.iter_mut().for_each(|item| cut_rows(item, rows_max, lost));
        }
        Value::Object(fields) => {
            if is_long_keyed_table(fields) {
                lost.push(Lost { of: fields.len(), kept: rows_max });
                keep(fields, rows_max);
            }
            fields.values_mut().for_each(|field| cut_rows(field, rows_max, lost));
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
pub(super) fn fields(value: &mut Value, count: usize) {
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
        assert_eq!(rows(&mut value, ROWS_MAX), [Lost { of: 20, kept: ROWS_MAX }]);
        assert!(!has_long_table(&value));
        assert_eq!(rows(&mut value, 2).len(), 3);
        assert_eq!(value, json!({ "sum": 9, "a": table(2), "b": table(2), "list": [0, 1] }));
    }

    #[test]
    fn fields_are_cut_from_single_table_or_root() {
        let mut table = json!({ "t": [{ "a": 1, "b": 2 }, { "a": 3, "b": 4 }] });
        assert_eq!(field_count(&table), 2);
        fields(&mut table, 1);
        assert_eq!(table, json!({ "t": [{ "a": 1 }, { "a": 3 }] }));
        let mut flat = json!({ "a": 1, "b": 2, "c": 3 });
        assert_eq!(field_count(&flat), 3);
        fields(&mut flat, 2);
        assert_eq!(flat, json!({ "a": 1, "b": 2 }));
    }
}
