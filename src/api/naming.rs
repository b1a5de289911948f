//! Resolves the session of a request, and finds sessions in the engine.
//!
//! Two harnesses may use the same id, so the engine resolves it for a harness. Answers are cached:
//! an exchange of a known session needs no query.

use axum::http::StatusCode;
use engine::{
    conversation::{Named, SessionView as OpenSession},
    event::SessionId,
    exchange::{Exchange, InjectionId},
    request::{FieldError, names::NAME_BYTES_MAX},
};

use crate::api::{
    App,
    engine_handle::EngineView,
    error::ApiError,
    wire::{
        harness::HarnessView,
        views::{QueueView, SessionView},
    },
};

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
    let (asked, of) = (id.clone(), harness.map(str::to_owned));
    let named = app.engine.read(move |view| view.engine.sessions().named(&asked, of.as_deref()));
    match Box::pin(named).await? {
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
    match find_session(app, id).await? {
        Some(session) => Ok(session),
        None => Err(no_session(app, id).await),
    }
}

/// The open or suspended session with the id `id`, which is resolved.
pub(crate) async fn find_session(app: &App, id: &SessionId) -> Result<Option<SessionView>, ApiError> {
    let id = id.clone();
    app.engine.read(move |view| Some(session_view(&view.engine.sessions().view(&id)?, view))).await
}

/// Every known session: the open ones, then the suspended ones.
pub(crate) async fn all_sessions(app: &App) -> Result<Vec<SessionView>, ApiError> {
    let all = |view: &EngineView<'_>| {
        view.engine.sessions().views().map(|session| session_view(&session, view)).collect()
    };
    app.engine.read(all).await
}

fn session_view(session: &OpenSession<'_>, view: &EngineView<'_>) -> SessionView {
    let (pending, top) = session.injector.pending();
    let wake = session.injector.wake(session.state, view.engine.rules().wake.threshold);
    let queue = QueueView {
        pending,
        top: top.map(|top| top.as_str().to_owned()),
        top_count: top.map_or(0, |top| session.injector.pending_of(top)),
        for_user: session.injector.for_user(),
        wake: wake.as_ref().map(|wake| wake.kind.as_str().to_owned()),
        reason: wake.map(|wake| wake.reason),
        unconfirmed: session.injector.unconfirmed(),
    };
    SessionView {
        id: session.id.to_string(),
        is_open: session.is_open,
        harness: HarnessView::of(session.harness),
        opened_at: session.opened_at.to_string(),
        seen_at: session.last_seen.to_string(),
        state: session.state.as_str().to_owned(),
        queue: Some(queue),
    }
}

/// The session that now runs in the process of `id`; itself when no successor is known.
pub(crate) async fn session_now(app: &App, id: &SessionId) -> Result<SessionId, ApiError> {
    let id = id.clone();
    app.engine.read(move |view| view.engine.sessions().current(&id)).await
}

/// The known session whose id is most similar to `id`.
pub(crate) async fn nearest_session(app: &App, id: &SessionId) -> Result<Option<SessionId>, ApiError> {
    let id = id.clone();
    app.engine.read(move |view| view.engine.sessions().nearest(&id)).await
}

/// The unconfirmed injections of a session, oldest first; none of an unknown one.
pub(crate) async fn unconfirmed(app: &App, id: &SessionId) -> Result<Vec<InjectionId>, ApiError> {
    let id = id.clone();
    let ids = move |view: &EngineView<'_>| {
        view.engine.sessions().view(&id).map(|session| session.injector.unconfirmed_ids())
    };
    Ok(app.engine.read(ids).await?.unwrap_or_default())
}

/// 404 for a session that is neither open nor suspended.
pub(crate) async fn no_session(app: &App, id: &SessionId) -> ApiError {
    let name = id.to_string();
    let has_ended = app.projection.read(move |view| view.knows_session(&name)).await.unwrap_or_default();
    let meant = nearest_session(app, id).await.ok().flatten();
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
