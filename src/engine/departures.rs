//! Ended sessions: what happens to their notifications, and who is notified.
//!
//! A session that can be resumed is suspended: notifications addressed to it are kept. Those that
//! are also for others, and were not confirmed as read, go to the next session in scope
//! ([`super::offers`]). A session that is closed for good leaves the rest of its queue to its
//! parent; what has no taker ends.

use super::{
    Engine,
    io::{Output, Pending, SessionChange},
    sessions::{Session, Told},
};
use crate::{
    event::SessionId,
    exchange::Process,
    injector::Left,
    ledger::{LedgerEntry, Reason},
    session::SessionState,
    time::Timestamp,
};

/// Most suspended sessions; the one that ended first is evicted. The state of each is bounded like
/// that of an open one.
pub(super) const AWAY_MAX: usize = 1_000;

/// Why a session was suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suspension {
    /// Its harness reported it; injections in flight can still be confirmed.
    ByHarness,
    /// Its process has ended; nothing more will be confirmed.
    ProcessGone,
}

impl Engine {
    /// Closes a session at its harness's request; the rest of its queue goes to its parent, or
    /// ends.
    pub(super) fn end_session(&mut self, id: &SessionId, now: Timestamp) {
        self.remove_session(id, now);
        self.tell_closed(id);
    }

    /// Closes a session for lack of a sign of life, or of room.
    pub(super) fn close_session(&mut self, id: &SessionId, now: Timestamp) {
        let was_open = self.sessions.get(id).is_some();
        self.remove_session(id, now);
        if was_open {
            self.tell_gone(id);
        }
    }

    fn remove_session(&mut self, id: &SessionId, now: Timestamp) {
        self.catch_up(id);
        let Some((mut session, _)) = self.sessions.take(id) else {
            return;
        };
        self.sessions.namesakes.remove(session.own_id.as_ref(), id);
        self.watches.end_of(id);
        let not_shown = self.for_user.end_of(id);
        self.record_all(not_shown);
        self.questions.end_of(id);
        self.ci.end_of(id, session.harness.parent.as_ref());
        for former in &session.former {
            self.sessions.aliases.remove(former);
        }
        let for_others = session.injector.leave();
        let left = session.injector.close();
        while let Some(entry) = session.injector.poll_output() {
            self.record(entry);
        }
        let parent = session.harness.parent.filter(|parent| self.sessions.known(parent).is_some());
        for left in left {
            self.hand_over(id, parent.as_ref(), left.to_another());
        }
        let change = SessionChange::Closed { last_seen: session.last_seen, keeps_pending: false };
        self.outputs.push_back(Output::Session(id.clone(), change));
        self.offer_left(id, for_others, now);
    }

    /// Notifies watchers of a session that its queue is empty.
    pub(super) fn tell_gone(&mut self, id: &SessionId) {
        self.outputs.push_back(Output::Wake(Pending::nothing(id.clone())));
    }

    /// Notifies watchers of a session that it has ended, even if it was not open.
    pub(super) fn tell_closed(&mut self, id: &SessionId) {
        self.outputs.push_back(Output::Wake(Pending { is_closed: true, ..Pending::nothing(id.clone()) }));
    }

    /// Suspends the session whose process has ended, unless it is in another process by now.
    pub(super) fn process_gone(&mut self, id: &SessionId, process: Process, now: Timestamp) {
        let is_its_own = |session: &Session| session.harness.process().is_some_and(|own| own.can_be(process));
        if self.sessions.get(id).is_some_and(is_its_own) {
            self.suspend(id, Suspension::ProcessGone, now);
        }
    }

    /// Keeps an ended session, with the notifications addressed to it, until it is resumed. Its
    /// subagents end with it. A subagent itself cannot be resumed.
    pub(super) fn suspend(&mut self, id: &SessionId, why: Suspension, now: Timestamp) {
        self.catch_up(id);
        let Some(session) = self.sessions.get(id) else {
            return self.tell_closed(id);
        };
        if session.harness.parent.is_some() {
            return self.end_session(id, now);
        }
        let is_child = |session: &Session| session.harness.parent.as_ref() == Some(id);
        let children = self.sessions.open.iter().filter(|(_, session)| is_child(session));
        let children: Vec<SessionId> = children.map(|(child, _)| child.clone()).collect();
        for child in children {
            self.end_session(&child, now);
        }
        let Some((mut session, _)) = self.sessions.take(id) else {
            return;
        };
        self.tell_closed(id);
        let change = SessionChange::Closed { last_seen: session.last_seen, keeps_pending: true };
        self.outputs.push_back(Output::Session(id.clone(), change));
        session.last_seen = now;
        let for_others = session.injector.leave();
        if why == Suspension::ProcessGone {
            session.injector.end_leases();
        }
        session.told = Told::default();
        session.state = SessionState::default();
        self.sessions.away.insert(id.clone(), session);
        if self.sessions.away.len() > AWAY_MAX {
            let first = self.sessions.away.iter().min_by_key(|(_, session)| session.last_seen);
            if let Some(first) = first.map(|(id, _)| id.clone()) {
                self.close_session(&first, now);
            }
        }
        self.settle_session(id);
        self.offer_left(id, for_others, now);
    }

    /// Gives a notification to another session. It ends if there is none, or if that one had it
    /// already.
    pub(super) fn hand_over(&mut self, from: &SessionId, to: Option<&SessionId>, left: Left) {
        let notification = left.notification.id.clone();
        if to.is_some_and(|to| self.take_over(to, left)) {
            return;
        }
        self.record(LedgerEntry::NotificationEnded {
            notification,
            session: Some(from.clone()),
            reason: Reason::SessionGone,
        });
    }
}
