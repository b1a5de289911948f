//! Rules that were compiled outside the event loop, kept until it reaches the record that names
//! them.
//!
//! A `rules` record contains a hash. The task that appends one has already compiled the rules, to
//! find their errors. Passing them on saves the loop that work, during which every exchange would
//! wait. A replay, and a loop that reads an older record, compile the bundle.

use std::sync::{Arc, Mutex, PoisonError};

use crate::capability::outside::Generation;

/// Holds the most recently compiled rules.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadyRules(Arc<Mutex<Option<Generation>>>);

impl ReadyRules {
    /// Stores rules, replacing earlier ones.
    pub(super) fn put(&self, rules: Generation) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(rules);
    }

    /// The rules with this hash, if they are the stored ones.
    pub(super) fn get(&self, hash: &str) -> Option<Generation> {
        let ready = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ready.as_ref().filter(|ready| &*ready.rules.hash == hash).cloned()
    }
}
