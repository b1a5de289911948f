//! Opens sessions and evicts one when there are too many; changes their contexts; ends them.
//!
//! A session's context may be compacted, or be that of another session, as in a continuation or a
//! fork. When a session ends, its notifications are passed on, and watchers are notified.
//!
//! A session that can be resumed is suspended: notifications addressed to it are kept. Those that
//! are also for others, and were not confirmed as read, go to the next session in scope
//! ([`super::delivery`]), and what its agent asked for goes to the next one in its folder. A session
//! that is closed leaves the rest of its queue to its parent; without one, those notifications end.

use std::{sync::Arc, time::Duration};

use journal::time::Timestamp;
use serde_json::json;

use super::{
    session::{Lifecycle, Published, Session, SessionKey, Update, is_of_another},
    sessions::{SessionOutput, Sessions},
    table::Table,
};
use crate::{
    event::{Event, SessionId, Severity},
    exchange::{ContextChange, Harness, Process},
    session::{Pending, SessionChange, SessionState, Succession},
};

/// Most open sessions. A new one evicts the session that was silent for longest, preferring those
/// with an empty queue and no client attached.
pub(super) const SESSIONS_MAX: usize = 10_000;
/// Most open sessions of one harness, so that a harness that opens a session for every request
/// evicts its own. The same order applies.
const SESSIONS_PER_HARNESS_MAX: usize = SESSIONS_MAX / 2;
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
        self.emit(SessionOutput::Changed(id.clone(), change.into()));
        if met == Met::New || update == Update::Scopes {
            self.table.update_indices(key);
            self.claim(key, now);
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
        self.emit(SessionOutput::Publish(event.into()));
    }
}

/// Most sessions that one session can continue; older ones concern no session. Each is a
/// conversation that its user cleared.
const PREDECESSORS_MAX: usize = 16;
/// For how long after its end a session can be continued by the same process: a client starts the
/// next one at once, and process ids are reused.
const SAME_PROCESS_MAX: Duration = Duration::from_secs(60);

impl Sessions {
    /// Applies the change of the context that an exchange reports; `met`: whether the exchange
    /// opened the session.
    ///
    /// Shape: when a client clears a conversation, its first hook may be lost. The end of the
    /// previous session implies the same transition, so the next hook applies it. A late or
    /// repeated hook continues no other session.
    pub(super) fn apply_context(
        &mut self,
        key: SessionKey,
        context: &ContextChange,
        met: Met,
        now: Timestamp,
    ) {
        let is_unchanged = matches!(context, ContextChange::Unstated | ContextChange::Unchanged);
        if is_unchanged && met == Met::Open {
            return;
        }
        let left = self.table.left_for(key, now);
        let from = match context {
            ContextChange::Cleared { from: Some(from) } => self.table.other_root(key, from),
            ContextChange::Cleared { from: None } => left.filter(|left| {
                let may_continue = met == Met::New || self.table.get(key).predecessors.is_empty();
                may_continue && self.table.are_in_one_folder(*left, key)
            }),
            ContextChange::Unstated
            | ContextChange::Unchanged
            | ContextChange::Compacted
            | ContextChange::Resumed
            | ContextChange::Forked { .. } => left,
        };
        // Read before, because the key ends when its session is continued.
        let moved = from.map(|from| self.table.get(from).id().clone());
        match context {
            ContextChange::Unstated | ContextChange::Unchanged => {
                if let Some(from) = from.filter(|from| self.table.was_cleared(*from, key)) {
                    self.continue_as(from, key, now);
                }
            }
            ContextChange::Cleared { .. } => {
                if let Some(from) = from {
                    self.continue_as(from, key, now);
                }
            }
            ContextChange::Compacted => self.with_queue(key, |injector| injector.lose_context(now)),
            ContextChange::Resumed => self.with_queue(key, |injector| injector.resume_context(now)),
            ContextChange::Forked { from: original } => {
                let named = original.as_ref().map(|original| self.table.other_root(key, original));
                if let Some(original) = named.unwrap_or(from) {
                    self.copy(original, key);
                }
            }
        }
        if let Some(moved) = moved {
            self.notify_moved(moved, key);
        }
    }

    /// Notifies watchers of `from` that its harness's process is in another session now.
    fn notify_moved(&mut self, from: SessionId, to: SessionKey) {
        let moved_to = Some(self.table.get(to).id().clone());
        self.emit(SessionOutput::Wake(Pending { moved_to, ..Pending::nothing(from) }));
    }

