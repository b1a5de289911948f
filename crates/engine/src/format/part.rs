//! One notification in a TOON document, with fields of the frame and a content below them; and groups
//! of notifications with equal fields.
//!
//! The contents of a group are a table if they have the same keys with scalar values, else a list.
//! A group is used only where its text is shorter than that of its items with a head each.

use std::borrow::Cow;

use serde_json::{Map, Value};
use toon::{Document, Form};

use super::{
    Item,
    item::{CUT, REDELIVERED},
};
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
pub(super) type Fields<'a> = Vec<(&'static str, FrameValue<'a>)>;

/// The value of a frame field.
#[derive(Clone, PartialEq)]
pub(super) enum FrameValue<'a> {
    Word(&'a str),
    Value(Value),
}

impl FrameValue<'_> {
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
    pub(super) fn from_item(item: &Item<'a>, above: Fields<'a>, counts: &[&str]) -> Self {
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
pub(super) fn push_field(document: &mut String, indent: &str, key: &'static str, said: &FrameValue<'_>) {
    push_line(document, indent, key);
    document.push_str(": ");
    said.write(document);
}

pub(super) fn push_more(document: &mut String, more: Option<&str>) {
    if let Some(more) = more {
        push_line(document, "", &format!("{MORE}: {more}"));
    }
}

/// An item of the list.
pub(super) enum Entry<'a> {
    /// A notification below its head.
    One(Part<'a>),
    /// Two or more below one head.
    Many(Group<'a>),
}

/// Two or more notifications with one head.
pub(super) struct Group<'a> {
    pub(super) head: Fields<'a>,
    parts: Vec<Part<'a>>,
    /// The rows, if the parts are a table.
    rows: Option<Rows<'a>>,
}

/// The names of columns, and the cells of each row, as they are written.
struct Rows<'a> {
    names: Vec<&'a str>,
    cells: Vec<Vec<&'a str>>,
}

/// The items in their order, each part with its head; equal heads that follow each other once.
pub(super) fn entries<'a>(parts: impl Iterator<Item = (Fields<'a>, Part<'a>)>) -> Vec<Entry<'a>> {
    let mut groups: Vec<(Fields<'a>, Vec<Part<'a>>)> = Vec::new();
    for (head, part) in parts {
        match groups.last_mut() {
            Some((last, parts)) if *last == head => parts.push(part),
            Some(_) | None => groups.push((head, vec![part])),
        }
    }
    let is_only = groups.len() == 1;
    groups.into_iter().flat_map(|(head, parts)| shortest(head, parts, is_only)).collect()
}

/// One entry with all parts, or one for each if that is shorter. The only group of a list is not
/// indented, so it is never longer.
fn shortest<'a>(head: Fields<'a>, parts: Vec<Part<'a>>, is_only: bool) -> Vec<Entry<'a>> {
    let below = |part: Part<'a>| Entry::One(part.below(head.clone()));
    if parts.len() == 1 {
        return parts.into_iter().map(below).collect();
    }
    let together = vec![Entry::Many(Group { rows: table(&parts), head: head.clone(), parts: parts.clone() })];
    if is_only {
        return together;
    }
    let apart: Vec<Entry<'a>> = parts.into_iter().map(below).collect();
    if length(&together) < length(&apart) { together } else { apart }
}

fn length(entries: &[Entry<'_>]) -> usize {
    let mut text = String::new();
    entries.iter().for_each(|entry| entry.write(&mut text, "  - ", "    "));
    text.len()
}

/// The parts as rows; `None` if they have different keys, or a value that is not a scalar.
fn table<'a>(parts: &[Part<'a>]) -> Option<Rows<'a>> {
    let (names, first): (Vec<&str>, Vec<&str>) = parts.first()?.scalars()?.into_iter().unzip();
    let mut cells = vec![first];
    for part in parts.iter().skip(1) {
        let (keys, row): (Vec<&str>, Vec<&str>) = part.scalars()?.into_iter().unzip();
        if keys != names {
            return None;
        }
        cells.push(row);
    }
    Some(Rows { names, cells })
}

impl<'a> Entry<'a> {
    pub(super) fn parts(&self) -> &[Part<'a>] {
        match self {
            Self::One(part) => std::slice::from_ref(part),
            Self::Many(group) => &group.parts,
        }
    }

    /// Appends its lines, the first one after `first` and the others after `others`.
    pub(super) fn write(&self, document: &mut String, first: &str, others: &str) {
        match self {
            Self::One(part) => part.write(document, first, others),
            Self::Many(group) => {
                let indents = std::iter::once(first).chain(std::iter::repeat(others));
                for ((key, said), indent) in group.head.iter().zip(indents) {
                    push_field(document, indent, key, said);
                }
                group.write_list(document, others);
            }
        }
    }

