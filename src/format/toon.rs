//! Writes notifications as one TOON document.
//!
//! Each notification's content is a document. A single content is written unchanged, below its
//! marks; two or more are items of one list, each with its subscriber, its severity unless that is
//! `info`, its marks and its content. A content with a key of the frame is nested under a separate key, so that no
//! content can imitate the frame or another item. The result decodes strictly to the values of its
//! parts. Most contents are flat (`toon::Form::Flat`) and are joined as text, without decoding.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{
    Item, Overflow, fence,
    item::{CUT, NOT_RUN_KEY, REDELIVERED, count_if_more},
};
use crate::{
    exchange::{NOT_RUN, Replaces},
    notification::{Counts, UNTRUSTED_SOURCE},
    toon::{self, Document, Form},
};

/// The root key of the overflow line.
const MORE: &str = "more";
/// The root key of the list of two or more notifications.
const LIST: &str = "notifications";
/// The key for a content that is not an object, or has a key of the frame.
const UNNAMED: &str = "notification";
/// The keys of an item that identify it.
const SUBSCRIBER: &str = "subscriber";
const SEVERITY: &str = "severity";
/// The root keys for the total, and the number shown.
const COUNT: &str = "count";
const SHOWN: &str = "shown";

/// The keys of the frame at any level; a content with one of them is nested.
const FRAME_KEYS: [&str; 7] = [LIST, MORE, SUBSCRIBER, SEVERITY, UNTRUSTED_SOURCE, REDELIVERED, CUT];

/// The frame's fields, in order.
type Fields<'a> = Vec<(&'static str, Said<'a>)>;

/// The value of a frame field.
#[derive(Clone)]
enum Said<'a> {
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

