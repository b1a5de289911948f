//! The pending notifications of one session: ordered by priority and age, bounded, each with its
//! expiry.
//!
//! Releasing, expiring and evicting are logarithmic in the length, because each uses an ordered
//! index. A notification that is not in the queue is under a lease or has ended; the queue does not
//! record which. Notifications are found by their states and conditions too.

mod holds;

pub(super) use holds::Changed;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hashbrown::HashMap;
use journal::time::{Timestamp, deadlines::Alarms};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use strum::VariantArray;

use super::entry::{Age, Earlier, Lane, Marks, Readiness};
use crate::{
    conversation::injector::entry::{Entry, Key},
    exchange::InjectionId,
    hold::Hold,
    notification::{
        InjectionPoint, Notification, NotificationId, Priority, Resolution, State, StateKey, SubscriberId,
    },
    sorted::{SortedMap, SortedSet},
};

/// The pending notifications of one session.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: BTreeMap<Key, Entry>,
    /// Never iterated.
    by_id: HashMap<NotificationId, Key>,
    /// Has each pending notification that expires, and some that left; the first is never one of
    /// these.
    by_expiry: Alarms<Key>,
    returned: SortedSet<Key>,
    /// Notifications that may wake the agent.
    active: SortedSet<Key>,
    /// Notifications that wait for the user and were not shown yet.
    unshown: SortedSet<Key>,
    /// Notifications that a newer one may supersede or an event may resolve, by each of their
    /// states and conditions.
    by_state: BTreeSet<(StateKey, Key)>,
    /// Number of notifications that wait for the user.
    for_user: usize,
    /// Number of notifications with a hold.
    held: usize,
    /// Those with a hold that ends by its time, each with that time.
    held_until: BTreeSet<(Timestamp, Key)>,
    /// Number of notifications with a hold that ends with an event.
    wait_for_event: usize,
    /// Number of notifications that only a budget holds.
    for_budget: usize,
    /// Number of notifications of each subscriber in each lane; no zeroes.
    counts: SortedMap<Lane, SortedMap<SubscriberId, u32>>,
    arrivals: u64,
}

impl Queue {
    /// Adds a notification as the newest of its age.
    pub(super) fn push(&mut self, notification: Arc<Notification>, holds: Vec<Hold>) {
        let entry = self.next(notification);
        self.restore(Entry { holds, ..entry });
    }

    /// Adds a notification that was delivered in a lost context.
    pub(super) fn recall(&mut self, notification: Arc<Notification>) {
        let entry = self.next(notification);
        // A redelivery does not cancel a call again, and needs no user approval.
        let (has_cancelled, is_released_by_user, is_shown) = (true, true, true);
        self.restore(Entry { is_recalled: true, has_cancelled, is_released_by_user, is_shown, ..entry });
    }

    /// Adds a notification that another session left, with its state there.
    pub(super) fn push_left(&mut self, notification: Arc<Notification>, marks: Marks) {
        let entry = self.next(notification);
        let returned_from = match marks.earlier {
            Earlier::By(injection) => Some(injection),
            Earlier::Perhaps | Earlier::Not => None,
        };
        self.restore(Entry {
            returned_from,
            is_recalled: marks.earlier == Earlier::Perhaps,
            has_cancelled: marks.has_cancelled,
            is_released_by_user: marks.is_released_by_user,
            is_shown: marks.is_shown,
            is_quiet: marks.is_quiet,
            level: marks.level,
            reminder: marks.reminder,
            put_off: marks.put_off,
            snoozes: marks.snoozes,
            holds: marks.holds.unwrap_or_default(),
            ..entry
        });
    }

    pub(super) fn next(&mut self, notification: Arc<Notification>) -> Entry {
        self.arrivals += 1;
        Entry {
            notification,
            returned_from: None,
            is_recalled: false,
            has_cancelled: false,
            is_released_by_user: false,
            is_shown: false,
            is_quiet: false,
            level: None,
            reminder: 0,
            put_off: 0,
            snoozes: 0,
            is_answered: false,
            short_since: None,
            holds: Vec::new(),
            arrival: self.arrivals,
        }
    }

