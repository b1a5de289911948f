//! Notifications that are in no open session's queue.
//!
//! One waits here because no open session was in its scope when it was made, or because the
//! sessions that had it ended without a confirmation that it was read. The first session in scope
//! that opens gets it. Otherwise it expires.
//!
//! Shape: bounded per scope and in total. The oldest of the lowest priority is evicted first and
//! counted; the session that gets the rest reports the count.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    ended::EndedRules,
    injector::{Earlier, RecentIds},
    resolved_in::{Reach, ResolvedIn},
};
use journal::time::{Timestamp, deadlines::Alarms};

use crate::{
    event::{Scope, SessionId},
    exchange::InjectionId,
    notification::{Notification, NotificationId, Priority, Resolution, State, StateKey, SubscriberId},
    snapshot,
    sorted::{SortedMap, SortedSet},
};

/// Most notifications that wait in one scope: the length of the queue that takes them.
pub(super) const SCOPE_MAX: usize = 1_000;
/// Most notifications that wait in total.
pub(super) const UNCLAIMED_MAX: usize = 10_000;
/// Most remembered confirmations. If one is forgotten, its notification may be delivered again:
/// another session that did not confirm it ends.
const CONFIRMED_MAX: usize = 4_096;

/// One notification that waits for a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Waiting {
    #[serde(with = "snapshot::shared")]
    pub(super) notification: Arc<Notification>,
    expires_at: Timestamp,
    /// The session that left it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left_by: Option<SessionId>,
    /// Whether it may have been delivered there.
    pub(super) earlier: Earlier,
    /// Where all of its conditions are resolved: sessions of these do not get it.
    #[serde(default, skip_serializing_if = "ResolvedIn::is_empty")]
    resolved_in: ResolvedIn,
}

impl Waiting {
    /// Whether `session` left it and may have had it from `injection`.
    fn is_from(&self, session: &SessionId, injection: &InjectionId) -> bool {
        let is_by = matches!(&self.earlier, Earlier::By(by) if by == injection);
        is_by && self.left_by.as_ref() == Some(session)
    }
}

/// The eviction order: lowest priority first, then oldest.
type Key = (Priority, u64);

/// Number of events of each subscriber in evicted notifications.
pub(super) type Evicted = SortedMap<SubscriberId, u32>;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "UnclaimedState")]
pub(crate) struct Unclaimed {
    waiting: BTreeMap<Key, Waiting>,
    /// A tree: with [`UNCLAIMED_MAX`] scopes each event adds one and removes one.
    #[serde(skip)]
    by_scope: BTreeMap<Scope, SortedSet<Key>>,
    /// By each of their states and conditions: an event that ends some looks at no others.
    #[serde(skip)]
    by_state: BTreeSet<(StateKey, Key)>,
    /// Has each of them, and some that left; the first is never one of these.
    #[serde(skip)]
    by_expiry: Alarms<Key>,
    arrivals: u64,
    /// The counts of evicted events, for scopes that are not empty.
    evicted: SortedMap<Scope, Evicted>,
    confirmed: RecentIds<CONFIRMED_MAX>,
}

impl Unclaimed {
    /// Keeps `notification` until `expires_at`; returns the evicted one, possibly itself.
    ///
    /// `left_by`: the session that had it before; `earlier`: whether it may have been delivered
    /// there.
    pub(super) fn keep(
        &mut self,
        notification: Arc<Notification>,
        expires_at: Timestamp,
        left_by: Option<SessionId>,
        earlier: Earlier,
    ) -> Option<Arc<Notification>> {
        if left_by.is_some() {
            self.forget_older(&notification);
        }
        self.arrivals += 1;
        let (key, scope) = ((notification.priority, self.arrivals), notification.scope.clone());
        let resolved_in = ResolvedIn::default();
        self.insert(key, Waiting { notification, expires_at, left_by, earlier, resolved_in });
        let of_scope = self.by_scope.get(&scope).expect("it was just put there");
        let over = if of_scope.len() > SCOPE_MAX {
            of_scope.first()
        } else {
            self.waiting.keys().next().filter(|_| self.waiting.len() > UNCLAIMED_MAX)
        };
        let evicted = self.remove(*over?).notification;
        if self.by_scope.contains_key(&evicted.scope) {
            let counts = self.evicted.get_or_default(evicted.scope.clone());
            let count = counts.get_or_default(evicted.subscriber.clone());
            *count = count.saturating_add(u32::try_from(evicted.events.len()).unwrap_or(u32::MAX));
        }
        Some(evicted)
    }

