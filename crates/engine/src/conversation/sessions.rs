//! The state of all sessions, and the steps that are common to all changes of a session.

use std::{collections::VecDeque, sync::Arc};

use hashbrown::HashMap;

use super::{
    ended::EndedRules,
    fanout::Fanout,
    injector::{Injector, Left},
    session::{Refreshed, Session, SessionKey, SessionView, Settings},
    standing::Standing,
    table::Table,
    unclaimed::Unclaimed,
};
use journal::time::Timestamp;

use crate::{
    event::{Event, SessionId},
    exchange::Decision,
    ledger::{LedgerEntry, Reason},
    notification::{Audience, Notification, NotificationId, SubscriberId},
    session::{Pending, SessionChange, Succession},
    sorted::{SortedMap, SortedSet},
};

/// Every session with its queue, the broadcasts that some have not taken, and the notifications
/// that wait for a session to open.
#[derive(Debug)]
pub struct Sessions {
    pub(super) table: Table,
    pub(super) fanout: Fanout,
    pub(super) unclaimed: Unclaimed,
    pub(super) standing: Standing,
    pub(super) settings: Settings,
    outputs: VecDeque<SessionOutput>,
    /// Number of the outputs that are wakes, by session; no zeroes.
    wakes: HashMap<SessionId, u32>,
}

/// The parts of a snapshot.
pub(crate) type Parts = (Table, Fanout, Unclaimed, Standing);

/// The effect of a change of the sessions; the order matters.
#[derive(Debug)]
pub enum SessionOutput {
    /// Record an outcome.
    Record(LedgerEntry),
    /// Register that a session began, ended, or changed.
    Changed(SessionId, Box<SessionChange>),
    /// Notify watchers of a session that its queue changed.
    Wake(Pending),
    /// Publish an event about the sessions.
    Publish(Box<Event>),
    /// Let the state kept for a session follow it.
    Succession(Succession),
    /// Pass a notification to the user.
    ForUser(Arc<Notification>, Audience),
    /// Report to the user that nobody answered a notification.
    Unanswered(Arc<Notification>),
}

impl Sessions {
    /// No session yet.
    pub fn new(settings: Settings) -> Self {
        Self::restored(Parts::default(), settings)
    }

    /// Continues from the parts returned by [`Self::parts`].
    pub(crate) fn restored((table, fanout, unclaimed, standing): Parts, settings: Settings) -> Self {
        let (outputs, wakes) = (VecDeque::new(), HashMap::new());
        let mut sessions = Self { table, fanout, unclaimed, standing, settings, outputs, wakes };
        sessions.table.restore_deadlines(&sessions.settings.sessions);
        for key in sessions.table.keys() {
            let is_listening = sessions.table.get(key).injector.waits_for_event();
            sessions.standing.note_listening(key, is_listening);
        }
        sessions
    }

    /// The parts for a snapshot. The outputs must have been taken.
    pub(crate) fn parts(&self) -> (&Table, &Fanout, &Unclaimed, &Standing) {
        debug_assert!(self.outputs.is_empty(), "outputs are taken before a snapshot is");
        (&self.table, &self.fanout, &self.unclaimed, &self.standing)
    }

    /// Applies new settings, and ends the notifications of `switched_off` subscribers.
    pub fn replace_settings(&mut self, settings: Settings, switched_off: &SortedSet<SubscriberId>) {
        self.settings = settings;
        self.end_for_user(&Reason::SubscriberOff, |own| switched_off.contains(&own.subscriber));
        for notification in self.unclaimed.take_of(switched_off) {
            self.end(notification.id, Reason::SubscriberOff);
        }
        for key in self.table.keys() {
            let injector = &mut self.table.get_mut(key).injector;
            injector.set_queue_len_max(self.settings.sessions.queue_len_max);
            injector.mute(switched_off);
            injector.end_all_budget_holds();
            self.refresh(key);
        }
    }

