//! The canonical writer, which selects TOON's form for a value and writes its lines, and the strict
//! decoding of a whole text.
//!
//! A list of uniform objects is written as a table, an object of uniform objects as a keyed table,
//! a list of scalars on one line, any other list as items. Recursion follows the value; the payload
//! limits bound its depth.

use serde_json::{Map, Value};

use crate::{write_key, write_quoted, write_scalar, write_text};

/// Writes a whole document; an empty object produces an empty text.
pub fn encode(value: &Value) -> String {
    let mut writer = Writer::default();
    match value {
        Value::Object(fields) => match keyed_columns(fields) {
            Some(columns) => writer.keyed_table(None, fields, &columns, 0),
            None => writer.fields(fields, 0),
        },
        Value::Array(items) => writer.array(None, items, 0),
        Value::String(text) if text.starts_with('\u{feff}') => write_quoted(&mut writer.out, text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            write_scalar(&mut writer.out, value)
        }
    }
    writer.out
}

/// Writes one field of a larger object.
pub fn encode_field(key: &str, value: &Value) -> String {
    let mut writer = Writer::default();
    writer.field(key, value, 0);
    writer.out
}

/// Writes a table of scalars: the header, and one line per row. `write_cell` appends the cell of a
/// row and column.
pub fn write_table(
    out: &mut String,
    key: &str,
    columns: &[&str],
    rows: usize,
    mut write_cell: impl FnMut(&mut String, usize, usize),
) {
    write_key(out, key);
    out.push('[');
    out.push_str(&rows.to_string());
    out.push_str("]{");
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_key(out, column);
    }
    out.push_str("}:");
    for row in 0..rows {
        out.push_str("\n  ");
        for column in 0..columns.len() {
            if column > 0 {
                out.push(',');
            }
            write_cell(out, row, column);
        }
    }
}

fn write_cells(out: &mut String, cells: &[Value]) {
    for (index, cell) in cells.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_scalar(out, cell);
    }
}

/// A column of a table: a scalar, or a group of columns.
struct Column<'v> {
    name: &'v str,
    group: Vec<Self>,
}

/// The form of the rows after a header.
#[derive(Debug, Clone, Copy)]
enum Rows {
    Listed,
    Keyed,
}

#[derive(Default)]
struct Writer {
    out: String,
    /// Whether the next line is the first of a list item.
    hyphen: bool,
}

