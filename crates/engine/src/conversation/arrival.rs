//! Opens sessions, and evicts one when there are too many.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::{
    key::SessionKey,
    session::{Lifecycle, Session, Update, is_of_another},
    sessions::{SessionOutput, Sessions},
};
use journal::time::Timestamp;

use crate::{
    event::{Event, SessionId, Severity},
    exchange::Harness,
    session::SessionChange,
};

/// Most open sessions. A new one evicts the session that was silent for longest, preferring those
/// with an empty queue and no client attached.
pub(super) const SESSIONS_MAX: usize = 10_000;
/// Most open sessions of one harness, so that a harness that opens a session for every request
/// evicts its own. The same order applies.
pub(super) const SESSIONS_PER_HARNESS_MAX: usize = SESSIONS_MAX / 2;
/// Least time between two events that report how many sessions were evicted.
const EVICTIONS_REPORTED_EVERY: Duration = Duration::from_secs(60 * 60);
/// The type of the event that reports how many sessions were evicted.
const EVICTED_EVENT: &str = "session.limit.reached";

/// Whether an input opened its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// The session was open.
    Open,
    /// The session opened with the input.
    New,
}

impl Sessions {
    /// The other harness that has an open session of this id.
    pub fn taken_by(&self, id: &SessionId, harness: &Harness) -> Option<Arc<str>> {
        self.table.taken_by(id, harness)
    }

    /// Opens a session at its harness's request, unless another harness has an open one of its id.
    pub fn open_session(&mut self, id: &SessionId, harness: &Harness, now: Timestamp) {
        if self.taken_by(id, harness).is_none() {
            let (key, _) = self.upsert(id, harness, now);
            self.refresh(key);
        }
    }

    /// Opens the session if needed, updates its properties from `harness`, and queues the
    /// notifications that wait for it.
    ///
    /// Such notifications concerned no open session when they were made, so only a session that is
    /// new, or has a new folder, can take some; others are not checked. The caller has to refresh
    /// the session afterwards, because it was active.
    pub(super) fn upsert(&mut self, id: &SessionId, harness: &Harness, now: Timestamp) -> (SessionKey, Met) {
        let (key, met) = match self.table.open_key(id) {
            Some(key) => {
                self.catch_up(key);
                (key, Met::Open)
            }
            None => (self.open(id, harness, now), Met::New),
        };
        let session = self.table.get_mut(key);
        session.last_seen = now;
        let update = session.update_harness(harness);
        let known = || session.harness.clone();
        let change = match (met, update) {
            (Met::New, _) => Some(SessionChange::Opened(known())),
            (Met::Open, Update::Properties | Update::Scopes) => Some(SessionChange::Updated(known())),
            (Met::Open, Update::Nothing) => None,
        };
        let Some(change) = change else { return (key, met) };
        self.emit(SessionOutput::Changed(id.clone(), change));
        if met == Met::New || update == Update::Scopes {
            self.table.update_indices(key);
            self.claim(key);
        }
        self.refresh(key);
        (key, met)
    }

    /// Opens a session that is new or was suspended.
    fn open(&mut self, id: &SessionId, harness: &Harness, now: Timestamp) -> SessionKey {
        self.close_that_of_another_harness(id, harness, now);
        self.make_room(harness, now);
        self.table.release_alias(id);
        let key = match self.table.key(id) {
            Some(key) => key,
            None => {
                let own_id = self.table.claim_full_name(id, harness);
                let session = Session::new(id.clone(), self.settings.sessions.queue_len_max, now);
                self.table.insert(Session { own_id, ..session })
            }
        };
        self.table.set_lifecycle(key, Lifecycle::Open);
        let is_opening = self.table.take_announced(id);
        let taken = self.fanout.head();
        let session = self.table.get_mut(key);
        (session.is_opening, session.is_cleared) = (is_opening, false);
        (session.open_since, session.taken) = (now, taken);
        key
    }

