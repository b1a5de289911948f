//! The process that makes a request, and the sessions that it may act for.
//!
//! A process below a session's client acts for that session only: it reads, drains, watches and
//! asks in no other's name. A process outside of every session, such as a user's command or a
//! program that supervises agents, acts for any. All of them have one uid, so this keeps agents
//! apart by mistake or by an injected prompt; it is no boundary against a program that hides its
//! ancestors and its environment (docs/notify.md).

use std::{convert::Infallible, num::NonZeroI32, sync::Arc};

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};

use crate::{
    event::SessionId,
    harness::{header, kind::Kind, process::Process, table::KINDS},
    server::{
        App,
        auth::{PeerPid, Route},
        error::ApiError,
        extract::read_session,
        naming::session_of,
        processes::{self, Client},
    },
    source::process::{stat, variable},
};

/// Most parents of a subagent that are searched for the actor's session.
const PARENTS_MAX: usize = 8;

/// The origin of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Actor {
    route: Route,
    peer: Option<u32>,
}

/// What is known about an [`Actor`].
#[derive(Debug, Clone, PartialEq, Eq)]
enum Who {
    /// It runs below a client.
    Below(Client),
    /// It has left the process tree of this session's client, and has its environment.
    Left(SessionId),
    /// It belongs to no session and has a terminal.
    AtTerminal,
    /// It belongs to no session that is known, and has no terminal.
    Unknown,
    /// It has a token, over TCP.
    WithToken,
}

impl FromRequestParts<App> for Actor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        let route = Route::from_request_parts(parts, app).await?;
        let PeerPid(peer) = PeerPid::from_request_parts(parts, app).await?;
        Ok(Self { route, peer })
    }
}

impl Actor {
    /// The process `peer` at the other end of the Unix socket.
    pub(crate) fn local(peer: Option<u32>) -> Self {
        Self { route: Route::Unix, peer }
    }

    /// The session that it belongs to; `None` if it may act for any.
    ///
    /// Errors: the daemon is stopping.
    pub(crate) async fn session(self, app: &App) -> Result<Option<SessionId>, ApiError> {
        let own = self.who(app).await?.sessions();
        match own.into_iter().next() {
            Some(first) => app.engine.session_now(first).await.map(Some),
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

    /// Checks that it may act for `session`: its own one, a subagent of it, or one that it opened.
    ///
    /// Errors: 403 otherwise.
    pub(crate) async fn check(self, app: &App, session: &SessionId) -> Result<(), ApiError> {
        let who = self.who(app).await?;
        if who.has_opened(app, session) { Ok(()) } else { check_own(app, &who.sessions(), session).await }
    }

    /// Like [`Self::check`], without the sessions that it opened.
    pub(crate) async fn check_own(self, app: &App, session: &SessionId) -> Result<(), ApiError> {
        check_own(app, &self.who(app).await?.sessions(), session).await
    }

    /// Checks that it may make a call of a harness in the name of `session`, which it says to run
    /// in `client`.
    ///
    /// Shape: a process of a session may start another one, such as a nested client: of a session
    /// that is not open, and of one that last ran in `client`.
    ///
    /// Errors: 403 if the session is open and runs elsewhere.
    pub(crate) async fn check_call(
        self,
        app: &App,
        session: &SessionId,
        client: Option<Process>,
    ) -> Result<(), ApiError> {
        let processes = app.registry.processes();
        if self.route == Route::Tcp || processes.is_empty() {
            return Ok(());
        }
        let near = self.near(app);
        if near.as_ref().is_some_and(|near| near.sessions.contains(session)) {
            return Ok(());
        }
        let who = match near {
            Some(near) => Who::Below(near),
            // Reading an environment takes as long as the rest of a hook, and is rarely needed.
            None if processes.runs(session) => self.who(app).await?,
            None => return Ok(()),
        };
        let own = who.sessions();
        if own.is_empty() || who.has_opened(app, session) || is_own(app, &own, session).await? {
            return Ok(());
        }
        let known = app.engine.session(session.clone()).await?;
        let Some(known) = known.filter(|known| known.is_open) else {
            if let (Who::Below(near), None) = (&who, client) {
                processes.note_opened(near.process, session);
            }
            return Ok(());
        };
        let is_again = client.is_some_and(|client| {
            known.harness.pid == Some(client.pid) && known.harness.pid_started == Some(client.started)
        });
        if is_again && !processes.runs(session) { Ok(()) } else { Err(foreign(&own, session)) }
    }

    /// The author of an answer, for a record.
    ///
    /// Shape: `user` only for a process at a terminal that belongs to no session.
    pub(crate) async fn author(self, app: &App) -> Result<String, ApiError> {
        Ok(match self.who(app).await? {
            Who::Below(_) | Who::Left(_) => match self.session(app).await? {
                Some(session) => format!("session {session}"),
                None => UNKNOWN.to_owned(),
            },
            Who::AtTerminal => "user".to_owned(),
            Who::Unknown => UNKNOWN.to_owned(),
            Who::WithToken => "token".to_owned(),
        })
    }

    /// Its name in tables of which it has a share: its session, its terminal, or the others together.
    pub(crate) async fn share(self, app: &App) -> Result<Arc<str>, ApiError> {
        let who = self.who(app).await?;
        Ok(match (who.sessions().first(), &who) {
            (Some(session), _) => format!("session {session}").into(),
            (None, Who::AtTerminal) => {
                let terminal = self.peer.and_then(stat).and_then(|stat| stat.terminal);
                format!("terminal {}", terminal.map_or(0, NonZeroI32::get)).into()
            }
            (None, Who::WithToken) => "a client over TCP".into(),
            (None, _) => "a program without a session".into(),
        })
    }

    /// The nearest client at or above its process.
    fn near(self, app: &App) -> Option<Client> {
        self.peer.filter(|_| self.route == Route::Unix).and_then(|peer| processes::client_of(app, peer))
    }

    async fn who(self, app: &App) -> Result<Who, ApiError> {
        let peer = match (self.route, self.peer) {
            (Route::Tcp, _) => return Ok(Who::WithToken),
            (Route::Unix, None) => return Ok(Who::Unknown),
            (Route::Unix, Some(peer)) => peer,
        };
        if let Some(near) = self.near(app) {
            return Ok(Who::Below(near));
        }
        let mut is_marked = false;
        for process in processes::from_upwards(peer) {
            for (kind, mark) in marks_of(process.pid) {
                is_marked = true;
                if let Some(session) = session_of_mark(app, kind, &mark).await? {
                    return Ok(Who::Left(session));
                }
            }
        }
        let has_terminal = || stat(peer).is_some_and(|stat| stat.terminal.is_some());
        Ok(if !is_marked && has_terminal() { Who::AtTerminal } else { Who::Unknown })
    }
}

impl Who {
    /// The sessions that it belongs to; none if it may act for any.
    fn sessions(&self) -> Vec<SessionId> {
        match self {
            Self::Below(client) => client.sessions.clone(),
            Self::Left(session) => vec![session.clone()],
            Self::AtTerminal | Self::Unknown | Self::WithToken => Vec::new(),
        }
    }

    /// Whether a process of its client opened `session`.
    fn has_opened(&self, app: &App, session: &SessionId) -> bool {
        match self {
            Self::Below(client) => app.registry.processes().has_opened(client.process, session),
            Self::Left(_) | Self::AtTerminal | Self::Unknown | Self::WithToken => false,
        }
    }
}

/// The author of an answer from a process that could be anybody's.
pub(crate) const UNKNOWN: &str = "unknown process";

/// A variable that a client sets for its child processes.
enum Mark {
    /// The id of the client's session.
    Session(String),
    /// The id of its process.
    Process(u32),
}

/// The variables of clients in the environment with which a process was started.
fn marks_of(pid: u32) -> Vec<(&'static Kind, Mark)> {
    let read = |kind: &'static Kind, header| {
        kind.variables.forwarded_as(header).and_then(|name| variable(pid, name))
    };
    let marks = |kind: &'static Kind| {
        let session = read(kind, header::SESSION).map(Mark::Session);
        let client = read(kind, header::PID).and_then(|pid| pid.parse().ok()).map(Mark::Process);
        session.into_iter().chain(client).map(move |mark| (kind, mark))
    };
    KINDS.into_iter().flat_map(marks).collect()
}

