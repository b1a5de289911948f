//! The queue of one session: takes notifications in, and releases them where the harness can carry them.
//!
//! An exchange goes through it in this order: [`Injector::replay`] (the same carrier again gets the same answer),
//! [`Injector::confirm_by_exchange`] (what was released before has arrived), [`Injector::note_exchange`] (what has expired goes),
//! [`Injector::offer`] (what the point releases), [`fit`] (what there is room for, with the caller writing the text: it decides and
//! changes nothing), [`Injector::release`] (what was decided leaves under a lease, with the answer remembered for its carrier). A notification is at any time in exactly one place: in the queue, under a lease, or ended with
//! a [`LedgerEntry`]. It does not know how text is written, what else the engine does, or what time it is.

mod aside;
mod asks;
mod budget;
mod epoch;
mod handover;
mod held;
mod lease;
mod notice;
mod point;
mod queue;
mod recent;
mod repeat;
mod resolve;
mod supersede;
mod view;
mod wake;

#[cfg(test)]
mod flood;
#[cfg(test)]
mod model;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    event::{SessionId, Severity},
    exchange::{Answer, Decision, Directive, Exchange, Injection, InjectionId, Released},
    ledger::{ConfirmedBy, LedgerEntry, Reason},
    notification::{InjectionPoint, Notification, NotificationId, Priority, SubscriberId},
    session::{SessionState, Wake},
    time::Timestamp,
};

use self::{
    asks::is_withheld,
    epoch::Told,
    held::Held,
    lease::{Answers, Lease, Leases},
    queue::{Entry, Queue},
    recent::RecentIds,
};

pub use self::{
    asks::Asks,
    budget::{CARRIER_CHARS_MAX, Candidate, Decided, Fitted, Limits, Offer, Writer, fit},
    epoch::TOLD_MAX,
    handover::{Earlier, Left, Marks},
    lease::{CARRIERS_MAX, PARALLEL_MS, REPEATS_OF_A_FIXED_CARRIER, Replayed, TIME_OF_A_FIXED_CARRIER},
    point::releases,
    view::{InjectorView, LeaseView, PendingView},
};

/// How often in a row an agent is asked to go on at the end of its turn, so that no subscriber keeps a turn from ending.
pub const CONTINUATIONS_MAX: u32 = 2;

/// How what is decided leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms<'t> {
    /// How long an injection may stay unconfirmed.
    pub lease: Duration,
    /// Whether the user is shown what was delivered, where the harness can show a line.
    pub has_delivery_notice: bool,
    /// Word for the user that is shown with it.
    pub for_user: Option<&'t str>,
}

/// What became of a notification that was handed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// Whether it was taken in; not so if this session had it before.
    pub is_new: bool,
    /// What had to go because the queue was full; possibly the notification itself.
    pub evicted: Option<Arc<Notification>>,
}

/// What waits for one session, and what is on its way to it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Injector {
    session: SessionId,
    queue_len_max: usize,
    queue: Queue,
    leases: Leases,
    answers: Answers,
    recent: RecentIds,
    /// The conditions that were delivered and may still hold.
    told: Told,
    /// A batch of tool calls that gives way.
    #[serde(default)]
    held: Option<Held>,
    /// The next exchange releases everything, because the harness was woken or interrupted for it.
    releases_all: bool,
    turn: Option<Arc<str>>,
    /// How often in a row the agent was asked to go on.
    continuations: u32,
    /// How many events of each subscriber were evicted since the agent was last told how many; no zeroes.
    evicted: BTreeMap<SubscriberId, u32>,
    #[serde(skip)]
    outputs: VecDeque<LedgerEntry>,
}

