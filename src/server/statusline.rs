//! The status line of a harness: how many notifications wait, and a warning when its context becomes full.

use axum::{
    body::Body,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::{
    harness::{caps::CLAUDE_CODE, claude::statusline::StatusLine},
    publisher::Records,
    server::{
        App,
        error::{ApiError, ErrorBody},
        extract::read_body,
        naming::session_of,
    },
};

/// Takes what Claude Code tells its status line.
///
/// Answers 200 with the text to show, such as `aside: 3`, or 204 when nothing waits. Publishes a `budget.token.warning` when the
/// context has become nearly full since the status line was drawn before.
#[utoipa::path(
    post, path = "/v1/statusline/claude", tag = "sessions",
    request_body(content = Object, content_type = "application/json"),
    responses((status = 200, content_type = "text/plain", body = String), (status = 204), (status = 400, body = ErrorBody)),
)]
pub(crate) async fn claude(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let body = read_body(&app.rooms.exchanges, body).await?;
    let status = StatusLine::parse(&body).map_err(|error| ApiError::unreadable(&error))?;
    let session = session_of(&app, status.session(), Some(CLAUDE_CODE.name)).await?;
    let found = app.engine.session(session.clone()).await?;
    if let (Some(is_full), Some(_)) = (status.is_nearly_full(), &found)
        && app.registry.note_context(&session, is_full)
        && let Some(event) = status.warning(session.clone(), app.now())
    {
        app.append(Records::of(|records| records.own_event(&event))).await?;
    }
    let count = found.map_or(0, |found| found.pending.saturating_add(found.for_user));
    if count == 0 {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], format!("aside: {count}")).into_response())
}
