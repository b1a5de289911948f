//! Status and health of the daemon, and orders to it.

use std::time::Duration;

use axum::{Json, extract::State, http::StatusCode};
use journal::{AppendError, time::duration_millis};
use serde::Serialize;

#[cfg(test)]
use crate::api::wire::ErrorBody;

use crate::api::{
    App,
    error::ApiError,
    history,
    status::status_of,
    wire::{history::ProjectionView, views::StatusView},
};

/// Shows the status of the daemon.
#[cfg_attr(test, utoipa::path(get, path = "/v1/status", tag = "admin", responses((status = 200, body = StatusView))))]
pub(crate) async fn status(State(app): State<App>) -> Result<Json<StatusView>, ApiError> {
    status_of(&app).await.map(Json)
}

/// Liveness of the daemon.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct Health {
    /// `ok`, or `degraded` while there is a problem that does not stop publishing.
    status: &'static str,
    /// The problems.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    /// Number of journal records that the event loop has not handled yet.
    lag: u64,
    /// How long the loop's current iteration has lasted, or how long it has been idle since a check
    /// first saw those records, in milliseconds; 0 while it is idle without records.
    held_up_ms: u64,
}

/// Longest iteration of the event loop before it counts as stuck; one takes milliseconds.
const HELD_UP_MAX: Duration = Duration::from_secs(5);

/// Reports that the daemon runs, its event loop makes progress, and its journal accepts events.
/// Queries neither the loop nor the disk.
#[cfg_attr(test, utoipa::path(
    get, path = "/healthz", tag = "admin",
    responses((status = 200, body = Health), (status = 503, body = ErrorBody), (status = 507, body = ErrorBody)),
))]
pub(crate) async fn healthz(State(app): State<App>) -> Result<Json<Health>, ApiError> {
    let lag = app.journal.lag();
    let held_up = app.engine.pulse().held_up(lag);
    if held_up >= HELD_UP_MAX {
        let message = format!("the event loop made no progress for {} seconds", held_up.as_secs());
        return Err(ApiError::busy(&message));
    }
    let poisoned = app.journal.poisoned().map(AppendError::Poisoned);
    match poisoned.or_else(|| app.journal.disk_full().map(AppendError::Full)) {
        Some(error) => Err(ApiError::append(&error)),
        None => {
            let problems = app.journal.health().sentences();
            let status = if problems.is_empty() { "ok" } else { "degraded" };
            Ok(Json(Health { status, problems, lag, held_up_ms: duration_millis(held_up) }))
        }
    }
}

/// Rebuilds the projection from the journal.
///
/// Answers once the old one is deleted. History requests are answered throughout, with the progress
/// of the rebuild.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/admin/rebuild", tag = "admin",
    responses((status = 202, body = ProjectionView), (status = 503, body = ErrorBody)),
))]
pub(crate) async fn rebuild(State(app): State<App>) -> Result<(StatusCode, Json<ProjectionView>), ApiError> {
    let unavailable = |why| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why);
    app.projection.rebuild().await.map_err(unavailable)?;
    Ok((StatusCode::ACCEPTED, Json(history::how_far(&app, app.projection.progress().projected()))))
}
