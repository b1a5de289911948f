//! What comes when, soonest first.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::Timestamp;

/// Most alarms that count no more, beside as many as those that count.
const GONE_MAX: usize = 16;

/// Keys by time.
///
/// Shape: a heap, so a key is added without a search, and one that counts no more stays until it is
/// the first, or until most count no more. The owner knows which ones count.
#[derive(Debug)]
pub struct Alarms<K: Ord>(BinaryHeap<Reverse<(Timestamp, K)>>);

impl<K: Ord> Alarms<K> {
    /// Adds a key.
    pub fn add(&mut self, at: Timestamp, key: K) {
        self.0.push(Reverse((at, key)));
    }

    /// The first one, by time and then by key.
    pub fn first(&self) -> Option<(Timestamp, &K)> {
        self.0.peek().map(|Reverse((at, key))| (*at, key))
    }

    /// Removes the first ones until one `counts`. Call it after one counts no more.
    pub fn settle(&mut self, counts: impl Fn(Timestamp, &K) -> bool) {
        while self.first().is_some_and(|(at, key)| !counts(at, key)) {
            self.0.pop();
        }
    }

    /// Whether most count no more, if `count` do; the owner then collects those that do.
    pub fn is_stale(&self, count: usize) -> bool {
        self.0.len() > 2 * count + GONE_MAX
    }
}

impl<K: Ord> Default for Alarms<K> {
    fn default() -> Self {
        Self(BinaryHeap::new())
    }
}

impl<K: Ord> FromIterator<(Timestamp, K)> for Alarms<K> {
    fn from_iter<I: IntoIterator<Item = (Timestamp, K)>>(alarms: I) -> Self {
        Self(alarms.into_iter().map(Reverse).collect())
    }
}