    /// Removes a notification that another session left before: one session that had it moved out of its
    /// scope, so the other one left it too.
    fn forget_older(&mut self, notification: &Notification) {
        let of_scope = self.by_scope.get(&notification.scope).into_iter().flatten();
        let is_it = |key: &&Key| {
            self.waiting.get(*key).is_some_and(|waiting| waiting.notification.id == notification.id)
        };
        if let Some(key) = of_scope.copied().find(|key| is_it(&key)) {
            self.remove(key);
        }
    }

    /// Removes the notifications of this scope that later reports of a subscriber supersede, in order.
    pub(super) fn take_outdated(
        &mut self,
        scope: &Scope,
        subscriber: &SubscriberId,
        later: &[State],
    ) -> Vec<Arc<Notification>> {
        let mut keys = self.with_states(later.iter().map(|state| state.key));
        keys.retain(|key| {
            let own = self.get(*key);
            own.scope == *scope && own.is_outdated_by(subscriber, later)
        });
        keys.into_iter().map(|key| self.remove(key).notification).collect()
    }

    /// Removes the notifications without a condition after `resolution`. One that it resolves in a part
    /// of its scope stays for the rest.
    pub(super) fn take_resolved(&mut self, resolution: &Resolution) -> Vec<Arc<Notification>> {
        let mut keys = self.with_states(resolution.keys.iter().copied());
        keys.retain(|key| resolution.scope.meets(&self.get(*key).scope));
        keys.sort_by(|one, other| self.get(*one).scope.cmp(&self.get(*other).scope));
        let mut resolved = Vec::new();
        for key in keys {
            let waiting = self.waiting.get_mut(&key).expect("the indices name what waits");
            let Some(left) = resolution.applied_to(&waiting.notification) else { continue };
            let Notification { subscriber, scope, unresolved, .. } = &*waiting.notification;
            match waiting.resolved_in.reach(resolution, subscriber, scope) {
                Reach::Everywhere => {
                    resolved.extend(left.is_resolved().then_some(key));
                    self.replace(key, left);
                }
                Reach::Part if left.is_resolved() => {
                    waiting.resolved_in.note(resolution, unresolved);
                }
                Reach::Part | Reach::Nowhere => {}
            }
        }
        resolved.into_iter().map(|key| self.remove(key).notification).collect()
    }

    /// Takes the rules that ended out of the notifications.
    pub(super) fn end_rules(&mut self, ended: &EndedRules) {
        let left = |(key, waiting): (&Key, &Waiting)| Some((*key, ended.applied_to(&waiting.notification)?));
        for (key, left) in self.waiting.iter().filter_map(left).collect::<Vec<_>>() {
            self.replace(key, left);
        }
    }

    /// Removes the notifications in the scopes that `concerns` selects, in order of arrival, with
    /// the eviction counts of those scopes. One that is resolved for that session, or that it had before,
    /// waits on.
    pub(super) fn claim(
        &mut self,
        concerns: impl Fn(&Scope) -> bool,
        has_had: impl Fn(&NotificationId) -> bool,
    ) -> (Vec<Waiting>, Evicted) {
        let (mut keys, mut evicted) = (Vec::new(), Evicted::new());
        for (scope, of_scope) in self.by_scope.iter().filter(|(scope, _)| concerns(scope)) {
            let is_wanted = |key: &&Key| {
                self.waiting.get(*key).is_some_and(|waiting| {
                    !waiting.resolved_in.concerns(&concerns) && !has_had(&waiting.notification.id)
                })
            };
            keys.extend(of_scope.iter().filter(is_wanted).copied());
            for (subscriber, count) in self.evicted.remove(scope).unwrap_or_default() {
                *evicted.get_or_default(subscriber) += count;
            }
        }
        sort(&mut keys, |_| Reverse(Priority::Critical));
        (keys.into_iter().map(|key| self.remove(key)).collect(), evicted)
    }

