//! The known files of a session, their serialized form, and how one of them changed.

use std::{ops::Not, sync::Arc};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};
use similar::{Algorithm, DiffOp, capture_diff_slices};
use strum::{IntoStaticStr, VariantArray};

use super::super::facts::{ContentHash, Fingerprint};
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
    #[serde(default, skip_serializing_if = "Not::not")]
    pub(super) is_own: bool,
    /// The session was notified of this state.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub(super) is_announced: bool,
    /// A call that would have overwritten this state was deferred.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub(super) is_held: bool,
    /// The state of the client's own announcement.
    #[serde(default, skip_serializing_if = "ClientReport::is_open")]
    pub(super) said: ClientReport,
    /// The number of its last note.
    #[serde(default)]
    pub(super) noted: u64,
}

/// State of the client's own announcement of a change.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClientReport {
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
        #[serde(default, skip_serializing_if = "Not::not")]
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

    pub(in crate::probe) fn len(&self) -> usize {
        self.files.len()
    }

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

impl ClientReport {
    const fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }
}

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

impl_as_str!(Guard);

/// Whether calls are deferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Guard {
    /// No call is deferred.
    #[default]
    Off,
    /// A call that would overwrite a change unknown to the agent.
    Overwrite,
}

/// Most lines between the equal prefix and the equal suffix that are compared one by one; more
/// count as one range. The comparison is quadratic if all lines differ: some milliseconds at this
/// limit.
const COMPARED_LINES_MAX: usize = 1_000;
const RANGES_MAX: usize = 5;

/// The lines of `new` that differ from `old`, such as `41-44, 90`; `None` if they are equal.
///
/// Shape: numbers from 1. For deleted lines, the number of the line now at their place. Ranges
/// after the fifth are counted: `+2`.
pub(super) fn changed_lines(old: &str, new: &str) -> Option<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let begin = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let rest = |lines: &[&str]| lines.len() - begin;
    let end_max = rest(&old).min(rest(&new));
    let end =
        old.iter().rev().zip(new.iter().rev()).take(end_max).take_while(|(old, new)| old == new).count();
    let inner_old = old.get(begin..old.len() - end).expect("the equal ends do not overlap");
    let inner_new = new.get(begin..new.len() - end).expect("the equal ends do not overlap");
    if inner_old.is_empty() && inner_new.is_empty() {
        return None;
    }
    let ranges = if inner_old.len().max(inner_new.len()) > COMPARED_LINES_MAX {
        vec![(0, inner_new.len())]
    } else {
        compared(inner_old, inner_new)
    };
    let shown = ranges.iter().take(RANGES_MAX).map(|(from, length)| {
        let first = begin + from + 1;
        if *length > 1 { format!("{first}-{}", begin + from + length) } else { first.to_string() }
    });
    let more = ranges.len().saturating_sub(RANGES_MAX);
    let more = (more > 0).then(|| format!("+{more}"));
    Some(shown.chain(more).collect::<Vec<_>>().join(", "))
}

/// The ranges of `new` that are not in `old`, by start and length.
fn compared(old: &[&str], new: &[&str]) -> Vec<(usize, usize)> {
    let changes = capture_diff_slices(Algorithm::Myers, old, new);
    let range = |change: DiffOp| match change {
        DiffOp::Equal { .. } => None,
        DiffOp::Delete { new_index, .. } => Some((new_index, 0)),
        DiffOp::Insert { new_index, new_len, .. } | DiffOp::Replace { new_index, new_len, .. } => {
            Some((new_index, new_len))
        }
    };
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (from, length) in changes.into_iter().filter_map(range) {
        match ranges.last_mut() {
            Some((before, before_length)) if *before + *before_length == from => *before_length += length,
            _ => ranges.push((from, length)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_of_the_new_text() {
        for (old, new, expected) in [
            ("a\nb\nc\n", "a\nB\nc\n", Some("2")),
            ("a\nb\nc\n", "a\nb\nc\n", None),
            ("a\nb\n", "a\nb\nc\nd\n", Some("3-4")),
            ("a\nb\nc\n", "a\nc\n", Some("2")),
            ("a\nb\nc\nd\ne\n", "A\nb\nC\nD\ne\n", Some("1, 3-4")),
            ("", "a\n", Some("1")),
            ("a\n", "", Some("1")),
            ("a\na\na\n", "a\na\n", Some("3")),
            (
                "1\nx\n2\nx\n3\nx\n4\nx\n5\nx\n6\nx\n7\n",
                "_\nx\n_\nx\n_\nx\n_\nx\n_\nx\n_\nx\n_\n",
                Some("1, 3, 5, 7, 9, +2"),
            ),
        ] {
            assert_eq!(changed_lines(old, new).as_deref(), expected, "{old:?} -> {new:?}");
        }
    }

    #[test]
    fn texts_too_large_to_compare_yield_one_range() {
        let text = |mark: &str| (0..3_000).map(|line| format!("{mark}{line}\n")).collect::<String>();
        assert_eq!(changed_lines(&text("a"), &text("b")).as_deref(), Some("1-3000"));
        assert_eq!(
            changed_lines(&format!("x\n{}y\n", text("a")), &format!("x\n{}y\n", text("b"))).as_deref(),
            Some("2-3001")
        );
    }
}
