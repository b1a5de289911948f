//! Answers of agents and users to notifications.

use std::sync::Arc;

use axum::{body::Bytes, extract::State, http::StatusCode};
use engine::{
    conversation::Received,
    event::SessionId,
    notification::{
        NotificationId, Priority,
        repeat::{Action, Response},
    },
    records::Records,
};

#[cfg(test)]
use crate::api::wire::ErrorBody;
use crate::api::{
    App,
    actor::Actor,
    engine_handle::EngineView,
    error::ApiError,
    extract::Segment,
    naming::known_session,
    wire::respond::{self, RespondRequest},
};

/// What the engine knows of a notification that is answered.
#[derive(Debug, Clone, Copy)]
struct Known {
    id: NotificationId,
    received: Received,
    priority: Option<Priority>,
}

/// Answers a notification in every session that has or had it.
///
/// A process of a session answers as its agent, and only what that session received; so does a loop
/// that names its `session`.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/notifications/{id}/respond", tag = "inbox",
    params(("id" = String, Path, description = "The notification, or the beginning of its id as in the text")),
    request_body = respond::RespondBody<'static>,
    responses(
        (status = 204),
        (status = 400, body = ErrorBody),
        (status = 403, body = ErrorBody, description = "An agent dismisses a critical notification, or acts for another session"),
        (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It was not delivered, or cannot be snoozed"),
    ),
))]
pub(crate) async fn respond(
    State(app): State<App>,
    Segment(id): Segment,
    actor: Actor,
    body: Bytes,
) -> Result<StatusCode, ApiError> {
    let request = respond::read(&body, app.now()).map_err(ApiError::bad)?;
    let session = match &request.session {
        Some(named) => {
            known_session(&app, named).await?;
            actor.acts_for(&app, Some(named.clone())).await?
        }
        None => actor.session(&app).await?,
    };
    answer(&app, &id, session, request).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Records an answer: of the agent of `session`, or of the user.
///
/// Errors: 404, 403 or 409, with the state of the notification.
pub(crate) async fn answer(
    app: &App,
    id: &str,
    session: Option<SessionId>,
    request: RespondRequest,
) -> Result<(), ApiError> {
    let (asked, of) = (id.to_owned(), session.clone());
    let known = app.engine.read(move |view: &EngineView<'_>| find(view, &asked, of.as_ref())).await?;
    let known = known.map_err(|several| ambiguous(id, &several))?;
    let known = known.ok_or_else(|| ApiError::not_found("notification that a session has", id))?;
    check(id, &known, session.is_some(), request.action)?;
    let by: Arc<str> = match (&session, request.by) {
        (Some(session), _) => session.as_str().into(),
        (None, by) => by.unwrap_or_else(|| "user".into()),
    };
    let response = Response { action: request.action, by, until: request.until };
    app.append(Records::build(|records| records.response(&known.id, &response))).await
}

/// Errors: the ids of several that begin with `asked`.
fn find(view: &EngineView<'_>, asked: &str, of: Option<&SessionId>) -> Result<Option<Known>, Vec<String>> {
    let sessions = view.engine.sessions();
    let of_sessions = sessions.views().filter(|session| of.is_none_or(|of| of == session.id));
    let mut found: Vec<Known> = Vec::new();
    for session in of_sessions {
        for id in session.injector.ids_that_begin(asked) {
            let received = session.injector.received(&id);
            let priority = session.injector.notification(&id).map(|own| own.priority);
            match found.iter_mut().find(|known| known.id == id) {
                Some(known) if received.is_delivered() => known.received = received,
                Some(_) => {}
                None => found.push(Known { id, received, priority }),
            }
        }
    }
    let exact = found.iter().find(|known| known.id.as_str() == asked).copied();
    match (exact, &found[..]) {
        (Some(exact), _) => Ok(Some(exact)),
        (None, [one]) => Ok(Some(*one)),
        (None, []) => Ok(None),
        (None, several) => Err(several.iter().map(|known| known.id.to_string()).collect()),
    }
}

fn ambiguous(id: &str, several: &[String]) -> ApiError {
    let message = format!("several begin with `{id}`: {}", several.join(", "));
    ApiError::new(StatusCode::CONFLICT, message)
}

/// Errors: why the answer has no effect.
fn check(id: &str, known: &Known, is_agent: bool, action: Action) -> Result<(), ApiError> {
    let refuse = |status, message: String| Err(ApiError::new(status, message));
    let is_critical = known.priority == Some(Priority::Critical);
    match (action, known.received) {
        (Action::Dismiss, _) if is_agent && is_critical => {
            let message = format!("`{id}` is critical: only the user dismisses it; acknowledge it");
            refuse(StatusCode::FORBIDDEN, message)
        }
        (Action::Dismiss, Received::Past) => refuse(
            StatusCode::CONFLICT,
            format!("`{id}` was delivered, and nothing of it is left to dismiss"),
        ),
        (Action::Acknowledge | Action::Investigate, Received::Pending) => {
            refuse(StatusCode::CONFLICT, format!("`{id}` is pending: it was not delivered yet"))
        }
        (Action::Snooze, received) if !received.can_be_snoozed() => {
            let message = match received {
                Received::Kept { .. } => format!("`{id}` was snoozed three times, which is the most"),
                Received::No | Received::Past | Received::Pending => {
                    format!("the text of `{id}` is not kept, so it cannot come again; set a reminder")
                }
            };
            refuse(StatusCode::CONFLICT, message)
        }
        (Action::Acknowledge | Action::Investigate | Action::Dismiss | Action::Snooze, _) => Ok(()),
    }
}
