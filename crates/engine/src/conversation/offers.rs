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

use std::{cmp::Reverse, sync::Arc};

use super::{
    injector::{Earlier, Left},
    key::SessionKey,
    sessions::Sessions,
    table::Table,
};
use journal::time::Timestamp;

use crate::{
    event::{Scope, SessionId},
    exchange::InjectionId,
    ledger::{ConfirmedBy, LedgerEntry, Reason},
    notification::Notification,
    sorted::SortedMap,
};

/// The destination of a notification that a session left.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// A session that was open when it was made has had it.
    HadIt,
    /// An open session that has not had it.
    Session(SessionKey),
    /// The next session that opens.
    Later,
}

impl Sessions {
    /// Adds every waiting notification in a session's scope to its queue.
    pub(super) fn claim(&mut self, key: SessionKey) {
        let session = self.table.get(key);
        let (waiting, evicted) = self.unclaimed.claim(|scope| session.is_concerned_by(scope));
        self.note_evicted(key, evicted);
        for waiting in waiting {
            self.take_over(key, Left::for_another(waiting.notification, waiting.earlier));
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
        let waits_until = notification.created_at + self.settings.sessions.unclaimed_ttl;
        let expires_at = notification.expires_at.unwrap_or(waits_until);
        self.record(LedgerEntry::Unclaimed { notification: notification.id });
        for older in self.unclaimed.take_superseded(&notification) {
            self.end(older.id, Reason::Superseded);
        }
        if let Some(evicted) = self.unclaimed.keep(notification, expires_at, left_by, earlier) {
            self.end(evicted.id, Reason::QueueOverflow);
        }
    }

    /// Keeps a notification that concerns no open session. What an ended session asked for is for its
    /// folder.
    pub fn keep(&mut self, notification: Arc<Notification>) {
        let ended = match &notification.scope {
            Scope::Session(id) if notification.is_asked => self.table.addressed(id),
            Scope::Session(_) | Scope::Workspace(_) | Scope::All => None,
        };
        match ended.and_then(|key| self.table.get(key).asked_goes_to()) {
            Some(folder) => self.offer_asked(None, folder, Left::for_another(notification, Earlier::Not)),
            None => self.keep_unclaimed(notification, None, Earlier::Not),
        }
    }

    /// Offers what `from` left when it ended, unless a session confirmed it or it expired: to sessions
    /// in scope, and what its agent asked for to those of `folder`.
    pub(super) fn offer_all(
        &mut self,
        from: &SessionId,
        folder: Option<Arc<str>>,
        mut left: Vec<Left>,
        now: Timestamp,
    ) {
        left.retain(|Left { notification, .. }| {
            let is_expired = notification.expires_at.is_some_and(|at| at <= now);
            !is_expired && !self.unclaimed.is_confirmed(&notification.id)
        });
        let is_own = |left: &Left| matches!(left.notification.scope, Scope::Session(_));
        let (own, for_others) = left.into_iter().partition(is_own);
        self.offer_left(from, for_others);
        for left in own {
            if let Some(folder) = &folder {
                self.offer_asked(Some(from.clone()), Arc::clone(folder), left);
            }
        }
    }

    /// Moves a notification that the agent of an ended session asked for: to the most recently active
    /// session of the folder, else to the next one that opens, which may be the same one.
    fn offer_asked(&mut self, from: Option<SessionId>, folder: Arc<str>, left: Left) {
        let scope = Scope::Workspace(folder);
        let next = Others::concerned(&self.table, &scope).last_heard_of;
        let notification = Arc::new(Notification { scope, ..Notification::clone(&left.notification) });
        match next {
            Some((_, Reverse(to))) => drop(self.take_over(to, Left { notification, ..left })),
            None => self.keep_unclaimed(notification, from, left.marks.earlier),
        }
    }

    /// Offers to others the notifications for several sessions that `from` left when it ended.
    fn offer_left(&mut self, from: &SessionId, left: Vec<Left>) {
        // A queue holds a thousand, and a scope may concern thousands of sessions, so each scope is
        // resolved once.
        let mut others: SortedMap<Scope, Others> = SortedMap::new();
        for left in left {
            let notification = &left.notification;
            let others = match others.get(&notification.scope) {
                Some(others) => others,
                None => {
                    let concerned = || Others::concerned(&self.table, &notification.scope);
                    others.get_or_insert_with(notification.scope.clone(), concerned)
                }
            };
            match others.next_for(notification) {
                Next::HadIt => self.pass_wake_on(&left.notification),
                Next::Session(to) => drop(self.take_over(to, left)),
                Next::Later => self.keep_unclaimed(left.notification, Some(from.clone()), left.marks.earlier),
            }
        }
    }

    /// Confirms the notifications of `injection` that the closed `session` left, wherever they wait
    /// now.
    pub(super) fn confirm_left(&mut self, session: &SessionId, injection: &InjectionId, by: ConfirmedBy) {
        for notification in self.unclaimed.take_delivered(session, injection) {
            let notification = notification.id;
            self.record(LedgerEntry::Confirmed { notification, session: session.clone(), by });
        }
        let open = self.table.open().filter(|session| session.injector.can_confirm(injection));
        for key in open.map(|session| session.key).collect::<Vec<SessionKey>>() {
            self.with_queue(key, |injector| injector.ack(injection, by));
        }
    }

    /// Moves a notification to another session. It ends if there is none, or if that session had it
    /// before.
    pub(super) fn hand_over(&mut self, from: &SessionId, to: Option<SessionKey>, left: Left) {
        let notification = left.notification.id;
        if to.is_some_and(|to| self.take_over(to, left)) {
            return;
        }
        self.refuse(notification, from.clone(), Reason::SessionGone);
    }
}

/// Summary of the open sessions that a scope concerns.
#[derive(Debug, Default)]
struct Others {
    /// When the oldest of them opened.
    open_since: Option<Timestamp>,
    /// The most recently active one (the oldest on a tie), and when.
    last_heard_of: Option<(Timestamp, Reverse<SessionKey>)>,
}

impl Others {
    fn concerned(table: &Table, scope: &Scope) -> Self {
        let mut others = Self::default();
        for session in table.each_concerned(scope).map(|key| table.get(key)) {
            let open_since = session.open_since;
            others.open_since = Some(others.open_since.map_or(open_since, |oldest| oldest.min(open_since)));
            others.last_heard_of = others.last_heard_of.max(Some((session.last_seen, Reverse(session.key))));
        }
        others
    }

    /// The destination of the `notification` that a session left.
    fn next_for(&self, notification: &Notification) -> Next {
        if self.open_since.is_some_and(|open_since| open_since <= notification.created_at) {
            return Next::HadIt;
        }
        self.last_heard_of.map_or(Next::Later, |(_, Reverse(key))| Next::Session(key))
    }
}
