//! Keys for equal events and groups: a few texts joined to one key.
//!
//! Texts are joined so that different lists have different keys, and keys sort as the texts do. The
//! buffer of a key is reused, so looking up a known key allocates nothing. A long key is replaced
//! by its SHA-256, because payload fields and producers' keys may be as large as an event.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::{
    event::{Event, FieldPath, FieldValue, Scope, Trust},
    hash::first_64_bits,
    notification::StateKey,
};

/// Longest key that is kept as it is, in bytes; enough for two paths and an error name.
const KEY_BYTES_MAX: usize = 256;

/// First byte of a digest, and of no other key: it does not occur in UTF-8.
const DIGEST_MARK: u8 = 0xff;

/// Ends a text; it sorts before [`ZERO`], so a text sorts before its extensions.
const END: [u8; 2] = [0, 0];

/// Escapes a zero byte inside a text.
const ZERO: [u8; 2] = [0, DIGEST_MARK];

pub(crate) type Key = Arc<[u8]>;

/// A part of the keys of states and conditions.
const fn word_of(trust: Trust) -> &'static [u8] {
    match trust {
        Trust::Trusted => b"trusted",
        Trust::Untrusted => b"untrusted",
    }
}

/// Writes keys, one at a time.
#[derive(Debug, Default)]
pub(crate) struct KeyWriter {
    bytes: Vec<u8>,
}

impl KeyWriter {
    pub(crate) fn start(&mut self) -> &mut Self {
        self.bytes.clear();
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes.reserve(text.len() + END.len());
        let has_zero = text.bytes().fold(false, |has, byte| has | (byte == 0));
        if has_zero {
            for byte in text.bytes() {
                self.bytes.extend_from_slice(if byte == 0 { &ZERO } else { std::slice::from_ref(&byte) });
            }
        } else {
            self.bytes.extend_from_slice(text.as_bytes());
        }
        self.bytes.extend_from_slice(&END);
        self
    }

    /// Adds a constant of the program, which must not have a zero byte.
    pub(crate) fn word(&mut self, word: &'static [u8]) -> &mut Self {
        debug_assert!(!word.contains(&0), "a word is plain text");
        self.bytes.extend_from_slice(word);
        self.bytes.extend_from_slice(&END);
        self
    }

    /// Adds the values of `fields` in `event`; the empty text for an absent one.
    pub(crate) fn fields(&mut self, fields: &[FieldPath], event: &Event) -> &mut Self {
        for field in fields {
            self.text(&field.text(event));
        }
        self
    }

    /// Adds the values of `fields` in `event`, with their kinds; and the whole payload if all
    /// payload fields among them are absent.
    pub(crate) fn identity(&mut self, fields: &[FieldPath], event: &Event) -> &mut Self {
        let lacks_all = self.values(fields, event);
        if lacks_all { self.word(b"whole").text(event.payload.as_str()) } else { self }
    }

    /// Adds the values of `fields` in `event`, with their kinds. Returns whether there are payload
    /// fields among them and all are absent.
    pub(crate) fn values<'f>(
        &mut self,
        fields: impl IntoIterator<Item = &'f FieldPath>,
        event: &Event,
    ) -> bool {
        let (mut wanted, mut found) = (false, false);
        for field in fields {
            let value = field.value(event);
            wanted |= field.is_of_payload();
            found |= field.is_of_payload() && value != FieldValue::Absent;
            self.value(value);
        }
        wanted && !found
    }

    /// Adds the value of a field, with its kind.
    fn value(&mut self, value: FieldValue<'_>) -> &mut Self {
        match value {
            FieldValue::Absent => self.word(b"absent"),
            FieldValue::Null => self.word(b"null"),
            FieldValue::Text(text) => self.word(b"text").text(&text),
            FieldValue::Json(json) => self.word(b"json").text(&json),
        }
    }

    /// Returns the key of the state or condition named by `fields` in `event`. Keys of trusted and
    /// untrusted events always differ.
    pub(crate) fn state(&mut self, fields: &[FieldPath], trust: Trust, event: &Event) -> StateKey {
        self.start().word(word_of(trust)).identity(fields, event).digest()
    }

    /// The digest of the written key.
    pub(crate) fn digest(&mut self) -> StateKey {
        StateKey(first_64_bits(Sha256::new_with_prefix(self.finish())))
    }

    pub(crate) fn scope(&mut self, scope: &Scope) -> &mut Self {
        match scope {
            Scope::Session(id) => self.word(b"session").text(id.as_str()),
            Scope::Workspace(folder) => self.word(b"workspace").text(folder),
            Scope::All => self.word(b"all"),
            Scope::Part(part) => {
                self.word(b"part").scope(part.whole());
                part.bounds().fold(self, |key, territory| key.text(&territory.folder))
            }
        }
    }

    pub(crate) fn finish(&mut self) -> &[u8] {
        if self.bytes.len() > KEY_BYTES_MAX {
            let digest = Sha256::digest(&self.bytes);
            self.bytes.clear();
            self.bytes.push(DIGEST_MARK);
            self.bytes.extend_from_slice(&digest);
            self.bytes.shrink_to(KEY_BYTES_MAX);
        }
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(texts: &[String]) -> Vec<u8> {
        let mut writer = KeyWriter::default();
        let writer = texts.iter().fold(writer.start(), |writer, text| writer.text(text));
        writer.finish().to_vec()
    }

    #[test]
    fn long_keys_are_hashed_and_stay_distinct() {
        let long = |end: &str| vec!["x".repeat(60_000) + end];
        assert_eq!(key(&long("a")).len(), 33);
        assert_eq!(key(&long("a")), key(&long("a")));
        assert_ne!(key(&long("a")), key(&long("b")));
    }

    proptest! {
        #[test]
        fn keys_compare_like_their_text_lists(
            a in prop::collection::vec("[\u{0}a\u{ff}:]{0,3}", 0..4),
            b in prop::collection::vec("[\u{0}a\u{ff}:]{0,3}", 0..4),
        ) {
            prop_assert_eq!(key(&a).cmp(&key(&b)), a.cmp(&b));
        }
    }
}