impl Writer {
    fn begin_line(&mut self, depth: usize) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        if std::mem::take(&mut self.hyphen) {
            self.indent(depth.saturating_sub(1));
            self.out.push_str("- ");
        } else {
            self.indent(depth);
        }
    }

    fn indent(&mut self, depth: usize) {
        self.out.extend(std::iter::repeat_n(' ', depth * INDENT));
    }

    fn fields(&mut self, fields: &Map<String, Value>, depth: usize) {
        for (key, value) in fields {
            self.field(key, value, depth);
        }
    }

    fn field(&mut self, key: &str, value: &Value, depth: usize) {
        match value {
            Value::Array(items) => self.array(Some(key), items, depth),
            Value::Object(fields) => {
                if let Some(columns) = keyed_columns(fields) {
                    return self.keyed_table(Some(key), fields, &columns, depth);
                }
                self.begin_line(depth);
                write_key(&mut self.out, key);
                self.out.push(':');
                self.fields(fields, depth + 1);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.begin_line(depth);
                write_key(&mut self.out, key);
                self.out.push_str(": ");
                write_scalar(&mut self.out, value);
            }
        }
    }

    fn array(&mut self, key: Option<&str>, items: &[Value], depth: usize) {
        self.begin_line(depth);
        if items.is_empty() {
            if let Some(key) = key {
                write_key(&mut self.out, key);
                self.out.push_str(": ");
            }
            return self.out.push_str("[]");
        }
        let objects: Option<Vec<_>> = items.iter().map(Value::as_object).collect();
        if let Some((objects, columns)) =
            objects.and_then(|all| uniform_columns(&all).map(|columns| (all, columns)))
        {
            self.header(key, items.len(), Rows::Listed, Some(&columns));
            for object in objects {
                self.begin_line(depth + 1);
                self.row(object, &columns);
            }
            return;
        }
        self.header(key, items.len(), Rows::Listed, None);
        self.items(items, depth + 1);
    }

    /// Writes the part after a list's header: its scalars on the same line, or one item per line at
    /// `depth`.
    fn items(&mut self, items: &[Value], depth: usize) {
        if items.iter().all(is_scalar) {
            if !items.is_empty() {
                self.out.push(' ');
                write_cells(&mut self.out, items);
            }
            return;
        }
        for item in items {
            self.item(item, depth);
        }
    }

    fn item(&mut self, item: &Value, depth: usize) {
        match item {
            Value::Object(fields) if fields.is_empty() => {
                self.begin_line(depth);
                self.out.push('-');
            }
            Value::Object(fields) => {
                self.hyphen = true;
                self.fields(fields, depth + 1);
            }
            Value::Array(items) => {
                self.hyphen = true;
                self.begin_line(depth + 1);
                self.header(None, items.len(), Rows::Listed, None);
                self.items(items, depth + 1);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.hyphen = true;
                self.begin_line(depth + 1);
                write_scalar(&mut self.out, item);
            }
        }
    }

    fn keyed_table(
        &mut self,
        key: Option<&str>,
        fields: &Map<String, Value>,
        columns: &[Column<'_>],
        depth: usize,
    ) {
        self.begin_line(depth);
        self.header(key, fields.len(), Rows::Keyed, Some(columns));
        for (name, value) in fields {
            self.begin_line(depth + 1);
            write_key(&mut self.out, name);
            self.out.push_str(": ");
            if let Value::Object(object) = value {
                self.row(object, columns);
            }
        }
    }

    fn header(&mut self, key: Option<&str>, length: usize, rows: Rows, columns: Option<&[Column<'_>]>) {
        if let Some(key) = key {
            write_key(&mut self.out, key);
        }
        self.out.push('[');
        self.out.push_str(&length.to_string());
        self.out.push_str(match rows {
            Rows::Listed => "]",
            Rows::Keyed => ":]",
        });
        if let Some(columns) = columns {
            self.columns(columns);
        }
        self.out.push(':');
    }

    fn columns(&mut self, columns: &[Column<'_>]) {
        self.out.push('{');
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            write_key(&mut self.out, column.name);
            if !column.group.is_empty() {
                self.columns(&column.group);
            }
        }
        self.out.push('}');
    }

    fn row(&mut self, object: &Map<String, Value>, columns: &[Column<'_>]) {
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            match object.get(column.name) {
                Some(Value::Object(group)) => self.row(group, &column.group),
                Some(value) => write_scalar(&mut self.out, value),
                None => write_text(&mut self.out, ""),
            }
        }
    }
}

fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_))
}

/// The columns of an object whose values are at least two uniform objects.
fn keyed_columns(fields: &Map<String, Value>) -> Option<Vec<Column<'_>>> {
    if fields.len() < 2 {
        return None;
    }
    let objects: Vec<_> = fields.values().map(Value::as_object).collect::<Option<_>>()?;
    uniform_columns(&objects)
}

/// The columns of all objects, in the order of the first; `None` if the objects differ or a column
/// is not uniform.
fn uniform_columns<'v>(objects: &[&'v Map<String, Value>]) -> Option<Vec<Column<'v>>> {
    let first = *objects.first()?;
    if first.is_empty() || objects.iter().any(|object| object.len() != first.len()) {
        return None;
    }
    first.keys().map(|name| uniform_column(name, objects)).collect()
}

fn uniform_column<'v>(name: &'v str, objects: &[&'v Map<String, Value>]) -> Option<Column<'v>> {
    let values: Vec<&Value> = objects.iter().map(|object| object.get(name)).collect::<Option<_>>()?;
    if values.iter().all(|value| is_scalar(value)) {
        return Some(Column { name, group: Vec::new() });
    }
    let groups: Vec<_> = values.into_iter().map(Value::as_object).collect::<Option<_>>()?;
    uniform_columns(&groups).map(|group| Column { name, group })
}

/// Spaces per level of nesting (TOON 4.x, default indentation).
pub const INDENT: usize = 2;

/// Error: a text is not strict TOON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToonError {
    /// The invalid line, counted from 1, if known.
    pub line: Option<usize>,
    /// The cause.
    pub message: String,
}

