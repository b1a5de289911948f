//! The status line of a harness: the number and urgency of pending notifications. It also reports
//! the gauges of the client for the probes.

use axum::{
    body::Body,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

use engine::transcript::Gauges;

#[cfg(test)]
use crate::api::wire::ErrorBody;
use crate::{
    api::{
        App,
        actor::Actor,
        error::ApiError,
        extract::{Segment, read_body},
        naming::{find_session, session_of},
        questions::open_count,
        wire::views::{QueueView, SessionView},
    },
    harness::{kind::Kind, readable},
};

/// Prefix of the numbers; a full circle, which other status lines use to mark new items.
const DOT: char = '\u{25cf}';

/// Takes the status line input of a client.
///
/// Answers 200 with the text to show: the number and urgency of pending notifications, or 204
/// without any. What it states about its limits is kept for the session's next exchange. A process of another
/// session is refused.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/statusline/{harness}", tag = "sessions",
    params(("harness" = String, Path, description = "The harness, by its name in `aside hook NAME`")),
    request_body(content = Object, content_type = "application/json"),
    responses((status = 200, content_type = "text/plain", body = String), (status = 204), (status = 400, body = ErrorBody),
        (status = 403, body = ErrorBody), (status = 404, body = ErrorBody)),
))]
pub(crate) async fn status_line(
    State(app): State<App>,
    Segment(harness): Segment,
    actor: Actor,
    body: Body,
) -> Result<Response, ApiError> {
    let known = Kind::of_word(&harness).and_then(|kind| Some((kind, kind.hooks()?.status_line?)));
    let (kind, read) = known.ok_or_else(|| ApiError::not_found("status line of", &harness))?;
    let body = read_body(&app.rooms.exchanges, body).await?;
    let status = app.rooms.exchanges.work(body.len(), || read(&readable(&body))).await;
    let status = status.map_err(|error| ApiError::unreadable(&error))?;
    let session = session_of(&app, status.session.clone(), Some(kind.caps.name)).await?;
    let found = find_session(&app, &session).await?;
    if found.is_some() {
        actor.check(&app, &session).await?;
    }
    if found.is_some() && status.gauges != Gauges::default() {
        app.registry.note_gauges(&session, status.gauges);
    }
    let folder = found.as_ref().and_then(|found| found.harness.workspace.as_deref());
    let questions = open_count(&app, Some(&session), folder);
    Ok(match found.as_ref().and_then(|found| text(found, questions)) {
        Some(text) => ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// The text for a session: how many notifications have its highest priority, how many more are
/// pending, how many wait for the user's approval, and how many questions for their answer.
fn text(session: &SessionView, questions: usize) -> Option<String> {
    let queue = session.queue.as_ref()?;
    let QueueView { pending, top_count, for_user, .. } = *queue;
    let most = queue.top.as_ref().map(|top| format!("{top_count} {top}"));
    let others = pending.saturating_sub(top_count);
    let others = (others > 0).then(|| format!("{others} more"));
    let for_user = (for_user > 0).then(|| format!("{for_user} for you"));
    let asked = match questions {
        0 => None,
        1 => Some("1 question".to_owned()),
        count => Some(format!("{count} questions")),
    };
    let parts: Vec<String> = most.into_iter().chain(others).chain(for_user).chain(asked).collect();
    (!parts.is_empty()).then(|| format!("aside {DOT} {}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_line_shows_top_priority_and_pending_counts() {
        for (pending, top, top_count, for_user, questions, expected) in [
            (0, None, 0, 0, 0, None),
            (2, Some("high"), 2, 0, 0, Some("aside \u{25cf} 2 high")),
            (7, Some("critical"), 1, 0, 1, Some("aside \u{25cf} 1 critical, 6 more, 1 question")),
            (3, Some("low"), 3, 1, 0, Some("aside \u{25cf} 3 low, 1 for you")),
            (0, None, 0, 2, 0, Some("aside \u{25cf} 2 for you")),
            (0, None, 0, 0, 3, Some("aside \u{25cf} 3 questions")),
        ] {
            let queue = QueueView {
                pending,
                top: top.map(str::to_owned),
                top_count,
                for_user,
                ..QueueView::default()
            };
            let waiting = SessionView { queue: Some(queue), ..SessionView::default() };
            assert_eq!(text(&waiting, questions).as_deref(), expected);
        }
    }
}
