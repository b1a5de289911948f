//! The process that makes a request, the sessions that it may act for, and those whose data it may
//! read.
//!
//! A process below a session's client acts for that session only: it reads, drains, watches and
//! asks in no other's name. A process outside of every session, such as a user's command or a
//! program that supervises agents, acts for any. All of them have one uid, so this keeps agents
//! apart by mistake or by an injected prompt; it is no boundary against a program that hides its
//! ancestors and its environment (docs/notify.md).
//!
//! A process of a session reads what is addressed to that session, to one that it continues or that
//! continues it, to its subagents, and to sessions that it opened; and what is addressed to none. A
//! process outside of every session, and a client with a token, read everything. Lists leave the
//! rest out, and a look-up by id is refused.

use std::{convert::Infallible, mem, sync::Arc};

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};
use engine::{event::SessionId, session::Readable, sorted::SortedSet};

use crate::{
    api::{
        App,
        auth::Route,
        error::ApiError,
        naming::{find_session, session_now},
        requester::{Membership, Requester},
    },
    harness::process::Process,
    history::Looked,
};

/// The process that makes a request, as far as what it may do is concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Actor(Requester);

impl FromRequestParts<App> for Actor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        Requester::from_request_parts(parts, app).await.map(Self)
    }
}

impl Actor {
    /// The process `peer` at the other end of the Unix socket.
    pub(crate) const fn local(peer: Option<u32>) -> Self {
        Self(Requester::local(peer))
    }

    /// The session that it belongs to; `None` if it may act for any.
    ///
    /// Errors: the daemon is stopping.
    pub(crate) async fn session(self, app: &App) -> Result<Option<SessionId>, ApiError> {
        match self.0.find(app).await?.sessions().first() {
            Some(first) => session_now(app, first).await.map(Some),
            None => Ok(None),
        }
    }

    /// The session that a request is for: `named`, else the actor's own one.
    ///
    /// Errors: 403 if the actor may not act for `named`.
    pub(crate) async fn acts_for(
        self,
        app: &App,
        named: Option<SessionId>,
    ) -> Result<Option<SessionId>, ApiError> {
        match named {
            Some(named) => self.check(app, &named).await.map(|()| Some(named)),
            None => self.session(app).await,
        }
    }

    /// What it may read.
    ///
    /// Errors: the daemon is stopping.
    pub(crate) async fn access(self, app: &App) -> Result<Access, ApiError> {
        Access::find(app, self.0.find(app).await?).await
    }

    /// Checks that it may act for `session`: its own one, a subagent of it, or one that it opened.
    ///
    /// Errors: 403 otherwise.
    pub(crate) async fn check(self, app: &App, session: &SessionId) -> Result<(), ApiError> {
        let found = self.0.find(app).await?;
        let named = found.named(app);
        if named.is_empty() || named.contains(session) {
            return Ok(());
        }
        match is_related(app, &named, session).await? {
            Some(true) => Ok(()),
            Some(false) => Err(foreign(found.sessions(), session.as_str())),
            // It may be a subagent that has ended.
            None => {
                app.history_caught_up().await;
                Access::find(app, found).await?.check(session.as_str())
            }
        }
    }

    /// Like [`Self::check`], of sessions that have not ended, without those that it opened.
    pub(crate) async fn check_own(self, app: &App, session: &SessionId) -> Result<(), ApiError> {
        let found = self.0.find(app).await?;
        let is_allowed = found.sessions().is_empty() || is_own(app, found.sessions(), session).await?;
        if is_allowed { Ok(()) } else { Err(foreign(found.sessions(), session.as_str())) }
    }

    /// Checks that it may make a call of a harness in the name of `session`, which it says to run
    /// in `client`.
    ///
    /// Shape: a process of a session may start another one: of a session that is not known, and a
    /// nested client that of a session which is suspended or last ran in `client`.
    ///
    /// Errors: 403 if the session is open and runs elsewhere, or is suspended or has ended and no
    /// client is named.
    pub(crate) async fn check_call(
        self,
        app: &App,
        session: &SessionId,
        client: Option<Process>,
    ) -> Result<(), ApiError> {
        let processes = app.registry.processes();
        if self.0.route == Route::Tcp || processes.is_empty() {
            return Ok(());
        }
        Box::pin(self.check_known_call(app, session, client)).await
    }

