//! The JSON of silences: requests, and silences with what they did.

use std::{sync::Arc, time::Duration};

use engine::{
    event::{Pattern, SessionId},
    hold::SilenceId,
    notification::SubscriberId,
    pipeline::{
        condition::Condition,
        silence::{Kept, Matchers, SILENCE_DEFAULT, SILENCE_MAX, Silence},
    },
    request::{self, FieldError, Text, names::read_name},
};
use journal::time::{Timestamp, parse_duration};
use serde::{Deserialize, Serialize};

use crate::api::wire::read_folder;

/// Longest comment, in characters.
const COMMENT_CHARS_MAX: usize = 200;
/// Most time between a request and the record of its silence, whose time is the beginning.
const RECORDED_WITHIN: Duration = Duration::from_secs(5);
/// Longest id of a silence, in bytes.
const ID_BYTES_MAX: usize = 15;

/// A silence as requested: what all of its matchers match.
#[derive(Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct SilenceBody<'a> {
    /// Its id, so that the request can be repeated: at most 15 letters, digits, `-` and `_`.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    id: Option<Text<'a>>,
    /// A subscriber; `*` for all.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    subscriber: Option<Text<'a>>,
    /// Patterns of event types.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<Vec<String>>))]
    types: Option<Vec<Text<'a>>>,
    /// A source of events.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    source: Option<Text<'a>>,
    /// An expression over an event, in the language of a subscriber's `where`.
    #[serde(borrow, rename = "where")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    condition: Option<Text<'a>>,
    /// A session.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    session: Option<Text<'a>>,
    /// A folder: its sessions, and those below it.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    workspace: Option<Text<'a>>,
    /// Whether critical notifications are suppressed too; those of core subscribers never are.
    #[serde(default)]
    critical: bool,
    /// How long, such as `2h`; an hour if neither `for` nor `until` is there.
    #[serde(borrow, rename = "for")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    lasts: Option<Text<'a>>,
    /// When it ends, in RFC 3339.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    until: Option<Text<'a>>,
    /// Who made it.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    by: Option<Text<'a>>,
    /// Why.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    comment: Option<Text<'a>>,
    /// `true`: the silence in force with this id and these matchers gets another end.
    #[serde(default)]
    extend: bool,
}

/// A request for a silence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SilenceRequest {
    /// The silence.
    pub(crate) silence: Silence,
    /// How long it lasts, if the request does not name the time of its end.
    lasts: Option<Duration>,
    /// Whether the silence in force with its id gets another end.
    pub(crate) is_extension: bool,
}

impl SilenceRequest {
    /// Whether `kept`, which is in force with the same id, may be what the request asks for.
    pub(crate) fn is_accepted_by(&self, kept: &Kept) -> bool {
        let (new, old) = (&self.silence, &kept.silence);
        let has_same_end = || {
            let asked = self.lasts.map_or(new.until, |lasts| kept.since + lasts);
            asked.since(old.until).max(old.until.since(asked)) <= RECORDED_WITHIN
        };
        let is_repetition = || (&new.by, &new.comment) == (&old.by, &old.comment) && has_same_end();
        new.matchers == old.matchers && (self.is_extension || is_repetition())
    }
}

/// Reads the body of a request. `new_id` makes the id of a silence that names none.
///
/// Errors: the first invalid or unknown field.
pub(crate) fn read(
    body: &[u8],
    now: Timestamp,
    new_id: impl FnOnce() -> SilenceId,
) -> Result<SilenceRequest, FieldError> {
    let body: SilenceBody<'_> = request::read_body(body)?;
    let matchers = Matchers {
        subscriber: read_name("subscriber", body.subscriber)?.map(|id| SubscriberId::new(&id)),
        types: body.types.iter().flatten().map(|text| read_pattern(text)).collect::<Result<_, _>>()?,
        source: read_name("source", body.source)?.map(|source| (*source).into()),
        condition: body.condition.as_deref().map(read_condition).transpose()?,
        session: read_name("session", body.session)?.map(|id| SessionId::new(&id)),
        workspace: read_folder("workspace", body.workspace)?,
        critical: body.critical,
    };
    if matchers.is_empty() {
        let message = "is missing: a silence names what it suppresses, such as subscriber, types or where; \
                       `*` is every subscriber";
        return Err(FieldError::new("subscriber", message));
    }
    if matchers.is_everything() {
        let message = "is missing: these types and this `where` match everything; `*` asks for that";
        return Err(FieldError::new("subscriber", message));
    }
    let comment = body.comment.as_deref().unwrap_or_default();
    if comment.chars().count() > COMMENT_CHARS_MAX {
        let message = format!("has at most {COMMENT_CHARS_MAX} characters");
        return Err(FieldError::new("comment", message));
    }
    let id = match body.id.as_deref() {
        Some(id) => read_id(id)?,
        None if body.extend => return Err(FieldError::new("id", "is missing: it names what is extended")),
        None => new_id(),
    };
    let until = read_end(body.lasts.as_deref(), body.until.as_deref(), now)?;
    let by = body.by.as_deref().unwrap_or("user").into();
    let silence = Silence { id, matchers, until, by, comment: comment.into() };
    let lasts = body.until.is_none().then(|| until.since(now));
    Ok(SilenceRequest { silence, lasts, is_extension: body.extend })
}

