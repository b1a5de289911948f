//! A change of a known file, and its author.

use std::sync::Arc;

/// If a file changed less than this before a look, a later change may have the same time: the file
/// system's clock is that coarse.
pub(super) const RACY_MS: u64 = 10;

/// How a known file differs from its known state.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    Modified,
    Deleted,
    /// It is in the state that the session read before it was notified of another.
    Restored,
    /// It was renamed to this, in the same folder.
    Renamed(Arc<str>),
}

impl Change {
    /// The event type, and its last segment.
    pub(super) const fn words(&self) -> (&'static str, &'static str) {
        match self {
            Self::Modified => ("fs.known.modified", "modified"),
            Self::Deleted => ("fs.known.deleted", "deleted"),
            Self::Restored => ("fs.known.restored", "restored"),
            Self::Renamed(_) => ("fs.known.renamed", "renamed"),
        }
    }
}

/// The author of a file change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Author {
    /// The agent itself.
    Own,
    /// Another session; its display name.
    Other(String),
    /// Unknown.
    Unknown {
        /// An unrelated command of the agent ran at that time.
        during_a_command: bool,
    },
}
