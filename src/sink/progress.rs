//! How far a work is: notices that replace one another.
//!
//! A newer notice of the same speaker with the same key replaces the older one. One that says a
//! percentage goes out at most once in [`PACE`] for each key; what comes between waits until then,
//! unless a newer one replaces it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{hex::hex, time::Timestamp};

/// Longest key, in characters.
pub const KEY_CHARS_MAX: usize = 64;
/// The percentage of what is done.
pub const DONE: u8 = 100;
/// The least time between two percentages of one key that go out.
pub const PACE: Duration = Duration::from_secs(10);
/// Most keys of a speaker that are remembered; beyond it the one that was silent for longest is
/// forgotten.
pub const KEYS_MAX: usize = 8;
/// How many bytes of a hash name what is replaced.
const LINE_BYTES: usize = 8;

/// What a notice replaces, and how far that is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What its speaker calls it.
    pub key: Arc<str>,
    /// From 0 to [`DONE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// The same for all notices of one speaker and key: 16 hexadecimal digits. Empty until it is on
    /// its way.
    #[serde(default)]
    pub line: Arc<str>,
}

impl Progress {
    /// What replaces what else `speaker` says under `key`.
    pub fn new(key: &str, percent: Option<u8>) -> Self {
        Self { key: key.into(), percent, line: "".into() }
    }

    /// The same as `speaker` says it.
    pub(super) fn of(self, speaker: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(speaker);
        hash.update([0]);
        hash.update(&*self.key);
        Self { line: hex(hash.finalize().iter().take(LINE_BYTES)).into(), ..self }
    }

    /// Whether more of it is to come.
    pub fn goes_on(&self) -> bool {
        self.percent.is_some_and(|percent| percent < DONE)
    }
}

/// When the newest notice of each key of a speaker goes out.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Keys(BTreeMap<Arc<str>, Timestamp>);

impl Keys {
    /// When a percentage of a key goes out that is known; `None` for another key, or for no
    /// percentage.
    pub(super) fn next(&mut self, progress: &Progress, now: Timestamp) -> Option<Timestamp> {
        let percent = progress.percent?;
        let newest = *self.0.get(&progress.key)?;
        if percent >= DONE {
            // So it goes out at once, and what is said under the key from here on is another work.
            self.0.remove(&progress.key);
            return Some(now);
        }
        // What waits is replaced, and its place taken.
        let at = if newest > now { newest } else { now.max(newest + PACE) };
        self.0.insert(Arc::clone(&progress.key), at);
        Some(at)
    }

    /// Notes that a notice goes out at `now`.
    pub(super) fn note(&mut self, progress: &Progress, now: Timestamp) {
        if progress.percent.is_some_and(|percent| percent >= DONE) {
            self.0.remove(&progress.key);
            return;
        }
        if !self.0.contains_key(&progress.key) && self.0.len() >= KEYS_MAX {
            let silent = self.0.iter().min_by_key(|(_, at)| **at).map(|(key, _)| Arc::clone(key));
            self.0.remove(&silent.unwrap_or_default());
        }
        self.0.insert(Arc::clone(&progress.key), now);
    }
}
