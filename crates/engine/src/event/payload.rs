//! Payloads: JSON objects of bounded size and depth, with untrusted text.
//!
//! The text is kept as received and parsed on first use, because most payloads are never read. Text
//! for an agent passes [`clean_text`] first. It removes control and invisible characters and
//! terminal escapes, and cuts long fields with a visible marker. The journal keeps the original.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, OnceLock},
};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, value::RawValue};
use toon::is_invisible;

use super::field_index::{Field, FieldIndex};

/// Most bytes of an event's JSON, envelope included.
pub const EVENT_BYTES_MAX: usize = 64 * 1024;
/// Most levels of nesting in a payload; the payload itself is the first level.
pub const NESTING_MAX: usize = 16;
/// Most characters of a text field shown to an agent; a marker replaces the rest.
pub const FIELD_CHARS_MAX: usize = 2_000;

/// A number with at most this many digits and no exponent is in the range of a double, whose limit
/// is about 1.8e308.
const DIGITS_PLAIN_MAX: usize = 300;

/// A JSON object within the limits.
#[derive(Debug, Clone)]
pub struct Payload {
    text: Arc<str>,
    field_index: OnceLock<Option<FieldIndex>>,
    value: OnceLock<Arc<Value>>,
}

/// Error: a key of the payload contains an escape, so fields cannot be found in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WithEscape;

/// The reason why a text is not a valid payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// Not JSON.
    #[error("payload is not JSON: {0}")]
    Syntax(String),
    /// JSON, but not an object.
    #[error("payload must be a JSON object, not {0}")]
    NotAnObject(&'static str),
    /// Nested deeper than [`NESTING_MAX`].
    #[error("payload is nested deeper than {NESTING_MAX} levels")]
    TooDeep,
}

impl Payload {
    /// Checks that `text` is a JSON object within [`NESTING_MAX`], without building it.
    pub fn check(text: &str) -> Result<(), PayloadError> {
        check_nesting(text)?;
        check_readable(text)?;
        check_kind(text)
    }

    /// Like [`Payload::check`], for text whose grammar is already checked.
    ///
    /// Shape: one pass that skips strings. Only a few payloads need a full read for the other
    /// checks (half surrogates, numbers out of range).
    pub fn check_raw(raw: &RawValue) -> Result<(), PayloadError> {
        let text = raw.get();
        if is_plain(text)? { check_kind(text) } else { Self::check(text) }
    }

    /// Checks `text` and copies it.
    pub fn parse(text: &str) -> Result<Self, PayloadError> {
        Self::check(text)?;
        Ok(Self::from_valid(text))
    }

    /// Wraps text that is already checked.
    pub fn from_valid(text: &str) -> Self {
        Self { text: text.into(), field_index: OnceLock::new(), value: OnceLock::new() }
    }

    /// The JSON text as received.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Reads the top-level field `name` from the text.
    ///
    /// Errors: a key contains an escape, so the object has to be parsed.
    pub fn field(&self, name: &str) -> Result<Option<Field<'_>>, WithEscape> {
        self.field_index().map(|field_index| field_index.get(&self.text, name)).ok_or(WithEscape)
    }

    /// The top-level keys, with duplicates.
    ///
    /// Errors: as for [`Payload::field`].
    pub fn keys(&self) -> Result<impl Iterator<Item = &str>, WithEscape> {
        self.field_index().map(|field_index| field_index.keys(&self.text)).ok_or(WithEscape)
    }

    /// Whether the JSON text contains only printable ASCII and spaces; escapes are not decoded.
    pub fn is_printable(&self) -> bool {
        is_printable(self.text.as_bytes())
    }

    fn field_index(&self) -> Option<&FieldIndex> {
        self.field_index.get_or_init(|| FieldIndex::find(&self.text)).as_ref()
    }

    /// The parsed object, with keys in the producer's order. It is parsed on first use and never
    /// `null`.
    pub fn value(&self) -> &Arc<Value> {
        self.value.get_or_init(|| Arc::new(serde_json::from_str(&self.text).unwrap_or(Value::Null)))
    }
}

impl From<Value> for Payload {
    /// Wraps an object that the program built.
    fn from(value: Value) -> Self {
        let text = value.to_string().into();
        Self { text, field_index: OnceLock::new(), value: OnceLock::from(Arc::new(value)) }
    }
}

/// Any JSON value, checked as strictly as if it were built (half surrogates, numbers out of range),
/// but not kept.
struct Readable;

