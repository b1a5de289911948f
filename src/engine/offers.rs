//! Notifications that no open session has: they are offered until a session confirms them.
//!
//! - A notification that concerns no open session when it is made waits. So does one that an ended
//!   session had and did not confirm as read.
//! - The first session in scope that opens gets all of them, and keeps them until it ends: another
//!   session that opens meanwhile does not get them, so each is delivered once.
//! - A notification that a session leaves goes at once to the most recently active open session in
//!   scope that opened after it was made. A session that was open when it was made already had it.
//!   If there is neither, it waits.
//! - A confirmation by any session ends it, even one that arrives after the session has ended.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use super::{
    Engine,
    sessions::{Session, Sessions},
    unclaimed::Evicted,
};
use crate::{
    event::{Scope, SessionId},
    exchange::InjectionId,
    injector::{Earlier, Left},
    ledger::{ConfirmedBy, LedgerEntry, Reason},
    notification::Notification,
    time::Timestamp,
};

/// Where a left notification goes.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// A session that was open when it was made has had it.
    HadIt,
    /// An open session that has not had it.
    Session(SessionId),
    /// The next session that opens.
    Later,
}

impl Engine {
    /// Gives a session every waiting notification in its scope.
    pub(super) fn claim(&mut self, id: &SessionId) {
        let Some(audience) = self.sessions.audience(id) else {
            return;
        };
        let (waiting, evicted) = self.unclaimed.claim(|scope| audience.is_concerned_by(scope));
        self.note_evicted(id, evicted);
        for waiting in waiting {
            self.take_over(id, Left::for_another(waiting.notification, waiting.earlier));
        }
    }

    /// Keeps a notification for the next session in scope.
    ///
    /// `left_by`: the session that had it before; `earlier`: whether it may have been delivered
    /// there.
    pub(super) fn keep_unclaimed(
        &mut self,
        notification: Arc<Notification>,
        left_by: Option<SessionId>,
        earlier: Earlier,
    ) {
        let waits_until = notification.created_at + self.rules.sessions.unclaimed_ttl;
        let expires_at = notification.expires_at.unwrap_or(waits_until);
        self.record(LedgerEntry::Unclaimed { notification: notification.id.clone() });
        for older in self.unclaimed.take_superseded(&notification) {
            self.record(LedgerEntry::NotificationEnded {
                notification: older.id.clone(),
                session: None,
                reason: Reason::Superseded,
            });
        }
        if let Some(evicted) = self.unclaimed.keep(notification, expires_at, left_by, earlier) {
            self.record(LedgerEntry::NotificationEnded {
                notification: evicted.id.clone(),
                session: None,
                reason: Reason::QueueOverflow,
            });
        }
    }

    /// Offers what `from` left to others, unless a session had it or it expired.
    pub(super) fn offer_left(&mut self, from: &SessionId, left: Vec<Left>, now: Timestamp) {
        // A queue holds a thousand, and a scope may concern thousands of sessions, so each scope is
        // resolved once.
        let mut others: BTreeMap<Scope, Others> = BTreeMap::new();
        for left in left {
            let notification = &left.notification;
            let is_expired = notification.expires_at.is_some_and(|at| at <= now);
            if is_expired || self.unclaimed.is_confirmed(&notification.id) {
                continue;
            }
            let others = match others.get(&notification.scope) {
                Some(others) => others,
                None => others
                    .entry(notification.scope.clone())
                    .or_insert(self.sessions.others_concerned(&notification.scope, from)),
            };
            match others.next_for(notification) {
                Next::HadIt => {}
                Next::Session(to) => drop(self.take_over(&to, left)),
                Next::Later => self.keep_unclaimed(left.notification, Some(from.clone()), left.marks.earlier),
            }
        }
    }

    /// Confirms what the closed `session` had from `injection` and left, wherever it waits now.
    pub(super) fn confirm_left(&mut self, session: &SessionId, injection: &InjectionId, by: ConfirmedBy) {
        for notification in self.unclaimed.take_delivered(session, injection) {
            let notification = notification.id.clone();
            self.record(LedgerEntry::Confirmed { notification, session: session.clone(), by });
        }
        let can_confirm = |(_, open): &(&SessionId, &Session)| open.injector.can_confirm(injection);
        let concerned = self.sessions.open.iter().filter(can_confirm).map(|(id, _)| id.clone());
        for id in concerned.collect::<Vec<SessionId>>() {
            self.with_injector(&id, |injector| injector.ack(injection, by));
        }
    }

    /// Puts a notification left by another session into this one's queue; returns whether it is new
    /// there.
    pub(super) fn take_over(&mut self, id: &SessionId, left: Left) -> bool {
        self.catch_up(id);
        let mut is_new = false;
        self.with_injector(id, |injector| is_new = injector.take_over(left).is_new);
        is_new
    }

    /// Reports evictions elsewhere in the session's next injection.
    pub(super) fn note_evicted(&mut self, id: &SessionId, evicted: Evicted) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.injector.note_evicted(evicted);
        }
    }
}

impl Sessions {
    /// The open sessions that `scope` concerns, without `from`.
    fn others_concerned(&self, scope: &Scope, from: &SessionId) -> Others {
        let concerned = self.each_concerned(scope).filter(|id| *id != from);
        let mut others = Others::default();
        for (id, session) in concerned.filter_map(|id| Some((id, self.get(id)?))) {
            let open_since = session.open_since;
            others.open_since = Some(others.open_since.map_or(open_since, |oldest| oldest.min(open_since)));
            let heard_of = (session.last_seen, Reverse(id));
            if others.last_heard_of.as_ref().is_none_or(|(at, last)| (*at, Reverse(last)) < heard_of) {
                others.last_heard_of = Some((session.last_seen, id.clone()));
            }
        }
        others
    }
}

/// Summary of the open sessions that a scope concerns, without the one that left something.
#[derive(Debug, Default)]
struct Others {
    /// When the oldest of them opened.
    open_since: Option<Timestamp>,
    /// The most recently active one (the first by id on a tie), and when.
    last_heard_of: Option<(Timestamp, SessionId)>,
}

impl Others {
    /// Where a left `notification` goes.
    fn next_for(&self, notification: &Notification) -> Next {
        if self.open_since.is_some_and(|open_since| open_since <= notification.created_at) {
            return Next::HadIt;
        }
        self.last_heard_of.as_ref().map_or(Next::Later, |(_, id)| Next::Session(id.clone()))
    }
}
