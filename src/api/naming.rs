//! Resolves the session of a request.
//!
//! Two harnesses may use the same id, so the engine resolves it for a harness. Answers are cached:
//! an exchange of a known session needs no query.

use axum::http::StatusCode;
use engine::{
    conversation::Named,
    event::SessionId,
    exchange::Exchange,
    request::{FieldError, names::NAME_BYTES_MAX},
};

use crate::api::{App, error::ApiError, wire::views::SessionView};

/// The session with the id `id`, within `harness` if given.
///
/// Errors: 409 when several harnesses have a session of this id and none is given, or when the
/// resolved name is too long.
pub(crate) async fn session_of(
    app: &App,
    id: SessionId,
    harness: Option<&str>,
) -> Result<SessionId, ApiError> {
    let names = app.registry.names();
    if let Some(known) = names.get(&id, harness) {
        return Ok(known);
    }
    match Box::pin(app.engine.named(id.clone(), harness.map(Into::into))).await? {
        Named::One(session) if session.as_str().len() > NAME_BYTES_MAX && session != id => {
            let message = format!("`{id}` is a session of another harness; give yours another id");
            Err(ApiError::new(StatusCode::CONFLICT, message))
        }
        Named::One(session) => {
            names.set(id, harness, session.clone());
            Ok(session)
        }
        Named::Several(sessions) => {
            let names: Vec<String> = sessions.iter().map(|session| format!("`{session}`")).collect();
            let message =
                format!("several harnesses have a session `{id}`: use one of {}", names.join(" or "));
            Err(ApiError::new(StatusCode::CONFLICT, message))
        }
    }
}

/// The open or suspended session with the id `id`, which is resolved.
///
/// Errors: 404 with the nearest known id, or with the fact that the session has ended.
pub(crate) async fn known_session(app: &App, id: &SessionId) -> Result<SessionView, ApiError> {
    match app.engine.session(id.clone()).await? {
        Some(session) => Ok(session),
        None => Err(no_session(app, id).await),
    }
}

/// 404 for a session that is neither open nor suspended.
pub(crate) async fn no_session(app: &App, id: &SessionId) -> ApiError {
    let name = id.to_string();
    let has_ended = app.projection.read(move |view| view.knows_session(&name)).await.unwrap_or_default();
    let meant = app.engine.nearest(id.clone()).await.ok().flatten();
    let hint = match meant {
        _ if has_ended => " any more: it has ended, and its next exchange opens it again".to_owned(),
        Some(meant) => format!("; did you mean `{meant}`?"),
        None => "; its first exchange opens it".to_owned(),
    };
    ApiError::new(StatusCode::NOT_FOUND, format!("there is no session `{id}`{hint}"))
}

/// Resolves the session of an exchange and the further sessions in it.
///
/// Errors: as [`session_of`]; 400 when a session resolves to its own parent.
pub(crate) async fn name_sessions(app: &App, exchange: &mut Exchange) -> Result<(), ApiError> {
    let harness = exchange.harness.name.clone();
    for id in exchange.sessions_mut() {
        *id = session_of(app, id.clone(), harness.as_deref()).await?;
    }
    if exchange.harness.parent.as_ref() == Some(&exchange.session) {
        return Err(ApiError::bad(FieldError::new("harness.parent", "is the session itself")));
    }
    Ok(())
}
