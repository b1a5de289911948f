//! Detectors: folds over what harnesses report of their agents. One publishes what it finds, as an event of its session.
//!
//! A detector takes events in the order of the journal, with their times, and asks nothing of the machine: the same events lead
//! to the same findings, live, in a replay and in a simulation. Another one is a file here, its row in the table
//! `sources!`, a field of [`Detectors`] and its line in `Detectors::each`. What it finds is published and read from the journal like any other event, so it is delivered by the exchange
//! after the one that came with the last event of it.

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

/// What the types of the events begin with that detectors take: what harnesses report of their agents.
const TAKEN: [&str; 2] = ["agent.", "tool.call."];

sources! {
    // Module, its name in `[sources]`, what its events are about, and without what it finds nothing.
    loops "loop" "repeated calls" "calls with `args` and `result`";
}

/// What a detector found.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// The type of the event that says so.
    event_type: &'static str,
    severity: Severity,
    /// What tells it from other findings of the session that the same event leads to.
    name: String,
    payload: Value,
}

/// A fold over the events of sessions.
trait Detector {
    /// Takes an event of `session`, which is trusted; says what is found with it.
    fn observe(
        &mut self,
        session: &SessionId,
        event: &EventRef<'_>,
        settings: &Settings,
        now: Timestamp,
    ) -> Option<Finding>;
}

/// All detectors, with what they remember.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Detectors {
    loops: loops::Loops,
}

impl Detectors {
    fn each(&mut self) -> [&mut dyn Detector; 1] {
        [&mut self.loops]
    }

    /// Takes an event that is trusted, and gives what is to be published.
    ///
    /// Shape: the ids of these events come from the event's own, so a replay gives the same. Most events are none of a session's harness,
    /// and cost a comparison of their types.
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

/// Names an event, of whatever length its id is: the first 64 bits of a SHA-256 over source and id.
fn name_of(event: &EventRef<'_>) -> u64 {
    first_64_bits(Sha256::new_with_prefix(event.source).chain_update([0]).chain_update(event.id))
}

fn first_64_bits(hash: Sha256) -> u64 {
    u64::from_be_bytes(*hash.finalize().first_chunk().expect("32 bytes begin with 8"))
}