/// Writes the document alone.
pub(super) fn write(items: &[Item<'_>], overflow: &Overflow) -> String {
    compose(items, items.len(), Fields::new(), more(overflow).as_deref())
}

/// Writes the document for a carrier without a wrapper, with the total if it exceeds the number
/// shown.
pub(super) fn write_alone(items: &[Item<'_>], overflow: &Overflow, replaces: Replaces) -> String {
    let number = |number: u64| Said::Value(Value::from(number));
    let mut head = Fields::new();
    if replaces == Replaces::Call {
        head.push((NOT_RUN_KEY, Said::Word(NOT_RUN)));
    }
    if let Some(count) = count_if_more(items, overflow) {
        head.extend([(COUNT, number(count)), (SHOWN, number(items.len() as u64))]);
    }
    compose(items, items.len(), head, more(overflow).as_deref())
}

/// Writes `group`, which is all or a part of the `total` notifications of a text.
pub(super) fn write_group(group: &[Item<'_>], total: usize) -> String {
    compose(group, total, Fields::new(), None)
}

/// The value of the overflow line, which needs no quotes.
fn more(overflow: &Overflow) -> Option<String> {
    let say = |counts: &Counts, what: &str| match (counts.total(), counts.named()) {
        (0, _) => None,
        (total, []) => Some(format!("{total} {what}")),
        (total, _) => Some(format!("{total} {what} ({counts})")),
    };
    let pending = say(&overflow.pending, "pending");
    let said: Vec<String> = pending.into_iter().chain(say(&overflow.evicted, "events evicted")).collect();
    (!said.is_empty()).then(|| said.join("; "))
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

fn compose(items: &[Item<'_>], total: usize, head: Fields<'_>, more: Option<&str>) -> String {
    let counts: &[&str] = if head.is_empty() { &[] } else { &[NOT_RUN_KEY, COUNT, SHOWN] };
    let document = match items {
        [item] if total == 1 => {
            let above = head.into_iter().chain(marks(item)).collect();
            single(&Part::of_item(item, above, counts), more)
        }
        _ => {
            let part = |item| Part::of_item(item, item_fields(item), counts);
            list(&items.iter().map(part).collect::<Vec<Part<'_>>>(), &head, more)
        }
    };
    match fence::neutralise(&document, UNNAMED) {
        Cow::Borrowed(_) => document,
        Cow::Owned(neutral) => neutral,
    }
}

/// The fields above the content of a list item.
fn item_fields<'a>(item: &Item<'a>) -> Fields<'a> {
    let notification = item.notification;
    let subscriber = (SUBSCRIBER, Said::Word(notification.subscriber.as_str()));
    let severity = item.severity().map(|severity| (SEVERITY, Said::Word(severity)));
    [subscriber].into_iter().chain(severity).chain(marks(item)).collect()
}

fn marks<'a>(item: &Item<'a>) -> impl Iterator<Item = (&'static str, Said<'a>)> {
    item.marks().map(|(key, value)| (key, Said::Value(value)))
}

/// Writes the part, and the overflow.
fn single(part: &Part<'_>, more: Option<&str>) -> String {
    let mut document = String::with_capacity(capacity(std::slice::from_ref(part)));
    part.write(&mut document, "", "");
    push_more(&mut document, more);
    if part.is_flat() {
        return document;
    }
    let mut expected = part.value();
    expected.extend(more.map(|more| (MORE.to_owned(), Value::from(more))));
    checked(document, Value::Object(expected))
}

/// Writes the parts as the items of one list.
///
/// Flat parts need no check: each of their lines keeps its meaning after a hyphen or when indented
/// by two levels.
fn list(parts: &[Part<'_>], head: &Fields<'_>, more: Option<&str>) -> String {
    let mut document = String::with_capacity(capacity(parts));
    for (key, said) in head {
        push_field(&mut document, "", key, said);
    }
    push_line(&mut document, "", &format!("{LIST}[{}]:", parts.len()));
    for part in parts {
        part.write(&mut document, "  - ", "    ");
    }
    push_more(&mut document, more);
    if parts.iter().all(Part::is_flat) {
        return document;
    }
    let items = (LIST.to_owned(), parts.iter().map(|part| Value::Object(part.value())).collect());
    let more = more.map(|more| (MORE.to_owned(), Value::from(more)));
    checked(document, Value::Object(values(head).chain([items]).chain(more).collect()))
}

fn values(fields: &Fields<'_>) -> impl Iterator<Item = (String, Value)> {
    fields.iter().map(|(key, said)| ((*key).to_owned(), said.to_value()))
}

/// Returns the document if it decodes to the expected value, else encodes that value.
fn checked(document: String, expected: Value) -> String {
    if toon::decode(&document).as_ref() == Ok(&expected) { document } else { toon::encode(&expected) }
}

/// One notification as an object.
struct Part<'a> {
    /// The fields above its content.
    above: Fields<'a>,
    /// Whether its content is nested as the only field of another object.
    is_nested: bool,
    content: Content<'a>,
}

/// The lines of a content, with the decoded value if it is needed.
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
    fn of_item(item: &Item<'a>, above: Fields<'a>, counts: &[&str]) -> Self {
        let is_taken = |key: &str| FRAME_KEYS.contains(&key) || counts.contains(&key);
        let part = Self::from_content(item.content());
        let is_nested = match &part.content {
            Content::Flat(text) => toon::lines(text).filter_map(bare_key).any(is_taken),
            Content::Read { value, .. } => value.keys().any(|key| is_taken(key)),
        };
        Self { above, is_nested, ..part }
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

    /// Whether its lines have the same meaning in any position.
    fn is_flat(&self) -> bool {
        matches!(self.content, Content::Flat(_))
    }

    /// Appends its lines, the first one after `first` and the others after `others`.
    fn write(&self, document: &mut String, first: &str, others: &str) {
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
    fn value(&self) -> Map<String, Value> {
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
fn capacity(parts: &[Part<'_>]) -> usize {
    const FIELDS: usize = 64;
    let length = |part: &Part<'_>| match &part.content {
        Content::Flat(text) => 2 * text.len(),
        Content::Read { lines, value: _ } => lines.iter().map(|line| 2 * line.len()).sum(),
    };
    parts.iter().map(|part| FIELDS + length(part)).sum::<usize>() + LAST_LINE
}

fn begin_line(document: &mut String, indent: &str) {
    if !document.is_empty() {
        document.push('\n');
    }
    document.push_str(indent);
}

fn push_line(document: &mut String, indent: &str, line: &str) {
    begin_line(document, indent);
    document.push_str(line);
}

/// Appends a field of the frame; its key needs no quotes.
fn push_field(document: &mut String, indent: &str, key: &'static str, said: &Said<'_>) {
    push_line(document, indent, key);
    document.push_str(": ");
    said.write(document);
}

fn push_more(document: &mut String, more: Option<&str>) {
    if let Some(more) = more {
        push_line(document, "", &format!("{MORE}: {more}"));
    }
}
