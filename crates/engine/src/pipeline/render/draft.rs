//! The output of an attempt to render a batch, before it is measured.

use serde_json::{Map, Value};

use super::{cut, free_key::free_key};
use crate::notification::{SubscriberId, Word};

/// Why an attempt to render failed.
#[derive(Debug)]
pub(super) enum Attempt {
    /// Too large; fewer rows or shorter fields may fit.
    TooBig,
    /// It prints nothing for the batch.
    Nothing,
    /// A failure for all sizes; another template is needed.
    Failed { line: Option<usize>, message: String },
}

/// A template's output for a batch.
pub(super) struct Draft {
    pub(super) body: Body,
    pub(super) printed: Printed,
    /// Number of events whose rows were not written.
    pub(super) left_out: u64,
    /// Columns that were named and that no row has.
    pub(super) absent: Vec<String>,
    /// Notices for the user.
    pub(super) words: Vec<Word>,
}

/// The counts and marks that a text has itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Printed {
    /// The occurrences of each row.
    pub(super) row_repeats: bool,
    pub(super) repeats: bool,
    pub(super) suppressed: bool,
    /// The untrusted source of each row.
    pub(super) sources: bool,
}

/// A document of strict TOON.
pub(super) enum Body {
    /// Canonical, with these keys at its root.
    Written { text: String, keys: Vec<String>, shows_repeats: bool },
    /// The decoded value of the author's text; `comments` is the text if it has comment lines.
    Decoded { value: Value, comments: Option<String> },
}

impl Body {
    /// Whether one of its tables has more rows than a notification may show.
    pub(super) fn has_long_table(&self) -> bool {
        match self {
            Self::Written { .. } => false,
            Self::Decoded { value, .. } => cut::has_long_table(value),
        }
    }

    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::Written { text, .. } => toon::decode(text).expect("it is known to be strict TOON"),
            Self::Decoded { value, .. } => value.clone(),
        }
    }

    /// Adds `extras` as fields at the root, under free keys, and writes the document.
    pub(super) fn write(&self, subscriber: &SubscriberId, extras: &[(&str, u64)]) -> String {
        match self {
            Self::Written { text, keys, .. } => with_counts(text, keys.clone(), extras),
            Self::Decoded { value, comments: Some(text) } if extras.is_empty() || value.is_object() => {
                let keys = value.as_object().into_iter().flat_map(Map::keys).cloned().collect();
                with_counts(text, keys, extras)
            }
            Self::Decoded { value, .. } if extras.is_empty() => toon::encode(value),
            Self::Decoded { value, .. } => {
                let mut root = match value.as_object() {
                    Some(fields) => fields.clone(),
                    None => Map::from_iter([(subscriber.as_str().to_owned(), value.clone())]),
                };
                for (name, count) in extras {
                    let key = free_key(name, |key| root.contains_key(key));
                    root.insert(key, Value::from(*count));
                }
                toon::encode(&Value::Object(root))
            }
        }
    }
}

fn with_counts(text: &str, mut keys: Vec<String>, counts: &[(&str, u64)]) -> String {
    let mut text = text.to_owned();
    for (name, count) in counts {
        let key = free_key(name, |key| keys.iter().any(|taken| taken == key));
        text.push('\n');
        text.push_str(&toon::encode_field(&key, &Value::from(*count)));
        keys.push(key);
    }
    text
}
