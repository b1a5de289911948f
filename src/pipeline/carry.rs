//! What the next notification has to tell of events that have no row in it.
//!
//! Repeats whose row has left and events that were over the rate are counted here, for each scope, until a notification
//! of the same scope takes the counts along. Every one of them has also ended with a reason of its own, so a count that
//! nothing takes along is a detail that was not told, not an event that is unaccounted for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{event::Scope, time::Timestamp};

/// Most scopes with counts, about 150 bytes each. When it is reached, the counts that were raised longest ago are
/// forgotten.
pub(crate) const CARRIED_SCOPES_MAX: usize = 1_024;

/// Events without a row of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Carried {
    /// Repeats of events whose row has left.
    pub(crate) repeats: u32,
    /// Events that were over the rate, with their repeats.
    pub(crate) suppressed: u32,
}

/// The counts of one subscriber.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Carry {
    scopes: BTreeMap<Scope, (Carried, Timestamp)>,
}

impl Carry {
    /// Counts `more` for `scope`.
    pub(crate) fn add(&mut self, scope: &Scope, more: Carried, now: Timestamp) {
        if self.scopes.len() >= CARRIED_SCOPES_MAX && !self.scopes.contains_key(scope) {
            self.forget_oldest();
        }
        let (carried, raised_at) = self.scopes.entry(scope.clone()).or_default();
        carried.repeats = carried.repeats.saturating_add(more.repeats);
        carried.suppressed = carried.suppressed.saturating_add(more.suppressed);
        *raised_at = now;
    }

    /// Takes what the next notification of `scope` has to tell.
    pub(crate) fn take(&mut self, scope: &Scope) -> Carried {
        self.scopes.remove(scope).map(|(carried, _)| carried).unwrap_or_default()
    }

    /// What waits for the next notification of `scope`.
    #[cfg(test)]
    pub(crate) fn peek(&self, scope: &Scope) -> Carried {
        self.scopes.get(scope).map(|(carried, _)| *carried).unwrap_or_default()
    }

    fn forget_oldest(&mut self) {
        let oldest = self.scopes.iter().min_by_key(|(_, (_, raised_at))| *raised_at);
        if let Some(scope) = oldest.map(|(scope, _)| scope.clone()) {
            self.scopes.remove(&scope);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SessionId;

    fn scope(id: usize) -> Scope {
        Scope::Session(SessionId::new(&id.to_string()))
    }

    #[test]
    fn counts_add_up_and_are_taken_once_and_by_their_own_scope() {
        let mut carry = Carry::default();
        let now = Timestamp::from_millis(1);
        carry.add(&scope(1), Carried { repeats: 2, suppressed: 0 }, now);
        carry.add(&scope(1), Carried { repeats: 1, suppressed: 5 }, now);
        carry.add(&scope(2), Carried { repeats: 7, suppressed: 0 }, now);
        assert_eq!(carry.take(&scope(1)), Carried { repeats: 3, suppressed: 5 });
        assert_eq!(carry.take(&scope(1)), Carried::default());
        assert_eq!(carry.take(&scope(2)), Carried { repeats: 7, suppressed: 0 });
    }

    #[test]
    fn the_counts_raised_longest_ago_make_room() {
        let mut carry = Carry::default();
        let one = Carried { repeats: 1, suppressed: 0 };
        for id in 0..=CARRIED_SCOPES_MAX {
            carry.add(&scope(id), one, Timestamp::from_millis(u64::try_from(id).expect("small")));
        }
        assert_eq!(carry.scopes.len(), CARRIED_SCOPES_MAX);
        assert_eq!((carry.take(&scope(0)), carry.take(&scope(1))), (Carried::default(), one));
    }
}
