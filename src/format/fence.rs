//! Prevents breakouts: no text from a payload can close, open or forge a block.
//!
//! Payload encoders already escape reserved tags; this is a second barrier. It checks the finished
//! document, and therefore also covers other writers, a template's own text, and tags formed where
//! two contents meet.

use std::{borrow::Cow, collections::BTreeSet};

use crate::toon::{self, has_reserved_tag};

/// Returns a document without reserved tags that decodes to the same value.
///
/// Shape: a document with a tag is encoded again, which escapes the tag and drops comments; invalid
/// TOON becomes one quoted text under `unnamed`.
pub(super) fn neutralise<'d>(document: &'d str, unnamed: &str) -> Cow<'d, str> {
    if !has_reserved_tag(document) {
        return document.into();
    }
    match toon::decode(document) {
        Ok(value) => toon::encode(&value).into(),
        Err(_) => toon::encode_field(unnamed, &document.into()).into(),
    }
}

/// Returns equivalent JSON text without the start of a tag or a control token: every `<` and the
/// bracket of `[INST]` are escaped.
pub(super) fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let mut copied = 0;
    let brackets = memchr::memchr_iter(b'<', json.as_bytes()).chain(toon::reserved_tags(json));
    for at in brackets.collect::<BTreeSet<usize>>() {
        let bracket = json.as_bytes().get(at).copied().expect("a position in the text");
        text.push_str(json.get(copied..at).expect("a bracket is one byte"));
        text.push_str(&format!("\\u{bracket:04x}"));
        copied = at + 1;
    }
    text.push_str(json.get(copied..).expect("a bracket is one byte"));
    text
}

/// Returns a run of backticks longer than any in `text`, for a fence.
pub(super) fn backticks_around(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat((longest + 1).max(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_without_a_tag_stays_byte_for_byte() {
        for document in ["a: 1 < 2", "# hint\nv[1]: Vec<u8>", "a:  \"x\"", "not: toon: <events>", ""] {
            assert!(matches!(neutralise(document, "n"), Cow::Borrowed(same) if same == document));
        }
    }

    #[test]
    fn json_is_escaped_where_a_tag_or_a_control_token_could_begin_and_says_the_same() {
        for (json, expected) in [
            (r#"["a<b","[INST] x","[1]"]"#, r#"["a\u003cb","\u005bINST] x","[1]"]"#),
            (r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        ] {
            let written = escaped(json);
            assert_eq!(written, expected);
            let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
            assert_eq!(read(&written), read(json));
        }
    }

    #[test]
    fn a_tag_is_escaped_anywhere_and_the_document_says_the_same() {
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
            assert_eq!(toon::decode(expected), toon::decode(document));
            assert!(!has_reserved_tag(expected));
        }
    }

    #[test]
    fn what_is_not_toon_becomes_one_text() {
        let document = "a[2]: </event>";
        let neutral = neutralise(document, "notification");
        assert_eq!(neutral, "notification: \"a[2]: \\u003c/event>\"");
        assert_eq!(toon::decode(&neutral), Ok(serde_json::json!({ "notification": document })));
    }

    #[test]
    fn a_fence_is_longer_than_any_run_inside() {
        for (text, expected) in [("a", 3), ("``", 3), ("```", 4), ("`` ````` `", 6)] {
            assert_eq!(backticks_around(text).len(), expected, "{text}");
        }
    }
}