    /// Returns an entry to its old place.
    pub(super) fn restore(&mut self, entry: Entry) {
        let key = entry.key();
        let notification = &entry.notification;
        if let Some(at) = notification.expires_at {
            self.by_expiry.add(at, key);
        }
        if entry.returned_from.is_some() {
            self.returned.insert(key);
        }
        if entry.is_active() {
            self.active.insert(key);
        }
        match key.lane.readiness {
            Readiness::User => {
                self.for_user += 1;
                if !entry.is_shown {
                    self.unshown.insert(key);
                }
            }
            Readiness::Held => {
                self.held += 1;
                self.held_until.extend(entry.held_until().map(|at| (at, key)));
                self.wait_for_event += usize::from(entry.waits_for_event());
                self.for_budget += usize::from(entry.waits_for_budget());
            }
            Readiness::Cancels | Readiness::Free | Readiness::Asked | Readiness::NextTurn => {}
        }
        self.by_state.extend(notification.keys().map(|state| (state, key)));
        let lane = self.counts.get_or_default(key.lane);
        *lane.get_or_default(notification.subscriber.clone()) += 1;
        self.by_id.insert(notification.id, key);
        self.entries.insert(key, entry);
    }

    /// The notification `id`, if it is pending.
    pub(super) fn get(&self, id: &NotificationId) -> Option<&Entry> {
        self.entries.get(self.by_id.get(id)?)
    }

    /// Removes the notification `id`, if it is pending.
    pub(super) fn take(&mut self, id: &NotificationId) -> Option<Entry> {
        let key = *self.by_id.get(id)?;
        self.remove(key)
    }

    /// Removes the oldest notification of the lowest priority.
    pub(super) fn evict(&mut self) -> Option<Entry> {
        let (least, _) = self.entries.last_key_value()?;
        let urgency = least.lane.urgency;
        let oldest_of_lanes =
            self.lanes_of(urgency).filter_map(|lane| self.lane(lane).next().map(|(key, _)| *key));
        let key = oldest_of_lanes.min_by_key(|key| key.age)?;
        self.remove(key)
    }

    /// Removes the notification that expires next, if it has expired at `now`.
    pub(super) fn take_expired(&mut self, now: Timestamp) -> Option<Entry> {
        let (_, key) = self.by_expiry.first().filter(|(at, _)| *at <= now)?;
        self.remove(*key)
    }

    /// Removes the notifications that `injection` released and that returned unconfirmed.
    pub(super) fn take_returned_from(&mut self, injection: &InjectionId) -> Vec<Entry> {
        let keys: Vec<Key> = self.returned_from(injection).copied().collect();
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }

    /// Whether [`Self::take_returned_from`] would remove any.
    pub(super) fn has_returned_from(&self, injection: &InjectionId) -> bool {
        self.returned_from(injection).next().is_some()
    }

    fn returned_from<'a>(&'a self, injection: &'a InjectionId) -> impl Iterator<Item = &'a Key> {
        self.returned.iter().filter(move |key| {
            self.entries.get(key).is_some_and(|entry| entry.returned_from.as_ref() == Some(injection))
        })
    }

    /// The first notifications in lanes that `is_due` selects: every critical one, and others up to
    /// `others_max` in all.
    ///
    /// Shape: by priority, then oldest first; costs `others_max` per lane, for any length.
    pub(super) fn first_due(&self, others_max: usize, is_due: impl Fn(Lane) -> bool) -> Vec<&Entry> {
        let mut due: Vec<&Entry> = Vec::new();
        for priority in Priority::VARIANTS.iter().copied().rev() {
            let room = if priority == Priority::Critical {
                usize::MAX
            } else {
                others_max.saturating_sub(due.len())
            };
            let mut of_priority: Vec<(&Key, &Entry)> = self
                .lanes_of(Reverse(priority))
                .filter(|lane| is_due(*lane))
                .flat_map(|lane| self.lane(lane).take(room))
                .collect();
            sort(&mut of_priority);
            due.extend(of_priority.into_iter().take(room).map(|(_, entry)| entry));
        }
        due
    }

