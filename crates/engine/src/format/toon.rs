//! Writes notifications as one TOON document.
//!
//! Each notification's content is a document. A single content is written unchanged, below its
//! severity from `error` on and its marks; two or more are items of one list, each with its head
//! and its content. A head is the subscriber, the severity unless that is `info`, and the marks. Items
//! with equal heads that follow each other have one ([`super::group`]). A content with a key of
//! the frame is nested under a separate key, so that no content can imitate the frame or another item. The
//! result decodes strictly to the values of its parts. Most contents are flat (`toon::Form::Flat`)
//! and are joined as text, without decoding.

use std::borrow::Cow;

use serde_json::Value;

use super::{
    Carrier, Item, Overflow,
    item::{INJECTION, NOT_RUN_KEY, count_if_more},
    part::{
        COUNT, Entry, Fields, FrameValue, LIST, MORE, Part, SEVERITY, SHOWN, SUBSCRIBER, UNNAMED, capacity,
        entries, push_field, push_line, push_more, values,
    },
};

pub(super) use super::part::decode;

use crate::{
    exchange::{NOT_RUN, Replaces},
    notification::{Counts, LeftOut},
};

/// Writes the document alone.
pub(super) fn write(items: &[Item<'_>], overflow: &Overflow) -> String {
    compose(items, items.len(), Fields::new(), more(overflow).as_deref(), Severities::Written)
}

/// Writes the document of one notification of several, each with a wrapper of its own.
pub(super) fn write_one_of_several(item: Item<'_>) -> String {
    compose(&[item], 1, Fields::new(), None, Severities::WrittenAlone)
}

/// Writes the document for a carrier without a wrapper, with the injection's id, and with the total
/// if it exceeds the number shown.
pub(super) fn write_alone(carrier: &Carrier<'_>, items: &[Item<'_>], overflow: &Overflow) -> String {
    let number = |number: u64| FrameValue::Value(Value::from(number));
    let mut head = Fields::new();
    if carrier.replaces == Replaces::Call {
        head.push((NOT_RUN_KEY, FrameValue::Word(NOT_RUN)));
    }
    head.push((INJECTION, FrameValue::Word(carrier.injection.as_str())));
    if let Some(count) = count_if_more(items, overflow) {
        head.extend([(COUNT, number(count)), (SHOWN, number(items.len() as u64))]);
    }
    compose(items, items.len(), head, more(overflow).as_deref(), Severities::Written)
}

/// Writes `group`, which is all or a part of the `total` notifications of a text, below a heading
/// with their severity.
pub(super) fn write_group(group: &[Item<'_>], total: usize) -> String {
    compose(group, total, Fields::new(), None, Severities::InHeading)
}

/// Where the severity of an item stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severities {
    /// Above its content; of a single item from `error` on.
    Written,
    /// Above its content, also of a single item.
    WrittenAlone,
    /// In the heading of its group.
    InHeading,
}

impl Severities {
    /// The field of an item, if it has one.
    fn field(self, severity: Option<&'static str>) -> Option<(&'static str, FrameValue<'static>)> {
        severity.filter(|_| self != Self::InHeading).map(|severity| (SEVERITY, FrameValue::Word(severity)))
    }
}

/// The value of the overflow line, which needs no quotes.
pub(super) fn more(overflow: &Overflow) -> Option<String> {
    let say = |counts: &Counts, what: &str| match (counts.total(), counts.named()) {
        (0, _) => None,
        (total, []) => Some(format!("{total} {what}")),
        (total, _) => Some(format!("{total} {what} ({counts})")),
    };
    let LeftOut { pending, waiting } = &overflow.left_out;
    let pending = match waiting {
        Some(waiting) => Some(waiting.in_words(pending.total())),
        None => say(pending, "pending"),
    };
    let said: Vec<String> = pending.into_iter().chain(say(&overflow.evicted, "events evicted")).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

fn compose(
    items: &[Item<'_>],
    total: usize,
    head: Fields<'_>,
    more: Option<&str>,
    severities: Severities,
) -> String {
    let counts: &[&str] = if head.is_empty() { &[] } else { &[NOT_RUN_KEY, INJECTION, COUNT, SHOWN] };
    let document = match items {
        [item] if total == 1 => {
            let severity = match severities {
                Severities::WrittenAlone => item.severity(),
                Severities::Written | Severities::InHeading => item.severity_alone(),
            };
            let severity = severities.field(severity);
            let above = head.into_iter().chain(severity).chain(marks(item)).collect();
            single(&Part::from_item(item, above, counts), more)
        }
        _ => {
            let with_head =
                |item| (item_fields(item, severities), Part::from_item(item, Fields::new(), counts));
            list(items.iter().map(with_head), head, more)
        }
    };
    match neutralise(&document, UNNAMED) {
        Cow::Borrowed(_) => document,
        Cow::Owned(neutral) => neutral,
    }
}

/// The fields above the content of a list item.
fn item_fields<'a>(item: &Item<'a>, severities: Severities) -> Fields<'a> {
    let notification = item.notification;
    let subscriber = (SUBSCRIBER, FrameValue::Word(notification.subscriber.as_str()));
    [subscriber].into_iter().chain(severities.field(item.severity())).chain(marks(item)).collect()
}

