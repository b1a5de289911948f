//! Adds the folder to events without a scope.

use std::borrow::Cow;

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, value::RawValue};

/// Adds `workspace` to each event of a body of lines.
pub(super) fn in_lines<'b>(body: &'b [u8], workspace: &str) -> Cow<'b, [u8]> {
    let lines = body.split_inclusive(|byte| *byte == b'\n');
    Cow::Owned(lines.flat_map(|line| with_workspace(line, workspace).into_owned()).collect())
}

/// The same for one event or an array of events; the daemon refuses any other body.
pub(super) fn in_document<'b>(body: &'b [u8], workspace: &str) -> Cow<'b, [u8]> {
    let Ok(events) = serde_json::from_slice::<Vec<&RawValue>>(body) else {
        return with_workspace(body, workspace);
    };
    let mut text = b"[".to_vec();
    for (index, event) in events.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        text.extend_from_slice(&with_workspace(event.get().as_bytes(), workspace));
    }
    text.extend_from_slice(b"]\n");
    Cow::Owned(text)
}

/// An event's text, with `workspace` added unless it has a scope.
fn with_workspace<'t>(text: &'t [u8], workspace: &str) -> Cow<'t, [u8]> {
    #[derive(Deserialize)]
    struct Addressee {
        #[serde(default, deserialize_with = "is_there")]
        session: bool,
        #[serde(default, deserialize_with = "is_there")]
        workspace: bool,
    }
    fn is_there<'de, D: serde::Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
        IgnoredAny::deserialize(value).map(|_| true)
    }
    // The fields of an object are also read from an array.
    if !text.trim_ascii_start().starts_with(b"{") {
        return Cow::Borrowed(text);
    }
    let Ok(Addressee { session: false, workspace: false }) = serde_json::from_slice(text) else {
        return Cow::Borrowed(text);
    };
    let open = text.iter().position(|byte| *byte == b'{').map_or(0, |at| at + 1);
    let (head, rest) = text.split_at(open);
    let comma = if rest.trim_ascii_start().starts_with(b"}") { "" } else { "," };
    let field = format!("\"workspace\":{}{comma}", Value::from(workspace));
    Cow::Owned([head, field.as_bytes(), rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_without_a_scope_get_the_folder() {
        for (text, expected) in [
            ("{\"type\":\"a.b\"}\n", "{\"workspace\":\"/w\",\"type\":\"a.b\"}\n"),
            (" {} ", " {\"workspace\":\"/w\"} "),
            ("{\"session\":\"s\"}", "{\"session\":\"s\"}"),
            ("{\"workspace\":null}", "{\"workspace\":null}"),
            ("[1]", "[1]\n"),
            ("[{\"a\":1}, []]", "[{\"workspace\":\"/w\",\"a\":1},[]]\n"),
            ("{not json", "{not json"),
            (
                "[{\"a\":1}, {\"workspace\":\"/x\"}]",
                "[{\"workspace\":\"/w\",\"a\":1},{\"workspace\":\"/x\"}]\n",
            ),
        ] {
            let scoped = in_document(text.as_bytes(), "/w");
            assert_eq!(String::from_utf8_lossy(&scoped), expected, "{text}");
        }
        let lines = in_lines(b"{\"a\":1}\n\n{\"session\":\"s\"}\n", "/w");
        let expected = "{\"workspace\":\"/w\",\"a\":1}\n\n{\"session\":\"s\"}\n";
        assert_eq!(String::from_utf8_lossy(&lines), expected);
    }
}
