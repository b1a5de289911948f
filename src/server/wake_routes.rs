//! The wake routes: sessions with an attached monitor, and sessions with a message socket.
//!
//! The notification behind a wake stays in the engine's queue until an exchange leases it. So it is
//! delivered by one route only, the faster one. The token of a socket is kept only here, in memory.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use dashmap::{DashMap, DashSet};
use tokio::sync::{Notify, oneshot};

use crate::{
    engine::io::Pending,
    event::SessionId,
    harness::{
        message_socket::MessageSocket,
        process::Process,
        wake_route::{WakeRoute, choose},
    },
    server::{client_folder::ClientFolder, process_table::Processes},
    session::WakeKind,
    wire::clients::AttachedView,
};

/// Most known message sockets; beyond it new ones are ignored, and their sessions are reached by
/// hooks alone.
const SOCKETS_MAX: usize = 10_000;

/// A client's message socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownSocket {
    /// Its address, and how it is written to.
    pub(crate) socket: MessageSocket,
    /// The process that listens there.
    pub(crate) client: Process,
}

/// The known wake routes.
#[derive(Debug, Default)]
pub(crate) struct WakeRoutes {
    pub(super) next: AtomicU64,
    attached: DashMap<SessionId, (u64, oneshot::Sender<()>)>,
    pub(super) sockets: DashMap<SessionId, KnownSocket>,
    /// The current wake requests of queues.
    requested: DashMap<SessionId, WakeKind>,
    /// Sessions whose message socket is to be written to, if they still request it before the
    /// write.
    due: DashSet<SessionId>,
    pub(super) ready: Notify,
    /// The process of each session.
    processes: Arc<Processes>,
    /// The folder of the files of each session's client.
    folders: DashMap<SessionId, ClientFolder>,
    /// Notified when a session in a turn requests a wake.
    asks_in_turn: Notify,
}

impl WakeRoutes {
    /// Makes the caller the only monitor of the session; an earlier one is notified that it is
    /// replaced.
    pub(crate) fn attach(self: &Arc<Self>, session: &SessionId) -> Attached {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (replace, replaced) = oneshot::channel();
        if let Some((_, earlier)) = self.attached.insert(session.clone(), (number, replace)) {
            // An error means that the earlier monitor is already detached.
            earlier.send(()).ok();
        }
        Attached { routes: Arc::clone(self), session: session.clone(), number, replaced }
    }

    /// Records the session's message socket.
    pub(crate) fn know_socket(&self, session: &SessionId, socket: KnownSocket) {
        if self.sockets.len() < SOCKETS_MAX || self.sockets.contains_key(session) {
            self.sockets.insert(session.clone(), socket);
        }
    }

    /// The process of each session.
    pub(crate) const fn processes(&self) -> &Arc<Processes> {
        &self.processes
    }

    /// Records the folder of the client's files.
    pub(crate) fn know_folder(&self, session: &SessionId, folder: &ClientFolder) {
        let is_known = self.folders.get(session).is_some_and(|known| known.path == folder.path);
        if !is_known && (self.folders.len() < SOCKETS_MAX || self.folders.contains_key(session)) {
            self.folders.insert(session.clone(), folder.clone());
        }
    }

    /// The folder of the client's files.
    pub(crate) fn client_folder(&self, session: &SessionId) -> Option<ClientFolder> {
        self.folders.get(session).map(|folder| folder.clone())
    }

    /// Sessions that count as in a turn and have a pending notification that should not wait for
    /// their next hook.
    pub(crate) fn in_turn_and_asking(&self) -> Vec<SessionId> {
        let requested = self.requested.iter().filter(|entry| *entry.value() != WakeKind::StartTurn);
        requested.map(|entry| entry.key().clone()).collect()
    }

    /// Waits until [`WakeRoutes::in_turn_and_asking`] may return a session.
    pub(crate) async fn asks_in_turn(&self) {
        self.asks_in_turn.notified().await;
    }

    /// Requests a wake of the session, if the daemon has to do it.
    pub(crate) fn wake(&self, pending: &Pending) {
        if pending.is_closed || pending.moved_to.is_some() {
            self.sockets.remove(&pending.session);
            self.folders.remove(&pending.session);
            self.processes.forget(&pending.session);
        }
        let Some(wake) = &pending.wake else {
            self.requested.remove(&pending.session);
            self.due.remove(&pending.session);
            return;
        };
        self.requested.insert(pending.session.clone(), wake.kind);
        if wake.kind != WakeKind::StartTurn {
            self.asks_in_turn.notify_one();
        }
        self.offer(&pending.session, wake.kind);
    }

    /// Queues a write to the session's message socket, if that is its route.
    fn offer(&self, session: &SessionId, kind: WakeKind) {
        if self.route(session, kind) == WakeRoute::MessageSocket {
            self.due.insert(session.clone());
            self.ready.notify_one();
        }
    }