impl Injector {
    /// Makes the empty queue of `session`, which holds at most `queue_len_max` notifications.
    pub fn new(session: SessionId, queue_len_max: u32) -> Self {
        Self {
            session,
            queue_len_max: usize::try_from(queue_len_max).unwrap_or(usize::MAX),
            queue: Queue::default(),
            leases: Leases::default(),
            answers: Answers::default(),
            recent: RecentIds::default(),
            told: Told::default(),
            held: None,
            releases_all: false,
            turn: None,
            continuations: 0,
            evicted: BTreeMap::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Takes in a notification, unless this session has or recently had it.
    ///
    /// A full queue evicts the oldest of its least important ones, a critical one only if all are critical.
    pub fn push(&mut self, notification: Arc<Notification>) -> Pushed {
        let id = &notification.id;
        if self.queue.contains(id) || self.recent.contains(id) || self.leases.contains(id) {
            return Pushed { is_new: false, evicted: None };
        }
        let session = self.session.clone();
        self.outputs.push_back(LedgerEntry::Queued { notification: id.clone(), session });
        if self.supersede(&notification) {
            return Pushed { is_new: true, evicted: None };
        }
        self.queue.push(notification);
        Pushed { is_new: true, evicted: self.evict_overflow() }
    }

    /// What the message of `exchange` was answered before: the same carrier at the same point and in the same turn, among the newest
    /// [`CARRIERS_MAX`] and no longer ago than a lease lasts.
    pub fn replay(&mut self, exchange: &Exchange, now: Timestamp) -> Option<Replayed> {
        let replayed = self.answers.replay(exchange, now)?;
        if let Some(injection) = &replayed.answer.injection {
            self.leases.answered_again(&injection.id);
        }
        Some(replayed)
    }

    /// Confirms what `exchange` proves to have arrived: whatever left with an earlier carrier of the same turn.
    ///
    /// Carriers at the same point within [`PARALLEL_MS`] of each other may be on their way together and prove nothing, nor does a
    /// call that was made together with one that gave way. Where either side does not name its turn, the turns count as the same.
    pub fn confirm_by_exchange(&mut self, exchange: &Exchange, now: Timestamp) {
        let held = self
            .held
            .as_ref()
            .filter(|held| exchange.point == InjectionPoint::BeforeTool && !held.is_over(exchange, now));
        for lease in self.leases.take_confirmed(exchange, held.map(|held| &held.injection), now) {
            self.confirm(lease.entries, ConfirmedBy::LaterExchange);
        }
    }

    /// Confirms an injection that is known, from `by`, to have arrived; one that is not open is ignored.
    ///
    /// A confirmation that comes after the lease ran out still ends what had gone back to the queue.
    pub fn ack(&mut self, injection: &InjectionId, by: ConfirmedBy) {
        let arrived = match self.leases.take(injection) {
            Some(lease) => lease.entries,
            None => self.queue.take_returned_from(injection),
        };
        self.confirm(arrived, by);
    }

    /// Takes back an injection when none of the answers that held it has left; one that is not open is ignored.
    ///
    /// To be told once for each answer that did not leave: a harness that gave up may have asked again with the same carrier
    /// and read it then. Its notifications wait as if they had not been released, and its carrier will be answered anew.
    ///
    /// Shape: the point at which it had been released, if it was taken back.
    pub fn undelivered(&mut self, injection: &InjectionId) -> Option<InjectionPoint> {
        let lease = self.leases.take_undelivered(injection)?;
        self.answers.forget(injection);
        if self.held.as_ref().is_some_and(|held| held.injection == *injection) {
            self.held = None;
        }
        for (subscriber, count) in lease.evicted {
            self.add_evicted(subscriber, count);
        }
        for mut entry in lease.entries {
            // The call that it would have come in place of was made.
            entry.has_cancelled = false;
            self.put_back(entry);
        }
        Some(lease.point)
    }

    /// Ends what waits of subscribers that were switched off; what is on its way is not called back.
    pub fn mute(&mut self, subscribers: &BTreeSet<SubscriberId>) {
        self.told.forget_of(subscribers);
        for entry in self.queue.take_of(subscribers) {
            self.end(&entry.notification, Reason::SubscriberOff);
        }
    }

    /// Ends what waits and `is_wanted` picks.
    pub fn end_all_that(&mut self, is_wanted: impl Fn(&Notification) -> bool, reason: &Reason) {
        for entry in self.queue.take_all_that(|entry| is_wanted(&entry.notification)) {
            self.end(&entry.notification, reason.clone());
        }
    }

    /// Says that the harness was woken or interrupted: the next exchange releases everything.
    pub fn woken(&mut self) {
        self.releases_all = true;
    }

    /// Takes note of an exchange before anything is offered: what has expired ends, and what belongs to a turn or a batch of calls
    /// that is over is forgotten. Call it once for each exchange.
    pub fn note_exchange(&mut self, exchange: &Exchange, now: Timestamp) {
        self.expire_pending(now);
        self.note_turn(exchange);
        if self.held.as_ref().is_some_and(|held| held.is_over(exchange, now)) {
            self.held = None;
        }
    }

    /// What the point of `exchange` releases: critical ones, and others up to the number that `limits` allow in all. With a
    /// critical one goes everything that waits for the agent.
    ///
    /// A carrier that makes the agent go on gets nothing unless one of them asks for that, and then only
    /// [`CONTINUATIONS_MAX`] times in a row; one that comes in place of a tool call gets nothing unless one of them is worth a
    /// call, which it is once.
    pub fn offer(&self, exchange: &Exchange, limits: &Limits) -> Offer {
        let point = exchange.releases_as_at();
        let is_due_alone = |lane| point::lets_out(point, lane, self.releases_all);
        let takes_all = self.releases_all || self.queue.has_critical(is_due_alone);
        let is_due = |lane| point::lets_out(point, lane, takes_all);
        let others_max = usize::try_from(limits.max_notifications).unwrap_or(usize::MAX);
        let candidates: Vec<Candidate> =
            self.queue.first_due(others_max, is_due).into_iter().map(candidate).collect();
        let asks = self.asks(exchange, &candidates);
        let standing = self.standing_directive(exchange);
        if is_withheld(exchange, asks) {
            return Offer { standing, ..Offer::default() };
        }
        Offer { candidates, due: self.queue.count_due(is_due), asks, standing }
    }

    /// How many events of each subscriber were evicted with their notifications and the next injection is to say so.
    pub fn evicted(&self) -> &BTreeMap<SubscriberId, u32> {
        &self.evicted
    }

    /// Does what was decided for `exchange`: releases it under a lease, and keeps the answer for the carrier.
    ///
    /// Afterwards the ledger entries are to be taken with [`Self::poll_output`], before the answer is given. `injection` is
    /// not used up when there is nothing to release.
    pub fn release(
        &mut self,
        exchange: &Exchange,
        decided: Decided,
        injection: &InjectionId,
        terms: Terms<'_>,
        now: Timestamp,
    ) -> Answer {
        let Decided { fitted, directive } = decided;
        let Terms { lease, has_delivery_notice, for_user } = terms;
        self.note_released(exchange, fitted.is_some(), directive.as_ref());
        let notice = exchange.shows_notices.then(|| {
            let delivered = notice::of_delivery(fitted.as_ref(), directive.as_ref());
            notice::line(&mut self.queue, delivered.filter(|_| has_delivery_notice), for_user)
        });
        let injection =
            fitted.map(|fitted| self.open_lease(exchange, fitted, directive.as_ref(), injection, lease, now));
        let (pending, _) = self.pending();
        let check_before_tool = self.check_before_tool();
        let answer = Answer { injection, pending, check_before_tool, directive, notice: notice.flatten() };
        self.answers.insert(exchange, answer.clone(), lease, now);
        answer
    }

    /// Ends what has expired at `now`: pending notifications, and leases that nothing confirmed.
    ///
    /// Of the latter, critical notifications and those of severity error or worse go back once; the rest end as uncertain.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        for lease in self.leases.take_expired(now) {
            self.run_out(lease);
        }
        self.expire_pending(now);
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        [self.queue.poll_timeout(), self.leases.poll_timeout()].into_iter().flatten().min()
    }

