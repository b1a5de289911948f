//! An index of the fields in a payload's text, so that one field can be read without parsing the
//! others.
//!
//! Most events are read for a few plain fields. The index takes one pass over the text and one
//! allocation; a parsed tree takes several allocations per field.

use std::ops::Range;

/// Every integer with this many digits fits in 64 bits.
const INTEGER_DIGITS_MAX: usize = 18;

/// A top-level field of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field<'p> {
    /// A string without escapes.
    Text(&'p str),
    /// The JSON of any other value.
    Json(&'p str),
}

impl<'p> Field<'p> {
    /// The text of a boolean or integer whose JSON and TOON forms are equal, so it needs no
    /// parsing.
    pub fn literal(self) -> Option<&'p str> {
        match self {
            Self::Json(json) if matches!(json, "true" | "false") || is_short_integer(json) => Some(json),
            Self::Json(_) | Self::Text(_) => None,
        }
    }
}

/// Whether the JSON value `json` is a 64-bit integer in its only form; some long ones are not
/// recognized.
fn is_short_integer(json: &str) -> bool {
    let digits = json.strip_prefix('-').unwrap_or(json);
    digits.len() <= INTEGER_DIGITS_MAX && digits.bytes().all(|byte| byte.is_ascii_digit()) && json != "-0"
}

/// The fields of one object, in text order.
#[derive(Debug, Clone)]
pub(super) struct FieldIndex {
    fields: Vec<FieldSpan>,
}

/// The position of one field, in bytes of the text.
#[derive(Debug, Clone)]
struct FieldSpan {
    /// The offset and length of the key, without quotes.
    key: u32,
    key_length: u32,
    /// The offsets of the value's start and end.
    value: u32,
    end: u32,
    /// Whether the value is a string without escapes.
    is_plain_text: bool,
}

impl FieldSpan {
    fn key<'p>(&self, text: &'p str) -> Option<&'p str> {
        let key = self.key as usize;
        text.get(key..key + self.key_length as usize)
    }

    fn is_named(&self, key: &str, text: &str) -> bool {
        self.key_length as usize == key.len() && self.key(text) == Some(key)
    }
}

impl FieldIndex {
    /// Indexes the fields of `text`, a valid JSON object; `None` if a key contains an escape.
    pub(super) fn find(text: &str) -> Option<Self> {
        // Ensures that all offsets fit in 32 bits.
        u32::try_from(text.len()).ok()?;
        let mut scan = Scan { bytes: text.as_bytes(), at: 0 };
        let mut fields = Vec::with_capacity(FIELDS);
        scan.take(b'{')?;
        if scan.take(b'}').is_some() {
            return Some(Self { fields });
        }
        loop {
            let key = scan.string()?;
            if key.has_escape {
                return None;
            }
            scan.take(b':')?;
            let (value, is_plain_text) = scan.value()?;
            fields.push(FieldSpan {
                key: key.inside.start as u32,
                key_length: key.inside.len() as u32,
                value: value.start as u32,
                end: value.end as u32,
                is_plain_text,
            });
            if scan.take(b',').is_none() {
                return scan.take(b'}').map(|()| Self { fields });
            }
        }
    }

    /// The field `key` of `text`; the last one if the key is repeated.
    pub(super) fn get<'p>(&self, text: &'p str, key: &str) -> Option<Field<'p>> {
        let span = self.fields.iter().rev().find(|span| span.is_named(key, text))?;
        let (value, end) = (span.value as usize, span.end as usize);
        Some(if span.is_plain_text {
            Field::Text(text.get(value + 1..end - 1)?)
        } else {
            Field::Json(text.get(value..end)?)
        })
    }

    /// The keys in `text`.
    pub(super) fn keys<'p>(&self, text: &'p str) -> impl Iterator<Item = &'p str> {
        self.fields.iter().filter_map(|span| span.key(text))
    }
}

/// The initial capacity; few payloads have more fields.
const FIELDS: usize = 12;

/// The content of a string.
struct Quoted {
    inside: Range<usize>,
    has_escape: bool,
}