    fn route(&self, session: &SessionId, kind: WakeKind) -> WakeRoute {
        let monitor = self.attached.contains_key(session).then_some(WakeRoute::Monitor);
        let socket = self.sockets.contains_key(session).then_some(WakeRoute::MessageSocket);
        choose(kind, monitor.into_iter().chain(socket))
    }

    /// Whether the session still requests a wake by its message socket; false if its turn has begun
    /// meanwhile.
    pub(super) fn is_for_socket(&self, session: &SessionId) -> bool {
        let requested = self.requested.get(session).map(|kind| *kind);
        requested.is_some_and(|kind| self.route(session, kind) == WakeRoute::MessageSocket)
    }

    /// The wake route of each session that has one, by id.
    pub(crate) fn attached(&self) -> Vec<AttachedView> {
        let monitors = self.attached.iter().map(|entry| (entry.key().to_string(), "monitor"));
        let sockets = self.sockets.iter().map(|entry| (entry.key().to_string(), "message_socket"));
        // A session with both is woken through its monitor.
        let routes: BTreeMap<String, &'static str> = sockets.chain(monitors).collect();
        routes
            .into_iter()
            .map(|(session, wake_route)| AttachedView { session, wake_route: wake_route.to_owned() })
            .collect()
    }

    pub(super) fn take_due(&self) -> Vec<SessionId> {
        let sessions: Vec<SessionId> = self.due.iter().map(|due| due.key().clone()).collect();
        let taken = sessions.iter().filter_map(|session| self.due.remove(session));
        taken.filter(|session| self.is_for_socket(session)).collect()
    }
}

/// An attached monitor of a session, until this is dropped.
#[derive(Debug)]
pub(crate) struct Attached {
    routes: Arc<WakeRoutes>,
    session: SessionId,
    number: u64,
    replaced: oneshot::Receiver<()>,
}

impl Attached {
    /// Waits until another monitor replaces it.
    pub(crate) async fn replaced(&mut self) {
        // An error means that the routes were dropped, which means that the daemon ends.
        (&mut self.replaced).await.ok();
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // A monitor ends with its client.
        self.routes.processes.look();
        let own = self.routes.attached.remove_if(&self.session, |_, (number, _)| *number == self.number);
        let requested = self.routes.requested.get(&self.session).map(|kind| *kind);
        if let (Some(_), Some(kind)) = (own, requested) {
            self.routes.offer(&self.session, kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use futures_util::FutureExt;

    use super::*;
    use crate::session::Wake;

    fn socket() -> KnownSocket {
        let socket = MessageSocket::at(Path::new("/nowhere"));
        KnownSocket { socket, client: Process { pid: 41, started: 7 } }
    }

    fn waking(session: &SessionId) -> Pending {
        asking(session, WakeKind::StartTurn)
    }

    fn asking(session: &SessionId, kind: WakeKind) -> Pending {
        let wake = Some(Wake { kind, reason: "critical: ci".into() });
        Pending { wake, ..Pending::nothing(session.clone()) }
    }

    #[test]
    fn a_session_that_has_begun_its_turn_is_not_written_to_any_more() {
        let (routes, session) = (Arc::new(WakeRoutes::default()), SessionId::new("s1"));
        routes.know_socket(&session, socket());
        routes.wake(&waking(&session));
        routes.wake(&asking(&session, WakeKind::InjectAndContinue));
        assert_eq!(routes.take_due(), Vec::<SessionId>::new());
    }

    #[test]
    fn the_newest_attached_process_is_the_one() {
        let (routes, session) = (Arc::new(WakeRoutes::default()), SessionId::new("s1"));
        let mut first = routes.attach(&session);
        assert!(first.replaced().now_or_never().is_none());
        let mut second = routes.attach(&session);
        assert!(first.replaced().now_or_never().is_some());
        drop(first);
        assert_eq!(routes.route(&session, WakeKind::StartTurn), WakeRoute::Monitor);
        assert!(second.replaced().now_or_never().is_none());
        drop(second);
        assert_eq!(routes.route(&session, WakeKind::StartTurn), WakeRoute::NextHook);
    }

    #[test]
    fn a_socket_is_written_to_only_while_nobody_is_attached() {
        let (routes, session) = (Arc::new(WakeRoutes::default()), SessionId::new("s1"));
        routes.wake(&waking(&session));
        assert_eq!(routes.take_due(), Vec::<SessionId>::new());
        routes.know_socket(&session, socket());
        let attached = routes.attach(&session);
        routes.wake(&waking(&session));
        assert_eq!(routes.take_due(), Vec::<SessionId>::new());
        drop(attached);
        assert_eq!(routes.take_due(), vec![session.clone()]);
        routes.wake(&waking(&session));
        routes.wake(&Pending::nothing(session.clone()));
        assert_eq!(routes.take_due(), Vec::<SessionId>::new());
        routes.wake(&Pending { is_closed: true, ..Pending::nothing(session.clone()) });
        routes.wake(&waking(&session));
        assert_eq!(routes.take_due(), Vec::<SessionId>::new());
    }
}
