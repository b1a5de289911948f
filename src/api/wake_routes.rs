//! The wake routes: sessions with an attached follower, and sessions with a message socket; and the
//! folders of their clients' files, which show whether a client can be woken.
//!
//! A wake is one sentence. The notifications behind it stay in the engine's queue until the hook of
//! the turn that it starts leases them, so a wake that gets lost loses nothing, and is repeated by
//! the next route. The token of a socket is kept only here, in memory.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use dashmap::{DashMap, DashSet};
use engine::{event::SessionId, io::Pending, session::WakeKind, sorted::SortedMap};
use journal::time::Timestamp;
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::{
    api::{process_table::Processes, wire::harness::AttachedView},
    daemon::regular_file,
    harness::{
        kind::{FILE_BYTES_MAX, Kind, SessionFile},
        process::Process,
        wake::{Attempts, MessageSocket, Step, WakeRoute},
    },
};

/// Most known message sockets; beyond it new ones are ignored, and their sessions are reached by
/// hooks alone.
const SOCKETS_MAX: usize = 10_000;
/// Most sentences that a follower has not taken; beyond it the attempt fails.
const SENTENCES_MAX: usize = 4;

/// A client's message socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownSocket {
    /// Its address, and how it is written to.
    pub(crate) socket: MessageSocket,
    /// The process that listens there.
    pub(crate) client: Process,
}

/// An attached follower.
#[derive(Debug)]
struct Follower {
    number: u64,
    replace: oneshot::Sender<()>,
    sentences: mpsc::Sender<Arc<str>>,
}

/// A wake that a queue requests.
#[derive(Debug, Clone, Copy)]
struct Requested {
    kind: WakeKind,
    causes: u32,
    attempts: Attempts,
}

/// The known wake routes.
#[derive(Debug, Default)]
pub(crate) struct WakeRoutes {
    next: AtomicU64,
    attached: DashMap<SessionId, Follower>,
    pub(super) sockets: DashMap<SessionId, KnownSocket>,
    /// Sessions in whose mode the client holds messages of others, as their hooks report it.
    holding: DashSet<SessionId>,
    /// Sessions whose message socket was found to be of no use, until their next hook.
    held: DashSet<SessionId>,
    /// The current wake requests of queues.
    requested: DashMap<SessionId, Requested>,
    /// Sessions that would be woken if their user had stopped their turn.
    if_stopped: DashSet<SessionId>,
    ready: Notify,
    /// The process of each session.
    processes: Arc<Processes>,
    /// The folder of the files of each session's client.
    folders: DashMap<SessionId, ClientFolder>,
    /// Notified when a session in a turn may have been stopped.
    may_be_stopped: Notify,
}

impl WakeRoutes {
    /// Makes the caller the only follower of the session; an earlier one is notified that it is
    /// replaced.
    pub(crate) fn attach(self: &Arc<Self>, session: &SessionId) -> Attached {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (replace, replaced) = oneshot::channel();
        let (sentences, waiting) = mpsc::channel(SENTENCES_MAX);
        if let Some(earlier) = self.attached.insert(session.clone(), Follower { number, replace, sentences })
        {
            // An error means that the earlier follower is already detached.
            earlier.replace.send(()).ok();
        }
        self.ready.notify_one();
        Attached { routes: Arc::clone(self), session: session.clone(), number, replaced, waiting }
    }

    /// Records the session's message socket.
    pub(crate) fn know_socket(&self, session: &SessionId, socket: KnownSocket) {
        if self.sockets.len() < SOCKETS_MAX || self.sockets.contains_key(session) {
            self.sockets.insert(session.clone(), socket);
            self.held.remove(session);
            self.ready.notify_one();
        }
    }

    /// Records whether the session is in a mode in which its client holds messages.
    pub(crate) fn note_holding(&self, session: &SessionId, is_holding: bool) {
        if !is_holding {
            self.holding.remove(session);
        } else if self.holding.len() < SOCKETS_MAX {
            self.holding.insert(session.clone());
        }
    }

