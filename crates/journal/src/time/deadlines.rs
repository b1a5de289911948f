//! Wake-up times: one per key, earliest first.

use std::{collections::BTreeSet, hash::Hash};

use hashbrown::HashMap;

use super::Timestamp;

/// At most one deadline for each key.
///
/// Shape: indexed in both directions. Setting, removing and finding the earliest are logarithmic at
/// most; setting an unchanged one is one lookup.
#[derive(Debug)]
pub struct Deadlines<K> {
    by_time: BTreeSet<(Timestamp, K)>,
    /// Iterated in key order only.
    by_key: HashMap<K, Timestamp>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), by_key: HashMap::new() }
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
            Some(at) => self.by_key.insert(key.clone(), at),
            None => self.by_key.remove(&key),
        };
        if let Some(previous) = previous {
            self.by_time.remove(&(previous, key.clone()));
        }
        if let Some(at) = at {
            self.by_time.insert((at, key));
        }
    }

    /// The earliest deadline.
    pub fn first(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Removes the keys whose deadline is at or before `now`, earliest first.
    pub fn take_due(&mut self, now: Timestamp) -> Vec<K> {
        let mut due = Vec::new();
        while let Some((at, key)) = self.by_time.pop_first() {
            if at > now {
                self.by_time.insert((at, key));
                break;
            }
            self.by_key.remove(&key);
            due.push(key);
        }
        due
    }

    /// Every key with a deadline, in order.
    pub fn keys(&self) -> Vec<K> {
        let mut keys: Vec<K> = self.by_key.keys().cloned().collect();
        keys.sort_unstable();
        keys
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
}