/// Parses strict TOON 4.x. An integer beyond 64 bits becomes a string.
///
/// Errors: the first invalid line.
pub fn decode(text: &str) -> Result<Value, ToonError> {
    toon_format::decode_strict(text).map_err(|error| {
        if let toon_format::ToonError::ParseError { line, message, .. } = error {
            return ToonError { line: Some(line), message };
        }
        ToonError { line: None, message: error.to_string() }
    })
}

/// The lines of `text`; at least one, which may be empty.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let Some(end) = memchr::memchr(b'\n', text.as_bytes()) else { return Some(text) };
        rest = text.get(end + 1..);
        text.get(..end)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::decode;

    #[test]
    fn each_shape_takes_its_canonical_form() {
        for (value, text) in [
            (json!({}), ""),
            (json!([]), "[]"),
            (json!({"a": [], "b": {}}), "a: []\nb:"),
            (json!({"a": [1, "x", null]}), "a[3]: 1,x,null"),
            (
                json!({"o": [{"id": 1, "by": {"n": "A"}}, {"id": 2, "by": {"n": "B"}}]}),
                "o[2]{id,by{n}}:\n  1,A\n  2,B",
            ),
            (json!({"s": {"a": {"p": 1}, "b": {"p": 2}}}), "s[2:]{p}:\n  a: 1\n  b: 2"),
            (
                json!({"i": [1, [2, 3], {"a": 1, "b": [{"c": 1}]}, {}]}),
                "i[4]:\n  - 1\n  - [2]: 2,3\n  - a: 1\n    b[1]{c}:\n      1\n  -",
            ),
            (json!([[{"a": 1}]]), "[1]:\n  - [1]:\n    - a: 1"),
        ] {
            assert_eq!(encode(&value), text);
            assert_eq!(decode(text), Ok(value));
        }
    }

    #[test]
    fn a_table_writes_what_the_encoder_would() {
        let value = json!({"t": [{"a": "x,y", "b": 1}, {"a": null, "b": true}]});
        let rows = [[json!("x,y"), json!(1)], [json!(null), json!(true)]];
        let mut out = String::new();
        write_table(&mut out, "t", &["a", "b"], 2, |out, row, column| write_scalar(out, &rows[row][column]));
        assert_eq!(out, encode(&value));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            (-1_000_000..1_000_000_i32).prop_map(|n| Value::from(f64::from(n) / 64.0)),
            "[ -~\n\t\u{e9}\u{2713}]{0,12}".prop_map(Value::from),
        ];
        scalar.prop_recursive(4, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[a-z]{1,2}|[ -~]{0,4}", inner.clone()), 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
                (inner.clone(), inner).prop_map(|(a, b)| json!([{"x": a, "y": 1}, {"x": b, "y": 2}])),
            ]
        })
    }

    fn same(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
            (Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
            }
            (Value::Object(a), Value::Object(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && same(a, b))
            }
            (a, b) => a == b,
        }
    }

    proptest! {
        #[test]
        fn writer_matches_serde_toon_and_round_trips(value in any_value()) {
            let text = encode(&value);
            if !["\\u003c", "\\u005b", "\\u007e"].iter().any(|escape| text.contains(escape)) {
                prop_assert_eq!(&text, &serde_toon::to_string(&value).expect("encodes"));
            }
            let decoded = decode(&text).expect("strict");
            prop_assert!(same(&decoded, &value), "{}", text);
            prop_assert_eq!(encode(&decoded), text);
        }
    }

    #[test]
    fn every_newline_begins_a_line() {
        for text in ["", "a", "a\nb", "\n", "a\n\n b\r\n", "\u{2713}\n\u{e9}"] {
            assert_eq!(lines(text).collect::<Vec<_>>(), text.split('\n').collect::<Vec<_>>());
        }
    }

    #[test]
    fn decode_error_names_the_offending_line() {
        let error = decode("a: 1\nb[2]: 1\nc: 2").expect_err("one value for two");
        assert_eq!(error.line, Some(2), "{error}");
    }
}
