//! The repetitions of delivered notifications, and the answers to them.
//!
//! A notification with a repetition left waits in the queue again, as a held entry, once it has
//! arrived. Its text is the same; what tells it apart is the number of the repetition.

use std::sync::Arc;

use journal::time::Timestamp;

use super::{entry::Entry, parts::Injector};
use crate::{
    hold::{DelayedBy, Hold},
    ledger::{LedgerEntry, Reason},
    notification::{
        Notification, NotificationId, Priority,
        repeat::{Action, RepeatUntil, Response, SNOOZES_MAX},
    },
};

/// What a session has of a notification that is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Nothing.
    No,
    /// It waits, and was not delivered yet.
    Pending,
    /// It was delivered. Its text is kept, and it was snoozed so often.
    Kept {
        /// How often.
        snoozes: u8,
    },
    /// It was delivered, and its text is not kept.
    Past,
}

impl Received {
    /// Whether it was delivered.
    pub const fn is_delivered(self) -> bool {
        matches!(self, Self::Kept { .. } | Self::Past)
    }

    /// Whether it can be snoozed.
    pub const fn can_be_snoozed(self) -> bool {
        match self {
            Self::Pending => true,
            Self::Kept { snoozes } => snoozes < SNOOZES_MAX,
            Self::No | Self::Past => false,
        }
    }
}

impl Injector {
    /// Notes that an entry has arrived at `now`: it waits for its repetition, or is remembered.
    pub(super) fn note_delivered(&mut self, entry: Entry, now: Timestamp) {
        match after_delivery(entry, now) {
            After::Waits(entry, number) => self.wait_again(entry, number),
            After::Over(entry) if entry.is_answered => {}
            After::Over(entry) => self.delivered.insert(entry.notification),
        }
    }

    /// Notes that an entry was not confirmed in time, at `now`, and does not go back: it waits for its
    /// repetition, as it comes again anyway, or ends.
    pub(super) fn note_unconfirmed(&mut self, entry: Entry, now: Timestamp) {
        match after_delivery(entry, now) {
            After::Waits(entry, number) => self.wait_again(entry, number),
            After::Over(entry) => self.end_uncertain(entry),
        }
    }

    /// Ends what nobody answered, also after its last delivery. If it holds, a new context gets it.
    pub(super) fn note_unanswered(&mut self, entry: Entry) {
        self.end(&entry.notification, Reason::Unanswered);
        self.unanswered.push(Arc::clone(&entry.notification));
        self.arrived.insert(entry.notification.id);
        if !entry.notification.unresolved.is_empty() {
            self.delivered.insert(entry.notification);
        }
    }

    /// Puts a delivered entry with its holds into the queue, as its repetition of this number; `None` if
    /// there is no other.
    fn wait_again(&mut self, entry: Entry, number: Option<u32>) {
        let (notification, session) = (entry.notification.id, self.session.clone());
        self.outputs.push_back(LedgerEntry::Repeated { notification, session, number });
        self.queue.restore(Entry {
            reminder: entry.reminder + 1,
            returned_from: None,
            is_recalled: false,
            has_cancelled: true,
            is_released_by_user: true,
            ..entry
        });
        self.evict_overflow();
    }

    /// A context was lost: conditions that wait for their repetition are delivered now, with the
    /// others.
    pub(super) fn recall_repeated(&mut self) {
        let is_condition = |entry: &Entry| entry.is_repeated() && !entry.notification.unresolved.is_empty();
        for mut entry in self.queue.take_all_that(&is_condition) {
            let (notification, session) = (entry.notification.id, self.session.clone());
            self.outputs.push_back(LedgerEntry::Recalled { notification, session });
            entry.holds.retain(|hold| !matches!(hold, Hold::Deferred { .. }));
            entry.is_recalled = true;
            self.queue.restore(entry);
        }
    }

    /// What this session has of a notification.
    pub fn received(&self, id: &NotificationId) -> Received {
        if let Some(entry) = self.queue.get(id) {
            let was_released = entry.is_repeated() || entry.is_recalled || entry.returned_from.is_some();
            return if was_released { Received::Kept { snoozes: entry.snoozes } } else { Received::Pending };
        }
        if let Some(snoozes) = self.leases.snoozes(id) {
            return Received::Kept { snoozes };
        }
        if self.delivered.contains(id) {
            return Received::Kept { snoozes: 0 };
        }
        if self.arrived.contains(*id) { Received::Past } else { Received::No }
    }

