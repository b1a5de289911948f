//! Events that are journaled but not dispatched, because their chain of causes is too long or their
//! source exceeded its rate, and the one event that reports their count.
//!
//! The first throttled event of a source opens a window. At the end of the window, a
//! `source.throttled` event has the count. So a loop of a thousand events is one line for a
//! subscriber instead of a thousand.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    event::{Event, EventRef, SessionId, Severity},
    ledger::ThrottledBy,
    pipeline::{TokenBucket, rule::Rate},
    time::{Timestamp, deadlines::Deadlines},
};

/// How long throttled events of one source are counted before they are reported.
pub(super) const THROTTLE_WINDOW: Duration = Duration::from_secs(1);

/// Most sources whose rate is tracked. Beyond it the table is cleared, which resets all rates.
const SOURCES_MAX: usize = 1_024;

/// The sources with throttled events, and the remaining rate of each source.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "ThrottleState")]
pub(super) struct Throttle {
    open: BTreeMap<Window, Throttled>,
    #[serde(skip)]
    deadlines: Deadlines<Window>,
    rates: BTreeMap<Arc<str>, TokenBucket>,
}

/// The key of a count: the source, and the reason.
type Window = (Arc<str>, ThrottledBy);

#[derive(Debug, Serialize, Deserialize)]
struct Throttled {
    count: u64,
    first: Arc<str>,
    session: Option<SessionId>,
    ends_at: Timestamp,
}

impl Throttle {
    /// Takes one event from the rate of `source`; returns whether the rate allowed it.
    pub(super) fn try_take(&mut self, source: &str, rate: Rate, now: Timestamp) -> bool {
        if let Some(bucket) = self.rates.get_mut(source) {
            return bucket.try_take(now).is_ok();
        }
        if self.rates.len() >= SOURCES_MAX {
            self.rates.clear();
        }
        self.rates.entry(source.into()).or_insert(TokenBucket::new(rate, now)).try_take(now).is_ok()
    }

    /// Resets all rates, because the settings changed.
    pub(super) fn forget_rates(&mut self) {
        self.rates.clear();
    }

    /// Counts an event that is not dispatched.
    pub(super) fn count(&mut self, event: &EventRef<'_>, by: ThrottledBy, now: Timestamp) {
        let window: Window = (event.source.into(), by);
        if let Some(throttled) = self.open.get_mut(&window) {
            throttled.count += 1;
            return;
        }
        let ends_at = now + THROTTLE_WINDOW;
        self.deadlines.set(window.clone(), Some(ends_at));
        let session = event.session.map(SessionId::new);
        self.open.insert(window, Throttled { count: 1, first: event.id.into(), session, ends_at });
    }

    /// The end of the next window.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadlines.first()
    }

    /// The events that report the counts of the windows that end at or before `at`.
    pub(super) fn take_due(&mut self, at: Timestamp) -> Vec<Event> {
        let due = self.deadlines.take_due(at);
        due.into_iter()
            .filter_map(|window| self.open.remove_entry(&window))
            .map(|((source, by), throttled)| throttled_event(&source, by, throttled, at))
            .collect()
    }
}

fn throttled_event(source: &str, by: ThrottledBy, throttled: Throttled, at: Timestamp) -> Event {
    let payload = json!({ "source": source, "count": throttled.count, "reason": by.describe() });
    let id = format!("throttled-{source}-{}", throttled.first);
    Event { session: throttled.session, ..Event::own("source.throttled", id, Severity::Warning, payload, at) }
}

/// The snapshot form; the deadlines are rebuilt.
#[derive(Deserialize)]
struct ThrottleState {
    open: BTreeMap<Window, Throttled>,
    rates: BTreeMap<Arc<str>, TokenBucket>,
}

impl From<ThrottleState> for Throttle {
    fn from(ThrottleState { open, rates }: ThrottleState) -> Self {
        let mut deadlines = Deadlines::default();
        for (window, throttled) in &open {
            deadlines.set(window.clone(), Some(throttled.ends_at));
        }
        Self { open, deadlines, rates }
    }
}
