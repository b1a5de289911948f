//! The doors through which sessions are woken: who is attached, whose inbox is known, and the task that writes to inboxes.
//!
//! What a wake is for stays in the engine's queue until an exchange takes it, under a lease. So whichever door is quicker, what
//! is told is told through one. The token of an inbox is kept here, in memory, and nowhere else.

use std::{
    collections::BTreeMap,
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dashmap::{DashMap, DashSet};
use futures_util::{StreamExt, stream};
use tokio::{
    io::AsyncWriteExt,
    net::UnixStream,
    sync::{Notify, oneshot},
    time::timeout,
};

use crate::{
    engine::io::Pending,
    event::{EventRef, SessionId},
    exchange::{Budget, Exchange, Format, Injection, Trigger},
    harness::{
        claude::inbox::Inbox,
        door::{Door, choose},
        process::Process,
    },
    notification::InjectionPoint,
    publisher::Records,
    server::{
        App,
        clients::AttachedView,
        exchange::perform,
        processes::{Processes, running},
    },
    session::WakeKind,
};

/// Most inboxes that are known; beyond it a new one is not taken, and its session is reached by hooks alone.
const INBOXES_MAX: usize = 10_000;
/// How long a client may take to accept a connection or a message; one that is stuck must not hold up the others.
const INBOX_TIMEOUT: Duration = Duration::from_secs(2);
/// How many inboxes are written to at a time.
const PUSHES_MAX: usize = 8;
/// Most characters of a pushed injection: it comes unasked, and stays in the context.
pub(crate) const PUSH_CHARS_MAX: u32 = 2_000;

/// Where a client takes messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownInbox {
    /// Its socket.
    pub(crate) inbox: Inbox,
    /// The process that listens there.
    pub(crate) client: Process,
}

/// The doors that are open.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    next: AtomicU64,
    attached: DashMap<SessionId, (u64, oneshot::Sender<()>)>,
    inboxes: DashMap<SessionId, KnownInbox>,
    /// What the queues ask for at the moment.
    asked: DashMap<SessionId, WakeKind>,
    /// Sessions whose inbox is to be written to, if they still ask for that when it comes to it.
    wanted: DashSet<SessionId>,
    ready: Notify,
    /// Which process each session runs in.
    processes: Arc<Processes>,
    /// The folder in which each session's client keeps its files.
    folders: DashMap<SessionId, PathBuf>,
    /// A session in a turn asks for something.
    asks_in_turn: Notify,
}

impl Doors {
    /// Makes the caller the one process that is attached to the session; whoever was before is told that it is not any more.
    pub(crate) fn attach(self: &Arc<Self>, session: &SessionId) -> Attached {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (replace, replaced) = oneshot::channel();
        if let Some((_, earlier)) = self.attached.insert(session.clone(), (number, replace)) {
            // An error means that it has gone, which is as good.
            earlier.send(()).ok();
        }
        Attached { doors: Arc::clone(self), session: session.clone(), number, replaced }
    }

    /// Learns where the session's client takes messages.
    pub(crate) fn know(&self, session: &SessionId, inbox: KnownInbox) {
        if self.inboxes.len() < INBOXES_MAX || self.inboxes.contains_key(session) {
            self.inboxes.insert(session.clone(), inbox);
        }
    }

    /// Which process each session runs in.
    pub(crate) const fn processes(&self) -> &Arc<Processes> {
        &self.processes
    }

    /// Learns where the session's client keeps its files.
    pub(crate) fn know_folder(&self, session: &SessionId, folder: &Path) {
        let is_known = self.folders.get(session).is_some_and(|known| known.as_path() == folder);
        if !is_known && (self.folders.len() < INBOXES_MAX || self.folders.contains_key(session)) {
            self.folders.insert(session.clone(), folder.to_owned());
        }
    }

    /// Where the session's client keeps its files.
    pub(crate) fn client_folder(&self, session: &SessionId) -> Option<PathBuf> {
        self.folders.get(session).map(|folder| folder.clone())
    }

    /// The sessions that count as being in a turn and for which something waits that should not wait for its next hook.
    pub(crate) fn in_turn_and_asking(&self) -> Vec<SessionId> {
        let asked = self.asked.iter().filter(|asked| *asked.value() != WakeKind::StartTurn);
        asked.map(|asked| asked.key().clone()).collect()
    }

    /// Waits until there may be one of [`Doors::in_turn_and_asking`].
    pub(crate) async fn asks_in_turn(&self) {
        self.asks_in_turn.notified().await;
    }

    /// Has the session woken, if the daemon is the one to do that.
    pub(crate) fn wake(&self, pending: &Pending) {
        if pending.is_closed || pending.moved_to.is_some() {
            self.inboxes.remove(&pending.session);
            self.folders.remove(&pending.session);
            self.processes.forget(&pending.session);
        }
        let Some(wake) = &pending.wake else {
            self.asked.remove(&pending.session);
            self.wanted.remove(&pending.session);
            return;
        };
        self.asked.insert(pending.session.clone(), wake.kind);
        if wake.kind != WakeKind::StartTurn {
            self.asks_in_turn.notify_one();
        }
        self.offer(&pending.session, wake.kind);
    }

