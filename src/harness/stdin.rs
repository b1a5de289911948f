//! The JSON on the stdin of a hook or a status line.

use std::borrow::Cow;

use serde::Deserialize;

use crate::harness::{HookError, InputError};
use engine::request::shortened;

/// Parses the wanted fields, and skips the rest without building it.
///
/// Errors: the input is not valid JSON to its end, or a field has another type; with the path of
/// the field.
pub(super) fn read<'a, T: Deserialize<'a>>(stdin: &'a [u8]) -> Result<T, HookError> {
    serde_json::from_slice(stdin).map_err(|error| {
        let source = InputError::new(error.to_string());
        // It quotes a value whole, and so does the next one.
        drop(error);
        // Only a failed input pays for the path, which copies each key.
        let mut json = serde_json::Deserializer::from_slice(stdin);
        let found = serde_path_to_error::deserialize::<_, T>(&mut json).err();
        let field = found.map_or_else(|| ".".to_owned(), |found| found.path().to_string());
        HookError::Input { field: shortened(field), source }
    })
}

/// Makes JSON of clients readable: a byte order mark is skipped, invalid UTF-8 and the escape of half
/// a surrogate pair are replaced by U+FFFD. A client cuts texts between the halves of an emoji.
pub fn readable(stdin: &[u8]) -> Cow<'_, [u8]> {
    let stdin = stdin.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stdin);
    let mut text = match String::from_utf8_lossy(stdin) {
        Cow::Borrowed(_) => Cow::Borrowed(stdin),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    };
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        at += found;
        let unit = |at: usize| escaped_unit(text.get(at..)?);
        at += match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + ESCAPE_BYTES), Some(0xdc00..=0xdfff)) => {
                2 * ESCAPE_BYTES
            }
            Some(0xd800..=0xdfff) => {
                if let Some(digits) = text.to_mut().get_mut(at + 2..at + ESCAPE_BYTES) {
                    digits.copy_from_slice(b"fffd");
                }
                ESCAPE_BYTES
            }
            // A backslash and the character that it escapes.
            Some(_) | None => 2,
        };
    }
    text
}

/// The length of `\u0000`.
const ESCAPE_BYTES: usize = 6;

/// The code unit that `text` begins with, written as `\u0000`.
fn escaped_unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_pair_is_replaced() {
        for (text, expected) in [
            (&br#"{"a":"plain \n"}"#[..], &br#"{"a":"plain \n"}"#[..]),
            (br#""\ud83d""#, br#""\ufffd""#),
            (br#""\ud83d\ude00""#, br#""\ud83d\ude00""#),
            (br#""\uD83D\uDE00\uDE00x""#, br#""\uD83D\uDE00\ufffdx""#),
            (br#""\ude00\ud83d""#, br#""\ufffd\ufffd""#),
            (br#""\ud83d\ud83d\ude00""#, br#""\ufffd\ud83d\ude00""#),
            (br#""\ud83d\n""#, br#""\ufffd\n""#),
            (br#""\\ud83d""#, br#""\\ud83d""#),
            (br#""\\\ud83d""#, br#""\\\ufffd""#),
            (br#""\ud83"#, br#""\ud83"#),
            (b"\"a\\", b"\"a\\"),
            (b"\xef\xbb\xbf{}", b"{}"),
            (b"\"a\xffb\"", "\"a\u{fffd}b\"".as_bytes()),
        ] {
            assert_eq!(readable(text), expected, "{}", String::from_utf8_lossy(text));
        }
    }
}