    /// Removes the notifications that `is_wanted` selects, in delivery order.
    pub(super) fn take_all_that(&mut self, is_wanted: &dyn Fn(&Entry) -> bool) -> Vec<Entry> {
        let mut wanted: Vec<_> = self.entries.iter().filter(|(_, entry)| is_wanted(entry)).collect();
        sort(&mut wanted);
        let keys: Vec<Key> = wanted.into_iter().map(|(key, _)| *key).collect();
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }

    /// Number of notifications of each subscriber in lanes that `is_due` selects.
    pub(super) fn count_due(&self, is_due: impl Fn(Lane) -> bool) -> SortedMap<SubscriberId, u32> {
        let mut due = SortedMap::new();
        for (lane, of_lane) in &self.counts {
            if is_due(*lane) {
                for (subscriber, count) in of_lane {
                    *due.get_or_default(subscriber.clone()) += count;
                }
            }
        }
        due
    }

    /// The subscribers of its notifications; one in several lanes several times.
    pub(super) fn subscribers(&self) -> impl Iterator<Item = &SubscriberId> {
        self.counts.values().flat_map(SortedMap::keys)
    }

    /// Whether `is_due` selects any lane in use.
    pub(super) fn has_due(&self, is_due: impl Fn(Lane) -> bool) -> bool {
        self.counts.keys().any(|lane| is_due(*lane))
    }

    /// Whether `is_due` selects a lane with a critical one.
    pub(super) fn has_critical(&self, is_due: impl Fn(Lane) -> bool) -> bool {
        self.lanes_of(Reverse(Priority::Critical)).any(is_due)
    }

    /// Releases the notification `id` to the agent; returns whether it waited for the user's
    /// decision.
    pub(super) fn release_to_agent(&mut self, id: &NotificationId) -> bool {
        let waits = |key: &&Key| key.lane.readiness == Readiness::User;
        let Some(mut entry) = self.by_id.get(id).filter(waits).copied().and_then(|key| self.remove(key))
        else {
            return false;
        };
        entry.is_released_by_user = true;
        self.restore(entry);
        true
    }

