//! Which session a request is about.
//!
//! Two harnesses may use one id, so the engine is asked which session a harness means by it. What it said is remembered: an
//! exchange of a session that is known asks nobody.

use std::sync::Arc;

use axum::http::StatusCode;
use dashmap::DashMap;

use crate::{
    engine::Named,
    event::SessionId,
    exchange::Exchange,
    protocol::{FieldError, event::NAME_BYTES_MAX},
    server::{App, error::ApiError},
};

/// Most answers that are remembered: twice the sessions that can be open. Beyond it all are forgotten.
const NAMES_MAX: usize = 20_000;

/// What harnesses call their sessions, by that id: the harness that asked last, if it said who it is, and the session.
///
/// Shape: one answer an id, so that whoever shares one with another asks the engine each time.
#[derive(Debug, Default)]
pub(crate) struct Names(DashMap<SessionId, (Option<Arc<str>>, SessionId)>);

impl Names {
    /// Forgets what is known of an id, as its session has ended or is another harness's.
    pub(crate) fn forget(&self, id: &SessionId) {
        self.0.remove(id);
    }

    fn get(&self, id: &SessionId, harness: Option<&str>) -> Option<SessionId> {
        let known = self.0.get(id)?;
        (known.0.as_deref() == harness).then(|| known.1.clone())
    }

    fn set(&self, id: SessionId, harness: Option<&str>, session: SessionId) {
        if self.0.len() >= NAMES_MAX {
            self.0.clear();
        }
        self.0.insert(id, (harness.map(Into::into), session));
    }
}

/// The session that `harness`, if it is said, calls `id`.
///
/// Errors: 409 when several harnesses have a session of this id and it is not said which, or when a name for one more is too
/// long.
pub(crate) async fn session_of(
    app: &App,
    id: SessionId,
    harness: Option<&str>,
) -> Result<SessionId, ApiError> {
    let names = app.registry.names();
    if let Some(known) = names.get(&id, harness) {
        return Ok(known);
    }
    match app.engine.named(id.clone(), harness.map(Into::into)).await? {
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
                format!("several harnesses have a session `{id}`: say which, {}", names.join(" or "));
            Err(ApiError::new(StatusCode::CONFLICT, message))
        }
    }
}

/// Has an exchange name its session, and those that it names besides, as they are called here.
///
/// Errors: as [`session_of`]; 400 when the session's parent turns out to be itself, under its other name.
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
