//! Answers of the projection: pages of events, notifications, messages and closed sessions.
//!
//! A page is newest first and names the `next` one, if there is one; new entries do not shift it.

use std::{error::Error, str::FromStr};

use axum::{Json, extract::State, http::StatusCode};
use engine::{
    event::{Seq, SessionId},
    ledger::Reason,
    notification::NotificationId,
    request::{FieldError, hint},
    session::Readable,
    sink::{NOTICE, question::ASKED},
    words::{Words, counted},
};
use serde::Deserialize;

#[cfg(test)]
use crate::api::wire::ErrorBody;
use crate::{
    api::{
        App,
        actor::Actor,
        error::ApiError,
        extract::{Params, Segment, SessionSegment},
        inbox::pending_in,
        naming::known_session,
        wire::history::{
            ClosedSessionPage, EventPage, InjectionPage, MessagePage, NamedInjections, NotificationPage,
            NotificationWithHistory, ProjectionView, raw, read_limit, read_moment,
        },
    },
    history::{
        Looked, QueryResult, View,
        events::{EventFilter, NoticeFilter},
        notifications::{NotificationFilter, STATES},
    },
};

/// Selects events.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsParams {
    /// Only types that match this pattern, such as `tool.**`.
    #[serde(rename = "type")]
    event_type: Option<String>,
    /// Only events from this component.
    source: Option<String>,
    /// Only events at least this severe.
    severity: Option<String>,
    /// Only notices and questions for the user of this category: `analysis`, `workflow`, `safety`,
    /// `performance` or `discovery`.
    category: Option<String>,
    /// Only notices and questions for the user of at least this level: `info`, `warn` or `error`.
    level: Option<String>,
    /// Only events that ended for this reason, or whose notification did, such as `silenced`.
    reason: Option<String>,
    /// Only events addressed to this session.
    session: Option<String>,
    /// Only events of this folder or one in it; absolute.
    workspace: Option<String>,
    /// Only events that happened at this time or later: RFC 3339, or how long ago, such as `30m`,
    /// `12h` or `7d`.
    since: Option<String>,
    /// Only events that happened at this time or earlier.
    until: Option<String>,
    /// Most events: 1 to 1000, 100 if it is absent.
    limit: Option<String>,
    /// Cursor: `next` of the previous page.
    cursor: Option<String>,
}

/// Lists the events that a subscriber took or that were throttled, and their outcome; to a process of
/// a session, those addressed to that session or to none.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/events", tag = "events", params(EventsParams),
    responses(
        (status = 200, body = EventPage), (status = 400, body = ErrorBody),
        (status = 403, body = ErrorBody, description = "`session` is another one than the process's own"),
        (status = 503, body = ErrorBody),
    ),
))]
pub(crate) async fn events(
    State(app): State<App>,
    actor: Actor,
    Params(params): Params<EventsParams>,
) -> Result<Json<EventPage>, ApiError> {
    let limit = limit(params.limit.as_deref())?;
    let filter = event_filter(&app, params)?;
    let filter = EventFilter { readable: readable(&app, actor, filter.session.as_deref()).await?, ..filter };
    let read = app.projection.read(move |view| {
        let (events, has_more) = view.events(&filter, limit)?;
        Ok((events, has_more, view.unmatched, view.projected))
    });
    let (events, has_more, unmatched, projected) = read.await?;
    let next = events.last().filter(|_| has_more).map(|last| last.seq.to_string());
    Ok(Json(EventPage { events, next, unmatched, projection: how_far(&app, projected) }))
}

fn event_filter(app: &App, params: EventsParams) -> Result<EventFilter, ApiError> {
    Ok(EventFilter {
        pattern: parsed("type", params.event_type.as_deref())?,
        severity_min: parsed("severity", params.severity.as_deref())?,
        source: params.source,
        notice: NoticeFilter {
            types: &[NOTICE, ASKED],
            category: word("category", params.category.as_deref())?,
            level_min: word("level", params.level.as_deref())?,
        },
        reason: reason(params.reason.as_deref())?,
        session: params.session,
        workspace: params.workspace,
        since: moment(app, "since", params.since.as_deref())?,
        until: moment(app, "until", params.until.as_deref())?,
        before: cursor(params.cursor.as_deref())?.map(|seq| Seq(seq.unsigned_abs())),
        readable: Readable::All,
    })
}

