//! How a refusal looks: a status and `{"error":{"field":..,"message":..}}`.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    causes::with_causes,
    journal::{AppendError, BodyTooLarge},
    protocol::FieldError,
};

/// When it is worth to try again what was refused for now, in seconds.
const RETRY_AFTER: &str = "1";

/// A request that is refused.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(crate) struct ApiError {
    status: StatusCode,
    error: FieldError,
}

/// The body of every refusal.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// What is wrong.
    error: ErrorView,
}

/// What is wrong with a request or one of its events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorView {
    /// Where, such as `severity` or `observe[2].type`; absent when the whole is unusable.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// What is wrong there.
    message: String,
}

impl From<FieldError> for ErrorView {
    fn from(error: FieldError) -> Self {
        Self { field: error.field.map(Into::into), message: error.message }
    }
}

impl ApiError {
    /// Refuses with `status`, blaming no field.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, error: FieldError::whole(message) }
    }

    /// Refuses what was sent.
    pub(crate) fn bad(error: FieldError) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error }
    }

    /// Refuses what could not be read, with what led to that.
    pub(crate) fn unreadable(error: &dyn std::error::Error) -> Self {
        Self::bad(FieldError::whole(with_causes(error)))
    }

    /// As it is, with another status.
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Nothing of that name is known.
    pub(crate) fn not_found(what: &str, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no {what} `{name}`"))
    }

    /// It is larger than a record of the journal may be.
    pub(crate) fn too_large(error: &BodyTooLarge) -> Self {
        Self::bad(FieldError::whole(error.to_string()))
    }

    /// There is no room for it at this moment; a moment later there may be.
    pub(crate) fn busy(message: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// The daemon stops, so nobody answers any more.
    pub(crate) fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping")
    }

    /// The journal did not take it.
    pub(crate) fn append(error: &AppendError) -> Self {
        let status = match error {
            AppendError::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
            AppendError::Poisoned(_) | AppendError::Closed => StatusCode::SERVICE_UNAVAILABLE,
        };
        let message = match error {
            // Whoever reads this may be able to free some space.
            AppendError::Poisoned(poisoned) => format!("{poisoned}: {}", poisoned.source),
            AppendError::Full(_) | AppendError::Closed => error.to_string(),
        };
        Self::new(status, message)
    }

    /// The body of the refusal.
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
            // A stranger keeps no connection.
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
    use crate::journal::Poisoned;

    #[test]
    fn a_publisher_is_told_what_the_disk_said() {
        let poisoned = Poisoned {
            operation: "write",
            path: "/j/1.seg".into(),
            source: Arc::new(io::Error::other("no space left")),
        };
        assert_eq!(
            ApiError::append(&poisoned.into()).to_string(),
            "the journal takes no more records since it could not write /j/1.seg: no space left"
        );
    }
}