    /// Marks the notifications that wait for the user as shown; returns the subscribers of the new
    /// ones, in order.
    pub(super) fn show_to_user(&mut self) -> SortedSet<SubscriberId> {
        let keys = std::mem::take(&mut self.unshown);
        let mut subscribers = SortedSet::new();
        for key in keys {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.is_shown = true;
                subscribers.insert(entry.notification.subscriber.clone());
            }
        }
        subscribers
    }

    /// The notification of the highest rank that may wake the agent, within the lanes that
    /// `is_wanted` selects, and of those that `has_effect` selects.
    pub(super) fn most_urgent_active(
        &self,
        is_wanted: impl Fn(Lane) -> bool,
        has_effect: impl Fn(&Entry) -> bool,
    ) -> Option<&Notification> {
        let mut rest = self.active.iter();
        while let Some(key) = rest.next() {
            if !is_wanted(key.lane) {
                rest = self.active.after(&Key { lane: key.lane, age: Age::NEWEST }).iter();
                continue;
            }
            if let Some(entry) = self.entries.get(key).filter(|entry| has_effect(entry)) {
                return Some(&entry.notification);
            }
        }
        None
    }

    /// Number of notifications that may wake the agent.
    pub(super) fn len_of_active(&self) -> usize {
        self.active.len()
    }

    /// Leaves it to another session to be woken for the notification `id`, or not any more.
    pub(super) fn set_quiet(&mut self, id: &NotificationId, is_quiet: bool) {
        if let Some(entry) = self.by_id.get(id).and_then(|key| self.entries.get_mut(key)) {
            entry.is_quiet = is_quiet;
        }
    }

    /// All notifications in delivery order.
    pub(super) fn in_order(&self) -> Vec<&Entry> {
        let mut all: Vec<(&Key, &Entry)> = self.entries.iter().collect();
        sort(&mut all);
        all.into_iter().map(|(_, entry)| entry).collect()
    }

    pub(super) fn contains(&self, id: &NotificationId) -> bool {
        self.by_id.contains_key(id)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of notifications that wait for the user's decision.
    pub(super) fn len_for_user(&self) -> usize {
        self.for_user
    }

    /// The highest priority of the notifications that wait for neither the user nor the end of a hold.
    pub(super) fn top_priority(&self) -> Option<Priority> {
        let for_agent = self.counts.keys().find(|lane| lane.is_for_agent());
        for_agent.map(|lane| lane.urgency.0)
    }

    /// Number of notifications of that priority that wait for neither the user nor the end of a hold.
    pub(super) fn len_of(&self, priority: Priority) -> u32 {
        let of_it = |lane: &Lane| lane.is_for_agent() && lane.urgency.0 == priority;
        let lanes = self.counts.iter().filter(|(lane, _)| of_it(lane));
        lanes.flat_map(|(_, counts)| counts.values()).sum()
    }

    pub(super) fn least_priority(&self) -> Option<Priority> {
        self.counts.last().map(|(lane, _)| lane.urgency.0)
    }

    /// When the next notification expires, or the next hold ends by its time.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        let expiry = self.by_expiry.first().map(|(at, _)| at);
        let held_until = self.held_until.first().map(|(at, _)| *at);
        Timestamp::earliest([expiry, held_until])
    }

    /// Every lane of a priority that is in use.
    fn lanes_of(&self, urgency: Reverse<Priority>) -> impl Iterator<Item = Lane> {
        let first = Lane { urgency, readiness: Readiness::Cancels, inject_at: InjectionPoint::Immediate };
        let from = self.counts.range_from(&first).iter();
        from.map(|(lane, _)| *lane).take_while(move |lane| lane.urgency == urgency)
    }

    fn lane(&self, lane: Lane) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.range(Key { lane, age: Age::OLDEST }..=Key { lane, age: Age::NEWEST })
    }

    fn remove(&mut self, key: Key) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        let notification = &entry.notification;
        self.by_id.remove(&notification.id);
        self.returned.remove(&key);
        self.active.remove(&key);
        match key.lane.readiness {
            Readiness::User => {
                self.for_user -= 1;
                self.unshown.remove(&key);
            }
            Readiness::Held => {
                self.held -= 1;
                if let Some(at) = entry.held_until() {
                    self.held_until.remove(&(at, key));
                }
                self.wait_for_event -= usize::from(entry.waits_for_event());
                self.for_budget -= usize::from(entry.waits_for_budget());
            }
            Readiness::Cancels | Readiness::Free | Readiness::Asked | Readiness::NextTurn => {}
        }
        if notification.expires_at.is_some() {
            self.settle(key);
        }
        for state in notification.keys() {
            self.by_state.remove(&(state, key));
        }
        if let Some(lane) = self.counts.get_mut(&key.lane) {
            if let Some(count) = lane.get_mut(&notification.subscriber) {
                *count -= 1;
                if *count == 0 {
                    lane.remove(&notification.subscriber);
                }
            }
            if lane.is_empty() {
                self.counts.remove(&key.lane);
            }
        }
        Some(entry)
    }

    /// Keeps the index of expiries exact after the notification `gone` left.
    fn settle(&mut self, gone: Key) {
        let Self { by_expiry, entries, .. } = self;
        if by_expiry.is_stale(entries.len()) {
            let expiry = |(key, entry): (&Key, &Entry)| Some((entry.notification.expires_at?, *key));
            *by_expiry = entries.iter().filter_map(expiry).collect();
        }
        if by_expiry.first().is_some_and(|(_, first)| *first == gone) {
            let expiry = |key: &Key| entries.get(key)?.notification.expires_at;
            by_expiry.settle(|at, key| expiry(key) == Some(at));
        }
    }
}

/// Sorts in delivery order.
fn sort(entries: &mut [(&Key, &Entry)]) {
    entries.sort_unstable_by_key(|(key, _)| key.rank());
}

