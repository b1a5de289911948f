//! Whole texts: indentation, lines, and decoding.

use serde_json::Value;

/// Spaces per level of nesting (TOON 4.x, default indentation).
pub const INDENT: usize = 2;

/// Error: a text is not strict TOON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToonError {
    /// The invalid line, counted from 1, if known.
    pub line: Option<usize>,
    /// The cause.
    pub message: String,
}

/// Parses strict TOON 4.x. An integer beyond 64 bits becomes a string.
///
/// Errors: the first invalid line.
pub fn decode(text: &str) -> Result<Value, ToonError> {
    toon_format::decode_strict(text).map_err(|error| {
        if let toon_format::ToonError::ParseError { line, message, .. } = error {
            return ToonError { line: Some(line), message };
        }
        ToonError { line: None, message: error.to_string() }
    })
}

/// The lines of `text`; at least one, which may be empty.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let Some(end) = memchr::memchr(b'\n', text.as_bytes()) else { return Some(text) };
        rest = text.get(end + 1..);
        text.get(..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_newline_begins_a_line() {
        for text in ["", "a", "a\nb", "\n", "a\n\n b\r\n", "\u{2713}\n\u{e9}"] {
            assert_eq!(lines(text).collect::<Vec<_>>(), text.split('\n').collect::<Vec<_>>());
        }
    }

    #[test]
    fn decode_error_names_the_offending_line() {
        let error = decode("a: 1\nb[2]: 1\nc: 2").expect_err("one value for two");
        assert_eq!(error.line, Some(2), "{error}");
    }
}
