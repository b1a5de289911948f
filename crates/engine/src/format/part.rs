//! One notification in a TOON document: fields of the frame, and a content below them.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{
    Item,
    item::{CUT, REDELIVERED},
};
use toon::{Document, Form};

use crate::notification::UNTRUSTED_SOURCE;

/// The root key of the overflow line.
pub(super) const MORE: &str = "more";
/// The root key of the list of two or more notifications.
pub(super) const LIST: &str = "notifications";
/// The key for a content that is not an object, or has a key of the frame.
pub(super) const UNNAMED: &str = "notification";
/// The keys of an item that identify it.
pub(super) const SUBSCRIBER: &str = "subscriber";
pub(super) const SEVERITY: &str = "severity";
/// The root keys for the total, and the number shown.
pub(super) const COUNT: &str = "count";
pub(super) const SHOWN: &str = "shown";

/// The keys of the frame at any level; a content with one of them is nested.
pub(super) const FRAME_KEYS: [&str; 7] =
    [LIST, MORE, SUBSCRIBER, SEVERITY, UNTRUSTED_SOURCE, REDELIVERED, CUT];

/// The frame's fields, in order.
pub(super) type Fields<'a> = Vec<(&'static str, Said<'a>)>;

/// The value of a frame field.
#[derive(Clone, PartialEq)]
pub(super) enum Said<'a> {
    Word(&'a str),
    Value(Value),
}

impl Said<'_> {
    fn write(&self, out: &mut String) {
        match self {
            Self::Word(word) => toon::write_text(out, word),
            Self::Value(value) => toon::write_scalar(out, value),
        }
    }

    fn to_value(&self) -> Value {
        match self {
            Self::Word(word) => Value::from(*word),
            Self::Value(value) => value.clone(),
        }
    }
}

/// The decoded content; a content that is not TOON becomes one text.
pub(super) fn decode(content: &Document) -> Value {
    match content.form() {
        Form::Flat | Form::Strict => {
            toon::decode(content).unwrap_or_else(|_| Value::from(content.text().as_ref()))
        }
        Form::Text => Value::from(content.text().as_ref()),
    }
}

pub(super) fn values(fields: &Fields<'_>) -> impl Iterator<Item = (String, Value)> {
    fields.iter().map(|(key, said)| ((*key).to_owned(), said.to_value()))
}

/// One notification as an object.
#[derive(Clone)]
pub(super) struct Part<'a> {
    /// The fields above its content.
    above: Fields<'a>,
    /// Whether its content is nested as the only field of another object.
    is_nested: bool,
    content: Content<'a>,
}

