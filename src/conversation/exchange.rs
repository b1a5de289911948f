//! The steps of an exchange, in the order in which [`crate::engine`] takes them: it closes the
//! batches that are due in between.

use std::collections::BTreeMap;

use super::{
    injector::{Aside, Decided, Injector, Limits, Offer, Replayed, Terms},
    key::SessionKey,
    sessions::Sessions,
};
use crate::{
    event::{Scope, SessionId},
    exchange::{Answer, Exchange, InjectionId, Release, ReleaseRecord, Trigger},
    ledger::ConfirmedBy,
    notification::{Notification, SubscriberId},
    time::Timestamp,
};

/// How an exchange begins.
#[derive(Debug)]
pub enum Begun {
    /// Something is to be decided: what is due, and what of it fits.
    Open,
    /// The same carrier gets the same answer again.
    Replayed(Replayed),
    /// Another exchange was faster: the queue is released with the turn that it started.
    Late(Answer),
}

impl Sessions {
    /// Begins an exchange: opens its session, confirms what arrived, and applies what it says about
    /// the context.
    pub fn begin_exchange(&mut self, exchange: &Exchange, release: &Release, now: Timestamp) -> Begun {
        let (key, met) = self.upsert(&exchange.session, &exchange.harness, now);
        let session = self.table.get_mut(key);
        for injection in &exchange.acks {
            session.injector.ack(injection, ConfirmedBy::Ack);
        }
        if let Some(replayed) = session.injector.replay(exchange, now) {
            return Begun::Replayed(replayed);
        }
        self.apply_context(key, exchange, met, now);
        let threshold = self.settings.wake_threshold;
        let session = self.table.get_mut(key);
        if exchange.trigger == Trigger::Agent {
            session.injector.confirm_by_exchange(exchange, now);
        }
        let wake = session.injector.wake(session.state, threshold);
        if wake.is_some() {
            session.injector.woken();
        }
        let has_released = matches!(release, Release::Recorded(Some(_)));
        if exchange.trigger == Trigger::Wake && wake.is_none() && !has_released {
            return Begun::Late(session.injector.unanswered());
        }
        Begun::Open
    }

    /// Whether `scope` concerns an open session.
    pub fn is_concerned(&self, session: &SessionId, scope: &Scope) -> bool {
        self.table.get(self.key_of(session)).is_concerned_by(scope)
    }

    /// Takes pending notifications out of the session's queue, for [`Self::take_back`].
    pub fn put_aside(&mut self, session: &SessionId, is_wanted: impl Fn(&Notification) -> bool) -> Aside {
        self.injector_mut(session).put_aside(is_wanted)
    }

    /// Returns what was put aside.
    pub fn take_back(&mut self, session: &SessionId, aside: Aside) {
        self.injector_mut(session).take_back(aside);
    }

    /// What the point of an exchange releases.
    ///
    /// Shape: also how many events of each subscriber were evicted from the queue.
    pub fn offer(
        &mut self,
        exchange: &Exchange,
        limits: &Limits,
        now: Timestamp,
    ) -> (Offer, BTreeMap<SubscriberId, u32>) {
        let injector = self.injector_mut(&exchange.session);
        injector.note_exchange(exchange, now);
        (injector.offer(exchange, limits), injector.evicted().clone())
    }

    /// Makes the decision of a record again.
    pub fn repeat(
        &mut self,
        session: &SessionId,
        record: &ReleaseRecord,
        writer: &impl super::injector::Writer,
    ) -> Decided {
        self.injector_mut(session).repeat(record, writer)
    }

    /// The answer that releases nothing.
    pub fn unanswered(&self, session: &SessionId) -> Answer {
        self.table.get(self.key_of(session)).injector.unanswered()
    }

    /// Releases what was decided.
    pub fn release(
        &mut self,
        exchange: &Exchange,
        decided: Decided,
        injection: &InjectionId,
        for_user: Option<&str>,
        now: Timestamp,
    ) -> Answer {
        let settings = &self.settings.injection;
        let terms = Terms { lease: settings.lease, has_delivery_notice: settings.delivery_notice, for_user };
        let key = self.key_of(&exchange.session);
        self.table.get_mut(key).injector.release(exchange, decided, injection, terms, now)
    }

    /// Publishes what an exchange changed in its session.
    pub fn finish_exchange(&mut self, session: &SessionId) {
        self.refresh(self.key_of(session));
    }

    fn injector_mut(&mut self, session: &SessionId) -> &mut Injector {
        let key = self.key_of(session);
        &mut self.table.get_mut(key).injector
    }

    fn key_of(&self, session: &SessionId) -> SessionKey {
        self.table.open_key(session).expect("an exchange opens its session")
    }
}
