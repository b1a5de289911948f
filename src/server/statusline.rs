//! The status line of a harness: how many notifications wait, and a warning when its context becomes full.

use axum::{
    body::Body,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::{
    harness::kind::Kind,
    server::{
        App,
        error::{ApiError, ErrorBody},
        exchange::records_of,
        extract::{Segment, read_body},
        naming::session_of,
    },
};

/// Takes what a client tells its status line.
///
/// Answers 200 with the text to show, such as `aside: 3`, or 204 when nothing waits. Publishes a `budget.token.warning` when the
/// context has become nearly full since the status line was drawn before.
#[utoipa::path(
    post, path = "/v1/statusline/{harness}", tag = "sessions",
    params(("harness" = String, Path, description = "The harness, such as `claude`")),
    request_body(content = Object, content_type = "application/json"),
    responses((status = 200, content_type = "text/plain", body = String), (status = 204), (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody)),
)]
pub(crate) async fn status_line(
    State(app): State<App>,
    Segment(harness): Segment,
    body: Body,
) -> Result<Response, ApiError> {
    let kind = Kind::of_word(&harness).ok_or_else(|| ApiError::not_found("harness", &harness))?;
    let body = read_body(&app.rooms.exchanges, body).await?;
    let status = (kind.status_line)(&body).map_err(|error| ApiError::unreadable(&error))?;
    let session = session_of(&app, status.session.clone(), Some(kind.caps.name)).await?;
    let found = app.engine.session(session.clone()).await?;
    if let (Some(is_full), Some(_)) = (status.is_nearly_full(), &found)
        && app.registry.note_context(&session, is_full)
        && let Some(event) = status.warning(kind.caps.name, session.clone(), app.now())
    {
        app.append(records_of(std::iter::once(event.as_ref()))?).await?;
    }
    let count = found.map_or(0, |found| found.pending.saturating_add(found.for_user));
    if count == 0 {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], format!("aside: {count}")).into_response())
}
