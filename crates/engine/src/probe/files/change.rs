//! A change of a known file, and its author.

use std::sync::Arc;

/// A change within this time before a look may have the same time as a later change: the clock of
/// the file system has this resolution.
pub(super) const RACY_MS: u64 = 10;

/// The difference between a known file and its known state.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    Modified,
    Deleted,
    /// It has the state that the session read before it was notified of another one.
    Restored,
    /// It was renamed to this name, in the same folder.
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
