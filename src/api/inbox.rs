//! The pending notifications of sessions, for users, and their decisions about them.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State, http::StatusCode};
use engine::{
    Engine,
    conversation::{SessionView, injector::PendingView},
    event::SessionId,
    exchange::Decision,
    format,
    hold::Hold,
    notification::{Notification, NotificationId},
    records::Records,
    request::FieldError,
    session::Readable,
};
use journal::time::{Timestamp, duration_millis};
use serde::Deserialize;

#[cfg(test)]
use crate::api::wire::ErrorBody;

use crate::history::View;

use crate::api::{
    App,
    actor::Actor,
    engine_handle::EngineView,
    error::ApiError,
    extract::{Params, Segment, read_session},
    naming::known_session,
    notify::{place_of, session_for},
    questions::open_count,
    wire::inbox::{HoldView, InboxList, PendingIn, TakenUp, WaitingView},
};

/// Selects the queue.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub(crate) struct InboxParams {
    /// A session; every session if it is absent.
    session: Option<String>,
}

impl InboxParams {
    /// The session; of a process of a session only that one.
    async fn session(&self, app: &App, actor: Actor) -> Result<Option<SessionId>, ApiError> {
        let named = self.session.as_deref().map(read_session).transpose()?;
        let session = session_for(app, actor, named.as_ref()).await?;
        if let Some(named) = session.as_ref().filter(|_| self.session.is_some()) {
            known_session(app, named).await?;
        }
        Ok(session)
    }
}

/// Most notifications of a page, and the default.
const PAGE_MAX: usize = 1_000;

/// How long something is listed as taken up. It is acknowledged when it is done.
const TAKEN_UP_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Page start among the unclaimed notifications, in place of a number.
const UNCLAIMED: &str = "unclaimed";

/// Selects a page of pending notifications.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// A session; every session if it is absent.
    session: Option<String>,
    /// Most notifications; 1,000 if it is absent, and at most.
    limit: Option<usize>,
    /// `next` of the previous page.
    from: Option<String>,
}

impl ListParams {
    fn page(&self, session: Option<SessionId>) -> Result<WaitingPage, ApiError> {
        let limit = self.limit.unwrap_or(PAGE_MAX);
        if limit == 0 || limit > PAGE_MAX {
            let message = format!("must be a number from 1 to {PAGE_MAX}");
            return Err(ApiError::bad(FieldError::new("limit", message)));
        }
        let from = self.from.as_deref().map(read_start).transpose()?;
        Ok(WaitingPage { session, from, limit })
    }
}

/// A page of pending notifications.
#[derive(Debug, Clone)]
struct WaitingPage {
    /// The session; all sessions if absent.
    session: Option<SessionId>,
    /// The start of the page.
    from: Option<PageStart>,
    /// Most notifications.
    limit: usize,
}

/// A position in the list of pending notifications: by session, in delivery order; then those for a
/// session that is not open, in the same order, and those for the user alone.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PageStart {
    /// In the queue of a session.
    Session {
        /// The session.
        session: SessionId,
        /// How many of its notifications precede it.
        skip: usize,
    },
    /// Among the unclaimed ones.
    Unclaimed {
        /// How many of them precede it.
        skip: usize,
    },
}

/// A pending notification. Its view is built outside of the event loop, because the words about it
/// cost more than the rest of the query.
#[derive(Debug, Clone)]
struct Waiting {
    /// The notification.
    notification: Arc<Notification>,
    /// Who gets it, as `waits_for` of its view.
    waits_for: &'static str,
    /// The session in whose queue it is.
    session: Option<SessionId>,
    /// How long ago it was made.
    age: Duration,
    /// What keeps it from being released.
    holds: Vec<HoldView>,
}

/// Parses the output of [`write_start`].
fn read_start(text: &str) -> Result<PageStart, ApiError> {
    let read = || {
        let (skip, session) = text.split_once(':')?;
        Some(match skip {
            UNCLAIMED => PageStart::Unclaimed { skip: session.parse().ok()? },
            _ => PageStart::Session { skip: skip.parse().ok()?, session: SessionId::new(session) },
        })
    };
    read().ok_or_else(|| ApiError::bad(FieldError::new("from", "must be the `next` of another page")))
}

fn write_start(start: &PageStart) -> String {
    match start {
        PageStart::Session { session, skip } => format!("{skip}:{session}"),
        PageStart::Unclaimed { skip } => format!("{UNCLAIMED}:{skip}"),
    }
}