/// The value with this word.
///
/// Errors: another word; the nearest one is named.
fn word<T: Words>(field: &'static str, text: Option<&str>) -> Result<Option<T>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let words: Vec<&str> = T::words().collect();
    let unknown = || bad(field, format!("`{text}` is not a {field}; {}", hint(text, &words)));
    T::of_word(text).map(Some).ok_or_else(unknown)
}

/// The word of a reason for which something ended.
///
/// Errors: another word; the nearest one is named.
fn reason(text: Option<&str>) -> Result<Option<&'static str>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let words: Vec<&str> = Reason::texts().map(|text| text.word).collect();
    let unknown = || bad("reason", format!("`{text}` is not a reason; {}", hint(text, &words)));
    Reason::text_of(text).map(|found| Some(found.word)).ok_or_else(unknown)
}

/// The sessions of which a list may show entries, for one that is limited to those of `named`.
///
/// Errors: 403 if `named` is none of them.
async fn readable(app: &App, actor: Actor, named: Option<&str>) -> Result<Readable, ApiError> {
    let access = actor.access(app).await?;
    if let Some(named) = named {
        access.check(named)?;
    }
    Ok(access.into_readable())
}

/// Most injections shown for one name. There are a billion names, so few injections share one.
const NAMED_MAX: usize = 8;

/// Selects notifications.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub(crate) struct NotificationsParams {
    /// Only those that were queued for this session.
    session: Option<String>,
    /// Only those of this subscriber.
    subscriber: Option<String>,
    /// Only those of this priority: `critical`, `high`, `normal` or `low`.
    priority: Option<String>,
    /// Only those with this state, in `session` or in any: `unclaimed`, `pending`, `injected`,
    /// `confirmed` or `ended`.
    state: Option<String>,
    /// Only those that ended for this reason, such as `silenced`, in `session` or in any.
    reason: Option<String>,
    /// Only those made at this time or later: RFC 3339, or how long ago, such as `30m`, `12h` or
    /// `7d`.
    since: Option<String>,
    /// Most notifications: 1 to 1000, 100 if it is absent.
    limit: Option<String>,
    /// Cursor: `next` of the previous page.
    cursor: Option<String>,
}

/// Lists the notifications, and the state of each in every session that it reached; to a process of a
/// session, those that are for that session or for none, or reached it, with its own states.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/notifications", tag = "notifications", params(NotificationsParams),
    responses(
        (status = 200, body = NotificationPage), (status = 400, body = ErrorBody),
        (status = 403, body = ErrorBody, description = "`session` is another one than the process's own"),
        (status = 503, body = ErrorBody),
    ),
))]
pub(crate) async fn notifications(
    State(app): State<App>,
    actor: Actor,
    Params(params): Params<NotificationsParams>,
) -> Result<Json<NotificationPage>, ApiError> {
    let limit = limit(params.limit.as_deref())?;
    if let Some(state) = params.state.as_deref().filter(|state| !STATES.contains(state)) {
        return Err(bad("state", format!("`{state}` is not a state; {}", hint(state, &STATES))));
    }
    let filter = NotificationFilter {
        readable: readable(&app, actor, params.session.as_deref()).await?,
        priority: parsed("priority", params.priority.as_deref())?,
        session: params.session,
        subscriber: params.subscriber,
        state: params.state,
        reason: reason(params.reason.as_deref())?,
        since: moment(&app, "since", params.since.as_deref())?,
        before: cursor(params.cursor.as_deref())?,
    };
    let read = page(&app, limit, move |view| view.notifications(&filter, limit));
    let Page { items: notifications, next, projection } = read.await?;
    Ok(Json(NotificationPage { notifications, next, projection }))
}

/// Shows a notification, its events, and its outcome; to a process of a session, what is of that
/// session or of none.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/notifications/{id}", tag = "notifications",
    params(("id" = String, Path, description = "The notification")),
    responses(
        (status = 200, body = NotificationWithHistory),
        (status = 403, body = ErrorBody, description = "It is of another session than the process's own"),
        (status = 404, body = ErrorBody), (status = 503, body = ErrorBody),
    ),
))]
pub(crate) async fn notification(
    State(app): State<App>,
    actor: Actor,
    Segment(id): Segment,
) -> Result<Json<NotificationWithHistory>, ApiError> {
    let look = |view: &View<'_>, id: &str, readable: &Readable| {
        Ok(match view.notification(id, readable)? {
            None => None,
            Some(Looked::Withheld { session }) => Some(Looked::Withheld { session }),
            Some(Looked::Found(notification)) => {
                let events = view.events_at(&notification.events, readable)?;
                Some(Looked::Found((notification, events, view.history_of_notification(id, readable)?)))
            }
        })
    };
    let readable = actor.access(&app).await?.readable().clone();
    let ((notification, events, history), projection) = named(&app, actor, "notification", id, look).await?;
    let pending = pending_in(&app, NotificationId::new(&notification.id), readable).await?;
    let events = events.into_iter().map(raw).collect();
    Ok(Json(NotificationWithHistory { notification, events, history, pending, projection }))
}