/// The lines of a content, with the decoded value if it is needed.
#[derive(Clone)]
enum Content<'a> {
    /// Canonical fields under bare keys, whose lines have the same meaning in any position.
    Flat(&'a str),
    /// Any other content.
    Read { lines: Vec<Cow<'a, str>>, value: Map<String, Value> },
}

impl<'a> Part<'a> {
    fn new(content: Content<'a>) -> Self {
        Self { above: Fields::new(), is_nested: false, content }
    }

    /// Places the content of `item` below `above`, nested under one key if it has a key of the
    /// frame, which are also those of its `counts`.
    pub(super) fn of_item(item: &Item<'a>, above: Fields<'a>, counts: &[&str]) -> Self {
        let is_taken = |key: &str| FRAME_KEYS.contains(&key) || counts.contains(&key);
        let part = Self::from_content(item.content());
        let is_nested = match &part.content {
            Content::Flat(text) => toon::lines(text).filter_map(bare_key).any(is_taken),
            Content::Read { value, .. } => value.keys().any(|key| is_taken(key)),
        };
        Self { above, is_nested, ..part }
    }

    /// The same below other fields.
    pub(super) fn below(self, above: Fields<'a>) -> Self {
        Self { above, ..self }
    }

    fn from_content(content: &'a Document) -> Self {
        if content.form() == Form::Flat {
            return Self::new(Content::Flat(content));
        }
        let lines = content.lines().filter(|line| !is_blank(line)).map(Cow::Borrowed);
        if content.form() == Form::Text {
            let mut quoted = String::new();
            toon::write_quoted(&mut quoted, content);
            return Self::under_key(vec![quoted.into()], Value::from(content.text().as_ref()));
        }
        let value = decode(content);
        if has_fields(content)
            && let Value::Object(value) = value
        {
            return Self::new(Content::Read { lines: lines.collect(), value });
        }
        Self::under_key(lines.filter(|line| !is_comment(line)).collect(), value)
    }

    /// Makes an object, with a key, of a value that has no key: a table or list, a scalar, or
    /// nothing.
    fn under_key(mut lines: Vec<Cow<'a, str>>, value: Value) -> Self {
        let prefix = match &value {
            Value::Object(fields) if fields.is_empty() => format!("{UNNAMED}:"),
            Value::Array(items) if items.is_empty() => format!("{UNNAMED}: "),
            Value::Object(_) | Value::Array(_) => UNNAMED.to_owned(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => format!("{UNNAMED}: "),
        };
        match lines.first_mut() {
            Some(first) => *first = format!("{prefix}{first}").into(),
            None => lines.push(prefix.into()),
        }
        Self::new(Content::Read { lines, value: Map::from_iter([(UNNAMED.to_owned(), value)]) })
    }

    /// The keys of a flat content and its values, as they are written; `None` if one is not a
    /// scalar. Nothing is decoded: a scalar is written in a row as in a field.
    pub(super) fn scalars(&self) -> Option<Vec<(&'a str, &'a str)>> {
        match self.content {
            Content::Flat(text) if !self.is_nested => toon::lines(text).map(scalar_field).collect(),
            Content::Flat(_) | Content::Read { .. } => None,
        }
    }

    /// Whether its lines have the same meaning in any position.
    pub(super) fn is_flat(&self) -> bool {
        matches!(self.content, Content::Flat(_))
    }

    /// Appends its lines, the first one after `first` and the others after `others`.
    pub(super) fn write(&self, document: &mut String, first: &str, others: &str) {
        let mut indent = first;
        let mut next_indent = || std::mem::replace(&mut indent, others);
        for (key, said) in &self.above {
            push_field(document, next_indent(), key, said);
        }
        if self.is_nested {
            push_line(document, next_indent(), UNNAMED);
            document.push(':');
        }
        let mut push = |line: &str| {
            begin_line(document, next_indent());
            document.push_str(if self.is_nested { "  " } else { "" });
            document.push_str(line);
        };
        match &self.content {
            Content::Flat(text) => toon::lines(text).for_each(push),
            Content::Read { lines, value: _ } => lines.iter().for_each(|line| push(line)),
        }
    }

    /// The decoded value.
    pub(super) fn value(&self) -> Map<String, Value> {
        let own = match &self.content {
            Content::Read { lines: _, value } => value.clone(),
            Content::Flat(text) => match toon::decode(text) {
                Ok(Value::Object(value)) => value,
                Ok(_) | Err(_) => Map::new(),
            },
        };
        let own =
            if self.is_nested { Map::from_iter([(UNNAMED.to_owned(), Value::Object(own))]) } else { own };
        values(&self.above).chain(own).collect()
    }
}

/// The key at the start of a line of a flat document; `None` for a row.
fn bare_key(line: &str) -> Option<&str> {
    if line.as_bytes().first() == Some(&b' ') {
        return None;
    }
    line.get(..memchr::memchr2(b':', b'[', line.as_bytes())?)
}

/// The key and the value of a line of a flat document; `None` if the value is not a scalar.
fn scalar_field(line: &str) -> Option<(&str, &str)> {
    let key = bare_key(line)?;
    // In a row, an empty list would be the text of its brackets.
    let value = line.get(key.len()..)?.strip_prefix(": ").filter(|value| *value != "[]")?;
    Some((key, value))
}

/// Whether a document consists of fields, so that more can be added; a table at the root does not.
fn has_fields(content: &str) -> bool {
    let first = content.lines().find(|line| !is_blank(line) && !is_comment(line));
    first.is_some_and(|line| !line.starts_with('['))
}

fn is_blank(line: &str) -> bool {
    line.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
}

fn is_comment(line: &str) -> bool {
    line.trim_start_matches([' ', '\t']).starts_with('#')
}

/// The approximate length of the overflow line.
const LAST_LINE: usize = 100;

/// Enough for the fields above each part, and for its lines with indentation, which about doubles
/// short lines.
pub(super) fn capacity<'p, 'a: 'p>(parts: impl Iterator<Item = &'p Part<'a>>) -> usize {
    const FIELDS: usize = 64;
    let length = |part: &Part<'_>| match &part.content {
        Content::Flat(text) => 2 * text.len(),
        Content::Read { lines, value: _ } => lines.iter().map(|line| 2 * line.len()).sum(),
    };
    parts.map(|part| FIELDS + length(part)).sum::<usize>() + LAST_LINE
}

fn begin_line(document: &mut String, indent: &str) {
    if !document.is_empty() {
        document.push('\n');
    }
    document.push_str(indent);
}

pub(super) fn push_line(document: &mut String, indent: &str, line: &str) {
    begin_line(document, indent);
    document.push_str(line);
}

/// Appends a field of the frame; its key needs no quotes.
pub(super) fn push_field(document: &mut String, indent: &str, key: &'static str, said: &Said<'_>) {
    push_line(document, indent, key);
    document.push_str(": ");
    said.write(document);
}

pub(super) fn push_more(document: &mut String, more: Option<&str>) {
    if let Some(more) = more {
        push_line(document, "", &format!("{MORE}: {more}"));
    }
}
