//! What the releases of a session took of its budgets, and what is left of them for the next one.
//!
//! A release is charged at once. It is credited if the whole injection comes back because it did not
//! arrive; what may have been read stays charged, and its redelivery is charged too. The budget of a
//! turn is reset when the number of the turn changes. What a wake route releases while no turn is running counts
//! for the turn that it starts. A session whose harness reports no turn has no budget of a turn.

use std::{ops::Not, sync::Arc};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::entry::Candidate;
use crate::{
    budget::{Account, Balance, BudgetName, Budgets, per_hour},
    exchange::{Exchange, Trigger},
    notification::{SubscriberId, Tokens},
    session::SessionState,
    sorted::SortedMap,
};

/// What the releases of a session took of its budgets.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Spent {
    /// The number of the turn that `in_turn` counts for.
    pub(super) turn: u64,
    pub(super) in_turn: u64,
    /// The turn has ended; without a start, the next exchange begins another one.
    pub(super) is_turn_over: bool,
    /// The harness reports turns.
    pub(super) has_turns: bool,
    pub(super) hour: Account,
    pub(super) in_session: u64,
    /// Of the subscribers with a budget, as far as something is used.
    pub(super) subscribers: SortedMap<SubscriberId, Account>,
    /// A text of the turn has said how many wait for a budget.
    pub(super) has_said: bool,
    /// Something may have the hold of a budget.
    pub(super) is_holding: bool,
    /// When a budget had no room for the first time for one that may be pending.
    #[serde(default)]
    pub(super) first_short: Option<Timestamp>,
    #[serde(skip)]
    pub(super) source_changes: Vec<SourceChange>,
}

/// A change of the budget of a source.
#[derive(Debug)]
pub struct SourceChange {
    /// The name in `[budget] sources`.
    pub source: Arc<str>,
    /// How many.
    pub tokens: Tokens,
    /// When they were charged.
    pub charged_at: Timestamp,
    /// When they are given back; `None` if they are charged.
    pub credited_at: Option<Timestamp>,
}

/// What a release took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Charge {
    tokens: Tokens,
    turn: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    subscribers: Vec<(SubscriberId, Tokens)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sources: Vec<(Arc<str>, Tokens)>,
    #[serde(default, skip_serializing_if = "Not::not")]
    has_said: bool,
}

/// What each notification takes of the tokens of a text, by its part of the contents.
///
/// Shape: in the order of `chosen`; the sum is `total`.
pub(super) fn shares(chosen: &[Candidate], total: Tokens) -> Vec<Tokens> {
    let weight = |one: &Candidate| u64::from(one.notification.tokens.0.max(1));
    let all = chosen.iter().map(weight).sum::<u64>().max(1);
    let (mut before, mut taken) = (0, 0);
    let mut shares = Vec::with_capacity(chosen.len());
    for one in chosen {
        before += weight(one);
        let until = u64::from(total.0) * before / all;
        shares.push(Tokens(u32::try_from(until - taken).unwrap_or(u32::MAX)));
        taken = until;
    }
    shares
}

fn add<K: PartialEq + Clone>(sums: &mut Vec<(K, Tokens)>, key: &K, tokens: Tokens) {
    match sums.iter_mut().find(|(own, _)| own == key) {
        Some((_, sum)) => sum.0 += tokens.0,
        None => sums.push((key.clone(), tokens)),
    }
}

impl Spent {
    /// Begins the budget of a turn if `exchange` is the first of it. `number`: that of the present
    /// turn; `state`: the session's before the exchange. Returns whether a turn begins.
    pub(super) fn enter(&mut self, exchange: &Exchange, number: u64, state: SessionState) -> bool {
        let is_before_turn = exchange.trigger == Trigger::Wake && !state.is_in_turn();
        let number = number + u64::from(is_before_turn);
        let is_next = number > self.turn;
        let is_unreported = self.is_turn_over && exchange.trigger == Trigger::Agent;
        if is_next || is_unreported {
            (self.turn, self.in_turn, self.has_said) = (number.max(self.turn), 0, false);
            self.is_turn_over = false;
        }
        self.has_turns |= number > 0;
        is_next || is_unreported
    }

    /// What is left of the budgets that every notification is charged to.
    pub(super) fn common(&self, budgets: &Budgets, now: Timestamp) -> Vec<Balance> {
        let settings = &budgets.settings;
        let tokens = |used: u64| Tokens(u32::try_from(used).unwrap_or(u32::MAX));
        let turn = settings.turn.filter(|_| self.has_turns);
        let turn = turn.map(|size| Balance::fixed(BudgetName::Turn, size, tokens(self.in_turn)));
        let hour = settings.hour.map(per_hour);
        let hour = hour.map(|rate| Balance::filling(BudgetName::Hour, rate, self.hour, now));
        let session = settings.session;
        let session = session.map(|size| Balance::fixed(BudgetName::Session, size, tokens(self.in_session)));
        [turn, hour, session].into_iter().flatten().collect()
    }

    pub(super) fn of_subscriber(
        &self,
        id: &SubscriberId,
        budgets: &Budgets,
        now: Timestamp,
    ) -> Option<Balance> {
        let rate = *budgets.subscribers.get(id)?;
        let account = self.subscribers.get(id).copied().unwrap_or_default();
        Some(Balance::filling(BudgetName::Subscriber(id.clone()), rate, account, now))
    }

    pub(super) fn charge(
        &mut self,
        chosen: &[Candidate],
        tokens: Tokens,
        has_said: bool,
        budgets: &Budgets,
        now: Timestamp,
    ) -> Charge {
        self.in_turn += u64::from(tokens.0);
        self.in_session += u64::from(tokens.0);
        // Counted also without a limit, as a reload may set one.
        self.hour.charge(tokens, per_hour(budgets.settings.hour.unwrap_or(Tokens(u32::MAX))), now);
        self.has_said |= has_said;
        let mut charge = Charge { tokens, turn: self.turn, has_said, ..Charge::default() };
        for (one, share) in chosen.iter().zip(shares(chosen, tokens)) {
            let subscriber = &one.notification.subscriber;
            if budgets.subscribers.get(subscriber).is_some() {
                add(&mut charge.subscribers, subscriber, share);
            }
            one.notification.charged_to.iter().for_each(|name| add(&mut charge.sources, name, share));
        }
        self.subscribers.retain(|_, account| !account.is_unused(now));
        for (subscriber, tokens) in &charge.subscribers {
            let rate = *budgets.subscribers.get(subscriber).expect("it was looked up");
            self.subscribers.get_or_default(subscriber.clone()).charge(*tokens, rate, now);
        }
        let sources = charge.sources.iter().cloned();
        let charged = |(source, tokens)| SourceChange { source, tokens, charged_at: now, credited_at: None };
        self.source_changes.extend(sources.map(charged));
        charge
    }

    pub(super) fn credit(&mut self, charge: Charge, charged_at: Timestamp, now: Timestamp) {
        let Charge { tokens, turn, subscribers, sources, has_said } = charge;
        self.in_session = self.in_session.saturating_sub(tokens.0.into());
        self.hour.credit(tokens, charged_at, now);
        if turn == self.turn {
            self.in_turn = self.in_turn.saturating_sub(tokens.0.into());
            self.has_said &= !has_said;
        }
        for (subscriber, tokens) in subscribers {
            if let Some(account) = self.subscribers.get_mut(&subscriber) {
                account.credit(tokens, charged_at, now);
            }
        }
        let back = |(source, tokens)| SourceChange { source, tokens, charged_at, credited_at: Some(now) };
        self.source_changes.extend(sources.into_iter().map(back));
    }
}
