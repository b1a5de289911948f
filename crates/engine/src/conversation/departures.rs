//! Ends sessions: passes their notifications on, and notifies watchers.
//!
//! A session that can be resumed is suspended: notifications addressed to it are kept. Those that
//! are also for others, and were not confirmed as read, go to the next session in scope
//! ([`super::offers`]), and what its agent asked for goes to the next one in its folder. A session
//! that is closed leaves the rest of its queue to its parent; without one, those notifications end.

use super::{
    key::SessionKey,
    session::{Lifecycle, Published},
    sessions::{SessionOutput, Sessions},
};
use journal::time::Timestamp;

use crate::{
    event::SessionId,
    exchange::Process,
    session::{Pending, SessionChange, SessionState, Succession},
};

/// Most suspended sessions; the one that ended first is evicted. The state of each is bounded like
/// that of an open one.
pub(super) const SUSPENDED_MAX: usize = 1_000;

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
        for entry in session.injector.take_outputs() {
            self.record(entry);
        }
        for left in left {
            self.hand_over(&id, to, left.to_another());
        }
        let change = SessionChange::Closed { last_seen: session.last_seen, keeps_pending: false };
        self.emit(SessionOutput::Changed(id.clone(), change));
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
        self.emit(SessionOutput::Changed(id.clone(), change));
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
