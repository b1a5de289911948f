//! Refusals as JSON.

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