    /// Whether the session is in such a mode.
    pub(super) fn is_holding(&self, session: &SessionId) -> bool {
        self.holding.contains(session)
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

    /// Sessions that count as in a turn, and would be woken if their user had stopped that turn.
    pub(crate) fn maybe_stopped(&self) -> Vec<SessionId> {
        self.if_stopped.iter().map(|session| session.key().clone()).collect()
    }

    /// Waits until [`WakeRoutes::maybe_stopped`] may return a session.
    pub(crate) async fn may_be_stopped(&self) {
        self.may_be_stopped.notified().await;
    }

    /// Applies a change of a session's queue.
    pub(crate) fn wake(&self, pending: &Pending) {
        let session = &pending.session;
        if pending.is_closed || pending.moved_to.is_some() {
            self.sockets.remove(session);
            self.folders.remove(session);
            self.holding.remove(session);
            self.held.remove(session);
            self.processes.forget(session);
        }
        if pending.wakes_if_stopped {
            self.if_stopped.insert(session.clone());
            self.may_be_stopped.notify_one();
        } else {
            self.if_stopped.remove(session);
        }
        let Some(wake) = pending.wake.as_ref().filter(|wake| wake.kind == WakeKind::StartTurn) else {
            self.requested.remove(session);
            return;
        };
        let (kind, causes) = (wake.kind, wake.causes);
        let new = Requested { kind, causes, attempts: Attempts::default() };
        self.requested.entry(session.clone()).or_insert(new).causes = causes;
        self.ready.notify_one();
    }

    /// Waits until [`WakeRoutes::take_due`] may return a session earlier than it said.
    pub(super) async fn ready(&self) {
        self.ready.notified().await;
    }

    /// The sessions that are to be woken now, each by its route, which counts as attempted; and when
    /// the next one is due.
    pub(super) fn take_due(&self, now: Timestamp) -> (Vec<(SessionId, WakeRoute)>, Option<Timestamp>) {
        let (mut due, mut next) = (Vec::new(), None::<Timestamp>);
        for mut entry in self.requested.iter_mut() {
            let (session, requested) = entry.pair_mut();
            let routes = self.routes(session);
            match requested.attempts.next(requested.kind, requested.causes, &routes, now) {
                Step::Try(route) => {
                    requested.attempts.note_made(requested.causes, now);
                    due.push((session.clone(), route));
                }
                Step::WaitUntil(at) => next = Some(next.map_or(at, |next| next.min(at))),
                Step::LeaveToHook => {}
            }
        }
        (due, next)
    }

    fn routes(&self, session: &SessionId) -> Vec<WakeRoute> {
        let follower = self.attached.contains_key(session).then_some(WakeRoute::Follower);
        let is_of_use = self.sockets.contains_key(session) && !self.held.contains(session);
        follower.into_iter().chain(is_of_use.then_some(WakeRoute::MessageSocket)).collect()
    }

    /// Whether the session still requests a wake; false if its turn has begun meanwhile.
    pub(super) fn is_requested(&self, session: &SessionId) -> bool {
        self.requested.contains_key(session)
    }

    /// Hands the session's follower a sentence to print.
    pub(super) fn print(&self, session: &SessionId, sentence: &Arc<str>) {
        let follower = self.attached.get(session).map(|follower| follower.sentences.clone());
        if follower.is_none_or(|follower| follower.try_send(Arc::clone(sentence)).is_err()) {
            self.note_failed(session);
        }
    }

    /// Notes that the session's last attempt has no effect: the next route is due.
    pub(super) fn note_failed(&self, session: &SessionId) {
        if let Some(mut requested) = self.requested.get_mut(session) {
            requested.attempts.note_failed();
        }
        self.ready.notify_one();
    }

    /// Notes that the session's client could not take the last attempt yet.
    pub(super) fn note_not_yet(&self, session: &SessionId, now: Timestamp) {
        if let Some(mut requested) = self.requested.get_mut(session) {
            requested.attempts.note_not_yet(now);
        }
        self.ready.notify_one();
    }

    /// Notes that the client holds what is written to the session's message socket.
    pub(super) fn note_held(&self, session: &SessionId) {
        self.held.insert(session.clone());
        self.note_failed(session);
    }

    /// The wake route of each session that has one, by id.
    pub(crate) fn attached(&self) -> Vec<AttachedView> {
        let followers = self.attached.iter().map(|entry| (entry.key().clone(), WakeRoute::Follower));
        let sockets = self.sockets.iter().map(|entry| (entry.key().clone(), WakeRoute::MessageSocket));
        // A session with both is woken through its follower.
        let routes: SortedMap<SessionId, WakeRoute> = sockets.chain(followers).collect();
        let shown = |(session, route): (SessionId, WakeRoute)| AttachedView {
            session: session.to_string(),
            wake_route: route.as_str().to_owned(),
            is_held: false,
        };
        routes.into_iter().map(shown).collect()
    }
}

/// An attached follower of a session, until this is dropped.
#[derive(Debug)]
pub(crate) struct Attached {
    routes: Arc<WakeRoutes>,
    session: SessionId,
    number: u64,
    replaced: oneshot::Receiver<()>,
    waiting: mpsc::Receiver<Arc<str>>,
}

/// What the daemon has to say to a follower.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ForFollower {
    /// Another follower replaces it, or the daemon ends.
    Replaced,
    /// It prints this sentence.
    Sentence(Arc<str>),
}

