//! The error of encoding and decoding.

/// Invalid bytes, or state that cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the state is damaged: {0}")]
pub struct Damaged(String);

impl Damaged {
    /// Creates the error; `what` is a lowercase fragment.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl From<rmp_serde::encode::Error> for Damaged {
    fn from(error: rmp_serde::encode::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<rmp_serde::decode::Error> for Damaged {
    fn from(error: rmp_serde::decode::Error) -> Self {
        Self(error.to_string())
    }
}
