//! Rules that were compiled beside the event loop, until it comes to the record that names them.
//!
//! A `rules` record holds a hash. Whoever appends one has compiled the rules already, to find their errors; handed over here they
//! spare the loop the same work, during which every exchange would wait. A replay, and a loop that meets an older record, compile
//! the bundle.

use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::CompiledRules;

/// The place of the rules that were compiled last.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadyRules(Arc<Mutex<Option<Arc<CompiledRules>>>>);

impl ReadyRules {
    /// Hands rules over, in place of earlier ones.
    pub(super) fn put(&self, rules: Arc<CompiledRules>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(rules);
    }

    /// The rules with this hash, if they are those that were handed over last.
    pub(super) fn get(&self, hash: &str) -> Option<Arc<CompiledRules>> {
        let ready = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ready.as_ref().filter(|rules| &*rules.hash == hash).cloned()
    }
}
