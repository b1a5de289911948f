//! Texts that stand in many places, for `#[serde(deserialize_with = "snapshot::text::read")]`: equal ones are one text after reading.

use std::{fmt, sync::Arc};

use serde::{Deserializer, de};

use super::shared;

/// Reads a text; the same one as before if an equal one was read in this way from the same state.
pub fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
    from.deserialize_str(Visitor)
}

struct Visitor;

impl de::Visitor<'_> for Visitor {
    type Value = Arc<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Arc<str>, E> {
        Ok(shared::text(text))
    }
}
