//! The single call of a harness: appends its events and the exchange to the journal in one batch,
//! and waits for the answer of the event loop.

use std::{cell::LazyCell, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};

use crate::{
    call::Call,
    event::{Event, EventRef, SessionId},
    exchange::{Answer, Exchange, InjectionId},
    hex::hex,
    publisher::Records,
    server::{
        App,
        auth::{PeerPid, Route},
        error::ApiError,
        extract::{IdSegment, read_body, read_session},
        naming::{name_sessions, session_of},
        probing::{self, Said},
        processes::{self, IdentifiedBy},
        wrote,
    },
    wire::{
        error::ErrorBody,
        event::ParsedEvent,
        exchange::{AnswerView, ExchangeView, parse},
        names::checked_name,
    },
};

/// How long an exchange waits for the event loop; far longer than any harness waits, so it is
/// reached only when the loop is stuck.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// Header with the state of the queue, sent when there is nothing to deliver.
const PENDING_HEADER: &str = "aside-pending";
/// Header that states whether to check before the next tool, sent when there is nothing to deliver.
const CHECK_HEADER: &str = "aside-check-before-tool";

/// Reports the agent's point and takes the notifications that may be delivered now.
///
/// Answers 204 when there is nothing to deliver and nothing to do; the headers `aside-pending` and
/// `aside-check-before-tool` then hold the values of the body. A repeated request with the same
/// session and carrier gets the same answer. The first exchange opens the session.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/exchange", tag = "sessions",
    params(("id" = String, Path, description = "The session")),
    request_body = ExchangeView,
    responses(
        (status = 200, body = AnswerView<'static>), (status = 204),
        (status = 400, body = ErrorBody), (status = 409, body = ErrorBody), (status = 503, body = ErrorBody),
    ),
)]
pub(crate) async fn exchange(
    State(app): State<App>,
    IdSegment(session): IdSegment,
    route: Route,
    PeerPid(peer): PeerPid,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let body = read_body(&app.rooms.exchanges, body).await?;
    let mut ids = derived_ids(&session, &body);
    let severities = app.config.severities();
    let mut request = parse(&body, &session, app.now(), route.of_observations(), &severities, &mut ids)
        .map_err(ApiError::bad)?;
    name_sessions(&app, &mut request.exchange).await?;
    request.readdress(&session);
    let session = request.exchange.session.clone();
    let harness = &mut request.exchange.harness;
    if let (Some(peer), Some(pid), None) = (peer, harness.pid, &harness.parent)
        && let Some(process) = processes::record(&app, &session, peer, IdentifiedBy::Pid(pid))
    {
        harness.runs_in(process);
    }
    let observed = request.observed.iter().map(ParsedEvent::as_event);
    let folder = request.exchange.harness.workspace.as_deref();
    let call = |event: EventRef<'_>| Call::of_event(event.event_type, event.payload, folder);
    let calls: Vec<Call> = observed.clone().filter_map(call).collect();
    wrote::note(&app, route, &request.exchange, &calls);
    let said = Said { calls, patience: probing::patience(&headers), ..Said::default() };
    let found = probing::look(&app, &request.exchange, said).await;
    let observed = observed.chain(found.iter().map(Event::as_ref));
    let answer = perform(&app, observed, &request.exchange).await?;
    Ok(AnswerView::of(&answer).map_or_else(|| silence(&answer), |view| Json(view).into_response()))
}

/// Reports that an injection did not reach the agent, because its carrier was lost; its
/// notifications are pending again.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/undelivered/{injection}", tag = "sessions",
    params(
        ("id" = String, Path, description = "The session"),
        ("injection" = String, Path, description = "The injection's short name"),
    ),
    responses((status = 204), (status = 400, body = ErrorBody), (status = 503, body = ErrorBody)),
)]
pub(crate) async fn undelivered(
    State(app): State<App>,
    Path((session, injection)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let session = session_of(&app, read_session(&session)?, None).await?;
    let injection = InjectionId::new(&checked_name("injection", injection).map_err(ApiError::bad)?);
    app.append(Records::build(|records| records.undelivered(&session, &injection))).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn silence(answer: &Answer) -> Response {
    let headers =
        [(PENDING_HEADER, answer.pending.to_string()), (CHECK_HEADER, answer.check_before_tool.to_string())];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Derives ids for observed events that have none, so that a repeated request publishes nothing
/// new.
fn derived_ids(session: &SessionId, body: &[u8]) -> impl FnMut() -> String {
    // Most exchanges have no observed events, so the prefix is computed with the first id.
    let prefix = LazyCell::new(move || {
        let mut hash = Sha256::new();
        hash.update(session.as_str());
        hash.update([0]);
        hash.update(body);
        hex(hash.finalize().iter().take(16))
    });
    let mut made = 0_usize;
    move || {
        made += 1;
        format!("{}-{made}", *prefix)
    }
}

/// Appends the observed events and the exchange, and waits for the answer.
///
/// Errors: the journal accepts no records, or the event loop does not answer. If this is dropped
/// while it waits, the event loop finds no waiter and takes the injection back.
pub(crate) async fn perform<'e>(
    app: &App,
    observed: impl Iterator<Item = EventRef<'e>>,
    exchange: &Exchange,
) -> Result<Answer, ApiError> {
    let stopwatch = app.meters.begin();
    let mut waiter = app.registry.register(&exchange.session);
    let request = waiter.request();
    let mut records = records_of(observed)?;
    records.exchange(request, exchange).map_err(|error| ApiError::too_large(&error))?;
    app.append(records).await?;
    match tokio::time::timeout(ANSWER_WAIT_MAX, waiter.answer()).await {
        Ok(answer) => {
            let answer = answer?;
            let took = app.meters.since(stopwatch);
            app.meters.exchange.observe(took);
            note(exchange, &answer, took);
            Ok(answer)
        }
        Err(_) => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon did not answer in time")),
    }
}

/// Logs the outcome of an exchange by name and number; delivered text is not logged.
fn note(exchange: &Exchange, answer: &Answer, took: Duration) {
    let injection = answer.injection.as_ref();
    tracing::debug!(
        session = %exchange.session, point = %exchange.point, carrier = &*exchange.carrier,
        injection = injection.map(|injection| tracing::field::display(&injection.id)),
        notifications = injection.map_or(0, |injection| injection.notifications.len()),
        pending = answer.pending, took_us = took.as_micros(), "exchange"
    );
}

/// The events that a harness observed.
pub(crate) fn records_of<'e>(observed: impl Iterator<Item = EventRef<'e>>) -> Result<Records, ApiError> {
    let mut records = Records::new();
    for event in observed {
        records.event(&event).map_err(|error| ApiError::too_large(&error))?;
    }
    Ok(records)
}
