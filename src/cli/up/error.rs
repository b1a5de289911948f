//! Why the daemon does not run in the background.

use std::{io, path::PathBuf, time::Duration};

/// Time limit of the daemon's start: it reads its journal first.
pub(super) const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Why the daemon does not run in the background.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// A needed folder or file is not available.
    #[error("{doing} {}", path.display())]
    File {
        /// The purpose.
        doing: &'static str,
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Its process cannot be created or awaited.
    #[error("{doing}")]
    Process {
        /// The purpose.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// It ended before it was ready.
    #[error("the daemon ended before it was ready; from {}:\n{last_lines}", log.display())]
    Ended {
        /// Its log.
        log: PathBuf,
        /// The last lines of the log.
        last_lines: String,
    },
    /// It reported ready, and does not answer.
    #[error("the daemon was ready and does not answer; {} may show the reason", log.display())]
    Silent {
        /// Its log.
        log: PathBuf,
    },
    /// It is not ready yet.
    #[error("the daemon is still starting after {} s; {} shows its progress", READY_TIMEOUT.as_secs(), log.display())]
    Slow {
        /// Its log.
        log: PathBuf,
    },
}
