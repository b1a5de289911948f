//! What a look at the machine shows, and why it shows nothing.

use std::{fmt, io};

use crate::watch::condition::Condition;

/// What a look shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// It is so, in these words.
    Met(String),
    /// It is not; with all that is needed to wait for it.
    Open(Condition),
}

/// Why a condition cannot be looked at.
#[derive(Debug)]
pub struct LookError(String);

impl fmt::Display for LookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LookError {}

impl From<io::Error> for LookError {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl LookError {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}
