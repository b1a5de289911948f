//! Adds notifications to the queues, applies decisions about pending ones, and offers those that no
//! open session has until a session confirms them.
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

use journal::time::Timestamp;

use super::{
    fanout::DIRECT_MAX,
    injector::{Earlier, Injector, Left},
    session::SessionKey,
    sessions::Sessions,
    table::Table,
};
use crate::{
    event::{Scope, SessionId},
    exchange::InjectionId,
    ledger::{ConfirmedBy, LedgerEntry, Reason},
    notification::{InjectionPoint, Notification, NotificationId, Resolution, Unseen},
    session::SessionState,
    sorted::SortedMap,
};

/// The open sessions that a notification concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Concerned {
    /// None: it waits for the next session.
    Nobody,
    /// These, oldest first.
    Few(Vec<SessionKey>),
    /// So many that they take it in slices.
    Many,
}

impl Sessions {
    /// The open sessions that `scope` concerns.
    pub fn concerned(&self, scope: &Scope) -> Concerned {
        match self.table.concerned(scope, DIRECT_MAX) {
            None => Concerned::Many,
            Some(keys) if keys.is_empty() => Concerned::Nobody,
            Some(keys) => Concerned::Few(keys),
        }
    }

    /// All open sessions that `scope` concerns, in id order.
    pub fn all_concerned(&self, scope: &Scope) -> Vec<SessionId> {
        let keys = self.table.concerned(scope, usize::MAX).expect("there is no bound");
        let mut ids: Vec<SessionId> = keys.into_iter().map(|key| self.id(key).clone()).collect();
        ids.sort_unstable();
        ids
    }

    /// The folder of a session.
    pub fn workspace(&self, session: SessionKey) -> Option<&str> {
        self.table.get(session).workspace()
    }

    /// The id of a session.
    pub fn id(&self, session: SessionKey) -> &SessionId {
        self.table.get(session).id()
    }

    /// Puts a notification into the queue of a session, unless it has or recently had it. `woken`:
    /// the session that is woken for it.
    pub fn queue(&mut self, session: SessionKey, notification: Arc<Notification>, woken: Option<SessionKey>) {
        self.catch_up(session);
        let is_quiet = self.table.get(session).leaves_wake_to(woken);
        let holds = self.standing.holds(&notification);
        self.with_queue(session, |injector| {
            let id = notification.id;
            if injector.push_held(notification, holds) && is_quiet {
                injector.set_quiet(&id, true);
            }
        });
    }

    /// Adds a notification for the sessions that it concerns; they take it in slices.
    pub fn broadcast(&mut self, notification: Arc<Notification>) {
        let woken = self.woken_for(&notification, self.table.each_concerned(&notification.scope));
        self.fanout.push(notification, woken);
    }

    /// Lets a session take its pending broadcasts, if it is open.
    pub fn catch_up_session(&mut self, id: &SessionId) {
        if !self.fanout.is_empty()
            && let Some(key) = self.table.open_key(id)
        {
            self.catch_up(key);
        }
    }

    /// Lets every session take its pending broadcasts.
    pub fn catch_up_all(&mut self) {
        while !self.fanout.is_empty() {
            self.advance_sweep();
        }
    }

    /// Lets sessions take broadcasts: `budget` of them, and more when the log is too long. Call it
    /// after each input.
    pub fn advance_fanout(&mut self, mut budget: usize, now: Timestamp) {
        self.fanout.note_handled(now);
        if self.fanout.is_over_full() {
            budget += self.table.roots_len();
        }
        while budget > 0 && !self.fanout.is_empty() {
            budget = budget.saturating_sub(self.advance_sweep().max(1));
        }
    }

    /// Lets the next session take its pending broadcasts; returns how many it checked.
    fn advance_sweep(&mut self) -> usize {
        let next = self.table.next_root(self.fanout.last_visited());
        self.fanout.advance_to(next);
        next.map_or(0, |key| self.catch_up(key))
    }