    /// Has the session's inbox written to, if that is the door.
    fn offer(&self, session: &SessionId, kind: WakeKind) {
        if self.door(session, kind) == Door::Inbox {
            self.wanted.insert(session.clone());
            self.ready.notify_one();
        }
    }

    fn door(&self, session: &SessionId, kind: WakeKind) -> Door {
        choose(self.attached.contains_key(session), self.inboxes.contains_key(session), kind)
    }

    /// Whether the session asks for a wake that its inbox is the door of; a session that has begun its turn since does not.
    fn is_for_inbox(&self, session: &SessionId) -> bool {
        let asked = self.asked.get(session).map(|kind| *kind);
        asked.is_some_and(|kind| self.door(session, kind) == Door::Inbox)
    }

    /// How each session can be woken that can be, by id.
    pub(crate) fn attached(&self) -> Vec<AttachedView> {
        let monitors = self.attached.iter().map(|entry| (entry.key().to_string(), "monitor"));
        let inboxes = self.inboxes.iter().map(|entry| (entry.key().to_string(), "message_socket"));
        // A session with both is woken through its monitor.
        let routes: BTreeMap<String, &'static str> = inboxes.chain(monitors).collect();
        routes.into_iter().map(|(session, wake_route)| AttachedView { session, wake_route }).collect()
    }

    fn take_wanted(&self) -> Vec<SessionId> {
        let sessions: Vec<SessionId> = self.wanted.iter().map(|wanted| wanted.key().clone()).collect();
        let taken = sessions.iter().filter_map(|session| self.wanted.remove(session));
        taken.filter(|session| self.is_for_inbox(session)).collect()
    }
}

/// That a process is attached to a session, as long as it holds this.
#[derive(Debug)]
pub(crate) struct Attached {
    doors: Arc<Doors>,
    session: SessionId,
    number: u64,
    replaced: oneshot::Receiver<()>,
}

impl Attached {
    /// Waits until another process is attached instead.
    pub(crate) async fn replaced(&mut self) {
        // An error means that the doors are gone, and with them the daemon.
        (&mut self.replaced).await.ok();
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // A monitor ends with its client.
        self.doors.processes.look();
        let own = self.doors.attached.remove_if(&self.session, |_, (number, _)| *number == self.number);
        let asked = self.doors.asked.get(&self.session).map(|kind| *kind);
        if let (Some(_), Some(kind)) = (own, asked) {
            self.doors.offer(&self.session, kind);
        }
    }
}

/// Writes to inboxes until the daemon stops.
///
/// Errors: none; a client that does not take a message is reached by its next hook.
pub async fn push_wakes(app: App) -> io::Result<()> {
    let doors = Arc::clone(app.registry.doors());
    loop {
        tokio::select! {
            () = doors.ready.notified() => {}
            () = app.stopped() => return Ok(()),
        }
        let wanted = stream::iter(doors.take_wanted());
        wanted.for_each_concurrent(PUSHES_MAX, |session| push(&app, session)).await;
    }
}

async fn push(app: &App, session: SessionId) {
    let doors = app.registry.doors();
    let Some(inbox) = doors.inboxes.get(&session).map(|inbox| inbox.clone()) else { return };
    if !doors.is_for_inbox(&session) {
        return;
    }
    // Connected first: nothing is released before there is somebody to take it.
    let outcome = match connect(&inbox).await {
        Ok(connection) => hand_over(app, &session, &inbox.inbox, connection).await,
        Err(error) => Err(error),
    };
    if let Err(error) = outcome {
        tracing::info!(%session, %error, "a client's inbox takes nothing; its next hook will");
        doors.inboxes.remove_if(&session, |_, known| *known == inbox);
    }
}

/// Connects to the client's socket. Whoever may use the API could name any socket of this user, so what listens there has to be the
/// client's own process.
async fn connect(known: &KnownInbox) -> io::Result<UnixStream> {
    let socket = known.inbox.socket.as_path();
    let own = rustix::process::geteuid().as_raw();
    let file = std::fs::symlink_metadata(socket)?;
    if !file.file_type().is_socket() || file.uid() != own {
        return Err(io::Error::other("it is no socket of this user"));
    }
    let connection = timeout(INBOX_TIMEOUT, UnixStream::connect(socket)).await??;
    let listener = connection.peer_cred()?;
    let pid = listener.pid().and_then(|pid| u32::try_from(pid).ok());
    if listener.uid() != own || pid.and_then(running) != Some(known.client) {
        return Err(io::Error::other("another process than the client listens there"));
    }
    Ok(connection)
}

