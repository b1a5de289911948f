//! The failures that stop the journal from accepting records: temporarily a full disk, permanently
//! a failed write or sync.

use std::{io, path::PathBuf, sync::Arc};

/// There is no space for the next segment. The journal retries automatically; no appended record is
/// lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the disk is full: the journal needs {bytes} bytes in {} for its next file; until there is space, the remaining room is \
     for exchanges",
    folder.display()
)]
pub struct DiskFull {
    /// The folder of the journal.
    pub folder: PathBuf,
    /// The space that a segment needs, in bytes.
    pub bytes: u64,
}

impl DiskFull {
    /// Whether a file operation failed for lack of space.
    pub(crate) fn is_reason_of(error: &io::Error) -> bool {
        matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

/// A write or sync that failed, after which nothing more is appended.
///
/// After a failed sync the state of the disk is unknown, and a retry may succeed although the bytes
/// were not written.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the journal accepts no records since it failed to {operation} {}", path.display())]
pub struct Poisoned {
    /// The failed operation.
    pub operation: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub source: Arc<io::Error>,
}
