//! A text with the result of one strict parse, so that it is not parsed again.
//!
//! Most documents are fields and plain tables. [`flat_fields`] recognizes those in one pass,
//! without a tree and without an allocation per value. It accepts only the canonical form: accepted
//! text is strict, and equals the output of [`super::encode`] for its decoded value. The decoder
//! handles all other text. The pass may therefore reject valid forms, but must not accept invalid
//! ones.

use std::{fmt, ops::Deref, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    INDENT, decode, lines,
    scalar::{is_ambiguous, needs_quotes, plain_length, write_quoted},
};

/// Most digits of an integer that every TOON reader parses as an integer.
const INTEGER_DIGITS_MAX: usize = 18;

/// A text and its form, which the conversion from a text finds by parsing it.
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    text: Arc<str>,
    form: Form,
}

/// The form of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Canonical fields and plain tables under bare keys, as accepted by [`flat_fields`].
    Flat,
    /// Other strict TOON.
    Strict,
    /// Not TOON.
    Text,
}

impl Document {
    /// The text; shared, not copied.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Its form.
    pub fn form(&self) -> Form {
        self.form
    }
}

impl<T: Into<Arc<str>>> From<T> for Document {
    fn from(text: T) -> Self {
        let text = text.into();
        let form = if flat_fields(&text).is_some() {
            Form::Flat
        } else if decode(&text).is_ok() {
            Form::Strict
        } else {
            Form::Text
        };
        Self { text, form }
    }
}

/// Serializes the text alone; reading derives the form again.
impl Serialize for Document {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        <Arc<str>>::deserialize(from).map(Self::from)
    }
}

impl Deref for Document {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// One field at the root of a flat document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlatField<'t> {
    /// Its key.
    pub key: &'t str,
    /// The columns of a table, separated by commas; empty if it is not a table.
    pub columns: &'t str,
    /// The number of rows of a table; zero if it is not a table.
    pub rows: usize,
}

impl FlatField<'_> {
    /// Whether `name` is its key or one of its columns.
    pub fn names(&self, name: &str) -> bool {
        self.key == name || self.columns.split(',').any(|column| column == name)
    }
}

/// The fields of a canonical flat document: scalars, lists of scalars and tables of scalars, all
/// under bare keys.
///
/// Shape: at least one field; keys are distinct, and so are the columns of a table. `None` if the
/// decoder has to parse the text, which may be valid.
pub fn flat_fields(text: &str) -> Option<Vec<FlatField<'_>>> {
    let mut fields: Vec<FlatField<'_>> = Vec::new();
    let mut lines = lines(text);
    while let Some(line) = lines.next() {
        let (key, rest) = line.split_at(bare_key_length(line)?);
        if fields.iter().any(|field| field.key == key) {
            return None;
        }
        let mut field = FlatField { key, columns: "", rows: 0 };
        if let Some(value) = rest.strip_prefix(": ") {
            if value != "[]" && scalars(value)? != 1 {
                return None;
            }
        } else {
            let (length, after) = rest.strip_prefix('[')?.split_once(']')?;
            let length = length_of(length)?;
            if let Some(values) = after.strip_prefix(": ") {
                if scalars(values)? != length {
                    return None;
                }
            } else {
                field.columns = after.strip_prefix('{')?.strip_suffix("}:")?;
                field.rows = length;
                let width = width_of(field.columns)?;
                for _ in 0..length {
                    let (indent, row) = lines.next()?.split_at_checked(INDENT)?;
                    if indent != "  " || scalars(row)? != width {
                        return None;
                    }
                }
            }
        }
        fields.push(field);
    }
    Some(fields)
}

/// The length of the bare key at the start of `line`.
fn bare_key_length(line: &str) -> Option<usize> {
    let bytes = line.as_bytes();
    let first = bytes.first()?;
    let is_key = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    let length = bytes.iter().take_while(|byte| is_key(byte)).count();
    (first.is_ascii_alphabetic() || *first == b'_').then_some(length)
}

