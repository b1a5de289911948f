//! The result of a check, and its error.

use std::io;

use engine::watch::condition::Condition;

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// The condition is met; the state as a text.
    Met(String),
    /// It is not met; the condition with everything that is needed to wait for it.
    Open(Condition),
}

/// Why a condition cannot be checked.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LookError(String);

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
