//! Every task of the daemon, by name, and what its end means.
//!
//! A task is started here or not at all. A task that the daemon cannot do without stops it when it ends before shutdown; that
//! a connection ended badly is written down.
use std::future::Future;

use tokio::task::{JoinError, JoinSet};

/// What a task is, and so what its end means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskKind {
    /// Owns the engine; the daemon stops with it.
    EventLoop,
    /// Reads the configuration again when asked to; the daemon stops with it.
    Reloads,
    /// Looks for injections in transcripts; it has no end of its own.
    Transcripts,
    /// Accepts connections; the daemon stops with it.
    Listener,
    /// Writes snapshots until the event loop can hand over none.
    Snapshots,
    /// Writes to the message sockets of clients; the daemon stops with it.
    WakeRoutes,
    /// Closes the sessions whose processes end; it has no end of its own.
    Processes,
    /// Finds sessions whose turn was stopped without a hook; it has no end of its own.
    IdleSessions,
    /// Waits for something outside; it has no end of its own.
    Source,
}

impl TaskKind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::EventLoop => "event loop",
            Self::Reloads => "reader of the configuration",
            Self::Transcripts => "reader of transcripts",
            Self::Listener => "listener",
            Self::Snapshots => "snapshots",
            Self::WakeRoutes => "wake routes",
            Self::Processes => "watch over processes",
            Self::IdleSessions => "search for idle sessions",
            Self::Source => "source",
        }
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Why a task ended before it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// It said why.
    #[error("the {task} stopped")]
    Failed {
        /// Which task.
        task: &'static str,
        /// Why.
        source: Failure,
    },
    /// It ended without being asked to.
    #[error("the {task} ended without being asked to")]
    Ended {
        /// Which task.
        task: &'static str,
    },
    /// It panicked.
    #[error("the {task} panicked")]
    Panicked {
        /// Which task.
        task: &'static str,
        /// What it said.
        source: JoinError,
    },
}

/// The running tasks.
#[derive(Debug, Default)]
pub(super) struct Supervisor {
    tasks: JoinSet<(TaskKind, Result<(), Failure>)>,
    kinds: std::collections::HashMap<tokio::task::Id, TaskKind>,
}

impl Supervisor {
    /// Starts a task.
    pub(super) fn start<E>(
        &mut self,
        kind: TaskKind,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) where
        E: Into<Failure> + 'static,
    {
        let handle = self.tasks.spawn(async move { (kind, task.await.map_err(Into::into)) });
        self.kinds.insert(handle.id(), kind);
    }

    /// Waits until every task of `kind` has ended.
    ///
    /// Errors: the first task of any kind that failed while it was waited for.
    pub(super) async fn wait_for(&mut self, kind: TaskKind) -> Result<(), TaskError> {
        while self.kinds.values().any(|running| *running == kind) {
            if let Some(ended) = self.next_end().await {
                ended?;
            }
        }
        Ok(())
    }

    /// Waits for the next task to end; `None` when none is left. Cancel-safe.
    pub(super) async fn next_end(&mut self) -> Option<Result<TaskKind, TaskError>> {
        let ended = self.tasks.join_next_with_id().await?;
        Some(match ended {
            Ok((id, (kind, outcome))) => {
                self.kinds.remove(&id);
                outcome.map(|()| kind).map_err(|source| TaskError::Failed { task: kind.as_str(), source })
            }
            Err(source) => {
                let kind = self.kinds.remove(&source.id());
                let task = kind.map_or("task", TaskKind::as_str);
                Err(TaskError::Panicked { task, source })
            }
        })
    }
}