    /// Whether the session has broadcasts pending, which its queue does not show yet.
    pub fn is_behind(&self, id: &SessionId) -> bool {
        self.table.open_key(id).is_some_and(|key| self.table.get(key).taken < self.fanout.head())
    }

    /// An upper bound of the broadcasts that sessions have not taken, summed over all sessions.
    pub fn untaken(&self) -> u64 {
        (self.fanout.len() as u64).saturating_mul(self.table.roots_len() as u64)
    }

    /// Ends the pending notifications of a session that `is_wanted` selects.
    pub fn end_pending(
        &mut self,
        session: &SessionId,
        is_wanted: impl Fn(&Notification) -> bool,
        reason: &Reason,
    ) {
        if let Some(key) = self.table.key(session) {
            self.with_queue(key, |injector| injector.end_all_that(is_wanted, reason));
        }
    }

    /// Ends the notifications without a condition after `resolution`: broadcasts, unclaimed ones,
    /// and those pending in the sessions concerned. Suspended sessions are included, because they
    /// remember delivered conditions.
    pub fn withdraw(&mut self, resolution: &Resolution) {
        let (mut ended, is_for_others) = self.fanout.resolve(resolution);
        self.standing.retained.resolve(resolution);
        self.standing.unresolved.resolve(resolution);
        self.standing.dismissed.resolve(resolution);
        self.standing.for_user.resolve(resolution);
        self.end_for_user(&Reason::Withdrawn, Notification::is_resolved);
        ended.extend(self.unclaimed.take_resolved(resolution).iter().map(|resolved| resolved.id));
        for notification in ended {
            self.end(notification, Reason::Withdrawn);
        }
        // What is for everybody is not for a subagent, but it resolves what a subagent has.
        let concerned = match resolution.scope {
            Scope::All => self.table.keys(),
            Scope::Session(_) | Scope::Workspace(_) | Scope::Part(_) => {
                self.table.known_concerned(&resolution.scope)
            }
        };
        for key in concerned {
            if is_for_others {
                self.catch_up(key);
            }
            if self.table.get_mut(key).injector.resolve(resolution) {
                self.refresh(key);
            }
        }
    }

    /// Confirms an injection, also one of an ended session whose notifications others have now.
    pub fn ack(&mut self, session: &SessionId, injection: &InjectionId, by: ConfirmedBy, now: Timestamp) {
        if let Some(key) = self.table.key(session) {
            self.catch_up(key);
            self.with_queue(key, |injector| injector.ack(injection, by, now));
        }
        if !self.is_open(session) {
            self.confirm_left(session, injection, by, now);
        }
    }

    /// Takes back an injection whose answer was not sent.
    pub fn take_back_undelivered(&mut self, session: &SessionId, injection: &InjectionId, now: Timestamp) {
        self.unclaimed.note_undelivered(session, injection);
        let Some(key) = self.table.key(session) else { return };
        self.catch_up(key);
        let known = self.table.get_mut(key);
        if known.injector.undelivered(injection, now) == Some(InjectionPoint::TurnStart) {
            // The turn that a wake should have started has not started, as far as is known.
            known.state = SessionState::Idle;
        }
        self.refresh(key);
    }

    /// Ends the unclaimed notifications that expire at or before `at`.
    pub fn expire_unclaimed(&mut self, at: Timestamp) {
        for notification in self.unclaimed.take_expired(at) {
            self.end(notification.id, Reason::Expired);
        }
    }

    /// Ends due leases and notifications in the queues whose deadline is at or before `at`, and
    /// closes the sessions that were silent for too long.
    pub fn expire_sessions(&mut self, at: Timestamp) {
        for key in self.table.take_due(at) {
            if !self.table.contains(key) {
                continue;
            }
            self.catch_up(key);
            self.with_queue(key, |injector| injector.handle_timeout(at));
            if self.table.get(key).last_seen + self.settings.sessions.idle_close <= at {
                self.close(key, at);
            }
        }
    }

