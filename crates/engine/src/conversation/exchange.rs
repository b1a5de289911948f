//! The steps of an exchange, in the order in which [`crate::engine`] takes them: it closes the
//! batches that are due in between.
//!
//! Exchanges and the harness's events move the state of the session's turn. Fields of an exchange
//! that have no effect on its session get a remark.

use std::sync::Arc;

use journal::time::Timestamp;
use serde::Deserialize;

use super::{
    injector::{Aside, Beginning, Decided, Injector, Limits, Offer, Replayed, Terms, Writer},
    lifecycle::Met,
    session::{Session, SessionKey},
    sessions::Sessions,
    turns::Passed,
};
use crate::{
    event::{EventRef, Scope, SessionId, Trust},
    exchange::{
        Answer, ContextChange, Dialect, Exchange, Format, InjectionId, Release, ReleaseRecord, Remark,
        Trigger,
    },
    ledger::ConfirmedBy,
    nearest::nearest,
    notification::{InjectionPoint, Notification, NotificationId, SubscriberId},
    session::{
        CLEARED, CLOSING_EVENT, OPENING_EVENT, SessionState, TURN_START_EVENT, WAITING_EVENT,
        is_started_by_client,
    },
    sorted::SortedMap,
};

/// How an exchange begins.
#[derive(Debug)]
pub enum Begun {
    /// The caller has to decide which notifications are due, and which of them fit.
    Open,
    /// The same carrier gets the same answer again.
    Replayed(Replayed),
    /// Another exchange was faster: the queue is released with the turn that it started.
    Late(Answer),
}

impl Sessions {
    /// Begins an exchange: opens its session, confirms injections that arrived, and applies the
    /// change of the context. Another process that states none has resumed the conversation.
    ///
    /// Shape: also returns the session's key for the next steps; none of them closes a session.
    pub fn begin_exchange(
        &mut self,
        exchange: &Exchange,
        release: &Release,
        now: Timestamp,
    ) -> (SessionKey, Begun) {
        let waited = self.waited(&exchange.session);
        let (key, met) = self.upsert(&exchange.session, &exchange.harness, now);
        let session = self.table.get_mut(key);
        if exchange.context == ContextChange::Resumed && exchange.harness.process().is_none() {
            session.leave_process();
        }
        for injection in &exchange.acks {
            session.injector.ack(injection, ConfirmedBy::Ack, now);
        }
        let is_continued = std::mem::take(&mut session.is_in_new_process);
        let is_resumed = is_continued && exchange.context == ContextChange::Unstated;
        let context = if is_resumed { &ContextChange::Resumed } else { &exchange.context };
        if is_continued && *context == ContextChange::Resumed {
            session.injector.begin_process();
        }
        if let Some(replayed) = session.injector.replay(exchange, now) {
            return (key, Begun::Replayed(replayed));
        }
        self.apply_context(key, context, met, now);
        let threshold = self.settings.wake_threshold;
        let session = self.table.get_mut(key);
        if exchange.trigger == Trigger::Agent {
            let beginning = if session.is_opening { Beginning::OfSession } else { Beginning::OfTurn };
            session.injector.confirm_by_exchange(exchange, beginning, now);
            let starts_turn = exchange.point == InjectionPoint::TurnStart && beginning == Beginning::OfTurn;
            let has_waited = |id: &NotificationId| {
                met == Met::Open || waited.as_ref().is_some_and(|(own, ids)| *own == key && ids.contains(id))
            };
            session.injector.note_delays(exchange, starts_turn, &has_waited);
        } else {
            session.injector.renew_leases(exchange, now);
        }
        session.injector.enter_budget(exchange, session.state);
        let wake = session.injector.wake(session.state, threshold);
        session.turns.note_wake(wake.as_ref());
        if wake.is_some() {
            session.injector.woken();
        }
        let has_released = matches!(release, Release::Recorded(Some(_)));
        if exchange.trigger == Trigger::Wake && wake.is_none() && !has_released {
            return (key, Begun::Late(session.injector.unanswered()));
        }
        (key, Begun::Open)
    }

    /// The notifications that wait in the queue of a suspended session; `None` for another session. The
    /// turn that resumes it counts for their delays, and not for those that the queue takes with it.
    fn waited(&self, session: &SessionId) -> Option<(SessionKey, Vec<NotificationId>)> {
        if self.table.open_key(session).is_some() {
            return None;
        }
        let key = self.table.key(session)?;
        let pending = self.table.get(key).injector.pending_notifications();
        Some((key, pending.map(|notification| notification.id).collect()))
    }

    /// Whether `scope` concerns an open session.
    pub fn is_concerned(&self, session: SessionKey, scope: &Scope) -> bool {
        self.table.get(session).is_concerned_by(scope)
    }

    /// Takes pending notifications out of the session's queue, for [`Self::take_back`].
    pub fn put_aside(&mut self, session: SessionKey, is_wanted: impl Fn(&Notification) -> bool) -> Aside {
        self.injector_mut(session).put_aside(is_wanted)
    }

