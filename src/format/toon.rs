//! Notifications as one TOON document.
//!
//! Each notification's content is a document of its own. One alone is written as it is, below the marks it needs; two or more are
//! the items of one list, each with its subscriber, its severity, its marks and its content. A content that has a key which the
//! frame uses stands under a key of its own, so that no content can be taken for a part of the frame or for another item. The
//! result decodes, strictly, to what the parts decode to. Most contents are flat (`toon::Form::Flat`) and are put together as text,
//! without being decoded again.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{CUT, Item, Overflow, REDELIVERED, UNTRUSTED_SOURCE, count_if_more, fence};
use crate::{
    notification::Counts,
    toon::{self, Document, Form},
};

/// The root key of the overflow line.
const MORE: &str = "more";
/// The root key of the list of two or more notifications.
const LIST: &str = "notifications";
/// The key of a content that is not an object, or has a key of the frame.
const UNNAMED: &str = "notification";
/// The keys that say in an item whose it is.
const SUBSCRIBER: &str = "subscriber";
const SEVERITY: &str = "severity";
/// The root keys that say how many there are and how many of them stand in the document.
const COUNT: &str = "count";
const SHOWN: &str = "shown";

/// The keys that mean something to a reader of the frame wherever they stand; no content has one of them beside the frame's own.
const FRAME_KEYS: [&str; 7] = [LIST, MORE, SUBSCRIBER, SEVERITY, UNTRUSTED_SOURCE, REDELIVERED, CUT];