async fn hand_over(
    app: &App,
    session: &SessionId,
    inbox: &Inbox,
    mut connection: UnixStream,
) -> io::Result<()> {
    let number = app.registry.doors().next.fetch_add(1, Ordering::Relaxed);
    let carrier = format!("inbox:{}:{number}", app.now().as_millis());
    let exchange = Exchange {
        budget: Budget { max_chars: Some(PUSH_CHARS_MAX), ..Budget::default() },
        format: Some(Format::Xml),
        trigger: Trigger::Wake,
        ..Exchange::new(session.clone(), InjectionPoint::TurnStart, &carrier)
    };
    let answer = perform(app, std::iter::empty::<EventRef<'_>>(), &exchange).await;
    let answer = answer.map_err(|error| io::Error::other(error.to_string()))?;
    let Some(injection) = answer.injection else { return Ok(()) };
    let lines = inbox.lines(&injection.text);
    let write = async {
        connection.write_all(lines.as_bytes()).await?;
        connection.shutdown().await
    };
    let written = timeout(INBOX_TIMEOUT, write).await.map_err(io::Error::from).flatten();
    if written.is_err() {
        take_back(app, session, &injection).await;
    }
    written
}

async fn take_back(app: &App, session: &SessionId, injection: &Injection) {
    let undelivered = Records::of(|records| records.undelivered(session, &injection.id));
    if let Err(error) = app.publisher.append(undelivered).await {
        tracing::error!(%error, "an injection could not be taken back");
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::session::Wake;

    fn inbox(session: &SessionId) -> KnownInbox {
        let header = |name: &str| match name {
            "aside-session" => Some("s1"),
            "aside-inbox" => Some("/nowhere"),
            _ => None,
        };
        let inbox = Inbox::from_headers(session, header).expect("an inbox");
        KnownInbox { inbox, client: Process { pid: 41, started: 7 } }
    }

    fn waking(session: &SessionId) -> Pending {
        asking(session, WakeKind::StartTurn)
    }

    fn asking(session: &SessionId, kind: WakeKind) -> Pending {
        let wake = Some(Wake { kind, reason: "critical: ci".into() });
        Pending { wake, ..Pending::nothing(session.clone()) }
    }

    #[tokio::test]
    async fn only_the_clients_own_process_may_listen() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let own = running(std::process::id()).expect("this one");
        let session = SessionId::new("s1");
        let at = |socket: &Path, client: Process| {
            let socket = socket.to_str().expect("text").to_owned();
            let header = |name: &str| match name {
                "aside-session" => Some("s1"),
                "aside-inbox" => Some(socket.as_str()),
                _ => None,
            };
            KnownInbox { inbox: Inbox::from_headers(&session, header).expect("an inbox"), client }
        };
        let refused = async |known: KnownInbox| connect(&known).await.err().map(|error| error.to_string());
        let listener = tokio::net::UnixListener::bind(&path).expect("bound");
        assert_eq!(refused(at(&path, own)).await, None);
        let stranger = Some("another process than the client listens there".to_owned());
        assert_eq!(refused(at(&path, Process { pid: own.pid + 1, ..own })).await, stranger);
        assert_eq!(refused(at(&path, Process { started: own.started + 1, ..own })).await, stranger);
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("written");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        for no_socket in [file, link] {
            let expected = Some("it is no socket of this user".to_owned());
            assert_eq!(refused(at(&no_socket, own)).await, expected);
        }
        drop(listener);
        assert!(refused(at(&path, own)).await.is_some());
    }

    #[test]
    fn a_session_that_has_begun_its_turn_is_not_written_to_any_more() {
        let (doors, session) = (Arc::new(Doors::default()), SessionId::new("s1"));
        doors.know(&session, inbox(&session));
        doors.wake(&waking(&session));
        doors.wake(&asking(&session, WakeKind::InjectAndContinue));
        assert_eq!(doors.take_wanted(), Vec::<SessionId>::new());
    }

    #[test]
    fn the_newest_attached_process_is_the_one() {
        let (doors, session) = (Arc::new(Doors::default()), SessionId::new("s1"));
        let mut first = doors.attach(&session);
        assert!(first.replaced().now_or_never().is_none());
        let mut second = doors.attach(&session);
        assert!(first.replaced().now_or_never().is_some());
        drop(first);
        assert_eq!(doors.door(&session, WakeKind::StartTurn), Door::Monitor);
        assert!(second.replaced().now_or_never().is_none());
        drop(second);
        assert_eq!(doors.door(&session, WakeKind::StartTurn), Door::NextHook);
    }

    #[test]
    fn an_inbox_is_written_to_only_while_nobody_is_attached() {
        let (doors, session) = (Arc::new(Doors::default()), SessionId::new("s1"));
        doors.wake(&waking(&session));
        assert_eq!(doors.take_wanted(), Vec::<SessionId>::new());
        doors.know(&session, inbox(&session));
        let attached = doors.attach(&session);
        doors.wake(&waking(&session));
        assert_eq!(doors.take_wanted(), Vec::<SessionId>::new());
        drop(attached);
        assert_eq!(doors.take_wanted(), vec![session.clone()]);
        doors.wake(&waking(&session));
        doors.wake(&Pending::nothing(session.clone()));
        assert_eq!(doors.take_wanted(), Vec::<SessionId>::new());
        doors.wake(&Pending { is_closed: true, ..Pending::nothing(session.clone()) });
        doors.wake(&waking(&session));
        assert_eq!(doors.take_wanted(), Vec::<SessionId>::new());
    }
}
