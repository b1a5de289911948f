//! The format of a refusal: a status and `{"error":{"field":..,"message":..}}`.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use journal::{AppendError, BodyTooLarge};

use crate::{
    api::wire::{ErrorBody, ErrorView},
    daemon::causes::with_causes,
    history::ProjectionError,
};
use engine::request::FieldError;

/// When to retry a temporary refusal, in seconds.
const RETRY_AFTER: &str = "1";

/// A refused request.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(crate) struct ApiError {
    status: StatusCode,
    error: FieldError,
}

impl From<FieldError> for ErrorView {
    fn from(error: FieldError) -> Self {
        Self { field: error.field.map(Into::into), message: error.message }
    }
}

impl From<ProjectionError> for ApiError {
    /// The history cannot be read now.
    fn from(error: ProjectionError) -> Self {
        let message = format!("{error}; try again, or see `aside status`");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }
}

impl From<BodyTooLarge> for ApiError {
    /// 413 for a body larger than a journal record may be.
    fn from(error: BodyTooLarge) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string())
    }
}

impl From<AppendError> for ApiError {
    /// The journal rejected the append.
    fn from(error: AppendError) -> Self {
        let (status, message) = match &error {
            AppendError::Full(_) => (StatusCode::INSUFFICIENT_STORAGE, error.to_string()),
            AppendError::Closed => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            // The cause is shown, because the user can often remove it, such as a full disk.
            AppendError::Poisoned(poisoned) => {
                (StatusCode::SERVICE_UNAVAILABLE, format!("{poisoned}: {}", poisoned.source))
            }
        };
        Self::new(status, message)
    }
}

impl ApiError {
    /// Refuses with `status` and no field.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, error: FieldError::whole(message) }
    }

    /// Refuses invalid input.
    pub(crate) fn bad(error: FieldError) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error }
    }

    /// Refuses input that could not be read, with the chain of causes.
    pub(crate) fn unreadable(error: &dyn std::error::Error) -> Self {
        Self::bad(FieldError::whole(with_causes(error)))
    }

    /// Its status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the same refusal with another status.
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// 404 for an unknown name.
    pub(crate) fn not_found(what: &str, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no {what} `{name}`"))
    }

    /// 503 for a temporary lack of room.
    pub(crate) fn busy(message: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// The daemon stops and answers no more requests.
    pub(crate) fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping")
    }

    pub(crate) fn into_body(self) -> ErrorBody {
        ErrorBody { error: self.error.into() }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status;
        let mut response = (status, Json(self.into_body())).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let headers = response.headers_mut();
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            // An unauthenticated client keeps no connection.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use super::*;
    use journal::Poisoned;

    #[test]
    fn oversized_record_body_is_payload_too_large() {
        let refused = ApiError::from(BodyTooLarge { bytes: 7 });
        assert_eq!(refused.into_response().status(), StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[test]
    fn a_publisher_gets_what_the_disk_said() {
        let poisoned = Poisoned {
            operation: "write",
            path: "/j/1.seg".into(),
            source: Arc::new(io::Error::other("no space left")),
        };
        assert_eq!(
            ApiError::from(AppendError::from(poisoned)).to_string(),
            "the journal accepts no records since it failed to write /j/1.seg: no space left"
        );
    }
}