/// Selects a page.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub(crate) struct PageParams {
    /// Most entries: 1 to 1000, 100 if it is absent.
    limit: Option<String>,
    /// Cursor: `next` of the previous page.
    cursor: Option<String>,
}

/// Lists the system messages of a session: every notification delivered to it, with the delivered
/// text.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/sessions/{id}/messages", tag = "sessions",
    params(("id" = String, Path, description = "The session, open or closed"), PageParams),
    responses((status = 200, body = MessagePage), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)),
))]
pub(crate) async fn messages(
    State(app): State<App>,
    SessionSegment(session): SessionSegment,
    actor: Actor,
    Params(params): Params<PageParams>,
) -> Result<Json<MessagePage>, ApiError> {
    let read = |view: &View<'_>, id: &str, before, limit| view.messages(id, before, limit);
    let page = session_page(&app, session, actor, &params, read);
    let Page { items: messages, next, projection } = page.await?;
    Ok(Json(MessagePage { messages, next, projection }))
}

/// Lists the injections of a session, each with the text written for its carrier.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/sessions/{id}/injections", tag = "sessions",
    params(("id" = String, Path, description = "The session, open or closed"), PageParams),
    responses((status = 200, body = InjectionPage), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)),
))]
pub(crate) async fn injections(
    State(app): State<App>,
    SessionSegment(session): SessionSegment,
    actor: Actor,
    Params(params): Params<PageParams>,
) -> Result<Json<InjectionPage>, ApiError> {
    let read = |view: &View<'_>, id: &str, before, limit| view.injections(id, before, limit);
    let page = session_page(&app, session, actor, &params, read);
    let Page { items: injections, next, projection } = page.await?;
    Ok(Json(InjectionPage { injections, next, projection }))
}

/// Shows an injection by the short name in its text; to a process of a session, one of that session.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/injections/{id}", tag = "sessions",
    params(("id" = String, Path, description = "The short name")),
    responses(
        (status = 200, body = NamedInjections),
        (status = 403, body = ErrorBody, description = "It is of another session than the process's own"),
        (status = 404, body = ErrorBody), (status = 503, body = ErrorBody),
    ),
))]
pub(crate) async fn named_injections(
    State(app): State<App>,
    actor: Actor,
    Segment(id): Segment,
) -> Result<Json<NamedInjections>, ApiError> {
    let look =
        |view: &View<'_>, id: &str, readable: &Readable| view.injections_named(id, NAMED_MAX, readable);
    let (injections, projection) = named(&app, actor, "injection", id, look).await?;
    Ok(Json(NamedInjections { injections, projection }))
}

/// Lists the closed sessions.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/history/sessions", tag = "sessions", params(PageParams),
    responses((status = 200, body = ClosedSessionPage), (status = 503, body = ErrorBody)),
))]
pub(crate) async fn closed_sessions(
    State(app): State<App>,
    Params(params): Params<PageParams>,
) -> Result<Json<ClosedSessionPage>, ApiError> {
    let (limit, before) = (limit(params.limit.as_deref())?, cursor(params.cursor.as_deref())?);
    let read = page(&app, limit, move |view| view.closed_sessions(before, limit));
    let Page { items: sessions, next, projection } = read.await?;
    Ok(Json(ClosedSessionPage { sessions, next, projection }))
}