/// The session of a client's variable, if it is known.
async fn session_of_mark(app: &App, kind: &Kind, mark: &Mark) -> Result<Option<SessionId>, ApiError> {
    match mark {
        Mark::Session(id) => {
            let Ok(id) = read_session(id) else { return Ok(None) };
            let Ok(session) = session_of(app, id, Some(kind.caps.name)).await else { return Ok(None) };
            Ok(app.engine.session(session.clone()).await?.map(|_| session))
        }
        Mark::Process(pid) => {
            let client = processes::client_of(app, *pid);
            Ok(client.and_then(|client| client.sessions.into_iter().next()))
        }
    }
}

/// Whether `session` is one of `own`, a continuation of one, or a subagent of one.
async fn is_own(app: &App, own: &[SessionId], session: &SessionId) -> Result<bool, ApiError> {
    if own.contains(session) {
        return Ok(true);
    }
    let mut all = own.to_vec();
    for own in own {
        all.push(app.engine.session_now(own.clone()).await?);
    }
    let mut session = session.clone();
    for _ in 0..PARENTS_MAX {
        let now = app.engine.session_now(session.clone()).await?;
        if all.contains(&session) || all.contains(&now) {
            return Ok(true);
        }
        let known = app.engine.session(now).await?;
        let Some(parent) = known.and_then(|known| known.harness.parent) else { return Ok(false) };
        session = SessionId::new(&parent);
    }
    Ok(false)
}

async fn check_own(app: &App, own: &[SessionId], session: &SessionId) -> Result<(), ApiError> {
    let is_allowed = own.is_empty() || is_own(app, own, session).await?;
    if is_allowed { Ok(()) } else { Err(foreign(own, session)) }
}

fn foreign(own: &[SessionId], session: &SessionId) -> ApiError {
    let own = own.first().map(ToString::to_string).unwrap_or_default();
    let message = format!(
        "this process belongs to session {own}, and may not act for session {session}; a program that \
         runs a session of its own names its process in `harness.pid`"
    );
    ApiError::new(StatusCode::FORBIDDEN, message)
}
