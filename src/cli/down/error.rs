//! Why a daemon was not stopped.

use std::{io, path::PathBuf};

/// Time limit of the stop: twice the daemon's own limit.
pub(super) const STOP_SECONDS: i64 = 10;

/// Why a daemon was not stopped.
#[derive(Debug, thiserror::Error)]
pub enum DownError {
    /// The lock of the state folder cannot be read, or does not identify its holder.
    #[error("read {}", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The process cannot be signalled.
    #[error("ask process {pid} to stop")]
    Signal {
        /// The process.
        pid: i32,
        /// Why.
        source: io::Error,
    },
    /// Its lock file was deleted, and it does not answer.
    #[error(
        "a daemon holds the state folder {}, but its lock file was deleted and the socket does not answer: stop its process manually",
        state.display()
    )]
    Unknown {
        /// The state folder.
        state: PathBuf,
    },
    /// It does not stop.
    #[error("process {pid} did not stop within {STOP_SECONDS} s; its log may show the reason")]
    Stays {
        /// The process.
        pid: i32,
    },
}
