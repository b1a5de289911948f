//! Waiting requests, and the cache of resolved session ids.
//!
//! Handlers and the event loop meet only in the [`Registry`]: a handler waits under a request id or
//! a session name, and the loop finds it there. A request that stops waiting leaves the registry,
//! so its size is bounded by open requests. A wake-up carries no text and may be lost or merged
//! with the next one; pending notifications stay in the engine.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::http::StatusCode;
use dashmap::DashMap;
use engine::{
    event::SessionId,
    exchange::{Answer, InjectionId},
    io::{Pending, RequestId},
    transcript::Gauges,
};
use journal::time::Timestamp;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};

use crate::{
    api::{
        connections::CONNECTIONS_MAX,
        error::ApiError,
        hook_troubles::HookTroubles,
        looks::{Knowledge, Looks},
        process_table::Processes,
        region_texts::RegionTexts,
        wake_routes::WakeRoutes,
    },
    capability::source::inputs::Inputs,
    daemon::program::Programs,
};

/// Most MCP connections: one per client, of which a machine has some dozens.
pub(crate) const MCP_CONNECTIONS_MAX: usize = 256;

/// Most concurrent long polls and event streams. They hold their connection while idle, so a part
/// of [`CONNECTIONS_MAX`] is reserved for short calls: followers never shut out a hook.
const FOLLOWERS_MAX: usize = CONNECTIONS_MAX / 4 * 3;

/// Interval of the check which sessions are followed.
const FOLLOWED_EVERY: Duration = Duration::from_secs(60);

/// Most sessions with stored gauges; beyond it all are cleared, until their status lines
/// are drawn again.
const GAUGES_MAX: usize = 10_000;

/// The result of a waiting exchange: its answer, or the harness whose open session has the same id.
type Reply = Result<Answer, Arc<str>>;

/// Waiting requests and watchers.
#[derive(Debug)]
pub struct Registry {
    followers: Arc<Semaphore>,
    next_request: AtomicU64,
    waiters: DashMap<RequestId, oneshot::Sender<Reply>>,
    /// Number of [`Waiter`]s; the map's own count would lock each of its shards.
    awaited: AtomicUsize,
    watchers: DashMap<SessionId, watch::Sender<Pending>>,
    wake_routes: Arc<WakeRoutes>,
    hook_troubles: HookTroubles,
    names: Names,
    /// The running looks of probes.
    looks: Looks,
    /// What the status line of a session stated when it was last drawn.
    gauges: DashMap<SessionId, Gauges>,
    /// Time of the last check which sessions are followed, in milliseconds.
    followed_at: AtomicU64,
    /// Injections that were handed to a request after its client had disconnected; at most one per
    /// open request.
    lost: Mutex<Vec<(SessionId, InjectionId)>>,
    has_lost: Notify,
    /// Inputs of sources.
    sources: Inputs,
    /// Address of the API on TCP.
    tcp: OnceLock<SocketAddr>,
    /// Held while a watch is set or a question is asked.
    creation_lock: tokio::sync::Mutex<()>,
    /// Permits of MCP connections.
    mcp_places: Arc<Semaphore>,
    /// The last texts of regions.
    regions: RegionTexts,
}

impl Registry {
    /// The same, with the machine's programs.
    #[must_use]
    pub fn with_programs(mut self, programs: Arc<Programs>) -> Self {
        self.looks = Looks::new(programs);
        self
    }

    /// An empty registry whose request ids begin at `first_request`.
    ///
    /// Shape: the journal has ids of earlier processes. A start value that differs per process (the
    /// start time in milliseconds, shifted left by 20 bits) keeps a replayed exchange from
    /// answering a current request.
    pub fn new(first_request: u64) -> Self {
        Self {
            followers: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
            next_request: AtomicU64::new(first_request),
            waiters: DashMap::new(),
            awaited: AtomicUsize::new(0),
            watchers: DashMap::new(),
            wake_routes: Arc::default(),
            hook_troubles: HookTroubles::default(),
            names: Names::default(),
            looks: Looks::default(),
            gauges: DashMap::new(),
            followed_at: AtomicU64::new(0),
            lost: Mutex::default(),
            has_lost: Notify::new(),
            sources: Inputs::default(),
            tcp: OnceLock::new(),
            creation_lock: tokio::sync::Mutex::default(),
            mcp_places: Arc::new(Semaphore::new(MCP_CONNECTIONS_MAX)),
            regions: RegionTexts::default(),
        }
    }

