//! The running looks of probes, their cached facts, and the calls that are not covered by a look
//! yet.

use std::sync::{Arc, atomic::AtomicUsize};

use dashmap::{DashMap, DashSet};

use crate::{
    call::Call,
    event::SessionId,
    notification::InjectionPoint,
    program::Programs,
    server::{facts::Contents, knowledge::Knowledge, mounts::Mounts},
    time::Timestamp,
};

/// Most calls of a session that are kept for its next look; the oldest are evicted.
const MISSED_CALLS_MAX: usize = 64;
/// Most sessions with kept calls; beyond it all are evicted.
const MISSED_SESSIONS_MAX: usize = 256;

/// The running looks, and their cached facts of files.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Facts of sessions.
    pub(super) knowledge: Knowledge,
    pub(super) contents: Arc<Contents>,
    /// The programs of the machine.
    pub(super) programs: Arc<Programs>,
    pub(super) mounts: Mounts,
    pub(super) looking: DashSet<SessionId>,
    pub(super) count: AtomicUsize,
    /// Calls of exchanges whose look did not run or had no result in time, kept for the next look.
    missed: DashMap<SessionId, Missed>,
}

/// Calls, and a prompt, that are not covered by a look yet.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Missed {
    /// Earliest time at which the calls may have run.
    pub(super) since: Option<Timestamp>,
    /// Last activity of the session before the prompt.
    pub(super) prompt_after: Option<Timestamp>,
    /// Oldest first.
    pub(super) calls: Vec<Call>,
}

impl Looks {
    pub(crate) fn new(programs: Arc<Programs>) -> Self {
        let knowledge = Knowledge::new(Arc::clone(&programs.workspaces));
        Self { knowledge, programs, ..Self::default() }
    }

    pub(crate) const fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    /// Takes the calls that a look at `point` has to cover: those without a look yet, with `calls`
    /// appended. A look before a tool covers only the call that begins.
    pub(super) fn take_missed(&self, session: &SessionId, point: InjectionPoint, calls: Vec<Call>) -> Missed {
        if point == InjectionPoint::BeforeTool {
            return Missed { calls, ..Missed::default() };
        }
        let mut missed = self.missed.remove(session).map(|(_, missed)| missed).unwrap_or_default();
        missed.calls.extend(calls);
        missed
    }

    /// Keeps the calls of a look at `point` for the session's next one. Before a tool none is kept:
    /// the exchange after the call reports it again.
    pub(super) fn keep_missed(&self, session: &SessionId, point: InjectionPoint, mut missed: Missed) {
        let is_empty = missed.calls.is_empty() && missed.prompt_after.is_none();
        if is_empty || point == InjectionPoint::BeforeTool {
            return;
        }
        if self.missed.len() >= MISSED_SESSIONS_MAX {
            self.missed.clear();
        }
        missed.calls.drain(..missed.calls.len().saturating_sub(MISSED_CALLS_MAX));
        self.missed.insert(session.clone(), missed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::InjectionPoint::{AfterTool, BeforeTool};

    #[test]
    fn what_no_look_has_had_is_kept_for_the_next_one_within_bounds() {
        let looks = Looks::default();
        let (session, at) = (SessionId::new("s"), Timestamp::from_millis);
        let call = |number: usize| Call { command: Some(number.to_string()), ..Call::default() };
        let missed = |since: u64, calls: &[usize]| Missed {
            since: Some(at(since)),
            calls: calls.iter().map(|number| call(*number)).collect(),
            ..Missed::default()
        };
        let fresh = |number: usize| Missed { calls: vec![call(number)], ..Missed::default() };
        let take = |calls| looks.take_missed(&session, AfterTool, calls);
        let keep = |missed| looks.keep_missed(&session, AfterTool, missed);
        assert_eq!(take(vec![call(1)]), fresh(1));
        keep(missed(5, &[1]));
        assert_eq!(take(vec![call(2)]), missed(5, &[1, 2]));
        keep(missed(5, &[]));
        assert_eq!(take(vec![call(3)]), fresh(3), "nothing was missed");
        let prompt = Missed { prompt_after: Some(at(3)), ..missed(5, &[]) };
        keep(prompt.clone());
        assert_eq!(take(Vec::new()), prompt);
        keep(missed(5, &(0..100).collect::<Vec<_>>()));
        let kept = take(Vec::new()).calls;
        assert_eq!((kept.len(), kept.last()), (MISSED_CALLS_MAX, Some(&call(99))));
        for number in 0..MISSED_SESSIONS_MAX + 10 {
            looks.keep_missed(&SessionId::new(&number.to_string()), AfterTool, missed(5, &[1]));
        }
        assert!(looks.missed.len() <= MISSED_SESSIONS_MAX);
    }

    #[test]
    fn a_look_before_a_tool_takes_and_keeps_only_the_call_that_begins() {
        let (looks, session) = (Looks::default(), SessionId::new("s"));
        let missed = |command: &str| Missed {
            calls: vec![Call { command: Some(command.into()), ..Call::default() }],
            ..Missed::default()
        };
        looks.keep_missed(&session, AfterTool, missed("ended"));
        let begins = looks.take_missed(&session, BeforeTool, missed("begins").calls);
        assert_eq!(begins, missed("begins"));
        looks.keep_missed(&session, BeforeTool, begins);
        assert_eq!(looks.take_missed(&session, AfterTool, Vec::new()), missed("ended"));
    }
}
