//! Problems of a running journal that do not stop it, kept until they are solved or the process
//! ends.
//!
//! Code that finds damage (the sealer thread, a reader) notes it here, so that it is shown and not
//! only logged.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{Seq, log::clock::Clock, time::Timestamp};

/// Most damaged places that are stored; further ones are only counted.
pub const DAMAGED_PLACES_MAX: usize = 16;

/// What to do about damaged records.
pub(crate) const ADVICE: &str =
    "`aside journal verify` lists the damage, `aside journal repair` keeps the valid records";

/// The problems of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournalHealth {
    /// Places that could not be read or sealed, in the order in which they were found; at most
    /// [`DAMAGED_PLACES_MAX`].
    pub damaged: Vec<DamagedPlace>,
    /// Number of further damaged places.
    pub more: u64,
    /// The segment that retention could not delete; nothing is deleted while it is set.
    pub retention_blocked: Option<DamagedPlace>,
    /// The records that the start skipped, and the reasons.
    pub skipped: Vec<(Seq, String)>,
    /// The paths of snapshots that belong to another journal.
    pub unmatched_snapshots: Vec<PathBuf>,
}

/// A problem of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedPlace {
    /// The file.
    pub path: PathBuf,
    /// The offset in it, in bytes, if known.
    pub offset: Option<u64>,
    /// The problem.
    pub what: String,
    /// When it was found.
    pub since: Timestamp,
}

impl JournalHealth {
    /// One sentence per problem, for the user.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences: Vec<String> = self
            .damaged
            .iter()
            .map(|place| match place.offset {
                Some(offset) => {
                    format!("{} is damaged at byte {offset}: {}; {ADVICE}", place.path.display(), place.what)
                }
                None => format!("{}: {}", place.path.display(), place.what),
            })
            .collect();
        if self.more > 0 {
            sentences.push(format!("{} more damaged places of the journal; {ADVICE}", self.more));
        }
        sentences.extend(self.retention_blocked.iter().map(|place| {
            format!(
                "retention deletes nothing, because {} cannot be deleted: {}; retried with the next segment",
                place.path.display(),
                place.what
            )
        }));
        sentences.extend(self.skipped.iter().map(|(seq, why)| {
            format!("the start skipped record {seq}: {why}; it had no effect, and `aside why` of its event says so")
        }));
        sentences.extend(self.unmatched_snapshots.iter().map(|path| {
            format!(
                "the journal lost its end or is an older copy: the snapshot {} is ahead of it and is not used",
                path.display()
            )
        }));
        sentences
    }
}

/// Collects problems from all parts of a journal.
pub(crate) struct Health {
    clock: Clock,
    state: Mutex<JournalHealth>,
}

impl Health {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default() }
    }

    pub(crate) fn get(&self) -> JournalHealth {
        self.lock().clone()
    }

    /// Adds a damaged place, unless it is known; returns whether it is new.
    pub(crate) fn note_damage(&self, path: &Path, offset: Option<u64>, what: String) -> bool {
        let since = (self.clock)();
        let mut state = self.lock();
        if state.damaged.iter().any(|place| place.path == path && place.offset == offset) {
            return false;
        }
        if state.damaged.len() == DAMAGED_PLACES_MAX {
            state.more += 1;
        } else {
            state.damaged.push(DamagedPlace { path: path.to_owned(), offset, what, since });
        }
        true
    }

    /// Notes that a segment cannot be deleted.
    pub(crate) fn block_retention(&self, path: &Path, what: String) {
        let since = (self.clock)();
        let mut state = self.lock();
        let place = DamagedPlace { path: path.to_owned(), offset: None, what, since };
        state.retention_blocked.get_or_insert(place);
    }

    /// Notes that a start skipped a record.
    pub(crate) fn note_skipped(&self, seq: Seq, why: String) {
        self.lock().skipped.push((seq, why));
    }

    /// Notes that a start found a snapshot of another journal.
    pub(crate) fn note_unmatched_snapshot(&self, path: PathBuf) {
        self.lock().unmatched_snapshots.push(path);
    }

    /// Notes that deleting works again.
    pub(crate) fn unblock_retention(&self) {
        self.lock().retention_blocked = None;
    }

    fn lock(&self) -> MutexGuard<'_, JournalHealth> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("state", &self.state).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn repair_is_advised_only_for_damage_with_offset() {
        let health = Health::new(Arc::new(|| Timestamp::from_millis(7)));
        health.note_damage(Path::new("a.seg"), Some(30), "bad".to_owned());
        health.note_damage(Path::new("b.seg"), None, "no thread".to_owned());
        let expected = [format!("a.seg is damaged at byte 30: bad; {ADVICE}"), "b.seg: no thread".to_owned()];
        assert_eq!(health.get().sentences(), expected);
    }

    #[test]
    fn damaged_places_are_deduplicated_and_bounded() {
        let health = Health::new(Arc::new(|| Timestamp::from_millis(7)));
        assert_eq!(health.get(), JournalHealth::default());
        let path = Path::new("a.seg");
        for _ in 0..2 {
            health.note_damage(path, Some(30), "bad".to_owned());
        }
        let place = DamagedPlace {
            path: path.to_owned(),
            offset: Some(30),
            what: "bad".to_owned(),
            since: Timestamp::from_millis(7),
        };
        assert_eq!(health.get().damaged, [place]);
        for offset in 0..20 {
            health.note_damage(path, Some(offset), "bad".to_owned());
        }
        health.block_retention(path, "no".to_owned());
        let found = health.get();
        assert_eq!((found.damaged.len(), found.more), (DAMAGED_PLACES_MAX, 5));
        assert_eq!(found.sentences().len(), DAMAGED_PLACES_MAX + 2);
        health.unblock_retention();
        assert_eq!(health.get().retention_blocked, None);
    }
}
