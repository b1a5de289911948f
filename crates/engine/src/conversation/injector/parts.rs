//! The parts of a session's queue, and the steps that move or end a notification.

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    delivered::{Delivered, RecentIds},
    entry::Entry,
    lease::{Answers, Lease, Leases},
    point::Held,
    queue::Queue,
    turns::Turns,
};
use journal::time::Timestamp;

use crate::{
    event::{SessionId, Severity},
    exchange::InjectionId,
    ledger::{ConfirmedBy, LedgerEntry, Reason},
    notification::{Notification, Priority, SubscriberId},
    sorted::SortedMap,
};

/// The pending and leased notifications of one session.
#[derive(Debug, Serialize, Deserialize)]
pub struct Injector {
    pub(super) session: SessionId,
    pub(super) queue_len_max: usize,
    pub(super) queue: Queue,
    pub(super) leases: Leases,
    pub(super) answers: Answers,
    pub(super) recent: RecentIds,
    /// The delivered conditions that may still hold.
    pub(super) delivered: Delivered,
    /// A batch of tool calls that is being cancelled.
    pub(super) held: Option<Held>,
    /// The next exchange releases everything, because the harness was woken or interrupted for it.
    pub(super) releases_all: bool,
    pub(super) turn: Option<Arc<str>>,
    pub(super) turns: Turns,
    /// Number of consecutive requests to the agent to continue.
    pub(super) continuations: u32,
    /// Number of events of each subscriber that were evicted since the last report to the agent; no
    /// zeroes.
    pub(super) evicted: SortedMap<SubscriberId, u32>,
    /// The injection with the first text of the present context; `None` if it had none, or if that
    /// text may not have arrived.
    pub(super) first_text: Option<InjectionId>,
    #[serde(skip)]
    pub(super) outputs: VecDeque<LedgerEntry>,
}

impl Injector {
    /// Creates the empty queue of `session`, with at most `queue_len_max` notifications.
    pub fn new(session: SessionId, queue_len_max: u32) -> Self {
        Self {
            session,
            queue_len_max: usize::try_from(queue_len_max).unwrap_or(usize::MAX),
            queue: Queue::default(),
            leases: Leases::default(),
            answers: Answers::default(),
            recent: RecentIds::default(),
            delivered: Delivered::default(),
            held: None,
            releases_all: false,
            turn: None,
            turns: Turns::default(),
            continuations: 0,
            evicted: SortedMap::new(),
            first_text: None,
            outputs: VecDeque::new(),
        }
    }

    /// Accepts a notification, unless this session has or recently had it; `add` queues it. Returns
    /// whether it is new here.
    pub(super) fn accept(
        &mut self,
        notification: Arc<Notification>,
        add: impl FnOnce(&mut Queue, Arc<Notification>),
    ) -> bool {
        let id = notification.id;
        if self.queue.contains(&id) || self.recent.contains(id) || self.leases.contains(&id) {
            return false;
        }
        let session = self.session.clone();
        self.outputs.push_back(LedgerEntry::Queued { notification: id, session });
        if !self.supersede(&notification) {
            add(&mut self.queue, notification);
            self.evict_overflow();
        }
        true
    }

    /// Ends an unconfirmed lease: each important notification returns to the queue once.
    pub(super) fn run_out(&mut self, lease: Lease) {
        self.forget_first_text(&lease.injection);
        for mut entry in lease.entries {
            // Only a return counts as a lost delivery. A notification that was recalled because its
            // context was lost had been delivered.
            if entry.returned_from.is_some() || !is_worth_repeating(&entry.notification) {
                self.end_uncertain(entry);
            } else {
                entry.returned_from = Some(lease.injection);
                self.put_back(entry);
            }
        }
    }

    /// Returns what a wake route pushed and the agent's input does not show. It may have been shown
    /// all the same: a client writes its transcript late.
    pub(super) fn return_pushed(&mut self, lease: Lease) {
        self.forget_first_text(&lease.injection);
        for (subscriber, count) in lease.evicted {
            self.add_evicted(subscriber, count);
        }
        for mut entry in lease.entries {
            entry.returned_from = Some(lease.injection);
            self.put_back(entry);
        }
    }

    /// Notes that an injection may not have arrived: if it had the first text of the context, the
    /// next text is the first.
    pub(super) fn forget_first_text(&mut self, injection: &InjectionId) {
        self.first_text = self.first_text.filter(|first| first != injection);
    }

    /// Records that notifications have arrived.
    pub(super) fn confirm(&mut self, entries: Vec<Entry>, by: ConfirmedBy) {
        for entry in entries {
            let notification = entry.notification.id;
            self.recent.insert(notification);
            self.delivered.insert(entry.notification);
            self.outputs.push_back(LedgerEntry::Confirmed {
                notification,
                session: self.session.clone(),
                by,
            });
        }
    }

    /// Returns a released notification to the queue.
    pub(super) fn put_back(&mut self, entry: Entry) {
        let notification = entry.notification.id;
        self.outputs.push_back(LedgerEntry::Returned { notification, session: self.session.clone() });
        if entry.notification.is_resolved() {
            return self.end(&entry.notification, Reason::Withdrawn);
        }
        if self.supersede(&entry.notification) {
            return;
        }
        self.queue.restore(entry);
        self.evict_overflow();
    }

    /// Evicts a notification if the queue is longer than its bound; returns whether it was.
    pub(super) fn evict_overflow(&mut self) -> bool {
        let is_over = self.queue.len() > self.queue_len_max;
        if is_over {
            self.evict_least();
        }
        is_over
    }

    /// Ends an evicted notification, and counts its events.
    pub(super) fn end_evicted(&mut self, evicted: &Entry) {
        if !evicted.is_for_user() {
            let events = u32::try_from(evicted.notification.events.len()).unwrap_or(u32::MAX);
            self.add_evicted(evicted.notification.subscriber.clone(), events);
        }
        self.end(&evicted.notification, Reason::QueueOverflow);
    }

    /// Counts events that were evicted.
    pub(super) fn add_evicted(&mut self, subscriber: SubscriberId, events: u32) {
        let evicted = self.evicted.get_or_default(subscriber);
        *evicted = evicted.saturating_add(events);
    }

    /// Ends the pending notifications that have expired.
    pub(super) fn expire_pending(&mut self, now: Timestamp) {
        while let Some(expired) = self.queue.take_expired(now) {
            self.end(&expired.notification, Reason::Expired);
        }
    }

    /// Ends a notification that may have arrived.
    pub(super) fn end_uncertain(&mut self, entry: Entry) {
        self.end(&entry.notification, Reason::Uncertain);
        self.delivered.insert(entry.notification);
    }

    /// Records the end of a notification here.
    pub(super) fn end(&mut self, notification: &Notification, reason: Reason) {
        self.recent.insert(notification.id);
        self.outputs.push_back(LedgerEntry::NotificationEnded {
            notification: notification.id,
            session: Some(self.session.clone()),
            reason,
        });
    }
}

fn is_worth_repeating(notification: &Notification) -> bool {
    notification.priority == Priority::Critical || notification.severity >= Severity::Error
}
