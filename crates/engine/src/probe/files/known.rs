//! The known files of a session, and their serialized form.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::facts::{ContentHash, Fingerprint};
use journal::time::Timestamp;

use crate::{call::TouchKind, sorted::SortedMap};

/// The known files of a session, by absolute path.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    pub(super) files: SortedMap<Arc<str>, File>,
    /// Number of notes so far, which is the number of the next one.
    pub(super) noted: u64,
}

/// The known state of one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// How the session accessed it: read, shown by a command, or written.
    pub(super) by: TouchKind,
    /// The state that the session knows, or of which it was notified later.
    pub(super) state: State,
    /// The content that it last read or wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) read: Option<ContentHash>,
    /// The session's own command made this state.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) is_own: bool,
    /// The session was notified of this state.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) is_announced: bool,
    /// A call that would have overwritten this state was deferred.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) is_held: bool,
    /// The state of the client's own announcement.
    #[serde(default, skip_serializing_if = "Said::is_open")]
    pub(super) said: Said,
    /// The number of its last note.
    #[serde(default)]
    pub(super) noted: u64,
}

/// State of the client's own announcement of a change.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    /// Not announced.
    #[default]
    Open,
    /// It may be announced with the request after an exchange.
    Awaited(Awaited),
    /// It was announced; the client announces no further change.
    Done,
}

/// A change that the client may announce itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Awaited {
    /// The state that it would announce.
    pub(super) state: State,
    /// Byte offset in the transcript from which the announcement is searched.
    pub(super) from: u64,
    /// Time of the first look that found the change.
    pub(super) since: Timestamp,
    /// Whether an exchange after that look had no announcement. The change is then a finding once
    /// [`WRITTEN_AFTER`](crate::transcript::WRITTEN_AFTER) has passed, or the file has changed
    /// again.
    pub(super) is_late: bool,
}

/// One state of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// The file exists.
    Present {
        /// Distinguishes this state from other states.
        print: Fingerprint,
        /// Its content; `None` if not hashed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hash: Option<ContentHash>,
        /// A later change may have the same time.
        #[serde(default, skip_serializing_if = "is_false")]
        is_racy: bool,
    },
    /// The file does not exist.
    Absent,
}

/// Changes of a session's known files: the new entry of each; `None` for an evicted one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Noted(pub(super) SortedMap<Arc<str>, Option<File>>);

/// The observed state of a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Observed {
    Present { print: Fingerprint, hash: Option<ContentHash> },
    Absent,
}

impl Known {
    /// Whether it has the file with this content; `None` means deleted.
    pub fn has(&self, path: &str, content: Option<ContentHash>) -> bool {
        match (self.files.get(path).map(|file| &file.state), content) {
            (Some(State::Present { hash: Some(known), .. }), Some(content)) => *known == content,
            (Some(State::Absent), None) => true,
            (Some(State::Present { .. } | State::Absent) | None, _) => false,
        }
    }
}

impl Noted {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Splits it into parts of at most `count` files.
    pub(in crate::probe) fn into_parts(self, count: usize) -> Vec<Self> {
        let (mut parts, mut files) = (Vec::new(), self.0.into_iter().peekable());
        while files.peek().is_some() {
            parts.push(Self(files.by_ref().take(count).collect()));
        }
        parts
    }
}

impl Known {
    /// The paths, absolute.
    pub fn paths(&self) -> impl Iterator<Item = &Arc<str>> {
        self.files.keys()
    }

    /// The devices on which the files were last seen.
    pub fn devices(&self) -> impl Iterator<Item = u64> {
        self.files.values().filter_map(|file| match &file.state {
            State::Present { print, .. } => Some(print.device),
            State::Absent => None,
        })
    }

    /// Number of files.
    pub(in crate::probe) fn len(&self) -> usize {
        self.files.len()
    }

    /// Applies a note.
    pub(in crate::probe) fn apply(&mut self, noted: Noted) {
        for (path, file) in noted.0 {
            match file {
                Some(file) => {
                    self.noted = self.noted.max(file.noted.saturating_add(1));
                    self.files.insert(path, file);
                }
                None => {
                    self.files.remove(&path);
                }
            }
        }
    }

    /// Whether this session made the current state of `path`, judged by its fingerprint.
    pub(super) fn wrote(&self, path: &str, now: &Observed) -> bool {
        let is_writer = |file: &File| file.is_own || file.by == TouchKind::Written && !file.is_announced;
        match now {
            Observed::Absent => {
                self.files.get(path).is_some_and(|file| file.is_own && file.state == State::Absent)
            }
            // Under any known path.
            Observed::Present { print, .. } => self.files.values().any(|file| match &file.state {
                State::Present { print: own, .. } => own == print && is_writer(file),
                State::Absent => false,
            }),
        }
    }
}

impl File {
    /// Whether a file with this fingerprint certainly has the known content.
    pub(super) fn is_print(&self, found: &Fingerprint) -> bool {
        matches!(&self.state, State::Present { print, is_racy: false, .. } if print == found)
    }
}

impl Observed {
    pub(super) const fn hash(self) -> Option<ContentHash> {
        match self {
            Self::Present { hash, .. } => hash,
            Self::Absent => None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Said {
    const fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }
}
