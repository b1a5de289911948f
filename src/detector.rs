//! Detectors: folds over harness reports about agents. A detector publishes its findings as events
//! of the session.
//!
//! A detector gets events in journal order, with their times, and does not query the machine: the
//! same events lead to the same findings, live, in a replay and in a simulation. A new detector is
//! a file here, a row in the table `sources!`, a field of [`Detectors`] and a line in
//! `Detectors::each`. Findings are published and read from the journal like other events, so they
//! are delivered by the exchange after the one with their last event.

pub mod loops;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    event::{Event, EventRef, SessionId, Severity},
    settings::sources,
    time::Timestamp,
};

/// Type prefixes of the events for detectors: harness reports about agents.
const TAKEN: [&str; 2] = ["agent.", "tool.call."];

sources! {
    // Module, name in `[sources]`, topic of its events, and precondition of its findings.
    loops "loop" "repeated calls" "calls with `args` and `result`";
}

/// What a detector found.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// The event type.
    event_type: &'static str,
    severity: Severity,
    /// Distinguishes it from other findings of the session for the same event.
    name: String,
    payload: Value,
}

/// A fold over the events of sessions.
trait Detector {
    /// Takes a trusted event of `session`; returns the finding, if any.
    fn observe(
        &mut self,
        session: &SessionId,
        event: &EventRef<'_>,
        settings: &Settings,
        now: Timestamp,
    ) -> Option<Finding>;
}

/// All detectors, with their state.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Detectors {
    loops: loops::Loops,
}

impl Detectors {
    fn each(&mut self) -> [&mut dyn Detector; 1] {
        [&mut self.loops]
    }

    /// Takes a trusted event, and returns the events to publish.
    ///
    /// Shape: their ids derive from the event's own, so a replay gives the same. Most events are
    /// not of a session's harness, and cost one comparison of types.
    pub fn observe(&mut self, event: &EventRef<'_>, settings: &Settings, now: Timestamp) -> Vec<Event> {
        let is_taken = TAKEN.iter().any(|begin| event.event_type.starts_with(begin));
        let Some(session) = event.session.filter(|_| is_taken).map(SessionId::new) else {
            return Vec::new();
        };
        let findings =
            self.each().into_iter().filter_map(|detector| detector.observe(&session, event, settings, now));
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

fn first_64_bits(hash: Sha256) -> u64 {
    u64::from_be_bytes(*hash.finalize().first_chunk().expect("32 bytes begin with 8"))
}
