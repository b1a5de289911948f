//! Detectors: folds over harness reports about agents. Their findings are published as events of
//! the session.
//!
//! A detector gets events and exchanges in journal order, with their times, and does not query the
//! machine: the same records lead to the same findings, live, in a replay and in a simulation. A new
//! detector is a file here, a row in the table `sources!`, and a field of [`Detectors`] with a line
//! in its `observe`. Findings are published and read from the journal like other events, so they are
//! delivered by the exchange after the one with their last event.

pub mod budgets;
pub mod loops;

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use self::loops::Finding;

use crate::{
    event::{Event, EventRef, SessionId},
    exchange::Exchange,
    fold::{Dispatched, Effects, Fold},
    hash::first_64_bits,
    session::Succession,
    settings::sources,
};

/// Type prefixes of the events for detectors: harness reports about agents.
const TAKEN: [&str; 2] = ["agent.", "tool.call."];

sources! {
    // Module, name in `[sources]`, topic of its events, and precondition of its findings.
    loops   "loop"   "repeated calls"       "calls with `args` and `result`";
    budgets "budget" "steps and time of turns" "a limit, and exchanges that name their step or turn";
}

/// All detectors, with their state.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Detectors {
    loops: loops::Loops,
    #[serde(default)]
    budgets: budgets::Budgets,
}

impl Fold for Detectors {
    type Settings = Settings;

    fn apply(&mut self, settings: &Settings, before: Option<&Settings>) {
        if before.is_some_and(|before| before.budgets != settings.budgets) {
            self.budgets.apply(&settings.budgets);
        }
    }

    /// Shape: the ids of the findings derive from the event's id, so a replay publishes the same.
    /// Most events are not from a session's harness, and cost one comparison of types.
    fn observe(&mut self, dispatched: &Dispatched<'_>, settings: &Settings, to: &mut Effects) -> bool {
        let Dispatched { event, trust, now, .. } = *dispatched;
        let is_taken = TAKEN.iter().any(|begin| event.event_type.starts_with(begin));
        let Some(session) = event.session.filter(|_| is_taken && trust.is_trusted()).map(SessionId::new)
        else {
            return false;
        };
        let findings = [self.loops.observe(&session, event, &settings.loops, now)].into_iter().flatten();
        let publish = |Finding { name, event_type, severity, payload }: Finding| Event {
            session: Some(session.clone()),
            workspace: event.workspace.map(Into::into),
            ..Event::own(event_type, format!("{name}-{:016x}", name_of(event)), severity, payload, now)
        };
        to.publish(findings.map(publish));
        to.publish(self.budgets.observe(&session, event, &settings.budgets, now));
        false
    }

    fn note_exchange(&mut self, exchange: &Exchange, settings: &Settings, now: Timestamp, to: &mut Effects) {
        to.publish(self.budgets.note_exchange(exchange, &settings.budgets, now));
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.budgets.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Timestamp, to: &mut Effects) {
        to.publish(self.budgets.handle_timeout(now));
    }

    fn follow(&mut self, change: &Succession, _to: &mut Effects) {
        self.budgets.follow(change);
    }

    fn begin_task(&mut self, session: &SessionId) {
        self.loops.forget(session);
    }
}

/// A fixed-length name of an event: the first 64 bits of a SHA-256 over source and id.
fn name_of(event: &EventRef<'_>) -> u64 {
    first_64_bits(Sha256::new_with_prefix(event.source).chain_update([0]).chain_update(event.id))
}