/// Lists pending notifications, each with a line for a person and its text; to a process of a
/// session, those of that session.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/inbox", tag = "inbox", params(ListParams),
    responses(
        (status = 200, body = InboxList), (status = 400, body = ErrorBody),
        (status = 403, body = ErrorBody, description = "`session` is another one than the process's own"),
        (status = 404, body = ErrorBody),
    ),
))]
pub(crate) async fn list(
    State(app): State<App>,
    actor: Actor,
    Params(params): Params<ListParams>,
) -> Result<Json<InboxList>, ApiError> {
    let session = InboxParams { session: params.session.clone() }.session(&app, actor).await?;
    let folder = place_of(&app, session.as_ref(), None).await?;
    let questions = open_count(&app, session.as_ref(), folder.as_deref());
    let taken_up = match &params.from {
        None => taken_up(&app, session.as_ref(), actor.access(&app).await?.into_readable()).await,
        Some(_) => Vec::new(),
    };
    let is_of_all = session.is_none();
    let page = params.page(session)?;
    let read = move |view: &EngineView<'_>| {
        let batches = if is_of_all { view.engine.batches_open() } else { 0 };
        (waiting_page(view.engine, &page, view.now), batches)
    };
    let ((notifications, next), batches) = app.engine.read(read).await?;
    let notifications = notifications.into_iter().map(view).collect();
    let (batches_open, next) = (u64::try_from(batches).unwrap_or(u64::MAX), next.as_ref().map(write_start));
    Ok(Json(InboxList { notifications, taken_up, questions, batches_open, next }))
}

/// What somebody has taken up; nothing if the history cannot be read, as that is no reason to hide
/// what is pending.
async fn taken_up(app: &App, session: Option<&SessionId>, readable: Readable) -> Vec<TakenUp> {
    app.history_caught_up().await;
    let since = app.now().as_millis().saturating_sub(duration_millis(TAKEN_UP_MAX));
    let (session, since) = (session.cloned(), Timestamp::from_millis(since));
    let read = move |view: &View<'_>| {
        view.taken_up(session.as_ref().map(SessionId::as_str), &readable, since, PAGE_MAX)
    };
    app.projection.read(read).await.unwrap_or_default()
}

/// A page of waiting notifications, and where the next one begins; costs its size plus a check per
/// session.
fn waiting_page(engine: &Engine, page: &WaitingPage, now: Timestamp) -> (Vec<Waiting>, Option<PageStart>) {
    let (mut shown, skip) = match page.from {
        Some(PageStart::Unclaimed { skip }) => (Vec::new(), skip),
        Some(PageStart::Session { .. }) | None => match in_queues(engine, page, now) {
            (shown, None) => (shown, 0),
            full => return full,
        },
    };
    if page.session.is_some() {
        return (shown, None);
    }
    let (unclaimed, of_user) = (engine.sessions().unclaimed(), engine.sessions().waiting_for_user());
    let count = unclaimed.len() + of_user.len();
    let end = count.min(skip.saturating_add(page.limit - shown.len()));
    let own = unclaimed.get(skip..end.min(unclaimed.len())).unwrap_or_default();
    shown.extend(own.iter().map(|notification| for_next_session(engine, notification, now)));
    let place = |at: usize| at.saturating_sub(unclaimed.len());
    let own = of_user.get(place(skip)..place(end)).unwrap_or_default();
    shown.extend(own.iter().map(|(notification, holds)| for_sinks(engine, notification, holds, now)));
    (shown, (end < count).then_some(PageStart::Unclaimed { skip: end }))
}

/// The part of the page in the sessions' queues, and where the next page begins if that is in them.
fn in_queues(engine: &Engine, page: &WaitingPage, now: Timestamp) -> (Vec<Waiting>, Option<PageStart>) {
    let begin = match &page.from {
        Some(PageStart::Session { session, skip }) => Some((session, *skip)),
        Some(PageStart::Unclaimed { .. }) | None => None,
    };
    let is_wanted = |session: &SessionView<'_>| match (&page.session, begin) {
        (Some(id), _) => id == session.id,
        (None, Some((first, _))) => session.id >= first,
        (None, None) => true,
    };
    let mut shown = Vec::new();
    for session in engine.sessions().views_by_id().filter(is_wanted) {
        let skip = begin.filter(|(first, _)| *first == session.id).map_or(0, |(_, skip)| skip);
        let room = page.limit - shown.len();
        let waiting = session.injector.weight().map_or(0, |(_, count)| count);
        if waiting <= skip {
            continue;
        }
        let next = |skip| Some(PageStart::Session { session: session.id.clone(), skip });
        if room == 0 {
            return (shown, next(skip));
        }
        shown.extend(waiting_in(engine, &session, now).into_iter().skip(skip).take(room));
        if waiting - skip > room {
            return (shown, next(skip + room));
        }
    }
    (shown, None)
}

