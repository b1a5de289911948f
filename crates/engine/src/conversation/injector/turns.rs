//! The turns and steps of a session, and what an exchange proves about earlier releases.
//!
//! A text that was released is in the model's input once the model has answered after it. Three
//! things show that it has: another step, the end of the turn, and a later turn. A parallel call of
//! the same step shows nothing, and a step without a name cannot be distinguished from such a call.
//!
//! A turn that starts before the last one ended was interrupted, or the model was not called yet.
//! Then the texts are in the history of the new turn, and count as released with its start.

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    exchange::{Exchange, Trigger},
    notification::InjectionPoint,
};

/// Most earlier turns whose names are known, to tell a late exchange of theirs from one of the
/// present turn.
const EARLIER_MAX: usize = 4;
/// Most steps of the turn that are known, to tell a late exchange of theirs from a new step.
const STEPS_MAX: usize = 16;

/// What an exchange at `turn_start` begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// A turn.
    OfTurn,
    /// Only the session: its harness has reported its start, and no turn since.
    OfSession,
}

/// The turns and steps, as the exchanges of the agent name them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Turns {
    number: u64,
    name: Option<Arc<str>>,
    earlier: VecDeque<Arc<str>>,
    /// In one space a carrier is one message; each start of a turn opens a new one.
    space: u64,
    /// Number of the agent's exchanges.
    exchanges: u64,
    /// The newest steps of the turn, newest last.
    steps: VecDeque<Arc<str>>,
    /// Number of the newest step; numbers grow over all turns.
    step: u64,
    /// The harness reports ends of turns, so a start alone is not a sign of the last turn's end.
    reports_ends: bool,
    /// No turn has begun since the session's start.
    is_before_turns: bool,
}

/// The turn and step for which a release counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct StepPosition {
    pub(super) turn: u64,
    /// A release without a step counts as one of the next step that is named: the model may have
    /// been called for that one before the text was there.
    pub(super) step: u64,
}

/// Where a carrier was answered; compared when it is answered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Answered {
    space: u64,
    exchange: u64,
}

/// What an exchange of the agent proves.
#[derive(Debug)]
pub(super) struct Proof<'e> {
    pub(super) exchange: &'e Exchange,
    pub(super) turn: u64,
    /// The step, if it is named.
    pub(super) step: Option<u64>,
    /// The releases of earlier turns that are still unconfirmed have arrived.
    pub(super) ends_earlier: bool,
    /// The place of those that have not.
    pub(super) place: StepPosition,
}

impl Turns {
    /// Notes the turn and the step of an exchange of the agent; `None` for one that comes late from
    /// an earlier turn, which proves nothing.
    pub(super) fn enter<'e>(&mut self, exchange: &'e Exchange, beginning: Beginning) -> Option<Proof<'e>> {
        use InjectionPoint::{AfterTool, BeforeTool, Immediate, TurnEnd, TurnStart};
        if self.is_of_earlier_turn(exchange) {
            return None;
        }
        self.exchanges += 1;
        let is_start = exchange.point == TurnStart;
        let (is_same_name, is_other_name) = match (&self.name, &exchange.turn) {
            (Some(own), Some(named)) => (own == named, own != named),
            (None, _) | (_, None) => (false, false),
        };
        // A prompt during the agent's work is of the same turn, under the same name.
        let begins_turn = is_start && !is_same_name || is_other_name;
        let ends_earlier = match exchange.point {
            TurnStart => !self.reports_ends && !self.is_before_turns,
            BeforeTool | AfterTool | TurnEnd => true,
            Immediate => false,
        };
        self.space += u64::from(is_start || begins_turn);
        if begins_turn {
            self.begin_turn();
            self.is_before_turns = is_start && beginning == Beginning::OfSession;
        }
        if exchange.turn.is_some() {
            self.name.clone_from(&exchange.turn);
        }
        self.reports_ends |= exchange.point == TurnEnd;
        let step = exchange.step.as_ref().map(|step| self.note_step(step));
        let place = StepPosition { turn: self.number, step: step.unwrap_or(self.step + 1) };
        Some(Proof { exchange, turn: self.number, step, ends_earlier, place })
    }

    fn begin_turn(&mut self) {
        self.number += 1;
        self.steps.clear();
        if let Some(name) = self.name.take() {
            self.earlier.retain(|earlier| *earlier != name);
            self.earlier.push_back(name);
            self.earlier.drain(..self.earlier.len().saturating_sub(EARLIER_MAX));
        }
    }

    /// Whether it names a turn before the present one. A start begins a turn, whatever its name.
    fn is_of_earlier_turn(&self, exchange: &Exchange) -> bool {
        exchange.point != InjectionPoint::TurnStart
            && self.name != exchange.turn
            && exchange.turn.as_ref().is_some_and(|turn| self.earlier.contains(turn))
    }

    /// The number of a step; a step that is not known is a new one.
    fn note_step(&mut self, step: &Arc<str>) -> u64 {
        if let Some(number) = self.number_of(step) {
            return number;
        }
        self.steps.push_back(Arc::clone(step));
        self.steps.drain(..self.steps.len().saturating_sub(STEPS_MAX));
        self.step += 1;
        self.step
    }

    fn number_of(&self, step: &Arc<str>) -> Option<u64> {
        let back = self.steps.iter().rev().position(|known| known == step)?;
        Some(self.step - back as u64)
    }

    /// Whether `exchange` is one of the agent in the present turn. All others release into it.
    fn is_of_present_turn(&self, exchange: &Exchange) -> bool {
        exchange.trigger == Trigger::Agent && !self.is_of_earlier_turn(exchange)
    }

    /// The place of what `exchange` releases.
    pub(super) fn place_of(&self, exchange: &Exchange) -> StepPosition {
        let step = exchange.step.as_ref().filter(|_| self.is_of_present_turn(exchange));
        let step = step.and_then(|step| self.number_of(step));
        StepPosition { turn: self.number, step: step.unwrap_or(self.step + 1) }
    }

    /// The number of the present turn; 0 before the first one that is reported.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The name of the turn for which a release of `exchange` counts.
    pub(super) fn name_of(&self, exchange: &Exchange) -> Option<Arc<str>> {
        if self.is_of_present_turn(exchange) { exchange.turn.clone() } else { self.name.clone() }
    }

    /// Where an answer is given now.
    pub(super) fn answered(&self) -> Answered {
        Answered { space: self.space, exchange: self.exchanges }
    }

    /// Whether `exchange`, which repeats a carrier, can be the message that was answered in `turn`
    /// at `at`.
    ///
    /// A start is repeated only as long as nothing came after it; later it begins another turn.
    pub(super) fn is_repeated(&self, exchange: &Exchange, turn: Option<&Arc<str>>, at: Answered) -> bool {
        match (turn, &exchange.turn) {
            (Some(turn), Some(named)) if turn != named => false,
            // Its name tells it from the messages of the present turn.
            (Some(turn), Some(_)) if self.name.as_ref() != Some(turn) => true,
            _ if exchange.point == InjectionPoint::TurnStart => at == self.answered(),
            _ => at.space == self.space,
        }
    }
}
