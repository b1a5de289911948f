//! The sessions whose data a request may read, found once a request.
//!
//! A process of a session reads what is addressed to that session, to one that it continues or that
//! continues it, to its subagents, and to sessions that it opened; and what is addressed to none. A
//! process outside of every session, and a client with a token, read everything. Lists leave the
//! rest out, and a look-up by id is refused.

use std::mem;

use axum::http::StatusCode;
use engine::{event::SessionId, session::Readable, sorted::SortedSet};

use crate::api::{App, error::ApiError, requester::Found};

/// What a requester may read.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    found: Found,
    readable: Readable,
}

impl Access {
    /// What a requester may read.
    ///
    /// Errors: the daemon is stopping.
    pub(super) async fn of(app: &App, found: Found) -> Result<Self, ApiError> {
        let named = found.named(app);
        let readable = if named.is_empty() {
            Readable::All
        } else {
            let related = app.engine.read(move |view| view.engine.sessions().related(&named)).await?;
            Readable::Of(with_ended_subagents(app, related).await)
        };
        Ok(Self { found, readable })
    }

    /// The first session that it belongs to; `None` if it may act for any.
    pub(crate) fn own(&self) -> Option<&SessionId> {
        self.found.sessions().first()
    }

    /// The sessions whose data it may read.
    pub(crate) const fn readable(&self) -> &Readable {
        &self.readable
    }

    /// The sessions whose data it may read.
    pub(crate) fn into_readable(self) -> Readable {
        self.readable
    }

    /// Whether it may read the data of `session`.
    pub(crate) fn allows(&self, session: &SessionId) -> bool {
        self.readable.contains(Some(session.as_str()))
    }

    /// Checks that it may read the data of `session`.
    ///
    /// Errors: 403 otherwise.
    pub(crate) fn check(&self, session: &str) -> Result<(), ApiError> {
        if self.readable.contains(Some(session)) { Ok(()) } else { Err(self.refusal(session)) }
    }

    /// Like [`Self::check`], once the history has all records so far: a subagent that has just ended
    /// may not be in it yet, and is known to nobody else.
    ///
    /// Errors: 403, or the daemon is stopping.
    pub(crate) async fn check_again(&mut self, app: &App, session: &str) -> Result<(), ApiError> {
        app.history_caught_up().await;
        *self = Self::of(app, self.found.clone()).await?;
        self.check(session)
    }

    /// The refusal of something that belongs to `session`.
    pub(crate) fn refusal(&self, session: &str) -> ApiError {
        foreign(self.found.sessions(), session)
    }

    /// Whether it may read the data of `session` by now: the session may have become one of the
    /// requester's since this was found. One that is not known may be a subagent that has ended; then
    /// `history` is read, once.
    ///
    /// Errors: the daemon is stopping.
    pub(crate) async fn allows_now(
        &mut self,
        app: &App,
        session: &SessionId,
        history: &mut History,
    ) -> Result<bool, ApiError> {
        let Readable::Of(sessions) = &mut self.readable else { return Ok(true) };
        if sessions.contains(session) {
            return Ok(true);
        }
        let mut named = self.found.sessions_now(app);
        named.extend(self.found.opened(app));
        match is_related(app, &named, session).await? {
            Some(true) => {
                sessions.insert(session.clone());
            }
            None if *history == History::Unread => {
                *history = History::Read;
                app.history_caught_up().await;
                *sessions = with_ended_subagents(app, mem::take(sessions)).await;
            }
            Some(false) | None => {}
        }
        Ok(sessions.contains(session))
    }
}

/// Whether the subagents that have ended were read from the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum History {
    /// Not yet.
    Unread,
    /// For an earlier decision.
    Read,
}

impl Found {
    /// The sessions that it belongs to, and those that processes of its client opened; none if it may
    /// act for any.
    pub(super) fn named(&self, app: &App) -> Vec<SessionId> {
        let mut named = self.sessions().to_vec();
        named.extend(self.opened(app));
        named
    }

    /// The sessions that processes of its client opened.
    fn opened(&self, app: &App) -> Vec<SessionId> {
        match self {
            Self::Below(client) => app.registry.processes().opened_by(client.process),
            Self::Left(_) | Self::AtTerminal(_) | Self::Unknown | Self::WithToken => Vec::new(),
        }
    }

    /// The sessions that it belongs to by now; those that it belonged to if none is known.
    fn sessions_now(&self, app: &App) -> Vec<SessionId> {
        match self {
            Self::Below(client) => {
                let now = app.registry.processes().sessions_of(client.process);
                if now.is_empty() { client.sessions.clone() } else { now }
            }
            Self::Left(_) | Self::AtTerminal(_) | Self::Unknown | Self::WithToken => self.sessions().to_vec(),
        }
    }
}

/// Whether `session` is one of `own` or belongs to one: it continues it, is continued by it, or is a
/// subagent of it. `None` when it is not known.
pub(super) async fn is_related(
    app: &App,
    own: &[SessionId],
    session: &SessionId,
) -> Result<Option<bool>, ApiError> {
    let (own, session) = (own.to_vec(), session.clone());
    app.engine.read(move |view| view.engine.sessions().is_related(&own, &session)).await
}

/// `sessions` and their subagents that have ended, which only the history knows; `sessions` while
/// that cannot be read.
async fn with_ended_subagents(app: &App, sessions: SortedSet<SessionId>) -> SortedSet<SessionId> {
    let known = sessions.clone();
    let read = app.projection.read(move |view| view.subagents_of(&known)).await;
    let mut all = sessions;
    all.extend(read.unwrap_or_default());
    all
}

/// The refusal of a request of a process of `own` for something of `session`.
pub(super) fn foreign(own: &[SessionId], session: &str) -> ApiError {
    let own = own.first().map(ToString::to_string).unwrap_or_default();
    let message = format!(
        "this process belongs to session {own}, and may not act for session {session}; a program that \
         runs a session of its own names its process in `harness.pid`"
    );
    ApiError::new(StatusCode::FORBIDDEN, message)
}
