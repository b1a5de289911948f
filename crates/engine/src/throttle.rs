//! Events that are journaled but not dispatched, because their chain of causes is too long or their
//! source exceeded its rate, and the one event that reports their count.
//!
//! The first throttled event of a source opens a window. At the end of the window, a
//! `source.throttled` event has the count. So a loop of a thousand events is one line for a
//! subscriber instead of a thousand.

mod lineage;

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::json;

pub use self::lineage::Lineage;
use journal::time::{Timestamp, deadlines::Deadlines};

use crate::{
    event::{Event, EventRef, Provenance, SessionId, Severity, Trust},
    fold::{Effects, Fold},
    ledger::ThrottledBy,
    rate::{Buckets, Rate},
    sorted::SortedMap,
};

/// Longest chain of causes that is dispatched.
const CHAIN_MAX: u32 = 8;

/// How long throttled events of one source are counted before they are reported.
const THROTTLE_WINDOW: Duration = Duration::from_secs(1);

/// Limits of the events of one source that are dispatched per period; further events are only
/// journaled and counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRates {
    /// For any source; `None` for no limit.
    pub rate: Option<Rate>,
    /// For an untrusted source of remote events, instead of `rate`.
    pub remote_rate: Option<Rate>,
}

impl SourceRates {
    /// The rate of the source of `event`; the engine's own events have no limit.
    pub fn rate_of(&self, event: &EventRef<'_>, trust: Trust) -> Option<Rate> {
        let is_from_elsewhere = event.provenance == Provenance::Remote && !trust.is_trusted();
        let rate = if is_from_elsewhere { self.remote_rate } else { self.rate };
        rate.filter(|_| !event.provenance.is_of_daemon())
    }
}

/// The sources with throttled events, and the remaining rate of each source.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "ThrottleState")]
pub struct Throttle {
    open: SortedMap<Window, Throttled>,
    #[serde(skip)]
    deadlines: Deadlines<Window>,
    sources: Buckets<String>,
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
    /// The reason why an event is not dispatched: its chain of causes has `chain` links, or its
    /// source exceeds `rate`. Counts the event if there is one.
    pub fn check(
        &mut self,
        event: &EventRef<'_>,
        chain: u32,
        rate: Option<Rate>,
        now: Timestamp,
    ) -> Option<ThrottledBy> {
        let by = match rate {
            _ if chain > CHAIN_MAX => ThrottledBy::Causes,
            Some(rate) if self.sources.try_take(rate, event.source, now).is_err() => ThrottledBy::SourceRate,
            Some(_) | None => return None,
        };
        self.count(event, by, now);
        Some(by)
    }

    /// Counts an event that is not dispatched.
    fn count(&mut self, event: &EventRef<'_>, by: ThrottledBy, now: Timestamp) {
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
}

impl Fold for Throttle {
    type Settings = SourceRates;

    /// Resets all rates when they changed.
    fn apply(&mut self, settings: &SourceRates, before: Option<&SourceRates>) {
        if before.is_some_and(|before| before != settings) {
            self.sources.clear();
        }
    }

    /// The end of the next window.
    fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadlines.first()
    }

    /// Reports the counts of the windows that have ended.
    fn handle_timeout(&mut self, now: Timestamp, to: &mut Effects) {
        let due = self.deadlines.take_due(now).into_iter();
        let due = due.filter_map(|window| self.open.remove_entry(&window));
        to.publish(due.map(|((source, by), throttled)| throttled_event(&source, by, throttled, now)));
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
    open: SortedMap<Window, Throttled>,
    sources: Buckets<String>,
}

impl From<ThrottleState> for Throttle {
    fn from(ThrottleState { open, sources }: ThrottleState) -> Self {
        let mut deadlines = Deadlines::default();
        for (window, throttled) in &open {
            deadlines.set(window.clone(), Some(throttled.ends_at));
        }
        Self { open, deadlines, sources }
    }
}
