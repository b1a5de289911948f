//! Detectors: folds over harness reports about agents. Their findings are published as events of
//! the session.
//!
//! A detector gets events in journal order, with their times, and does not query the machine: the
//! same events lead to the same findings, live, in a replay and in a simulation. A new detector is
//! a file here, a row in the table `sources!`, a field of [`Detectors`] and a line in
//! [`Detectors::observe`]. Findings are published and read from the journal like other events, so
//! they are delivered by the exchange after the one with their last event.

mod comparable;
mod finding;
pub mod loops;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use self::finding::Finding;
use journal::time::Timestamp;

use crate::{
    event::{Event, EventRef, SessionId},
    hash::first_64_bits,
    settings::sources,
};

/// Type prefixes of the events for detectors: harness reports about agents.
const TAKEN: [&str; 2] = ["agent.", "tool.call."];

sources! {
    // Module, name in `[sources]`, topic of its events, and precondition of its findings.
    loops "loop" "repeated calls" "calls with `args` and `result`";
}

/// All detectors, with their state.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Detectors {
    loops: loops::Loops,
}

impl Detectors {
    /// Notes that the user began another task in `session`.
    pub fn begin_task(&mut self, session: &SessionId) {
        self.loops.forget(session);
    }

    /// Takes a trusted event, and returns the events to publish.
    ///
    /// Shape: their ids derive from the event's id, so a replay returns the same. Most events are
    /// not from a session's harness, and cost one comparison of types.
    pub fn observe(&mut self, event: &EventRef<'_>, settings: &Settings, now: Timestamp) -> Vec<Event> {
        let is_taken = TAKEN.iter().any(|begin| event.event_type.starts_with(begin));
        let Some(session) = event.session.filter(|_| is_taken).map(SessionId::new) else {
            return Vec::new();
        };
        let findings = [self.loops.observe(&session, event, &settings.loops, now)].into_iter().flatten();
        let publish = |Finding { name, event_type, severity, payload }: Finding| Event {
            session: Some(session.clone()),
            workspace: event.workspace.map(Into::into),
            ..Event::own(event_type, format!("{name}-{:016x}", name_of(event)), severity, payload, now)
        };
        findings.map(publish).collect()
    }
}

/// A fixed-length name of an event: the first 64 bits of a SHA-256 over source and id.
fn name_of(event: &EventRef<'_>) -> u64 {
    first_64_bits(Sha256::new_with_prefix(event.source).chain_update([0]).chain_update(event.id))
}
