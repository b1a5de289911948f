//! The single call of a harness: appends its events and the exchange to the journal in one batch,
//! and waits for the answer of the event loop.
//!
//! What few exchanges need has a future of its own on the heap (`Box::pin`): the future of an
//! exchange is copied as a whole, and has the size of the largest of its parts.

use std::{cell::LazyCell, sync::Arc, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use engine::{
    call::{Call, TouchKind},
    draft::Draft,
    event::{Event, EventRef, Provenance, SessionId, catalogue},
    exchange::{Answer, Exchange, InjectionId},
    hex::hex,
    nearest::clause,
    notification::InjectionPoint,
    records::Records,
    request::{FieldError, names::checked_name},
};
use sha2::{Digest, Sha256};

#[cfg(test)]
use crate::api::wire::{ErrorBody, exchange::ExchangeBody};

use crate::{
    api::{
        App,
        actor::Actor,
        auth::{PeerPid, Route},
        error::ApiError,
        extract::{EXCHANGE_BYTES_MAX, IdSegment, read_body_up_to, read_session},
        matching::{explained, nearest_type},
        naming::{find_session, known_session, name_sessions, nearest_session, session_of, unconfirmed},
        probing::{self, HarnessReport},
        processes::{self, IdentifiedBy},
        wire::{
            exchange::{AnswerView, ExchangeRequest, KnownFacts, join, of_answer, of_request, parse},
            formats::INSTRUCTIONS,
            views::SessionView,
        },
    },
    capability::lsp::{Writer, source::writes::Wrote},
    harness::kind::Kind,
};

/// How long an exchange waits for the event loop; far longer than any harness waits, so it is
/// reached only when the loop is stuck.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// Most remarks on events that nothing takes; each costs a query.
const UNTAKEN_MAX: usize = 3;

/// Header with the state of the queue, sent when there is nothing to deliver.
const PENDING_HEADER: &str = "aside-pending";
/// Header that states whether to check before the next tool, sent when there is nothing to deliver.
const CHECK_HEADER: &str = "aside-check-before-tool";
/// Header with `notice_to_developer`, sent when there is nothing to deliver.
const NOTICE_HEADER: &str = "aside-notice";

/// Reports the agent's point and takes the notifications that may be delivered now.
///
/// Answers 204 when there is nothing to deliver and nothing to do; the headers `aside-pending`,
/// `aside-check-before-tool` and `aside-notice` then hold the values of the body. A repeated request with the same
/// session and carrier gets the same answer. The first exchange opens the session.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/sessions/{id}/exchange", tag = "sessions",
    params(("id" = String, Path, description = "The session")),
    request_body = ExchangeBody,
    responses(
        (status = 200, body = AnswerView<'static>), (status = 204),
        (status = 400, body = ErrorBody), (status = 409, body = ErrorBody), (status = 503, body = ErrorBody),
    ),
))]
pub(crate) async fn exchange(
    State(app): State<App>,
    IdSegment(session): IdSegment,
    route: Route,
    PeerPid(peer): PeerPid,
    actor: Actor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let body = read_body_up_to(EXCHANGE_BYTES_MAX, &app.rooms.exchanges, body).await?;
    let config = app.config.state();
    let read = || {
        let mut ids = derived_ids(&session, &body);
        parse(&body, &session, app.now(), route.of_observations(), &config.severities, &mut ids)
    };
    let mut request = app.rooms.exchanges.work(body.len(), read).await.map_err(ApiError::bad)?;
    name_sessions(&app, &mut request.exchange).await?;
    request.readdress(&session);
    let session = request.exchange.session.clone();
    let harness = &mut request.exchange.harness;
    let client = match (peer, harness.pid, &harness.parent) {
        (Some(peer), Some(pid), None) => processes::find(&app, &session, peer, IdentifiedBy::Pid(pid)),
        _ => None,
    };
    // A subagent belongs to its parent.
    actor.check_call(&app, harness.parent.as_ref().unwrap_or(&session), client).await?;
    for observed in request.observed.iter().filter_map(|event| event.as_event().session) {
        if observed != session.as_str() {
            actor.check_call(&app, &SessionId::new(observed), None).await?;
        }
    }
    check_origin(&app, actor, &request.exchange).await?;
    if let Some(client) = client {
        request.exchange.harness.runs_in(processes::know(&app, &session, client));
    }
    let known = known_facts(&app, &request).await;
    let (harness, workspace) = known
        .as_ref()
        .map_or((None, None), |known| (known.harness.name.as_deref(), known.harness.workspace.as_deref()));
    request.set_sources(harness);
    let mut remarks = std::mem::take(&mut request.unknown);
    remarks.extend(of_request(&request.exchange, &request.observed, KnownFacts { harness, workspace }));
    if !request.observed.is_empty() {
        // Without an answer of the engine there are no remarks; the exchange then reports the reason.
        remarks.extend(Box::pin(untaken(&app, &request)).await.unwrap_or_default());
    }
    let observed = request.observed.iter().map(Draft::as_event);
    let folder = request.exchange.harness.workspace.as_deref().or(workspace);
    let call = |event: EventRef<'_>| Call::of_event(event.event_type, event.payload, folder);
    let calls: Vec<Call> =
        app.rooms.exchanges.work(body.len(), || observed.clone().filter_map(call).collect()).await;
    note_written(&app, route, &request.exchange, &calls);
    let said = HarnessReport {
        calls,
        patience: probing::patience(&headers),
        provenance: route.of_observations(),
        ..HarnessReport::default()
    };
    let found = probing::look(&app, &request.exchange, said).await;
    let observed = observed.chain(found.iter().map(Event::as_ref));
    let answer = perform(&app, observed, &request.exchange).await?;
    remarks.extend(of_answer(&request.exchange, &answer));
    let notice = join(&remarks);
    if let Some(notice) = &notice {
        tracing::warn!(session = %request.exchange.session, notice, "a part of an exchange has no effect");
    }
    let view = AnswerView::of(&answer, instructions_for(&request.exchange, harness), notice.as_deref());
    Ok(view.map_or_else(|| silence(&answer, notice.as_deref()), |view| Json(view).into_response()))
}

