//! The subscribers and sessions of an event as JSON.

use serde::{Deserialize, Serialize};

/// The subscribers of an event, and the open sessions in its scope.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct MatchView {
    /// The subscribers that take its type, by id.
    pub subscribers: Vec<TakerView>,
    /// The open sessions in its scope, the first 20. Without any, its notifications wait for the
    /// next one.
    pub sessions: Vec<String>,
    /// Number of all those sessions.
    pub session_count: usize,
    /// The most similar known type, when no subscriber takes this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
}

/// A subscriber that takes the event's type.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct TakerView {
    /// Its id.
    pub subscriber: String,
    /// `takes`, `resolves`, `filtered` or `off`.
    pub verdict: String,
    /// The filter key that refuses the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filtered_by: Option<String>,
}
