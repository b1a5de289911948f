//! The versioned JSON of the API, and validation of input.
//!
//! All external input is parsed here, once, into valid types; an error names the field and, for a
//! misspelt word, the nearest valid one. The engine's output becomes JSON here. This module uses no
//! sockets, HTTP, files or clock: a caller passes the time and creates the ids.

pub mod event;
pub mod exchange;
pub mod harness;
pub mod history;
pub mod inbox;
pub mod notify;
pub mod questions;
pub mod sources;
pub mod views;
pub mod watches;

use serde::{Deserialize, Serialize};

/// The body of every refusal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorView,
}

/// The error in a request or one of its events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ErrorView {
    /// The invalid field, such as `severity` or `observe[2].type`; absent when the whole is
    /// unusable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What is wrong.
    pub message: String,
}

/// Whether a count is zero, and left out.
pub(super) fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}
