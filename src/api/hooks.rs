//! Hook calls of harnesses: stdin in, stdout out. `harness` parses and writes the bytes.

use std::time::Duration;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use engine::{
    conversation::SessionView as OpenSession,
    event::{Event, SessionId},
    exchange::Exchange,
    ledger::ConfirmedBy,
    records::Records,
    sorted::SortedSet,
};

#[cfg(test)]
use crate::api::wire::ErrorBody;
use crate::{
    api::{
        App,
        actor::Actor,
        auth::{PeerPid, Route},
        engine_handle::EngineView,
        error::ApiError,
        exchange::{note_written, perform, records_of},
        extract::{self, HOOK_BYTES_MAX, Segment, read_body_up_to},
        hook_troubles::Consequence,
        naming::{session_of, unconfirmed},
        probing::{self, HarnessReport},
        processes::{self, IdentifiedBy},
        transcripts,
        wake_routes::{ClientFolder, KnownSocket},
    },
    harness::{
        self, Headers, HookCall, HookEnv, HookError, Then, header_text,
        kind::{Hooked, Hooks, Kind},
    },
};

/// Takes one hook call of a harness.
///
/// The body is the hook's stdin, unchanged. Answers 200 with the hook's stdout, or 204 when it has
/// to print nothing.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/hooks/{harness}", tag = "sessions",
    params(("harness" = String, Path, description = "The harness, by its name in `aside hook NAME`")),
    request_body(content = Object, content_type = "application/json"),
    responses(
        (status = 200, content_type = "application/json", body = String), (status = 204),
        (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody),
    ),
))]
pub(crate) async fn hook(
    State(app): State<App>,
    Segment(harness): Segment,
    route: Route,
    PeerPid(peer): PeerPid,
    actor: Actor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let kind = Kind::of_word(&harness);
    let Some(hooked) = kind.and_then(Kind::hooked) else {
        let message = without_hooks(&harness, kind);
        app.registry.hook_troubles().note(Consequence::UnknownHarness, &harness, &message, app.now());
        return Err(ApiError::new(StatusCode::NOT_FOUND, message));
    };
    let Hooked { kind, hooks } = hooked;
    let stopwatch = app.meters.begin();
    let stdin = read_body_up_to(HOOK_BYTES_MAX, &app.rooms.exchanges, body).await?;
    let header = |name: &str| extract::header(&headers, name).and_then(header_text);
    let env = HookEnv::from_headers(&header);
    let read = || (hooks.parse)(&harness::readable(&stdin), &env, app.now());
    let read = app.rooms.exchanges.work(stdin.len(), read).await;
    let mut call = read.map_err(|error| refused(&app, kind, &error))?;
    // The call has copies of what it needs, all but the prompt, which is searched in place.
    let searched = if matches!(call.then, Then::Prompt(_)) { stdin } else { Bytes::new() };
    for event in &mut call.observe {
        event.provenance = route.of_observations();
    }
    for left_out in &call.left_out {
        let field = left_out.field.as_deref().unwrap_or_default();
        app.registry.hook_troubles().note(Consequence::LeftOut, field, &left_out.to_string(), app.now());
        tracing::warn!(harness = kind.word, error = %left_out, "a field of a hook call cannot be used");
    }
    for id in call.sessions_mut() {
        *id = session_of(&app, id.clone(), Some(kind.caps.name)).await?;
    }
    let folder = call.transcript.as_ref().and_then(|transcript| kind.client_folder(&transcript.path));
    let folder = folder.map(|path| ClientFolder { kind, path: path.to_owned() });
    let identity = env.pid.map(IdentifiedBy::Pid).or(folder.as_ref().map(IdentifiedBy::SessionFile));
    check_actor(&app, actor, peer, identity, &mut call).await?;
    if let Some(exchange) = call.then.exchange_mut() {
        note_written(&app, route, exchange, &call.calls);
    }
    let stdout = answer(&app, hooked, &mut call, searched, route, probing::patience(&headers)).await?;
    let took = app.meters.since(stopwatch);
    app.meters.hook.observe(took);
    tracing::debug!(harness = kind.word, answers = stdout.is_some(), took_us = took.as_micros(), "hook");
    if peer.is_some() {
        note_client(&app, hooks, &call, &header, folder);
    }
    // A path that arrived over TCP is not read.
    if let (Some(transcript), Route::Unix) = (call.transcript, route) {
        // When the queue is full, the next hook of the session sends it again.
        app.transcripts.try_send(transcript).ok();
    }
    Ok(stdout.map_or_else(silence, |stdout| {
        ([(header::CONTENT_TYPE, "application/json")], stdout).into_response()
    }))
}

/// The reason why no hook of the harness `name` is taken; `kind` is its row, if it has one.
fn without_hooks(name: &str, kind: Option<&Kind>) -> String {
    let known: Vec<String> = Kind::hook_words().map(|word| format!("`{word}`")).collect();
    let why = kind.map_or_else(|| format!("unknown harness `{name}`"), Kind::without_hooks);
    format!("{why}; known: {}", known.join(", "))
}

/// Notes how the client of a call's session can be woken. A call over TCP is not noted: a socket of
/// another machine is not written to.
fn note_client(app: &App, hooks: &Hooks, call: &HookCall, header: Headers<'_>, folder: Option<ClientFolder>) {
    let Some(session) = call.then.conversation() else { return };
    let routes = app.registry.wake_routes();
    // `push` writes only to a socket on which this process of the client listens.
    if let Some(client) = app.registry.processes().process_of(session)
        && let Some(sockets) = &hooks.message_sockets
        && let Some(socket) = (sockets.find)(session, header)
    {
        routes.know_socket(session, KnownSocket { socket, client });
    }
    if let Some(holds) = call.holds_messages {
        routes.note_holding(session, holds);
    }
    if let Some(folder) = folder {
        routes.know_folder(session, &folder);
    }
}