    /// All notifications in delivery order.
    pub(super) fn in_order(&self) -> Vec<&Arc<Notification>> {
        let mut keys: Vec<Key> = self.waiting.keys().copied().collect();
        sort(&mut keys, Reverse);
        keys.iter().filter_map(|key| self.waiting.get(key)).map(|waiting| &waiting.notification).collect()
    }

    /// Removes the notifications that expire at or before `now`, soonest first.
    pub(super) fn take_expired(&mut self, now: Timestamp) -> Vec<Arc<Notification>> {
        let mut expired = Vec::new();
        while let Some((_, key)) = self.by_expiry.first().filter(|(at, _)| *at <= now) {
            expired.push(self.remove(*key).notification);
        }
        expired
    }

    /// Removes the notifications made by one of `subscribers`.
    pub(super) fn take_of(&mut self, subscribers: &SortedSet<SubscriberId>) -> Vec<Arc<Notification>> {
        self.take_that(&|waiting| subscribers.contains(&waiting.notification.subscriber))
    }

    /// Removes the notification `id`, if it waits.
    pub(super) fn take(&mut self, id: &NotificationId) -> Option<Arc<Notification>> {
        self.take_that(&|waiting| waiting.notification.id == *id).pop()
    }

    /// Removes the notifications that `session` left and may have had from `injection`, which is
    /// now known to have arrived.
    pub(super) fn take_delivered(
        &mut self,
        session: &SessionId,
        injection: &InjectionId,
    ) -> Vec<Arc<Notification>> {
        self.take_that(&|waiting| waiting.is_from(session, injection))
    }

    /// Notes that `injection` did not reach `session`: its notifications were not delivered.
    pub(super) fn note_undelivered(&mut self, session: &SessionId, injection: &InjectionId) {
        for waiting in self.waiting.values_mut().filter(|waiting| waiting.is_from(session, injection)) {
            waiting.earlier = Earlier::Not;
        }
    }

    /// Notes that a session confirmed a notification.
    pub(super) fn note_confirmed(&mut self, id: &NotificationId) {
        self.confirmed.insert(*id);
    }

    /// Whether a session confirmed the notification, as far as remembered.
    pub(super) fn is_confirmed(&self, id: &NotificationId) -> bool {
        self.confirmed.contains(*id)
    }

