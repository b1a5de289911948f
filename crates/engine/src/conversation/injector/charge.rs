//! Charges and credits what a session releases, and keeps the holds of its budgets.

use std::sync::Arc;

use journal::time::Timestamp;

use super::{
    entry::Candidate,
    parts::Injector,
    room::{HeldByBudget, Room, Short},
    spent::{Charge, SourceChange},
};
use crate::{
    budget::{Balance, BudgetLeft, BudgetName, Budgets, SessionUsage, Usage},
    exchange::Exchange,
    hold::Hold,
    notification::{Tokens, Waiting},
    session::SessionState,
};

impl Injector {
    /// Begins the budget of a turn if `exchange` is the first of it; what had no room in the one
    /// before may be released. Call it once per exchange, after its turn is known.
    pub fn enter_budget(&mut self, exchange: &Exchange, state: SessionState) {
        let number = self.turns.number();
        if self.spent.enter(exchange, number, state) {
            self.end_budget_holds(|of| *of == BudgetName::Turn);
        }
    }

    /// Notes that the turn has ended, by an exchange.
    pub fn end_turn_budget(&mut self) {
        (self.spent.is_turn_over, self.spent.has_turns) = (true, true);
    }

    /// While no turn is running: what had no room in the last one may wake the agent for another one.
    pub fn end_turn_holds(&mut self) {
        if self.spent.turn <= self.turns.number() {
            self.end_budget_holds(|of| *of == BudgetName::Turn);
        }
    }

    /// Ends the holds of all budgets: there may be room again.
    pub fn end_all_budget_holds(&mut self) {
        self.end_budget_holds(|_| true);
    }

    fn end_budget_holds(&mut self, is_over: impl Fn(&BudgetName) -> bool) {
        if self.spent.is_holding {
            self.release_holds(|_, hold| matches!(hold, Hold::Budget { of, .. } if is_over(of)));
        }
    }

    /// What is left of the budgets for `candidates`; `of_source` says it of a source.
    pub fn room(
        &self,
        candidates: &[Candidate],
        budgets: &Budgets,
        of_source: impl Fn(&Arc<str>) -> Option<Balance>,
        now: Timestamp,
    ) -> Room {
        let mut own: Vec<Balance> = Vec::new();
        for Candidate { notification, .. } in candidates {
            let subscriber = || self.spent.of_subscriber(&notification.subscriber, budgets, now);
            let sources = notification.charged_to.iter().filter_map(&of_source);
            for balance in subscriber().into_iter().chain(sources) {
                if !own.contains(&balance) {
                    own.push(balance);
                }
            }
        }
        Room { common: self.spent.common(budgets, now), own, now }
    }

    /// Charges a release.
    pub(super) fn charge(
        &mut self,
        chosen: &[Candidate],
        tokens: Tokens,
        has_said: bool,
        budgets: &Budgets,
        now: Timestamp,
    ) -> Charge {
        self.spent.charge(chosen, tokens, has_said, budgets, now)
    }

    /// Credits a release that did not arrive.
    pub(super) fn credit(&mut self, charge: Charge, charged_at: Timestamp, now: Timestamp) {
        self.spent.credit(charge, charged_at, now);
        self.end_all_budget_holds();
    }

    /// The changes of the budgets of sources since the last call.
    pub fn take_source_changes(&mut self) -> Vec<SourceChange> {
        std::mem::take(&mut self.spent.source_changes)
    }

    /// The pending notifications with the hold of a budget, and their count for a text that may say
    /// it: `None` if one of this turn has.
    pub(super) fn held_by_budget(&self) -> (Vec<HeldByBudget<'_>>, Option<Waiting>) {
        let held = if self.spent.is_holding { self.queue.held_by_budget() } else { Vec::new() };
        let mut waiting = Waiting::default();
        for (_, of, _) in &held {
            waiting = waiting.or_for(of).and(1);
        }
        (held, (!self.spent.has_said).then_some(waiting))
    }

    /// Adds the holds of budgets.
    pub(super) fn hold_for_budget(&mut self, short: Vec<Short>, now: Timestamp) {
        if !short.is_empty() {
            self.spent.is_holding = true;
            self.spent.first_short.get_or_insert(now);
        }
        for Short { id, of, until, .. } in short {
            self.queue.hold_for_budget(&id, of, until, now);
        }
        if self.spent.is_holding && self.queue.held_by_budget().is_empty() {
            self.spent.is_holding = false;
        }
    }

    /// When a budget had no room for the first time for one that may be pending.
    pub(super) fn first_short_since(&self) -> Option<Timestamp> {
        self.spent.first_short
    }

    /// Finds that time among those that are pending.
    pub(super) fn note_first_short(&mut self) {
        self.spent.first_short = self.queue.first_short_since();
    }

    /// What is left of the turn's and the hour's budget; `None` if both are off.
    pub fn budget_left(&self, budgets: &Budgets, now: Timestamp) -> Option<BudgetLeft> {
        let common = self.spent.common(budgets, now);
        let of = |name: &BudgetName| common.iter().find(|own| own.of == *name).map(|own| own.left);
        let left = BudgetLeft { turn: of(&BudgetName::Turn), hour: of(&BudgetName::Hour) };
        (left.turn.is_some() || left.hour.is_some()).then_some(left)
    }

    /// What is used of the budgets.
    pub fn budget_usage(&self, budgets: &Budgets, now: Timestamp) -> SessionUsage {
        let (spent, settings) = (&self.spent, &budgets.settings);
        let subscribers = budgets.subscribers.iter().filter_map(|(id, rate)| {
            let used = u64::from(spent.subscribers.get(id)?.used(now).0);
            Some((id.clone(), Usage { used, size: Some(Tokens(rate.count.get())) }))
        });
        SessionUsage {
            turn: Usage { used: spent.in_turn, size: settings.turn.filter(|_| spent.has_turns) },
            hour: Usage { used: spent.hour.used(now).0.into(), size: settings.hour },
            session: Usage { used: spent.in_session, size: settings.session },
            subscribers: subscribers.collect(),
        }
    }
}