fn hold_views(engine: &Engine, holds: &[Hold]) -> Vec<HoldView> {
    holds.iter().map(|hold| HoldView::new(hold, engine.ends(hold))).collect()
}

fn waiting_in(engine: &Engine, session: &SessionView<'_>, now: Timestamp) -> Vec<Waiting> {
    let pending = session.injector.view(now).pending.into_iter();
    pending.map(|pending| pending_in_queue(engine, session, pending)).collect()
}

fn pending_in_queue(engine: &Engine, session: &SessionView<'_>, pending: PendingView) -> Waiting {
    let PendingView { notification, is_for_user, age, redelivered: _, holds } = pending;
    let waits_for = if is_for_user { WaitingView::USER } else { WaitingView::AGENT };
    let holds = hold_views(engine, &holds);
    Waiting { notification, waits_for, session: Some(session.id.clone()), age, holds }
}

fn for_next_session(engine: &Engine, notification: &Arc<Notification>, now: Timestamp) -> Waiting {
    let holds = hold_views(engine, &engine.sessions().holds_of_unclaimed(notification));
    let (notification, age) = (Arc::clone(notification), now.since(notification.created_at));
    Waiting { notification, waits_for: WaitingView::NEXT_SESSION, session: None, age, holds }
}

fn for_sinks(engine: &Engine, notification: &Arc<Notification>, holds: &[Hold], now: Timestamp) -> Waiting {
    let (holds, age) = (hold_views(engine, holds), now.since(notification.created_at));
    Waiting {
        notification: Arc::clone(notification),
        waits_for: WaitingView::SINKS,
        session: None,
        age,
        holds,
    }
}

/// The queues of readable sessions in which a notification is pending.
pub(crate) async fn pending_in(
    app: &App,
    id: NotificationId,
    readable: Readable,
) -> Result<Vec<PendingIn>, ApiError> {
    let read = move |view: &EngineView<'_>| {
        let (engine, now) = (view.engine, view.now);
        let is_readable = |session: &SessionView<'_>| readable.contains(Some(session.id.as_str()));
        let in_queue = |session: SessionView<'_>| {
            let pending = session.injector.pending_view(&id, now)?;
            Some(pending_in_queue(engine, &session, pending))
        };
        let queues = engine.sessions().views().filter(is_readable).filter_map(in_queue);
        let unclaimed = engine.sessions().unclaimed().into_iter().filter(|waiting| waiting.id == id);
        let unclaimed = unclaimed.map(|waiting| for_next_session(engine, waiting, now));
        let of_user =
            engine.sessions().waiting_for_user().into_iter().filter(|(waiting, _)| waiting.id == id);
        let of_user = of_user.map(|(waiting, holds)| for_sinks(engine, waiting, holds, now));
        let pending = |Waiting { session, waits_for, holds, .. }: Waiting| PendingIn {
            session: session.as_ref().map(ToString::to_string),
            waits_for: waits_for.to_owned(),
            holds,
        };
        queues.chain(unclaimed).chain(of_user).map(pending).collect()
    };
    app.engine.read(read).await
}

fn view(Waiting { notification, waits_for, session, age, holds }: Waiting) -> WaitingView {
    let (named, workspace) = notification.scope.address();
    let workspace = workspace.filter(|_| session.is_none()).map(ToString::to_string);
    let session = session.as_ref().or(named).map(ToString::to_string);
    WaitingView {
        id: notification.id.to_string(),
        session,
        workspace,
        subscriber: notification.subscriber.to_string(),
        priority: notification.priority.as_str().to_owned(),
        waits_for: waits_for.to_owned(),
        age_ms: duration_millis(age),
        sentence: format::line_for_user(&notification, format::LINE_CHARS_MAX),
        text: Arc::clone(notification.content.text()),
        holds,
    }
}

/// Dismisses a pending notification: it is not delivered.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/notifications/{id}/dismiss", tag = "inbox",
    params(("id" = String, Path, description = "The notification"), InboxParams),
    responses(
        (status = 204),
        (status = 403, body = ErrorBody, description = "It is of another session than the process's own"),
        (status = 404, body = ErrorBody),
    ),
))]
pub(crate) async fn dismiss(
    state: State<App>,
    id: Segment,
    actor: Actor,
    params: Params<InboxParams>,
) -> Result<StatusCode, ApiError> {
    decide(state, id, actor, params, Decision::Dismiss).await
}

