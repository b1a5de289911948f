//! The queue of one session: accepts notifications, and releases them where the harness can carry
//! them.
//!
//! An exchange goes through these steps: [`Injector::replay`] (the same carrier again gets the same
//! answer), [`Injector::confirm_by_exchange`] (earlier releases have arrived),
//! [`Injector::note_exchange`] (expired ones end), [`Injector::offer`] (what the point releases),
//! [`fit`] (what fits; the caller renders the text, and nothing changes), [`Injector::release`]
//! (the decision is released under a lease, and the answer kept for its carrier). A notification is
//! always in exactly one place: in the queue, under a lease, or ended with a [`LedgerEntry`]. The
//! injector does not know text formats, the rest of the engine, or the time.

mod budget;
mod charge;
mod constrain;
mod delivered;
mod ended;
mod entry;
mod holds;
mod lease;
mod parts;
mod point;
mod queue;
mod repeats;
mod room;
mod spent;
mod summarise;
mod turns;
mod view;

#[cfg(test)]
mod flood;
#[cfg(test)]
mod model;
#[cfg(test)]
mod overdrawn;
#[cfg(test)]
mod proofs;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, sync::Arc, time::Duration};

pub(super) use self::delivered::RecentIds;
pub(super) use self::holds::is_urgent;
pub use self::{
    budget::{CARRIER_CHARS_MAX, Decided, Fitted, Limits, Offer, Writer, fit},
    delivered::DELIVERED_MAX,
    entry::{Candidate, Earlier, Left, Marks},
    lease::{CARRIERS_MAX, RENEWED_MAX, REPEATS_OF_A_FIXED_CARRIER, Replayed, TIME_OF_A_FIXED_CARRIER},
    parts::{Aside, Injector},
    point::{Asks, releases},
    room::{Room, Short},
    spent::SourceChange,
    turns::Beginning,
    view::{InjectorView, LeaseView, PendingView},
};
use self::{
    entry::{Entry, candidate, released},
    lease::Lease,
    point::{CancelledBatch, Selection, is_withheld},
    spent::Charge,
};
pub use self::{holds::Suppress, repeats::Received};
use journal::time::Timestamp;

use crate::{
    budget::Budgets,
    event::SessionId,
    exchange::{Answer, Decision, Directive, Exchange, Injection, InjectionId, Trigger},
    hold::{Hold, HoldKind},
    ledger::{ConfirmedBy, LedgerEntry, Reason},
    notification::{InjectionPoint, Notification, NotificationId, Priority, SubscriberId},
    session::{SessionState, Wake},
    sorted::{SortedMap, SortedSet},
};

/// Most consecutive requests to an agent to continue at the end of its turn, so that no subscriber
/// keeps a turn from ending.
pub const CONTINUATIONS_MAX: u32 = 2;

/// The terms of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms<'t> {
    /// How long an injection may stay unconfirmed.
    pub lease: Duration,
    /// Whether the user sees a line about the delivery, where the harness can show one.
    pub has_delivery_notice: bool,
    /// Text for the user that is shown with it.
    pub for_user: Option<&'t str>,
    /// Whether the queue had requested the turn that begins with the exchange.
    pub starts_turn: bool,
    /// All budgets.
    pub budgets: &'t Budgets,
}

/// How a lease is opened.
struct Opened<'e> {
    exchange: &'e Exchange,
    charge: Charge,
    lease: Duration,
    now: Timestamp,
}

impl Injector {
    /// The session whose queue it is.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Accepts a notification, unless this session has or recently had it; returns whether it is
    /// new here.
    ///
    /// A full queue evicts the oldest one of the lowest priority; a critical one only if all are
    /// critical.
    pub fn push(&mut self, notification: Arc<Notification>) -> bool {
        self.push_held(notification, Vec::new())
    }

    /// Accepts a notification with its holds, as [`Self::push`].
    pub fn push_held(&mut self, notification: Arc<Notification>, holds: Vec<Hold>) -> bool {
        self.accept(notification, |queue, notification| queue.push(notification, holds))
    }

    /// Leaves it to another session to be woken for a pending notification, or not any more.
    pub fn set_quiet(&mut self, notification: &NotificationId, is_quiet: bool) {
        self.queue.set_quiet(notification, is_quiet);
    }