    /// Makes `successor` the continuation of `from`: it gets the pending notifications of `from`,
    /// and those addressed to `from` later.
    fn continue_as(&mut self, from: SessionKey, successor: SessionKey, now: Timestamp) {
        self.catch_up(from);
        let session = self.table.remove(from);
        let id = session.id().clone();
        let Session { mut injector, mut predecessors, last_seen, .. } = session;
        let to = self.table.get(successor).id().clone();
        self.emit(SessionOutput::Succession(Succession::Continued { from: id.clone(), to }));
        let waiting = injector.close();
        let evicted = injector.evicted().clone();
        self.report(injector.take_outputs(), injector.take_unanswered());
        let change = SessionChange::Closed { last_seen, keeps_pending: false };
        self.emit(SessionOutput::Changed(id.clone(), change.into()));
        predecessors.push(id.clone());
        self.table.succeed(predecessors, successor);
        self.note_evicted(successor, evicted);
        for left in waiting {
            self.hand_over(&id, Some(successor), left);
        }
        self.claim(successor, now);
    }

    /// Copies the queue of `from`, and its record of deliveries, to `copy`.
    fn copy(&mut self, from: SessionKey, copy: SessionKey) {
        self.catch_up(from);
        let (original, fork) = self.table.pair_mut(from, copy);
        let (waiting, evicted) = (original.injector.waiting(), original.injector.evicted().clone());
        fork.injector.remember_delivered(&original.injector);
        let (from, to) = (original.id().clone(), fork.id().clone());
        self.emit(SessionOutput::Succession(Succession::Copied { from, to }));
        self.note_evicted(copy, evicted);
        for left in waiting {
            self.take_over(copy, left);
        }
    }

    /// The current session of the process that was in `id`: its successor, else the open one that
    /// the process was last active in, else `id` itself.
    pub fn current(&self, id: &SessionId) -> SessionId {
        let Some(key) = self.table.addressed(id) else { return id.clone() };
        let key = self.table.current(key);
        self.table.get(key).id().clone()
    }
}

impl Table {
    /// The session that the process of `key` was in before, for a process with one conversation at
    /// a time.
    fn left_for(&self, key: SessionKey, now: Timestamp) -> Option<SessionKey> {
        let own = Some(self.get(key)).filter(|own| own.is_of_some_process())?;
        let just_ended = self.suspended().filter(|session| now.since(session.last_seen) <= SAME_PROCESS_MAX);
        let others = self.open().chain(just_ended).filter(|session| session.key != key);
        let of_process = others.filter(|session| session.is_of_process_of(own));
        of_process.max_by_key(|session| session.last_seen).map(|session| session.key)
    }

    /// `of`, if it is known, not a subagent, and not `key` itself.
    fn other_root(&self, key: SessionKey, of: &SessionId) -> Option<SessionKey> {
        self.key(of).filter(|of| *of != key && !self.get(*of).is_subagent())
    }

    /// Whether two sessions have the same folder, or neither has one.
    fn are_in_one_folder(&self, one: SessionKey, other: SessionKey) -> bool {
        self.get(one).workspace() == self.get(other).workspace()
    }

    /// Whether `from` ended because its user cleared the conversation, and `key` has the same
    /// folder.
    fn was_cleared(&self, from: SessionKey, key: SessionKey) -> bool {
        let session = self.get(from);
        !session.is_open() && session.is_cleared && self.are_in_one_folder(from, key)
    }

    /// The open session that the process of `key` was last active in; `key` if there is none.
    pub(super) fn current(&self, key: SessionKey) -> SessionKey {
        let Some(own) = Some(self.get(key)).filter(|own| own.is_of_some_process()) else { return key };
        let of_process = self.open().filter(|session| session.is_of_process_of(own));
        of_process.max_by_key(|session| session.last_seen).map_or(key, |newest| newest.key)
    }

    /// Makes the ids of `predecessors` address `successor`, and makes it the parent of their
    /// subagents.
    fn succeed(&mut self, predecessors: Vec<SessionId>, successor: SessionKey) {
        let is_child = |session: &&Session| {
            session.harness.parent.as_ref().is_some_and(|parent| predecessors.contains(parent))
        };
        let children: Vec<SessionKey> = self.open().filter(is_child).map(|session| session.key).collect();
        let id = self.get(successor).id().clone();
        for child in children {
            self.get_mut(child).harness.parent = (child != successor).then(|| id.clone());
        }
        self.add_predecessors(successor, predecessors, PREDECESSORS_MAX);
        self.update_indices(successor);
    }
}

