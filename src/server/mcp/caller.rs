//! Whose call it is: the session, which no client but one says (docs/design/mcp.md, "Whose session").

use std::sync::Arc;

use axum::http::HeaderMap;

use crate::{
    event::SessionId,
    harness::{header, header_text},
    protocol::{FieldError, views::SessionView},
    server::{
        App,
        error::ApiError,
        extract::{self, read_session},
        naming::session_of,
        processes,
    },
};

/// Where Codex names its conversation, in a call's `_meta`.
pub(super) const THREAD: &str = "threadId";
/// Most sessions that an error names.
const NAMED_MAX: usize = 5;

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    peer: Option<u32>,
    /// The folder in which it works.
    pub(super) folder: Option<Arc<str>>,
    /// The session that the client's variable names.
    variable: Option<SessionId>,
}

/// One call of a tool.
pub(super) struct Called<'c> {
    pub(super) app: &'c App,
    pub(super) caller: &'c Caller,
    /// The conversation that the call names.
    pub(super) thread: Option<String>,
    /// Names the message that carries what the call gives.
    pub(super) carrier: String,
    /// An object of JSON.
    pub(super) arguments: String,
}

impl Caller {
    /// The process `peer`, which sent these headers.
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
    /// Errors: the one it names is not known, or none can be found out.
    pub(super) async fn session(&self, named: Option<SessionId>) -> Result<SessionId, ApiError> {
        if let Some(named) = named {
            let known = self.open(&named).await?;
            return known.ok_or_else(|| ApiError::not_found("open session", named.as_str()));
        }
        if let Some(thread) = self.thread.as_deref().and_then(|thread| read_session(thread).ok())
            && let Some(session) = self.open(&thread).await?
        {
            return Ok(session);
        }
        let variable = match &self.caller.variable {
            Some(variable) => self.open(variable).await?,
            None => None,
        };
        let mut near = Vec::new();
        for session in
            self.caller.peer.map(|peer| processes::sessions_of_process(self.app, peer)).unwrap_or_default()
        {
            near.extend(self.open(&session).await?);
        }
        near.dedup();
        match (near.as_slice(), variable) {
            ([session], _) => return Ok(session.clone()),
            (near, Some(variable)) if near.is_empty() || near.contains(&variable) => return Ok(variable),
            _ => {}
        }
        let open = self.app.engine.sessions().await?;
        let is_here = |session: &&SessionView| {
            let folder = session.harness.workspace.as_deref();
            session.is_open && session.harness.parent.is_none() && folder == self.caller.folder.as_deref()
        };
        let mut here = open.iter().filter(is_here);
        match (here.next(), here.next()) {
            (Some(session), None) if near.is_empty() => Ok(SessionId::new(&session.id)),
            _ => Err(ApiError::bad(FieldError::new("session", missing(&open, &self.caller.folder)))),
        }
    }

    /// The open session that goes on where `id` was.
    async fn open(&self, id: &SessionId) -> Result<Option<SessionId>, ApiError> {
        // One that several harnesses have is not said by its id alone.
        let Ok(session) = session_of(self.app, id.clone(), None).await else { return Ok(None) };
        let session = self.app.engine.session_now(session).await?;
        let known = self.app.engine.session(session.clone()).await?;
        Ok(known.filter(|known| known.is_open).map(|_| session))
    }
}

fn missing(sessions: &[SessionView], folder: &Option<Arc<str>>) -> String {
    let is_open = |session: &&SessionView| session.is_open && session.harness.parent.is_none();
    let mut open: Vec<&SessionView> = sessions.iter().filter(is_open).collect();
    // Those of the caller's folder first.
    open.sort_by_key(|session| session.harness.workspace.as_deref() != folder.as_deref());
    let names: Vec<String> = open.iter().take(NAMED_MAX).map(|session| format!("`{}`", session.id)).collect();
    let which = if names.is_empty() { "none is open".to_owned() } else { names.join(", ") };
    format!("is missing, and nothing says which session this is: {which}")
}
