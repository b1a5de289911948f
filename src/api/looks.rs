//! The running looks of probes, their cached facts, and the calls that are not covered by a look
//! yet.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::AtomicUsize},
    time::Duration,
};

use dashmap::{DashMap, DashSet};
use engine::{call::Call, event::SessionId, notification::InjectionPoint, sorted::SortedMap};

use crate::{
    api::{
        facts::Contents,
        knowledge::Knowledge,
        look_input::{LateLook, Missed},
        mounts::Mounts,
    },
    daemon::program::Programs,
};

/// Most calls of a session that are kept for its next look; the oldest are evicted.
const MISSED_CALLS_MAX: usize = 64;
/// Most sessions with kept calls; beyond it all are evicted.
const MISSED_SESSIONS_MAX: usize = 256;

/// Most sessions with a finished look, each with the answers of one look, mostly some kilobytes;
/// beyond it all are evicted.
const LATE_SESSIONS_MAX: usize = 64;
/// Most folders that are known as slow.
const SLOW_FOLDERS_MAX: usize = 64;

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
    /// Looks that finished after their exchange; at most one per session.
    late: DashMap<SessionId, LateLook>,
    /// The folders with such looks.
    slow: Mutex<SortedMap<Arc<str>, Slow>>,
}

/// Looks in a folder that finished after their exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Slow {
    /// Number of them.
    pub(super) count: u64,
    /// Duration of the last one.
    pub(super) took: Duration,
}

impl Looks {
    pub(crate) fn new(programs: Arc<Programs>) -> Self {
        let knowledge = Knowledge::new(Arc::clone(&programs.workspaces));
        Self { knowledge, programs, ..Self::default() }
    }

    pub(crate) const fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    /// Keeps a look that finished after its exchange.
    pub(super) fn keep_late(&self, look: LateLook) {
        if let Some(folder) = &look.input.workspace {
            let mut slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
            if slow.len() >= SLOW_FOLDERS_MAX && !slow.contains_key(folder) {
                slow.pop_first();
            }
            let slow = slow.get_or_default(Arc::clone(folder));
            *slow = Slow { count: slow.count + 1, took: look.took };
        }
        if self.late.len() >= LATE_SESSIONS_MAX {
            self.late.clear();
        }
        self.late.insert(look.input.session.clone(), look);
    }

    /// Takes the finished look of a session, if there is one.
    pub(super) fn take_late(&self, session: &SessionId) -> Option<LateLook> {
        self.late.remove(session).map(|(_, look)| look)
    }

    /// The folders whose looks finished after their exchanges, the slowest first.
    pub(super) fn slow_folders(&self) -> Vec<(Arc<str>, Slow)> {
        let slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slow: Vec<_> = slow.iter().map(|(folder, slow)| (Arc::clone(folder), *slow)).collect();
        slow.sort_by_key(|(_, slow)| std::cmp::Reverse(slow.took));
        slow
    }

    /// Whether calls of a session wait for its next look.
    pub(super) fn has_missed(&self, session: &SessionId) -> bool {
        self.missed.contains_key(session)
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
        // Texts of files are too large to be kept.
        missed.calls.iter_mut().flat_map(|call| &mut call.touched).for_each(|touch| touch.written = None);
        self.missed.insert(session.clone(), missed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::notification::InjectionPoint::{AfterTool, BeforeTool};
    use journal::time::Timestamp;

    #[test]
    fn missed_calls_reach_the_next_look_within_bounds() {
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
    fn before_tool_look_takes_only_the_starting_call() {
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
