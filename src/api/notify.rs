//! Notices to the user.
//!
//! A notice is published as an event, even if it exceeds limits, so each has a record. The engine
//! selects the sinks, and the answer names them. A sink's failure does not fail the request.

use std::sync::Arc;

use axum::{Json, body::Body, extract::State};
use engine::{
    event::{Event, SessionId},
    ledger::Suppressed,
    notification::{Level, Sink},
    records::Records,
    sink::{ALL_PER_MINUTE_MAX, Notice, PER_MINUTE_MAX, Parts, Target, Verdict, seconds_ago},
};
use futures_util::future::join_all;
use journal::time::{Timestamp, duration_millis};
use uuid::Uuid;

#[cfg(test)]
use crate::api::wire::ErrorBody;

use crate::{
    api::{
        App,
        actor::Actor,
        engine_handle::EngineView,
        error::ApiError,
        extract::read_body,
        naming::session_of,
        wire::notify::{NotifyAnswer, NotifyRequest, SinkList, SinkView},
    },
    capability::notices::check,
};

/// Log target of the notices' texts.
const LOG_TARGET: &str = "llm_notify";

/// Sends a notice to the user.
///
/// Shape: without `session`, its origin is the session whose client is the requesting process or an
/// ancestor of it.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/notify", tag = "notifications",
    responses((status = 200, body = NotifyAnswer), (status = 400, body = ErrorBody)),
))]
pub(crate) async fn send(
    State(app): State<App>,
    actor: Actor,
    body: Body,
) -> Result<Json<NotifyAnswer>, ApiError> {
    let body = read_body(&app.rooms.exchanges, body).await?;
    let read = || NotifyRequest::read(&body);
    let request = app.rooms.exchanges.work(body.len(), read).await.map_err(ApiError::bad)?;
    let session = session_for(&app, actor, request.session.as_ref()).await?;
    notify(&app, request, session).await.map(Json)
}

/// Checks the sinks for notices to the user: programs, files, and whether servers accept a
/// connection.
#[cfg_attr(test, utoipa::path(get, path = "/v1/sinks", tag = "notifications", responses((status = 200, body = SinkList))))]
pub(crate) async fn sinks(State(app): State<App>) -> Result<Json<SinkList>, ApiError> {
    let settings = app.engine.read(|view| Arc::clone(&view.engine.rules().sinks)).await?;
    let look = async |sink: &Sink| {
        let (to, problem) = match check(*sink, &settings, app.registry.programs()).await {
            Ok(to) => (Some(to), None),
            Err(problem) => (None, Some(problem)),
        };
        SinkView { name: sink.as_str().to_owned(), to, problem }
    };
    Ok(Json(SinkList { sinks: join_all(settings.all.default.iter().map(look)).await }))
}

/// Sends a notice to the user on behalf of `session`, if given.
///
/// Errors: the journal accepts no records, or the daemon stops.
pub(crate) async fn notify(
    app: &App,
    request: NotifyRequest,
    session: Option<SessionId>,
) -> Result<NotifyAnswer, ApiError> {
    let workspace = place_of(app, session.as_ref(), request.workspace.clone()).await?;
    let notice = request.into_notice(&new_id('u'), session, workspace, app.now());
    say(app, &notice, &notice.event()).await
}

/// The session that a request of `actor` is for: the named one, else the actor's own.
///
/// Errors: 403 if the actor may not act for the named one.
pub(crate) async fn session_for(
    app: &App,
    actor: Actor,
    named: Option<&SessionId>,
) -> Result<Option<SessionId>, ApiError> {
    let named = match named {
        Some(id) => Some(session_of(app, id.clone(), None).await?),
        None => None,
    };
    actor.acts_for(app, named).await
}

/// The folder of a session, else `named`.
pub(crate) async fn place_of(
    app: &App,
    session: Option<&SessionId>,
    named: Option<Arc<str>>,
) -> Result<Option<Arc<str>>, ApiError> {
    let Some(session) = session else { return Ok(named) };
    Ok(folder_of(app, session).await?.or(named))
}

/// The folder of a known session.
pub(crate) async fn folder_of(app: &App, session: &SessionId) -> Result<Option<Arc<str>>, ApiError> {
    let id = session.clone();
    let folder = move |view: &EngineView<'_>| view.engine.sessions().view(&id)?.harness.workspace.clone();
    app.engine.read(folder).await
}