    /// Records the address of the API on TCP.
    pub(crate) fn note_tcp(&self, address: SocketAddr) {
        self.tcp.get_or_init(|| address);
    }

    /// Address of the API on TCP, if enabled.
    pub(crate) fn tcp(&self) -> Option<SocketAddr> {
        self.tcp.get().copied()
    }

    /// Inputs of sources.
    pub const fn sources(&self) -> &Inputs {
        &self.sources
    }

    /// The last texts of regions.
    pub const fn regions(&self) -> &RegionTexts {
        &self.regions
    }

    /// Waits until no other request sets a watch or asks a question.
    pub(crate) async fn creation_lock(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.creation_lock.lock().await
    }

    /// A permit for an MCP connection, released on drop; `None` when all are taken.
    pub(crate) fn mcp_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.mcp_places).try_acquire_owned().ok()
    }

    /// Hands an answer to its waiting request.
    ///
    /// Shape: false when the request no longer waits; then the injection did not arrive.
    pub fn answer(&self, request: RequestId, answer: Answer) -> bool {
        self.waiters.remove(&request).is_some_and(|(_, waiter)| waiter.send(Ok(answer)).is_ok())
    }

    /// Refuses the waiting request: its session's id is that of an open session of `harness`.
    pub fn refuse(&self, request: RequestId, harness: Arc<str>) {
        if let Some((_, waiter)) = self.waiters.remove(&request) {
            // A request that no longer waits is not an error.
            waiter.send(Err(harness)).ok();
        }
    }

    /// Waits for answers that were handed over and never taken, and returns their injections.
    /// Cancel-safe.
    pub async fn lost(&self) -> Vec<(SessionId, InjectionId)> {
        self.has_lost.notified().await;
        self.take_lost()
    }

    /// Returns the current result of [`Registry::lost`], without waiting.
    pub fn take_lost(&self) -> Vec<(SessionId, InjectionId)> {
        std::mem::take(&mut *self.lost.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notifies watchers of the session that its queue changed.
    pub fn wake(&self, pending: Pending) {
        self.wake_routes.wake(&pending);
        if pending.is_closed {
            self.gauges.remove(&pending.session);
            self.names.forget(&pending.session);
        }
        if let Some(watcher) = self.watchers.get(&pending.session) {
            watcher.send_replace(pending);
        }
    }

    /// The process of each session.
    pub(crate) fn processes(&self) -> &Arc<Processes> {
        self.wake_routes.processes()
    }

    /// Hook input that could not be used.
    pub(crate) const fn hook_troubles(&self) -> &HookTroubles {
        &self.hook_troubles
    }

    pub(crate) const fn names(&self) -> &Names {
        &self.names
    }

    /// The published facts of sessions.
    pub const fn knowledge(&self) -> &Knowledge {
        self.looks.knowledge()
    }

    /// The programs of the machine.
    pub fn programs(&self) -> &Arc<Programs> {
        &self.looks.programs
    }

    pub(crate) const fn looks(&self) -> &Looks {
        &self.looks
    }

    /// The sessions that a client follows or waits for, sorted by id; none if the last call was
    /// less than `FOLLOWED_EVERY` ago.
    pub fn followed(&self, now: Timestamp) -> Vec<SessionId> {
        let asked_at = Timestamp::from_millis(self.followed_at.load(Ordering::Relaxed));
        if now.since(asked_at) < FOLLOWED_EVERY {
            return Vec::new();
        }
        self.followed_at.store(now.as_millis(), Ordering::Relaxed);
        let mut followed: Vec<SessionId> = self.watchers.iter().map(|entry| entry.key().clone()).collect();
        followed.sort_unstable();
        followed
    }

    pub(crate) fn wake_routes(&self) -> &Arc<WakeRoutes> {
        &self.wake_routes
    }

    /// Notes what a status line states; what it leaves out stays as it was.
    pub(crate) fn note_gauges(&self, session: &SessionId, stated: Gauges) {
        if self.gauges.len() >= GAUGES_MAX && !self.gauges.contains_key(session) {
            self.gauges.clear();
        }
        let mut own = self.gauges.entry(session.clone()).or_default();
        own.context = stated.context.or(own.context);
        if !stated.rate_limits.is_empty() {
            own.rate_limits = stated.rate_limits;
        }
    }

    /// What the client of a session stated.
    pub(crate) fn gauges_of(&self, session: &SessionId) -> Gauges {
        self.gauges.get(session).map(|gauges| gauges.clone()).unwrap_or_default()
    }

    /// Number of waiting requests and watched sessions.
    pub fn waiting(&self) -> usize {
        self.waiters.len() + self.watchers.len()
    }

    /// A permit for a request that waits for events; held for as long as it waits.
    ///
    /// Errors: all [`FOLLOWERS_MAX`] permits are taken.
    pub(crate) fn follow(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.followers).try_acquire_owned().map_err(|_| {
            let message = format!("{FOLLOWERS_MAX} long polls and streams are open, try again later");
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
        })
    }

    /// Registers a request; call it before the exchange is appended.
    pub(crate) fn register(self: &Arc<Self>, session: &SessionId) -> Waiter {
        let request = RequestId(self.next_request.fetch_add(1, Ordering::Relaxed));
        let (sender, answer) = oneshot::channel();
        self.waiters.insert(request, sender);
        self.awaited.fetch_add(1, Ordering::Relaxed);
        Waiter { registry: self.clone(), session: session.clone(), request, answer: Some(answer) }
    }

    /// Whether an exchange waits for its answer. Costs one atomic load, so a publisher may call it
    /// per line.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) > 0
    }

    /// Watches a session's queue; there is no value before the next change.
    pub(crate) fn watch(self: &Arc<Self>, session: &SessionId) -> Watcher {
        let nothing = || watch::Sender::new(Pending::nothing(session.clone()));
        let changes = self.watchers.entry(session.clone()).or_insert_with(nothing).subscribe();
        Watcher { registry: self.clone(), session: session.clone(), changes: Some(changes) }
    }
}

