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

use std::{fmt, io, time::Duration};

use tokio::signal::unix::{SignalKind, signal};

/// How long stopping may take before the rest is left to the next start.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// How long to wait for running requests and for sources; a client that neither sends nor reads must
/// not use up the time for the rest.
pub(super) const INTAKE_GRACE: Duration = Duration::from_secs(2);

/// The phase of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Intake,
    Drain,
    Sync,
    Close,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Intake => "intake",
            Self::Drain => "drain",
            Self::Sync => "sync",
            Self::Close => "close",
        })
    }
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
