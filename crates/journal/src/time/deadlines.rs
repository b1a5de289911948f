//! Wake-up times: one per key, earliest first.

use std::{cmp::Reverse, collections::BinaryHeap, hash::Hash};

use hashbrown::HashMap;

use crate::time::Timestamp;

/// At most one deadline for each key.
///
/// Shape: indexed in both directions. Setting, removing and finding the earliest are logarithmic at
/// most; setting an unchanged one is one lookup.
#[derive(Debug)]
pub struct Deadlines<K: Ord> {
    /// Has each deadline, and some that were replaced or removed; the first is never one of these.
    by_time: Alarms<K>,
    /// Iterated in key order, or where the order is of no account.
    by_key: HashMap<K, Timestamp>,
}

impl<K: Ord> Default for Deadlines<K> {
    fn default() -> Self {
        Self { by_time: Alarms::default(), by_key: HashMap::new() }
    }
}

impl<K: Ord + Hash + Clone> Deadlines<K> {
    /// Replaces the deadline of `key`; `None` removes it.
    pub fn set(&mut self, key: K, at: Option<Timestamp>) {
        let previous = self.by_key.get(&key).copied();
        if previous == at {
            return;
        }
        match at {
            Some(at) => {
                self.by_key.insert(key.clone(), at);
                self.by_time.add(at, key);
            }
            None => {
                self.by_key.remove(&key);
            }
        }
        if self.by_time.is_stale(self.by_key.len()) {
            self.by_time = self.by_key.iter().map(|(key, at)| (*at, key.clone())).collect();
        }
        self.settle();
    }

    /// The earliest deadline.
    pub fn first(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| at)
    }

    /// Removes the keys whose deadline is at or before `now`, earliest first.
    pub fn take_due(&mut self, now: Timestamp) -> Vec<K> {
        let mut due = Vec::new();
        while let Some((_, key)) = self.by_time.first().filter(|(at, _)| *at <= now) {
            let key = key.clone();
            self.by_key.remove(&key);
            self.settle();
            due.push(key);
        }
        due
    }

    fn settle(&mut self) {
        let Self { by_time, by_key } = self;
        by_time.settle(|at, key| by_key.get(key) == Some(&at));
    }

    /// Every key with a deadline, in order.
    pub fn keys(&self) -> Vec<K> {
        let mut keys: Vec<K> = self.by_key.keys().cloned().collect();
        keys.sort_unstable();
        keys
    }
}

/// Number of stale alarms that a heap may hold, besides one for each valid alarm.
const STALE_MAX: usize = 16;

/// Keys by time.
///
/// Shape: a heap, so a key is added without a search. A stale alarm, which was replaced or removed,
/// stays until it is the first one, or until most are stale. The owner knows which ones are valid.
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

    /// Removes the first ones until one `is_valid`. Call it when one is stale.
    pub fn settle(&mut self, is_valid: impl Fn(Timestamp, &K) -> bool) {
        while self.first().is_some_and(|(at, key)| !is_valid(at, key)) {
            self.0.pop();
        }
    }

    /// Whether most are stale, if `valid` are valid; the owner then collects those.
    pub fn is_stale(&self, valid: usize) -> bool {
        self.0.len() > 2 * valid + STALE_MAX
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_one_deadline_earliest_first() {
        let at = Timestamp::from_millis;
        let mut deadlines = Deadlines::default();
        deadlines.set("a", Some(at(30)));
        deadlines.set("b", Some(at(20)));
        deadlines.set("a", Some(at(10)));
        assert_eq!(deadlines.first(), Some(at(10)));
        deadlines.set("a", None);
        assert_eq!(deadlines.first(), Some(at(20)));
        assert_eq!(deadlines.take_due(at(19)), Vec::<&str>::new());
        assert_eq!(deadlines.take_due(at(20)), ["b"]);
        assert_eq!((deadlines.first(), deadlines.keys()), (None, vec![]));
    }

    #[test]
    fn replaced_deadlines_leave_no_trace() {
        let at = Timestamp::from_millis;
        let mut deadlines = Deadlines::default();
        for turn in 0..1_000 {
            deadlines.set("often", Some(at(turn % 7)));
            deadlines.set("late", Some(at(5_000 - turn)));
        }
        assert!(!deadlines.by_time.is_stale(2));
        assert_eq!(deadlines.take_due(at(4_001)), ["often", "late"]);
        assert_eq!(deadlines.first(), None);
    }
}