/// Returns the result of `look` for the name `id`, and the projection's progress.
///
/// Errors: there is no such `thing`, 403 if it is of a session that `actor` may not read, or the file
/// cannot be read.
async fn named<T: Send + 'static>(
    app: &App,
    actor: Actor,
    thing: &'static str,
    id: String,
    look: impl Fn(&View<'_>, &str, &Readable) -> QueryResult<Option<Looked<T>>> + Copy + Send + 'static,
) -> Result<(T, ProjectionView), ApiError> {
    let mut access = actor.access(app).await?;
    // What was delivered a moment ago must not be shown as pending.
    app.history_caught_up().await;
    loop {
        let (id, readable) = (id.clone(), access.readable().clone());
        let read = app.projection.read(move |view| Ok((look(view, &id, &readable)?, view.projected, id)));
        let (found, projected, id) = read.await?;
        let projection = how_far(app, projected);
        match found {
            Some(Looked::Found(found)) => return Ok((found, projection)),
            Some(Looked::Withheld { session }) => access.check_again(app, &session).await?,
            None => return Err(not_found(thing, &id, &projection)),
        }
    }
}

/// The progress of an answer that covers everything up to `projected`.
pub(crate) fn how_far(app: &App, projected: Seq) -> ProjectionView {
    let behind = app.journal.written().borrow().0.saturating_sub(projected.0);
    ProjectionView { seq: projected.0, behind, failed: app.projection.failed() }
}

struct Page<T> {
    items: Vec<T>,
    next: Option<String>,
    projection: ProjectionView,
}

/// Reads a page of entries with positions; the last one is the start of the next page.
async fn page<T: Send + 'static>(
    app: &App,
    limit: usize,
    read: impl FnOnce(&View<'_>) -> QueryResult<(Vec<(i64, T)>, bool)> + Send + 'static,
) -> Result<Page<T>, ApiError> {
    app.history_caught_up().await;
    let read = app.projection.read(move |view| Ok((read(view)?, view.projected)));
    let ((found, has_more), projected) = read.await?;
    debug_assert!(found.len() <= limit, "a page has at most as many as were asked for");
    let next = found.last().filter(|_| has_more).map(|(place, _)| place.to_string());
    let items = found.into_iter().map(|(_, item)| item).collect();
    Ok(Page { items, next, projection: how_far(app, projected) })
}

/// Reads a page of the entries of a session.
///
/// Errors: also if the session is unknown, or `actor` may not act for it.
async fn session_page<T: Send + 'static>(
    app: &App,
    session: SessionId,
    actor: Actor,
    params: &PageParams,
    read: impl FnOnce(&View<'_>, &str, Option<i64>, usize) -> QueryResult<(Vec<(i64, T)>, bool)> + Send + 'static,
) -> Result<Page<T>, ApiError> {
    actor.check(app, &session).await?;
    let (limit, before) = (limit(params.limit.as_deref())?, cursor(params.cursor.as_deref())?);
    let id = session.clone();
    let page = page(app, limit, move |view| read(view, id.as_str(), before, limit)).await?;
    let id = session.clone();
    // An open session may have nothing in the history yet.
    if page.items.is_empty() && !app.projection.read(move |view| view.knows_session(id.as_str())).await? {
        known_session(app, &session).await?;
    }
    Ok(page)
}

fn not_found(what: &str, name: &str, projection: &ProjectionView) -> ApiError {
    match projection.behind {
        0 => ApiError::not_found(what, name),
        behind => {
            let message = format!(
                "there is no {what} `{name}` yet; the history is {} behind",
                counted(behind, "record")
            );
            ApiError::new(StatusCode::NOT_FOUND, message)
        }
    }
}

/// Parses the parameter `field`, if it is given.
pub(crate) fn parsed<T: FromStr<Err: Error>>(
    field: &'static str,
    text: Option<&str>,
) -> Result<Option<T>, ApiError> {
    text.map(str::parse).transpose().map_err(|error: T::Err| bad(field, error.to_string()))
}

fn bad(field: &'static str, message: impl Into<String>) -> ApiError {
    ApiError::bad(FieldError::new(field, message))
}

fn limit(text: Option<&str>) -> Result<usize, ApiError> {
    read_limit(text).map_err(ApiError::bad)
}

pub(crate) fn moment(
    app: &App,
    field: &'static str,
    text: Option<&str>,
) -> Result<Option<journal::time::Timestamp>, ApiError> {
    text.map(|text| read_moment(field, text, app.now())).transpose().map_err(ApiError::bad)
}

fn cursor(text: Option<&str>) -> Result<Option<i64>, ApiError> {
    let read = |text: &str| {
        let place = text.parse().ok().filter(|place: &i64| *place >= 0);
        place.ok_or_else(|| bad("cursor", "must be the `next` of the previous page"))
    };
    text.map(read).transpose()
}
