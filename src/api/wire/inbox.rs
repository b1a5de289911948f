//! The JSON of inboxes: an agent's request, and pending notifications.

use std::sync::Arc;

use engine::{
    event::SessionId,
    hold::{DelayedBy, Hold, Wait},
    request::{self, FieldError, Text, names::read_name},
};
use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

/// An agent's inbox request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InboxRequest {
    /// The watch to end, by its id or a prefix of it; without one the request takes the pending
    /// notifications and lists the open watches.
    pub cancel: Option<String>,
    /// The answer to a notification.
    pub respond: Option<InboxResponse>,
    /// The session of the inbox.
    pub session: Option<SessionId>,
}

/// An answer to a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxResponse {
    /// The notification, or the beginning of its id as in the text.
    pub id: String,
    /// The action.
    pub action: String,
    /// How long a snooze lasts.
    pub lasts: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResponseBody<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    action: Text<'a>,
    #[serde(borrow, rename = "for")]
    lasts: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InboxBody<'a> {
    #[serde(borrow)]
    cancel: Option<Text<'a>>,
    #[serde(borrow)]
    respond: Option<ResponseBody<'a>>,
    #[serde(borrow)]
    session: Option<Text<'a>>,
}

impl InboxRequest {
    /// Parses the arguments of a call.
    ///
    /// Errors: the first invalid or unknown field.
    pub fn read(text: &str) -> Result<Self, FieldError> {
        let InboxBody { cancel, respond, session } = request::read(text)?;
        let response = |ResponseBody { id, action, lasts }: ResponseBody<'_>| InboxResponse {
            id: id.trim().to_owned(),
            action: action.to_string(),
            lasts: lasts.map(|lasts| lasts.to_string()),
        };
        Ok(Self {
            cancel: cancel.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()),
            respond: respond.map(response),
            session: read_name("session", session)?.map(|id| SessionId::new(&id)),
        })
    }
}

/// Pending notifications.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct InboxList {
    /// By session, in delivery order; then the unclaimed ones, and those for the user alone.
    pub notifications: Vec<WaitingView>,
    /// What was delivered and somebody has taken up, the newest first; on the first page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken_up: Vec<TakenUp>,
    /// Number of open questions to the user, of that session and its folder or in all.
    #[serde(default)]
    #[cfg_attr(test, schema(required = true))]
    pub questions: usize,
    /// Number of open batches, each of which collects events for one notification that is not made yet;
    /// 0 for one session.
    #[serde(default)]
    #[cfg_attr(test, schema(required = true))]
    pub batches_open: u64,
    /// Start of the next page, to be sent as `from`; absent on the last page. Entries that change
    /// meanwhile may be on both pages or on neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A delivered notification that somebody has taken up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct TakenUp {
    /// Its id.
    pub id: String,
    /// The subscriber that created it.
    pub subscriber: String,
    /// `critical`, `high`, `normal` or `low`.
    pub priority: String,
    /// One line for a person.
    pub sentence: String,
    /// Who: a session, or a user.
    pub by: String,
    /// Since when.
    pub since: String,
}

/// A pending notification.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct WaitingView {
    /// Its id.
    pub id: String,
    /// The session of its queue, or the session not open yet that it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The folder whose next session gets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The subscriber that created it.
    pub subscriber: String,
    /// `critical`, `high`, `normal` or `low`.
    pub priority: String,
    /// `agent`; `user` when it needs the user's approval; `next_session` when no session in its
    /// scope is open; `sinks` when it is for the user alone.
    pub waits_for: String,
    /// Its age, in milliseconds.
    pub age_ms: u64,
    /// One line for a person: the words of its subscriber's `sentence`, else the first values of its
    /// text.
    pub sentence: String,
    /// Its text, as TOON.
    pub text: Arc<str>,
    /// What keeps it from being released; it is releasable without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<HoldView>,
}

/// Where a notification is pending.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct PendingIn {
    /// The session of the queue; absent for one that waits for the next session or for the sinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// `agent`, `user`, `next_session` or `sinks`, as in the inbox.
    pub waits_for: String,
    /// What keeps it from being released; it is releasable without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<HoldView>,
}

/// What keeps a pending notification from being released.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct HoldView {
    /// `quiet`, `deferred`, `snoozed`, `silenced`, `budget` or `inhibited`.
    pub kind: String,
    /// The key of its subscriber or of `[budget]`, the silence, the event that causes it, or the
    /// user's settings.
    pub cause: String,
    /// When it began.
    pub since: String,
    /// When it ends at the latest, if a time is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// What else ends it, as in `deliver_after`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

impl HoldView {
    /// The view of a hold that ends at `until` at the latest.
    pub(crate) fn new(hold: &Hold, until: Option<Timestamp>) -> Self {
        let (cause, waits) = match hold {
            Hold::Quiet { of_user: false, .. } => ("limits.quiet".to_owned(), &[][..]),
            Hold::Quiet { of_user: true, .. } => ("the user's settings".to_owned(), &[][..]),
            Hold::Budget { of, .. } => (of.key(), &[][..]),
            Hold::Snoozed { .. } => ("a response".to_owned(), &[][..]),
            Hold::Deferred { waits, by, .. } => (cause_of_delay(*by).to_owned(), &waits[..]),
            Hold::Silenced { by, .. } => (by.to_string(), &[][..]),
            Hold::Inhibited { by, .. } => (by.to_string(), &[][..]),
        };
        let after = waits.iter().filter(|wait| !matches!(wait, Wait::Until(_)));
        Self {
            kind: hold.kind().as_str().to_owned(),
            cause,
            since: hold.since().to_string(),
            until: until.map(|until| until.to_string()),
            after: after.map(Wait::to_string).collect(),
        }
    }
}

/// What delays a notification: a key of its subscriber or of its events, or that nobody has answered.
fn cause_of_delay(by: DelayedBy) -> &'static str {
    match by {
        DelayedBy::Subscriber => "limits.deliver_after",
        DelayedBy::Event => "deliver_after",
        DelayedBy::Repetition => "repeat.after",
        DelayedBy::Answer => "no answer yet",
    }
}

impl WaitingView {
    /// `waits_for` of one that the agent gets.
    pub const AGENT: &'static str = "agent";
    /// `waits_for` of one that needs the user's approval.
    pub const USER: &'static str = "user";
    /// `waits_for` of one with no open session in its scope.
    pub const NEXT_SESSION: &'static str = "next_session";
    /// `waits_for` of one for the user alone, which goes to the sinks.
    pub const SINKS: &'static str = "sinks";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inbox_request_fields_are_all_optional() {
        let read = |text: &str| InboxRequest::read(text).map_err(|error| error.to_string());
        assert_eq!(read("{}"), Ok(InboxRequest::default()));
        assert_eq!(read(r#"{"cancel":" "}"#), Ok(InboxRequest::default()));
        let whole = InboxRequest {
            cancel: Some("w1".to_owned()),
            session: Some(SessionId::new("s1")),
            ..InboxRequest::default()
        };
        assert_eq!(read(r#"{"cancel":"w1 ","session":"s1"}"#), Ok(whole));
        let wrong = read(r#"{"cancle":"w1"}"#).expect_err("no such field");
        assert!(wrong.contains("`cancel`"), "{wrong}");
    }
}
