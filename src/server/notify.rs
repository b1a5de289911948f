//! Word for the user: somebody wants them to know something.
//!
//! It is published as an event, whatever its limits say, so nothing is lost without a record; the engine decides where it goes, and the
//! answer says so. That a sink fails is no failure of the request.

use std::sync::Arc;

use axum::{Json, body::Body, extract::State};
use futures_util::future::join_all;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    event::{Event, SessionId},
    ledger::Suppressed,
    notification::{Category, Level, Sink},
    protocol::notify::NotifyRequest,
    publisher::Records,
    server::{
        App,
        auth::PeerPid,
        error::{ApiError, ErrorBody},
        extract::read_body,
        naming::session_of,
        processes,
    },
    sink::{Notice, PER_MINUTE_MAX, Parts, Target, Verdict, seconds_ago},
    source::sinks::check,
    time::Timestamp,
};

/// The target of the log lines that say what was said.
const LOG_TARGET: &str = "llm_notify";

/// Where word for the user goes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NotifyAnswer {
    /// `Notification sent: ` and the message; with the reason in brackets where it goes to no sink.
    pub(crate) text: String,
    /// Its name, which `aside why` takes.
    pub(crate) id: String,
    /// The sinks that it goes to.
    pub(crate) sinks: Vec<&'static str>,
    /// Why it goes to none: `repeat`, `over_rate` or `no_sink`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) suppressed: Option<&'static str>,
}

/// Says something to the user.
///
/// Shape: without `session` it comes from the session whose client made the request, or made the process that did.
#[utoipa::path(
    post, path = "/v1/notify", tag = "notifications",
    responses((status = 200, body = NotifyAnswer), (status = 400, body = ErrorBody)),
)]
pub(crate) async fn send(
    State(app): State<App>,
    PeerPid(peer): PeerPid,
    body: Body,
) -> Result<Json<NotifyAnswer>, ApiError> {
    let body = read_body(&app.rooms.exchanges, body).await?;
    let request = NotifyRequest::read(&body).map_err(ApiError::bad)?;
    let session = match (&request.session, peer) {
        (Some(id), _) => Some(session_of(&app, id.clone(), None).await?),
        (None, Some(peer)) => processes::session_of_process(&app, peer).await?,
        (None, None) => None,
    };
    notify(&app, request, session).await.map(Json)
}

/// The sinks that word for the user goes to.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SinkList {
    sinks: Vec<SinkView>,
}

/// A sink, as far as it shows without anything being sent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SinkView {
    /// `harness`, `desktop`, `log`, `ntfy`, `webhook` or `apprise`.
    name: &'static str,
    /// Where it sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    /// What keeps it from taking anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Looks at the sinks that word for the user goes to: programs, files, and whether servers accept a connection.
#[utoipa::path(get, path = "/v1/sinks", tag = "notifications", responses((status = 200, body = SinkList)))]
pub(crate) async fn sinks(State(app): State<App>) -> Result<Json<SinkList>, ApiError> {
    let rules = app.engine.rules().await?;
    let look = async |sink: &Sink| {
        let (to, problem) = match check(*sink, &rules.sinks).await {
            Ok(to) => (Some(to), None),
            Err(problem) => (None, Some(problem)),
        };
        SinkView { name: sink.as_str(), to, problem }
    };
    Ok(Json(SinkList { sinks: join_all(rules.sinks.default.iter().map(look)).await }))
}

/// Says something to the user on behalf of `session`, if there is one.
///
/// Errors: the journal takes nothing, or the daemon stops.
pub(crate) async fn notify(
    app: &App,
    request: NotifyRequest,
    session: Option<SessionId>,
) -> Result<NotifyAnswer, ApiError> {
    let workspace = place_of(app, session.as_ref(), request.workspace.clone()).await?;
    let notice = request.into_notice(&new_id('u'), session, workspace, app.now());
    say(app, &notice, &notice.event()).await
}

/// The folder that a session works in, else `named`.
pub(crate) async fn place_of(
    app: &App,
    session: Option<&SessionId>,
    named: Option<Arc<str>>,
) -> Result<Option<Arc<str>>, ApiError> {
    let Some(session) = session else { return Ok(named) };
    let known = app.engine.session(session.clone()).await?;
    Ok(known.and_then(|known| known.harness.workspace).or(named))
}

/// Publishes `event`, which says `notice`, and finds out where it goes.
pub(crate) async fn say(app: &App, notice: &Notice, event: &Event) -> Result<NotifyAnswer, ApiError> {
    let records = Records::build(|records| records.own_event(event));
    app.publisher.publish(records).await.map_err(|error| ApiError::append(&error))?;
    let verdict = app.engine.sink_verdict(notice.id.clone()).await?;
    log(notice, verdict.as_ref());
    Ok(answer(notice, verdict.as_ref(), notice.at))
}

/// Names a notice or a question, by its first letter and 64 bits that nobody can guess.
pub(crate) fn new_id(kind: char) -> String {
    let (_, random) = Uuid::now_v7().as_u64_pair();
    format!("{kind}{random:016x}")
}

/// Writes to the log what is sent; what is not has its record in the journal.
fn log(notice: &Notice, verdict: Option<&Verdict>) {
    let Notice { id, level, context, session, .. } = notice;
    let message = notice.text_for(Target::Plain, Parts::ALL);
    let category = notice.category.map(Category::as_str);
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
pub(crate) fn ways(verdict: Option<&Verdict>) -> (Vec<&'static str>, Option<Suppressed>) {
    match verdict {
        Some(Verdict::Taken(sinks)) => (sinks.iter().map(|sink| Sink::as_str(*sink)).collect(), None),
        Some(Verdict::Suppressed(why)) => (Vec::new(), Some(*why)),
        // More were said since than verdicts are kept; its record has it.
        None => (Vec::new(), None),
    }
}

fn answer(notice: &Notice, verdict: Option<&Verdict>, now: Timestamp) -> NotifyAnswer {
    let (sinks, suppressed) = ways(verdict);
    let why = suppressed.map(|why| match why {
        Suppressed::Repeat { sent_at } => format!(" (already sent {})", seconds_ago(sent_at, now)),
        Suppressed::Rate { .. } => {
            format!(
                " (counted: {PER_MINUTE_MAX} went out within a minute; the next one says how many did not)"
            )
        }
        Suppressed::NoSink => " (no sink is set)".to_owned(),
    });
    NotifyAnswer {
        text: format!("Notification sent: {}{}", notice.message, why.unwrap_or_default()),
        id: notice.id.to_string(),
        sinks,
        suppressed: suppressed.map(|why| why.as_str()),
    }
}