    /// Puts the notifications of [`Self::put_aside`] back.
    pub fn take_back(&mut self, session: SessionKey, aside: Aside) {
        self.injector_mut(session).take_back(aside);
    }

    /// The notifications that the point of an exchange releases.
    ///
    /// Shape: also returns how many events of each subscriber were evicted from the queue.
    pub fn offer(
        &mut self,
        session: SessionKey,
        exchange: &Exchange,
        limits: &Limits,
        now: Timestamp,
    ) -> (Offer, SortedMap<SubscriberId, u32>) {
        let injector = self.injector_mut(session);
        injector.note_exchange(exchange, now);
        (injector.offer(exchange, limits), injector.evicted().clone())
    }

    /// The format that an exchange asks for, else its harness unless another program makes the
    /// exchange; the API of the model; and whether the context may have had no text.
    pub fn carrier(&self, session: SessionKey, exchange: &Exchange) -> (Option<Format>, Dialect, bool) {
        let Session { harness, injector, .. } = self.table.get(session);
        let own = harness.format.filter(|_| exchange.trigger == Trigger::Agent);
        (exchange.format.or(own), harness.dialect.unwrap_or_default(), injector.is_without_text())
    }

    /// Repeats the decision in a record.
    pub fn repeat(
        &mut self,
        session: SessionKey,
        record: &ReleaseRecord,
        exchange: &Exchange,
        writer: &impl Writer,
    ) -> Decided {
        self.injector_mut(session).repeat(record, exchange, writer)
    }

    /// The answer that releases nothing.
    pub fn unanswered(&self, session: SessionKey) -> Answer {
        self.table.get(session).injector.unanswered()
    }

    /// Applies the decision for an exchange.
    pub fn release(
        &mut self,
        session: SessionKey,
        exchange: &Exchange,
        decided: Decided,
        injection: impl FnOnce() -> InjectionId,
        for_user: Option<&str>,
        now: Timestamp,
    ) -> Answer {
        let settings = &self.settings.injection;
        let is_start = exchange.point == InjectionPoint::TurnStart;
        let starts_turn = is_start && self.table.get_mut(session).turns.take_requested();
        let budgets = Arc::clone(&self.settings.budgets);
        let terms = Terms {
            budgets: &budgets,
            lease: settings.lease,
            has_delivery_notice: settings.delivery_notice,
            for_user,
            starts_turn,
        };
        self.table.get_mut(session).injector.release(exchange, decided, injection, terms, now)
    }

    /// Updates the turn state after an exchange that was not a repetition; returns what passed with
    /// it.
    pub fn note_point(
        &mut self,
        session: SessionKey,
        exchange: &Exchange,
        answer: &Answer,
        now: Timestamp,
    ) -> Passed {
        self.table.get_mut(session).note_point(exchange, answer, now)
    }

    /// Publishes the changes that an exchange made to its session.
    pub fn finish_exchange(&mut self, session: SessionKey) {
        self.refresh(session);
    }

    fn injector_mut(&mut self, session: SessionKey) -> &mut Injector {
        &mut self.table.get_mut(session).injector
    }
}

impl Sessions {
    /// Updates the turn state of an event's session.
    pub fn note_turn(&mut self, event: &EventRef<'_>, trust: Trust, now: Timestamp) {
        let is_of_an_agent = event.event_type.starts_with("agent.");
        let is_of_a_tool = event.event_type.starts_with("tool.call.");
        let Some(id) = event.session.filter(|_| is_of_an_agent || is_of_a_tool).map(SessionId::new) else {
            return;
        };
        if !trust.is_trusted() {
            return;
        }
        let Some(key) = self.table.open_key(&id) else {
            return self.note_before_opening(id, event.event_type);
        };
        let threshold = self.settings.wake_threshold;
        let session = self.table.get_mut(key);
        session.turns.note_event(event.event_type);
        // Any producer may report a failed tool or a finished agent; only the harness knows the
        // turn state.
        let is_own = match session.harness.name.as_deref() {
            Some(harness) => harness == event.source,
            None => is_of_an_agent,
        };
        if !is_own {
            return;
        }
        let has_reason = event.event_type == WAITING_EVENT || event.event_type == CLOSING_EVENT;
        let reason = has_reason.then(|| reason_of(event.payload)).flatten();
        if event.event_type == TURN_START_EVENT {
            let is_by_client = is_started_by_client(event.payload);
            let wake = is_by_client.then(|| session.injector.wake(session.state, threshold)).flatten();
            session.turns.note_start(wake.as_ref());
        }
        if event.event_type == CLOSING_EVENT {
            session.is_cleared = reason.as_deref() == Some(CLEARED);
        }
        let state = session.state.after_event(event.event_type, reason.as_deref());
        session.state_at = now;
        if event.event_type == OPENING_EVENT {
            session.is_opening = true;
        } else if state != session.state {
            session.is_opening = false;
            session.state = state;
            self.refresh(key);
        }
    }

