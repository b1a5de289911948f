//! Prevents breakouts: no text from a payload can close, open or forge a block.
//!
//! Payload encoders already escape control tokens; this is a second barrier. It checks the finished
//! document, and therefore also covers other writers, a template's own text, and tags formed where
//! two contents meet.

use std::borrow::Cow;

use serde_json::Value;
use toon::has_control_token;

use crate::json;

/// Returns a document without control tokens that decodes to the same value.
///
/// Shape: a document with a tag is encoded again, which escapes the tag and drops comments; invalid
/// TOON becomes one quoted text under `unnamed`.
pub(super) fn neutralise<'d>(document: &'d str, unnamed: &str) -> Cow<'d, str> {
    if !has_control_token(document) {
        return document.into();
    }
    match toon::decode(document) {
        Ok(value) => toon::encode(&value).into(),
        Err(_) => toon::encode_field(unnamed, &document.into()).into(),
    }
}

/// Returns JSON text without the start of a tag or a control token in a string: every `<`, and the
/// brackets that begin one, are escaped, and so are the characters for which `is_escaped_too` holds.
pub(super) fn json(value: &Value, is_escaped_too: impl Fn(char) -> bool) -> String {
    let is_escaped = |text: &str, at: usize, c: char| {
        c == '<' || is_escaped_too(c) || toon::control_token_at(text, at).is_some()
    };
    json::to_string(value, is_escaped).expect("a value serializes")
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
    fn a_document_without_tags_is_unchanged() {
        for document in ["a: 1 < 2", "# hint\nv[1]: a -> b", "a:  \"x\"", "not: toon: 1", ""] {
            assert!(matches!(neutralise(document, "n"), Cow::Borrowed(same) if same == document));
        }
    }

    #[test]
    fn json_escapes_tags_and_control_tokens_losslessly() {
        for (read, expected) in [
            (r#"["a<b","[INST] x","[1]"]"#, r#"["a\u003cb","\u005bINST] x","[1]"]"#),
            (r#"{"a":[true,1],"b":"]~b]"}"#, r#"{"a":[true,1],"b":"]\u007eb]"}"#),
        ] {
            let value: Value = serde_json::from_str(read).expect("JSON");
            let written = json(&value, |_| false);
            assert_eq!(written, expected);
            assert_eq!(serde_json::from_str::<Value>(&written).expect("JSON"), value);
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
            assert_eq!(toon::decode(expected), toon::decode(document));
            assert!(!has_control_token(expected));
        }
    }

    #[test]
    fn invalid_toon_becomes_a_single_text() {
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