impl<'de> Deserialize<'de> for Readable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Readable {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self, A::Error> {
        while entries.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

fn check_nesting(text: &str) -> Result<(), PayloadError> {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > NESTING_MAX {
                    return Err(PayloadError::TooDeep);
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

fn check_readable(text: &str) -> Result<(), PayloadError> {
    serde_json::from_str::<Readable>(text)
        .map(|_| ())
        .map_err(|error| PayloadError::Syntax(error.to_string()))
}

fn check_kind(text: &str) -> Result<(), PayloadError> {
    Err(PayloadError::NotAnObject(match text.trim_start().as_bytes().first() {
        Some(b'{') => return Ok(()),
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }))
}

/// Whether a single pass proves that every value of `text`, which is valid JSON, can be read.
///
/// Errors: the nesting is too deep.
fn is_plain(text: &str) -> Result<bool, PayloadError> {
    let (mut depth, mut rest) = (0_usize, text.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        rest = match byte {
            b'"' => match after_string(after) {
                Some(after) => after,
                None => return Ok(false),
            },
            b'{' | b'[' => {
                depth += 1;
                if depth > NESTING_MAX {
                    return Err(PayloadError::TooDeep);
                }
                after
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                after
            }
            b'0'..=b'9' => match after_digits(after) {
                Some(after) => after,
                None => return Ok(false),
            },
            _ => after,
        };
    }
    Ok(true)
}

/// Returns the text after the string that begins before `rest`; `None` if the string has a `\u`,
/// which may be half of a surrogate pair.
fn after_string(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let found = memchr::memchr2(b'"', b'\\', rest)?;
        let (escape, after) = rest.get(found..)?.split_first()?;
        if *escape == b'"' {
            return Some(after);
        }
        let (escaped, after) = after.split_first()?;
        if *escaped == b'u' {
            return None;
        }
        rest = after;
    }
}

/// Returns the text after a number's digits; `None` if it has too many digits or an exponent, so it
/// may be out of range.
fn after_digits(rest: &[u8]) -> Option<&[u8]> {
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let after = rest.get(digits..)?;
    let has_exponent = matches!(after.first(), Some(b'e' | b'E'));
    (digits < DIGITS_PLAIN_MAX && !has_exponent).then_some(after)
}

/// Removes terminal escapes and invisible characters from untrusted text, and cuts it to
/// [`FIELD_CHARS_MAX`].
///
/// Equal to [`strip_text`], then [`cut_text`].
pub fn clean_text(text: &str) -> Cow<'_, str> {
    cut_text(strip_text(text), FIELD_CHARS_MAX)
}

/// Removes the parts of untrusted text that are unsafe for an agent or a terminal.
///
/// These are whole terminal escape sequences, and control, zero-width and bidirectional characters.
/// Newlines and tabs are kept.
pub fn strip_text(text: &str) -> Cow<'_, str> {
    let is_plain = is_printable(text.as_bytes()) || !text.chars().any(is_invisible);
    if is_plain { text.into() } else { strip(text).into() }
}

/// Cuts a text that is longer than `chars_max` characters, and appends `\u{2026} [+N chars]`, where
/// N is the number of characters removed.
///
/// Shape: a text that was cut before has one mark with the sum, and its own mark does not count.
pub fn cut_text(text: Cow<'_, str>, chars_max: usize) -> Cow<'_, str> {
    if text.char_indices().nth(chars_max).is_none() {
        return text;
    }
    let (own, removed) = without_mark(&text);
    match own.char_indices().nth(chars_max) {
        None => text,
        Some((end, _)) => {
            let (kept, rest) = own.split_at_checked(end).expect("a character begins at `end`");
            format!("{kept}\u{2026} [+{} chars]", rest.chars().count() + removed).into()
        }
    }
}

/// A text without the mark of an earlier cut, and the number of characters that the mark names.
fn without_mark(text: &str) -> (&str, usize) {
    let read = || {
        let (kept, removed) = text.strip_suffix(" chars]")?.rsplit_once("\u{2026} [+")?;
        Some((kept, usize::try_from(removed.parse::<u32>().ok()?).ok()?))
    };
    read().unwrap_or((text, 0))
}

/// The longest beginning of a text that has at most `bytes_max` bytes and ends with a whole character.
pub fn first_bytes(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rfind(|at| text.is_char_boundary(*at));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}

fn strip(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => skip_escape(&mut rest),
            '\u{9b}' => skip_until_final(&mut rest),
            '\r' if rest.peek() != Some(&'\n') => kept.push('\n'),
            c if is_invisible(c) => {}
            c => kept.push(c),
        }
    }
    kept
}

/// Skips the characters after ESC: a control sequence to its final byte, a string sequence to its
/// terminator, else one character.
fn skip_escape(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match rest.next() {
        Some('[') => skip_until_final(rest),
        Some(']' | 'P' | 'X' | '^' | '_') => skip_string(rest),
        _ => {}
    }
}

/// Skips a title, a link or another string: to BEL, or to the string terminator.
pub(super) fn skip_string(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while let Some(c) = rest.next() {
        if matches!(c, '\u{7}' | '\u{9c}') {
            return;
        }
        if c == '\u{1b}' {
            rest.next_if_eq(&'\\');
            return;
        }
    }
}

fn skip_until_final(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while let Some(c) = rest.next_if(|c| ('\u{20}'..='\u{7e}').contains(c)) {
        if ('\u{40}'..='\u{7e}').contains(&c) {
            return;
        }
    }
}

