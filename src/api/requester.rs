//! The process that makes a request, and the sessions that it belongs to.
//!
//! It belongs to the sessions of the nearest client at or above it. One that has left its client's
//! process tree is known by the client's variables, in its environment or in that of a process
//! above it.

use std::{convert::Infallible, num::NonZeroI32, slice};

use axum::{extract::FromRequestParts, http::request::Parts};
use engine::event::SessionId;
use hook::harness::header;

use crate::{
    api::{
        App,
        auth::{PeerPid, Route},
        error::ApiError,
        extract::read_session,
        naming::{find_session, session_of},
        processes::with_ancestors,
    },
    capability::source::process::Environment,
    harness::{kind::Kind, process::Process, table::KINDS},
};

/// The origin of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requester {
    pub(super) route: Route,
    peer: Option<u32>,
}

/// The process of a client, with its sessions, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) process: Process,
    pub(crate) sessions: Vec<SessionId>,
}

/// What is known about a [`Requester`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Membership {
    /// It runs below a client.
    Below(Client),
    /// It has left the process tree of this session's client, and has its environment.
    Left(SessionId),
    /// It belongs to no session and has this terminal.
    AtTerminal(NonZeroI32),
    /// It belongs to no session that is known, and has no terminal.
    Unknown,
    /// It has a token, over TCP.
    WithToken,
}

impl FromRequestParts<App> for Requester {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        let route = Route::from_request_parts(parts, app).await?;
        let PeerPid(peer) = PeerPid::from_request_parts(parts, app).await?;
        Ok(Self { route, peer })
    }
}

impl Requester {
    /// The process `peer` at the other end of the Unix socket.
    pub(crate) const fn local(peer: Option<u32>) -> Self {
        Self { route: Route::Unix, peer }
    }

    /// The nearest client at or above the process.
    pub(crate) fn nearest_client(self, app: &App) -> Option<Client> {
        client_above(app, self.peer.filter(|_| self.route == Route::Unix)?)
    }

    /// What is known about it. Reads the process and its ancestors once each, up to one that is known
    /// to belong to no session.
    ///
    /// Errors: the daemon is stopping.
    pub(crate) async fn find(self, app: &App) -> Result<Membership, ApiError> {
        let peer = match (self.route, self.peer) {
            (Route::Tcp, _) => return Ok(Membership::WithToken),
            (Route::Unix, None) => return Ok(Membership::Unknown),
            (Route::Unix, Some(peer)) => peer,
        };
        let processes = app.registry.processes();
        let clients = processes.clients();
        let (mut line, mut terminal) = (Vec::new(), None);
        for (process, stat) in with_ancestors(peer) {
            terminal.get_or_insert(stat.terminal);
            if let Some(client) = client_in(app, process) {
                return Ok(Membership::Below(client));
            }
            if processes.is_outside(process) {
                break;
            }
            line.push(process);
        }
        let mut is_marked = false;
        for process in &line {
            for (kind, mark) in marks_of(process.pid) {
                is_marked = true;
                if let Some(session) = session_of_mark(app, kind, &mark).await? {
                    return Ok(Membership::Left(session));
                }
            }
        }
        if is_marked {
            return Ok(Membership::Unknown);
        }
        processes.note_outside(line.into_iter(), clients);
        Ok(terminal.flatten().map_or(Membership::Unknown, Membership::AtTerminal))
    }
}

impl Membership {
    /// The client that it runs below.
    pub(crate) fn client(&self) -> Option<&Client> {
        match self {
            Self::Below(client) => Some(client),
            // A client does not know a process that has left its process tree.
            Self::Left(_) | Self::AtTerminal(_) | Self::Unknown | Self::WithToken => None,
        }
    }

    /// The sessions that it belongs to; none if it may act for any.
    pub(crate) fn sessions(&self) -> &[SessionId] {
        match self {
            Self::Below(client) => &client.sessions,
            Self::Left(session) => slice::from_ref(session),
            Self::AtTerminal(_) | Self::Unknown | Self::WithToken => &[],
        }
    }
}

/// The nearest client whose process is `from` or an ancestor of it.
fn client_above(app: &App, from: u32) -> Option<Client> {
    let processes = app.registry.processes();
    let line = with_ancestors(from).map(|(process, _)| process);
    line.take_while(|process| !processes.is_outside(*process)).find_map(|process| client_in(app, process))
}

/// The client that runs in `process`, if one does.
fn client_in(app: &App, process: Process) -> Option<Client> {
    let sessions = app.registry.processes().sessions_of(process);
    (!sessions.is_empty()).then_some(Client { process, sessions })
}

/// A variable that a client sets for its child processes.
enum Mark {
    /// The id of the client's session.
    Session(String),
    /// The id of its process.
    Process(u32),
}

/// The variables of clients in the environment with which a process was started.
fn marks_of(pid: u32) -> Vec<(&'static Kind, Mark)> {
    let environment = Environment::read(pid);
    let read = |kind: &'static Kind, header| kind.forwarded_as(header).and_then(|name| environment.get(name));
    let marks = |kind: &'static Kind| {
        let session = read(kind, header::SESSION).map(|id| Mark::Session(id.to_owned()));
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
            Ok(find_session(app, &session).await?.map(|_| session))
        }
        Mark::Process(pid) => {
            Ok(client_above(app, *pid).and_then(|client| client.sessions.into_iter().next()))
        }
    }
}