    /// What became of notifications, in the order in which it happened.
    pub fn poll_output(&mut self) -> Option<LedgerEntry> {
        self.outputs.pop_front()
    }

    /// All that [`Self::poll_output`] would give. The room that they took goes with them: a session that took a thousand broadcasts at
    /// once would keep that of two thousand entries.
    pub fn take_outputs(&mut self) -> VecDeque<LedgerEntry> {
        std::mem::take(&mut self.outputs)
    }

    /// How many notifications wait for the agent, and how urgent the most urgent one is; neither what is under a lease nor
    /// what waits for the user counts.
    pub fn pending(&self) -> (u32, Option<Priority>) {
        let for_agent = self.queue.len() - self.queue.len_for_user();
        (u32::try_from(for_agent).unwrap_or(u32::MAX), self.queue.top_priority())
    }

    /// How many notifications of that priority wait for the agent.
    pub fn pending_of(&self, priority: Priority) -> u32 {
        self.queue.len_of(priority)
    }

    /// How many notifications wait for the user's word.
    pub fn for_user(&self) -> u32 {
        u32::try_from(self.queue.len_for_user()).unwrap_or(u32::MAX)
    }

    /// What the queue asks for while the session is in `state`, with the least priority that wakes; `None` when it can wait.
    pub fn wake(&self, state: SessionState, threshold: Priority) -> Option<Wake> {
        wake::wanted(&self.queue, state, threshold)
    }

