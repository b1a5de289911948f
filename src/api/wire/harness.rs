//! The known facts about a harness and its process, and how clients of sessions are reached, as JSON.

use std::{ops::Not, sync::Arc};

use engine::{
    event::SessionId,
    exchange::{Conversations, Harness},
    request::{self, FieldError, names::read_name},
};
use serde::{Deserialize, Serialize};

use crate::api::wire::{read_folder, read_text};

/// Facts about a harness; in an answer, unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
#[cfg_attr(test, schema(as = Harness))]
pub struct HarnessView {
    /// Its name, in lower case, which is also the source of its events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The harness's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Arc<str>>,
    /// The folder the session works in, absolute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Arc<str>>,
    /// The user of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    #[cfg_attr(test, schema(value_type = Option<String>))]
    pub conversations: Option<Conversations>,
    /// The parent session of a subagent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<Arc<str>>,
}

impl HarnessView {
    /// The view of `harness`.
    pub fn of(harness: &Harness) -> Self {
        Self {
            name: harness.name.clone(),
            version: harness.version.clone(),
            workspace: harness.workspace.clone(),
            user: harness.user.clone(),
            pid: harness.pid,
            pid_started: harness.pid_started,
            conversations: harness.process_conversations(),
            parent: harness.parent.as_ref().map(|parent| parent.as_str().into()),
        }
    }
}

/// The facts in a request, where an unknown field is refused, because it is usually a misspelt one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HarnessBody {
    name: Option<Arc<str>>,
    version: Option<Arc<str>>,
    workspace: Option<Arc<str>>,
    user: Option<Arc<str>>,
    pid: Option<u32>,
    pid_started: Option<u64>,
    #[serde(default, deserialize_with = "request::optional_word")]
    conversations: Option<Conversations>,
    parent: Option<Arc<str>>,
}

impl TryFrom<HarnessBody> for Harness {
    type Error = FieldError;

    fn try_from(body: HarnessBody) -> Result<Self, FieldError> {
        Ok(Self {
            name: read_text("name", body.name.as_deref())?,
            version: read_text("version", body.version.as_deref())?,
            workspace: read_folder("workspace", body.workspace.as_deref())?,
            user: read_text("user", body.user.as_deref())?,
            pid: body.pid,
            pid_started: body.pid_started,
            conversations: body.conversations,
            parent: read_name("parent", body.parent.as_deref())?.map(|id| SessionId::new(&id)),
            ..Self::default()
        })
    }
}

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
    /// `follower` or `message_socket`.
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

#[cfg(test)]
mod tests {
    use crate::api::wire::{
        history::ClosedSession,
        inbox::InboxList,
        views::{ConfigView, PendingView, SessionList, SessionView, StatusView, SubscriberCounts},
    };

    #[test]
    fn an_answer_of_another_version_is_read() {
        let session = r#"{"id":"s1","harness":{"name":"a","x":1},"y":2}"#;
        let open: SessionView = serde_json::from_str(session).expect("a session");
        let closed: ClosedSession = serde_json::from_str(session).expect("a session");
        assert_eq!((open.harness.name.as_deref(), closed.harness.name.as_deref()), (Some("a"), Some("a")));
        let pending: PendingView = serde_json::from_str(r#"{"session":"s1"}"#).expect("a queue");
        assert_eq!((&*pending.session, pending.pending), ("s1", 0));
        let config: ConfigView = serde_json::from_str(r#"{"state":"partly"}"#).expect("a configuration");
        assert_eq!((&*config.state, config.errors), ("partly", 0));
        let failing = r#"{"failing":[{"file":"a.j2"}]}"#;
        let counts: SubscriberCounts = serde_json::from_str(failing).expect("counts");
        assert_eq!(counts.failing[0].file, "a.j2");
    }

    #[test]
    fn response_without_main_part_is_an_error() {
        assert!(serde_json::from_str::<SessionList>("{}").is_err());
        assert!(serde_json::from_str::<InboxList>("{}").is_err());
        assert!(serde_json::from_str::<StatusView>("{}").is_err());
        assert!(serde_json::from_str::<PendingView>("{}").is_err());
    }
}
