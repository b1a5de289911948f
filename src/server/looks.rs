//! The running looks of probes, their cached facts, and the calls that are not covered by a look
//! yet.

use std::sync::{Arc, atomic::AtomicUsize};

use dashmap::{DashMap, DashSet};

use crate::{
    call::Call,
    event::SessionId,
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
    pub(super) mounts: Mounts,
    pub(super) looking: DashSet<SessionId>,
    pub(super) count: AtomicUsize,
    /// Calls of exchanges whose look timed out, kept for the next look.
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
    pub(crate) const fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    /// Takes the calls that are not covered by a look yet, with `calls` appended.
    pub(super) fn take_missed(&self, session: &SessionId, calls: Vec<Call>) -> Missed {
        let mut missed = self.missed.remove(session).map(|(_, missed)| missed).unwrap_or_default();
        missed.calls.extend(calls);
        missed
    }

    /// Keeps calls for the session's next look.
    pub(super) fn keep_missed(&self, session: &SessionId, mut missed: Missed) {
        if missed.calls.is_empty() && missed.prompt_after.is_none() {
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
        assert_eq!(looks.take_missed(&session, vec![call(1)]), fresh(1));
        looks.keep_missed(&session, missed(5, &[1]));
        assert_eq!(looks.take_missed(&session, vec![call(2)]), missed(5, &[1, 2]));
        looks.keep_missed(&session, missed(5, &[]));
        assert_eq!(looks.take_missed(&session, vec![call(3)]), fresh(3), "nothing was missed");
        let prompt = Missed { prompt_after: Some(at(3)), ..missed(5, &[]) };
        looks.keep_missed(&session, prompt.clone());
        assert_eq!(looks.take_missed(&session, Vec::new()), prompt);
        looks.keep_missed(&session, missed(5, &(0..100).collect::<Vec<_>>()));
        let kept = looks.take_missed(&session, Vec::new()).calls;
        assert_eq!((kept.len(), kept.last()), (MISSED_CALLS_MAX, Some(&call(99))));
        for number in 0..MISSED_SESSIONS_MAX + 10 {
            looks.keep_missed(&SessionId::new(&number.to_string()), missed(5, &[1]));
        }
        assert!(looks.missed.len() <= MISSED_SESSIONS_MAX);
    }
}