/// A read position in valid JSON.
struct Scan<'p> {
    bytes: &'p [u8],
    at: usize,
}

impl Scan<'_> {
    /// Skips white space; returns the next byte.
    fn peek(&mut self) -> Option<u8> {
        while matches!(self.bytes.get(self.at)?, b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    /// Skips the byte `wanted`, if it is next.
    fn take(&mut self, wanted: u8) -> Option<()> {
        (self.peek()? == wanted).then(|| self.at += 1)
    }

    fn string(&mut self) -> Option<Quoted> {
        self.take(b'"')?;
        let (start, mut has_escape) = (self.at, false);
        loop {
            self.at += memchr::memchr2(b'"', b'\\', self.bytes.get(self.at..)?)?;
            if self.bytes.get(self.at) == Some(&b'"') {
                self.at += 1;
                return Some(Quoted { inside: start..self.at - 1, has_escape });
            }
            has_escape = true;
            self.at += 2;
        }
    }

    /// Skips a value; returns its range, and whether it is a string without escapes.
    fn value(&mut self) -> Option<(Range<usize>, bool)> {
        let first = self.peek()?;
        let start = self.at;
        let mut is_plain_text = false;
        match first {
            b'"' => is_plain_text = !self.string()?.has_escape,
            b'{' | b'[' => self.nested()?,
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
                self.at += self.bytes.get(start..)?.iter().position(ends)?;
            }
        }
        Some((start..self.at, is_plain_text))
    }

    /// Skips an object or a list.
    fn nested(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.bytes.get(self.at)? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    /// Checks every field that is found.
    fn check(text: &str) {
        let Ok(Value::Object(object)) = serde_json::from_str(text) else { panic!("{text} is an object") };
        let Some(field_index) = FieldIndex::find(text) else {
            assert!(text.contains('\\'), "{text}");
            return;
        };
        for (key, value) in &object {
            let found = match field_index.get(text, key) {
                Some(Field::Text(text)) => Some(Value::from(text)),
                Some(Field::Json(json)) => serde_json::from_str(json).ok(),
                None => None,
            };
            assert_eq!(found.as_ref(), Some(value), "{key} of {text}");
            let literal = field_index.get(text, key).and_then(Field::literal);
            assert!(literal.is_none_or(|literal| *value.to_string() == *literal), "{key} of {text}");
        }
        assert!(field_index.keys(text).all(|key| object.contains_key(key)), "{text}");
        assert_eq!(field_index.get(text, "no such key"), None);
    }

    #[test]
    fn every_field_is_what_a_tree_would_hold() {
        for text in [
            "{}",
            " { \n} ",
            r#"{"a":1,"b":"x","c":"q\"u","d":null,"e":[1,{"f":"}]"}],"g":{"a":2},"h":-1.5e3,"i":true}"#,
            "{ \"a\" :\t1 ,\n\"b\" : [ ] , \"c\" : { } }",
            r#"{"a":1,"a":{"b":2},"a":"last"}"#,
            r#"{"a":-0,"b":0,"c":-12,"d":1.0,"e":1e2,"f":-123456789012345678,"g":12345678901234567890123,"h":false}"#,
            r#"{"a\u0041":1}"#,
            r#"{"":"","k":"\\"}"#,
        ] {
            check(text);
        }
    }

    proptest! {
        #[test]
        fn generated_objects_are_read_like_any_other(
            fields in prop::collection::vec(("[a-c\u{e9}\"]{0,2}", r#"[ -~\u{e9}]{0,6}"#, any::<i32>()), 0..6),
        ) {
            let object: Map<String, Value> = fields
                .into_iter()
                .flat_map(|(key, text, number)| [
                    (format!("{key}n"), serde_json::json!([number, { "t": text }])),
                    (format!("{key}m"), number.into()),
                    (key, text.into()),
                ])
                .collect();
            check(&Value::Object(object.clone()).to_string());
            check(&serde_json::to_string_pretty(&object).expect("JSON"));
        }
    }
}
