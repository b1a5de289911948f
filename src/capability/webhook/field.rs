//! The fields of a body: where they are, and which names and texts are taken.

use serde_json::Value;

use engine::event::{cut_text, strip_text};

/// Longest text that is read from a field of a body, in characters.
const TEXT_CHARS_MAX: usize = 500;
/// Longest name of a field or an alert that is read from a body, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The path of a value in a body: keys separated by dots; a number as key is also an index into an
/// array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path(pub(super) Vec<String>);

impl Path {
    /// Parses a path; `None` if a key is empty.
    pub fn parse(text: &str) -> Option<Self> {
        let keys: Vec<String> = text.split('.').map(str::to_owned).collect();
        keys.iter().all(|key| !key.is_empty()).then_some(Self(keys))
    }
}

/// Whether a sender's name of a field is valid here; fields with other names are omitted.
pub(super) fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// A value without control characters and of bounded length.
pub(super) fn clean(value: &Value) -> Value {
    let text = value.as_str().map(|text| cut_text(strip_text(text), TEXT_CHARS_MAX).into_owned().into());
    text.unwrap_or_else(|| value.clone())
}