/// A request that waits for its answer, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiter {
    registry: Arc<Registry>,
    session: SessionId,
    request: RequestId,
    /// `None` once it has the answer; the loop has then removed it from the registry.
    answer: Option<oneshot::Receiver<Reply>>,
}

impl Waiter {
    /// The id under which the event loop finds it.
    pub(crate) fn request(&self) -> RequestId {
        self.request
    }

    /// Waits for the answer.
    ///
    /// Errors: the daemon stops, or another harness has an open session of the same id.
    pub(crate) async fn answer(&mut self) -> Result<Answer, ApiError> {
        let waiting = self.answer.as_mut().ok_or_else(ApiError::stopping)?;
        let reply = waiting.await.map_err(|_| ApiError::stopping())?;
        self.answer = None;
        reply.map_err(|harness| {
            // Both sessions began at the same time; a retry gets a separate session.
            self.registry.names.forget(&self.session);
            let message =
                format!("`{}` is now a session of the harness `{harness}`; repeat the request", self.session);
            ApiError::new(StatusCode::CONFLICT, message)
        })
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.registry.awaited.fetch_sub(1, Ordering::Relaxed);
        let Some(waiting) = &mut self.answer else { return };
        self.registry.waiters.remove(&self.request);
        // The loop no longer finds it, but an answer may have arrived since the last poll.
        waiting.close();
        let untaken = waiting.try_recv().ok().and_then(Result::ok).and_then(|answer| answer.injection);
        if let Some(injection) = untaken {
            let lost = (self.session.clone(), injection.id);
            self.registry.lost.lock().unwrap_or_else(PoisonError::into_inner).push(lost);
            self.registry.has_lost.notify_one();
        }
    }
}

/// A watch over one session's queue.
#[derive(Debug)]
pub(crate) struct Watcher {
    registry: Arc<Registry>,
    session: SessionId,
    /// `Some` until the watcher is dropped.
    changes: Option<watch::Receiver<Pending>>,
}

impl Watcher {
    /// The queue after its next change; `None` when the registry was dropped.
    pub(crate) async fn changed(&mut self) -> Option<Pending> {
        let changes = self.changes.as_mut()?;
        changes.changed().await.ok()?;
        Some(changes.borrow_and_update().clone())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Dropped before counting: of two concurrent drops, the later one finds no watcher left.
        self.changes = None;
        self.registry.watchers.remove_if(&self.session, |_, watcher| watcher.receiver_count() == 0);
    }
}

