//! Turns, steps and carriers of the reference, found in its whole history at each exchange.

use super::{super::*, Answered, LEASE_MS, Naive, Place};
use crate::exchange::Trigger;

impl Naive {
    /// The turn of each exchange of the agent, by number; none for one that comes late from an
    /// earlier turn.
    pub(super) fn turns(&self) -> Vec<Option<usize>> {
        let (mut number, mut name, mut earlier) = (0, None, Vec::new());
        let number_of = |exchange: &Exchange| {
            let is_start = exchange.point == InjectionPoint::TurnStart;
            let is_same = name.is_some() && name == exchange.turn;
            let is_other = Self::is_other_turn(name.as_ref(), exchange.turn.as_ref());
            if !is_same && !is_start && exchange.turn.as_ref().is_some_and(|turn| earlier.contains(turn)) {
                return None;
            }
            if is_other || is_start && !is_same {
                number += 1;
                earlier.extend(name.take());
            }
            name = exchange.turn.clone().or(name.take());
            Some(number)
        };
        self.history.iter().map(number_of).collect()
    }

    /// The steps of a turn, each once, in the order in which they were named.
    fn steps(&self, turn: usize) -> Vec<Arc<str>> {
        let mut steps = Vec::new();
        for (exchange, number) in self.history.iter().zip(self.turns()) {
            if let Some(step) = exchange.step.as_ref().filter(|_| number == Some(turn))
                && !steps.contains(step)
            {
                steps.push(step.clone());
            }
        }
        steps
    }

    /// The present turn, and the number of `exchange`'s step in it; without one, that of the next
    /// step that is named.
    pub(super) fn place(&self, exchange: &Exchange) -> (usize, usize) {
        let turns = self.turns();
        let turn = turns.iter().flatten().last().copied().unwrap_or(0);
        let steps = self.steps(turn);
        let is_of_it = exchange.trigger == Trigger::Agent && turns.last().copied().flatten().is_some();
        let step = exchange.step.as_ref().filter(|_| is_of_it);
        let at = step.and_then(|step| steps.iter().position(|known| known == step));
        (turn, at.unwrap_or(steps.len()))
    }

    pub(super) fn replays(&self, exchange: &Exchange, now: u64) -> Option<usize> {
        let is_start = |exchange: &Exchange| exchange.point == InjectionPoint::TurnStart;
        let (name, turns) = (self.turn_name(), self.turns());
        let is_it = |answered: &&Answered| {
            let before = &answered.exchange;
            let (own, named) = (before.turn.as_ref(), exchange.turn.as_ref());
            let since = &turns[answered.history_len..];
            let is_same = match (own, named) {
                (Some(own), Some(named)) if own != named => false,
                (Some(own), Some(_)) if name.as_ref() != Some(own) => true,
                // One that comes late from an earlier turn is not of the start's turn.
                _ if is_start(exchange) => since.iter().all(Option::is_none),
                _ => !self.opens_space_after(answered.history_len),
            };
            let is_in_time = now < answered.at + LEASE_MS;
            before.carrier == exchange.carrier && before.point == exchange.point && is_same && is_in_time
        };
        self.answered.iter().find(is_it).map(|answered| answered.release)
    }

    /// The name of the present turn.
    pub(super) fn turn_name(&self) -> Option<Arc<str>> {
        let turns = self.turns();
        let present = turns.iter().flatten().last()?;
        let mut of_it = self.history.iter().zip(&turns).rev().filter(|(_, turn)| *turn == &Some(*present));
        of_it.find_map(|(exchange, _)| exchange.turn.clone())
    }

    /// Whether one of the exchanges from `index` on started a turn.
    fn opens_space_after(&self, index: usize) -> bool {
        let turns = self.turns();
        (index..self.history.len()).any(|at| {
            let is_start = self.history[at].point == InjectionPoint::TurnStart;
            let before = turns[..at].iter().flatten().last().copied().unwrap_or(0);
            is_start || turns[at].is_some_and(|turn| turn > before)
        })
    }

    /// The agent made `exchange`: what it proves has arrived, what was pushed waits again.
    pub(super) fn confirm(&mut self, exchange: &Exchange, now: u64) {
        use InjectionPoint::{AfterTool, BeforeTool, Immediate, TurnEnd, TurnStart};
        let reports_ends = self
            .turns()
            .iter()
            .zip(&self.history)
            .any(|(turn, seen)| turn.is_some() && seen.point == TurnEnd);
        self.history.push(exchange.clone());
        let is_late = self.turns().last() == Some(&None);
        let (turn, step) = self.place(exchange);
        let is_call = matches!(exchange.point, BeforeTool | AfterTool);
        for lease in 0..self.releases.len() {
            let release = &mut self.releases[lease];
            let is_open = self.known.iter().any(|known| known.place == Place::Lease(lease));
            if !is_open || release.is_pushed {
                continue;
            }
            let is_of_another_name = Self::is_other_turn(release.turn.as_ref(), exchange.turn.as_ref());
            let has_arrived = !is_late
                && if release.counts_for.0 < turn {
                    match exchange.point {
                        TurnStart => !reports_ends,
                        BeforeTool | AfterTool | TurnEnd => true,
                        Immediate => false,
                    }
                } else {
                    exchange.step.is_some() && step > release.counts_for.1
                        || exchange.point == TurnEnd && !release.is_at_end
                        || is_of_another_name && (is_call || exchange.point == TurnEnd)
                };
            if has_arrived {
                for known in self.known.iter_mut().filter(|known| known.place == Place::Lease(lease)) {
                    known.place = Place::Ended;
                }
                continue;
            }
            if !is_late && release.counts_for.0 < turn {
                (release.counts_for, release.is_at_end) = ((turn, step), false);
            } else if !is_late && is_call {
                release.is_at_end = false;
            }
            release.expires_at = release.expires_at.max(now + LEASE_MS);
        }
        for index in 0..self.known.len() {
            if let Place::Lease(lease) = self.known[index].place
                && self.releases[lease].is_pushed
            {
                (self.known[index].place, self.known[index].is_redelivered) = (Place::Queue, true);
                self.evict();
            }
        }
    }
}