/// Most suspended sessions; the one that ended first is evicted. The state of each is bounded like
/// that of an open one.
const SUSPENDED_MAX: usize = 1_000;

/// Why a session was suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspension {
    /// Its harness reported it; injections in flight can still be confirmed.
    ByHarness,
    /// Its process has ended; nothing more will be confirmed.
    ProcessGone,
}

impl Sessions {
    /// Closes a session at its harness's request; the rest of its queue goes to its parent, or
    /// ends.
    pub fn end_session(&mut self, id: &SessionId, now: Timestamp) {
        if let Some(key) = self.table.key(id) {
            self.remove(key, now);
        }
        self.notify_closed(id);
    }

    /// Closes a session that was silent for too long, or to make room.
    pub(super) fn close(&mut self, key: SessionKey, now: Timestamp) {
        let was_open = self.table.get(key).is_open();
        let id = self.remove(key, now);
        if was_open {
            // Its queue is empty now.
            self.emit(SessionOutput::Wake(Pending::nothing(id)));
        }
    }

    fn remove(&mut self, key: SessionKey, now: Timestamp) -> SessionId {
        self.catch_up(key);
        let mut session = self.table.remove(key);
        let id = session.id().clone();
        // Nothing continues it any more.
        session.is_cleared = false;
        let folder = session.asked_goes_to();
        let parent = session.harness.parent.take();
        let to = parent.as_ref().and_then(|parent| self.table.key(parent));
        self.emit(SessionOutput::Succession(Succession::Ended { session: id.clone(), parent }));
        let for_others = session.injector.leave(folder.is_some());
        let left = session.injector.close();
        self.report(session.injector.take_outputs(), session.injector.take_unanswered());
        for left in left {
            self.hand_over(&id, to, left.to_another());
        }
        let change = SessionChange::Closed { last_seen: session.last_seen, keeps_pending: false };
        self.emit(SessionOutput::Changed(id.clone(), change.into()));
        self.offer_all(&id, folder, for_others, now);
        id
    }

    /// Notifies watchers of a session that it has ended, even if it was not open.
    fn notify_closed(&mut self, id: &SessionId) {
        self.emit(SessionOutput::Wake(Pending { is_closed: true, ..Pending::nothing(id.clone()) }));
    }

    /// Suspends the session whose process has ended, unless it is in another process now.
    pub fn process_gone(&mut self, id: &SessionId, process: Process, now: Timestamp) {
        let Some(key) = self.table.open_key(id) else { return };
        self.catch_up(key);
        if self.table.get(key).harness.process().is_some_and(|own| own.can_be(process)) {
            self.suspend(id, Suspension::ProcessGone, now);
        }
    }

    /// Keeps an ended session, with the notifications addressed to it, until it is resumed. Its
    /// subagents end with it. A subagent itself cannot be resumed.
    pub fn suspend(&mut self, id: &SessionId, why: Suspension, now: Timestamp) {
        let Some(key) = self.table.open_key(id) else {
            return self.notify_closed(id);
        };
        self.catch_up(key);
        if self.table.get(key).is_subagent() {
            return self.end_session(id, now);
        }
        let children = self.table.open().filter(|session| session.harness.parent.as_ref() == Some(id));
        for child in children.map(|child| child.id().clone()).collect::<Vec<SessionId>>() {
            self.end_session(&child, now);
        }
        self.notify_closed(id);
        let last_seen = self.table.get(key).last_seen;
        let change = SessionChange::Closed { last_seen, keeps_pending: true };
        self.emit(SessionOutput::Changed(id.clone(), change.into()));
        self.table.set_lifecycle(key, Lifecycle::Suspended);
        let session = self.table.get_mut(key);
        session.last_seen = now;
        let folder = session.asked_goes_to();
        let for_others = session.injector.leave(folder.is_some());
        if why == Suspension::ProcessGone {
            session.injector.end_process();
        }
        session.published = Published::default();
        session.state = SessionState::default();
        self.evict_suspended(now);
        if self.table.contains(key) {
            self.refresh(key);
        }
        self.offer_all(id, folder, for_others, now);
    }

    /// Closes the session that was suspended first, if there are too many.
    fn evict_suspended(&mut self, now: Timestamp) {
        if self.table.suspended_len() > SUSPENDED_MAX {
            let first = self.table.suspended().min_by_key(|session| session.last_seen);
            let first = first.map(|session| session.key).expect("there are too many");
            self.close(first, now);
        }
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
