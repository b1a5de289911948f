//! Several notifications as one TOON document.
//!
//! Each notification's content is a document of its own. Where their root keys differ, the documents stand one after the
//! other, which costs nothing; where they meet, or one has to be marked as told again, they become the items of one list.
//! Either way the result decodes, strictly, to what the parts decode to.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Item, Overflow, fence};
use crate::toon;

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
    let parts: Vec<Part> = items.iter().map(Part::from_item).collect();
    let more = (overflow.total() > 0).then(|| format!("{} pending ({overflow})", overflow.total()));
    let joined = if can_stand_side_by_side(&parts, more.is_some()) {
        side_by_side(&parts, more.as_deref())
    } else {
        as_list(&parts, more.as_deref())
    };
    fence::neutralise(&joined, UNNAMED).into_owned()
}

/// What a content decodes to; a content that is not TOON is one text.
pub(super) fn decode(content: &str) -> Value {
    toon::decode(content).unwrap_or_else(|_| Value::from(content))
}

/// One notification as the lines of an object, and what they decode to.
struct Part {
    lines: Vec<String>,
    value: Map<String, Value>,
}

impl Part {
    fn from_item(item: &Item<'_>) -> Self {
        let part = Self::from_content(&item.notification.content);
        if item.redelivered { part.marked() } else { part }
    }

    fn from_content(content: &str) -> Self {
        let lines = content.lines().filter(|line| !is_blank(line)).map(str::to_owned);
        match toon::decode(content) {
            Ok(Value::Object(value)) if has_fields(content) => Self { lines: lines.collect(), value },
            Ok(value) => Self::under_key(lines.filter(|line| !is_comment(line)).collect(), value),
            Err(_) => {
                let mut quoted = String::new();
                toon::write_quoted(&mut quoted, content);
                Self::under_key(vec![quoted], Value::from(content))
            }
        }
    }

    /// An object with the one key that stands for what has none: a table or list, a scalar, or nothing.
    fn under_key(lines: Vec<String>, value: Value) -> Self {
        let prefix = match &value {
            Value::Object(fields) if fields.is_empty() => format!("{UNNAMED}:"),
            Value::Array(items) if items.is_empty() => format!("{UNNAMED}: "),
            Value::Object(_) | Value::Array(_) => UNNAMED.to_owned(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => format!("{UNNAMED}: "),
        };
        let mut lines = lines.into_iter();
        let first = prefix + &lines.next().unwrap_or_default();
        let lines = std::iter::once(first).chain(lines).collect();
        Self { lines, value: Map::from_iter([(UNNAMED.to_owned(), value)]) }
    }

    /// The whole object as the one field of another.
    fn nested(self) -> Self {
        let lines = self.lines.iter().map(|line| format!("  {line}"));
        let lines = std::iter::once(format!("{UNNAMED}:")).chain(lines).collect();
        Self { lines, value: Map::from_iter([(UNNAMED.to_owned(), Value::Object(self.value))]) }
    }

    /// The same, saying that it may have been told before.
    fn marked(self) -> Self {
        let part = if self.value.contains_key(REDELIVERED) { self.nested() } else { self };
        let mark = (REDELIVERED.to_owned(), Value::Bool(true));
        Self {
            lines: std::iter::once(format!("{REDELIVERED}: true")).chain(part.lines).collect(),
            value: std::iter::once(mark).chain(part.value).collect(),
        }
    }
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

/// Whether no two parts, nor the overflow line, share a root key, and no mark would seem to belong to all.
fn can_stand_side_by_side(parts: &[Part], has_more: bool) -> bool {
    let mut keys: BTreeSet<&str> = has_more.then_some(MORE).into_iter().collect();
    let are_distinct = parts.iter().flat_map(|part| part.value.keys()).all(|key| keys.insert(key));
    are_distinct && (parts.len() == 1 || !keys.contains(REDELIVERED))
}

fn side_by_side(parts: &[Part], more: Option<&str>) -> String {
    let more = more.map(|more| format!("{MORE}: {more}"));
    let lines: Vec<&str> =
        parts.iter().flat_map(|part| &part.lines).chain(&more).map(String::as_str).collect();
    lines.join("\n")
}

fn as_list(parts: &[Part], more: Option<&str>) -> String {
    let mut lines = vec![format!("{LIST}[{}]:", parts.len())];
    for part in parts {
        let first = part.lines.iter().position(|line| !is_comment(line)).unwrap_or(0);
        for (index, line) in part.lines.iter().enumerate() {
            lines.push(match index {
                _ if index < first => format!("  {line}"),
                _ if index == first => format!("  - {line}"),
                _ => format!("    {line}"),
            });
        }
    }
    lines.extend(more.map(|more| format!("{MORE}: {more}")));
    let document = lines.join("\n");
    let expected = list_value(parts, more);
    if toon::decode(&document).as_ref() == Ok(&expected) { document } else { toon::encode(&expected) }
}

fn list_value(parts: &[Part], more: Option<&str>) -> Value {
    let items: Vec<&Map<String, Value>> = parts.iter().map(|part| &part.value).collect();
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
        let document = write(&items, &Overflow { by_subscriber });
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