    /// When the next notification expires.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.by_expiry.first().map(|(at, _)| at)
    }

    /// Number of waiting notifications.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the notification waits.
    pub(super) fn contains(&self, id: &NotificationId) -> bool {
        self.waiting.values().any(|waiting| waiting.notification.id == *id)
    }

    fn take_that(&mut self, is_wanted: &dyn Fn(&Waiting) -> bool) -> Vec<Arc<Notification>> {
        let wanted = self.waiting.iter().filter(|(_, waiting)| is_wanted(waiting));
        let keys: Vec<Key> = wanted.map(|(key, _)| *key).collect();
        keys.into_iter().map(|key| self.remove(key).notification).collect()
    }

    fn insert(&mut self, key: Key, waiting: Waiting) {
        self.by_scope.entry(waiting.notification.scope.clone()).or_default().insert(key);
        self.by_state.extend(waiting.notification.keys().map(|state| (state, key)));
        self.by_expiry.add(waiting.expires_at, key);
        self.waiting.insert(key, waiting);
    }

    fn get(&self, key: Key) -> &Notification {
        &self.waiting.get(&key).expect("the indices name what waits").notification
    }

    /// Those with some of these states or conditions, in ascending order.
    fn with_states(&self, states: impl Iterator<Item = StateKey>) -> Vec<Key> {
        let (first, last) = ((Priority::Low, 0), (Priority::Critical, u64::MAX));
        let of = |state| self.by_state.range((state, first)..=(state, last)).map(|(_, key)| *key);
        states.flat_map(of).collect::<BTreeSet<Key>>().into_iter().collect()
    }

    /// Puts a notification in the place of an earlier form of it.
    fn replace(&mut self, key: Key, notification: Arc<Notification>) {
        let waiting = self.waiting.get_mut(&key).expect("the indices name what waits");
        for state in waiting.notification.keys() {
            self.by_state.remove(&(state, key));
        }
        self.by_state.extend(notification.keys().map(|state| (state, key)));
        waiting.notification = notification;
    }

    fn remove(&mut self, key: Key) -> Waiting {
        let waiting = self.waiting.remove(&key).expect("the indices name what waits");
        let Self { by_expiry, waiting: left, .. } = self;
        if by_expiry.is_stale(left.len()) {
            *by_expiry = left.iter().map(|(key, waiting)| (waiting.expires_at, *key)).collect();
        }
        by_expiry.settle(|_, key| left.contains_key(key));
        for state in waiting.notification.keys() {
            self.by_state.remove(&(state, key));
        }
        let scope = &waiting.notification.scope;
        let of_scope = self.by_scope.get_mut(scope).expect("each scope is indexed");
        of_scope.remove(&key);
        if of_scope.is_empty() {
            self.by_scope.remove(scope);
            self.evicted.remove(scope);
        }
        waiting
    }
}

/// Sorts by what `urgency` makes of the priority, then by arrival.
fn sort(keys: &mut [Key], urgency: fn(Priority) -> Reverse<Priority>) {
    keys.sort_unstable_by_key(|(priority, arrival)| (urgency(*priority), *arrival));
}

/// The snapshot form; the indices are rebuilt.
#[derive(Debug, Default, Deserialize)]
struct UnclaimedState {
    waiting: BTreeMap<Key, Waiting>,
    arrivals: u64,
    evicted: SortedMap<Scope, Evicted>,
    confirmed: RecentIds<CONFIRMED_MAX>,
}

impl From<UnclaimedState> for Unclaimed {
    fn from(state: UnclaimedState) -> Self {
        let UnclaimedState { waiting, arrivals, evicted, confirmed } = state;
        let mut unclaimed = Self { arrivals, evicted, confirmed, ..Self::default() };
        for (key, waiting) in waiting {
            unclaimed.insert(key, waiting);
        }
        unclaimed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::Seq, notification::Nature};

    const LATER: Timestamp = Timestamp::from_millis(9_000);

    fn notification(name: &str, scope: Scope, priority: Priority) -> Arc<Notification> {
        Arc::new(Notification { scope, events: vec![Seq(1)], ..Notification::example(name, priority) })
    }

    fn keep(unclaimed: &mut Unclaimed, notification: Arc<Notification>) -> Option<String> {
        let evicted = unclaimed.keep(notification, LATER, None, Earlier::Not);
        evicted.map(|evicted| evicted.id.to_string())
    }

    #[test]
    fn a_full_scope_evicts_oldest_of_lowest_priority() {
        let mut unclaimed = Unclaimed::default();
        assert_eq!(keep(&mut unclaimed, notification("first", Scope::All, Priority::Critical)), None);
        assert_eq!(keep(&mut unclaimed, notification("low", Scope::All, Priority::Low)), None);
        let elsewhere = Scope::Workspace("/w".into());
        keep(&mut unclaimed, notification("elsewhere", elsewhere, Priority::Low));
        let mut evicted = Vec::new();
        for number in 0..SCOPE_MAX {
            evicted
                .extend(keep(&mut unclaimed, notification(&number.to_string(), Scope::All, Priority::High)));
        }
        assert_eq!(evicted, ["low", "0"]);
        assert_eq!(
            keep(&mut unclaimed, notification("late", Scope::All, Priority::Low)),
            Some("late".into())
        );
        let (claimed, counts) = unclaimed.claim(|scope| *scope == Scope::All, |_| false);
        assert_eq!((claimed.len(), claimed[0].notification.id.as_str()), (SCOPE_MAX, "first"));
        assert_eq!(counts, [(SubscriberId::new("s"), 3)].into());
        assert_eq!((unclaimed.len(), unclaimed.evicted.len()), (1, 0));
    }

