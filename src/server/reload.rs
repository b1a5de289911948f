//! Reading the configuration again because somebody asks, and how it was read last.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};
use utoipa::ToSchema;

use crate::{
    config::webhooks::Webhooks,
    event::catalogue::OwnSeverities,
    journal::AppendError,
    protocol::views::{ConfigView, FindingsView, ReloadView},
    server::{
        App,
        error::{ApiError, ErrorBody},
    },
};

/// Most requests to read the configuration again that wait, each for a reading of its own; whoever asks beyond them waits for room.
pub const RELOADS_MAX: usize = 16;

/// A request to read the configuration again, with the place for what became of it.
pub type ReloadRequest = oneshot::Sender<Result<ReloadView, ReloadRefusal>>;

/// Why the rules stay as they were.
#[derive(Debug)]
pub enum ReloadRefusal {
    /// The files have errors.
    Files {
        /// How many, in words.
        message: String,
        /// What was found.
        found: FindingsView,
    },
    /// The journal did not take the rules.
    Journal(AppendError),
    /// The rules cannot be made or kept.
    Failed(String),
}

/// How the configuration was read last.
#[derive(Debug, Clone, Default)]
pub struct ConfigState {
    /// What is shown of it.
    pub view: ConfigView,
    /// The severities of types that the layers in force name.
    pub severities: Arc<OwnSeverities>,
    /// Whose webhooks are expected, and what events they are.
    pub webhooks: Arc<Webhooks>,
    /// The file that each setting in force came from, by its key, such as `sources.git.enabled`.
    pub origins: Arc<BTreeMap<String, Arc<str>>>,
}

/// Asks the daemon to read the configuration again; cloning it is cheap.
#[derive(Debug, Clone)]
pub struct ConfigHandle {
    requests: mpsc::Sender<ReloadRequest>,
    state: watch::Receiver<Arc<ConfigState>>,
}

impl ConfigHandle {
    /// A handle that sends its requests to `requests` and shows what `state` holds.
    pub fn new(requests: mpsc::Sender<ReloadRequest>, state: watch::Receiver<Arc<ConfigState>>) -> Self {
        Self { requests, state }
    }

    /// How the configuration was read last.
    pub(crate) fn view(&self) -> ConfigView {
        self.state.borrow().view.clone()
    }

    /// The severities of types that the layers in force name.
    pub(crate) fn severities(&self) -> Arc<OwnSeverities> {
        Arc::clone(&self.state.borrow().severities)
    }

    /// Whose webhooks are expected, and what events they are.
    pub(crate) fn webhooks(&self) -> Arc<Webhooks> {
        Arc::clone(&self.state.borrow().webhooks)
    }

    /// The file that each setting in force came from, by its key.
    pub(crate) fn origins(&self) -> Arc<BTreeMap<String, Arc<str>>> {
        Arc::clone(&self.state.borrow().origins)
    }

    async fn reload(&self) -> Result<Result<ReloadView, ReloadRefusal>, ApiError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(reply).await.map_err(|_| ApiError::stopping())?;
        answer.await.map_err(|_| ApiError::stopping())
    }
}

/// The body of a reload that was refused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RefusedReloadView {
    #[serde(flatten)]
    error: ErrorBody,
    #[serde(flatten)]
    found: FindingsView,
}

/// Reads the configuration again, all or nothing.
///
/// Answers once the rules are in the journal: what is published from then on is handled by them. With an error in any file
/// nothing changes, and the answer holds every finding.
#[utoipa::path(
    post, path = "/v1/reload", tag = "admin",
    responses(
        (status = 200, body = ReloadView), (status = 422, body = RefusedReloadView),
        (status = 500, body = ErrorBody), (status = 503, body = ErrorBody), (status = 507, body = ErrorBody),
    ),
)]
pub(crate) async fn reload(State(app): State<App>) -> Result<Response, ApiError> {
    match app.config.reload().await? {
        Ok(reloaded) => Ok(Json(reloaded).into_response()),
        Err(ReloadRefusal::Files { message, found }) => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let error = ApiError::new(status, message).into_body();
            Ok((status, Json(RefusedReloadView { error, found })).into_response())
        }
        Err(ReloadRefusal::Journal(error)) => Err(ApiError::append(&error)),
        Err(ReloadRefusal::Failed(why)) => Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, why)),
    }
}
