//! Events that are journaled but not dispatched, because their chain of causes is too long or their
//! source exceeded its rate, and the one event that reports their count.
//!
//! The first throttled event of a source opens a window. At the end of the window, a
//! `source.throttled` event has the count: one for each session and folder that the events were for. So
//! a loop of a thousand events is one line for a subscriber instead of a thousand.
//!
//! A chain of causes is followed to stop loops of agents or subscribers. Only items with a cause
//! are kept, and only the newest `REMEMBERED_MAX`; an event without a cause costs nothing.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use hashbrown::HashMap;
use journal::time::{Timestamp, deadlines::Deadlines};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use crate::{
    event::{Event, EventRef, Provenance, Seq, SessionId, Severity, Trust},
    fold::{Effects, Fold},
    ledger::ThrottledBy,
    notification::Notification,
    rate::{Buckets, Rate},
    sorted::SortedMap,
};

/// Longest chain of causes that is dispatched.
const CHAIN_MAX: u32 = 8;

/// How long throttled events of one source are counted before they are reported.
const THROTTLE_WINDOW: Duration = Duration::from_secs(1);

/// Most sessions and folders of a window; what is for further ones is counted for everybody.
const SCOPES_MAX: usize = 64;

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
    /// In the order of their first events.
    counts: Vec<Counted>,
    ends_at: Timestamp,
}

/// The throttled events for a session or a folder; without both, for everybody.
#[derive(Debug, Serialize, Deserialize)]
struct Counted {
    session: Option<SessionId>,
    workspace: Option<Arc<str>>,
    count: u64,
    first: Arc<str>,
}

impl Counted {
    fn is_for(&self, session: Option<&str>, workspace: Option<&str>) -> bool {
        (self.session.as_ref().map(SessionId::as_str), self.workspace.as_deref()) == (session, workspace)
    }
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
        if !self.open.contains_key(&window) {
            let ends_at = now + THROTTLE_WINDOW;
            self.deadlines.set(window.clone(), Some(ends_at));
            self.open.insert(window.clone(), Throttled { counts: Vec::new(), ends_at });
        }
        let Some(Throttled { counts, .. }) = self.open.get_mut(&window) else { return };
        let own = (event.session, event.workspace);
        let is_known = counts.iter().any(|one| one.is_for(own.0, own.1));
        let (session, workspace) = if is_known || counts.len() < SCOPES_MAX { own } else { (None, None) };
        if let Some(one) = counts.iter_mut().find(|one| one.is_for(session, workspace)) {
            one.count += 1;
            return;
        }
        let (session, workspace) = (session.map(SessionId::new), workspace.map(Arc::from));
        counts.push(Counted { session, workspace, count: 1, first: event.id.into() });
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
        to.publish(due.flat_map(|((source, by), throttled)| {
            throttled.counts.into_iter().map(move |counted| throttled_event(&source, by, counted, now))
        }));
    }
}

