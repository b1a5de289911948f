//! The pending notifications of a queue that a hold keeps from being released.

use journal::time::Timestamp;

use super::Queue;
use crate::{
    budget::BudgetName,
    conversation::injector::entry::{Entry, Key, Readiness},
    hold::{Hold, HoldKind, add_holds},
    notification::{Activation, Notification, NotificationId},
    sorted::SortedMap,
};

/// What a change of holds led to.
#[derive(Debug, Default)]
#[must_use]
pub(in crate::conversation::injector) struct Changed {
    /// Whether a notification has no hold left.
    pub(in crate::conversation::injector) is_released: bool,
    /// Those whose wait for an answer is over. They are not in the queue any more.
    pub(in crate::conversation::injector) unanswered: Vec<Entry>,
}

impl Queue {
    /// Number of notifications with a hold.
    pub(in crate::conversation::injector) fn len_held(&self) -> usize {
        self.held
    }

    /// Number of holds of each kind; a notification with several counts under each.
    pub(in crate::conversation::injector) fn holds(&self) -> SortedMap<HoldKind, u32> {
        let mut counts = SortedMap::new();
        for hold in self.with_holds().flat_map(|key| &self.entries.get(&key).expect("it is there").holds) {
            *counts.get_or_default(hold.kind()) += 1;
        }
        counts
    }

    /// Number of notifications that only a budget holds back.
    pub(in crate::conversation::injector) fn len_for_budget(&self) -> usize {
        self.for_budget
    }

    /// Whether a hold ends with an event.
    pub(in crate::conversation::injector) fn waits_for_event(&self) -> bool {
        self.wait_for_event > 0
    }

    /// Adds a hold to the notifications that `is_wanted` selects, unless they have it.
    pub(in crate::conversation::injector) fn hold(
        &mut self,
        is_wanted: &dyn Fn(&Entry) -> bool,
        hold: &Hold,
    ) {
        let is_new = |entry: &Entry| !entry.holds.contains(hold) && is_wanted(entry);
        for entry in self.take_all_that(&is_new) {
            self.restore_held(entry, std::slice::from_ref(hold));
        }
    }

    /// Adds holds to one notification.
    pub(in crate::conversation::injector) fn hold_one(&mut self, id: &NotificationId, holds: &[Hold]) {
        if let Some(entry) = self.take(id) {
            self.restore_held(entry, holds);
        }
    }

    /// Adds the hold of a budget to one notification, since it had no room for the first time.
    pub(in crate::conversation::injector) fn hold_for_budget(
        &mut self,
        id: &NotificationId,
        of: BudgetName,
        until: Option<Timestamp>,
        now: Timestamp,
    ) {
        if let Some(mut entry) = self.take(id) {
            let since = *entry.short_since.get_or_insert(now);
            self.restore_held(entry, &[Hold::Budget { since, of, until }]);
        }
    }

    /// Limits what a notification may do by itself.
    pub(in crate::conversation::injector) fn limit(&mut self, id: &NotificationId, level: Activation) {
        let level = (level < Activation::Active).then_some(level);
        if self.get(id).is_some_and(|entry| entry.level != level)
            && let Some(mut entry) = self.take(id)
        {
            entry.level = level;
            self.restore(entry);
        }
    }

    fn restore_held(&mut self, mut entry: Entry, holds: &[Hold]) {
        add_holds(&mut entry.holds, holds.iter().cloned());
        self.restore(entry);
    }

    /// Changes the holds; `change` returns false for one that ends.
    pub(in crate::conversation::injector) fn change_holds(
        &mut self,
        change: &mut dyn FnMut(&Notification, &mut Hold) -> bool,
    ) -> Changed {
        let mut changed = Changed::default();
        for key in self.with_holds().collect::<Vec<Key>>() {
            self.change_holds_of(key, change, &mut changed);
        }
        changed
    }

    /// Ends the holds whose time is over at `now`.
    pub(in crate::conversation::injector) fn end_holds(&mut self, now: Timestamp) -> Changed {
        let mut changed = Changed::default();
        while let Some((_, key)) = self.held_until.first().filter(|(at, _)| *at <= now).copied() {
            let is_over = |hold: &Hold| hold.until().is_some_and(|at| at <= now);
            self.change_holds_of(key, &mut |_, hold| !is_over(hold), &mut changed);
        }
        changed
    }

    fn change_holds_of(
        &mut self,
        key: Key,
        change: &mut dyn FnMut(&Notification, &mut Hold) -> bool,
        changed: &mut Changed,
    ) {
        let Some(mut entry) = self.remove(key) else { return };
        let waited = entry.waits_for_answer();
        let Entry { notification, holds, .. } = &mut entry;
        holds.retain_mut(|hold| change(notification, hold));
        if waited && !entry.waits_for_answer() {
            changed.unanswered.push(entry);
            return;
        }
        changed.is_released |= entry.holds.is_empty();
        self.restore(entry);
    }

    /// The notifications with a hold that `is_wanted` selects.
    pub(in crate::conversation::injector) fn held_by(
        &self,
        is_wanted: &dyn Fn(&Hold) -> bool,
    ) -> Vec<NotificationId> {
        let entries = self.with_holds().filter_map(|key| self.entries.get(&key));
        let wanted = entries.filter(|entry| entry.holds.iter().any(is_wanted));
        wanted.map(|entry| entry.notification.id).collect()
    }

    /// The notifications with the hold of a budget, with that and when it ends.
    pub(in crate::conversation::injector) fn held_by_budget(
        &self,
    ) -> Vec<(&Entry, &BudgetName, Option<Timestamp>)> {
        let entries = self.with_holds().filter_map(|key| self.entries.get(&key));
        entries
            .filter_map(|entry| {
                entry.holds.iter().find_map(|hold| match hold {
                    Hold::Budget { of, until, .. } => Some((entry, of, *until)),
                    Hold::Quiet { .. }
                    | Hold::Deferred { .. }
                    | Hold::Snoozed { .. }
                    | Hold::Silenced { .. }
                    | Hold::Inhibited { .. } => None,
                })
            })
            .collect()
    }

    /// When a budget had no room for the first time for a notification that is pending.
    pub(in crate::conversation::injector) fn first_short_since(&self) -> Option<Timestamp> {
        self.entries.values().filter_map(|entry| entry.short_since).min()
    }

    /// The keys of the notifications with a hold.
    fn with_holds(&self) -> impl Iterator<Item = Key> {
        let lanes = self.counts.keys().filter(|lane| lane.readiness == Readiness::Held);
        lanes.flat_map(|lane| self.lane(*lane).map(|(key, _)| *key))
    }
}
