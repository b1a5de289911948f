//! Extractors of handlers, with refusals in the API's own format.

use std::{future::poll_fn, mem, pin::pin, task::Poll, time::Duration};

use axum::{
    body::{Body, BodyDataStream, HttpBody},
    extract::{FromRequestParts, Path, Query},
    http::{HeaderMap, StatusCode, request::Parts},
};
use bytes::Bytes;
use engine::{
    event::SessionId,
    request::{FieldError, names::checked_name},
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use crate::api::{
    App,
    error::ApiError,
    naming::session_of,
    room::{Buffer, Room},
};

/// Largest body of most requests, in bytes: webhooks, notices, questions, watches.
pub(crate) const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Largest body of events that is read whole, in bytes; more have to be NDJSON, which is read in
/// pieces.
pub(crate) const EVENTS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Largest body of an exchange, in bytes: the most observed events, and as much again.
pub(crate) const EXCHANGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Largest body of a hook, in bytes: its client sends results of tools and contents of files whole.
pub(crate) const HOOK_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long a body that is read whole may take.
const BODY_WAIT_MAX: Duration = Duration::from_secs(30);
/// Least bytes in each [`PACE`]: 1 kB a second.
const PACE_BYTES: usize = 5_000;
/// The interval for [`PACE_BYTES`].
const PACE: Duration = Duration::from_secs(5);

/// The parameters of the query.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Query(params) = Query::from_request_parts(parts, state).await.map_err(|rejection| {
            let text = rejection.body_text();
            let message = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
            ApiError::bad(FieldError::new("query", message))
        })?;
        Ok(Self(params))
    }
}

/// The one variable segment of the path.
pub(crate) struct Segment(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(segment) = Path::from_request_parts(parts, state)
            .await
            .map_err(|rejection| ApiError::bad(FieldError::new("path", rejection.body_text())))?;
        Ok(Self(segment))
    }
}

/// The session id in the path, before it is resolved for a harness.
pub(crate) struct IdSegment(pub(crate) SessionId);

impl<S: Send + Sync> FromRequestParts<S> for IdSegment {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Segment(segment) = Segment::from_request_parts(parts, state).await?;
        read_session(&segment).map(Self)
    }
}

/// The session in the path.
pub(crate) struct SessionSegment(pub(crate) SessionId);

impl FromRequestParts<App> for SessionSegment {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let IdSegment(id) = IdSegment::from_request_parts(parts, app).await?;
        session_of(app, id, None).await.map(Self)
    }
}

/// Reads the id of a session.
pub(crate) fn read_session(text: &str) -> Result<SessionId, ApiError> {
    checked_name("session", text).map(|id| SessionId::new(&id)).map_err(ApiError::bad)
}

/// The value of a header, if it is text.
pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Reads a body of at most [`BODY_BYTES_MAX`] bytes whole.
///
/// Errors: as [`read_body_up_to`].
pub(crate) async fn read_body(room: &Room, body: Body) -> Result<Bytes, ApiError> {
    read_body_up_to(BODY_BYTES_MAX, room, body).await
}

/// Reads a body whole.
///
/// Errors: the body has more than `bytes_max` bytes, there is no room for it, or the client sends
/// less than [`PACE_BYTES`] in [`PACE`], takes longer than [`BODY_WAIT_MAX`] or stops.
pub(crate) async fn read_body_up_to(bytes_max: usize, room: &Room, body: Body) -> Result<Bytes, ApiError> {
    let announced = body.size_hint().lower();
    let announced = usize::try_from(announced).ok().filter(|bytes| *bytes <= bytes_max);
    let buffer = Buffer::new(room, announced.ok_or_else(|| too_large(bytes_max))?).await?;
    let reading = read_into(buffer, bytes_max, room, body.into_data_stream());
    lazy_timeout(BODY_WAIT_MAX, reading).await.unwrap_or_else(|| Err(too_slow()))
}

async fn read_into(
    mut buffer: Buffer,
    bytes_max: usize,
    room: &Room,
    mut chunks: BodyDataStream,
) -> Result<Bytes, ApiError> {
    loop {
        let enough = buffer.len() + PACE_BYTES;
        let some = async {
            while buffer.len() < enough {
                let Some(chunk) = chunks.next().await else { return Ok(true) };
                let chunk = chunk.map_err(|error| broken_off(&error))?;
                if buffer.len() + chunk.len() > bytes_max {
                    return Err(too_large(bytes_max));
                }
                buffer.push(room, &chunk, bytes_max).await?;
            }
            Ok(false)
        };
        if lazy_timeout(PACE, some).await.unwrap_or_else(|| Err(too_slow()))? {
            return Ok(buffer.into_bytes());
        }
    }
}

/// Waits for `future`, at most about `limit`; `None` when it takes longer.
///
/// Shape: the timer starts at the second poll, because a timer can wake another thread. A body that
/// arrived with its head is complete at that time.
pub(crate) async fn lazy_timeout<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut is_first = true;
    let soon = poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if mem::take(&mut is_first) => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        Poll::Pending => Poll::Ready(None),
    });
    match soon.await {
        Some(done) => Some(done),
        None => timeout(limit, future).await.ok(),
    }
}

fn too_large(bytes_max: usize) -> ApiError {
    let more = if bytes_max == EVENTS_BYTES_MAX { "; send more as application/x-ndjson" } else { "" };
    let message = format!("the body of this request has at most {bytes_max} bytes{more}");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

/// The client takes too long to send a body.
pub(crate) fn too_slow() -> ApiError {
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body is sent too slowly")
}

/// The client stopped sending in the middle of a body.
pub(crate) fn broken_off(error: &axum::Error) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, format!("the body ended early: {error}"))
}