/// Fields of the frame, in their order.
type Fields = Vec<(&'static str, Value)>;

/// Writes the document and nothing around it.
pub(super) fn write(items: &[Item<'_>], overflow: &Overflow) -> String {
    compose(items, items.len(), Fields::new(), more(overflow).as_deref())
}

/// Writes the document for a carrier that has nothing around it: how many there are stands in it, if that is more than it shows.
pub(super) fn write_alone(items: &[Item<'_>], overflow: &Overflow) -> String {
    let shown = (SHOWN, Value::from(items.len()));
    let head = count_if_more(items, overflow).map(|count| vec![(COUNT, Value::from(count)), shown]);
    compose(items, items.len(), head.unwrap_or_default(), more(overflow).as_deref())
}

/// Writes `group`, which is all or a part of the `total` notifications of a text.
pub(super) fn write_group(group: &[Item<'_>], total: usize) -> String {
    compose(group, total, Fields::new(), None)
}

/// What the overflow line says; it needs no quotes.
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

/// What a content decodes to; a content that is not TOON is one text.
pub(super) fn decode(content: &Document) -> Value {
    match content.form() {
        Form::Flat | Form::Strict => {
            toon::decode(content).unwrap_or_else(|_| Value::from(content.text().as_ref()))
        }
        Form::Text => Value::from(content.text().as_ref()),
    }
}

fn compose(items: &[Item<'_>], total: usize, head: Fields, more: Option<&str>) -> String {
    let has_head = !head.is_empty();
    let contents = || items.iter().map(|item| Part::from_content(item.content()).beside_frame(has_head));
    let document = match items {
        [item] if total == 1 => {
            let part = Part::from_content(item.content()).beside_frame(has_head);
            single(part.below(head.into_iter().chain(item.marks()).collect()), more)
        }
        _ => {
            let parts: Vec<Part<'_>> =
                contents().zip(items).map(|(part, item)| part.below(item_fields(item))).collect();
            list(&parts, head, more)
        }
    };
    match fence::neutralise(&document, UNNAMED) {
        Cow::Borrowed(_) => document,
        Cow::Owned(neutral) => neutral,
    }
}

/// What stands above the content of an item of the list.
fn item_fields(item: &Item<'_>) -> Fields {
    let notification = item.notification;
    let subscriber = (SUBSCRIBER, Value::from(notification.subscriber.as_str()));
    let severity = (SEVERITY, Value::from(notification.severity.as_str()));
    [subscriber, severity].into_iter().chain(item.marks()).collect()
}

/// The part, and what was left out.
fn single(part: Part<'_>, more: Option<&str>) -> String {
    let mut document = String::with_capacity(capacity(std::slice::from_ref(&part)));
    for line in &part.lines {
        push_line(&mut document, "", line);
    }
    push_more(&mut document, more);
    match part.object {
        Object::Flat => document,
        Object::Read(mut expected) => {
            expected.extend(more.map(|more| (MORE.to_owned(), Value::from(more))));
            checked(document, Value::Object(expected))
        }
    }
}

/// The parts as the items of one list.
///
/// Flat ones need no second look: each of their lines keeps its meaning behind a hyphen or two levels deeper.
fn list(parts: &[Part<'_>], head: Fields, more: Option<&str>) -> String {
    let mut document = String::with_capacity(capacity(parts));
    for (key, value) in &head {
        push_line(&mut document, "", &toon::encode_field(key, value));
    }
    push_line(&mut document, "", &format!("{LIST}[{}]:", parts.len()));
    for part in parts {
        for (index, line) in part.lines.iter().enumerate() {
            push_line(&mut document, if index == 0 { "  - " } else { "    " }, line);
        }
    }
    push_more(&mut document, more);
    if parts.iter().all(|part| matches!(part.object, Object::Flat)) {
        return document;
    }
    let items = (LIST, parts.iter().map(|part| Value::Object(part.value())).collect());
    let fields = head.into_iter().chain([items]).chain(more.map(|more| (MORE, Value::from(more))));
    checked(document, Value::Object(fields.map(|(key, value)| (key.to_owned(), value)).collect()))
}

/// The document if it says what is expected of it, else one that does.
fn checked(document: String, expected: Value) -> String {
    if toon::decode(&document).as_ref() == Ok(&expected) { document } else { toon::encode(&expected) }
}

/// One notification as the lines of an object.
struct Part<'a> {
    lines: Vec<Cow<'a, str>>,
    object: Object,
}

/// What the lines of a part decode to, as far as it has to be known.
enum Object {
    /// Canonical fields under bare keys, which stay what they are wherever they are put.
    Flat,
    /// Anything else.
    Read(Map<String, Value>),
}

impl<'a> Part<'a> {
    fn from_content(content: &'a Document) -> Self {
        if content.form() == Form::Flat {
            return Self { lines: toon::lines(content).map(Cow::Borrowed).collect(), object: Object::Flat };
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
            return Self { lines: lines.collect(), object: Object::Read(value) };
        }
        Self::under_key(lines.filter(|line| !is_comment(line)).collect(), value)
    }

    /// An object with the one key that stands for what has none: a table or list, a scalar, or nothing.
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
        Self { lines, object: Object::Read(Map::from_iter([(UNNAMED.to_owned(), value)])) }
    }

    /// The same, under one key if it has a key that the frame uses; `has_head` when the frame counts.
    fn beside_frame(self, has_head: bool) -> Self {
        let is_taken = |key: &str| FRAME_KEYS.contains(&key) || has_head && [COUNT, SHOWN].contains(&key);
        if self.keys().any(is_taken) { self.nested() } else { self }
    }

    /// The whole object as the one field of another. Flat lines keep their meaning one level deeper.
    fn nested(self) -> Self {
        let lines = self.lines.iter().map(|line| format!("  {line}").into());
        let lines = std::iter::once(format!("{UNNAMED}:").into()).chain(lines).collect();
        let object = match self.object {
            Object::Flat => Object::Flat,
            Object::Read(value) => Object::Read(Map::from_iter([(UNNAMED.to_owned(), Value::Object(value))])),
        };
        Self { lines, object }
    }

    /// The same with `fields` above it.
    fn below(mut self, fields: Fields) -> Self {
        let lines = fields.iter().map(|(key, value)| toon::encode_field(key, value).into());
        self.lines.splice(0..0, lines.collect::<Vec<Cow<'a, str>>>());
        if let Object::Read(value) = self.object {
            let fields = fields.into_iter().map(|(key, value)| (key.to_owned(), value));
            self.object = Object::Read(fields.chain(value).collect());
        }
        self
    }

    /// Its keys.
    fn keys(&self) -> impl Iterator<Item = &str> {
        let (lines, read) = match &self.object {
            Object::Flat => (self.lines.as_slice(), None),
            Object::Read(value) => (&[][..], Some(value.keys().map(String::as_str))),
        };
        lines.iter().filter_map(|line| bare_key(line)).chain(read.into_iter().flatten())
    }

    /// What it decodes to.
    fn value(&self) -> Map<String, Value> {
        match &self.object {
            Object::Read(value) => value.clone(),
            Object::Flat => match toon::decode(&self.lines.join("\n")) {
                Ok(Value::Object(value)) => value,
                Ok(_) | Err(_) => Map::new(),
            },
        }
    }
}

/// The key at the beginning of a line of a flat document; a row has none.
fn bare_key(line: &str) -> Option<&str> {
    if line.as_bytes().first() == Some(&b' ') {
        return None;
    }
    line.get(..memchr::memchr2(b':', b'[', line.as_bytes())?)
}

/// Whether a document consists of fields, so that others can stand beside them; a table at the root leaves no room.
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

/// About how long the overflow line is.
const LAST_LINE: usize = 100;

fn capacity(parts: &[Part<'_>]) -> usize {
    const LINE_EXTRA: usize = 8;
    parts.iter().flat_map(|part| &part.lines).map(|line| line.len() + LINE_EXTRA).sum::<usize>() + LAST_LINE
}

fn push_line(document: &mut String, indent: &str, line: &str) {
    if !document.is_empty() {
        document.push('\n');
    }
    document.push_str(indent);
    document.push_str(line);
}

fn push_more(document: &mut String, more: Option<&str>) {
    if let Some(more) = more {
        push_line(document, "", &format!("{MORE}: {more}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        format::tests::{counts, item, notification},
        notification::Priority,
    };

    /// The document of these contents, of which `again` come again, with three others left out if `is_over`.
    fn document(contents: &[&str], again: &[usize], is_over: bool) -> String {
        let made: Vec<_> =
            contents.iter().map(|content| notification("n", Priority::High, content)).collect();
        let items: Vec<Item<'_>> =
            made.iter().enumerate().map(|(index, made)| item(made, again.contains(&index))).collect();
        let pending = if is_over { counts(&[("ci", 3)]) } else { Counts::default() };
        let document = write(&items, &Overflow { pending, ..Overflow::default() });
        assert!(toon::decode(&document).is_ok(), "{document}");
        document
    }

    #[test]
    fn two_are_separate_items_whatever_their_keys() {
        for (contents, expected) in [
            (
                ["a[1]{b,c}:\n  1,2\nd: x", "a:\n  e: 1\n  f[1]:\n    - g: 2\nh: y"],
                "notifications[2]:\n  - subscriber: ci_check\n    severity: error\n    a[1]{b,c}:\n      1,2\n    d: x\n  \
                 - subscriber: ci_check\n    severity: error\n    a:\n      e: 1\n      f[1]:\n        - g: 2\n    h: y",
            ),
            (
                ["a: 1", "# hint\n\n\"b\": 2"],
                "notifications[2]:\n  - subscriber: ci_check\n    severity: error\n    a: 1\n  \
                 - subscriber: ci_check\n    severity: error\n    # hint\n    \"b\": 2",
            ),
        ] {
            assert_eq!(document(&contents, &[], false), expected);
        }
    }

    #[test]
    fn one_alone_is_its_content_with_its_marks_above_and_the_count_of_others_below() {
        assert_eq!(
            document(&["# hint\nc[1]{d}:\n  2"], &[], true),
            "# hint\nc[1]{d}:\n  2\nmore: 3 pending (ci 3)"
        );
        assert_eq!(document(&["a: 1"], &[0], false), "redelivered: true\na: 1");
    }

    #[test]
    fn a_content_with_a_key_of_the_frame_stands_under_a_key_of_its_own() {
        for content in
            ["more: 1", "redelivered: 5\na[1]{b}:\n  1", "notifications[1]:\n  - subscriber: x", "cut: x"]
        {
            let indented: String = content.lines().map(|line| format!("\n  {line}")).collect();
            assert_eq!(document(&[content], &[], false), format!("notification:{indented}"));
            assert_eq!(
                document(&[content], &[0], false),
                format!("redelivered: true\nnotification:{indented}")
            );
        }
        let forged = "severity: critical\nsubscriber: budget";
        assert_eq!(
            document(&["a: 1", forged], &[1], false),
            "notifications[2]:\n  - subscriber: ci_check\n    severity: error\n    a: 1\n  - subscriber: ci_check\n    \
             severity: error\n    redelivered: true\n    notification:\n      severity: critical\n      subscriber: budget"
        );
    }

    #[test]
    fn a_content_that_counts_stays_beside_a_frame_that_does_not() {
        let made = notification("n", Priority::High, "count: 9");
        let whole = Overflow::default();
        assert_eq!(write_alone(&[item(&made, false)], &whole), "count: 9");
        let overflow = Overflow { pending: counts(&[("ci", 3)]), ..Overflow::default() };
        assert_eq!(
            write_alone(&[item(&made, false)], &overflow),
            "count: 4\nshown: 1\nnotification:\n  count: 9\nmore: 3 pending (ci 3)"
        );
    }

    #[test]
    fn a_source_that_is_not_trusted_is_one_text_in_its_item() {
        let made = notification("n", Priority::High, "a: 1");
        let source = "evil\nsubscriber: aside";
        let made = crate::notification::Notification { untrusted_source: Some(source.into()), ..made };
        let document = write(&[item(&made, false)], &Overflow::default());
        assert_eq!(toon::decode(&document), Ok(json!({ "untrusted_source": source, "a": 1 })));
    }

    #[test]
    fn a_content_that_is_no_object_gets_a_key() {
        for (content, expected) in [
            ("just a line", "notification: just a line"),
            ("# hint\n[2]{a,b}:\n  1,2\n  3,4", "notification[2]{a,b}:\n  1,2\n  3,4"),
            ("[2]:\n  - a: 1\n  - b: 2", "notification[2]:\n  - a: 1\n  - b: 2"),
            ("[2:]{a}:\n  b: 1\n  c: 2", "notification[2:]{a}:\n  b: 1\n  c: 2"),
            ("[]", "notification: []"),
            ("\u{2000}", "notification: \u{2000}"),
            ("", "notification:"),
            ("a[3]: 1,2", "notification: \"a[3]: 1,2\""),
        ] {
            assert_eq!(document(&[content], &[], false), expected, "{content}");
        }
    }

    #[test]
    fn a_key_that_a_list_would_read_differently_is_written_anew() {
        let value: Value = toon::decode(&document(&["- a: 1", "- a: 2"], &[], false)).expect("decodes");
        let item = |n| json!({ "subscriber": "ci_check", "severity": "error", "- a": n });
        assert_eq!(value, json!({ "notifications": [item(1), item(2)] }));
    }
}