    /// Whether another session is woken for a pending notification.
    pub fn leaves_wake(&self, notification: &NotificationId) -> bool {
        self.queue.get(notification).is_some_and(|entry| entry.is_quiet)
    }

    /// The earlier answer to the message of `exchange`: the same carrier at the same point and in
    /// the same turn (a start of a turn is another message once something came after it), among the
    /// newest [`CARRIERS_MAX`] and no older than a lease. It renews the leases too.
    pub fn replay(&mut self, exchange: &Exchange, now: Timestamp) -> Option<Replayed> {
        let replayed = self.answers.replay(exchange, &self.turns, now)?;
        self.renew_leases(exchange, now);
        if let Some(injection) = &replayed.answer.injection {
            self.leases.answered_again(&injection.id);
        }
        Some(replayed)
    }

    /// Confirms the injections that have arrived, as an exchange of the agent proves by its step,
    /// by the end of its turn or by a later turn. It proves nothing for what a wake route pushed:
    /// that is pending again. The leases of the others are renewed.
    pub fn confirm_by_exchange(&mut self, exchange: &Exchange, beginning: Beginning, now: Timestamp) {
        let proof = self.turns.enter(exchange, beginning);
        if self.leases.is_empty() {
            return;
        }
        if let Some(proof) = proof {
            for (lease, by) in self.leases.take_arrived(&proof) {
                self.confirm(lease.entries, by, now);
            }
        }
        for lease in self.leases.take_pushed() {
            self.return_pushed(lease, now);
        }
        self.leases.renew(now);
    }

    /// Renews the leases by an exchange that proves nothing: its process is alive, unless a wake
    /// route made it.
    pub fn renew_leases(&mut self, exchange: &Exchange, now: Timestamp) {
        if exchange.trigger != Trigger::Wake {
            self.leases.renew(now);
        }
    }

    /// Confirms an injection that has arrived according to `by`; ignored if it is not open.
    ///
    /// A confirmation after the lease expired still ends the notifications that returned to the
    /// queue.
    pub fn ack(&mut self, injection: &InjectionId, by: ConfirmedBy, now: Timestamp) {
        let arrived = match self.leases.take(injection) {
            Some(lease) => lease.entries,
            None => self.queue.take_returned_from(injection),
        };
        self.confirm(arrived, by, now);
    }

    /// Whether `injection` is unconfirmed, returned to the queue, or in one of the newest answers.
    pub fn has_released(&self, injection: &InjectionId) -> bool {
        self.can_confirm(injection) || self.answers.contains(injection)
    }

    /// The notifications that were delivered, or may have been, oldest first: those with conditions that
    /// still hold, and all of unconfirmed injections.
    pub fn delivered(&self) -> impl Iterator<Item = &Arc<Notification>> {
        let leased = self.leases.iter().flat_map(|lease| &lease.entries).map(|entry| &entry.notification);
        self.delivered.oldest_first().chain(leased)
    }

    /// Takes back an injection if no answer with it was sent; ignored if it is not open.
    ///
    /// Call it once for each answer that was not sent: a harness that gave up may have repeated the
    /// request with the same carrier and read that answer. Its notifications wait as if they had
    /// not been released, and its carrier gets a new answer.
    ///
    /// Shape: returns the point of its release, if it was taken back.
    pub fn undelivered(&mut self, injection: &InjectionId, now: Timestamp) -> Option<InjectionPoint> {
        let lease = self.leases.take_undelivered(injection)?;
        self.answers.forget(injection);
        self.forget_first_text(injection);
        if self.cancelled.as_ref().is_some_and(|batch| batch.injection == *injection) {
            self.cancelled = None;
        }
        self.credit(lease.charge, lease.released_at, now);
        self.note_evicted(lease.evicted);
        for mut entry in lease.entries {
            // The tool call that it should have cancelled was made.
            entry.has_cancelled = false;
            self.put_back(entry);
        }
        Some(lease.point)
    }