    /// Closes the suspended session of this id if it belongs to another harness: `harness` must not
    /// get its notifications.
    fn close_that_of_another_harness(&mut self, id: &SessionId, harness: &Harness, now: Timestamp) {
        if let Some(key) = self.table.key(id)
            && is_of_another(&self.table.get(key).harness, harness)
        {
            self.close(key, now);
        }
    }

    /// Evicts a session if there is no room for one more, in all or of `harness`.
    fn make_room(&mut self, harness: &Harness, now: Timestamp) {
        let of_harness = |session: &&Session| session.harness.name == harness.name;
        let count = self.table.open_len();
        let has_too_many = count >= SESSIONS_PER_HARNESS_MAX
            && self.table.open().filter(of_harness).count() >= SESSIONS_PER_HARNESS_MAX;
        if count < SESSIONS_MAX && !has_too_many {
            return;
        }
        let closable = self.table.open().filter(|session| !has_too_many || of_harness(session));
        let first = closable.min_by_key(|session| (session.is_of_use(now), session.last_seen));
        if let Some(key) = first.map(|session| session.key) {
            self.close(key, now);
            self.report_eviction(harness, now);
        }
    }

    /// Counts an evicted session, and reports the count once an hour.
    fn report_eviction(&mut self, harness: &Harness, now: Timestamp) {
        let evictions = &mut self.table.evictions;
        evictions.count += 1;
        evictions.unreported += 1;
        if evictions.reported_at.is_some_and(|at| now.since(at) < EVICTIONS_REPORTED_EVERY) {
            return;
        }
        evictions.reported_at = Some(now);
        let payload = json!({
            "closed": std::mem::take(&mut evictions.unreported),
            "harness": harness.name.as_deref(),
            "sessions_max": SESSIONS_MAX,
            "per_harness_max": SESSIONS_PER_HARNESS_MAX,
        });
        let id = format!("sessions-evicted-{}", now.as_millis());
        let event = Event::own(EVICTED_EVENT, id, Severity::Warning, payload, now);
        self.emit(SessionOutput::Publish(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::tests::sessions;

    fn open(all: &mut Sessions, id: &str, harness: &str, at: u64) -> Vec<SessionOutput> {
        let harness = Harness { name: Some(harness.into()), ..Harness::default() };
        all.open_session(&SessionId::new(id), &harness, Timestamp::from_millis(at));
        std::iter::from_fn(|| all.poll_output()).collect()
    }

    #[test]
    fn harness_over_its_limit_evicts_its_idle_session() {
        let mut all = sessions();
        open(&mut all, "client", "claude-code", 0);
        open(&mut all, "attached", "bot", 1);
        for number in 0..SESSIONS_PER_HARNESS_MAX - 1 {
            open(&mut all, &format!("s{number:05}"), "bot", 2);
        }
        let attached = SessionId::new("attached");
        all.note_attached(&attached, Timestamp::from_millis(2));
        let published = |outputs: Vec<SessionOutput>| {
            let published = outputs.into_iter().filter_map(|output| {
                let SessionOutput::Publish(event) = output else { return None };
                Some(event.payload.as_str().to_owned())
            });
            published.collect::<Vec<_>>()
        };
        let said = published(open(&mut all, "new", "bot", 3));
        let expected = r#"{"closed":1,"harness":"bot","sessions_max":10000,"per_harness_max":5000}"#;
        assert_eq!(said, [expected]);
        assert!(all.view(&SessionId::new("s00000")).is_none());
        assert!(all.view(&attached).is_some() && all.view(&SessionId::new("client")).is_some());
        assert!(published(open(&mut all, "newer", "bot", 4)).is_empty());
        let hour = 60 * 60 * 1_000;
        let said = published(open(&mut all, "newest", "bot", 3 + hour));
        assert_eq!(said, [expected.replace("\"closed\":1", "\"closed\":2")]);
        assert_eq!(all.evicted(), 3);
    }
}
