//! A part of a state: borrowed for encoding, owned after decoding.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value or a reference to one; encoded as the value.
#[derive(Debug)]
pub enum Held<'a, T> {
    /// For encoding.
    Borrowed(&'a T),
    /// After decoding.
    Owned(T),
}

impl<T> Held<'_, T> {
    /// The decoded value.
    ///
    /// # Panics
    ///
    /// When it is borrowed.
    pub fn into_owned(self) -> T {
        match self {
            Self::Owned(value) => value,
            Self::Borrowed(_) => panic!("only a decoded value is owned"),
        }
    }
}

impl<T: Default> Default for Held<'_, T> {
    fn default() -> Self {
        Self::Owned(T::default())
    }
}

impl<T: Serialize> Serialize for Held<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Borrowed(value) => value.serialize(to),
            Self::Owned(value) => value.serialize(to),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Held<'_, T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::deserialize(from).map(Self::Owned)
    }
}
