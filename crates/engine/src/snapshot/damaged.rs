//! The error of encoding and decoding.

use std::convert::Infallible;

use minicbor_serde::error::{DecodeError, EncodeError};

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

impl From<EncodeError<Infallible>> for Damaged {
    fn from(error: EncodeError<Infallible>) -> Self {
        Self(error.to_string())
    }
}

impl From<DecodeError> for Damaged {
    fn from(error: DecodeError) -> Self {
        Self(error.to_string())
    }
}
