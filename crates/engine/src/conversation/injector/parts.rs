//! The parts of a session's queue, the steps that move or end a notification, and the changes without
//! an exchange: redelivery in a new context, handover to other sessions, resolution.
//!
//! A session remembers the newest [`super::DELIVERED_MAX`] conditions that reached it, or may have.
//! When its context is compacted, those that have not expired are queued again, marked as
//! redelivered. A confirmed occurrence is delivered once; it is not redelivered after any change of
//! the context. Unconfirmed injections return to the queue.
//!
//! A session leaves its notifications to others when it ends. A notification for a folder or for
//! all sessions does not belong to one session: until it is confirmed as read, it goes to the next
//! session. Those addressed to the session stay.
//!
//! A notification replaces pending ones whose states it repeats. When a condition no longer holds,
//! its pending notifications are withdrawn, and delivered ones are not redelivered. Due notifications
//! that one exchange omits are put aside before it and taken back after it.

use std::{collections::VecDeque, sync::Arc};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    delivered::{Delivered, RECENT_IDS_MAX, RecentIds},
    entry::{Earlier, Entry, Left, Marks},
    lease::{Answers, Lease, Leases},
    point::CancelledBatch,
    queue::Queue,
    spent::Spent,
    turns::Turns,
};
use crate::{
    event::{Scope, SessionId, Severity},
    exchange::InjectionId,
    hold::{Hold, HoldKind},
    ledger::{ConfirmedBy, LedgerEntry, Reason},
    notification::{
        Activation, Notification, NotificationId, Priority, Resolution, State, SubscriberId, Unseen,
    },
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
    pub(super) recent: RecentIds<RECENT_IDS_MAX>,
    /// The ids of those that have arrived, or may have.
    #[serde(default)]
    pub(super) arrived: RecentIds<RECENT_IDS_MAX>,
    /// The delivered conditions that may still hold.
    pub(super) delivered: Delivered,
    /// A batch of tool calls that is being cancelled.
    #[serde(alias = "held")]
    pub(super) cancelled: Option<CancelledBatch>,
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
    /// What its releases took of the budgets.
    #[serde(default)]
    pub(super) spent: Spent,
    #[serde(skip)]
    pub(super) outputs: VecDeque<LedgerEntry>,
    /// Those that ended because nobody answered them, since the last call of
    /// [`Injector::take_unanswered`].
    #[serde(skip)]
    pub(super) unanswered: Vec<Arc<Notification>>,
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
            arrived: RecentIds::default(),
            delivered: Delivered::default(),
            cancelled: None,
            releases_all: false,
            turn: None,
            turns: Turns::default(),
            continuations: 0,
            evicted: SortedMap::new(),
            first_text: None,
            spent: Spent::default(),
            outputs: VecDeque::new(),
            unanswered: Vec::new(),
        }
    }

    /// Whether this session has or recently had a notification.
    pub fn has_had(&self, id: &NotificationId) -> bool {
        self.queue.contains(id) || self.recent.contains(*id) || self.leases.contains(id)
    }

    /// Accepts a notification, unless this session has or recently had it; `add` queues it. Returns
    /// whether it is new here.
    pub(super) fn accept(
        &mut self,
        notification: Arc<Notification>,
        add: impl FnOnce(&mut Queue, Arc<Notification>),
    ) -> bool {
        let id = notification.id;
        if self.has_had(&id) {
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
    pub(super) fn run_out(&mut self, lease: Lease, now: Timestamp) {
        self.forget_first_text(&lease.injection);
        for mut entry in lease.entries {
            // Only a return counts as a lost delivery. A notification that was recalled because its
            // context was lost had been delivered.
            if entry.returned_from.is_some() || !is_worth_repeating(&entry.notification) {
                self.note_unconfirmed(entry, now);
            } else {
                entry.returned_from = Some(lease.injection);
                self.put_back(entry);
            }
        }
    }

    /// Returns what a wake route pushed and the agent's input does not show. It may have been shown
    /// all the same: a client writes its transcript late.
    pub(super) fn return_pushed(&mut self, lease: Lease, now: Timestamp) {
        self.forget_first_text(&lease.injection);
        self.credit(lease.charge, lease.released_at, now);
        self.note_evicted(lease.evicted);
        for mut entry in lease.entries {
            entry.returned_from = Some(lease.injection);
            self.put_back(entry);
        }
    }

    /// Whether the present context may have had no text.
    pub fn is_without_text(&self) -> bool {
        self.first_text.is_none()
    }

    /// Notes that an injection may not have arrived: if it had the first text of the context, the
    /// next text is the first.
    pub(super) fn forget_first_text(&mut self, injection: &InjectionId) {
        self.first_text = self.first_text.filter(|first| first != injection);
    }

    /// Records that notifications have arrived at `now`.
    pub(super) fn confirm(&mut self, entries: Vec<Entry>, by: ConfirmedBy, now: Timestamp) {
        for entry in entries {
            let (notification, session) = (entry.notification.id, self.session.clone());
            self.recent.insert(notification);
            self.arrived.insert(notification);
            self.outputs.push_back(LedgerEntry::Confirmed { notification, session, by });
            self.note_delivered(entry, now);
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
            if expired.waits_for_answer() {
                self.note_unanswered(expired);
            } else {
                self.end(&expired.notification, Reason::Expired);
            }
        }
    }

    /// Ends a notification that may have arrived.
    pub(super) fn end_uncertain(&mut self, entry: Entry) {
        self.end(&entry.notification, Reason::Uncertain);
        self.arrived.insert(entry.notification.id);
        if !entry.is_answered {
            self.delivered.insert(entry.notification);
        }
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

impl Injector {
    /// The context was compacted: unconfirmed injections and conditions that still hold are queued
    /// again.
    pub fn lose_context(&mut self, now: Timestamp) {
        self.take_back_leased(|entry| entry.notification.priority == Priority::Low);
        self.recall_repeated();
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
        self.cancelled = None;
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
        self.cancelled = None;
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
        other.arrived.oldest_first().for_each(|id| self.arrived.insert(*id));
        // What the copy took when it opened, and its context has.
        let known = |entry: &Entry| {
            let id = entry.notification.id;
            self.recent.contains(id) || self.arrived.contains(id)
        };
        for entry in self.queue.take_all_that(&known) {
            self.end(&entry.notification, Reason::Known);
        }
        // Notifications that were released and returned wait in the copy too.
        let left = other.recent.oldest_first().filter(|id| !other.queue.contains(id));
        left.for_each(|id| self.recent.insert(*id));
    }
}

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
        // What was delivered here is not for others.
        for entry in self.queue.take_all_that(&Entry::is_repeated) {
            self.end(&entry.notification, Reason::SessionGone);
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
            let is_own = matches!(entry.notification.scope, Scope::Session(_)) || entry.is_repeated();
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

    /// Whether the agent may see a notification: the user need not be asked, or has been.
    pub fn may_be_shown(&self, notification: &Notification) -> bool {
        let id = notification.id;
        match self.queue.get(&id) {
            Some(entry) => !entry.is_for_user(),
            None => {
                notification.activation != Activation::Prompt
                    || self.leases.contains(&id)
                    || self.arrived.contains(id)
            }
        }
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
    // Another session has budgets of its own.
    let is_kept = |hold: &&Hold| hold.kind() != HoldKind::Budget;
    let holds = Some(entry.holds.iter().filter(is_kept).cloned().collect());
    let earlier = match entry.returned_from {
        Some(injection) => Earlier::By(injection),
        None if entry.is_recalled => Earlier::Perhaps,
        None => Earlier::Not,
    };
    let marks = Marks {
        earlier,
        has_cancelled: entry.has_cancelled,
        is_released_by_user: entry.is_released_by_user,
        is_shown: entry.is_shown,
        is_quiet: entry.is_quiet,
        level: entry.level,
        reminder: entry.reminder,
        put_off: entry.put_off,
        snoozes: entry.snoozes,
        holds,
    };
    Left { notification: Arc::clone(&entry.notification), marks }
}

/// The notifications put aside.
#[derive(Debug, Default)]
pub struct Aside(Vec<Entry>);

impl Injector {
    /// Takes out the pending notifications that `is_wanted` selects, for [`Injector::take_back`].
    pub fn put_aside(&mut self, is_wanted: impl Fn(&Notification) -> bool) -> Aside {
        Aside(self.queue.take_all_that(&|entry| is_wanted(&entry.notification)))
    }

    /// Returns the notifications that were put aside to their old places.
    pub fn take_back(&mut self, aside: Aside) {
        for entry in aside.0 {
            self.queue.restore(entry);
        }
    }
}

impl Injector {
    /// Ends pending notifications that `notification` supersedes, or that one itself if it is
    /// superseded; returns whether it is.
    ///
    /// Shape: leased ones are not called back, and may be superseded when they return.
    pub(super) fn supersede(&mut self, notification: &Notification) -> bool {
        self.end_outdated(&notification.subscriber, &notification.states);
        let is_superseded = self.queue.supersedes(notification);
        if is_superseded {
            self.end(notification, Reason::Superseded);
        }
        is_superseded
    }

    /// Ends what is out of date, because nobody gets what is newer; returns whether there was any.
    pub fn outdate(&mut self, newer: &Unseen) -> bool {
        self.end_outdated(&newer.subscriber, newer.state.as_slice())
    }

    fn end_outdated(&mut self, subscriber: &SubscriberId, later: &[State]) -> bool {
        if later.is_empty() {
            return false;
        }
        let older = self.queue.take_superseded(subscriber, later);
        older.iter().for_each(|older| self.end(&older.notification, Reason::Superseded));
        !older.is_empty()
    }
}

impl Injector {
    /// Applies a `resolution` that concerns the session; returns whether a pending notification
    /// ended.
    ///
    /// Shape: a notification of several conditions ends with the last of them. Leased ones are not
    /// called back, and end if they return.
    pub fn resolve(&mut self, resolution: &Resolution) -> bool {
        let resolved = self.queue.take_resolved(resolution);
        for entry in &resolved {
            self.end(&entry.notification, Reason::Withdrawn);
        }
        self.leases.resolve(resolution);
        self.delivered.resolve(resolution);
        !resolved.is_empty()
    }
}
