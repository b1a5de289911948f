//! Events that are journaled but not dispatched, and the one event that says how many.
//!
//! The first one that a source has held back opens a window; when it ends, a `source.throttled` event gives the count. So a
//! loop of a thousand events is one line to whoever listens, not a thousand.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::json;

use super::deadlines::Deadlines;
use crate::{
    event::{Event, EventRef, Payload, SessionId, Severity},
    snapshot::{Damaged, Reader, State, Writer, state},
    time::Timestamp,
};

/// How long held-back events of one source are counted before it is said.
pub(super) const THROTTLE_WINDOW: Duration = Duration::from_secs(1);

/// The sources that have events held back at the moment.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    open: BTreeMap<Arc<str>, HeldBack>,
    deadlines: Deadlines<Arc<str>>,
}

#[derive(Debug)]
struct HeldBack {
    count: u64,
    first: Arc<str>,
    session: Option<SessionId>,
}

impl Throttle {
    /// Counts an event that is not dispatched.
    pub(super) fn hold_back(&mut self, event: &EventRef<'_>, now: Timestamp) {
        if let Some(held_back) = self.open.get_mut(event.source) {
            held_back.count += 1;
            return;
        }
        let source: Arc<str> = event.source.into();
        self.deadlines.set(source.clone(), Some(now + THROTTLE_WINDOW));
        let session = event.session.map(SessionId::new);
        self.open.insert(source, HeldBack { count: 1, first: event.id.into(), session });
    }

    /// When the next window ends.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadlines.first()
    }

    /// The events that say how many were held back in the windows that end at or before `at`.
    pub(super) fn take_due(&mut self, at: Timestamp) -> Vec<Event> {
        let due = self.deadlines.take_due(at);
        due.into_iter()
            .filter_map(|source| self.open.remove_entry(&source))
            .map(|(source, held_back)| throttled_event(&source, held_back, at))
            .collect()
    }
}

fn throttled_event(source: &str, held_back: HeldBack, at: Timestamp) -> Event {
    Event {
        id: format!("throttled-{source}-{}", held_back.first).into(),
        event_type: "source.throttled".parse().expect("a valid literal"),
        source: super::dispatch::OWN_SOURCE.into(),
        severity: Severity::Warning,
        timestamp: at,
        payload: Payload::from(json!({
            "source": source,
            "count": held_back.count,
            "reason": "chain of causes too long",
        })),
        dedupe_key: None,
        session: held_back.session,
        workspace: None,
        cause: None,
    }
}

state!(HeldBack { count, first, session });

impl State for Throttle {
    fn write(&self, to: &mut Writer) {
        let Self { open, deadlines } = self;
        to.length(open.len());
        for (source, held_back) in open {
            source.write(to);
            held_back.write(to);
            deadlines.at(source).write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let mut throttle = Self::default();
        for (source, (held_back, at)) in <Vec<(Arc<str>, (HeldBack, Option<Timestamp>))>>::read(from)? {
            throttle.deadlines.set(source.clone(), at);
            throttle.open.insert(source, held_back);
        }
        Ok(throttle)
    }
}