    /// The ids of what this session has or had that begin with this text.
    pub fn ids_that_begin(&self, text: &str) -> Vec<NotificationId> {
        let queued = self.queue.in_order().into_iter().map(|entry| entry.notification.id);
        let leased = self.leases.iter().flat_map(|lease| &lease.entries).map(|entry| entry.notification.id);
        let delivered = self.delivered.oldest_first().map(|delivered| delivered.id);
        let all = queued.chain(leased).chain(delivered).chain(self.arrived.oldest_first().copied());
        let mut found: Vec<NotificationId> = all.filter(|id| id.as_str().starts_with(text)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// A notification that this session has.
    pub fn notification(&self, id: &NotificationId) -> Option<&Arc<Notification>> {
        let queued = self.queue.get(id).map(|entry| &entry.notification);
        let leased = || {
            let mut entries = self.leases.iter().flat_map(|lease| &lease.entries);
            entries.find(|entry| entry.notification.id == *id).map(|entry| &entry.notification)
        };
        let delivered = || self.delivered.oldest_first().find(|delivered| delivered.id == *id);
        queued.or_else(leased).or_else(delivered)
    }

    /// Applies an answer to a notification that this session has or had; returns whether it did.
    pub fn respond(&mut self, id: &NotificationId, response: &Response, now: Timestamp) -> bool {
        let received = self.received(id);
        let is_possible = match (response.action, received) {
            (_, Received::No) => false,
            (Action::Snooze, received) => received.can_be_snoozed(),
            (Action::Acknowledge | Action::Investigate, received) => received.is_delivered(),
            (Action::Dismiss, _) => true,
        };
        if !is_possible {
            return false;
        }
        let (notification, session) = (*id, self.session.clone());
        let (action, by) = (response.action, Arc::clone(&response.by));
        self.outputs.push_back(LedgerEntry::Responded { notification, session, action, by });
        match (response.action, response.until) {
            (Action::Snooze, Some(until)) => self.snooze(id, Hold::Snoozed { since: now, until }),
            _ => self.answer(id, received),
        }
        true
    }

    fn snooze(&mut self, id: &NotificationId, hold: Hold) {
        if self.leases.snooze(id, &hold) {
            return;
        }
        let of_queue = self.queue.take(id);
        let entry = of_queue.or_else(|| {
            self.delivered.take(id).map(|delivered| {
                // It was delivered once.
                Entry { reminder: 1, ..self.queue.next(delivered) }
            })
        });
        let Some(mut entry) = entry else { return };
        entry.snoozes = entry.snoozes.saturating_add(1);
        let (is_repeated, is_snoozed) = (entry.is_repeated(), entry.is_snoozed());
        // It comes after this time in place of its repetition, which follows.
        entry.put_off = entry.put_off.saturating_add(u8::from(is_repeated && !is_snoozed));
        entry.holds.retain(|own| match own {
            Hold::Snoozed { .. } => false,
            Hold::Deferred { .. } => !is_repeated,
            Hold::Quiet { .. } | Hold::Silenced { .. } | Hold::Budget { .. } | Hold::Inhibited { .. } => true,
        });
        entry.holds.push(hold);
        self.queue.restore(entry);
        self.evict_overflow();
    }

    fn answer(&mut self, id: &NotificationId, received: Received) {
        self.delivered.take(id);
        self.leases.answer(id);
        if let Some(entry) = self.queue.take(id) {
            if received == Received::Pending {
                self.end(&entry.notification, Reason::Dismissed);
            } else {
                self.recent.insert(*id);
                self.arrived.insert(*id);
            }
        }
    }
}

/// What follows a delivery.
enum After {
    /// It waits for its repetition of this number, or for the end of its snooze; without a number it was
    /// delivered for the last time, and waits for an answer.
    Waits(Entry, Option<u32>),
    /// Nothing.
    Over(Entry),
}

fn after_delivery(entry: Entry, now: Timestamp) -> After {
    if entry.is_answered {
        return After::Over(entry);
    }
    let next = entry.reminder + 1;
    if !entry.holds.is_empty() {
        // It was snoozed on its way.
        return After::Waits(Entry { put_off: entry.put_off.saturating_add(1), ..entry }, Some(next));
    }
    let Some(repeat) = entry.notification.repeat.clone() else { return After::Over(entry) };
    let holds_no_more = repeat.until == RepeatUntil::Resolved && entry.notification.unresolved.is_empty();
    if holds_no_more || entry.notification.is_resolved() {
        return After::Over(entry);
    }
    let hold = |wait, by| vec![Hold::Deferred { since: now, waits: vec![wait], by }];
    let repetition = next.saturating_sub(u32::from(entry.put_off));
    match (repeat.next(repetition, now), repeat.wait_for_answer(now)) {
        (Some((wait, priority)), _) => {
            let notification = raised(entry.notification.clone(), priority);
            After::Waits(
                Entry { notification, holds: hold(wait, DelayedBy::Repetition), ..entry },
                Some(next),
            )
        }
        (None, Some(wait)) => After::Waits(Entry { holds: hold(wait, DelayedBy::Answer), ..entry }, None),
        (None, None) => After::Over(entry),
    }
}

/// A notification with another priority; a critical one stays critical.
fn raised(notification: Arc<Notification>, priority: Option<Priority>) -> Arc<Notification> {
    let own = notification.priority;
    match priority.filter(|priority| *priority != own && own != Priority::Critical) {
        Some(priority) => Arc::new(Notification { priority, ..(*notification).clone() }),
        None => notification,
    }
}
