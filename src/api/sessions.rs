//! Views of sessions, and long polls for their queues.

use std::time::Duration;

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use engine::{event::SessionId, request::FieldError};
use serde::Deserialize;

#[cfg(test)]
use crate::api::wire::ErrorBody;
use crate::api::{
    App,
    actor::{Access, Actor},
    error::ApiError,
    extract::{Params, SessionSegment},
    naming::{all_sessions, find_session, known_session, no_session},
    wire::views::{PendingView, SessionList, SessionView},
};

/// Default wait of a long poll, in seconds; below the minute after which idle connections are often
/// cut.
const WAIT_SECONDS_DEFAULT: u64 = 30;
/// Longest a long poll may wait, in seconds.
const WAIT_SECONDS_MAX: u64 = 600;

/// Lists the sessions; to a process of a session, without the queues of others.
#[cfg_attr(test, utoipa::path(get, path = "/v1/sessions", tag = "sessions", responses((status = 200, body = SessionList))))]
pub(crate) async fn list(State(app): State<App>, actor: Actor) -> Result<Json<SessionList>, ApiError> {
    let access = actor.access(&app).await?;
    let sessions = all_sessions(&app).await?;
    let sessions = sessions.into_iter().map(|session| shown(session, &access));
    Ok(Json(SessionList { sessions: sessions.collect() }))
}

/// The part of a session that a requester may see: agents find each other in the list, and what is
/// pending for another one is not theirs.
fn shown(session: SessionView, access: &Access) -> SessionView {
    let queue = session.queue.filter(|_| access.readable().contains(Some(&session.id)));
    SessionView { queue, ..session }
}

/// Shows one session; to a process of a session, without the queue of another one.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/sessions/{id}", tag = "sessions",
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = SessionView), (status = 404, body = ErrorBody)),
))]
pub(crate) async fn get(
    State(app): State<App>,
    SessionSegment(session): SessionSegment,
    actor: Actor,
) -> Result<Json<SessionView>, ApiError> {
    let session = known_session(&app, &session).await?;
    Ok(Json(shown(session, &actor.access(&app).await?)))
}

/// Wait parameters.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitParams {
    /// Such as `30s` or `500ms`; 30 seconds if absent, at most 10 minutes.
    timeout: Option<String>,
    /// `pending`, or `wake` to wait until the queue requests a wake; `pending` if absent.
    r#for: Option<WaitFor>,
}

/// The awaited state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum WaitFor {
    /// The queue has a notification for the agent.
    #[default]
    Pending,
    /// The queue requests an action of the harness.
    Wake,
}

impl WaitFor {
    fn is_met(self, pending: &PendingView) -> bool {
        match self {
            Self::Pending => pending.pending > 0,
            Self::Wake => pending.wake.is_some(),
        }
    }
}

/// Waits until a notification is pending for the session, or requests a wake; the answer has no
/// text.
///
/// Answers at once if that is the case, and 204 on a timeout. A session can be waited for once its
/// first exchange has opened it.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/sessions/{id}/wait", tag = "sessions",
    params(("id" = String, Path, description = "The session"), WaitParams),
    responses(
        (status = 200, body = PendingView), (status = 204),
        (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    ),
))]
pub(crate) async fn wait(
    State(app): State<App>,
    SessionSegment(session): SessionSegment,
    actor: Actor,
    Params(params): Params<WaitParams>,
) -> Result<Response, ApiError> {
    actor.check(&app, &session).await?;
    let _place = app.registry.follow()?;
    let timeout =
        params.timeout.as_deref().map_or(Ok(Duration::from_secs(WAIT_SECONDS_DEFAULT)), read_timeout)?;
    let waited = tokio::select! {
        waited = tokio::time::timeout(timeout, wait_until_met(params.r#for.unwrap_or_default(), &app, session)) => waited,
        () = app.stopped() => return Ok(StatusCode::NO_CONTENT.into_response()),
    };
    Ok(match waited {
        Ok(pending) => Json(pending?).into_response(),
        Err(_) => StatusCode::NO_CONTENT.into_response(),
    })
}

async fn wait_until_met(wanted: WaitFor, app: &App, session: SessionId) -> Result<PendingView, ApiError> {
    // Watched before the query, so that a change in between is seen.
    let mut watcher = app.registry.watch(&session);
    let Some(pending) = pending_now(app, session.clone()).await? else {
        return Err(no_session(app, &session).await);
    };
    if wanted.is_met(&pending) {
        return Ok(pending);
    }
    loop {
        let pending = PendingView::of(&watcher.changed().await.ok_or_else(ApiError::stopping)?);
        if wanted.is_met(&pending) {
            return Ok(pending);
        }
    }
}

/// The current state of the session's queue; `None` when the session is not known.
pub(crate) async fn pending_now(app: &App, session: SessionId) -> Result<Option<PendingView>, ApiError> {
    let found = find_session(app, &session).await?;
    let pending = |found: SessionView| {
        let queue = found.queue?;
        Some(PendingView {
            session: found.id,
            pending: queue.pending,
            top: queue.top,
            for_user: queue.for_user,
            wake: queue.wake,
            reason: queue.reason,
        })
    };
    Ok(found.and_then(pending))
}

/// Parses `timeout`, the wait of a request.
pub(crate) fn read_timeout(text: &str) -> Result<Duration, ApiError> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let duration = digits.parse().ok().and_then(|number: u64| match unit {
        "s" => Some(Duration::from_secs(number)),
        "ms" => Some(Duration::from_millis(number)),
        _ => None,
    });
    duration.filter(|duration| *duration <= Duration::from_secs(WAIT_SECONDS_MAX)).ok_or_else(|| {
        let message = format!("must be a duration such as `30s` or `500ms`, {WAIT_SECONDS_MAX}s at most");
        ApiError::bad(FieldError::new("timeout", message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_a_unit_and_a_limit() {
        let read = |text| read_timeout(text).map_err(|error| error.to_string());
        assert_eq!(read("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(read("0ms"), Ok(Duration::ZERO));
        let message = "timeout: must be a duration such as `30s` or `500ms`, 600s at most";
        for bad in ["30", "s", "-1s", "1h", "601s", ""] {
            assert_eq!(read(bad), Err(message.to_owned()), "{bad}");
        }
    }
}
