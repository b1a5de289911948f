//! The JSON of watches: requests, and open watches.

use std::{sync::Arc, time::Duration};

use engine::{
    event::{SessionId, strip_text},
    notification::Priority,
    request::{self, FieldError, Text, names::read_name},
    watch::{CONDITIONS_MAX, EXPIRES_MAX, NOTE_CHARS_MAX, Needs, ReminderKind, Watch},
};
use journal::time::parse_duration;
use serde::{Deserialize, Serialize};

use crate::api::wire::read_folder;

/// A watch request. docs/watches.md defines its conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchRequest {
    /// The conditions, as written: 1 to 8.
    pub conditions: Vec<String>,
    /// How many of them have to be met.
    pub needs: Needs,
    /// A note for its notification.
    pub note: Option<String>,
    /// The kind of reminder.
    pub kind: Option<ReminderKind>,
    /// The priority of its notification.
    pub priority: Option<Priority>,
    /// Its longest duration.
    pub expires: Option<Duration>,
    /// The session that is notified.
    pub session: Option<SessionId>,
    /// The folder whose sessions are notified, without a session.
    pub workspace: Option<Arc<str>>,
    /// The caller's folder: the base of relative paths, and the watch's folder if nothing else is
    /// known.
    pub cwd: Option<Arc<str>>,
}

impl WatchRequest {
    /// Parses the body of a request.
    ///
    /// Errors: the first invalid or unknown field.
    pub fn read(body: &[u8]) -> Result<Self, FieldError> {
        let body: WatchBody<'_> = request::read_body(body)?;
        let conditions = body.conditions;
        if conditions.is_empty() || conditions.len() > CONDITIONS_MAX {
            let message = format!("must be 1 to {CONDITIONS_MAX} texts, such as [\"exit 4711\"]");
            return Err(FieldError::new("conditions", message));
        }
        Ok(Self {
            conditions,
            needs: body.needs.unwrap_or_default(),
            note: body.note.as_deref().map(read_note).transpose()?,
            kind: body.kind,
            priority: body.priority,
            expires: body.expires.as_deref().map(read_expires).transpose()?,
            session: read_name("session", body.session)?.map(|id| SessionId::new(&id)),
            workspace: read_folder("workspace", body.workspace)?,
            cwd: read_folder("cwd", body.cwd)?,
        })
    }
}

/// A watch as requested.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WatchBody<'a> {
    #[serde(default, deserialize_with = "request::one_or_many")]
    conditions: Vec<String>,
    #[serde(default, deserialize_with = "request::optional_word")]
    needs: Option<Needs>,
    #[serde(borrow)]
    note: Option<Text<'a>>,
    #[serde(default, deserialize_with = "request::optional_word")]
    kind: Option<ReminderKind>,
    #[serde(default, deserialize_with = "request::optional_word")]
    priority: Option<Priority>,
    #[serde(borrow)]
    expires: Option<Text<'a>>,
    #[serde(borrow)]
    session: Option<Text<'a>>,
    #[serde(borrow)]
    workspace: Option<Text<'a>>,
    #[serde(borrow)]
    cwd: Option<Text<'a>>,
}

fn read_note(text: &str) -> Result<String, FieldError> {
    let count = text.chars().count();
    if count > NOTE_CHARS_MAX {
        let message = format!("has at most {NOTE_CHARS_MAX} characters, not {count}");
        return Err(FieldError::new("note", message));
    }
    Ok(strip_text(text).into_owned())
}

/// Parses `expires`, the longest duration.
pub(super) fn read_expires(text: &str) -> Result<Duration, FieldError> {
    let found = parse_duration(text).filter(|time| !time.is_zero() && *time <= EXPIRES_MAX);
    found.ok_or_else(|| FieldError::new("expires", "must be a duration of at most 7 days, such as \"20m\""))
}

/// An open watch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct WatchView {
    /// Its id.
    pub id: String,
    /// Its conditions.
    pub conditions: Vec<ConditionView>,
    /// `any` or `all`.
    #[cfg_attr(test, schema(value_type = String))]
    pub needs: Needs,
    /// The note for its notification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The priority of its notification, if it has one of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    pub priority: Option<Priority>,
    /// When it was set.
    pub set_at: String,
    /// When it ends at the latest.
    pub expires_at: String,
    /// The session that is notified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The folder whose sessions are notified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ConditionView {
    /// Its text, as written.
    pub text: String,
    /// How it became true; absent until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

impl From<&Watch> for WatchView {
    fn from(watch: &Watch) -> Self {
        let condition =
            |part: &engine::watch::Part| ConditionView { text: part.text.clone(), state: part.met.clone() };
        Self {
            id: watch.id.to_string(),
            conditions: watch.parts.iter().map(condition).collect(),
            needs: watch.needs,
            note: watch.note.clone(),
            priority: watch.priority,
            set_at: watch.set_at.to_string(),
            expires_at: watch.expires_at.to_string(),
            session: watch.session.as_ref().map(ToString::to_string),
            workspace: watch.workspace.as_deref().map(str::to_owned),
        }
    }
}

/// The outcome of a watch request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct WatchAnswer {
    /// The watch that was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchView>,
    /// The conditions that are already true; then no watch was set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub already: Vec<ConditionView>,
}

/// The open watches.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct WatchList {
    /// Oldest first.
    pub watches: Vec<WatchView>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<WatchRequest, String> {
        WatchRequest::read(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_request_is_read_whole() {
        let text = r#"{"conditions":["exit 4711","in 20m"],"needs":"all","note":"go\u001b[31m on","kind":"checkpoint",
            "priority":"low","expires":"2h","session":"s1","workspace":"/w","cwd":"/w/sub/"}"#;
        let expected = WatchRequest {
            conditions: vec!["exit 4711".to_owned(), "in 20m".to_owned()],
            needs: Needs::All,
            note: Some("go on".to_owned()),
            kind: Some(ReminderKind::Checkpoint),
            priority: Some(Priority::Low),
            expires: Some(Duration::from_secs(7_200)),
            session: Some(SessionId::new("s1")),
            workspace: Some("/w".into()),
            cwd: Some("/w/sub".into()),
        };
        assert_eq!(read(text), Ok(expected));
    }

    #[test]
    fn single_condition_needs_no_brackets() {
        let request = read(r#"{"conditions":"port 3000"}"#).expect("readable");
        assert_eq!(request.conditions, ["port 3000"]);
    }

    #[test]
    fn watch_error_names_the_invalid_field() {
        let long = format!(r#"{{"conditions":["in 1m"],"note":"{}"}}"#, "x".repeat(501));
        for (text, expected) in [
            (r#"{"conditions":[]}"#, "conditions: must be 1 to 8 texts"),
            ("{}", "conditions: must be 1 to 8 texts"),
            (r#"{"conditions":[7]}"#, "conditions[0]: must be a string, not a number"),
            (r#"{"conditions":7}"#, "conditions: must be a string or an array of strings, not a number"),
            (r#"{"conditions":["in 1m"],"needs":["all"]}"#, "needs: must be a string, not an array"),
            (r#"{"condition":["in 1m"]}"#, "`conditions`"),
            (r#"{"conditions":["in 1m"],"needs":"al"}"#, "needs: `al` is not allowed; did you mean `all`?"),
            (r#"{"conditions":["in 1m"],"kind":"remindr"}"#, "did you mean `reminder`?"),
            (r#"{"conditions":["in 1m"],"expires":"8d"}"#, "expires: must be a duration of at most 7 days"),
            (&long, "note: has at most 500 characters"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