/// Parses a length in the writer's form; never zero, which is written differently.
fn length_of(digits: &str) -> Option<usize> {
    let is_canonical = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    is_canonical.then(|| digits.parse().ok()).flatten()
}

/// The number of columns, if all are bare and distinct.
fn width_of(columns: &str) -> Option<usize> {
    let mut width = 0;
    for (index, column) in columns.split(',').enumerate() {
        if bare_key_length(column)? != column.len() || columns.split(',').take(index).any(|c| c == column) {
            return None;
        }
        width += 1;
    }
    Some(width)
}

/// The number of comma-separated scalars in `text`, if each is in the writer's form.
fn scalars(text: &str) -> Option<usize> {
    let mut rest = text;
    for count in 1.. {
        let after = after_scalar(rest)?;
        match after.as_bytes() {
            [] => return Some(count),
            [b',', ..] => rest = after.get(1..)?,
            _ => return None,
        }
    }
    None
}

/// Returns the text after the first scalar of `text` if it is in the writer's form: after the
/// closing quote, or from the first byte that would need quotes.
fn after_scalar(text: &str) -> Option<&str> {
    if text.as_bytes().first() == Some(&b'"') {
        let (quoted, after) = text.split_at_checked(quoted_length(text)?)?;
        let inner = quoted.get(1..)?.strip_suffix('"')?;
        return is_quoted_form(&unescaped(inner)?, quoted).then_some(after);
    }
    let (length, seen) = plain_length(text);
    let (scalar, after) = text.split_at_checked(length)?;
    let is_canonical = !is_ambiguous(scalar, seen)
        || matches!(scalar, "true" | "false" | "null")
        || is_canonical_number(scalar);
    is_canonical.then_some(after)
}

/// The length of the quoted string at the start of `text`, with its quotes.
fn quoted_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        match bytes.get(at) {
            Some(b'"') => return Some(at + 1),
            _ => at += 2,
        }
    }
}

/// Whether the writer encodes `text` as `quoted`.
fn is_quoted_form(text: &str, quoted: &str) -> bool {
    let mut written = String::with_capacity(quoted.len());
    write_quoted(&mut written, text);
    needs_quotes(text) && written == quoted
}

fn unescaped(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        plain.push_str(before);
        let mut after = escape.chars();
        plain.push(match after.next()? {
            '\\' => '\\',
            '"' => '"',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let digits = after.as_str().get(..4).filter(|digits| digits.bytes().all(is_hex))?;
                after = after.as_str().get(4..)?.chars();
                char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
            }
            _ => return None,
        });
        rest = after.as_str();
    }
    plain.push_str(rest);
    Some(plain)
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_hexdigit()
}