fn throttled_event(source: &str, by: ThrottledBy, counted: Counted, at: Timestamp) -> Event {
    let Counted { session, workspace, count, first } = counted;
    let payload = json!({ "source": source, "count": count, "reason": by.describe() });
    let id = format!("throttled-{source}-{first}");
    Event { session, workspace, ..Event::own("source.throttled", id, Severity::Warning, payload, at) }
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

/// Most ids with a known chain; far more than the chained events during one loop.
const REMEMBERED_MAX: usize = 10_000;

/// The lengths of recent chains, by the id of their last item.
#[derive(Debug, Default)]
pub struct Lineage {
    /// Never iterated.
    lengths: HashMap<Arc<str>, u32>,
    order: VecDeque<Arc<str>>,
    /// The same for events by position, as notifications refer to them; in order.
    of_events: VecDeque<(Seq, u32)>,
}

impl Fold for Lineage {
    type Settings = ();
}

impl Lineage {
    /// The length of the chain of causes of an event: zero without a cause, one with a cause whose
    /// own chain is not known. It is stored for events that this one causes.
    pub fn extend(&mut self, seq: Seq, event: &EventRef<'_>) -> u32 {
        let Some(cause) = event.cause else { return 0 };
        let length = self.chain_length(cause) + 1;
        self.of_events.push_back((seq, length));
        if self.of_events.len() > REMEMBERED_MAX {
            self.of_events.pop_front();
        }
        self.keep(event.id, length);
        length
    }

    /// The length of the chain that ends at `id`; zero without a known cause.
    fn chain_length(&self, id: &str) -> u32 {
        self.lengths.get(id).copied().unwrap_or(0)
    }

    /// Stores a notification: its chain is the longest of its events.
    pub fn remember_notification(&mut self, notification: &Notification) {
        let length = |seq: &Seq| {
            let place = self.of_events.binary_search_by_key(seq, |(known, _)| *known).ok()?;
            self.of_events.get(place).map(|(_, length)| *length)
        };
        if let Some(length) = notification.events.iter().filter_map(length).max() {
            self.keep(notification.id.as_str(), length);
        }
    }

    fn keep(&mut self, id: &str, length: u32) {
        if self.lengths.contains_key(id) {
            return;
        }
        if self.order.len() == REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.lengths.remove(&oldest);
        }
        let id: Arc<str> = id.into();
        self.lengths.insert(id.clone(), length);
        self.order.push_back(id);
    }
}

#[derive(Serialize, Deserialize)]
struct LineageState<K> {
    /// The ids in order, with their lengths.
    kept: K,
    of_events: SortedMap<Seq, u32>,
}

impl Serialize for Lineage {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { lengths, order, of_events } = self;
        let length = |id: &Arc<str>| lengths.get(id).copied().expect("every id in the order has a length");
        let kept: Vec<(&Arc<str>, u32)> = order.iter().map(|id| (id, length(id))).collect();
        LineageState { kept, of_events: of_events.iter().copied().collect() }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Lineage {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let LineageState { kept, of_events } = <LineageState<Vec<(Arc<str>, u32)>>>::deserialize(from)?;
        let order = kept.iter().map(|(id, _)| Arc::clone(id)).collect();
        let of_events = of_events.into_iter().collect();
        Ok(Self { lengths: kept.into_iter().collect(), order, of_events })
    }
}

#[cfg(test)]
mod tests {
    use journal::time::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::event::{Event, Severity};

    #[test]
    fn counts_of_many_sessions_are_bounded() {
        let mut throttle = Throttle::default();
        for number in 0..SCOPES_MAX + 9 {
            let session = Some(SessionId::new(&format!("s{number}")));
            let own = Event::own("a.b", format!("e{number}"), Severity::Info, json!({}), Timestamp::ZERO);
            let event = Event { session, ..own };
            let by = throttle.check(&event.as_ref(), CHAIN_MAX + 1, None, Timestamp::ZERO);
            assert_eq!(by, Some(ThrottledBy::Causes));
        }
        let mut effects = Effects::default();
        throttle.handle_timeout(Timestamp::ZERO + THROTTLE_WINDOW, &mut effects);
        let published: Vec<Event> = effects
            .take()
            .into_iter()
            .filter_map(|effect| match effect {
                crate::fold::Effect::Publish(event) => Some(event),
                crate::fold::Effect::Record(_) => None,
            })
            .collect();
        assert_eq!(published.len(), SCOPES_MAX + 1);
        let last = published.last().expect("one for everybody");
        assert_eq!((&last.session, last.payload.as_str().contains("\"count\":9")), (&None, true));
    }

    #[test]
    fn a_full_table_evicts_the_oldest_chain() {
        let mut lineage = Lineage::default();
        let own = |id: String| Event::own("test.event", id, Severity::Info, json!({}), Timestamp::ZERO);
        for (index, seq) in (0..=REMEMBERED_MAX).zip(1..) {
            let event = Event { cause: Some("unknown".into()), ..own(format!("e{index}")) };
            assert_eq!(lineage.extend(Seq(seq), &event.as_ref()), 1);
        }
        assert_eq!((lineage.chain_length("e0"), lineage.chain_length("e1")), (0, 1));
        assert_eq!(lineage.of_events.len(), REMEMBERED_MAX);
    }
}
