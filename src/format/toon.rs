//! Several notifications as one TOON document.
//!
//! Each notification's content is a document of its own. Where their root keys differ, the documents stand one after the
//! other, which costs nothing; where they meet, or one has to be marked as told again, they become the items of one list.
//! Either way the result decodes, strictly, to what the parts decode to. Most contents are flat (`toon::Form::Flat`) and are
//! put together as text, without being decoded again.

use std::{borrow::Cow, collections::BTreeSet};

use serde_json::{Map, Value, json};

use super::{Item, Overflow, fence};
use crate::toon::{self, Document, Form};

/// The root key of the overflow line.
const MORE: &str = "more";
/// The root key of the list that holds notifications which cannot stand side by side.
const LIST: &str = "notifications";
/// The key of a content that is not an object.
const UNNAMED: &str = "notification";
/// The key that marks a notification which may have been told before.
const REDELIVERED: &str = "redelivered";

/// Writes the document and nothing around it.
pub(super) fn write(items: &[Item<'_>], overflow: &Overflow) -> String {
    let more = more(overflow);
    let joined = flat_side_by_side(items, more.as_deref()).unwrap_or_else(|| {
        let parts: Vec<Part<'_>> = items.iter().map(Part::from_item).collect();
        if can_stand_side_by_side(parts.iter().flat_map(Part::keys), parts.len(), more.is_some()) {
            side_by_side(&parts, more.as_deref())
        } else {
            as_list(&parts, more.as_deref())
        }
    });
    match fence::neutralise(&joined, UNNAMED) {
        Cow::Borrowed(_) => joined,
        Cow::Owned(neutral) => neutral,
    }
}

/// What the overflow line says; it needs no quotes.
fn more(overflow: &Overflow) -> Option<String> {
    let pending = overflow.pending().map(|pending| format!("{} pending ({pending})", pending.total));
    let dropped = overflow.dropped().map(|dropped| format!("{} dropped ({dropped})", dropped.total));
    let said: Vec<String> = pending.into_iter().chain(dropped).collect();
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
    fn from_item(item: &Item<'a>) -> Self {
        let part = Self::from_content(&item.notification.content);
        if item.redelivered { part.marked() } else { part }
    }

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

    /// The whole object as the one field of another.
    fn nested(self) -> Self {
        let value = self.value();
        let lines = self.lines.iter().map(|line| format!("  {line}").into());
        let lines = std::iter::once(format!("{UNNAMED}:").into()).chain(lines).collect();
        Self { lines, object: Object::Read(Map::from_iter([(UNNAMED.to_owned(), Value::Object(value))])) }
    }

    /// The same, saying that it may have been told before.
    fn marked(self) -> Self {
        let is_marked = self.keys().any(|key| key == REDELIVERED);
        let mut part = if is_marked { self.nested() } else { self };
        part.lines.insert(0, format!("{REDELIVERED}: true").into());
        if let Object::Read(value) = part.object {
            let mark = (REDELIVERED.to_owned(), Value::Bool(true));
            part.object = Object::Read(std::iter::once(mark).chain(value).collect());
        }
        part
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

/// Whether no two of so many parts, nor the overflow line, share one of these root keys, and no mark would seem to belong to all.
fn can_stand_side_by_side<'a>(mut keys: impl Iterator<Item = &'a str>, parts: usize, has_more: bool) -> bool {
    let mut known: BTreeSet<&str> = has_more.then_some(MORE).into_iter().collect();
    keys.all(|key| known.insert(key)) && (parts == 1 || !known.contains(REDELIVERED))
}

/// What [`side_by_side`] writes of contents that are all flat and need no mark, without taking them apart; `None` for others, or when
/// they cannot stand so.
fn flat_side_by_side(items: &[Item<'_>], more: Option<&str>) -> Option<String> {
    let contents = || items.iter().map(|item| &item.notification.content);
    let are_flat = contents().all(|content| content.form() == Form::Flat);
    let keys = contents().flat_map(|content| toon::lines(content)).filter_map(bare_key);
    if !are_flat
        || items.iter().any(|item| item.redelivered)
        || !can_stand_side_by_side(keys, items.len(), more.is_some())
    {
        return None;
    }
    let mut document =
        String::with_capacity(contents().map(|content| content.len() + 1).sum::<usize>() + LAST_LINE);
    contents().for_each(|content| push_line(&mut document, "", content));
    push_more(&mut document, more);
    Some(document)
}

fn side_by_side(parts: &[Part<'_>], more: Option<&str>) -> String {
    let mut document = String::with_capacity(capacity(parts));
    for line in parts.iter().flat_map(|part| &part.lines) {
        push_line(&mut document, "", line);
    }
    push_more(&mut document, more);
    document
}

/// The parts as the items of one list.
///
/// Flat ones need no second look: each of their lines keeps its meaning behind a hyphen or two levels deeper.
fn as_list(parts: &[Part<'_>], more: Option<&str>) -> String {
    let mut document = String::with_capacity(capacity(parts));
    push_line(&mut document, "", &format!("{LIST}[{}]:", parts.len()));
    for part in parts {
        let first = part.lines.iter().position(|line| !is_comment(line)).unwrap_or(0);
        for (index, line) in part.lines.iter().enumerate() {
            let indent = match index {
                _ if index < first => "  ",
                _ if index == first => "  - ",
                _ => "    ",
            };
            push_line(&mut document, indent, line);
        }
    }
    push_more(&mut document, more);
    if parts.iter().all(|part| matches!(part.object, Object::Flat)) {
        return document;
    }
    let expected = list_value(parts, more);
    if toon::decode(&document).as_ref() == Ok(&expected) { document } else { toon::encode(&expected) }
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

fn list_value(parts: &[Part<'_>], more: Option<&str>) -> Value {
    let items: Vec<Map<String, Value>> = parts.iter().map(Part::value).collect();
    let mut value = Map::from_iter([(LIST.to_owned(), json!(items))]);
    value.extend(more.map(|more| (MORE.to_owned(), Value::from(more))));
    Value::Object(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        format::tests::{item, notification},
        notification::{Priority, SubscriberId},
    };

    /// The document of these contents, of which `again` come again, with three others left out if `is_over`.
    fn document(contents: &[&str], again: &[usize], is_over: bool) -> String {
        let made: Vec<_> =
            contents.iter().map(|content| notification("n", Priority::High, content)).collect();
        let items: Vec<Item<'_>> =
            made.iter().enumerate().map(|(index, made)| item(made, again.contains(&index))).collect();
        let by_subscriber = is_over.then(|| (SubscriberId::new("ci"), 3)).into_iter().collect();
        let document = write(&items, &Overflow { by_subscriber, ..Overflow::default() });
        assert!(toon::decode(&document).is_ok(), "{document}");
        document
    }

    #[test]
    fn documents_with_different_keys_stand_one_after_the_other() {
        let joined = document(&["a: 1\nb[2]: x,y", "# hint\nc[1]{d}:\n  2"], &[], true);
        assert_eq!(joined, "a: 1\nb[2]: x,y\n# hint\nc[1]{d}:\n  2\nmore: 3 pending (ci 3)");
    }

    #[test]
    fn documents_with_a_common_key_become_a_list() {
        for (contents, expected) in [
            (
                ["a[1]{b,c}:\n  1,2\nd: x", "a:\n  e: 1\n  f[1]:\n    - g: 2\nh: y"],
                "notifications[2]:\n  - a[1]{b,c}:\n      1,2\n    d: x\n  - a:\n      e: 1\n      f[1]:\n        \
                 - g: 2\n    h: y",
            ),
            (["a: 1", "# hint\n\n\"a\": 2"], "notifications[2]:\n  - a: 1\n  # hint\n  - \"a\": 2"),
        ] {
            assert_eq!(document(&contents, &[], false), expected);
        }
    }

    #[test]
    fn the_overflow_line_never_takes_the_place_of_a_field() {
        assert_eq!(document(&["more: 1"], &[], false), "more: 1");
        assert_eq!(
            document(&["more: 1"], &[], true),
            "notifications[1]:\n  - more: 1\nmore: 3 pending (ci 3)"
        );
    }

    #[test]
    fn what_comes_again_says_so_and_only_of_itself() {
        assert_eq!(document(&["a: 1"], &[0], false), "redelivered: true\na: 1");
        assert_eq!(
            document(&["a: 1", "b: 2"], &[1], false),
            "notifications[2]:\n  - a: 1\n  - redelivered: true\n    b: 2"
        );
        assert_eq!(
            document(&["redelivered: 5\na[1]{b}:\n  1"], &[0], false),
            "redelivered: true\nnotification:\n  redelivered: 5\n  a[1]{b}:\n    1"
        );
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
        assert_eq!(value, json!({ "notifications": [{ "- a": 1 }, { "- a": 2 }] }));
    }
}