/// Releases a notification that waits for the user's approval.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/notifications/{id}/discuss", tag = "inbox",
    params(("id" = String, Path, description = "The notification"), InboxParams),
    responses(
        (status = 204),
        (status = 403, body = ErrorBody, description = "It is of another session than the process's own"),
        (status = 404, body = ErrorBody),
    ),
))]
pub(crate) async fn discuss(
    state: State<App>,
    id: Segment,
    actor: Actor,
    params: Params<InboxParams>,
) -> Result<StatusCode, ApiError> {
    decide(state, id, actor, params, Decision::Discuss).await
}

async fn decide(
    State(app): State<App>,
    Segment(id): Segment,
    actor: Actor,
    Params(params): Params<InboxParams>,
    decision: Decision,
) -> Result<StatusCode, ApiError> {
    let session = params.session(&app, actor).await?;
    let notification = NotificationId::new(&id);
    let queue = session.clone();
    let can_decide = move |view: &EngineView<'_>| {
        view.engine.sessions().can_decide(queue.as_ref(), &notification, decision)
    };
    if !app.engine.read(can_decide).await? {
        actor.access(&app).await?.check_notification(&app, &id).await?;
        return Err(ApiError::not_found("pending notification", &id));
    }
    app.append(Records::build(|records| records.decided(session.as_ref(), &notification, decision))).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use engine::{
        event::{Scope, Seq},
        notification::{Notification, Priority},
    };

    #[test]
    fn page_start_round_trips_as_text() {
        let in_session = PageStart::Session { session: SessionId::new("a:b/c"), skip: 41 };
        for start in [in_session, PageStart::Unclaimed { skip: 7 }] {
            assert_eq!(read_start(&write_start(&start)).expect("readable"), start);
        }
        for text in ["", "41", "x:s1", ":s1", "unclaimed:s1"] {
            assert!(read_start(text).is_err(), "{text}");
        }
    }

    #[test]
    fn each_place_has_its_recipient_and_its_words() {
        let s1 = || SessionId::new("s1");
        let folder = || Scope::Workspace("/w".into());
        let s2 = Scope::Session(SessionId::new("s2"));
        for (queue, scope, waits_for, session, workspace) in [
            (Some(s1()), Scope::All, "agent", Some("s1"), None),
            (Some(s1()), folder(), "user", Some("s1"), None),
            (None, s2, "next_session", Some("s2"), None),
            (None, folder(), "next_session", None, Some("/w")),
            (None, Scope::All, "next_session", None, None),
        ] {
            let notification =
                Arc::new(Notification { scope, ..Notification::example("n1", Priority::High) });
            let age = Duration::from_millis(5);
            let view = view(Waiting { notification, waits_for, session: queue, age, holds: Vec::new() });
            let found = (&*view.waits_for, view.session.as_deref(), view.workspace.as_deref(), view.age_ms);
            assert_eq!(found, (waits_for, session, workspace, 5));
        }
        for (sentences, untrusted_source, expected) in [
            (
                vec!["unit failed".into(), "lint <b>\u{1b}[1m failed".into()],
                None,
                "unit failed, lint (b) (1m failed and 1 more",
            ),
            (
                vec!["unit failed".into()],
                Some("hook".into()),
                "(untrusted source hook) unit failed and 2 more",
            ),
            (vec![], None, "value and 2 more"),
        ] {
            let events = vec![Seq(1), Seq(2), Seq(3)];
            let example = Notification::example("n1", Priority::High);
            let notification = Arc::new(Notification { sentences, untrusted_source, events, ..example });
            let (session, age) = (Some(s1()), Duration::ZERO);
            let view = view(Waiting {
                notification,
                waits_for: WaitingView::AGENT,
                session,
                age,
                holds: Vec::new(),
            });
            assert_eq!((&*view.sentence, &*view.text), (expected, "key: value"));
        }
    }

    #[test]
    fn a_page_has_a_bound() {
        let params = |limit| ListParams { session: None, limit, from: None };
        assert_eq!(params(None).page(None).expect("a page").limit, PAGE_MAX);
        assert!(params(Some(0)).page(None).is_err() && params(Some(PAGE_MAX + 1)).page(None).is_err());
    }
}
