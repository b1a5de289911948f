//! How the daemon is, and what the API looks like.

use std::time::Duration;

use axum::{Json, extract::State, http::StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    journal::AppendError,
    protocol::{history::ProjectionView, views::StatusView},
    server::{
        App,
        error::{ApiError, ErrorBody},
        history,
        router::openapi,
    },
    time::duration_millis,
};

/// That the daemon is there.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`, or `degraded` while something is wrong that does not keep events from being taken.
    status: &'static str,
    /// What is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    /// How many records of the journal the event loop has yet to handle.
    lag: u64,
    /// How long it has been at its turn, or has not come to those records, in milliseconds; 0 while it waits for something to do.
    held_up_ms: u64,
}

/// Shows how the daemon is.
#[utoipa::path(get, path = "/v1/status", tag = "admin", responses((status = 200, body = StatusView)))]
pub(crate) async fn status(State(app): State<App>) -> Result<Json<StatusView>, ApiError> {
    status_of(&app).await.map(Json)
}

/// How the daemon is; what has to be looked for on the disk is looked for here, not by the event loop.
pub(crate) async fn status_of(app: &App) -> Result<StatusView, ApiError> {
    let mut status = app.engine.status().await?;
    status.config = app.config.view();
    let journal = app.journal.clone();
    let read = tokio::task::spawn_blocking(move || {
        // Sizes that cannot be read are no reason not to tell the rest.
        let stored = journal.stored().unwrap_or_default();
        let first = journal.read_at(stored.first).ok().flatten();
        (stored, first)
    });
    let (stored, first) = read.await.map_err(|_| ApiError::stopping())?;
    status.journal.first = stored.first.0;
    status.journal.first_at = first.map(|record| record.time.to_string());
    status.journal.segments = stored.segments;
    status.journal.bytes = stored.bytes;
    status.journal.sealed = stored.sealed;
    status.journal.sealed_bytes = stored.sealed_bytes;
    status.journal.unsealed_bytes = stored.unsealed_bytes;
    Ok(status)
}

/// How long the event loop may be at one turn before it counts as stuck; a turn takes milliseconds.
const HELD_UP_MAX: Duration = Duration::from_secs(5);

/// Says that the daemon is there, its event loop turns, and its journal takes events. Asks neither the loop nor the disk.
#[utoipa::path(
    get, path = "/healthz", tag = "admin",
    responses((status = 200, body = Health), (status = 503, body = ErrorBody), (status = 507, body = ErrorBody)),
)]
pub(crate) async fn healthz(State(app): State<App>) -> Result<Json<Health>, ApiError> {
    let lag = app.journal.lag();
    let held_up = app.engine.pulse().held_up(lag > 0);
    if held_up >= HELD_UP_MAX {
        let message = format!("the event loop has not turned for {} seconds", held_up.as_secs());
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

/// Makes the projection again from the journal.
///
/// Answers once the old one is gone; the history is answered all the while, and says how far it is.
#[utoipa::path(
    post, path = "/v1/admin/rebuild", tag = "admin",
    responses((status = 202, body = ProjectionView), (status = 503, body = ErrorBody)),
)]
pub(crate) async fn rebuild(State(app): State<App>) -> Result<(StatusCode, Json<ProjectionView>), ApiError> {
    let unavailable = |why| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why);
    app.projection.rebuild().await.map_err(unavailable)?;
    Ok((StatusCode::ACCEPTED, Json(history::how_far(&app, app.projection.progress().projected()))))
}

/// The API as an OpenAPI document.
#[utoipa::path(
    get, path = "/v1/openapi.json", tag = "admin",
    responses((status = 200, content_type = "application/json", body = Object)),
)]
pub(crate) async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(openapi())
}
