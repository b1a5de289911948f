//! Finds notifications by their states and conditions.

use std::sync::Arc;

use super::Queue;
use crate::notification::{Notification, Resolution, StateKey};
use crate::{
    conversation::injector::entry::{Entry, Key},
    sorted::{SortedMap, SortedSet},
};

impl Queue {
    /// Removes the notifications that `newer` supersedes, in order.
    pub(in crate::conversation::injector) fn take_superseded(&mut self, newer: &Notification) -> Vec<Entry> {
        let candidates = newer.states.iter().flat_map(|state| self.with_state(state.key));
        let superseded: SortedSet<Key> = candidates
            .filter(|(_, entry)| entry.notification.is_superseded_by(newer))
            .map(|(key, _)| key)
            .collect();
        superseded.into_iter().filter_map(|key| self.remove(key)).collect()
    }

    /// Whether a pending notification supersedes `older`.
    pub(in crate::conversation::injector) fn supersedes(&self, older: &Notification) -> bool {
        let Some(state) = older.states.first() else { return false };
        self.with_state(state.key).any(|(_, entry)| older.is_superseded_by(&entry.notification))
    }

    /// Removes the notifications that `resolution` leaves empty, in order.
    pub(in crate::conversation::injector) fn take_resolved(&mut self, resolution: &Resolution) -> Vec<Entry> {
        let candidates = resolution.keys.iter().flat_map(|key| self.with_state(*key));
        let changed: SortedMap<Key, Arc<Notification>> = candidates
            .filter_map(|(key, entry)| Some((key, resolution.applied_to(&entry.notification)?)))
            .collect();
        let mut resolved = Vec::new();
        for (key, notification) in changed {
            let Some(entry) = self.remove(key) else { continue };
            let entry = Entry { notification, ..entry };
            if entry.notification.is_resolved() {
                resolved.push(entry);
            } else {
                self.restore(entry);
            }
        }
        resolved
    }

    /// The notifications with a row about a state or condition.
    fn with_state(&self, state: StateKey) -> impl Iterator<Item = (Key, &Entry)> {
        let of_state = self.by_state.range_from(&(state, Key::FIRST)).iter();
        let keys = of_state.take_while(move |(of, _)| *of == state).map(|(_, key)| *key);
        keys.filter_map(|key| Some((key, self.entries.get(&key)?)))
    }
}