/// Whether every byte is printable ASCII or a space.
pub(super) fn is_printable(bytes: &[u8]) -> bool {
    is_printable_without(bytes, [])
}

/// Whether every byte is printable ASCII or a space, and none is `unwanted`.
pub(super) fn is_printable_without<const N: usize>(bytes: &[u8], unwanted: [u8; N]) -> bool {
    let is_wanted = |byte: u8| {
        let is_printable = matches!(byte, b' '..=b'~');
        unwanted.iter().fold(is_printable, |is_wanted, other| is_wanted & (byte != *other))
    };
    // No early exit, so that the compiler vectorizes the loop.
    bytes.iter().fold(true, |all, byte| all & is_wanted(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_part_ends_with_a_whole_character() {
        let found = [0, 1, 2, 3, 4, 9].map(|bytes_max| first_bytes("a\u{20ac}b", bytes_max));
        assert_eq!(found, ["", "a", "a", "a", "a\u{20ac}", "a\u{20ac}b"]);
    }

    #[test]
    fn cleaning_strips_escapes_and_invisible_characters() {
        for (dirty, clean) in [
            ("plain, with \"quotes\"", "plain, with \"quotes\""),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]8;;http://x\u{7}link\u{1b}]8;;\u{1b}\\", "link"),
            ("a\u{200b}b\u{202e}c", "abc"),
            ("one\r\ntwo\rthree\u{8}", "one\ntwo\nthree"),
            ("tab\tstays", "tab\tstays"),
            ("a\u{3164}b\u{115f}\u{1160}c\u{34f}\u{180b}\u{2800}\u{1d173}\u{ffa0}d", "abcd"),
        ] {
            assert_eq!(clean_text(dirty), clean, "{dirty:?}");
        }
    }

    #[test]
    fn text_that_was_cut_has_one_mark() {
        let first = cut_text("x".repeat(1_500).into(), 1_000);
        assert!(first.ends_with("x\u{2026} [+500 chars]"), "{first}");
        assert_eq!(cut_text(first.clone(), 1_000), first);
        let second = cut_text(first, 200);
        assert_eq!(second, format!("{}\u{2026} [+1300 chars]", "x".repeat(200)));
    }

    #[test]
    fn a_cut_field_states_its_omitted_character_count() {
        let cut = clean_text(&"x".repeat(60_000)).into_owned();
        assert!(cut.ends_with("\u{2026} [+58000 chars]"), "{}", &cut[cut.len() - 40..]);
    }

    #[test]
    fn non_objects_and_too_deep_payloads_are_refused() {
        assert_eq!(Payload::check("[1]"), Err(PayloadError::NotAnObject("an array")));
        assert!(matches!(Payload::check("{\"a\":"), Err(PayloadError::Syntax(_))));
        let deep = |levels: usize| format!("{}{}", "{\"a\":".repeat(levels - 1) + "{", "}".repeat(levels));
        assert_eq!(Payload::check(&deep(NESTING_MAX)), Ok(()));
        assert_eq!(Payload::check(&deep(NESTING_MAX + 1)), Err(PayloadError::TooDeep));
        assert_eq!(Payload::check(r#"{"a":"[[[[[[[[[[[[[[[[[[[["}"#), Ok(()));
        for unreadable in [r#"{"a":"\ud800"}"#, r#"{"a":1e999}"#] {
            assert!(matches!(Payload::check(unreadable), Err(PayloadError::Syntax(_))), "{unreadable}");
        }
    }

    #[test]
    fn raw_and_text_payload_checks_agree() {
        let deep = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        let digits = |count: usize| format!("{{\"n\":{}}}", "9".repeat(count));
        let cases = [
            "{}",
            " {} ",
            "[]",
            "\"{\"",
            "true",
            "null",
            "-1",
            "1e2",
            "1E999",
            "-1.5e-3",
            "\"\\ud800\"",
            "\"\\\\ud800\"",
            r#"{"a":"\ud83d\ude00"}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":"\ud800\n"}"#,
            r#"{"\udc00":1}"#,
            r#"{"a":1e999}"#,
            r#"{"a":[1e5,1.0e308,1.0E309]}"#,
            r#"{"a":"1e999"}"#,
            r#"{"a":"[[[[[[[[[[[[[[[[[[["}"#,
            r#"{"a":"\"[[[[[[[[[[[[[[[[[[["}"#,
            r#"{"a":"\\","b":{"c":[{"d":false}]}}"#,
        ];
        let made = [
            deep(NESTING_MAX),
            deep(NESTING_MAX + 1),
            digits(300),
            digits(308),
            digits(400),
            format!("[{}]", deep(16)),
        ];
        for text in cases.into_iter().chain(made.iter().map(String::as_str)) {
            let raw: &RawValue = serde_json::from_str(text).expect(text);
            assert_eq!(Payload::check_raw(raw), Payload::check(text), "{text}");
        }
    }
}