    /// Notes from an event of a session that is not open whether its next exchange opens it or
    /// starts a turn. A harness reports a start and makes its exchange in one call, so the event
    /// comes first.
    fn note_before_opening(&mut self, id: SessionId, event_type: &str) {
        let is_start = event_type == OPENING_EVENT;
        if is_start || SessionState::default().after_event(event_type, None).is_in_turn() {
            self.table.take_announced(&id);
        }
        if is_start {
            self.table.announce(id);
        }
    }

    /// Accepts a client's own files as evidence that no turn was running at `as_of`, unless its
    /// harness reported later. A turn whose end no hook reported was stopped by the user.
    pub fn note_idle(&mut self, id: &SessionId, as_of: Timestamp) {
        let Some(key) = self.table.open_key(id) else { return };
        self.catch_up(key);
        let session = self.table.get_mut(key);
        if session.state_at <= as_of {
            (session.state, session.state_at) = (session.state.after_unreported_end(), as_of);
            self.refresh(key);
        }
    }

    /// Counts an attached client as activity.
    pub fn note_attached(&mut self, id: &SessionId, now: Timestamp) {
        let Some(key) = self.table.open_key(id) else { return };
        self.catch_up(key);
        let session = self.table.get_mut(key);
        (session.last_seen, session.attached_at) = (now, Some(now));
        self.refresh(key);
    }

    /// Whether no turn is running in the current session of the process that was in `id`.
    pub fn is_idle(&self, id: &SessionId) -> bool {
        let current = self.table.open_key(&self.current(id));
        current.is_none_or(|key| !self.table.get(key).state.is_in_turn())
    }
}

impl Session {
    /// Updates the turn state after an exchange that was not a repetition.
    pub(super) fn note_point(&mut self, exchange: &Exchange, answer: &Answer, now: Timestamp) -> Passed {
        match exchange.trigger {
            Trigger::Pull => return Passed::default(),
            Trigger::Wake if answer.injection.is_none() => return Passed::default(),
            // Text taken by a wake route starts a turn, even in a session that has had none.
            Trigger::Wake => self.is_opening = false,
            Trigger::Agent => {
                self.state_at = now;
                let is_turn_start = exchange.point == InjectionPoint::TurnStart;
                if is_turn_start && std::mem::take(&mut self.is_opening) {
                    return Passed::default();
                }
            }
        }
        self.state = self.state.after_exchange(exchange.point, answer.directive.as_ref());
        self.state_at = now;
        if exchange.ends_turn(answer.directive.as_ref()) {
            self.injector.end_turn_budget();
        }
        if let Some(turn) = &exchange.turn {
            self.turns.note_id(turn);
        }
        self.turns.note_exchange(exchange.point, answer.directive.as_ref())
    }
}

/// The `reason` of a payload, if it is a string.
fn reason_of(payload: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Reason {
        reason: String,
    }
    serde_json::from_str(payload).ok().map(|Reason { reason }| reason)
}

impl Sessions {
    /// The fields of an exchange that have no effect. Call it before the exchange begins.
    pub fn remarks(&self, exchange: &Exchange) -> Vec<Remark> {
        let session = self.table.known(&exchange.session);
        let has_released =
            |injection| session.is_some_and(|session| session.injector.has_released(injection));
        let unknown = exchange.acks.iter().enumerate().filter(|(_, injection)| !has_released(injection));
        let mut remarks: Vec<Remark> =
            unknown.map(|(index, injection)| Remark::UnknownAck { index, injection: *injection }).collect();
        remarks.extend(session.and_then(|session| session.past_turn(exchange)));
        let parent = exchange.harness.parent.as_ref();
        let known_parent = session.and_then(|session| session.harness.parent.as_ref());
        if let Some(parent) = parent.filter(|parent| known_parent != Some(*parent)) {
            remarks.extend(self.unknown("harness.parent", parent));
        }
        if let ContextChange::Cleared { from: Some(from) } | ContextChange::Forked { from: Some(from) } =
            &exchange.context
            && !session.is_some_and(|session| session.predecessors.contains(from))
        {
            remarks.extend(self.unknown("from", from));
        }
        remarks
    }

    /// The known session whose id is most similar to `id`.
    pub fn nearest(&self, id: &SessionId) -> Option<SessionId> {
        let ids = self.table.open().chain(self.table.suspended()).map(|session| session.id().as_str());
        nearest(id.as_str(), ids).map(SessionId::new)
    }

    fn unknown(&self, field: &'static str, id: &SessionId) -> Option<Remark> {
        let unknown = || Remark::UnknownSession { field, session: id.clone(), nearest: self.nearest(id) };
        self.table.addressed(id).is_none().then(unknown)
    }
}

impl Session {
    /// The remark on a turn that ended before the last one began.
    fn past_turn(&self, exchange: &Exchange) -> Option<Remark> {
        let (turn, last) = (exchange.turn.as_ref()?, self.turns.last()?);
        let is_past = turn != last && self.turns.has_had(turn);
        is_past.then(|| Remark::PastTurn { turn: turn.clone(), last: last.clone() })
    }
}
