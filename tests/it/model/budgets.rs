//! The part of the account about budgets: what was sent, and what is delivered as one.
//!
//! What an account holds at least follows from the texts of any last stretch of time: their tokens,
//! less what has drained since the first of them. What was not delivered is not counted, so the engine
//! may only have counted more.

use std::{collections::BTreeMap, sync::Arc};

use engine::{
    event::{Scope, Seq, SessionId},
    exchange::{Answer, Exchange, InjectionId},
    notification::{InjectionPoint, NotificationId, Priority, SubscriberId, Tokens},
    rate::Rate,
};
use journal::time::{Timestamp, duration_millis};
use toon::tokens;

use super::{
    Content,
    account::{Account, Made, Place},
};
use crate::support::generations;

/// A text that was sent.
#[derive(Debug)]
struct Sent {
    /// `None` after the session's end.
    session: Option<SessionId>,
    injection: InjectionId,
    at: Timestamp,
    tokens: Tokens,
    /// Whether all of it is charged to the source.
    is_of_source: bool,
    /// The subscriber of all of it.
    subscriber: Option<SubscriberId>,
    /// Number of its turn in the account.
    turn: Option<u64>,
}

/// Selects the texts that a budget counts.
type Counted<'s> = &'s dyn Fn(&Sent) -> bool;

/// What was sent, and the turns as far as they are certain.
#[derive(Debug, Default)]
pub(super) struct Spending {
    sent: Vec<Sent>,
    turns: u64,
    /// The sessions whose turn is certain, with its number and name.
    turn: BTreeMap<SessionId, (u64, Option<Arc<str>>)>,
}

impl Spending {
    /// The least that these texts leave used of a budget, in tokens.
    fn used(&self, drains: Option<Rate>, now: Timestamp, is_counted: impl Fn(&Sent) -> bool) -> u64 {
        let drained = |at: Timestamp| {
            drains.map_or(0, |rate| {
                duration_millis(now.since(at)) * u64::from(rate.count.get()) / duration_millis(rate.per)
            })
        };
        let mut sum = 0;
        let used = self.sent.iter().rev().filter(|sent| is_counted(sent)).map(|sent| {
            sum += u64::from(sent.tokens.0);
            sum.saturating_sub(drained(sent.at) + 1)
        });
        used.max().unwrap_or(0)
    }

    /// Notes the turn of an exchange. A start begins one, an end and another name end it.
    fn enter(&mut self, exchange: &Exchange) {
        if exchange.point == InjectionPoint::TurnStart {
            self.turns += 1;
            self.turn.insert(exchange.session.clone(), (self.turns, exchange.turn.clone()));
        } else if self.turn.get(&exchange.session).is_some_and(|(_, name)| *name != exchange.turn) {
            self.turn.remove(&exchange.session);
        }
    }

    /// A text was not delivered, so the budgets have it back.
    pub(super) fn take_back(&mut self, session: &SessionId, injection: &InjectionId) {
        self.sent.retain(|sent| sent.session.as_ref() != Some(session) || sent.injection != *injection);
    }

    /// Under other rules an account may drain otherwise.
    pub(super) fn forget(&mut self) {
        self.sent.clear();
    }

    /// A session has ended.
    pub(super) fn close(&mut self, session: &SessionId) {
        self.turn.remove(session);
        for sent in self.sent.iter_mut().filter(|sent| sent.session.as_ref() == Some(session)) {
            sent.session = None;
        }
    }
}

