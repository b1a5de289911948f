//! Handover of notifications: a session leaves them to others when it ends, and takes them over.
//!
//! A notification for a folder or for all sessions does not belong to one session: until it is
//! confirmed as read, it goes to the next session. Those addressed to the session stay.

use std::sync::Arc;

use super::{
    entry::Entry,
    left::{Earlier, Left, Marks},
    parts::Injector,
    queue::Queue,
};
use crate::{
    event::Scope,
    exchange::InjectionId,
    ledger::{LedgerEntry, Reason},
    notification::{Notification, NotificationId, Priority, SubscriberId},
    sorted::SortedMap,
};

impl Injector {
    /// The pending notifications, in delivery order.
    pub fn waiting(&self) -> Vec<Left> {
        self.queue.in_order().into_iter().map(left).collect()
    }

    /// Ends the session: leased notifications end as uncertain, and pending ones are returned in
    /// order, for the caller to pass on or to end.
    pub fn close(&mut self) -> Vec<Left> {
        for lease in self.leases.take_all() {
            lease.entries.into_iter().for_each(|entry| self.end_uncertain(entry));
        }
        let waiting = self.waiting();
        self.queue = Queue::default();
        waiting
    }

    /// Ends the notifications here that other sessions may get: pending ones as `session_gone`,
    /// leased ones as `uncertain`.
    ///
    /// `leaves_asked`: those that its agent asked for, too. Shape: the released ones first, then the
    /// pending ones in order. The session may take them
    /// back later with [`Injector::take_over`].
    pub fn leave(&mut self, leaves_asked: bool) -> Vec<Left> {
        let is_for_others = |entry: &Entry| {
            let is_own = matches!(entry.notification.scope, Scope::Session(_));
            !is_own || leaves_asked && entry.notification.is_asked
        };
        let released = self.leases.take_entries(is_for_others);
        let waiting = self.queue.take_all_that(&is_for_others);
        let mut left = Vec::with_capacity(released.len() + waiting.len());
        for (injection, entry) in released {
            self.note_left(&entry.notification, Reason::Uncertain);
            left.push(Left::for_another(entry.notification, Earlier::By(injection)));
        }
        for entry in waiting {
            self.note_left(&entry.notification, Reason::SessionGone);
            left.push(self::left(&entry).to_another());
        }
        left
    }

    /// Records that a notification ended here. It is not remembered as released: the session can
    /// get it again.
    fn note_left(&mut self, notification: &Notification, reason: Reason) {
        self.recent.forget(notification.id);
        let (notification, session) = (notification.id, Some(self.session.clone()));
        self.outputs.push_back(LedgerEntry::NotificationEnded { notification, session, reason });
    }

    /// Accepts a notification that waited elsewhere, with its state there; also one that this
    /// session had and left. Returns whether it is new here.
    pub fn take_over(&mut self, Left { notification, marks }: Left) -> bool {
        self.accept(notification, |queue, notification| queue.push_left(notification, marks))
    }

    /// Adds to the evictions that the next injection reports.
    pub fn note_evicted(&mut self, counts: SortedMap<SubscriberId, u32>) {
        for (subscriber, count) in counts {
            self.add_evicted(subscriber, count);
        }
    }

    /// Whether the notification is pending here.
    pub fn waits(&self, notification: &NotificationId) -> bool {
        self.queue.contains(notification)
    }

    /// Whether a confirmation of `injection` ends something here.
    pub fn can_confirm(&self, injection: &InjectionId) -> bool {
        self.leases.iter().any(|lease| lease.injection == *injection)
            || self.queue.has_returned_from(injection)
    }

    /// The lowest priority in the queue, and the length of the queue, with those for the user;
    /// `None` when it is empty.
    pub fn weight(&self) -> Option<(Priority, usize)> {
        self.queue.least_priority().map(|least| (least, self.queue.len()))
    }

    /// Evicts the oldest notification of the lowest priority, because a queue or all queues
    /// together are full.
    pub fn evict_least(&mut self) {
        if let Some(entry) = self.queue.evict() {
            self.end_evicted(&entry);
        }
    }
}

/// An entry as its session leaves it.
fn left(entry: &Entry) -> Left {
    let Entry { has_cancelled, is_released_by_user, is_shown, is_quiet, .. } = *entry;
    let earlier = match entry.returned_from {
        Some(injection) => Earlier::By(injection),
        None if entry.is_recalled => Earlier::Perhaps,
        None => Earlier::Not,
    };
    let marks = Marks { earlier, has_cancelled, is_released_by_user, is_shown, is_quiet };
    Left { notification: Arc::clone(&entry.notification), marks }
}