/// Checks that the caller may act for the session whose context an exchange continues or copies: its
/// queue goes with the context.
///
/// Errors: 403 otherwise.
async fn check_origin(app: &App, actor: Actor, exchange: &Exchange) -> Result<(), ApiError> {
    let Some(origin) = exchange.context.origin() else { return Ok(()) };
    // One that is not known has no queue.
    let check = async {
        match find_session(app, origin).await? {
            Some(_) => actor.check(app, origin).await,
            None => Ok(()),
        }
    };
    Box::pin(check).await
}

/// The known session of a request, if something in the request depends on it; most do not.
async fn known_facts(app: &App, request: &ExchangeRequest<'_>) -> Option<SessionView> {
    if !request.needs_known_session() {
        return None;
    }
    Box::pin(find_session(app, &request.exchange.session)).await.ok().flatten()
}

/// The instructions for a model whose harness has none of its own.
fn instructions_for(exchange: &Exchange, known: Option<&str>) -> Option<&'static str> {
    let harness = exchange.harness.name.as_deref().or(known);
    harness.and_then(Kind::of_name).is_none().then_some(INSTRUCTIONS)
}

/// The remarks on observed events that no subscriber takes, and on those for a session that is not
/// open. Types of the catalogue are not checked: many of them are for detectors and probes.
async fn untaken(app: &App, request: &ExchangeRequest<'_>) -> Result<Vec<FieldError>, ApiError> {
    let mut remarks = Vec::new();
    for (index, parsed) in request.observed.iter().enumerate() {
        let event = parsed.as_event();
        let own = request.exchange.session.as_str();
        let other = event.session.filter(|session| *session != own);
        if other.is_none() && catalogue::find(event.event_type).is_some() {
            continue;
        }
        if remarks.len() >= UNTAKEN_MAX {
            break;
        }
        let event = Arc::new(event.to_event());
        let (explanation, known) = explained(app, Arc::clone(&event)).await?;
        if explanation.subscribers.is_empty() {
            let meant = clause(nearest_type(&event, &known));
            let message = format!("no subscriber takes `{}`{meant}", event.event_type);
            remarks.push(FieldError::new(format!("observe[{index}].type"), message));
        } else if let Some(session) = other.filter(|_| explanation.sessions.is_empty()) {
            let meant = clause(nearest_session(app, &SessionId::new(session)).await?);
            let message = format!("no session `{session}` is open{meant}");
            remarks.push(FieldError::new(format!("observe[{index}].session"), message));
        }
    }
    Ok(remarks)
}

/// Reports that an injection did not reach the agent, because its carrier was lost; its
/// notifications are pending again.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/sessions/{id}/undelivered/{injection}", tag = "sessions",
    params(
        ("id" = String, Path, description = "The session"),
        ("injection" = String, Path, description = "The injection's short name"),
    ),
    responses(
        (status = 204), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody),
    ),
))]
pub(crate) async fn undelivered(
    State(app): State<App>,
    Path((session, injection)): Path<(String, String)>,
    actor: Actor,
) -> Result<StatusCode, ApiError> {
    let session = session_of(&app, read_session(&session)?, None).await?;
    actor.check(&app, &session).await?;
    known_session(&app, &session).await?;
    let injection = InjectionId::new(&checked_name("injection", injection).map_err(ApiError::bad)?);
    if !unconfirmed(&app, &session).await?.contains(&injection) {
        return Err(ApiError::not_found("unconfirmed injection", injection.as_str()));
    }
    app.append(Records::build(|records| records.undelivered(&session, &injection))).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn silence(answer: &Answer, notice: Option<&str>) -> Response {
    let headers =
        [(PENDING_HEADER, answer.pending.to_string()), (CHECK_HEADER, answer.check_before_tool.to_string())];
    let mut response = (StatusCode::NO_CONTENT, headers).into_response();
    if let Some(notice) = notice {
        // A header has printable ASCII characters only.
        let ascii: String = notice.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }).collect();
        let value = HeaderValue::from_str(&ascii).expect("printable ASCII");
        response.headers_mut().insert(NOTICE_HEADER, value);
    }
    response
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
    records.exchange(request, exchange)?;
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
        records.event(&event)?;
    }
    Ok(records)
}

/// Records the calls that ended before `exchange`, if its harness is trusted: input over TCP must
/// not start a check.
pub(crate) fn note_written(app: &App, route: Route, exchange: &Exchange, calls: &[Call]) {
    let has_ended = exchange.point != InjectionPoint::BeforeTool && !calls.is_empty();
    if !has_ended || route.of_observations() != Provenance::Harness {
        return;
    }
    app.registry.sources().writes.add(|| {
        let written =
            calls.iter().flat_map(|call| &call.touched).filter(|touch| touch.by == TouchKind::Written);
        let writer =
            Writer { session: exchange.session.clone(), workspace: exchange.harness.workspace.clone() };
        Wrote { writer, paths: written.map(|touch| Arc::clone(&touch.path)).collect() }
    });
}