    /// Ends the pending notifications of subscribers that were switched off; leased ones are not
    /// called back.
    pub fn mute(&mut self, subscribers: &SortedSet<SubscriberId>) {
        self.delivered.forget_of(subscribers);
        for entry in self.queue.take_all_that(&|entry| subscribers.contains(&entry.notification.subscriber)) {
            self.end(&entry.notification, Reason::SubscriberOff);
        }
    }

    /// Ends the pending notifications that `is_wanted` selects.
    pub fn end_all_that(&mut self, is_wanted: impl Fn(&Notification) -> bool, reason: &Reason) {
        for entry in self.queue.take_all_that(&|entry| is_wanted(&entry.notification)) {
            self.end(&entry.notification, reason.clone());
        }
    }

    /// Notes that the harness was woken or interrupted: the next exchange releases everything.
    pub fn woken(&mut self) {
        self.releases_all = true;
    }

    /// Prepares for an exchange before anything is offered: expired notifications end, and the
    /// state of an ended turn or batch of calls is dropped. Call it once per exchange.
    pub fn note_exchange(&mut self, exchange: &Exchange, now: Timestamp) {
        self.expire_pending(now);
        self.end_holds(now);
        self.note_turn(exchange);
        if self.cancelled.as_ref().is_some_and(|batch| batch.is_over(exchange, now)) {
            self.cancelled = None;
        }
    }

    /// The notifications that the point of `exchange` releases: critical ones, and others up to the
    /// number that `limits` allow in all. A critical one also releases everything that waits for
    /// the agent.
    ///
    /// A carrier that makes the agent continue gets nothing unless one of them asks for that, and
    /// then only [`CONTINUATIONS_MAX`] times in a row. A carrier that cancels a tool call gets
    /// nothing unless one of them may cancel a call, which it may once.
    pub fn offer(&self, exchange: &Exchange, limits: &Limits) -> Offer {
        let point = exchange.releases_as_at();
        let is_due_alone = |lane| point::lets_out(point, lane, self.selection());
        let has_critical = self.queue.has_critical(is_due_alone);
        let selection = if has_critical { Selection::All } else { self.selection() };
        let is_due = |lane| point::lets_out(point, lane, selection);
        let others_max = usize::try_from(limits.max_notifications).unwrap_or(usize::MAX);
        let (held, waiting) = self.held_by_budget();
        let (mut candidates, mut barred) = (Vec::new(), Vec::new());
        for entry in self.queue.first_due(others_max, is_due) {
            match room::bar(entry, &held) {
                Some(short) => barred.push(short),
                None => candidates.push(candidate(entry)),
            }
        }
        let asks = self.asks(exchange, &candidates);
        let standing = self.standing_directive(exchange);
        if is_withheld(exchange, asks) {
            return Offer { standing, ..Offer::default() };
        }
        let due = self.queue.count_due(is_due);
        Offer { candidates, due, asks, standing, is_shown: exchange.shows_notices, barred, waiting }
    }

    /// Number of evicted events of each subscriber; the next injection reports them.
    pub fn evicted(&self) -> &SortedMap<SubscriberId, u32> {
        &self.evicted
    }

    /// Applies the decision for `exchange`: releases it under a lease, and keeps the answer for the
    /// carrier.
    ///
    /// Take the ledger entries with [`Self::take_outputs`] before the answer is sent. `injection`
    /// is called if something is released.
    pub fn release(
        &mut self,
        exchange: &Exchange,
        decided: Decided,
        injection: impl FnOnce() -> InjectionId,
        terms: Terms<'_>,
        now: Timestamp,
    ) -> Answer {
        let Decided { fitted, directive, short } = decided;
        let Terms { lease, has_delivery_notice, for_user, starts_turn, budgets } = terms;
        self.hold_for_budget(short, now);
        self.note_released(exchange, fitted.as_ref(), directive.as_ref());
        let notice = exchange.shows_notices.then(|| {
            let delivered = view::delivery_text(fitted.as_ref(), directive.as_ref());
            view::user_line(&mut self.queue, delivered.filter(|_| has_delivery_notice), for_user)
        });
        // A pull is answered by a tool of the agent, whose answer has the text alone.
        let is_pull = exchange.trigger == Trigger::Pull;
        let starts_turn = starts_turn && !is_pull;
        let injection = fitted.map(|fitted| {
            let charge = self.charge(&fitted.chosen, fitted.tokens, fitted.says_waiting, budgets, now);
            let opened = Opened { exchange, charge, lease, now };
            Injection { starts_turn, ..self.open_lease(opened, fitted, directive.as_ref(), &injection()) }
        });
        let budget_left = injection.as_ref().and_then(|_| self.budget_left(budgets, now));
        let is_first_text = injection.is_some() && self.first_text.is_none() && !is_pull;
        if let Some(first) = injection.as_ref().filter(|_| is_first_text) {
            self.first_text = Some(first.id);
        }
        if exchange.ends_turn(directive.as_ref()) {
            // What waited for the turn's budget is pending, and may wake the agent.
            self.end_turn_holds();
        }
        let check_before_tool = self.check_before_tool();
        let answer = Answer {
            injection,
            pending: self.left(),
            check_before_tool,
            directive,
            notice: notice.flatten(),
            is_first_text,
            budget_left,
            remarks: Vec::new(),
        };
        self.answers.insert(exchange, &self.turns, answer.clone(), lease, now);
        answer
    }

