//! The workspaces with files of their own, and the decision of their user about them.

use axum::{
    Json,
    body::Body,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};

use engine::{event::Event, notification::Level, sink::Notice};
use journal::time::Timestamp;

#[cfg(test)]
use crate::api::wire::{ErrorBody, views::RefusedReloadView};
use crate::api::{
    App,
    actor::Actor,
    error::ApiError,
    extract::read_body,
    reload::refused,
    wire::trust::{TrustRequest, WorkspaceView, WorkspacesView, command},
};
use crate::config::text::sha256_hex;

/// Lists the workspaces that are trusted, or wait for their user's decision.
#[cfg_attr(test, utoipa::path(get, path = "/v1/trust", tag = "admin", responses((status = 200, body = WorkspacesView))))]
pub(crate) async fn list(State(app): State<App>) -> Json<WorkspacesView> {
    Json(WorkspacesView { workspaces: app.config.state().workspaces.to_vec() })
}

/// Trusts the files of a workspace, or ends the trust in them.
///
/// Answers once the rules are in the journal. Files with another hash than the given one are not
/// trusted. A process of a session is refused: it acts for its agent, and its user decides.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/trust", tag = "admin", request_body = TrustRequest,
    responses(
        (status = 200, body = WorkspacesView), (status = 400, body = ErrorBody),
        (status = 403, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 422, body = RefusedReloadView), (status = 507, body = ErrorBody),
    ),
))]
pub(crate) async fn decide(State(app): State<App>, actor: Actor, body: Body) -> Result<Response, ApiError> {
    let body = read_body(&app.rooms.exchanges, body).await?;
    let request = TrustRequest::read(&body).map_err(ApiError::bad)?;
    if let Some(session) = actor.session(&app).await? {
        let words = if request.hash.is_some() { "trust" } else { "trust --revoke" };
        let command = command(words, &request.folder);
        let message = format!(
            "this process belongs to session {session}, and its user decides what is trusted: {command}"
        );
        return Err(ApiError::new(StatusCode::FORBIDDEN, message));
    }
    match app.config.trust(request).await? {
        Ok(()) => Ok(list(State(app)).await.into_response()),
        Err(refusal) => refused(refusal),
    }
}

/// The context of a notice that asks.
const CONTEXT: &str = "trust";
/// Digits of the hash in its id.
const ID_DIGITS: usize = 16;

/// The event of a notice that asks the user about a workspace, whose `trouble` is this sentence.
///
/// Shape: its id is that of the content, so that each content is asked about once.
pub fn question_about(one: &WorkspaceView, trouble: &str, now: Timestamp) -> Event {
    let id = sha256_hex(format!("{}\n{}\n{}", one.folder, one.hash, one.state).as_bytes());
    let id = format!("trust-{}", id.get(..ID_DIGITS).expect("64 digits"));
    let notice = Notice {
        level: Level::Warn,
        context: CONTEXT.into(),
        workspace: Some(one.folder.clone()),
        ..Notice::new(&id, &format!("{trouble}: {}", one.remedy()), now)
    };
    notice.event()
}