fn marks<'a>(item: &Item<'a>) -> impl Iterator<Item = (&'static str, FrameValue<'a>)> {
    item.marks().map(|(key, value)| (key, FrameValue::Value(value)))
}

/// Writes the part, and the overflow.
fn single(part: &Part<'_>, more: Option<&str>) -> String {
    let mut document = String::with_capacity(capacity(std::iter::once(part)));
    part.write(&mut document, "", "");
    push_more(&mut document, more);
    if part.is_flat() {
        return document;
    }
    let mut expected = part.value();
    expected.extend(more.map(|more| (MORE.to_owned(), Value::from(more))));
    checked(document, Value::Object(expected))
}

/// Writes the parts, each with its head, as the items of one list.
///
/// Shape: if all heads are equal, the only one stands above the list. Flat parts need no check: each
/// of their lines keeps its meaning after a hyphen or when indented.
fn list<'a>(
    parts: impl Iterator<Item = (Fields<'a>, Part<'a>)>,
    head: Fields<'a>,
    more: Option<&str>,
) -> String {
    let entries = entries(parts);
    let mut root = head;
    if let [Entry::Many(group)] = entries.as_slice() {
        root.extend(group.head.iter().cloned());
    }
    let mut document = String::with_capacity(capacity(entries.iter().flat_map(Entry::parts)));
    root.iter().for_each(|(key, said)| push_field(&mut document, "", key, said));
    match entries.as_slice() {
        [Entry::Many(group)] => group.write_list(&mut document, ""),
        entries => {
            push_line(&mut document, "", &format!("{LIST}[{}]:", entries.len()));
            entries.iter().for_each(|entry| entry.write(&mut document, "  - ", "    "));
        }
    }
    push_more(&mut document, more);
    if entries.iter().flat_map(Entry::parts).all(Part::is_flat) {
        return document;
    }
    let listed = match entries.as_slice() {
        [Entry::Many(group)] => group.values(),
        entries => entries.iter().map(|entry| Value::Object(entry.value())).collect(),
    };
    let more = more.map(|more| (MORE.to_owned(), Value::from(more)));
    checked(document, Value::Object(values(&root).chain([(LIST.to_owned(), listed)]).chain(more).collect()))
}

/// Returns the document if it decodes to the expected value, else encodes that value.
fn checked(document: String, expected: Value) -> String {
    if toon::decode(&document).as_ref() == Ok(&expected) { document } else { toon::encode(&expected) }
}

/// Returns a document without control tokens that decodes to the same value.
///
/// Shape: a document with a tag is encoded again, which escapes the tag and drops comments; invalid
/// TOON becomes one quoted text under `unnamed`. Encoders of payloads already escape control tokens;
/// this is a second barrier. It checks the finished document, and therefore also covers a template's
/// own text, and tags formed where two contents meet.
fn neutralise<'d>(document: &'d str, unnamed: &str) -> Cow<'d, str> {
    if !::toon::has_control_token(document) {
        return document.into();
    }
    match ::toon::decode(document) {
        Ok(value) => ::toon::encode(&value).into(),
        Err(_) => ::toon::encode_field(unnamed, &document.into()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_without_tags_is_unchanged() {
        for document in ["a: 1 < 2", "# hint\nv[1]: a -> b", "a:  \"x\"", "not: toon: 1", ""] {
            assert!(matches!(neutralise(document, "n"), Cow::Borrowed(same) if same == document));
        }
    }

    #[test]
    fn tags_are_escaped_without_changing_decoded_content() {
        for (document, expected) in [
            ("a: x </event> y", "a: \"x \\u003c/event> y\""),
            ("a: \"x: </event>\"", "a: \"x: \\u003c/event>\""),
            ("a: \"\\\\</event>\"", "a: \"\\\\\\u003c/event>\""),
            (
                "t[2]{a,b}:\n  <event>,1\n  2,b <event>",
                "t[2]{a,b}:\n  \"\\u003cevent>\",1\n  2,\"b \\u003cevent>\"",
            ),
            ("l[2]:\n  - <event>\n  - a: 1", "l[2]:\n  - \"\\u003cevent>\"\n  - a: 1"),
            ("a: \u{2000}</event>", "a: \"\u{2000}\\u003c/event>\""),
            ("</event>: 1", "\"\\u003c/event>\": 1"),
            ("a: <\nnotifications: 3", "a: \"\\u003c\"\nnotifications: 3"),
            ("t[1]{a,<event>}:\n  1,2", "t[1]{a,\"\\u003cevent>\"}:\n  1,2"),
            ("# </event>\na: 1", "a: 1"),
        ] {
            assert_eq!(neutralise(document, "n"), expected, "{document:?}");
            assert_eq!(::toon::decode(expected), ::toon::decode(document));
            assert!(!::toon::has_control_token(expected));
        }
    }

    #[test]
    fn invalid_toon_becomes_a_single_text() {
        let document = "a[2]: </event>";
        let neutral = neutralise(document, "notification");
        assert_eq!(neutral, "notification: \"a[2]: \\u003c/event>\"");
        assert_eq!(::toon::decode(&neutral), Ok(serde_json::json!({ "notification": document })));
    }
}
