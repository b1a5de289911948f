//! What handlers take from a request, with refusals in the API's own shape.

use axum::{
    body::Body,
    extract::{FromRequestParts, Path, Query},
    http::{HeaderMap, StatusCode, request::Parts},
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;

use crate::{
    event::SessionId,
    protocol::{FieldError, event::read_name},
    server::error::ApiError,
};

/// Largest body that is read whole, in bytes; larger ones are for NDJSON, which is read in pieces.
pub(crate) const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

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

/// The session that the path names.
pub(crate) struct SessionSegment(pub(crate) SessionId);

impl<S: Send + Sync> FromRequestParts<S> for SessionSegment {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Segment(segment) = Segment::from_request_parts(parts, state).await?;
        let id = read_name("session", Some(segment.into())).map_err(ApiError::bad)?;
        Ok(Self(SessionId::new(&id.unwrap_or_default())))
    }
}

/// The text of a header, if it has one that is text.
pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Reads a body whole.
///
/// Errors: it has more than [`BODY_BYTES_MAX`] bytes, or the client stopped sending.
pub(crate) async fn read_body(body: Body) -> Result<Bytes, ApiError> {
    let mut chunks = body.into_data_stream();
    let mut whole = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| broken_off(&error))?;
        if whole.len() + chunk.len() > BODY_BYTES_MAX {
            let message =
                format!("a body has at most {BODY_BYTES_MAX} bytes; send more as application/x-ndjson");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.freeze())
}

/// The client stopped sending in the middle of a body.
pub(crate) fn broken_off(error: &axum::Error) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, format!("the body broke off: {error}"))
}
