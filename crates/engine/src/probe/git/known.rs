//! The known state of a session's repository.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{finding::Moved, reflog::Last, repository::Repository};
use journal::time::Timestamp;

/// Most of a session's own moves that are kept, so that other sessions can attribute them.
pub(super) const OWN_MAX: usize = 8;

/// The known state of a session's repository; empty before the first look.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    /// The folder that was searched for the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) workspace: Option<Arc<str>>,
    /// The repository, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) repository: Option<Repository>,
    /// The session's own last moves, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) own: Vec<Last>,
    /// Start of its running background command that may move HEAD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) background_since: Option<Timestamp>,
    /// Commits of the user that wait for the start of a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) open: Option<Moved>,
}

impl Known {
    /// The repository's folders, if there is one.
    pub(in crate::probe) fn folders(&self) -> impl Iterator<Item = &str> {
        self.repository.iter().flat_map(Repository::folders)
    }

    /// The top folder of the repository's files, if there is one.
    pub(in crate::probe) fn top(&self) -> Option<&str> {
        self.repository.as_ref().map(|repository| repository.top.as_str())
    }
}