impl Attached {
    /// Waits for the next instruction. Cancel-safe.
    pub(crate) async fn next(&mut self) -> ForFollower {
        tokio::select! {
            biased;
            // An error means that the routes were dropped, which means that the daemon ends.
            _ = &mut self.replaced => ForFollower::Replaced,
            sentence = self.waiting.recv() => sentence.map_or(ForFollower::Replaced, ForFollower::Sentence),
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // A follower ends with its client.
        self.routes.processes.look();
        let own = self.routes.attached.remove_if(&self.session, |_, follower| follower.number == self.number);
        if own.is_some() {
            self.routes.note_failed(&self.session);
        }
    }
}

/// Largest settings file that is read, in bytes.
const SETTINGS_BYTES_MAX: u64 = 1024 * 1024;

/// The folder of a client's files, and the kind of client.
#[derive(Debug, Clone)]
pub(crate) struct ClientFolder {
    pub(crate) kind: &'static Kind,
    pub(crate) path: PathBuf,
}

impl ClientFolder {
    /// Whether the client writes session files, or did so once.
    pub(super) fn has_session_files(&self) -> bool {
        let files = self.kind.session_files();
        files.is_some_and(|files| (files.path)(&self.path, 0).parent().is_some_and(Path::is_dir))
    }
}

/// Reads the session file of the client with this process and the folder `folder`.
pub(crate) fn read_session_file(folder: &ClientFolder, process: Process) -> Option<SessionFile> {
    let files = folder.kind.session_files()?;
    let text = regular_file::read(&(files.path)(&folder.path, process.pid), FILE_BYTES_MAX).ok()?;
    (files.parse)(&text, process)
}

/// Reads the user's settings of a client with hooks; `None` if there are none that the client could
/// read.
pub(crate) fn read_settings(folder: &ClientFolder) -> Option<Value> {
    let path = folder.path.join(folder.kind.hooks()?.installation.settings.user);
    serde_json::from_slice(&regular_file::read(&path, SETTINGS_BYTES_MAX).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use futures_util::FutureExt;

    use super::*;
    use engine::session::Wake;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn socket() -> KnownSocket {
        let socket = MessageSocket::at(Path::new("/nowhere"));
        KnownSocket { socket, client: Process { pid: 41, started: 7 } }
    }

    fn waking(session: &SessionId) -> Pending {
        asking(session, WakeKind::StartTurn)
    }

    fn asking(session: &SessionId, kind: WakeKind) -> Pending {
        let wake = Some(Wake { kind, reason: "critical: ci".into(), causes: 1 });
        Pending { wake, ..Pending::nothing(session.clone()) }
    }

    fn due(routes: &WakeRoutes, seconds: u64) -> Vec<WakeRoute> {
        let (due, _) = routes.take_due(NOW + std::time::Duration::from_secs(seconds));
        due.into_iter().map(|(_, route)| route).collect()
    }

    #[test]
    fn a_session_in_its_turn_is_not_woken() {
        let (routes, session) = (Arc::new(WakeRoutes::default()), SessionId::new("s1"));
        routes.know_socket(&session, socket());
        routes.wake(&waking(&session));
        routes.wake(&asking(&session, WakeKind::InjectAndContinue));
        assert_eq!(due(&routes, 0), []);
        assert!(!routes.is_requested(&session));
    }

    #[test]
    fn the_newest_attached_process_is_the_one() {
        let (routes, session) = (Arc::new(WakeRoutes::default()), SessionId::new("s1"));
        let mut first = routes.attach(&session);
        assert!(first.next().now_or_never().is_none());
        let mut second = routes.attach(&session);
        assert_eq!(first.next().now_or_never(), Some(ForFollower::Replaced));
        drop(first);
        routes.wake(&waking(&session));
        assert_eq!(due(&routes, 0), [WakeRoute::Follower]);
        routes.print(&session, &"critical: ci: 1".into());
        let said = ForFollower::Sentence("critical: ci: 1".into());
        assert_eq!(second.next().now_or_never(), Some(said));
        assert!(second.next().now_or_never().is_none());
    }

    #[test]
    fn wake_takes_next_route_when_one_is_gone() {
        let (routes, session) = (Arc::new(WakeRoutes::default()), SessionId::new("s1"));
        routes.wake(&waking(&session));
        assert_eq!(due(&routes, 0), []);
        let attached = routes.attach(&session);
        routes.know_socket(&session, socket());
        assert_eq!(due(&routes, 0), [WakeRoute::Follower]);
        routes.wake(&waking(&session));
        assert_eq!(due(&routes, 0), [], "one is on its way");
        drop(attached);
        assert_eq!(due(&routes, 0), [WakeRoute::MessageSocket]);
        routes.note_held(&session);
        assert_eq!(due(&routes, 0), []);
        routes.know_socket(&session, socket());
        assert_eq!(due(&routes, 0), [WakeRoute::MessageSocket], "the next hook says otherwise");
        routes.wake(&Pending { is_closed: true, ..Pending::nothing(session.clone()) });
        routes.wake(&waking(&session));
        assert_eq!(due(&routes, 60), []);
    }

    #[test]
    fn an_ended_turn_is_woken_again() {
        let (routes, session) = (Arc::new(WakeRoutes::default()), SessionId::new("s1"));
        routes.know_socket(&session, socket());
        for _ in 0..9 {
            routes.wake(&waking(&session));
            assert_eq!(due(&routes, 0), [WakeRoute::MessageSocket]);
            routes.wake(&Pending::nothing(session.clone()));
        }
    }

    use crate::harness::trial;

    #[test]
    fn client_without_files_has_no_state() {
        let folder = tempfile::tempdir().expect("a folder");
        for kind in [&trial::EXTENSION, &trial::PROXY] {
            let folder = ClientFolder { kind, path: folder.path().to_owned() };
            assert!(!folder.has_session_files());
            assert_eq!(read_session_file(&folder, Process { pid: 1, started: 1 }), None);
            assert_eq!(read_settings(&folder), None);
        }
    }
}
