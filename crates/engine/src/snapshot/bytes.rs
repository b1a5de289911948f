//! Opaque bytes, for `#[serde(with = "snapshot::bytes")]`: one block instead of a list of numbers.

use std::{fmt, marker::PhantomData};

use serde::{Deserializer, Serializer, de};

/// Encodes the bytes.
pub fn serialize<T: AsRef<[u8]>, S: Serializer>(bytes: &T, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(bytes.as_ref())
}

/// Decodes the output of [`serialize`].
pub fn deserialize<'de, T: for<'a> From<&'a [u8]>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_bytes(Visitor(PhantomData))
}

struct Visitor<T>(PhantomData<T>);

impl<T: for<'a> From<&'a [u8]>> de::Visitor<'_> for Visitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<T, E> {
        Ok(T::from(bytes))
    }
}