    /// Does what the user decided about a notification that waits; whether it waited.
    pub fn decide(&mut self, notification: &NotificationId, decision: Decision) -> bool {
        match decision {
            Decision::Dismiss => match self.queue.take(notification) {
                Some(entry) => {
                    self.end(&entry.notification, Reason::Dismissed);
                    true
                }
                None => false,
            },
            Decision::Discuss => self.queue.release_to_agent(notification),
        }
    }

    /// The injections that are on their way and not known to have arrived, oldest first.
    pub fn unconfirmed_ids(&self) -> Vec<InjectionId> {
        self.leases.iter().map(|lease| lease.injection.clone()).collect()
    }

    /// How many injections are on their way and not known to have arrived.
    pub fn unconfirmed(&self) -> u32 {
        u32::try_from(self.leases.iter().len()).unwrap_or(u32::MAX)
    }

    /// Whether something waits that is released before the next tool runs, or the calls of a batch are held back.
    pub fn check_before_tool(&self) -> bool {
        self.held.is_some()
            || self.queue.has_due(|lane| point::lets_out(InjectionPoint::BeforeTool, lane, false))
    }

    /// Changes how many notifications may wait; what is over a lower bound goes, the least important first.
    pub fn set_queue_len_max(&mut self, queue_len_max: u32) {
        self.queue_len_max = usize::try_from(queue_len_max).unwrap_or(usize::MAX);
        while self.evict_overflow().is_some() {}
    }

    /// What waits and what is on its way, for whoever looks.
    pub fn view(&self, now: Timestamp) -> InjectorView {
        view::view(&self.queue, &self.leases, now)
    }

    /// A new turn begins the count of continuations anew.
    fn note_turn(&mut self, exchange: &Exchange) {
        let is_other_turn = matches!((&self.turn, &exchange.turn), (Some(last), Some(this)) if last != this);
        if exchange.point == InjectionPoint::TurnStart || is_other_turn {
            self.continuations = 0;
        }
        if exchange.turn.is_some() {
            self.turn.clone_from(&exchange.turn);
        }
        let is_due = |lane| point::lets_out(exchange.releases_as_at(), lane, self.releases_all);
        let lets_stop = exchange.point == InjectionPoint::TurnEnd && !self.queue.has_critical(is_due);
        if lets_stop {
            self.continuations = 0;
        }
    }

    fn asks(&self, exchange: &Exchange, candidates: &[Candidate]) -> Option<Asks> {
        let asks = match exchange.point {
            InjectionPoint::TurnEnd => (self.continuations < CONTINUATIONS_MAX).then_some(Asks::ToContinue),
            InjectionPoint::BeforeTool => Some(Asks::ToCancel),
            InjectionPoint::Immediate | InjectionPoint::TurnStart | InjectionPoint::AfterTool => None,
        };
        asks.filter(|asks| candidates.iter().any(|candidate| asks.is_asked_by(candidate)))
    }

    /// What a call is told that was made together with one that gave way.
    fn standing_directive(&self, exchange: &Exchange) -> Option<Directive> {
        let held = self.held.as_ref().filter(|_| exchange.point == InjectionPoint::BeforeTool)?;
        Some(Directive::Cancel { reason: held.reason.clone() })
    }

    fn note_released(&mut self, exchange: &Exchange, is_released: bool, directive: Option<&Directive>) {
        if matches!(directive, Some(Directive::Continue { .. })) {
            self.continuations += 1;
        }
        if is_released || !is_withheld(exchange, None) {
            self.releases_all = false;
        }
    }

