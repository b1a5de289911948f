//! The failures that a session's own harness observed, so that the session does not get back what
//! its model has.
//!
//! A harness that reports the failure of a call has the call's result, and puts it into the
//! messages. The failure is counted as every other one; its notification ends at that session.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::{
    event::{Seq, SessionId},
    fold::{Dispatched, Effects, Fold},
    ledger::Reason,
};

/// Most failures that wait for the exchange that knows their call: more than one exchange observes,
/// and its events directly precede it.
const FAILURES_MAX: usize = 256;
/// Most failures known to their session; a batch closes within seconds.
const KNOWN_MAX: usize = 1_024;

/// The newest failures of calls, and those that their session knows.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Echoes {
    /// Oldest first.
    failures: VecDeque<Failure>,
    /// Oldest first.
    known: VecDeque<(SessionId, Seq)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Failure {
    session: SessionId,
    call: String,
    seq: Seq,
}

impl Echoes {
    /// Notes that the model of `session` has the results of `calls`; returns whether there is a
    /// failure among them.
    pub(super) fn know<'c>(
        &mut self,
        session: &SessionId,
        calls: impl Iterator<Item = &'c str> + Clone,
    ) -> bool {
        // Most exchanges observe no failure.
        if self.failures.is_empty() || calls.clone().next().is_none() {
            return false;
        }
        let is_known =
            |failure: &Failure| failure.session == *session && calls.clone().any(|call| call == failure.call);
        let (known, others): (VecDeque<Failure>, VecDeque<Failure>) =
            std::mem::take(&mut self.failures).into_iter().partition(is_known);
        self.failures = others;
        let has_some = !known.is_empty();
        self.known.extend(known.into_iter().map(|failure| (failure.session, failure.seq)));
        self.known.drain(..self.known.len().saturating_sub(KNOWN_MAX));
        has_some
    }

    /// Whether the session knows all of `events`.
    pub(super) fn knows_all(&self, session: &SessionId, events: &[Seq]) -> bool {
        !self.known.is_empty() && !events.is_empty() && events.iter().all(|seq| self.knows(session, *seq))
    }

    /// Whether the session knows the failure at `seq`.
    pub(super) fn knows(&self, session: &SessionId, seq: Seq) -> bool {
        self.known.iter().any(|(of, known)| of == session && *known == seq)
    }
}

impl Fold for Echoes {
    type Settings = ();

    fn observe(&mut self, dispatched: &Dispatched<'_>, (): &(), _: &mut Effects) -> bool {
        let Dispatched { seq, event, .. } = *dispatched;
        #[derive(Deserialize)]
        struct Failed {
            call_id: String,
        }
        let is_failure = matches!(event.event_type, "tool.call.failure" | "tool.call.timeout");
        let Some(session) = event.session.filter(|_| is_failure) else { return false };
        let Ok(Failed { call_id: call }) = serde_json::from_str(event.payload) else { return false };
        self.failures.push_back(Failure { session: SessionId::new(session), call, seq });
        self.failures.drain(..self.failures.len().saturating_sub(FAILURES_MAX));
        false
    }

    /// The session's model has the results of the calls.
    fn reason_against(&self, session: &SessionId, events: &[Seq]) -> Option<Reason> {
        self.knows_all(session, events).then_some(Reason::Known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventRef, Provenance, Severity};
    use journal::time::Timestamp;

    fn observe(echoes: &mut Echoes, seq: u64, event_type: &str, session: Option<&str>, payload: &str) {
        let event = EventRef {
            id: "e",
            event_type,
            source: "bot",
            provenance: Provenance::Harness,
            severity: Severity::Error,
            timestamp: Timestamp::ZERO,
            payload,
            dedupe_key: None,
            session,
            workspace: None,
            cause: None,
            deliver_after: None,
        };
        echoes.observe(&Dispatched::trusted(Seq(seq), &event, Timestamp::ZERO), &(), &mut Effects::default());
    }

    #[test]
    fn session_knows_the_failures_of_its_own_calls() {
        let mut echoes = Echoes::default();
        let session = SessionId::new("s1");
        for (seq, event_type, session, payload) in [
            (1, "tool.call.failure", Some("s1"), r#"{"call_id":"c1"}"#),
            (2, "tool.call.timeout", Some("s1"), r#"{"call_id":"c2"}"#),
            (3, "tool.call.failure", Some("s1"), r#"{"tool_name":"grep"}"#),
            (4, "tool.call.failure", Some("s2"), r#"{"call_id":"c1"}"#),
            (5, "tool.call.success", Some("s1"), r#"{"call_id":"c1"}"#),
            (6, "tool.call.failure", Some("s1"), r#"{"call_id":7}"#),
            (7, "tool.call.failure", None, r#"{"call_id":"c1"}"#),
        ] {
            observe(&mut echoes, seq, event_type, session, payload);
        }
        assert!(!echoes.know(&session, ["c9"].into_iter()));
        assert!(echoes.know(&session, ["c1", "c2"].into_iter()));
        assert!(!echoes.know(&session, ["c1", "c2"].into_iter()), "each is known once");
        let known: Vec<u64> = (1..=7).filter(|seq| echoes.knows(&session, Seq(*seq))).collect();
        assert_eq!(known, [1, 2]);
        assert!(echoes.knows_all(&session, &[Seq(1), Seq(2)]));
        assert!(!echoes.knows_all(&session, &[Seq(1), Seq(3)]) && !echoes.knows_all(&session, &[]));
    }

    #[test]
    fn the_newest_failures_are_kept() {
        let mut echoes = Echoes::default();
        for seq in 0..=FAILURES_MAX as u64 {
            observe(&mut echoes, seq, "tool.call.failure", Some("s1"), &format!(r#"{{"call_id":"c{seq}"}}"#));
        }
        let session = SessionId::new("s1");
        assert!(!echoes.know(&session, ["c0"].into_iter()));
        assert!(echoes.know(&session, ["c1"].into_iter()));
    }
}