    /// Evicts down to the bound for all queues together; each queue chooses as when it is full.
    pub fn relieve(&mut self) {
        let total_max = usize::try_from(self.settings.sessions.pending_max).unwrap_or(usize::MAX);
        while let Some(key) = self.table.over(total_max) {
            self.with_queue(key, Injector::evict_least);
        }
    }

    /// Records that a notification is not queued in a session.
    pub fn refuse(&mut self, notification: NotificationId, session: SessionId, reason: Reason) {
        self.record(LedgerEntry::NotificationEnded { notification, session: Some(session), reason });
    }
}

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
    pub(super) fn claim(&mut self, key: SessionKey, now: Timestamp) {
        let session = self.table.get(key);
        let (waiting, evicted) =
            self.unclaimed.claim(|scope| session.is_concerned_by(scope), |id| session.injector.has_had(id));
        self.note_evicted(key, evicted);
        for waiting in waiting {
            self.take_over(key, Left::for_another(waiting.notification, waiting.earlier));
        }
        self.take_retained(key, now);
    }

    /// Adds the retained states to the queue of a session that opens, unless it is a subagent's.
    fn take_retained(&mut self, key: SessionKey, now: Timestamp) {
        let session = self.table.get(key);
        if session.is_subagent() {
            return;
        }
        let retained = self.standing.retained.for_session(&|scope| session.is_concerned_by(scope), now);
        for notification in retained.into_iter().filter(|one| !one.is_in_region_only()) {
            let holds = self.standing.holds(&notification);
            self.with_queue(key, |injector| injector.push_held(notification, holds));
        }
    }

    /// Retains a notification for the sessions that open later, if its subscriber wants that.
    pub fn retain(&mut self, notification: &Arc<Notification>) {
        self.standing.retained.keep(notification);
    }

    /// Ends what is out of date in the sessions of a report that nobody gets.
    pub fn outdate(&mut self, newer: &Unseen) {
        self.standing.retained.outdate(newer);
        if newer.state.is_none() {
            return;
        }
        let Self { table, standing, .. } = self;
        standing.unresolved.outdate(newer, &|older| table.covers(&newer.scope, older));
        self.end_for_user(&Reason::Superseded, |own| newer.outdates(own));
        for older in self.unclaimed.take_outdated(&newer.scope, &newer.subscriber, newer.state.as_slice()) {
            self.end(older.id, Reason::Superseded);
        }
        let is_in_log = self.fanout.any(|own| newer.outdates(own));
        for key in self.table.known_concerned(&newer.scope) {
            if is_in_log {
                self.catch_up(key);
            }
            if self.table.get_mut(key).injector.outdate(newer) {
                self.refresh(key);
            }
        }
    }

    /// Keeps a notification for the next session in scope.
    ///
    /// `left_by`: the session that had it before; `earlier`: whether it may have been delivered
    /// there.
    fn keep_unclaimed(
        &mut self,
        notification: Arc<Notification>,
        left_by: Option<SessionId>,
        earlier: Earlier,
    ) {
        let waits_until = notification.created_at + self.settings.sessions.unclaimed_ttl;
        let expires_at = notification.expires_at.unwrap_or(waits_until);
        self.record(LedgerEntry::Unclaimed { notification: notification.id });
        let Notification { scope, subscriber, states, .. } = &*notification;
        for older in self.unclaimed.take_outdated(scope, subscriber, states) {
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
            Scope::Session(_) | Scope::Workspace(_) | Scope::All | Scope::Part(_) => None,
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
    fn confirm_left(
        &mut self,
        session: &SessionId,
        injection: &InjectionId,
        by: ConfirmedBy,
        now: Timestamp,
    ) {
        for notification in self.unclaimed.take_delivered(session, injection) {
            let notification = notification.id;
            self.record(LedgerEntry::Confirmed { notification, session: session.clone(), by });
        }
        let open = self.table.open().filter(|session| session.injector.can_confirm(injection));
        for key in open.map(|session| session.key).collect::<Vec<SessionKey>>() {
            self.with_queue(key, |injector| injector.ack(injection, by, now));
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
