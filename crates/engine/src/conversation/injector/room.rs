//! What is left of the budgets for an exchange, and what a budget has no room for.

use journal::time::Timestamp;

use super::{
    entry::{Candidate, Entry},
    spent::shares,
};
use crate::{
    budget::{Balance, BudgetName},
    notification::{Notification, NotificationId, Priority, SubscriberId, Tokens},
};

/// What is left of the budgets of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// Of those that every notification is charged to.
    pub common: Vec<Balance>,
    /// Of those of sources and subscribers.
    pub own: Vec<Balance>,
    /// The time of the exchange.
    pub now: Timestamp,
}

/// A notification that a budget has no room for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Short {
    /// The notification.
    pub id: NotificationId,
    /// Its subscriber.
    pub subscriber: SubscriberId,
    /// The budget.
    pub of: BudgetName,
    /// When that has room for it, if a time gives room.
    pub until: Option<Timestamp>,
}

impl Short {
    /// `notification` waits for a budget.
    pub(super) fn new(notification: &Notification, of: BudgetName, until: Option<Timestamp>) -> Self {
        Self { id: notification.id, subscriber: notification.subscriber.clone(), of, until }
    }
}

/// A pending notification with the hold of a budget, that budget, and when the hold ends.
pub(super) type HeldByBudget<'q> = (&'q Entry, &'q BudgetName, Option<Timestamp>);

/// Whether a notification is charged to a budget.
pub(super) fn is_charged(of: &BudgetName, notification: &Notification) -> bool {
    match of {
        BudgetName::Turn | BudgetName::Hour | BudgetName::Session => true,
        BudgetName::Subscriber(id) => *id == notification.subscriber,
        BudgetName::Source(name) => notification.charged_to.contains(name),
    }
}

/// What an entry waits for, if it comes after one of `held` that waits for a budget of its own.
pub(super) fn bar(entry: &Entry, held: &[HeldByBudget<'_>]) -> Option<Short> {
    let notification = &entry.notification;
    if notification.priority == Priority::Critical {
        return None;
    }
    let rank = entry.key().rank();
    let is_before =
        |(own, of, _): &&HeldByBudget<'_>| is_charged(of, notification) && own.key().rank() < rank;
    let (_, of, until) = held.iter().find(is_before)?;
    Some(Short::new(notification, (*of).clone(), *until))
}

impl Room {
    /// Without any budget.
    pub fn unlimited() -> Self {
        Self { common: Vec::new(), own: Vec::new(), now: Timestamp::ZERO }
    }

    /// Whether no budget limits a text of at most so many tokens.
    pub(super) fn is_ample(&self, max_tokens: Tokens) -> bool {
        self.common.iter().chain(&self.own).all(|balance| balance.left >= max_tokens)
    }

    /// The budgets of a notification.
    pub(super) fn of<'a>(&'a self, notification: &'a Notification) -> impl Iterator<Item = &'a Balance> {
        let own = self.own.iter().filter(|balance| is_charged(&balance.of, notification));
        self.common.iter().chain(own)
    }

    /// What is left after `chosen` are released as a text of so many tokens.
    pub(super) fn after(&self, chosen: &[Candidate], tokens: Tokens) -> Self {
        let mut after = self.clone();
        for (one, share) in chosen.iter().zip(shares(chosen, tokens)) {
            for balance in after.common.iter_mut().chain(&mut after.own) {
                if is_charged(&balance.of, &one.notification) {
                    balance.charge(share, self.now);
                }
            }
        }
        after
    }

    /// The first of `chosen` that exceeds a budget of a source or a subscriber, if they are released
    /// as a text of so many tokens: its index, and the budget.
    pub(super) fn first_over(&self, chosen: &[Candidate], tokens: Tokens) -> Option<(usize, &BudgetName)> {
        let shares = shares(chosen, tokens);
        let over = |balance: &Balance| {
            let mut sum = 0;
            chosen.iter().zip(&shares).position(|(one, share)| {
                let is_its = is_charged(&balance.of, &one.notification);
                sum += if is_its { u64::from(share.0) } else { 0 };
                is_its && !is_urgent(one) && sum > u64::from(balance.left.0)
            })
        };
        let found = self.own.iter().filter_map(|balance| Some((over(balance)?, &balance.of)));
        found.min_by_key(|(index, _)| *index)
    }
}

fn is_urgent(candidate: &Candidate) -> bool {
    candidate.notification.priority == Priority::Critical
}
