//! The steps of an exchange, in the order in which [`crate::engine`] takes them: it closes the
//! batches that are due in between.

use super::{
    injector::{Aside, Beginning, Decided, Injector, Limits, Offer, Replayed, Terms, Writer},
    key::SessionKey,
    sessions::Sessions,
    turns::Passed,
};
use journal::time::Timestamp;

use crate::{
    event::Scope,
    exchange::{Answer, ContextChange, Exchange, InjectionId, Release, ReleaseRecord, Trigger},
    ledger::ConfirmedBy,
    notification::{InjectionPoint, Notification, SubscriberId},
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
        let (key, met) = self.upsert(&exchange.session, &exchange.harness, now);
        let session = self.table.get_mut(key);
        if exchange.context == ContextChange::Resumed && exchange.harness.process().is_none() {
            session.leave_process();
        }
        for injection in &exchange.acks {
            session.injector.ack(injection, ConfirmedBy::Ack);
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
        } else {
            session.injector.renew_leases(exchange, now);
        }
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
        let terms = Terms {
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
