//! Reloading the configuration on request.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};

#[cfg(test)]
use crate::api::wire::{ErrorBody, views::ReloadView};
use crate::api::{App, ReloadRefusal, error::ApiError, wire::views::RefusedReloadView};

/// Reloads the configuration, all or nothing.
///
/// Answers once the rules are in the journal: later events are handled by them. With an error in
/// any file nothing changes, and the answer has every finding.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/reload", tag = "admin",
    responses(
        (status = 200, body = ReloadView), (status = 422, body = RefusedReloadView),
        (status = 500, body = ErrorBody), (status = 503, body = ErrorBody), (status = 507, body = ErrorBody),
    ),
))]
pub(crate) async fn reload(State(app): State<App>) -> Result<Response, ApiError> {
    match app.config.reload().await? {
        Ok(reloaded) => Ok(Json(reloaded).into_response()),
        Err(refusal) => refused(refusal),
    }
}

/// The answer to a request that changes nothing; with findings the one of a reload.
pub(super) fn refused(refusal: ReloadRefusal) -> Result<Response, ApiError> {
    match refusal {
        ReloadRefusal::Files { message, found } => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let error = ApiError::new(status, message).into_body();
            Ok((status, Json(RefusedReloadView { error, found })).into_response())
        }
        ReloadRefusal::Trust(why) => Err(ApiError::new(StatusCode::CONFLICT, why)),
        ReloadRefusal::Journal(error) => Err(error.into()),
        ReloadRefusal::Failed(why) => Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, why)),
    }
}
