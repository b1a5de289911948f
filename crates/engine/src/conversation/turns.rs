//! The turns of a session, as its exchanges and its harness's events show them.

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    exchange::Directive,
    notification::InjectionPoint,
    session::{TURN_END_EVENT, TURN_START_EVENT, Wake},
};

/// Most turns whose ids a session remembers.
const TURN_IDS_MAX: usize = 8;

/// The turns of a session, as its exchanges show them.
///
/// Shape: a harness that reports the starts or ends of its turns by events is believed: its
/// exchanges do not count them again.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Turns {
    /// An exchange was made in a turn whose end no exchange has shown.
    is_under_way: bool,
    /// Its harness reports the ends of turns by events.
    reports_ends: bool,
    /// Its harness reports the starts of turns by events.
    reports_starts: bool,
    /// The ids of its newest turns, the last one last.
    ids: VecDeque<Arc<str>>,
    /// The queue requested the wake that the present exchange may answer.
    #[serde(skip)]
    is_woken: bool,
    /// The queue requested the turn that begins now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_requested: bool,
}

/// What passed with an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// A turn ended that no event has reported or will report.
    pub ends_turn: bool,
    /// The user began another task, which no event has reported or will report.
    pub begins_task: bool,
}

impl Turns {
    /// The id of the last turn.
    pub(super) fn last(&self) -> Option<&Arc<str>> {
        self.ids.back()
    }

    /// Whether one of the newest turns has this id.
    pub(super) fn has_had(&self, id: &Arc<str>) -> bool {
        self.ids.contains(id)
    }

    /// Notes the wake that the queue requests at an exchange.
    pub(super) fn note_wake(&mut self, wake: Option<&Wake>) {
        self.is_woken = wake.is_some();
        if !self.reports_starts {
            self.is_requested = wake.is_some_and(Wake::starts_turn);
        }
    }

    /// Notes the start of a turn that its harness reports, and the wake that the queue requested
    /// before it, if the client started it.
    pub(super) fn note_start(&mut self, wake: Option<&Wake>) {
        self.is_requested = wake.is_some_and(Wake::starts_turn);
    }

    /// Whether the queue requested the turn that begins with the present exchange; once.
    pub(super) fn take_requested(&mut self) -> bool {
        std::mem::take(&mut self.is_requested)
    }

    /// Notes an event of the session.
    pub(super) fn note_event(&mut self, event_type: &str) {
        self.reports_ends |= event_type == TURN_END_EVENT;
        self.reports_starts |= event_type == TURN_START_EVENT;
    }

    /// Notes the id of the present turn.
    pub(super) fn note_id(&mut self, id: &Arc<str>) {
        if self.ids.contains(id) {
            return;
        }
        self.ids.push_back(Arc::clone(id));
        self.ids.drain(..self.ids.len().saturating_sub(TURN_IDS_MAX));
    }

    /// Notes an exchange at which the agent is, and its directive.
    pub(super) fn note_exchange(&mut self, point: InjectionPoint, directive: Option<&Directive>) -> Passed {
        let was_under_way = std::mem::replace(&mut self.is_under_way, true);
        let ends_turn = match point {
            // A harness that reports no end of a turn shows it by the start of the next one.
            InjectionPoint::TurnStart => was_under_way,
            InjectionPoint::TurnEnd if directive.is_none() => {
                self.is_under_way = false;
                true
            }
            InjectionPoint::TurnEnd | InjectionPoint::BeforeTool | InjectionPoint::AfterTool => false,
            InjectionPoint::Immediate => {
                self.is_under_way = was_under_way;
                false
            }
        };
        let is_prompt = point == InjectionPoint::TurnStart && !self.is_woken;
        Passed { ends_turn: ends_turn && !self.reports_ends, begins_task: is_prompt && !self.reports_starts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::WakeKind;
    use InjectionPoint::{AfterTool, BeforeTool, Immediate, TurnEnd, TurnStart};

    fn passed(points: &[InjectionPoint], turns: &mut Turns) -> Vec<(bool, bool)> {
        let passed = points.iter().map(|point| turns.note_exchange(*point, None));
        passed.map(|Passed { ends_turn, begins_task }| (ends_turn, begins_task)).collect()
    }

    #[test]
    fn a_turn_ends_also_with_the_next_start() {
        for (points, expected) in [
            (&[TurnStart, AfterTool, TurnEnd, TurnStart, TurnEnd][..], &[2, 4][..]),
            (&[TurnEnd, TurnEnd], &[0, 1]),
            (&[TurnStart, BeforeTool, TurnStart, TurnStart], &[2, 3]),
            (&[AfterTool, TurnStart], &[1]),
            (&[Immediate, TurnStart, Immediate, TurnEnd, Immediate], &[3]),
        ] {
            let found = passed(points, &mut Turns::default());
            let ended: Vec<usize> = (0..found.len()).filter(|at| found[*at].0).collect();
            assert_eq!(ended, expected, "{points:?}");
        }
        let mut turns = Turns::default();
        let goes_on = Directive::Continue { reason: "ci failed".into() };
        assert!(!turns.note_exchange(TurnEnd, Some(&goes_on)).ends_turn);
        assert!(turns.note_exchange(TurnEnd, None).ends_turn);
    }

    #[test]
    fn the_events_of_a_harness_are_believed() {
        let mut turns = Turns::default();
        turns.note_event(TURN_END_EVENT);
        assert_eq!(
            passed(&[TurnStart, TurnEnd, TurnStart], &mut turns),
            [(false, true), (false, false), (false, true)]
        );
        turns.note_event(TURN_START_EVENT);
        assert_eq!(passed(&[TurnStart, TurnEnd], &mut turns), [(false, false), (false, false)]);
    }

    #[test]
    fn turn_that_answers_wake_is_no_new_task() {
        let mut turns = Turns::default();
        let wake = Wake { kind: WakeKind::StartTurn, reason: "critical: ci".into(), causes: 1 };
        turns.note_wake(Some(&wake));
        assert!(!turns.note_exchange(TurnStart, None).begins_task);
        turns.note_wake(None);
        assert!(turns.note_exchange(TurnStart, None).begins_task);
    }

    #[test]
    fn the_newest_ids_of_turns_are_remembered() {
        let mut turns = Turns::default();
        let id = |number: usize| -> Arc<str> { format!("t{number}").into() };
        (0..=TURN_IDS_MAX).for_each(|number| turns.note_id(&id(number)));
        turns.note_id(&id(1));
        assert_eq!(turns.last(), Some(&id(TURN_IDS_MAX)));
        assert!(!turns.has_had(&id(0)) && turns.has_had(&id(1)));
    }
}
