//! Identifies the session of a call. Only one client sends the session's id (docs/design/mcp.md,
//! "Whose session").

use std::sync::Arc;

use axum::http::HeaderMap;
use engine::{event::SessionId, request::FieldError};
use hook::harness::header;

use crate::{
    api::{
        App,
        actor::Actor,
        engine_handle::EngineView,
        error::ApiError,
        extract::{self, read_session},
        naming::{all_sessions, session_of},
        requester::Requester,
        wire::views::SessionView,
    },
    harness::header_text,
};

/// Key of Codex's conversation id in a call's `_meta`.
pub(super) const THREAD: &str = "threadId";
/// Most sessions that an error lists.
const NAMED_MAX: usize = 5;

/// The process at the other end of a connection.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    peer: Option<u32>,
    /// Its working folder.
    pub(super) folder: Option<Arc<str>>,
    /// The session in the client's environment variable.
    variable: Option<SessionId>,
}

/// One call of a tool.
pub(super) struct Called<'c> {
    pub(super) app: &'c App,
    pub(super) caller: &'c Caller,
    /// The conversation id in the call.
    pub(super) thread: Option<String>,
    /// Identifies the message that carries the result.
    pub(super) carrier: String,
    /// A JSON object.
    pub(super) arguments: String,
}

impl Caller {
    /// The process `peer`, with its request headers.
    pub(super) fn new(peer: Option<u32>, headers: &HeaderMap) -> Self {
        let value = |name| extract::header(headers, name).and_then(header_text);
        Self {
            peer,
            folder: value(header::CWD).map(Into::into),
            variable: value(header::SESSION).and_then(|id| read_session(&id).ok()),
        }
    }
}

impl Called<'_> {
    /// The session that makes the call, or the one that it names.
    ///
    /// Errors: the named session is unknown, or the caller's session cannot be determined.
    pub(super) async fn session(&self, named: Option<SessionId>) -> Result<SessionId, ApiError> {
        if let Some(named) = named {
            let known = self.open(&named).await?;
            let known = known.ok_or_else(|| ApiError::not_found("open session", named.as_str()))?;
            return self.own(known).await;
        }
        if let Some(thread) = self.thread.as_deref().and_then(|thread| read_session(thread).ok())
            && let Some(session) = self.open(&thread).await?
        {
            return self.own(session).await;
        }
        let variable = match &self.caller.variable {
            Some(variable) => self.open(variable).await?,
            None => None,
        };
        let mut near = Vec::new();
        for session in Requester::local(self.caller.peer).find(self.app).await?.sessions() {
            near.extend(self.open(session).await?);
        }
        near.dedup();
        match (near.as_slice(), variable) {
            ([session], _) => return Ok(session.clone()),
            (near, Some(variable)) if near.is_empty() || near.contains(&variable) => {
                return self.own(variable).await;
            }
            _ => {}
        }
        let open = all_sessions(self.app).await?;
        let is_here = |session: &&SessionView| {
            let folder = session.harness.workspace.as_deref();
            session.is_open && session.harness.parent.is_none() && folder == self.caller.folder.as_deref()
        };
        let mut here = open.iter().filter(is_here);
        match (here.next(), here.next()) {
            (Some(session), None) if near.is_empty() => self.own(SessionId::new(&session.id)).await,
            _ => Err(ApiError::bad(FieldError::new("session", missing(&open, &self.caller.folder)))),
        }
    }

    /// `session`, if the caller's process belongs to it or to none.
    async fn own(&self, session: SessionId) -> Result<SessionId, ApiError> {
        self.actor().check_own(self.app, &session).await.map(|()| session)
    }

    /// The calling process.
    pub(super) fn actor(&self) -> Actor {
        Actor::local(self.caller.peer)
    }

    /// The open session that continues `id`.
    async fn open(&self, id: &SessionId) -> Result<Option<SessionId>, ApiError> {
        // An id that several harnesses use does not identify one session.
        let Ok(session) = session_of(self.app, id.clone(), None).await else { return Ok(None) };
        let continuation = move |view: &EngineView<'_>| {
            let sessions = view.engine.sessions();
            Some(sessions.current(&session)).filter(|session| sessions.is_open(session))
        };
        self.app.engine.read(continuation).await
    }
}

fn missing(sessions: &[SessionView], folder: &Option<Arc<str>>) -> String {
    let is_open = |session: &&SessionView| session.is_open && session.harness.parent.is_none();
    let mut open: Vec<&SessionView> = sessions.iter().filter(is_open).collect();
    // Sessions in the caller's folder first.
    open.sort_by_key(|session| session.harness.workspace.as_deref() != folder.as_deref());
    let names: Vec<String> = open.iter().take(NAMED_MAX).map(|session| format!("`{}`", session.id)).collect();
    let which = if names.is_empty() { "none is open".to_owned() } else { names.join(", ") };
    format!("is missing, and the session cannot be determined: {which}")
}