    #[test]
    fn unclaimed_notifications_of_all_scopes_are_bounded() {
        let mut unclaimed = Unclaimed::default();
        for number in 0..=UNCLAIMED_MAX {
            let scope = Scope::Workspace(format!("/{}", number / (SCOPE_MAX / 2)).into());
            let own = notification(&number.to_string(), scope, Priority::Normal);
            let states = vec![State { key: StateKey(number as u64 % 7), seq: Seq(1), version: None }];
            let evicted = keep(&mut unclaimed, Arc::new(Notification { states, ..(*own).clone() }));
            assert_eq!(evicted.is_some(), number == UNCLAIMED_MAX);
        }
        assert_eq!(unclaimed.len(), UNCLAIMED_MAX);
        assert_eq!(unclaimed.take_expired(LATER).len(), UNCLAIMED_MAX);
        let Unclaimed { waiting, by_scope, by_state, by_expiry, arrivals: _, evicted, confirmed: _ } =
            unclaimed;
        assert!(waiting.is_empty() && by_scope.is_empty() && by_state.is_empty());
        assert!(by_expiry.first().is_none() && evicted.is_empty());
    }

    #[test]
    fn later_events_end_what_has_their_keys() {
        let state = |key, seq| State { key: StateKey(key), seq: Seq(seq), version: None };
        let mut unclaimed = Unclaimed::default();
        for (name, scope, state_key, conditions) in [
            ("a", "/1", Some(1), &[][..]),
            ("b", "/2", Some(1), &[]),
            ("c", "/2", None, &[2, 3]),
            ("d", "/1", None, &[2]),
        ] {
            let own = notification(name, Scope::Workspace(scope.into()), Priority::Normal);
            let states = state_key.map(|key| state(key, 1)).into_iter().collect();
            let unresolved: Vec<State> = conditions.iter().map(|key| state(*key, 1)).collect();
            let nature = if unresolved.is_empty() { Nature::Occurrence } else { Nature::Condition };
            keep(&mut unclaimed, Arc::new(Notification { states, unresolved, nature, ..(*own).clone() }));
        }
        let subscriber = SubscriberId::new("s");
        let ids =
            |ended: Vec<Arc<Notification>>| ended.iter().map(|own| own.id.to_string()).collect::<Vec<_>>();
        let folder = Scope::Workspace("/2".into());
        assert_eq!(ids(unclaimed.take_outdated(&folder, &subscriber, &[state(1, 2)])), ["b"]);
        let resolve = |unclaimed: &mut Unclaimed, key| {
            let (subscriber, keys) = (subscriber.clone(), vec![StateKey(key)]);
            let resolution = Resolution { subscriber, seq: Seq(2), scope: Scope::All, keys, version: None };
            ids(unclaimed.take_resolved(&resolution))
        };
        assert_eq!(resolve(&mut unclaimed, 2), ["d"]);
        assert_eq!(resolve(&mut unclaimed, 3), ["c"], "its last condition");
        assert_eq!((unclaimed.len(), unclaimed.by_state.len()), (1, 1));
    }

    #[test]
    fn a_full_table_evicts_the_oldest_confirmed_id() {
        let mut unclaimed = Unclaimed::default();
        let id = |number: usize| NotificationId::new(&number.to_string());
        (0..=CONFIRMED_MAX).for_each(|number| unclaimed.note_confirmed(&id(number)));
        assert!(!unclaimed.is_confirmed(&id(0)) && unclaimed.is_confirmed(&id(CONFIRMED_MAX)));
    }
}