    /// Ends what rules left behind that are no longer in force: repetitions that wait, delays, states
    /// that a session opens with, and conditions that nothing can resolve any more.
    pub fn end_rules(&mut self, ended: &EndedRules) {
        if ended.are_empty() {
            return;
        }
        self.catch_up_all();
        self.standing.retained.forget_of(&ended.retained);
        self.standing.retained.end_rules(ended);
        self.standing.dismissed.forget_of(&ended.conditions);
        self.standing.unresolved.forget(|one| ended.conditions.contains(&one.subscriber));
        self.unclaimed.end_rules(ended);
        self.end_rules_for_user(ended);
        for key in self.table.keys() {
            self.with_queue(key, |injector| injector.end_rules(ended));
        }
    }

    /// The next effect that the caller has to apply. A state of a queue that a later one of the same
    /// step replaces is left out: nobody is woken for what was suppressed at once.
    pub fn poll_output(&mut self) -> Option<SessionOutput> {
        loop {
            let output = self.outputs.pop_front()?;
            let SessionOutput::Wake(pending) = &output else { return Some(output) };
            let left = self.wakes.get_mut(&pending.session).expect("each wake is counted");
            *left -= 1;
            if *left == 0 {
                self.wakes.remove(&pending.session);
                return Some(output);
            }
        }
    }

    /// When a queue's next lease or notification ends, or a session was silent for too long.
    pub fn session_timeout(&self) -> Option<Timestamp> {
        self.table.poll_timeout()
    }

    /// When the next unclaimed notification expires.
    pub fn unclaimed_timeout(&self) -> Option<Timestamp> {
        self.unclaimed.poll_timeout()
    }

    /// When sessions have to take more broadcasts.
    pub fn fanout_timeout(&self) -> Option<Timestamp> {
        self.fanout.poll_timeout()
    }

