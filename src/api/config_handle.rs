//! The configuration as last loaded, and the handle to request a reload.

use std::sync::Arc;

use engine::{event::catalogue::OwnSeverities, sorted::SortedMap};
use journal::AppendError;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    api::{
        error::ApiError,
        wire::views::{ConfigView, FindingsView, ReloadView},
    },
    config::webhooks::Webhooks,
};

/// Most waiting reload requests, each for its own reload; further callers wait for room.
pub const RELOADS_MAX: usize = 16;

/// A reload request, with the channel for its outcome.
pub type ReloadRequest = oneshot::Sender<Result<ReloadView, ReloadRefusal>>;

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
    pub(crate) fn view(&self) -> ConfigView {
        self.state.borrow().view.clone()
    }

    /// Severities of types that the active layers define.
    pub(crate) fn severities(&self) -> Arc<OwnSeverities> {
        Arc::clone(&self.state.borrow().severities)
    }

    /// The expected webhook senders, and the events of their webhooks.
    pub(crate) fn webhooks(&self) -> Arc<Webhooks> {
        Arc::clone(&self.state.borrow().webhooks)
    }

    /// The file of each active setting, by its key.
    pub(crate) fn origins(&self) -> Arc<SortedMap<String, Arc<str>>> {
        Arc::clone(&self.state.borrow().origins)
    }

    pub(super) async fn reload(&self) -> Result<Result<ReloadView, ReloadRefusal>, ApiError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(reply).await.map_err(|_| ApiError::stopping())?;
        answer.await.map_err(|_| ApiError::stopping())
    }
}
