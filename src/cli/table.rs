//! JSON as aligned plain text for people.
//!
//! What the daemon answers is shown whole, whatever keys it has: an object as one line a key, a list of objects as a table. An
//! object within an object gives dotted names: `events.total`.

use std::borrow::Cow;

use serde_json::Value;

use crate::event::clean_text;

/// Longest cell of a table, in characters; more would push the others off the screen.
const CELL_CHARS_MAX: usize = 60;

/// One line a key, values aligned.
pub(super) fn pairs(value: &Value) -> String {
    let mut fields = Vec::new();
    flatten("", value, &mut fields);
    let width = fields.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    fields.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}

/// A header and one line an object; the columns are the keys in the order in which they first occur.
pub(super) fn table(rows: &[Value]) -> String {
    let rows: Vec<Vec<(String, String)>> = rows
        .iter()
        .map(|row| {
            let mut fields = Vec::new();
            flatten("", row, &mut fields);
            fields
        })
        .collect();
    let mut columns: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flatten() {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let cell = |row: &[(String, String)], column: &str| {
        row.iter().find(|(name, _)| name == column).map_or("-".to_owned(), |(_, value)| cut(value))
    };
    let mut lines = vec![columns.iter().map(|column| (*column).to_owned()).collect::<Vec<_>>()];
    lines.extend(rows.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect()));
    align(&lines)
}

fn align(lines: &[Vec<String>]) -> String {
    let mut text = String::new();
    for line in lines {
        let mut padded = String::new();
        for (index, cell) in line.iter().enumerate() {
            let widths = lines.iter().filter_map(|line| line.get(index)).map(|cell| cell.chars().count());
            let width = widths.max().unwrap_or(0);
            padded.push_str(&format!("{cell:width$}  "));
        }
        text.extend([padded.trim_end(), "\n"]);
    }
    text
}

fn flatten(prefix: &str, value: &Value, fields: &mut Vec<(String, String)>) {
    let text = match value {
        Value::Object(object) if !object.is_empty() => {
            for (key, value) in object {
                let key = one_line(key);
                let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
                flatten(&name, value, fields);
            }
            return;
        }
        Value::Null => "-".to_owned(),
        Value::String(text) => one_line(text),
        Value::Object(_) | Value::Array(_) | Value::Bool(_) | Value::Number(_) => {
            one_line(&value.to_string())
        }
    };
    fields.push((prefix.to_owned(), text));
}

/// `text` without what could move a terminal's cursor.
pub(super) fn one_line(text: &str) -> String {
    let clean: Cow<'_, str> = clean_text(text);
    clean.replace(['\n', '\t'], " ")
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(CELL_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_one_aligned_line_a_key() {
        let status = json!({ "version": "0.1.0", "events": { "total": 12, "duplicate": 0 }, "tcp": null, "sinks": [],
            "note": "a\n\u{1b}[31mb" });
        assert_eq!(
            pairs(&status),
            "version           0.1.0\nevents.total      12\nevents.duplicate  0\ntcp               -\n\
             sinks             []\nnote              a b\n"
        );
    }

    #[test]
    fn a_list_is_a_table_whose_columns_are_all_keys() {
        let long = "x".repeat(70);
        let rows = [
            json!({ "id": "s1", "harness": { "name": "claude-code" } }),
            json!({ "id": long, "pending": 2 }),
        ];
        let cell = "x".repeat(60) + "...";
        let expected = [
            format!("{:63}  harness.name  pending\n", "id"),
            format!("{:63}  claude-code   -\n", "s1"),
            format!("{cell}  -             2\n"),
        ];
        assert_eq!(table(&rows), expected.concat());
    }
}