    /// One open or suspended session.
    pub fn view(&self, id: &SessionId) -> Option<SessionView<'_>> {
        self.table.known(id).map(Session::view)
    }

    /// The open sessions, then the suspended ones, each in id order.
    pub fn views(&self) -> impl Iterator<Item = SessionView<'_>> {
        let (open, suspended): (Vec<_>, Vec<_>) = self.views_by_id().partition(|session| session.is_open);
        open.into_iter().chain(suspended)
    }

    /// All sessions in id order.
    pub fn views_by_id(&self) -> impl Iterator<Item = SessionView<'_>> {
        self.table.by_id().into_iter().map(Session::view)
    }

    /// Whether a session is open.
    pub fn is_open(&self, id: &SessionId) -> bool {
        self.table.open_key(id).is_some()
    }

    /// Number of notifications that wait for a session to open.
    pub fn unclaimed_len(&self) -> usize {
        self.unclaimed.len()
    }

    /// The notifications that wait for a session to open, in delivery order.
    pub fn unclaimed(&self) -> Vec<&Arc<Notification>> {
        self.unclaimed.in_order()
    }

    /// Number of open sessions that were evicted to make room, since the journal began.
    pub fn evicted(&self) -> u64 {
        self.table.evictions.count
    }

    /// The folders of open sessions, if they changed since the last call.
    pub fn take_folders(&mut self) -> Option<Arc<[Arc<str>]>> {
        self.table.take_folders()
    }

    /// Whether a decision about a notification is possible: it waits for the session, or for any if
    /// `session` is `None`. A notification that waits for the next session, or for the user alone, can
    /// be dismissed; there is no agent to discuss it with.
    pub fn can_decide(
        &self,
        session: Option<&SessionId>,
        notification: &NotificationId,
        decision: Decision,
    ) -> bool {
        match session {
            Some(id) => self.table.known(id).is_some_and(|session| {
                session.injector.waits(notification) || self.has_to_take(session, notification)
            }),
            None => {
                self.table
                    .open()
                    .chain(self.table.suspended())
                    .any(|known| known.injector.waits(notification))
                    || decision == Decision::Dismiss
                        && (self.unclaimed.contains(notification)
                            || self.standing.for_user.notification(notification).is_some())
                    || self.fanout.contains(notification)
            }
        }
    }

    /// Whether a notification is one of the broadcasts that a session has not taken yet.
    fn has_to_take(&self, session: &Session, notification: &NotificationId) -> bool {
        let is_it = |pending: &Arc<Notification>| {
            pending.id == *notification && session.is_concerned_by_broadcast(pending)
        };
        session.is_open() && self.fanout.pending_after(session.taken).any(|(_, pending)| is_it(pending))
    }

    pub(super) fn emit(&mut self, output: SessionOutput) {
        if let SessionOutput::Wake(pending) = &output {
            *self.wakes.entry_ref(&pending.session).or_default() += 1;
        }
        self.outputs.push_back(output);
    }

    pub(super) fn record(&mut self, entry: LedgerEntry) {
        if let LedgerEntry::Confirmed { notification, .. } = &entry {
            self.unclaimed.note_confirmed(notification);
        }
        self.emit(SessionOutput::Record(entry));
    }

    /// Records the end of a notification that no session has.
    pub fn end(&mut self, notification: NotificationId, reason: Reason) {
        self.record(LedgerEntry::NotificationEnded { notification, session: None, reason });
    }

    /// Publishes the outputs of a session's queue.
    pub(super) fn report(&mut self, entries: VecDeque<LedgerEntry>, unanswered: Vec<Arc<Notification>>) {
        for notification in unanswered {
            self.emit(SessionOutput::Unanswered(notification));
        }
        for entry in entries {
            self.record(entry);
        }
    }

    /// Publishes the outputs and the state of a session's queue, after anything that may have
    /// changed it.
    pub(super) fn refresh(&mut self, key: SessionKey) {
        let Refreshed { entries, unanswered, deadline, weights, source_changes, pending } =
            self.table.get_mut(key).refresh(&self.settings);
        self.change_sources(key, source_changes);
        self.table.update_deadline(key, deadline, weights);
        self.standing.note_listening(key, self.table.get(key).injector.waits_for_event());
        self.report(entries, unanswered);
        if let Some(pending) = pending {
            self.emit(SessionOutput::Wake(pending));
        }
    }

    /// Changes a session's queue, and publishes the results.
    pub(super) fn with_queue<T>(&mut self, key: SessionKey, change: impl FnOnce(&mut Injector) -> T) -> T {
        let changed = change(&mut self.table.get_mut(key).injector);
        self.refresh(key);
        changed
    }

    /// Lets an open session take its pending broadcasts; returns how many it checked.
    pub(super) fn catch_up(&mut self, key: SessionKey) -> usize {
        let head = self.fanout.head();
        let session = self.table.get_mut(key);
        if !session.is_open() || session.taken >= head {
            return 0;
        }
        let (mut checked, mut is_new) = (0, false);
        for (number, notification) in self.fanout.pending_after(session.taken) {
            checked += 1;
            if session.is_concerned_by_broadcast(notification)
                && session.injector.push_held(Arc::clone(notification), self.standing.holds(notification))
            {
                if session.leaves_wake_to(self.fanout.woken_for(number)) {
                    session.injector.set_quiet(&notification.id, true);
                }
                is_new = true;
            }
        }
        session.taken = head;
        if is_new {
            self.refresh(key);
        }
        checked
    }

    /// Puts a notification left by another session into this one's queue; returns whether it is new
    /// there.
    pub(super) fn take_over(&mut self, key: SessionKey, mut left: Left) -> bool {
        self.catch_up(key);
        left.marks.holds.get_or_insert_with(|| self.standing.holds(&left.notification));
        self.with_queue(key, |injector| injector.take_over(left))
    }

    /// Reports evictions elsewhere in the session's next injection.
    pub(super) fn note_evicted(&mut self, key: SessionKey, evicted: SortedMap<SubscriberId, u32>) {
        self.table.get_mut(key).injector.note_evicted(evicted);
    }
}