/// The snapshot form; the indices are rebuilt.
#[derive(Serialize, Deserialize)]
struct QueueState<E> {
    entries: E,
    arrivals: u64,
}

impl Serialize for Queue {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self {
            entries,
            by_id: _,
            by_expiry: _,
            returned: _,
            active: _,
            unshown: _,
            by_state: _,
            for_user: _,
            held: _,
            held_until: _,
            wait_for_event: _,
            for_budget: _,
            counts: _,
            arrivals,
        } = self;
        QueueState { entries: entries.values().collect::<Vec<_>>(), arrivals: *arrivals }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Queue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let QueueState { entries, arrivals } = <QueueState<Vec<Entry>>>::deserialize(from)?;
        let mut queue = Self { arrivals, ..Self::default() };
        for entry in entries {
            queue.restore(entry);
        }
        Ok(queue)
    }
}

impl Queue {
    /// Removes the notifications that later reports of a subscriber supersede, in order.
    pub(in crate::conversation::injector) fn take_superseded(
        &mut self,
        subscriber: &SubscriberId,
        later: &[State],
    ) -> Vec<Entry> {
        let candidates = later.iter().flat_map(|state| self.with_state(state.key));
        let superseded: SortedSet<Key> = candidates
            .filter(|(_, entry)| entry.notification.is_outdated_by(subscriber, later))
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
        let of_state = self.by_state.range((state, Key::FIRST)..);
        let keys = of_state.take_while(move |(of, _)| *of == state).map(|(_, key)| *key);
        keys.filter_map(|key| Some((key, self.entries.get(&key)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{conversation::injector::tests::notification, event::Seq, notification::State};

    fn queue_of(names: &[&str]) -> Queue {
        let mut queue = Queue::default();
        for name in names {
            let expires_at = Some(Timestamp::from_millis(10));
            let made = notification(name, Priority::High, InjectionPoint::AfterTool);
            let states = [1, 2]
                .map(|number| State { key: StateKey(number), seq: Seq(number), version: None })
                .to_vec();
            let until = Timestamp::from_millis(5);
            let hold = Hold::Quiet { since: Timestamp::ZERO, until, of_user: false };
            queue.push(Arc::new(Notification { expires_at, states, ..made }), vec![hold]);
        }
        queue
    }

    #[test]
    fn removing_an_entry_clears_every_index() {
        let mut queue = queue_of(&["a", "b"]);
        let mut entry = queue.take(&NotificationId::new("a")).expect("it waits");
        entry.returned_from = Some(InjectionId::new("i1"));
        queue.restore(entry);
        assert_eq!(queue.take_returned_from(&InjectionId::new("i2")), []);
        assert!(queue.evict().is_some_and(|entry| entry.notification.id.as_str() == "a"));
        assert!(queue.take(&NotificationId::new("b")).is_some());
        let Queue {
            entries,
            by_id,
            by_expiry,
            returned,
            active,
            unshown,
            by_state,
            for_user,
            held,
            held_until,
            wait_for_event,
            for_budget,
            counts,
            arrivals: _,
        } = queue;
        assert!(entries.is_empty() && by_id.is_empty() && by_expiry.first().is_none());
        assert!(returned.is_empty() && active.is_empty() && unshown.is_empty() && counts.is_empty());
        assert!(by_state.is_empty() && for_user == 0);
        assert!(held_until.is_empty() && held == 0 && wait_for_event == 0 && for_budget == 0);
    }

    #[test]
    fn a_restored_entry_regains_its_old_place() {
        let mut queue = queue_of(&["a", "b"]);
        let entry = queue.take(&NotificationId::new("a")).expect("it waits");
        queue.push(Arc::new(notification("c", Priority::High, InjectionPoint::AfterTool)), Vec::new());
        queue.restore(entry);
        assert!(queue.poll_timeout() == Some(Timestamp::from_millis(5)) && queue.len_held() == 2);
        assert!(queue.end_holds(Timestamp::from_millis(5)).is_released);
        let names: Vec<&str> =
            queue.first_due(9, |_| true).into_iter().map(|entry| entry.notification.id.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }
}
