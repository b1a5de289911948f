//! Texts of clients: the JSON on the stdin of a hook or a status line, and injections in a transcript
//! or a prompt.

use std::borrow::Cow;

use engine::{exchange::InjectionId, request::shortened};
use memchr::memmem;
use serde::Deserialize;

use crate::harness::{HookError, InputError};

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

/// The letters that JSON writes after a backslash (RFC 8259, section 7), all but `u`.
const ESCAPES: &[u8] = b"bfnrt";

/// Those of `ids` that are separate words of `text`, in order.
///
/// Shape: `text` need not be UTF-8, or begin or end with a whole line. The client's own wrapping is
/// ignored, because it differs by version. `text` may be that of a JSON string: the letter of an
/// escape, as in `\n7fq2kd`, is no part of a word.
pub fn ids_in(text: &[u8], ids: &[InjectionId]) -> Vec<InjectionId> {
    ids.iter().filter(|id| is_in(text, id.as_str().as_bytes())).copied().collect()
}

fn is_in(text: &[u8], name: &[u8]) -> bool {
    let byte = |at: Option<usize>| at.and_then(|at| text.get(at));
    let is_part = |at: Option<usize>| byte(at).is_some_and(u8::is_ascii_alphanumeric);
    let is_letter = |at: usize| byte(at.checked_sub(1)).is_some_and(|letter| ESCAPES.contains(letter));
    let is_escape = |at: usize| byte(at.checked_sub(2)) == Some(&b'\\') && is_letter(at);
    let begins = |at: usize| !is_part(at.checked_sub(1)) || is_escape(at);
    !name.is_empty()
        && memmem::find_iter(text, name).any(|at| begins(at) && !is_part(at.checked_add(name.len())))
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

    #[test]
    fn injection_id_matches_only_whole_words() {
        let ids = ["7fq2kd", "abcdef", ""].map(InjectionId::new);
        for (text, expected) in [
            (&b"<notifications count=\\\"1\\\" id=\\\"7fq2kd\\\">"[..], &["7fq2kd"][..]),
            (b"7fq2kd tool_fail: grep", &["7fq2kd"]),
            (b"x7fq2kd 7fq2kdx 7fq2k d", &[]),
            (b"a line\\n7fq2kd\\tabcdef x", &["7fq2kd", "abcdef"]),
            (b"n7fq2kd \\u7fq2kd \\", &[]),
            (b"x7fq2kd (7fq2kd)\xff abcdef", &["7fq2kd", "abcdef"]),
            (b"", &[]),
        ] {
            let found = ids_in(text, &ids);
            let found: Vec<&str> = found.iter().map(InjectionId::as_str).collect();
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(text));
        }
    }
}