    /// Checks a call while processes of sessions are known.
    async fn check_known_call(
        self,
        app: &App,
        session: &SessionId,
        client: Option<Process>,
    ) -> Result<(), ApiError> {
        let processes = app.registry.processes();
        let near = self.0.nearest_client(app);
        if near.as_ref().is_some_and(|near| near.sessions.contains(session)) {
            return Ok(());
        }
        let found = match near {
            Some(near) => Membership::Below(near),
            // Reading an environment takes as long as the rest of a hook, and is rarely needed.
            None if processes.runs(session) => self.0.find(app).await?,
            None => return Ok(()),
        };
        let own = found.sessions();
        if own.is_empty() || found.has_opened(app, session) || is_own(app, own, session).await? {
            return Ok(());
        }
        let Some(known) = find_session(app, session).await? else {
            if let (Membership::Below(near), None) = (&found, client) {
                let client = near.process;
                check_new(app, found, session).await?;
                processes.note_opened(client, session);
            }
            return Ok(());
        };
        let is_again = |client: Process| {
            let harness = &known.harness;
            let is_same = harness.pid == Some(client.pid) && harness.pid_started == Some(client.started);
            is_same && !processes.runs(session)
        };
        let is_allowed = client.is_some_and(|client| !known.is_open || is_again(client));
        if is_allowed { Ok(()) } else { Err(foreign(own, session.as_str())) }
    }

    /// The author of an answer, for a record.
    ///
    /// Shape: `user` only for a process at a terminal that belongs to no session.
    pub(crate) async fn author(self, app: &App) -> Result<String, ApiError> {
        let found = self.0.find(app).await?;
        if let Some(first) = found.sessions().first() {
            return Ok(format!("session {}", session_now(app, first).await?));
        }
        Ok(match found {
            Membership::AtTerminal(_) => "user",
            Membership::WithToken => "token",
            Membership::Below(_) | Membership::Left(_) | Membership::Unknown => "unknown process",
        }
        .to_owned())
    }

    /// Its name in tables of which it has a share: its session, its terminal, or the others together.
    pub(crate) async fn share(self, app: &App) -> Result<Arc<str>, ApiError> {
        let found = self.0.find(app).await?;
        Ok(match (found.sessions().first(), &found) {
            (Some(session), _) => format!("session {session}").into(),
            (None, Membership::AtTerminal(terminal)) => format!("terminal {terminal}").into(),
            (None, Membership::WithToken) => "a client over TCP".into(),
            (None, Membership::Below(_) | Membership::Left(_) | Membership::Unknown) => {
                "a program without a session".into()
            }
        })
    }
}

impl Membership {
    /// Whether a process of its client opened `session`.
    fn has_opened(&self, app: &App, session: &SessionId) -> bool {
        self.client().is_some_and(|client| app.registry.processes().has_opened(client.process, session))
    }
}

/// Checks that `session`, which is not known, has not ended as one of others: who opens it reads its
/// history.
///
/// Errors: 403 otherwise; the history cannot be read.
async fn check_new(app: &App, found: Membership, session: &SessionId) -> Result<(), ApiError> {
    app.history_caught_up().await;
    let id = session.clone();
    let read = app.projection.read(move |view| view.knows_session(id.as_str())).await;
    let has_ended = read?;
    if has_ended { Access::find(app, found).await?.check(session.as_str()) } else { Ok(()) }
}

/// Whether `session` is one of `own`, a continuation of one, or a subagent of one.
async fn is_own(app: &App, own: &[SessionId], session: &SessionId) -> Result<bool, ApiError> {
    Ok(own.contains(session) || is_related(app, own, session).await? == Some(true))
}

/// What a requester may read.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    found: Membership,
    readable: Readable,
}

impl Access {
    /// What a requester may read.
    ///
    /// Errors: the daemon is stopping.
    async fn find(app: &App, found: Membership) -> Result<Self, ApiError> {
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
        *self = Self::find(app, self.found.clone()).await?;
        self.check(session)
    }

    /// Checks that the notification `id`, if the history has it, is readable.
    ///
    /// Errors: 403 if it is not.
    pub(crate) async fn check_notification(&self, app: &App, id: &str) -> Result<(), ApiError> {
        if *self.readable() == Readable::All {
            return Ok(());
        }
        let (id, readable) = (id.to_owned(), self.readable().clone());
        let read = app.projection.read(move |view| view.notification(&id, &readable)).await;
        match read? {
            Some(Looked::Withheld { session }) => Err(self.refusal(&session)),
            Some(Looked::Found(_)) | None => Ok(()),
        }
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

impl Membership {
    /// The sessions that it belongs to, and those that processes of its client opened; none if it may
    /// act for any.
    pub(super) fn named(&self, app: &App) -> Vec<SessionId> {
        let mut named = self.sessions().to_vec();
        named.extend(self.opened(app));
        named
    }

    /// The sessions that processes of its client opened.
    fn opened(&self, app: &App) -> Vec<SessionId> {
        self.client().map_or_else(Vec::new, |client| app.registry.processes().opened_by(client.process))
    }

    /// The sessions that it belongs to by now; those that it belonged to if none is known.
    fn sessions_now(&self, app: &App) -> Vec<SessionId> {
        let now = self.client().map(|client| app.registry.processes().sessions_of(client.process));
        now.filter(|now| !now.is_empty()).unwrap_or_else(|| self.sessions().to_vec())
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