    pub(super) fn value(&self) -> Map<String, Value> {
        match self {
            Self::One(part) => part.value(),
            Self::Many(group) => values(&group.head).chain([(LIST.to_owned(), group.values())]).collect(),
        }
    }
}

impl Group<'_> {
    /// Appends the contents as one list, after `indent`.
    pub(super) fn write_list(&self, document: &mut String, indent: &str) {
        if let Some(Rows { names, cells }) = &self.rows {
            let mut table = String::new();
            toon::write_table(&mut table, LIST, names, cells.len(), |out, row, column| {
                let cell = cells.get(row).and_then(|row| row.get(column));
                out.push_str(cell.expect("each row has a cell for each name"));
            });
            return toon::lines(&table).for_each(|line| push_line(document, indent, line));
        }
        push_line(document, indent, &format!("{LIST}[{}]:", self.parts.len()));
        let (first, others) = (format!("{indent}  - "), format!("{indent}    "));
        self.parts.iter().for_each(|part| part.write(document, &first, &others));
    }

    pub(super) fn values(&self) -> Value {
        self.parts.iter().map(|part| Value::Object(part.value())).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        event::Severity,
        exchange::Format,
        format::{
            Item,
            tests::{notification, written_as},
        },
        notification::{Notification, Priority, SubscriberId},
    };

    fn written(made: &[(&str, &str)]) -> String {
        let made: Vec<Notification> = made
            .iter()
            .map(|(subscriber, content)| Notification {
                subscriber: SubscriberId::new(subscriber),
                severity: Severity::Info,
                untrusted_source: Some("ci/x".into()),
                ..notification("n", Priority::High, content)
            })
            .collect();
        let items: Vec<Item<'_>> = made
            .iter()
            .map(|notification| Item { notification, redelivered: false, cut: None, reminder: 0 })
            .collect();
        let text = written_as(Format::Toon, &items);
        text.strip_prefix("injection: 7fq2kd\n").expect("the id first").to_owned()
    }

    #[test]
    fn equal_heads_are_written_once() {
        let nested = "rows[2]{a,b}:\n  1,2\n  3,4";
        for (what, made, expected) in [
            (
                "facts with one key",
                &[("single", "fact: one"), ("single", "fact: \"a, b\""), ("single", "fact: 3")][..],
                "subscriber: single\nuntrusted_source: ci/x\n\
                 notifications[3]{fact}:\n  one\n  \"a, b\"\n  3",
            ),
            (
                "contents with other keys",
                &[("single", "fact: one"), ("single", nested)],
                "subscriber: single\nuntrusted_source: ci/x\nnotifications[2]:\n  - fact: one\n  \
                 - rows[2]{a,b}:\n      1,2\n      3,4",
            ),
            (
                "an empty list, which a cell would make a text",
                &[("single", "fact: one"), ("single", "fact: []")],
                "subscriber: single\nuntrusted_source: ci/x\nnotifications[2]:\n  - fact: one\n  - fact: []",
            ),
            (
                "a group and another item",
                &[("other", "x: 1"), ("single", "fact: one"), ("single", "fact: two")],
                "notifications[2]:\n  - subscriber: other\n    untrusted_source: ci/x\n    x: 1\n  \
                 - subscriber: single\n    untrusted_source: ci/x\n    \
                 notifications[2]{fact}:\n      one\n      two",
            ),
            (
                "the order stays",
                &[("s", "x: 1"), ("t", "x: 2"), ("s", "x: 3")],
                "notifications[3]:\n  - subscriber: s\n    untrusted_source: ci/x\n    x: 1\n  \
                 - subscriber: t\n    untrusted_source: ci/x\n    x: 2\n  \
                 - subscriber: s\n    untrusted_source: ci/x\n    x: 3",
            ),
            (
                "a content with a key of the frame",
                &[("s", "notifications: 1"), ("s", "notifications: 2")],
                "subscriber: s\nuntrusted_source: ci/x\nnotifications[2]:\n  - notification:\n      \
                 notifications: 1\n  - notification:\n      notifications: 2",
            ),
        ] {
            assert_eq!(written(made), expected, "{what}");
            assert!(toon::decode(expected).is_ok(), "{what}");
        }
    }

    #[test]
    fn ten_facts_cost_one_head() {
        let made: Vec<(&str, String)> = (0..10).map(|n| ("single", format!("fact: number {n}"))).collect();
        let made: Vec<(&str, &str)> = made.iter().map(|(subscriber, fact)| (*subscriber, &**fact)).collect();
        let one = written(&made[..1]).len();
        assert!(written(&made).len() < 5 * one, "{}", written(&made));
    }

    #[test]
    fn a_group_is_never_longer() {
        let long = (0..40).map(|n| format!("k{n}: {n}")).collect::<Vec<_>>().join("\n");
        let made = [("other", "x: 1"), ("s", &*long), ("s", &*format!("{long}\nlast: 1"))];
        assert_eq!(written(&made).matches("subscriber: s\n").count(), 2);
    }
}
