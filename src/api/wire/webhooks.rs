//! The permitted senders of webhooks as JSON.

use serde::{Deserialize, Serialize};

/// The permitted senders of webhooks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SenderList {
    /// In the order of their names.
    pub senders: Vec<SenderView>,
    /// TCP address for webhooks; absent if only the Unix socket takes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listens_on: Option<String>,
}

/// A permitted sender.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SenderView {
    /// `github`, `gitlab`, `forgejo`, `standard` or `alertmanager`.
    pub name: String,
    /// Its path.
    pub path: String,
    /// Whether it signs; else it sends a token.
    pub is_signed: bool,
    /// The folder whose sessions get its events; all sessions if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Why the daemon cannot take its webhooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
