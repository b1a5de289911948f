//! The tasks of the daemon, by name, the effect of the end of each, and the end of all of them.
//!
//! Every task is required: one that ends before shutdown stops the daemon. Connections and the
//! parts of a source are tasks of the listener and of the source.
//!
//! Stop signals, and the four phases of stopping.
//!
//! 1. Intake: listeners accept nothing more; running requests finish, and sources publish what they
//!    have handed over.
//! 2. Drain: open batches close and the engine reaches the journal's head.
//! 3. Sync: everything written is made durable, and a snapshot is written, so that the next start
//!    reads only the snapshot.
//! 4. Close: the socket is removed, the lock is released.
//!
//! All phases together have [`GRACE`], the first one [`INTAKE_GRACE`]. A kill in any phase loses no
//! written record: the next start replays them.

use std::{future::Future, io, time::Duration};

use tokio::{
    signal::unix::{SignalKind, signal},
    task::{JoinError, JoinSet},
};

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

/// How long stopping may take before the rest is left to the next start.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// How long to wait for running requests and for sources; a client that neither sends nor reads must
/// not use up the time for the rest.
pub(super) const INTAKE_GRACE: Duration = Duration::from_secs(2);

/// The phase of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub(super) enum Phase {
    Intake,
    Drain,
    Sync,
    Close,
}

/// The signals that the daemon handles.
pub(super) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

/// The request of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// With the name of the signal.
    Stop(&'static str),
    Reload,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal. Cancel-safe.
    pub(super) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Stop("SIGINT"),
            _ = self.terminate.recv() => Asked::Stop("SIGTERM"),
            _ = self.hang_up.recv() => Asked::Reload,
        }
    }
}

/// The service manager's watchdog.
#[derive(Debug, Clone, Copy)]
pub struct Watcher {
    /// Its timeout.
    pub limit: Duration,
    /// Sends the keep-alive.
    pub say: fn(),
}

/// Reports to the service manager that the event loop is running: when the next report is due.
///
/// A daemon with a stuck loop answers no request and does not exit, so it is not restarted. A
/// service manager with a watchdog (`WatchdogSec=` of systemd) ends a process that has not sent
/// `WATCHDOG=1` within that time. The loop itself sends it: a separate thread would still send it
/// when the loop is stuck.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// `None` without a watchdog.
    watcher: Option<Watcher>,
    /// When the last keep-alive was sent, by the monotonic clock.
    said: Duration,
}

impl Watchdog {
    /// Creates a schedule with an interval of half the watchdog's limit.
    ///
    /// Source: `sd_watchdog_enabled(3)`.
    pub(super) fn new(watcher: Option<Watcher>, now: Duration) -> Self {
        Self { watcher, said: now }
    }

    fn every(&self) -> Option<Duration> {
        self.watcher.map(|watcher| watcher.limit / 2)
    }

    /// Shortens a sleep of `wait` to when the next keep-alive is due.
    pub(super) fn until_next(&self, wait: Option<Duration>, now: Duration) -> Option<Duration> {
        let due = self.every().map(|every| (self.said + every).saturating_sub(now));
        wait.into_iter().chain(due).min()
    }

    /// Sends a keep-alive if it is due.
    pub(super) fn say(&mut self, now: Duration) {
        let Some(watcher) = self.watcher else { return };
        if self.every().is_some_and(|every| now.saturating_sub(self.said) >= every) {
            self.said = now;
            (watcher.say)();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    static SAID: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn watchdog_reports_twice_per_service_manager_limit() {
        let seconds = Duration::from_secs;
        let say = || {
            SAID.fetch_add(1, Ordering::Relaxed);
        };
        let watcher = Watcher { limit: seconds(30), say };
        let mut watchdog = Watchdog::new(Some(watcher), seconds(100));
        for (now, said) in [(100, 0), (114, 0), (115, 1), (129, 1), (130, 2), (170, 3)] {
            watchdog.say(seconds(now));
            assert_eq!(SAID.load(Ordering::Relaxed), said, "{now}");
        }
        for (now, wait, until_next) in [
            (170, None, 15),
            (184, None, 1),
            (184, Some(seconds(15)), 1),
            (184, Some(Duration::ZERO), 0),
            (190, Some(seconds(2)), 0),
        ] {
            assert_eq!(watchdog.until_next(wait, seconds(now)), Some(seconds(until_next)), "{now}");
        }
        assert_eq!(Watchdog::new(None, seconds(100)).until_next(None, seconds(100)), None);
    }
}