fn read_id(text: &str) -> Result<SilenceId, FieldError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if text.is_empty() || text.len() > ID_BYTES_MAX || !text.chars().all(is_allowed) {
        let message = format!("must be 1 to {ID_BYTES_MAX} letters, digits, `-` and `_`");
        return Err(FieldError::new("id", message));
    }
    Ok(SilenceId::new(text))
}

fn read_pattern(text: &str) -> Result<Pattern, FieldError> {
    text.parse().map_err(|error| FieldError::new("types", format!("has no pattern of types: {error}")))
}

fn read_condition(text: &str) -> Result<Arc<str>, FieldError> {
    match Condition::compile(text) {
        Ok(condition) => Ok(condition.source().into()),
        Err(error) => Err(FieldError::new("where", format!("is not an expression: {}", error.message))),
    }
}

/// The end of a silence that begins at `now`.
fn read_end(lasts: Option<&str>, until: Option<&str>, now: Timestamp) -> Result<Timestamp, FieldError> {
    let within = |until: Timestamp| (now < until && until <= now + SILENCE_MAX).then_some(until);
    match (lasts, until) {
        (Some(_), Some(_)) => Err(FieldError::new("until", "and `for` exclude each other")),
        (Some(lasts), None) => {
            let lasts = parse_duration(lasts).filter(|lasts| !lasts.is_zero());
            lasts.and_then(|lasts| within(now + lasts)).ok_or_else(|| {
                FieldError::new("for", "must be a duration of at most 30 days, such as \"2h\"")
            })
        }
        (None, Some(until)) => {
            until.parse().ok().and_then(within).ok_or_else(|| {
                FieldError::new("until", "must be a time within the next 30 days, in RFC 3339")
            })
        }
        (None, None) => Ok(now + SILENCE_DEFAULT),
    }
}

/// A silence, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SilenceView {
    /// Its id.
    pub id: String,
    /// What it suppresses, in a line.
    pub suppresses: String,
    /// What all have to match.
    #[cfg_attr(test, schema(value_type = Object))]
    pub matchers: Matchers,
    /// When it began.
    pub since: String,
    /// When it ends, or was to end.
    pub until: String,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Who made it.
    pub by: String,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub comment: String,
    /// Number of notifications that it holds now.
    pub held: u64,
    /// Number of events and notifications that ended by it.
    pub ended: u64,
    /// Number of pending notifications that it ended or held when it began.
    pub pending: u64,
    /// Number of rows of open batches that it ended or held when it began.
    pub rows: u64,
}

impl SilenceView {
    pub(crate) fn new(kept: &Kept, held: usize) -> Self {
        let Kept { silence, since, ended_at, began, .. } = kept;
        Self {
            id: silence.id.to_string(),
            suppresses: silence.matchers.to_string(),
            matchers: silence.matchers.clone(),
            since: since.to_string(),
            until: silence.until.to_string(),
            ended_at: ended_at.map(|at| at.to_string()),
            by: silence.by.to_string(),
            comment: silence.comment.to_string(),
            held: held as u64,
            ended: kept.ended_count(),
            pending: began.pending,
            rows: began.rows,
        }
    }
}

/// Silences: those in force, the one that ends first before the others; then, if they were asked for,
/// those that have ended, the last one first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SilenceList {
    /// The silences.
    pub silences: Vec<SilenceView>,
}
