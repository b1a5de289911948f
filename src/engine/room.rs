//! Which harness may use a session's id, and which session is evicted when there are too many.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Engine,
    io::Output,
    sessions::{EVICTED_SAID_EVERY, SESSIONS_MAX, SESSIONS_PER_HARNESS_MAX, Session, Sessions},
};
use crate::{
    event::{Event, SessionId, Severity},
    exchange::Harness,
    time::Timestamp,
};

/// The type of the event that reports how many sessions were evicted.
const EVICTED_EVENT: &str = "session.limit.reached";

/// Counts of evicted sessions.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Evictions {
    /// Since the journal began.
    pub(super) count: u64,
    /// Since the last event that reported them.
    unsaid: u64,
    said_at: Option<Timestamp>,
}

impl Engine {
    /// Closes the suspended session of this id if it belongs to another harness: `harness` must not
    /// get its notifications.
    pub(super) fn give_up_of_another_harness(&mut self, id: &SessionId, harness: &Harness, now: Timestamp) {
        if self.sessions.away.get(id).is_some_and(|away| is_of_another(&away.harness, harness)) {
            self.close_session(id, now);
        }
    }

    /// Evicts a session if there are too many, in all or of `harness`, for one more.
    pub(super) fn make_room(&mut self, harness: &Harness, now: Timestamp) {
        let of_harness = |session: &Session| session.harness.name == harness.name;
        let is_full = self.sessions.open.len() >= SESSIONS_MAX;
        let has_too_many = self.sessions.open.len() >= SESSIONS_PER_HARNESS_MAX
            && self.sessions.open.iter().filter(|(_, session)| of_harness(session)).count()
                >= SESSIONS_PER_HARNESS_MAX;
        if !is_full && !has_too_many {
            return;
        }
        let closable = self.sessions.open.iter().filter(|(_, session)| !has_too_many || of_harness(session));
        let first = closable.min_by_key(|(_, session)| (session.is_of_use(now), session.last_seen));
        if let Some(id) = first.map(|(id, _)| id.clone()) {
            self.close_session(&id, now);
            self.note_evicted_session(harness, now);
        }
    }

    /// Counts an evicted session, and reports the count once an hour.
    fn note_evicted_session(&mut self, harness: &Harness, now: Timestamp) {
        let evicted = &mut self.sessions.evicted;
        evicted.count += 1;
        evicted.unsaid += 1;
        if evicted.said_at.is_some_and(|at| now.since(at) < EVICTED_SAID_EVERY) {
            return;
        }
        evicted.said_at = Some(now);
        let count = std::mem::take(&mut evicted.unsaid);
        let payload = json!({
            "closed": count,
            "harness": harness.name.as_deref(),
            "sessions_max": SESSIONS_MAX,
            "per_harness_max": SESSIONS_PER_HARNESS_MAX,
        });
        let id = format!("sessions-evicted-{}", now.as_millis());
        let event = Event::own(EVICTED_EVENT, id, Severity::Warning, payload, now);
        self.outputs.push_back(Output::Publish(event));
    }
}

impl Sessions {
    /// The other harness that has an open session of this id.
    pub(super) fn taken_by(&self, id: &SessionId, harness: &Harness) -> Option<Arc<str>> {
        let open = self.get(id).filter(|open| is_of_another(&open.harness, harness))?;
        open.harness.name.clone()
    }
}

/// Whether both name a harness, and differ.
fn is_of_another(known: &Harness, harness: &Harness) -> bool {
    matches!((&known.name, &harness.name), (Some(known), Some(name)) if known != name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::{CompiledRules, Input};

    fn open(engine: &mut Engine, id: &str, harness: &str, at: u64) -> Vec<Output> {
        let harness = Harness { name: Some(harness.into()), ..Harness::default() };
        let session = SessionId::new(id);
        engine.handle(Input::SessionOpened { session, harness }, Timestamp::from_millis(at));
        std::iter::from_fn(|| engine.poll_output()).collect()
    }

    #[test]
    fn a_harness_with_too_many_sessions_closes_its_own_that_is_of_no_use_and_says_so_once_an_hour() {
        let mut engine = Engine::new(Arc::new(CompiledRules::none()));
        open(&mut engine, "client", "claude-code", 0);
        open(&mut engine, "attached", "bot", 1);
        for number in 0..SESSIONS_PER_HARNESS_MAX - 1 {
            open(&mut engine, &format!("s{number:05}"), "bot", 2);
        }
        let attached = SessionId::new("attached");
        engine.handle(Input::SessionSeen { session: attached.clone() }, Timestamp::from_millis(2));
        let published = |outputs: Vec<Output>| {
            let published = outputs.into_iter().filter_map(|output| {
                let Output::Publish(event) = output else { return None };
                Some(event.payload.as_str().to_owned())
            });
            published.collect::<Vec<_>>()
        };
        let said = published(open(&mut engine, "new", "bot", 3));
        let expected = r#"{"closed":1,"harness":"bot","sessions_max":10000,"per_harness_max":5000}"#;
        assert_eq!(said, [expected]);
        assert!(engine.session(&SessionId::new("s00000")).is_none());
        assert!(engine.session(&attached).is_some() && engine.session(&SessionId::new("client")).is_some());
        assert!(published(open(&mut engine, "newer", "bot", 4)).is_empty());
        let hour = 60 * 60 * 1_000;
        let said = published(open(&mut engine, "newest", "bot", 3 + hour));
        assert_eq!(said, [expected.replace("\"closed\":1", "\"closed\":2")]);
        assert_eq!(engine.sessions_evicted(), 3);
    }
}
