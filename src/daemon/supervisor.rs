//! The tasks of the daemon, by name, and the effect of the end of each.
//!
//! Every task is required: one that ends before shutdown stops the daemon. Connections and the
//! parts of a source are tasks of the listener and of the source.

use std::future::Future;

use tokio::task::{JoinError, JoinSet};

use crate::daemon::tasks::Task;

/// The type of a task, which decides the effect of its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskKind {
    /// Owns the engine.
    EventLoop,
    /// Reads the configuration again on request.
    Reloads,
    /// Looks for injections in transcripts.
    Transcripts,
    /// Accepts connections.
    Listener,
    /// Writes snapshots until the event loop cannot send any.
    Snapshots,
    /// Writes to the message sockets of clients.
    WakeRoutes,
    /// Closes the sessions whose processes end.
    Processes,
    /// Finds sessions whose turn was stopped without a hook.
    IdleSessions,
    /// Waits for external events.
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

/// Why a task ended early.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// With an error.
    #[error("the {task} stopped")]
    Failed {
        /// The task.
        task: &'static str,
        /// The cause.
        source: Failure,
    },
    /// It ended without an error.
    #[error("the {task} ended without being asked to")]
    Ended {
        /// The task.
        task: &'static str,
    },
    /// It panicked.
    #[error("the {task} panicked")]
    Panicked {
        /// The task.
        task: &'static str,
        /// The panic.
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
        let task: Task<_> = Box::pin(async move { (kind, task.await.map_err(Into::into)) });
        let handle = self.tasks.spawn(task);
        self.kinds.insert(handle.id(), kind);
    }

    /// Waits until every task of `kind` has ended.
    ///
    /// Errors: the first task of any kind that fails meanwhile.
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