    fn open_lease(
        &mut self,
        exchange: &Exchange,
        fitted: Fitted,
        directive: Option<&Directive>,
        injection: &InjectionId,
        lease: Duration,
        now: Timestamp,
    ) -> Injection {
        if let Some(Directive::Cancel { reason }) = directive
            && fitted.chosen.iter().any(|chosen| Asks::ToCancel.is_asked_by(chosen))
        {
            self.held = Some(Held::new(exchange, reason, injection, now));
        }
        let is_cancelled = matches!(directive, Some(Directive::Cancel { .. }));
        let mut entries: Vec<Entry> = fitted
            .chosen
            .iter()
            .filter_map(|candidate| self.queue.take(&candidate.notification.id))
            .collect();
        let mut notifications = Vec::with_capacity(entries.len());
        for entry in &mut entries {
            entry.has_cancelled |= is_cancelled;
            let released = released(entry);
            self.recent.insert(released.id.clone());
            let redelivered = entry.redelivered();
            self.outputs.push_back(LedgerEntry::Injected {
                notification: released.id.clone(),
                session: self.session.clone(),
                injection: injection.to_string(),
                point: exchange.point,
                redelivered,
            });
            notifications.push(released);
        }
        self.leases.open(Lease {
            injection: injection.clone(),
            point: exchange.point,
            carrier: exchange.carrier.clone(),
            turn: exchange.turn.clone(),
            released_at: now,
            expires_at: now + lease,
            answers: 1,
            entries,
            evicted: std::mem::take(&mut self.evicted),
        });
        if let Some(oldest) = self.leases.take_overflow() {
            self.run_out(oldest);
        }
        let (id, role) = (injection.clone(), point::role(exchange.point));
        Injection { id, text: fitted.text.into(), sentence: fitted.sentence.into(), role, notifications }
    }

    fn run_out(&mut self, lease: Lease) {
        for mut entry in lease.entries {
            // Only a return counts: one that came back because its context is gone was not lost before.
            if entry.returned_from.is_some() || !is_worth_repeating(&entry.notification) {
                self.end_uncertain(entry);
            } else {
                entry.returned_from = Some(lease.injection.clone());
                self.put_back(entry);
            }
        }
    }

    fn confirm(&mut self, entries: Vec<Entry>, by: ConfirmedBy) {
        for entry in entries {
            let notification = entry.notification.id.clone();
            self.recent.insert(notification.clone());
            self.told.insert(entry.notification);
            self.outputs.push_back(LedgerEntry::Confirmed {
                notification,
                session: self.session.clone(),
                by,
            });
        }
    }

    fn put_back(&mut self, entry: Entry) {
        let notification = entry.notification.id.clone();
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

    fn evict_overflow(&mut self) -> Option<Arc<Notification>> {
        if self.queue.len() <= self.queue_len_max {
            return None;
        }
        let evicted = self.queue.evict()?;
        self.end_evicted(&evicted);
        Some(evicted.notification)
    }

    fn end_evicted(&mut self, evicted: &Entry) {
        if !evicted.is_for_user() {
            let events = u32::try_from(evicted.notification.events.len()).unwrap_or(u32::MAX);
            self.add_evicted(evicted.notification.subscriber.clone(), events);
        }
        self.end(&evicted.notification, Reason::QueueOverflow);
    }

    fn add_evicted(&mut self, subscriber: SubscriberId, events: u32) {
        let evicted = self.evicted.entry(subscriber).or_default();
        *evicted = evicted.saturating_add(events);
    }

    fn expire_pending(&mut self, now: Timestamp) {
        while let Some(expired) = self.queue.take_expired(now) {
            self.end(&expired.notification, Reason::Expired);
        }
    }

    fn end_uncertain(&mut self, entry: Entry) {
        self.end(&entry.notification, Reason::Uncertain);
        self.told.insert(entry.notification);
    }

    fn end(&mut self, notification: &Notification, reason: Reason) {
        self.recent.insert(notification.id.clone());
        self.outputs.push_back(LedgerEntry::NotificationEnded {
            notification: notification.id.clone(),
            session: Some(self.session.clone()),
            reason,
        });
    }
}

fn is_worth_repeating(notification: &Notification) -> bool {
    notification.priority == Priority::Critical || notification.severity >= Severity::Error
}

fn candidate(entry: &Entry) -> Candidate {
    Candidate {
        notification: entry.notification.clone(),
        redelivered: entry.redelivered(),
        has_cancelled: entry.has_cancelled,
        cut: None,
    }
}

fn released(entry: &Entry) -> Released {
    let notification = &entry.notification;
    Released {
        id: notification.id.clone(),
        subscriber: notification.subscriber.clone(),
        priority: notification.priority,
        severity: notification.severity,
        redelivered: entry.redelivered().is_some(),
    }
}
