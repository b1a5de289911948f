//! A part of a state that is borrowed when it is written and owned when it was read.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value or a reference to one; written as the value.
#[derive(Debug)]
pub enum Held<'a, T> {
    /// To be written.
    Borrowed(&'a T),
    /// Was read.
    Owned(T),
}

impl<T> Held<'_, T> {
    /// What was read.
    ///
    /// # Panics
    /// When it was not read but is to be written.
    pub fn into_owned(self) -> T {
        match self {
            Self::Owned(value) => value,
            Self::Borrowed(_) => panic!("only a state that was read is gone on from"),
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
