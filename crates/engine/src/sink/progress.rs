//! Progress of a task: notices that replace one another.
//!
//! A newer notice of the same speaker with the same key replaces the older one. A notice with a
//! percentage is sent at most once in [`PACE`] per key. Those in between wait until then, unless a
//! newer one replaces them.

use std::{sync::Arc, time::Duration};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{hex::hex, sorted::SortedMap};

/// Longest key, in characters.
pub const KEY_CHARS_MAX: usize = 64;
/// The percentage of a finished task.
pub const DONE: u8 = 100;
/// The least time between two sent percentages of one key.
pub const PACE: Duration = Duration::from_secs(10);
/// Most remembered keys of a speaker; beyond that the least recently sent one is evicted.
pub const KEYS_MAX: usize = 8;
/// Bytes of the hash in [`Progress::line`].
const LINE_BYTES: usize = 8;

/// The key of the notices that replace one another, and the percentage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The speaker's name of the task.
    pub key: Arc<str>,
    /// From 0 to [`DONE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// Identifies the speaker and the key: 16 hexadecimal digits. Empty until the notice is queued.
    #[serde(default)]
    pub line: Arc<str>,
}

impl Progress {
    /// Progress with this key and percentage, without a speaker.
    pub fn new(key: &str, percent: Option<u8>) -> Self {
        Self { key: key.into(), percent, line: "".into() }
    }

    /// The same with the `line` of this speaker.
    pub(super) fn of(self, speaker: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(speaker);
        hash.update([0]);
        hash.update(&*self.key);
        Self { line: hex(hash.finalize().iter().take(LINE_BYTES)).into(), ..self }
    }

    /// Whether further progress is expected.
    pub fn goes_on(&self) -> bool {
        self.percent.is_some_and(|percent| percent < DONE)
    }
}

/// When the newest notice of each key of a speaker is sent.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Keys(SortedMap<Arc<str>, Timestamp>);

impl Keys {
    /// When a percentage of a known key is sent; `None` for an unknown key, or without a
    /// percentage.
    pub(super) fn next(&mut self, progress: &Progress, now: Timestamp) -> Option<Timestamp> {
        let percent = progress.percent?;
        let newest = *self.0.get(&progress.key)?;
        if percent >= DONE {
            // So it is sent at once, and later notices with this key are a new task.
            self.0.remove(&progress.key);
            return Some(now);
        }
        // A waiting notice is replaced by this one, which takes its time.
        let at = if newest > now { newest } else { now.max(newest + PACE) };
        self.0.insert(Arc::clone(&progress.key), at);
        Some(at)
    }

    /// Notes that a notice is sent at `now`.
    pub(super) fn note(&mut self, progress: &Progress, now: Timestamp) {
        if progress.percent.is_some_and(|percent| percent >= DONE) {
            self.0.remove(&progress.key);
            return;
        }
        if !self.0.contains_key(&progress.key) && self.0.len() >= KEYS_MAX {
            self.0.pop_least(|at| *at);
        }
        self.0.insert(Arc::clone(&progress.key), now);
    }
}