    /// Ends pending notifications and unconfirmed leases that have expired at `now`.
    ///
    /// Of the latter, critical notifications and those of severity error or worse return to the
    /// queue once; the rest end as uncertain.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        for lease in self.leases.take_expired(now) {
            self.run_out(lease, now);
        }
        self.expire_pending(now);
        self.end_holds(now);
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        Timestamp::earliest([self.queue.poll_timeout(), self.leases.poll_timeout()])
    }

    /// The ledger entries since the last call, in order, with their memory: otherwise a session
    /// that took a thousand broadcasts at once would keep room for two thousand entries.
    pub fn take_outputs(&mut self) -> VecDeque<LedgerEntry> {
        std::mem::take(&mut self.outputs)
    }

    /// Those that ended since the last call because nobody answered them.
    pub fn take_unanswered(&mut self) -> Vec<Arc<Notification>> {
        std::mem::take(&mut self.unanswered)
    }

    /// Number of notifications that wait for the agent, and the highest priority. Leased ones, those
    /// that wait for the user and those with a hold do not count.
    pub fn pending(&self) -> (u32, Option<Priority>) {
        let for_agent = self.queue.len() - self.queue.len_for_user() - self.queue.len_held();
        (u32::try_from(for_agent).unwrap_or(u32::MAX), self.queue.top_priority())
    }

    /// Number of notifications that an answer says are pending: with those that only a budget holds, which
    /// the line `more:` counts too.
    pub fn left(&self) -> u32 {
        let (pending, _) = self.pending();
        pending.saturating_add(u32::try_from(self.queue.len_for_budget()).unwrap_or(u32::MAX))
    }

    /// Number of notifications of that priority that wait for the agent.
    pub fn pending_of(&self, priority: Priority) -> u32 {
        self.queue.len_of(priority)
    }

    /// Whether a notification has a hold.
    pub fn is_held(&self) -> bool {
        self.queue.len_held() > 0
    }

    /// Number of notifications with a hold, and of their holds of each kind.
    pub fn held(&self) -> (u32, SortedMap<HoldKind, u32>) {
        (u32::try_from(self.queue.len_held()).unwrap_or(u32::MAX), self.queue.holds())
    }

    /// Number of notifications that wait for the user's decision.
    pub fn for_user(&self) -> u32 {
        u32::try_from(self.queue.len_for_user()).unwrap_or(u32::MAX)
    }

    /// The wake that the queue requests while the session is in `state`; `threshold` is the least
    /// priority that wakes; `None` when it can wait.
    pub fn wake(&self, state: SessionState, threshold: Priority) -> Option<Wake> {
        view::wanted_wake(&self.queue, state, threshold)
    }

    /// Applies the user's decision about a pending notification; returns whether it was pending.
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

    /// The unconfirmed injections, oldest first.
    pub fn unconfirmed_ids(&self) -> Vec<InjectionId> {
        self.leases.iter().map(|lease| lease.injection).collect()
    }

    /// Number of unconfirmed injections.
    pub fn unconfirmed(&self) -> u32 {
        u32::try_from(self.leases.iter().len()).unwrap_or(u32::MAX)
    }

    /// Whether something is pending that is released before the next tool runs, or a batch of calls
    /// is being cancelled.
    pub fn check_before_tool(&self) -> bool {
        self.cancelled.is_some()
            || self.queue.has_due(|lane| point::lets_out(InjectionPoint::BeforeTool, lane, Selection::Due))
    }

    /// Changes the bound of the queue; evicts notifications above a lower one, lowest priority
    /// first.
    pub fn set_queue_len_max(&mut self, queue_len_max: u32) {
        self.queue_len_max = usize::try_from(queue_len_max).unwrap_or(usize::MAX);
        while self.evict_overflow() {}
    }

    /// The pending and leased notifications, for display.
    pub fn view(&self, now: Timestamp) -> InjectorView {
        view::view(&self.queue, &self.leases, now)
    }

    /// A pending notification, for display.
    pub fn pending_view(&self, id: &NotificationId, now: Timestamp) -> Option<PendingView> {
        self.queue.get(id).map(|entry| view::pending(entry, now))
    }

    fn selection(&self) -> Selection {
        if self.releases_all { Selection::All } else { Selection::Due }
    }

    /// Updates the turn; a new turn resets the count of continuations.
    fn note_turn(&mut self, exchange: &Exchange) {
        let is_other_turn = matches!((&self.turn, &exchange.turn), (Some(last), Some(this)) if last != this);
        if exchange.point == InjectionPoint::TurnStart || is_other_turn {
            self.continuations = 0;
        }
        if exchange.turn.is_some() {
            self.turn.clone_from(&exchange.turn);
        }
        let is_due = |lane| point::lets_out(exchange.releases_as_at(), lane, self.selection());
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

    /// The directive for a call of a batch in which one was cancelled.
    fn standing_directive(&self, exchange: &Exchange) -> Option<Directive> {
        let batch = self.cancelled.as_ref().filter(|_| exchange.point == InjectionPoint::BeforeTool)?;
        Some(Directive::Cancel { reason: batch.reason.clone() })
    }

    fn note_released(&mut self, exchange: &Exchange, fitted: Option<&Fitted>, directive: Option<&Directive>) {
        if matches!(directive, Some(Directive::Continue { .. })) {
            self.continuations += 1;
        }
        if fitted.is_some() || !is_withheld(exchange, None) {
            self.releases_all = false;
        }
    }

    fn open_lease(
        &mut self,
        Opened { exchange, charge, lease, now }: Opened<'_>,
        fitted: Fitted,
        directive: Option<&Directive>,
        injection: &InjectionId,
    ) -> Injection {
        if let Some(Directive::Cancel { reason }) = directive
            && (self.cancelled.is_none()
                || fitted.chosen.iter().any(|chosen| Asks::ToCancel.is_asked_by(chosen)))
        {
            self.cancelled = Some(CancelledBatch::new(exchange, reason, injection, now));
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
            self.recent.insert(released.id);
            let redelivered = entry.redelivered();
            self.outputs.push_back(LedgerEntry::Injected {
                notification: released.id,
                session: self.session.clone(),
                injection: *injection,
                point: exchange.point,
                redelivered,
            });
            notifications.push(released);
        }
        self.leases.open(Lease {
            injection: *injection,
            point: exchange.point,
            carrier: exchange.carrier.clone(),
            turn: self.turns.name_of(exchange),
            place: self.turns.place_of(exchange),
            is_at_end: exchange.point == InjectionPoint::TurnEnd,
            is_pushed: exchange.trigger == Trigger::Wake,
            released_at: now,
            lasts: lease,
            expires_at: now + lease,
            answers: 1,
            entries,
            charge,
            evicted: std::mem::take(&mut self.evicted),
        });
        if let Some(oldest) = self.leases.take_overflow() {
            self.run_out(oldest, now);
        }
        let (id, role) = (*injection, point::role(exchange.point));
        let Fitted { format, text, sentence, .. } = fitted;
        let (text, sentence) = (text.into(), sentence.into());
        Injection { id, format, text, sentence, role, notifications, starts_turn: false }
    }
}
