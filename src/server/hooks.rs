//! Hook calls of harnesses: their stdin in, their stdout out. What the bytes mean is `harness`'s business.

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::{
    engine::io::RequestId,
    event::{Event, Seq, SessionId},
    exchange::{Exchange, InjectionId},
    harness::{
        self, HookCall, HookEnv, Then,
        claude::{self, inbox::Inbox},
    },
    journal::{AppendBatch, Level, record::RecordKind},
    ledger::ConfirmedBy,
    protocol::{
        FieldError,
        record::{self, RecordError},
    },
    server::{
        App,
        auth::Route,
        error::{ApiError, ErrorBody},
        exchange::{batch_of, perform},
        extract::{self, Segment, read_body},
    },
};

/// The name of the harness whose hooks are understood.
const CLAUDE: &str = "claude";

/// Takes one hook call of a harness.
///
/// The body is the hook's stdin as it came. Answers 200 with what belongs on its stdout, or 204 when it has to stay silent.
#[utoipa::path(
    post, path = "/v1/hooks/{harness}", tag = "sessions",
    params(("harness" = String, Path, description = "`claude`")),
    request_body(content = Object, content_type = "application/json"),
    responses(
        (status = 200, content_type = "application/json", body = String), (status = 204),
        (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody),
    ),
)]
pub(crate) async fn hook(
    State(app): State<App>,
    Segment(harness): Segment,
    route: Route,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    if harness != CLAUDE {
        let message = format!("there is no harness `{harness}`; there is `{CLAUDE}`");
        return Err(ApiError::new(StatusCode::NOT_FOUND, message));
    }
    let begun = app.meters.begin();
    let stdin = read_body(&app.rooms.exchanges, body).await?;
    let env = HookEnv::from_headers(|name| extract::header(&headers, name));
    let mut call = claude::parse(&stdin, &env, app.now()).map_err(|error| refused(&error, &error))?;
    for event in &mut call.observe {
        event.provenance = route.of_observations();
    }
    let stdout = answer(&app, &call).await?;
    let took = app.meters.since(begun);
    app.meters.hook.observe(took);
    tracing::debug!(harness = CLAUDE, answers = stdout.is_some(), took_us = took.as_micros(), "hook");
    if route == Route::Unix {
        learn_inbox(&app, &call.then, &headers);
    }
    if let Some(transcript) = call.transcript {
        // When many wait already, the next hook of the session brings it again.
        app.transcripts.try_send(transcript).ok();
    }
    Ok(stdout.map_or_else(silence, |stdout| {
        ([(header::CONTENT_TYPE, "application/json")], stdout).into_response()
    }))
}

/// Does what a call asks for; gives what belongs on the hook's stdout.
async fn answer(app: &App, call: &HookCall) -> Result<Option<String>, ApiError> {
    let observed = call.observe.iter().map(Event::as_ref);
    match &call.then {
        Then::Exchange(exchange) => return exchanged(app, call, exchange).await,
        Then::BeforeTool(exchange) => {
            if app.engine.standing(exchange.session.clone()).await?.check_before_tool {
                return exchanged(app, call, exchange).await;
            }
            append(app, batch_of(observed)?).await?;
        }
        Then::Prompt { exchange, prompt } => {
            let standing = app.engine.standing(exchange.session.clone()).await?;
            let carried = harness::ids_in(prompt.as_bytes(), &standing.unconfirmed);
            if carried.is_empty() {
                return exchanged(app, call, exchange).await;
            }
            let mut batch = batch_of(observed)?;
            push_acks(&mut batch, &exchange.session, &carried, ConfirmedBy::Seen)?;
            append(app, batch).await?;
        }
        Then::SessionClosed { session, may_return } => {
            let encode = |body: &mut Vec<u8>| record::encode_session_closed(session, *may_return, body);
            check(record::SESSION_CLOSED, encode)?;
            let mut batch = batch_of(observed)?;
            if !may_return {
                // It ended by having its say, after all that it was given.
                let given = app.engine.standing(session.clone()).await?.unconfirmed;
                push_acks(&mut batch, session, &given, ConfirmedBy::Ack)?;
            }
            push(&mut batch, record::SESSION_CLOSED, encode)?;
            append(app, batch).await?;
        }
        Then::Nothing => append(app, batch_of(observed)?).await?,
    }
    Ok(None)
}

async fn exchanged(app: &App, call: &HookCall, exchange: &Exchange) -> Result<Option<String>, ApiError> {
    check(record::EXCHANGE, |body| record::encode_exchange(RequestId(0), exchange, body))?;
    let answer = perform(app, call.observe.iter().map(Event::as_ref), exchange).await?;
    Ok(claude::reply(call, &answer))
}

/// Adds that injections have arrived, as `by` shows.
pub(crate) fn push_acks(
    batch: &mut AppendBatch,
    session: &SessionId,
    injections: &[InjectionId],
    by: ConfirmedBy,
) -> Result<(), ApiError> {
    for injection in injections {
        push(batch, record::ACK, |body| record::encode_ack(session, injection, by, body))?;
    }
    Ok(())
}

fn push(batch: &mut AppendBatch, kind: u8, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), ApiError> {
    let pushed = batch.push_with(RecordKind(kind), None, encode);
    pushed.map_err(|error| ApiError::bad(FieldError::whole(error.to_string())))
}

/// Remembers where the client takes messages. A subagent has no inbox of its own; and a path that came over TCP is not that of
/// a process beside this one.
fn learn_inbox(app: &App, then: &Then, headers: &HeaderMap) {
    let (Then::Exchange(exchange) | Then::BeforeTool(exchange) | Then::Prompt { exchange, .. }) = then else {
        return;
    };
    let session = &exchange.session;
    let inbox = Inbox::from_headers(session, |name| extract::header(headers, name));
    if let Some(inbox) = inbox.filter(|_| exchange.harness.parent.is_none()) {
        app.registry.doors().know(session, inbox);
    }
}

fn silence() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// Nobody reads a hook's refusal, so it is said in the log too, without what led to it: that may repeat what the agent was told.
fn refused(outer: &dyn std::fmt::Display, error: &dyn std::error::Error) -> ApiError {
    tracing::warn!(harness = CLAUDE, error = %outer, "a hook call cannot be read");
    ApiError::unreadable(error)
}

/// Refuses what could be written into the journal but not read again: a harness's words have not been checked yet.
fn check(kind: u8, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), ApiError> {
    let mut body = Vec::new();
    encode(&mut body);
    match record::decode(kind, Seq::ZERO, &body) {
        Ok(_) => Ok(()),
        Err(error) => Err(match &error {
            RecordError::Body { source, .. } => refused(&error, source),
            RecordError::Kind { .. } | RecordError::Version { .. } | RecordError::Event { .. } => {
                refused(&error, &error)
            }
        }),
    }
}

/// A hook does not wait for the disk.
pub(crate) async fn append(app: &App, batch: AppendBatch) -> Result<(), ApiError> {
    if batch.is_empty() {
        return Ok(());
    }
    app.bus.append(batch, Level::Written).await.map(drop).map_err(|error| ApiError::append(&error))
}
