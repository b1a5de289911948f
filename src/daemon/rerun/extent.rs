//! What a replay read, and why it cannot.

use std::{io, path::PathBuf, sync::Arc};

use engine::{event::Seq, notification::SubscriberId};
use journal::{OpenError, ReadError, time::Timestamp};

use crate::daemon::{fold::FoldError, maintenance::MaintenanceError};

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// The first record of the journal; later than 1 if retention has deleted earlier ones.
    pub first: Seq,
    /// The snapshot that the replay began with: its last record.
    pub snapshot: Option<Seq>,
    /// The time of the first record that was read; zero if none was.
    pub begins_at: Timestamp,
    /// The last record that was read.
    pub last: Seq,
    /// Its time.
    pub last_at: Timestamp,
    /// Events since the counting begins.
    pub events: u64,
    /// Exchanges since then.
    pub exchanges: u64,
    /// The times of which the rules are gone.
    pub lost: Vec<LostRules>,
    /// The subscribers that were stopped.
    pub stopped: Vec<Stopped>,
}

/// A time of which the rules are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRules {
    /// Their hash.
    pub hash: Arc<str>,
    /// When they began.
    pub from: Timestamp,
    /// When they ended; `None` if they are the last ones.
    pub until: Option<Timestamp>,
    /// Why the ledger of that time cannot be read either; nothing of then is known then.
    pub no_ledger: Option<String>,
}

/// A subscriber whose text or condition ran for too long now, so that it was left out from there on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// The subscriber.
    pub subscriber: SubscriberId,
    /// The record.
    pub at: Seq,
    /// The message of the failure.
    pub why: String,
}

/// Why nothing can be compared.
#[derive(Debug, thiserror::Error)]
pub enum RerunError {
    /// The state folder has no journal that can be used.
    #[error(transparent)]
    Folder(#[from] MaintenanceError),
    /// The folder of the snapshots cannot be read.
    #[error("list the snapshots in {}", path.display())]
    Snapshots {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The journal cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A record is damaged, or a file cannot be read.
    #[error("replay the journal; `aside journal verify` lists the damage")]
    Read(#[from] ReadError),
    /// A record does not have the form of its kind.
    #[error("replay the journal; `aside journal verify` checks the others")]
    Fold(#[from] FoldError),
    /// An engine failed on a record.
    #[error("replay the journal: the program failed on it; report this error")]
    Failed,
}
