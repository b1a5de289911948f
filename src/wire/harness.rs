//! What is known of a harness and its process, as JSON.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::exchange::{Conversations, Harness};

/// Facts about a harness.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Harness)]
pub struct HarnessView {
    /// Its name, in lower case, which is also the source of its events.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub name: Option<Arc<str>>,
    /// The harness's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub version: Option<Arc<str>>,
    /// The folder the session works in, absolute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub workspace: Option<Arc<str>>,
    /// The user of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub user: Option<Arc<str>>,
    /// The harness's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Start of that process, in clock ticks since boot; the daemon itself checks the caller's
    /// process and its ancestors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid_started: Option<u64>,
    /// `one_per_process` if the process has one conversation at a time, so that a new session there
    /// continues the previous one; `many` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub conversations: Option<Conversations>,
    /// The parent session of a subagent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub parent: Option<Arc<str>>,
}

impl HarnessView {
    /// The view of `harness`.
    pub fn of(harness: &Harness) -> Self {
        // Written for every process: records without it are older than the field.
        let conversations = harness.conversations.or(harness.pid.map(|_| Conversations::Many));
        Self {
            name: harness.name.clone(),
            version: harness.version.clone(),
            workspace: harness.workspace.clone(),
            user: harness.user.clone(),
            pid: harness.pid,
            pid_started: harness.pid_started,
            conversations,
            parent: harness.parent.as_ref().map(|parent| parent.as_str().into()),
        }
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
