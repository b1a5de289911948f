//! Events that are journaled but not dispatched, because they are too far down a chain of causes or their source is over its
//! rate, and the one event that says how many.
//!
//! The first one that a source has held back opens a window; when it ends, a `source.throttled` event gives the count. So a
//! loop of a thousand events is one line to whoever listens, not a thousand.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::json;

use super::deadlines::Deadlines;
use crate::{
    event::{Event, EventRef, Payload, SessionId, Severity},
    ledger::HeldBackBy,
    pipeline::{TokenBucket, rule::Rate},
    snapshot::{Damaged, Reader, State, Writer, state},
    time::Timestamp,
};

/// How long held-back events of one source are counted before it is said.
pub(super) const THROTTLE_WINDOW: Duration = Duration::from_secs(1);

/// Most sources whose rate is watched. Beyond it the table begins anew, with full rates.
const SOURCES_MAX: usize = 1_024;

/// The sources that have events held back at the moment, and what is left of each source's rate.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    open: BTreeMap<Window, HeldBack>,
    deadlines: Deadlines<Window>,
    rates: BTreeMap<Arc<str>, TokenBucket>,
}

/// What is counted together: the source, and why.
type Window = (Arc<str>, HeldBackBy);

#[derive(Debug)]
struct HeldBack {
    count: u64,
    first: Arc<str>,
    session: Option<SessionId>,
}

impl Throttle {
    /// Takes one event of what `rate` allows `source`; whether that was left.
    pub(super) fn try_take(&mut self, source: &str, rate: Rate, now: Timestamp) -> bool {
        if let Some(bucket) = self.rates.get_mut(source) {
            return bucket.try_take(now).is_ok();
        }
        if self.rates.len() >= SOURCES_MAX {
            self.rates.clear();
        }
        self.rates.entry(source.into()).or_insert(TokenBucket::new(rate, now)).try_take(now).is_ok()
    }

    /// Forgets what was taken, because the rates are others from here on.
    pub(super) fn forget_rates(&mut self) {
        self.rates.clear();
    }

    /// Counts an event that is not dispatched.
    pub(super) fn hold_back(&mut self, event: &EventRef<'_>, by: HeldBackBy, now: Timestamp) {
        let window: Window = (event.source.into(), by);
        if let Some(held_back) = self.open.get_mut(&window) {
            held_back.count += 1;
            return;
        }
        self.deadlines.set(window.clone(), Some(now + THROTTLE_WINDOW));
        let session = event.session.map(SessionId::new);
        self.open.insert(window, HeldBack { count: 1, first: event.id.into(), session });
    }

    /// When the next window ends.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadlines.first()
    }

    /// The events that say how many were held back in the windows that end at or before `at`.
    pub(super) fn take_due(&mut self, at: Timestamp) -> Vec<Event> {
        let due = self.deadlines.take_due(at);
        due.into_iter()
            .filter_map(|window| self.open.remove_entry(&window))
            .map(|((source, by), held_back)| throttled_event(&source, by, held_back, at))
            .collect()
    }
}

fn throttled_event(source: &str, by: HeldBackBy, held_back: HeldBack, at: Timestamp) -> Event {
    Event {
        id: format!("throttled-{source}-{}", held_back.first).into(),
        event_type: "source.throttled".parse().expect("a valid literal"),
        source: super::dispatch::OWN_SOURCE.into(),
        severity: Severity::Warning,
        timestamp: at,
        payload: Payload::from(json!({
            "source": source,
            "count": held_back.count,
            "reason": by.describe(),
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
        let Self { open, deadlines, rates } = self;
        to.length(open.len());
        for (window, held_back) in open {
            window.write(to);
            held_back.write(to);
            deadlines.at(window).write(to);
        }
        rates.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let mut throttle = Self::default();
        for (window, (held_back, at)) in <Vec<(Window, (HeldBack, Option<Timestamp>))>>::read(from)? {
            throttle.deadlines.set(window.clone(), at);
            throttle.open.insert(window, held_back);
        }
        throttle.rates = State::read(from)?;
        Ok(throttle)
    }
}