fn is_canonical_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let has_leading_zero = digits.starts_with('0') && text != "0";
        return !digits.is_empty() && digits.len() <= INTEGER_DIGITS_MAX && !has_leading_zero;
    }
    let is_decimal = digits.contains('.') && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_decimal && text.parse::<f64>().is_ok_and(|number| number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::encode;

    /// Checks the property of accepted texts.
    fn is_right_about(text: &str) -> bool {
        let Some(fields) = flat_fields(text) else { return true };
        let Ok(Value::Object(decoded)) = decode(text) else { return false };
        let is_like = |(field, (key, value)): (&FlatField<'_>, (&String, &Value))| {
            let rows = value.as_array().filter(|rows| rows.iter().any(Value::is_object));
            let first = rows.and_then(|rows| rows.first()?.as_object());
            let columns = first.map(|row| row.keys().cloned().collect::<Vec<_>>().join(","));
            field.key == key
                && field.rows == rows.map_or(0, Vec::len)
                && field.columns == columns.unwrap_or_default()
        };
        fields.len() == decoded.len()
            && fields.iter().zip(&decoded).all(is_like)
            && encode(&Value::Object(decoded)) == text
    }

    #[test]
    fn flat_documents_are_taken_and_all_others_left() {
        for (text, is_flat) in [
            ("a: 1", true),
            ("a: x y\nb.c: null\nd: \"x: y\"\ne: -1.5\nf: 0", true),
            ("a[2]: 1,\"b,c\"\nd: []", true),
            ("t[2]{a,b_c}:\n  1,x\n  \"\",\"\\n\"\nomitted: 3", true),
            ("a: \"\\u003c/event>\"", true),
            ("a: \u{e9} \u{2713}", true),
            ("", false),
            ("a: 1\n", false),
            ("\na: 1", false),
            ("a:", false),
            ("a: ", false),
            ("a:  1", false),
            ("a: 1 ", false),
            ("a: 1\na: 2", false),
            ("a: x,y", false),
            ("a: x: y", false),
            ("a: \"x\"", false),
            ("a: \"x\"y", false),
            ("a: \"x: y", false),
            ("a: \"\\u0041:\"", false),
            ("a: \"\\ud800\"", false),
            ("a: \"/\\/:\"", false),
            ("a: 01", false),
            ("a: 1.0", false),
            ("a: 1e3", false),
            ("a: -0", false),
            ("a: 1234567890123456789", false),
            ("a: <event>", false),
            ("a: x\r", false),
            ("a[2]: 1", false),
            ("a[02]: 1,2", false),
            ("a[0]: ", false),
            ("a[1]:\n  - 1", false),
            ("t[1]{a,a}:\n  1,2", false),
            ("t[1]{}:\n  1", false),
            ("t[2]{a}:\n  1", false),
            ("t[1]{a}:\n  1\n  2", false),
            ("t[1]{a}:\n    1", false),
            ("t[1]{a}: 1", false),
            ("t[1]{a,b}:\n  1", false),
            ("t[99999999999999999999]{a}:\n  1", false),
            ("# c\na: 1", false),
            ("\"a b\": 1", false),
            ("a-b: 1", false),
            ("o:\n  a: 1", false),
            ("x", false),
        ] {
            assert_eq!(flat_fields(text).is_some(), is_flat, "{text:?}");
            assert!(is_right_about(text), "{text:?}");
        }
    }

    #[test]
    fn a_document_knows_what_it_is() {
        for (text, form) in
            [("a: 1", Form::Flat), ("o:\n  a: 1", Form::Strict), ("", Form::Strict), ("a[2]: 1", Form::Text)]
        {
            assert_eq!(Document::from(text).form(), form, "{text:?}");
        }
    }

    fn any_scalar() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            (-1_000_000..1_000_000_i32).prop_map(|n| Value::from(f64::from(n) / 64.0)),
            "[ -~\n\t\u{e9}\u{2713}\u{2000}]{0,12}".prop_map(Value::from),
            r#"(<|/|event|user|[0-9]|-|\.|e|\+|true|"|\\|u00|,|: |#){0,5}"#.prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ]
    }

    fn any_flat() -> impl Strategy<Value = Value> {
        let row = (any_scalar(), any_scalar());
        let field = prop_oneof![
            any_scalar(),
            prop::collection::vec(any_scalar(), 0..4).prop_map(Value::from),
            prop::collection::vec(row, 1..4).prop_map(|rows| {
                rows.into_iter().map(|(a, b)| json!({ "a": a, "b.c": b })).collect::<Value>()
            }),
        ];
        prop::collection::vec(("[a-z_]{1,2}", field), 1..5)
            .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>()))
    }

    proptest! {
        #[test]
        fn whatever_it_takes_is_strict_and_canonical(value in any_flat()) {
            let text = encode(&value);
            prop_assert!(is_right_about(&text), "{}", text);
        }

        #[test]
        fn damage_is_never_taken_for_something_else(
            value in any_flat(),
            at in any::<prop::sample::Index>(),
            cut in 0..3_usize,
            put in r#"[ -~\n\r\t]{0,2}|\[1\]|\{a\}|: |  "#,
        ) {
            let chars: Vec<char> = encode(&value).chars().collect();
            let at = at.index(chars.len() + 1);
            let (before, after) = chars.split_at(at);
            let damaged: String =
                before.iter().copied().chain(put.chars()).chain(after.iter().skip(cut).copied()).collect();
            prop_assert!(is_right_about(&damaged), "{}", damaged);
        }
    }
}