/// Most cached answers: twice the number of sessions that can be open. The cache is cleared beyond
/// it.
const NAMES_MAX: usize = 20_000;

/// Cache of resolved ids: the harness that asked last, if it named itself, and the session.
///
/// Shape: one answer per id, so harnesses that share an id query the engine each time.
#[derive(Debug, Default)]
pub(crate) struct Names(DashMap<SessionId, (Option<Arc<str>>, SessionId)>);

impl Names {
    /// Removes an id whose session has ended or belongs to another harness.
    pub(crate) fn forget(&self, id: &SessionId) {
        self.0.remove(id);
    }

    pub(super) fn get(&self, id: &SessionId, harness: Option<&str>) -> Option<SessionId> {
        let known = self.0.get(id)?;
        (known.0.as_deref() == harness).then(|| known.1.clone())
    }

    pub(super) fn set(&self, id: SessionId, harness: Option<&str>, session: SessionId) {
        if self.0.len() >= NAMES_MAX {
            self.0.clear();
        }
        self.0.insert(id, (harness.map(Into::into), session));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use engine::exchange::{Format, Injection, Role};

    fn answer() -> Answer {
        Answer::default()
    }

    #[test]
    fn answer_reaches_only_a_live_request_once() {
        let registry = Arc::new(Registry::new(7));
        let session = SessionId::new("s1");
        let (mut first, second) = (registry.register(&session), registry.register(&session));
        assert_eq!((first.request(), second.request()), (RequestId(7), RequestId(8)));
        assert!(registry.answer(RequestId(7), answer()));
        assert!(!registry.answer(RequestId(7), answer()));
        assert_eq!(first.answer().now_or_never().and_then(Result::ok), Some(answer()));
        drop(second);
        assert!(!registry.answer(RequestId(8), answer()));
        drop(first);
        assert_eq!(registry.waiting(), 0);
    }

    #[test]
    fn answer_to_an_abandoned_request_is_reported_lost() {
        let registry = Arc::new(Registry::new(0));
        let injection = |name| Injection {
            id: InjectionId::new(name),
            format: Format::default(),
            text: "a: 1".into(),
            sentence: "ci (high): 1".into(),
            role: Role::Tool,
            notifications: Vec::new(),
            starts_turn: false,
        };
        let session = SessionId::new("s1");
        let [mut taken, untaken, _nothing] = std::array::from_fn(|_| registry.register(&session));
        let with = |name| Answer { injection: Some(injection(name)), ..answer() };
        assert!(registry.answer(RequestId(0), with("i1")));
        assert!(registry.answer(RequestId(1), with("i2")));
        assert!(taken.answer().now_or_never().is_some_and(|answer| answer.is_ok()));
        drop((taken, untaken));
        assert_eq!(registry.lost().now_or_never(), Some(vec![(session, InjectionId::new("i2"))]));
        assert_eq!(registry.lost().now_or_never(), None);
    }

    #[test]
    fn those_who_only_watch_leave_room_for_others() {
        let registry = Registry::new(0);
        let mut places: Vec<_> = (0..FOLLOWERS_MAX).filter_map(|_| registry.follow().ok()).collect();
        assert_eq!(places.len(), FOLLOWERS_MAX);
        assert!(registry.follow().is_err());
        places.pop();
        assert!(registry.follow().is_ok());
    }

    #[test]
    fn watcher_sees_newest_change_and_unregisters_on_drop() {
        let registry = Arc::new(Registry::new(0));
        let session = SessionId::new("s1");
        let pending = |count| Pending { count, ..Pending::nothing(session.clone()) };
        registry.wake(pending(1));
        let (mut first, second) = (registry.watch(&session), registry.watch(&session));
        assert_eq!(first.changed().now_or_never(), None);
        registry.wake(pending(2));
        registry.wake(pending(3));
        assert_eq!(first.changed().now_or_never(), Some(Some(pending(3))));
        assert_eq!(first.changed().now_or_never(), None);
        drop(first);
        assert_eq!(registry.waiting(), 1);
        drop(second);
        assert_eq!(registry.waiting(), 0);
    }
}
