//! Hook calls of harnesses: their stdin in, their stdout out. What the bytes mean is `harness`'s business.

use axum::{
    Extension,
    body::Body,
    extract::{ConnectInfo, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::{
    engine::io::RequestId,
    event::{Event, Seq},
    exchange::Exchange,
    harness::{
        HookEnv, Then,
        claude::{self, inbox::Inbox},
    },
    journal::{AppendBatch, Level, record::RecordKind},
    protocol::{
        FieldError,
        record::{self, RecordError},
    },
    server::{
        App,
        auth::Peer,
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
    local: Option<Extension<ConnectInfo<Peer>>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    if harness != CLAUDE {
        let message = format!("there is no harness `{harness}`; there is `{CLAUDE}`");
        return Err(ApiError::new(StatusCode::NOT_FOUND, message));
    }
    let stdin = read_body(body).await?;
    let env = HookEnv::from_headers(|name| extract::header(&headers, name));
    let call = claude::parse(&stdin, &env, app.now()).map_err(|error| refused(&error))?;
    let observed = call.observe.iter().map(Event::as_ref);
    match &call.then {
        Then::Exchange(exchange) => {
            check(record::EXCHANGE, |body| record::encode_exchange(RequestId(0), exchange, body))?;
            if local.is_some() {
                learn_inbox(&app, exchange, &headers);
            }
            let answer = perform(&app, observed, exchange).await?;
            let stdout = claude::reply(&call, &answer);
            return Ok(stdout.map_or_else(silence, |stdout| {
                ([(header::CONTENT_TYPE, "application/json")], stdout).into_response()
            }));
        }
        Then::SessionClosed { session } => {
            check(record::SESSION_CLOSED, |body| record::encode_session_closed(session, body))?;
            let mut batch = batch_of(observed)?;
            let kind = RecordKind(record::SESSION_CLOSED);
            batch
                .push_with(kind, None, |body| record::encode_session_closed(session, body))
                .map_err(|error| ApiError::bad(FieldError::whole(error.to_string())))?;
            append(&app, batch).await?;
        }
        Then::Nothing => append(&app, batch_of(observed)?).await?,
    }
    Ok(silence())
}

/// Remembers where the client takes messages. A subagent has no inbox of its own; and a path that came over TCP is not that of
/// a process beside this one.
fn learn_inbox(app: &App, exchange: &Exchange, headers: &HeaderMap) {
    let session = &exchange.session;
    let inbox = Inbox::from_headers(session, |name| extract::header(headers, name));
    if let Some(inbox) = inbox.filter(|_| exchange.harness.parent.is_none()) {
        app.registry.doors().know(session, inbox);
    }
}

fn silence() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// Nobody reads a hook's refusal, so it is said in the log too.
fn refused(error: &dyn std::error::Error) -> ApiError {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    tracing::warn!(harness = CLAUDE, error = message, "a hook call cannot be read");
    ApiError::bad(FieldError::whole(message))
}

/// Refuses what could be written into the journal but not read again: a harness's words have not been checked yet.
fn check(kind: u8, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), ApiError> {
    let mut body = Vec::new();
    encode(&mut body);
    match record::decode(kind, Seq::ZERO, &body) {
        Ok(_) => Ok(()),
        Err(RecordError::Body { source, .. }) => Err(refused(&source)),
        Err(error @ (RecordError::Kind { .. } | RecordError::Version { .. } | RecordError::Event { .. })) => {
            Err(refused(&error))
        }
    }
}

/// A hook does not wait for the disk.
async fn append(app: &App, batch: AppendBatch) -> Result<(), ApiError> {
    if batch.is_empty() {
        return Ok(());
    }
    app.bus.append(batch, Level::Written).await.map(drop).map_err(|error| ApiError::append(&error))
}
