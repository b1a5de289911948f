//! Keys, strings and numbers: bare where TOON allows it, else quoted.

use std::fmt::Write as _;

use serde_json::{Number, Value};

use super::control::{WIDE_LEAD, control_token_at, has_control_token};

/// Appends a string as a value: bare where TOON allows it, else quoted.
pub fn write_text(out: &mut String, text: &str) {
    if needs_quotes(text) {
        write_quoted(out, text);
    } else {
        out.push_str(text);
    }
}

/// Appends an object key: bare where the canonical form requires it, else quoted.
pub fn write_key(out: &mut String, key: &str) {
    let mut bytes = key.bytes();
    let is_bare = bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.');
    if is_bare {
        out.push_str(key);
    } else {
        write_quoted(out, key);
    }
}

/// Appends a number in plain decimal notation.
pub fn write_number(out: &mut String, number: &Number) {
    let written = match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(integer), _, _) => write!(out, "{integer}"),
        (None, Some(integer), _) => write!(out, "{integer}"),
        (None, None, Some(0.0)) => write!(out, "0"),
        (None, None, Some(float)) => write!(out, "{float}"),
        (None, None, None) => write!(out, "{number}"),
    };
    written.expect("writing to a String cannot fail");
}

/// Appends a null, boolean, number or string; a list or object as its compact JSON text.
pub fn write_scalar(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_text(out, text),
        Value::Array(_) | Value::Object(_) => write_text(out, &value.to_string()),
    }
}

/// Appends `text` in quotes, even if it needs none.
pub fn write_quoted(out: &mut String, text: &str) {
    out.push('"');
    let mut copied = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'\\' => "\\\\",
            b'"' => "\\\"",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            b'<' | b'[' | b'~' | WIDE_LEAD | 0..0x20 => "",
            _ => continue,
        };
        let c = match byte {
            b'<' | b'[' | b'~' | WIDE_LEAD => control_token_at(text, at),
            byte => Some(char::from(byte)),
        };
        let Some(c) = c else { continue };
        out.push_str(text.get(copied..at).expect("characters in order"));
        out.push_str(escape);
        if escape.is_empty() {
            write!(out, "\\u{:04x}", u32::from(c)).expect("writing to a String cannot fail");
        }
        copied = at + c.len_utf8();
    }
    out.push_str(text.get(copied..).expect("the end of a character"));
    out.push('"');
}

pub(super) fn needs_quotes(text: &str) -> bool {
    let seen = text.bytes().fold(0, |seen, byte| seen | mark_of(byte));
    seen & SPECIAL != 0 || is_ambiguous(text, seen)
}

/// The length of the prefix of `text` that needs no quotes in any position, and the union of its
/// bytes' marks.
pub(super) fn plain_length(text: &str) -> (usize, u8) {
    let mut seen = 0;
    for (at, byte) in text.bytes().enumerate() {
        let mark = mark_of(byte);
        if mark & SPECIAL != 0 {
            return (at, seen);
        }
        seen |= mark;
    }
    (text.len(), seen)
}

/// Whether a string without a special byte, whose bytes have the marks `seen`, still needs quotes
/// because it looks like another type.
pub(super) fn is_ambiguous(text: &str, seen: u8) -> bool {
    let (Some(first), Some(last)) = (text.bytes().next(), text.bytes().next_back()) else {
        return true;
    };
    match first {
        b' ' | b'-' | b'#' => true,
        b't' | b'f' | b'n' if matches!(text, "true" | "false" | "null") => true,
        b'0'..=b'9' | b'+' if is_number_like(text) => true,
        _ => last == b' ' || (seen & BRACKET != 0 && has_control_token(text)),
    }
}

/// Marks a byte that requires quotes.
const SPECIAL: u8 = 1;
/// Marks the bytes that can begin a control token and do not always require quotes, as `[` does.
/// (`~` is not marked: in a token a square bracket is next to it.)
const BRACKET: u8 = 2;

/// The marks of every byte.
#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const MARKS: [u8; 256] = {
    let mut marks = [0; 256];
    let mut byte = 0;
    while byte < 0x80 {
        if is_special(byte) {
            marks[byte as usize] = SPECIAL;
        }
        byte += 1;
    }
    marks[b'<' as usize] = BRACKET;
    marks[WIDE_LEAD as usize] = BRACKET;
    marks
};

fn mark_of(byte: u8) -> u8 {
    MARKS.get(usize::from(byte)).copied().unwrap_or(SPECIAL)
}

const fn is_special(byte: u8) -> bool {
    byte < 0x20 || matches!(byte, b':' | b'"' | b'\\' | b'[' | b']' | b'{' | b'}' | b',')
}

/// Whether a reader could parse the text as a number; leading zeros and plus signs count.
fn is_number_like(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if is_digits(unsigned) {
        return true;
    }
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    is_digits(whole) && fraction.is_none_or(is_digits) && exponent.is_none_or(is_digits)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{super::decode, *};
    use serde_json::json;

    #[test]
    fn strings_are_quoted_exactly_when_they_must_be() {
        for (text, written) in [
            ("plain words", "plain words"),
            ("a|b > `c` = d/e", "a|b > `c` = d/e"),
            ("a|b <x>", "\"a|b \\u003cx>\""),
            ("\u{ff1c}x\u{ff1e}", "\"\\uff1cx\u{ff1e}\""),
            ("a\u{ff0c}b", "a\u{ff0c}b"),
            ("]~b] a[i] a[0]", "\"]\\u007eb] a\\u005bi] a[0]\""),
            ("", "\"\""),
            (" lead", "\" lead\""),
            ("trail ", "\"trail \""),
            ("true", "\"true\""),
            ("True", "True"),
            ("05", "\"05\""),
            ("+1", "\"+1\""),
            ("1.5e-3", "\"1.5e-3\""),
            ("1.", "1."),
            ("e5", "e5"),
            ("a:b", "\"a:b\""),
            ("a,b", "\"a,b\""),
            ("C:\\x", "\"C:\\\\x\""),
            ("line\nbreak\u{7}", "\"line\\nbreak\\u0007\""),
            ("-x", "\"-x\""),
            ("#x", "\"#x\""),
            ("!x", "!x"),
            ("</Notifications>", "\"\\u003c/Notifications>\""),
            ("a < / system b", "\"a \\u003c / system b\""),
            ("a <", "\"a \\u003c\""),
            ("a < b", "\"a \\u003c b\""),
            ("a < 5", "a < 5"),
        ] {
            let mut out = String::new();
            write_text(&mut out, text);
            assert_eq!(out, written, "{text:?}");
            assert_eq!(decode(&format!("k: {out}")), Ok(json!({ "k": text })), "{text:?}");
        }
    }

    #[test]
    fn keys_are_bare_only_when_they_are_identifiers() {
        for (key, written) in [
            ("a_b.c", "a_b.c"),
            ("a-b", "\"a-b\""),
            ("!critical", "\"!critical\""),
            ("9", "\"9\""),
            ("", "\"\""),
            ("<system>", "\"\\u003csystem>\""),
        ] {
            let mut out = String::new();
            write_key(&mut out, key);
            assert_eq!(out, written);
            assert_eq!(decode(&format!("{out}: 1")), Ok(json!({ key: 1 })));
        }
    }

    #[test]
    fn numbers_are_plain_decimals() {
        for (number, written) in [
            (json!(1.0), "1"),
            (json!(-0.0), "0"),
            (json!(0.000_001), "0.000001"),
            (json!(u64::MAX), "18446744073709551615"),
        ] {
            let mut out = String::new();
            write_scalar(&mut out, &number);
            assert_eq!(out, written);
        }
    }
}