/// The verdict on a notice, with its sinks; `None` when it is not one of the newest.
pub(crate) async fn verdict_on(app: &App, notice: Arc<str>) -> Result<Option<Verdict>, ApiError> {
    app.engine.read(move |view| view.engine.sink_verdict(&notice).cloned()).await
}

/// Publishes `event` with `notice`, and returns its sinks.
pub(crate) async fn say(app: &App, notice: &Notice, event: &Event) -> Result<NotifyAnswer, ApiError> {
    let records = Records::build(|records| records.own_event(event));
    app.publisher.publish(records).await?;
    let verdict = verdict_on(app, Arc::clone(&notice.id)).await?;
    log(notice, verdict.as_ref());
    Ok(answer(notice, verdict.as_ref(), notice.at))
}

/// Creates an id for a notice, a question or a watch.
pub(crate) fn new_id(kind: char) -> String {
    id_from(kind, Uuid::now_v7())
}

/// Shape: the kind's letter and 16 hexadecimal digits. The first 8 are random, because an id is
/// shown and named by its beginning; the others come from the counter of UUIDv7, which only
/// increases within a millisecond.
fn id_from(kind: char, uuid: Uuid) -> String {
    let (_, low) = uuid.as_u64_pair();
    format!("{kind}{:016x}", low.rotate_left(u32::BITS))
}

/// Logs a sent notice; one that is not sent has only its journal record.
fn log(notice: &Notice, verdict: Option<&Verdict>) {
    let Notice { id, level, context, session, .. } = notice;
    let message = notice.text_for(Target::Plain, Parts::ALL);
    let category = notice.category.map(|category| category.as_str());
    let session = session.as_ref().map(SessionId::as_str);
    if let Some(Verdict::Suppressed(why)) = verdict {
        let why = why.as_str();
        tracing::debug!(target: LOG_TARGET, %id, %context, category, session, why, "not sent: {message}");
        return;
    }
    match level {
        Level::Info => tracing::info!(target: LOG_TARGET, %id, %context, category, session, "{message}"),
        Level::Warn => tracing::warn!(target: LOG_TARGET, %id, %context, category, session, "{message}"),
        Level::Error => tracing::error!(target: LOG_TARGET, %id, %context, category, session, "{message}"),
    }
}

/// The sinks that a notice goes to, or why to none.
pub(crate) fn sinks_of(verdict: Option<&Verdict>) -> (Vec<String>, Option<Suppressed>) {
    match verdict {
        Some(Verdict::Taken(sinks) | Verdict::Later(sinks, _)) => {
            (sinks.iter().map(|sink| sink.as_str().to_owned()).collect(), None)
        }
        Some(Verdict::Suppressed(why)) => (Vec::new(), Some(*why)),
        // The verdict was evicted by newer ones; the journal has it.
        None => (Vec::new(), None),
    }
}

fn answer(notice: &Notice, verdict: Option<&Verdict>, now: Timestamp) -> NotifyAnswer {
    let (sinks, suppressed) = sinks_of(verdict);
    let later = || match verdict {
        Some(Verdict::Later(_, at)) => {
            let seconds = duration_millis(at.since(now)).div_ceil(1_000);
            format!(" (sent in {seconds} s, unless a newer one replaces it)")
        }
        Some(Verdict::Taken(_) | Verdict::Suppressed(_)) | None => String::new(),
    };
    let why = suppressed.map(|why| match why {
        Suppressed::Repeat { sent_at } => format!(" (already sent {})", seconds_ago(sent_at, now)),
        Suppressed::RateLimited { .. } => {
            format!(
                " (counted: {PER_MINUTE_MAX} were sent within a minute, or {ALL_PER_MINUTE_MAX} of all sessions and folders; the next one has the number of the others)"
            )
        }
        Suppressed::NoSink => " (no sink is configured)".to_owned(),
        Suppressed::Filtered => " (no sink takes its level and category)".to_owned(),
    });
    let is_sent = if why.is_some() { "not sent" } else { "sent" };
    NotifyAnswer {
        text: format!(
            "Notification {is_sent}: {}{}",
            notice.message.replace('\n', " "),
            why.unwrap_or_else(later)
        ),
        id: notice.id.to_string(),
        sinks,
        suppressed: suppressed.map(|why| why.as_str().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_millisecond_ids_differ_in_their_first_digits() {
        let low = 0x8000_0001_1234_5678;
        assert_eq!(id_from('w', Uuid::from_u64_pair(7, low)), "w1234567880000001");
        assert_eq!(id_from('q', Uuid::from_u64_pair(7, low + 1)), "q1234567980000001");
    }
}
