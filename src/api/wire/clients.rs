//! How clients of sessions are reached, as JSON.

use std::ops::Not;

use serde::{Deserialize, Serialize};

/// Wake routes of sessions, and problems with hooks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ClientsView {
    /// The sessions that can be woken, by id; every other session is reached by its hooks alone.
    pub attached: Vec<AttachedView>,
    /// Hook input that could not be used since the daemon started.
    pub troubles: Vec<TroubleView>,
}

/// The wake route of one session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct AttachedView {
    /// Its id.
    pub session: String,
    /// `monitor` or `message_socket`.
    pub wake_route: String,
    /// Whether the client keeps messages of others from its model, so that the session is reached by
    /// its hooks alone.
    #[serde(skip_serializing_if = "Not::not")]
    #[cfg_attr(test, schema(required = false))]
    pub is_held: bool,
}

/// One kind of problem.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct TroubleView {
    /// `left_out`, `refused` or `unknown_harness`, and the field or name; `other` beyond 32 kinds.
    pub kind: String,
    /// How often.
    pub count: u64,
    /// The message of the last one.
    pub last: String,
    /// The time of the last one.
    pub last_at: String,
}