/// Checks that the caller may act for the sessions of a call, and records their process.
///
/// Errors: 403 if a session runs elsewhere, and the caller belongs to another one.
async fn check_actor(
    app: &App,
    actor: Actor,
    peer: Option<u32>,
    identity: Option<IdentifiedBy<'_>>,
    call: &mut HookCall,
) -> Result<(), ApiError> {
    let observed: SortedSet<SessionId> =
        call.observe.iter().filter_map(|event| event.session.clone()).collect();
    match &mut call.then {
        Then::Exchange(exchange) | Then::BeforeTool(exchange) | Then::Prompt(exchange) => {
            let client = match (peer, identity, &exchange.harness.parent) {
                (Some(peer), Some(identity), None) => processes::find(app, &exchange.session, peer, identity),
                _ => None,
            };
            let session = exchange.harness.parent.as_ref().unwrap_or(&exchange.session);
            actor.check_call(app, session, client).await?;
            if let Some(client) = client {
                exchange.harness.runs_in(processes::know(app, &exchange.session, client));
            }
        }
        Then::SessionSuspended(session) | Then::SessionEnded(session) => {
            actor.check_call(app, session, None).await?;
        }
        Then::Nothing => {
            for session in &observed {
                actor.check_call(app, session, None).await?;
            }
        }
    }
    Ok(())
}

/// Performs a call; returns the hook's stdout. `searched` is the input of a prompt.
async fn answer(
    app: &App,
    hooked: Hooked,
    call: &mut HookCall,
    searched: Bytes,
    route: Route,
    patience: Option<Duration>,
) -> Result<Option<String>, ApiError> {
    let said = HarnessReport {
        calls: std::mem::take(&mut call.calls),
        transcript: call.transcript.as_ref().map(|transcript| transcript.path.clone()),
        reader: hooked.kind.transcript,
        patience,
        provenance: route.of_observations(),
    };
    let mut found = 0;
    if let Some(exchange) = call.then.exchange_mut() {
        let events = probing::look(app, exchange, said).await;
        found = events.len();
        call.observe.extend(events);
    }
    let observed = call.observe.iter().map(Event::as_ref);
    match &call.then {
        Then::Exchange(exchange) => return exchanged(app, hooked.hooks, call, exchange).await,
        Then::BeforeTool(exchange) => {
            let is_held = found > 0;
            if is_held || is_checked_before_tool(app, &exchange.session).await? {
                return exchanged(app, hooked.hooks, call, exchange).await;
            }
            app.append(records_of(observed)?).await?;
        }
        Then::Prompt(exchange) => {
            let given = unconfirmed(app, &exchange.session).await?;
            // Injections in the prompt or in the transcript have arrived; others may be delivered
            // again here.
            let find = || harness::ids_in(&searched, &given);
            let mut carried = app.rooms.exchanges.work(searched.len(), find).await;
            if carried.len() < given.len()
                && let Some(transcript) = &call.transcript
            {
                carried.extend(transcripts::seen_before(&transcript.path, given).await);
            }
            let acks = Records::build(|records| records.acks(&exchange.session, &carried, ConfirmedBy::Seen));
            app.append(acks).await?;
            return exchanged(app, hooked.hooks, call, exchange).await;
        }
        Then::SessionSuspended(session) => {
            let mut records = records_of(observed)?;
            records.session_suspended(session);
            app.append(records).await?;
        }
        Then::SessionEnded(session) => {
            let mut records = records_of(observed)?;
            // The subagent finished, so all earlier injections have arrived.
            let given = unconfirmed(app, session).await?;
            records.acks(session, &given, ConfirmedBy::Turn);
            records.session_ended(session);
            app.append(records).await?;
        }
        Then::Nothing => app.append(records_of(observed)?).await?,
    }
    Ok(None)
}

/// Whether a pending notification is released before the next tool of a session; a pending broadcast
/// may be.
async fn is_checked_before_tool(app: &App, session: &SessionId) -> Result<bool, ApiError> {
    let id = session.clone();
    let is_checked = move |view: &EngineView<'_>| {
        let sessions = view.engine.sessions();
        let is_checked =
            |session: OpenSession<'_>| session.injector.check_before_tool() || sessions.is_behind(&id);
        sessions.view(&id).is_some_and(is_checked)
    };
    app.engine.read(is_checked).await
}

async fn exchanged(
    app: &App,
    hooks: &Hooks,
    call: &HookCall,
    exchange: &Exchange,
) -> Result<Option<String>, ApiError> {
    let answer = perform(app, call.observe.iter().map(Event::as_ref), exchange).await?;
    Ok((hooks.reply)(call, &answer))
}

fn silence() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// The client does not read a hook's refusal, so it is counted and logged. The log omits the cause,
/// which may repeat delivered text.
fn refused(app: &App, kind: &Kind, error: &HookError) -> ApiError {
    let what = match error {
        HookError::Input { field, .. } => field.as_str(),
        HookError::Missing { field, .. } => field,
        HookError::Field { source, .. } => source.field.as_deref().unwrap_or_default(),
    };
    app.registry.hook_troubles().note(Consequence::Refused, what, &error.to_string(), app.now());
    tracing::warn!(harness = kind.word, %error, "a hook call cannot be read");
    ApiError::unreadable(error)
}
