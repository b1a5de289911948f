//! The conditions that were dismissed. A later report of one is not delivered until the condition was
//! resolved, unless it is more urgent than what was dismissed.
//!
//! Shape: bounded in number; the one that was dismissed first is forgotten.

use serde::{Deserialize, Serialize};

use super::resolved_in::{Reach, ResolvedIn};
use crate::{
    event::Scope,
    notification::{Nature, Notification, Priority, Resolution, State, StateKey, SubscriberId},
    sorted::{SortedMap, SortedSet},
};

/// Most dismissed conditions.
const DISMISSED_MAX: usize = 4_096;

/// The dismissed conditions.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Dismissed {
    of: SortedMap<(SubscriberId, StateKey), Vec<Dismissal>>,
    arrivals: u64,
    /// Number of changes of what is dismissed, since the start of the process.
    #[serde(skip)]
    changes: u64,
}

/// A condition that was dismissed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Dismissal {
    /// Its newest report.
    state: State,
    /// The sessions in which it was dismissed.
    scope: Scope,
    /// The priority of what was dismissed.
    priority: Priority,
    /// Where it was resolved since.
    #[serde(default, skip_serializing_if = "ResolvedIn::is_empty")]
    resolved_in: ResolvedIn,
    arrival: u64,
}

impl Dismissal {
    /// Whether it is for all sessions of a notification.
    pub(super) fn is_for_all(&self, notification: &Notification) -> bool {
        self.scope.covers(&notification.scope) && self.resolved_in.is_empty()
    }

    /// Whether it is for a session, by the scopes that concern it.
    pub(super) fn is_for(&self, is_concerned_by: impl Fn(&Scope) -> bool) -> bool {
        is_concerned_by(&self.scope) && !self.resolved_in.concerns(&is_concerned_by)
    }
}

impl Dismissed {
    /// Notes that the conditions of a notification were dismissed in the sessions of `scope`.
    pub(super) fn note(&mut self, notification: &Notification, scope: &Scope) {
        for state in &notification.unresolved {
            self.arrivals += 1;
            let of_state = self.of.get_or_default((notification.subscriber.clone(), state.key));
            of_state.retain(|own| !scope.covers(&own.scope));
            of_state.push(Dismissal {
                state: state.clone(),
                scope: scope.clone(),
                priority: notification.priority,
                resolved_in: ResolvedIn::default(),
                arrival: self.arrivals,
            });
        }
        self.changes += 1;
        while self.len() > DISMISSED_MAX {
            let first = self.of.values().flatten().map(|own| own.arrival).min();
            self.retain(|_, own| Some(own.arrival) != first);
        }
    }

    /// Takes a notification that was made: a more urgent report of a condition ends its dismissal, and any
    /// other is the newest report of it.
    pub(super) fn take_report(&mut self, notification: &Notification) {
        if self.of.is_empty() || notification.unresolved.is_empty() {
            return;
        }
        for state in &notification.unresolved {
            let Some(of_state) = self.of.get_mut(&(notification.subscriber.clone(), state.key)) else {
                continue;
            };
            let before = of_state.len();
            of_state.retain(|own| own.priority >= notification.priority);
            self.changes += (before - of_state.len()) as u64;
            for own in of_state.iter_mut().filter(|own| state.replaces(&own.state)) {
                own.state = state.clone();
            }
        }
        self.of.retain(|_, of_state| !of_state.is_empty());
    }

    /// Whether a notification has only conditions that `is_meant` says are dismissed.
    pub(super) fn has(&self, notification: &Notification, is_meant: impl Fn(&Dismissal) -> bool) -> bool {
        let is_dismissed = |state: &State| {
            let of_state = self.of.get(&(notification.subscriber.clone(), state.key));
            of_state.is_some_and(|of_state| {
                of_state.iter().any(|own| own.priority >= notification.priority && is_meant(own))
            })
        };
        !self.of.is_empty()
            && notification.nature == Nature::Condition
            && !notification.unresolved.is_empty()
            && notification.unresolved.iter().all(is_dismissed)
    }