impl Account {
    /// Notes an answer, and checks that no budget gave more than it had.
    pub(super) fn charge(&mut self, exchange: &Exchange, answer: &Answer, now: Timestamp) {
        let session = &exchange.session;
        self.spending.enter(exchange);
        let turn = self.spending.turn.get(session).map(|(number, _)| *number);
        let delivered = answer.injection.as_ref().map_or(&[][..], |injection| &injection.notifications);
        let subscribers: Vec<&SubscriberId> =
            delivered.iter().map(|delivered| &self.made[&delivered.id].subscriber).collect();
        if let Some(injection) = &answer.injection {
            let first = subscribers.first().expect("a text has one");
            self.spending.sent.push(Sent {
                session: Some(session.clone()),
                injection: injection.id,
                at: now,
                tokens: tokens::estimate(&injection.text),
                is_of_source: subscribers.iter().all(|id| !generations::OF_OWN_EVENTS.contains(&id.as_str())),
                subscriber: subscribers.iter().all(|id| id == first).then(|| (*first).clone()),
                turn,
            });
        }
        let budgets = self.rules.conversation().budgets;
        let is_own = |sent: &Sent| sent.session.as_ref() == Some(session);
        let hour = budgets.settings.hour.map(engine::budget::per_hour);
        let of_hour = self.spending.used(hour, now, is_own);
        let of_turn = turn.map(|turn| self.spending.used(None, now, |sent| sent.turn == Some(turn)));
        if let Some(left) = answer.budget_left {
            assert_left(left.hour, budgets.settings.hour, of_hour);
            assert_left(left.turn, budgets.settings.turn, of_turn.unwrap_or(0));
        }
        if exchange.point == InjectionPoint::TurnEnd {
            self.spending.turn.remove(session);
        }
        if delivered.iter().all(|delivered| delivered.priority == Priority::Critical) {
            return;
        }
        let last = self.spending.sent.last().expect("it was noted");
        let of_source = budgets.settings.of_source(generations::SOURCE).filter(|_| last.is_of_source);
        let of_subscriber = last.subscriber.as_ref().and_then(|id| budgets.subscribers.get(id).copied());
        let size = |tokens: Tokens| u64::from(tokens.0);
        let of_rate = |rate: Rate| u64::from(rate.count.get());
        let own = |sent: &Sent| is_own(sent) && sent.subscriber == last.subscriber;
        let is_of_turn = |sent: &Sent| turn.is_some() && sent.turn == turn;
        let settings = &budgets.settings;
        let all: [(_, Option<Rate>, Option<u64>, Counted<'_>); 5] = [
            ("hour", hour, hour.map(of_rate), &is_own),
            ("turn", None, settings.turn.map(size), &is_of_turn),
            ("session", None, settings.session.map(size), &is_own),
            ("source", of_source, of_source.map(of_rate), &|sent| sent.is_of_source),
            ("subscriber", of_subscriber, of_subscriber.map(of_rate), &own),
        ];
        for (budget, drains, size, is_counted) in all {
            let used = self.spending.used(drains, now, is_counted);
            let before = self.spending.used(drains, now, |sent| {
                is_counted(sent) && (sent.session.as_ref(), sent.injection) != (Some(session), last.injection)
            });
            // The frame of a text may be larger than a budget; then one notification has it alone.
            let is_alone = delivered.len() == 1 && before == 0;
            assert!(
                is_alone || size.is_none_or(|size| used <= size),
                "{used} of {size:?} of a {budget}: {delivered:?}"
            );
        }
    }

    /// A notification that takes the place of several ones of a queue, which end after it.
    pub(super) fn create_summarised(
        &mut self,
        id: &NotificationId,
        subscriber: &SubscriberId,
        events: &[Seq],
        content: Option<&Content>,
    ) {
        let Some(Content::Exchange(exchange)) = content else { panic!("{id} has no events of its own") };
        let scopes = events.iter().map(|seq| &self.scopes[seq]);
        let mut scopes: Vec<_> = scopes.cloned().collect();
        scopes.dedup();
        let scope = match &scopes[..] {
            [scope] => scope.clone(),
            _ => Scope::Session(exchange.session.clone()),
        };
        self.routed = Some((*id, [exchange.session.clone()].into()));
        let (subscriber, events) = (subscriber.clone(), events.to_vec());
        // The oldest of its parts has an earlier time.
        let made = Made { scope, created_at: FOREVER, is_unclaimed: false, subscriber, events };
        assert!(self.made.insert(*id, made).is_none(), "{id} was made before");
    }

    /// A notification ends as a part of a summarised one.
    pub(super) fn end_as_summarised(
        &mut self,
        id: &NotificationId,
        session: &SessionId,
        one: &NotificationId,
    ) {
        let place = std::mem::replace(self.place(session, id), Place::Over);
        assert_eq!(place, Place::Queued { again: false }, "{id} in {session}");
        let part = &self.made[id];
        let (subscriber, created_at, events) =
            (part.subscriber.clone(), part.created_at, part.events.clone());
        let made = self.made.get_mut(one).expect("made before its parts end");
        assert_eq!(made.subscriber, subscriber);
        assert!(events.iter().all(|seq| made.events.contains(seq)), "{one} lacks events of {id}");
        made.created_at = made.created_at.min(created_at);
    }
}

/// What is left of a budget is at most what was not used.
fn assert_left(left: Option<Tokens>, size: Option<Tokens>, used: u64) {
    let Some(left) = left else { return };
    let size = size.expect("a budget that is off has no rest");
    assert!(u64::from(left.0) <= u64::from(size.0).saturating_sub(used), "{left} of {size}, {used} used");
}

const FOREVER: Timestamp = Timestamp::from_millis(u64::MAX);
