//! The state that all handlers share, with the configuration as last loaded and the handle to request
//! a reload.

use std::{ops::Deref, sync::Arc, time::Duration};

use engine::{event::catalogue::OwnSeverities, records::Records, sorted::SortedMap};
use journal::{AppendError, Clock, Journal, meter::Meters, time::Timestamp};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::timeout,
};

use crate::{
    api::{
        engine_handle::EngineHandle,
        error::ApiError,
        registry::Registry,
        room::Rooms,
        wire::{
            trust::{TrustRequest, WorkspaceView},
            views::{ConfigView, FindingsView, ReloadView},
        },
    },
    config::{daemon::Durability, webhooks::Webhooks},
    daemon::publisher::Publisher,
    harness::Transcript,
    history::Projection,
};

/// How long an answer waits for the history to reach the journal's end; it follows within
/// milliseconds, unless it is being rebuilt.
const HISTORY_WAIT_MAX: Duration = Duration::from_secs(1);

/// Shared state of every handler; one pointer, because each request clones it several times.
#[derive(Clone)]
pub struct App(Arc<AppParts>);

/// The contents of an [`App`].
pub struct AppParts {
    /// Source of every read.
    pub journal: Journal,
    /// Target of every append.
    pub publisher: Publisher,
    /// Answers queries about sessions and counts.
    pub engine: EngineHandle,
    /// Reloads the configuration, and holds its last state.
    pub config: ConfigHandle,
    /// Answers queries about the history.
    pub projection: Projection,
    /// Requests that wait for answers and for changes of a queue.
    pub registry: Arc<Registry>,
    /// Transcripts to be searched for injections;
    /// [`look_for_injections`](crate::api::look_for_injections) receives them.
    pub transcripts: mpsc::Sender<Transcript>,
    /// Latency meters of requests.
    pub meters: Arc<Meters>,
    /// How much memory bodies may take.
    pub rooms: Rooms,
    /// Source of the current time: the journal's, which never steps back.
    pub clock: Clock,
    /// When the daemon started.
    pub started_at: Timestamp,
    /// When a published event is acknowledged.
    pub durability: Durability,
    /// The wall clock, for times that others sign or read.
    pub wall: fn() -> Timestamp,
    /// Offset of the local wall clock from UTC at a time, in seconds.
    pub utc_offset: fn(Timestamp) -> i32,
    /// Time since the machine started, including its sleep.
    pub since_boot: fn() -> Duration,
    /// Becomes true when the daemon stops; streams and long polls then end.
    pub shutdown: watch::Receiver<bool>,
}

impl From<AppParts> for App {
    fn from(parts: AppParts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for App {
    type Target = AppParts;

    fn deref(&self) -> &AppParts {
        &self.0
    }
}

impl App {
    pub(super) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// How far the journal's time is ahead of the wall clock, in milliseconds; negative if behind.
    pub(crate) fn clock_ahead_ms(&self) -> i64 {
        let ahead = i128::from(self.now().as_millis()) - i128::from((self.wall)().as_millis());
        i64::try_from(ahead).unwrap_or(i64::MAX)
    }

    /// Appends `records`, if there are any, without waiting for the event loop or the disk.
    ///
    /// Errors: the journal accepts no records.
    pub(super) async fn append(&self, records: Records) -> Result<(), ApiError> {
        if records.is_empty() {
            return Ok(());
        }
        Ok(self.publisher.append(records).await.map(drop)?)
    }

    /// Waits until the history has the records that the journal has at this call, at most
    /// [`HISTORY_WAIT_MAX`]; not while it cannot be written.
    pub(super) async fn history_caught_up(&self) {
        let head = *self.journal.written().borrow();
        if self.projection.failed().is_none() {
            // An answer states its progress.
            timeout(HISTORY_WAIT_MAX, self.projection.progress().reach(head)).await.ok();
        }
    }

    /// Waits until the daemon stops.
    pub(super) async fn stopped(&self) {
        let mut shutdown = self.shutdown.clone();
        // An error means that the sender was dropped, which means that the daemon ends.
        drop(shutdown.wait_for(|is_stopping| *is_stopping).await);
    }
}

/// Most waiting reload requests, each for its own reload; further callers wait for room.
pub const RELOADS_MAX: usize = 16;

/// A request to change the rules, with the channel for its outcome.
#[derive(Debug)]
pub enum ReloadRequest {
    /// Read the configuration again.
    Reload(oneshot::Sender<Result<ReloadView, ReloadRefusal>>),
    /// Trust the files of a workspace, or end the trust.
    Trust(TrustRequest, oneshot::Sender<Result<(), ReloadRefusal>>),
}

/// Why the rules are unchanged.
#[derive(Debug)]
pub enum ReloadRefusal {
    /// The files have errors.
    Files {
        /// A message with their number.
        message: String,
        /// The findings.
        found: FindingsView,
    },
    /// What is to be trusted is not there.
    Trust(String),
    /// The journal did not accept the rules.
    Journal(AppendError),
    /// The rules cannot be compiled or stored.
    Failed(String),
}

/// The configuration as last loaded.
#[derive(Debug, Clone, Default)]
pub struct ConfigState {
    /// Its view in the API.
    pub view: ConfigView,
    /// Severities of types that the active layers define.
    pub severities: Arc<OwnSeverities>,
    /// The expected webhook senders, and the events of their webhooks.
    pub webhooks: Arc<Webhooks>,
    /// The file of each active setting, by its key, such as `sources.git.enabled`.
    pub origins: Arc<SortedMap<String, Arc<str>>>,
    /// The workspaces that are trusted, or wait for their user's decision, by folder.
    pub workspaces: Arc<[WorkspaceView]>,
}

/// Sends reload requests to the daemon; cheap to clone.
#[derive(Debug, Clone)]
pub struct ConfigHandle {
    requests: mpsc::Sender<ReloadRequest>,
    state: watch::Receiver<Arc<ConfigState>>,
}

impl ConfigHandle {
    /// Creates a handle that sends requests to `requests` and reads `state`.
    pub fn new(requests: mpsc::Sender<ReloadRequest>, state: watch::Receiver<Arc<ConfigState>>) -> Self {
        Self { requests, state }
    }

    /// The configuration as last loaded.
    pub(crate) fn state(&self) -> Arc<ConfigState> {
        Arc::clone(&self.state.borrow())
    }

    pub(super) async fn reload(&self) -> Result<Result<ReloadView, ReloadRefusal>, ApiError> {
        let (reply, answer) = oneshot::channel();
        self.request(ReloadRequest::Reload(reply), answer).await
    }

    pub(super) async fn trust(&self, request: TrustRequest) -> Result<Result<(), ReloadRefusal>, ApiError> {
        let (reply, answer) = oneshot::channel();
        self.request(ReloadRequest::Trust(request, reply), answer).await
    }

    async fn request<T>(&self, request: ReloadRequest, answer: oneshot::Receiver<T>) -> Result<T, ApiError> {
        self.requests.send(request).await.map_err(|_| ApiError::stopping())?;
        answer.await.map_err(|_| ApiError::stopping())
    }
}
