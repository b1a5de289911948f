//! Short names stored in place: a copy needs no allocation, and a comparison reads no other memory.

use std::{fmt, str};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A text of at most `N` bytes, in place.
///
/// Shape: a longer text is cut at a character and filled up to `N` bytes with `~`. If all known
/// names are shorter than `N` bytes, a cut text equals none of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortName<const N: usize> {
    /// The text, followed by zeroes.
    bytes: [u8; N],
    length: u8,
}

impl<const N: usize> ShortName<N> {
    /// Copies `text`, cut and filled up if it is longer than `N` bytes.
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; N];
        if let Some(to) = bytes.get_mut(..text.len()) {
            to.copy_from_slice(text.as_bytes());
            return Self { bytes, length: u8::try_from(text.len()).expect("a short name is short") };
        }
        let ends = text.char_indices().map(|(at, char)| at + char.len_utf8());
        let end = ends.take_while(|end| *end <= N).last().unwrap_or(0);
        bytes.fill(b'~');
        for (to, from) in bytes.iter_mut().zip(text.bytes().take(end)) {
            *to = from;
        }
        Self { bytes, length: u8::try_from(N).expect("a short name is short") }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        let text = self.bytes.get(..usize::from(self.length)).expect("it ends within its bytes");
        str::from_utf8(text).expect("it was a text")
    }
}

impl<const N: usize> fmt::Debug for ShortName<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<const N: usize> Serialize for ShortName<N> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de, const N: usize> Deserialize<'de> for ShortName<N> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor<const N: usize>;
        impl<const N: usize> de::Visitor<'_> for Visitor<N> {
            type Value = ShortName<N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(ShortName::new(text))
            }
        }
        from.deserialize_str(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_compare_like_their_texts() {
        let texts = ["", "a", "a\u{e4}", "ab", "b", "na4f26f71a068"];
        for (at, text) in texts.iter().enumerate() {
            let name = ShortName::<15>::new(text);
            assert_eq!(name.as_str(), *text);
            for (other_at, other) in texts.iter().enumerate() {
                assert_eq!(name.cmp(&ShortName::new(other)), text.cmp(other), "{at} {other_at}");
            }
        }
    }

    #[test]
    fn a_longer_text_is_cut_at_a_character() {
        assert_eq!(ShortName::<4>::new("abcde").as_str(), "abcd");
        assert_eq!(ShortName::<4>::new("abc\u{e4}").as_str(), "abc~");
        let known = ShortName::<15>::new("na4f26f71a068");
        for rest in ["\u{20ac}", "\u{1f600}", "aa\u{e4}", "abc"] {
            assert_ne!(ShortName::new(&format!("na4f26f71a068{rest}")), known, "{rest}");
        }
    }
}
