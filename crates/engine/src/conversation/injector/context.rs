//! Redelivery of conditions whose context was lost.
//!
//! A session remembers the newest [`super::DELIVERED_MAX`] conditions that reached it, or may have.
//! When its context is compacted, those that have not expired are queued again, marked as
//! redelivered. A confirmed occurrence is delivered once; it is not redelivered after any change of
//! the context. Unconfirmed injections return to the queue.

use super::{entry::Entry, lease::Answers, parts::Injector};
use journal::time::Timestamp;

use crate::{
    ledger::{LedgerEntry, Reason},
    notification::Priority,
};

impl Injector {
    /// The context was compacted: unconfirmed injections and conditions that still hold are queued
    /// again.
    pub fn lose_context(&mut self, now: Timestamp) {
        self.take_back_leased(|entry| entry.notification.priority == Priority::Low);
        for notification in self.delivered.take_true(now) {
            let (id, session) = (notification.id, self.session.clone());
            self.outputs.push_back(LedgerEntry::Recalled { notification: id, session });
            self.queue.recall(notification);
            self.evict_overflow();
        }
        self.first_text = None;
        self.begin_context(now);
    }

    /// The conversation was resumed with its history: unconfirmed injections are queued again, as
    /// the history may lack them.
    pub fn resume_context(&mut self, now: Timestamp) {
        self.take_back_leased(|_| false);
        self.begin_context(now);
    }

    /// Another process continues the session: its carriers are messages of its own.
    pub fn begin_process(&mut self) {
        self.answers = Answers::default();
    }

    /// The process of the session has ended: unconfirmed injections are queued again, for the
    /// process that resumes it.
    pub fn end_process(&mut self) {
        self.take_back_leased(|_| false);
        self.held = None;
    }

    /// Puts unconfirmed notifications back, as returned from their injection; those that `is_over`
    /// selects end.
    fn take_back_leased(&mut self, is_over: impl Fn(&Entry) -> bool) {
        for lease in self.leases.take_all() {
            self.forget_first_text(&lease.injection);
            for mut entry in lease.entries {
                if is_over(&entry) {
                    self.end(&entry.notification, Reason::Uncertain);
                } else {
                    entry.returned_from = Some(lease.injection);
                    self.put_back(entry);
                }
            }
        }
    }

    fn begin_context(&mut self, now: Timestamp) {
        self.expire_pending(now);
        self.continuations = 0;
        self.held = None;
    }

    /// Remembers the notifications that were or are being delivered to `other`: this session's
    /// context is a copy of that one's.
    pub fn remember_delivered(&mut self, other: &Self) {
        self.first_text = self.first_text.or(other.first_text);
        let leased = other.leases.iter().flat_map(|lease| &lease.entries).map(|entry| &entry.notification);
        for notification in other.delivered.oldest_first().chain(leased) {
            self.recent.insert(notification.id);
            self.delivered.insert(notification.clone());
        }
        // Notifications that were released and returned wait in the copy too.
        let left = other.recent.oldest_first().filter(|id| !other.queue.contains(id));
        left.for_each(|id| self.recent.insert(*id));
    }
}
