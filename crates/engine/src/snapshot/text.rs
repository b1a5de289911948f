//! Repeated texts, for `#[serde(deserialize_with = "snapshot::text::read")]`: equal ones are one
//! text after decoding.

use std::{fmt, sync::Arc};

use serde::{Deserializer, de};

use super::shared;

/// Decodes a text; shares an equal one read this way from the same state.
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
