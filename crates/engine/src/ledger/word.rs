//! Parses the values of the ledger's enums from their words.

use serde::de::{DeserializeOwned, IntoDeserializer, value};

/// The value of a ledger enum with the word `word`; `None` for an unknown word.
pub fn of_word<T: DeserializeOwned>(word: &str) -> Option<T> {
    let word = <&str as IntoDeserializer<value::Error>>::into_deserializer(word);
    T::deserialize(word).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use std::fmt::Debug;

    use serde::{
        Deserializer,
        de::{Error, Visitor},
        forward_to_deserialize_any,
    };

    use super::*;

    /// Notes the words of an enum that serde accepts: all of them.
    struct Words<'w>(&'w mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for Words<'_> {
        type Error = value::Error;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, value::Error> {
            Err(Error::custom("no enum"))
        }

        fn deserialize_enum<V: Visitor<'de>>(
            self,
            _: &'static str,
            words: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, value::Error> {
            *self.0 = words;
            Err(Error::custom("noted"))
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
            unit unit_struct newtype_struct seq tuple tuple_struct map struct identifier ignored_any
        }
    }

    /// The words of an enum, in declaration order.
    pub(in crate::ledger) fn words_of<T: DeserializeOwned + Debug>() -> &'static [&'static str] {
        let mut words: &'static [&'static str] = &[];
        T::deserialize(Words(&mut words)).expect_err("only its words are noted");
        assert!(!words.is_empty(), "it is no enum");
        words
    }
}
