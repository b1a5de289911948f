//! The JSON of answers to notifications.

use std::{sync::Arc, time::Duration};

use engine::{
    event::SessionId,
    notification::repeat::{Action, SNOOZE_MAX},
    request::{self, FieldError, Text, names::read_name},
    words::Words,
};
use journal::time::{Timestamp, parse_duration};
use serde::{Deserialize, Serialize};

/// The time of a snooze that names none.
const SNOOZE_DEFAULT: Duration = Duration::from_secs(600);

/// An answer as requested.
#[derive(Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct RespondBody<'a> {
    /// `acknowledge`, `investigate`, `dismiss` or `snooze`.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = String))]
    action: Text<'a>,
    /// How long it is snoozed, at most 24 hours; 10 minutes if absent.
    #[serde(borrow, rename = "for")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    lasts: Option<Text<'a>>,
    /// Who answers, if not an agent.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    by: Option<Text<'a>>,
    /// The session whose agent answers; that of the requesting process if absent.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    session: Option<Text<'a>>,
}

/// How a notification was answered in a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Answered {
    /// `acknowledged`, `investigating`, `dismissed` or `snoozed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// Who answered: a session, or a user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responded_by: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responded_at: Option<String>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RespondRequest {
    /// What is done with the notification.
    pub action: Action,
    /// Until when it is snoozed.
    pub until: Option<Timestamp>,
    /// Who answers.
    pub by: Option<Arc<str>>,
    /// The session whose agent answers.
    pub session: Option<SessionId>,
}

/// Reads the body of a request.
///
/// Errors: the first invalid or unknown field.
pub(crate) fn read(body: &[u8], now: Timestamp) -> Result<RespondRequest, FieldError> {
    let RespondBody { action, lasts, by, session } = request::read_body(body)?;
    let (action, until) = read_action(&action, lasts.as_deref(), now)?;
    Ok(RespondRequest {
        action,
        until,
        by: read_name("by", by)?.map(|by| (*by).into()),
        session: read_name("session", session)?.map(|id| SessionId::new(&id)),
    })
}

/// Reads an action, and until when a snooze lasts that begins at `now`.
pub(crate) fn read_action(
    action: &str,
    lasts: Option<&str>,
    now: Timestamp,
) -> Result<(Action, Option<Timestamp>), FieldError> {
    let unknown = || FieldError::new("action", format!("must be one of {}", Action::list()));
    let action = Action::of_word(action).ok_or_else(unknown)?;
    let until = match (action, lasts) {
        (Action::Snooze, None) => Some(now + SNOOZE_DEFAULT),
        (Action::Snooze, Some(lasts)) => {
            let lasts = parse_duration(lasts).filter(|lasts| !lasts.is_zero() && *lasts <= SNOOZE_MAX);
            let message = "must be a duration of at most 24 hours, such as \"10m\"";
            Some(now + lasts.ok_or_else(|| FieldError::new("for", message))?)
        }
        (Action::Acknowledge | Action::Investigate | Action::Dismiss, None) => None,
        (Action::Acknowledge | Action::Investigate | Action::Dismiss, Some(_)) => {
            return Err(FieldError::new("for", "belongs to `snooze`"));
        }
    };
    Ok((action, until))
}