    /// Applies a resolution: a condition that comes again after it is delivered.
    pub(super) fn resolve(&mut self, resolution: &Resolution) {
        for key in &resolution.keys {
            let Some(of_state) = self.of.get_mut(&(resolution.subscriber.clone(), *key)) else { continue };
            of_state.retain_mut(|own| {
                match own.resolved_in.reach(resolution, &resolution.subscriber, &own.scope) {
                    Reach::Everywhere => !resolution.ends(&own.state),
                    Reach::Part => {
                        own.resolved_in.note(resolution, std::slice::from_ref(&own.state));
                        true
                    }
                    Reach::Nowhere => true,
                }
            });
            self.changes += 1;
        }
        self.of.retain(|_, of_state| !of_state.is_empty());
    }

    /// Forgets those of `subscribers`: nothing resolves their conditions any more.
    pub(super) fn forget_of(&mut self, subscribers: &SortedSet<SubscriberId>) {
        self.retain(|subscriber, _| !subscribers.contains(subscriber));
    }

    /// Whether nothing is dismissed.
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Number of changes of what is dismissed, since the start of the process.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    fn retain(&mut self, is_kept: impl Fn(&SubscriberId, &Dismissal) -> bool) {
        self.of.retain(|(subscriber, _), of_state| {
            of_state.retain(|own| is_kept(subscriber, own));
            !of_state.is_empty()
        });
        self.changes += 1;
    }

    fn len(&self) -> usize {
        self.of.values().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Seq, SessionId};

    fn report(seq: u64, priority: Priority) -> Notification {
        let state = State { key: StateKey(1), seq: Seq(seq), version: None };
        let example = Notification::example(&format!("n{seq}"), priority);
        Notification { unresolved: vec![state], nature: Nature::Condition, ..example }
    }

    fn resolution(seq: u64, scope: Scope) -> Resolution {
        let (subscriber, keys) = (SubscriberId::new("s"), vec![StateKey(1)]);
        Resolution { subscriber, seq: Seq(seq), scope, keys, version: None }
    }

    #[test]
    fn a_dismissed_condition_returns_after_its_resolution() {
        let mut dismissed = Dismissed::default();
        let is_dismissed = |dismissed: &Dismissed, own: &Notification| {
            dismissed.has(own, |dismissal| dismissal.is_for_all(own))
        };
        dismissed.note(&report(1, Priority::Normal), &Scope::All);
        assert!(is_dismissed(&dismissed, &report(2, Priority::Normal)));
        assert!(!is_dismissed(&dismissed, &report(2, Priority::High)), "it is more urgent");
        let session = Scope::Session(SessionId::new("s1"));
        dismissed.resolve(&resolution(3, session.clone()));
        let is_for = |dismissed: &Dismissed, name: &str| {
            let own = Scope::Session(SessionId::new(name));
            let concerns = |scope: &Scope| *scope == Scope::All || *scope == own;
            dismissed.has(&report(4, Priority::Normal), |dismissal| dismissal.is_for(concerns))
        };
        assert_eq!(["s1", "s2"].map(|name| is_for(&dismissed, name)), [false, true]);
        dismissed.take_report(&report(5, Priority::Low));
        dismissed.resolve(&resolution(4, Scope::All));
        assert!(is_for(&dismissed, "s2"), "a resolution before the newest report ends nothing");
        dismissed.resolve(&resolution(6, Scope::All));
        assert!(!is_for(&dismissed, "s2") && dismissed.is_empty());
    }

    #[test]
    fn the_first_dismissal_makes_room() {
        let mut dismissed = Dismissed::default();
        for number in 0..=DISMISSED_MAX as u64 {
            let state = State { key: StateKey(number), seq: Seq(1), version: None };
            dismissed
                .note(&Notification { unresolved: vec![state], ..report(1, Priority::Normal) }, &Scope::All);
        }
        assert_eq!((dismissed.len(), dismissed.of.len()), (DISMISSED_MAX, DISMISSED_MAX));
        dismissed.forget_of(&[SubscriberId::new("s")].into());
        assert!(dismissed.is_empty());
    }
}
