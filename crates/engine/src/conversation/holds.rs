//! The holds that are the same for all sessions: quiet hours of subscribers, and conditions that a
//! silence or an inhibition suppresses. Each is in the queues that have the notification, and a queue
//! that takes the notification later takes its holds too.

use std::sync::Arc;

use hashbrown::HashMap;
use journal::time::Timestamp;

use super::{
    ended::EndedRules,
    injector::{self, Suppress},
    session::{SessionKey, SessionView},
    sessions::{SessionOutput, Sessions},
    standing,
};
use crate::{
    event::{EventRef, Scope, SessionId},
    hold::{Hold, HoldKind, SilenceId, add_holds},
    ledger::Reason,
    notification::{Activation, Audience, Notification, NotificationId, SubscriberId},
    sorted::{SortedMap, SortedSet},
};

impl Sessions {
    /// Holds what a subscriber has pending until its quiet hours end, critical notifications excepted.
    pub fn begin_quiet(&mut self, subscriber: &SubscriberId, since: Timestamp, until: Timestamp) {
        self.standing.quiet.insert(subscriber.clone(), (since, until));
        let hold = Hold::Quiet { since, until, of_user: false };
        self.standing.for_user.begin_quiet(subscriber, &hold);
        self.hold_all(&hold, |notification| {
            notification.subscriber == *subscriber && !injector::is_urgent(notification)
        });
    }

    /// Ends the quiet hours of a subscriber.
    pub fn end_quiet(&mut self, subscriber: &SubscriberId) {
        self.standing.quiet.remove(subscriber);
        let is_over = |notification: &Notification, hold: &Hold| {
            matches!(hold, Hold::Quiet { of_user: false, .. }) && notification.subscriber == *subscriber
        };
        self.release_all(is_over);
        self.end_holds_for_user(is_over);
    }

    /// Passes an event to the sessions in which it could end a hold. `context`: the share of the
    /// session's context that is used, in percent, if the event reports it.
    pub fn note_for_delays(
        &mut self,
        event: &EventRef<'_>,
        scope: impl FnOnce() -> Scope,
        context: Option<u64>,
    ) {
        if self.standing.listening.is_empty() {
            return;
        }
        let scope = scope();
        for key in self.standing.listening.iter().copied().collect::<Vec<SessionKey>>() {
            let is_concerned = self.table.contains(key) && self.table.get(key).is_concerned_by(&scope);
            if is_concerned && self.table.get_mut(key).injector.note_event(event, context) {
                self.refresh(key);
            }
        }
    }

    /// Adds a hold to what `is_wanted` selects of all that is pending.
    fn hold_all(&mut self, hold: &Hold, is_wanted: impl Fn(&Notification) -> bool) {
        self.catch_up_all();
        for key in self.table.keys() {
            self.with_queue(key, |injector| injector.hold(&is_wanted, hold));
        }
    }

    /// Ends the holds that `is_over` selects, in every queue.
    fn release_all(&mut self, is_over: impl Fn(&Notification, &Hold) -> bool) {
        for key in self.table.keys() {
            if self.table.get_mut(key).injector.release_holds(&is_over) {
                self.refresh(key);
            }
        }
    }
}

impl Sessions {
    /// Keeps the holds of a suppressed notification for the queues that take it.
    pub fn keep_holds(&mut self, notification: NotificationId, holds: Vec<Hold>) {
        let kept = &mut self.standing.suppressed;
        add_holds(kept.entry(notification).or_default(), holds);
        if kept.len() > standing::KEPT_MAX {
            kept.pop_first();
        }
    }

    /// Suppresses what is pending in the sessions that `concerns` selects, and what waits for a session
    /// to open and is within `scope`; `decide` says what becomes of each notification in all sessions, and
    /// in each one.
    pub fn suppress(
        &mut self,
        decide: &mut dyn FnMut(&Notification, Option<&SessionView<'_>>) -> Option<Suppress>,
        concerns: &dyn Fn(&SessionView<'_>) -> bool,
        scope: &Scope,
    ) -> Suppressed {
        self.catch_up_all();
        let mut deciding = Deciding { decide, decided: HashMap::new(), done: Suppressed::default() };
        for key in self.table.keys() {
            let session = self.table.get(key);
            let view = session.view();
            if !concerns(&view) {
                continue;
            }
            let chosen: Vec<(NotificationId, Suppress)> = (session.injector.pending_notifications())
                .filter_map(|own| Some((own.id, deciding.in_session(own, &view)?)))
                .collect();
            if chosen.is_empty() {
                continue;
            }
            let injector = &mut self.table.get_mut(key).injector;
            chosen.iter().for_each(|(id, suppress)| injector.suppress(*id, suppress));
            self.refresh(key);
        }
        let unclaimed = self.unclaimed.in_order().into_iter().filter(|waiting| scope.covers(&waiting.scope));
        for notification in unclaimed.cloned().collect::<Vec<_>>() {
            if let Some(Suppress::End(reason)) = deciding.in_all(&notification) {
                self.unclaimed.take(&notification.id);
                self.end(notification.id, reason);
            }
        }
        let mut decide_covered =
            |own: &Notification| scope.covers(&own.scope).then(|| deciding.in_all(own)).flatten();
        self.suppress_for_user(&mut decide_covered);
        let Deciding { decided, done, .. } = deciding;
        if *scope == Scope::All {
            let mut held: Vec<(NotificationId, Vec<Hold>)> = decided
                .into_iter()
                .filter_map(|(id, decided)| match decided.in_all {
                    Some(Suppress::Hold(holds)) => Some((id, holds)),
                    Some(Suppress::End(_)) | None => None,
                })
                .collect();
            // Those before the last ones would make room again.
            held.sort_unstable_by_key(|(id, _)| *id);
            let kept = held.split_off(held.len().saturating_sub(standing::KEPT_MAX));
            kept.into_iter().for_each(|(id, holds)| self.keep_holds(id, holds));
        }
        done
    }

    /// Suppresses a notification in the queue of one session, as `decide` says; returns its subscriber
    /// and the hold or the reason's hold.
    pub fn suppress_one(
        &mut self,
        notification: NotificationId,
        session: &SessionId,
        decide: impl FnOnce(&Notification, &SessionView<'_>) -> Option<Suppress>,
    ) -> Option<(SubscriberId, Suppress)> {
        let key = self.table.key(session)?;
        let known = self.table.get(key);
        let pending = known.injector.pending_notification(&notification)?;
        let (subscriber, suppress) = (pending.subscriber.clone(), decide(pending, &known.view())?);
        self.with_queue(key, |injector| injector.suppress(notification, &suppress));
        Some((subscriber, suppress))
    }

    /// Whether what is pending in a session is retained for the sessions that open later.
    pub fn is_retained(&self, notification: &NotificationId, session: &SessionId) -> bool {
        if self.standing.retained.poll_timeout().is_none() {
            return false;
        }
        let key = self.table.key(session);
        let pending = key.and_then(|key| self.table.get(key).injector.pending_notification(notification));
        pending.is_some_and(|own| own.retain_until.is_some())
    }

    /// Holds what a queue takes again while the quiet hours of its subscriber last.
    pub fn hold_in_quiet(&mut self, notification: NotificationId, session: &SessionId) {
        let Some(key) = self.table.key(session) else { return };
        let pending = self.table.get(key).injector.pending_notification(&notification);
        if let Some(hold) = pending.and_then(|own| self.standing.quiet_hold(own)) {
            self.with_queue(key, |injector| injector.suppress(notification, &Suppress::Hold(vec![hold])));
        }
    }

    /// Changes what is pending in the sessions that `concerns` selects; `decide` says what becomes of
    /// each notification there, and how much it may do by itself.
    pub fn change_pending(
        &mut self,
        concerns: &dyn Fn(&SessionView<'_>) -> bool,
        decide: impl Fn(&Notification, &SessionView<'_>) -> (Option<Suppress>, Activation),
    ) {
        self.catch_up_all();
        for key in self.table.keys() {
            let session = self.table.get(key);
            let view = session.view();
            if !concerns(&view) {
                continue;
            }
            let decided: Vec<_> = (session.injector.pending_notifications())
                .map(|notification| (notification.id, decide(notification, &view)))
                .collect();
            self.with_queue(key, |injector| {
                for (id, (suppress, level)) in decided {
                    injector.limit(&id, level);
                    if let Some(suppress) = suppress {
                        injector.suppress(id, &suppress);
                    }
                }
            });
        }
    }

    /// Limits what a notification may do by itself in the queue of one session.
    pub fn limit(&mut self, notification: NotificationId, session: &SessionId, level: Activation) {
        if let Some(key) = self.table.key(session) {
            self.with_queue(key, |injector| injector.limit(&notification, level));
        }
    }

    /// Ends the holds that `is_over` selects in the sessions that `concerns` selects.
    pub fn release_in(
        &mut self,
        concerns: &dyn Fn(&SessionView<'_>) -> bool,
        is_over: impl Fn(&Hold) -> bool,
    ) {
        for key in self.table.keys() {
            if concerns(&self.table.get(key).view())
                && self.table.get_mut(key).injector.release_holds(|_, hold| is_over(hold))
            {
                self.refresh(key);
            }
        }
    }

    /// Ends the holds of all suppressions on what has one that `is_over` selects; returns these
    /// notifications. The caller decides again about them, as what is left may not suppress all of their
    /// events, and then calls [`Sessions::release_for_user`].
    pub fn end_suppression(&mut self, is_over: impl Fn(&Hold) -> bool) -> SortedSet<NotificationId> {
        // Sorted at the end: a silence may hold a hundred thousand.
        let mut released = Vec::new();
        self.standing.suppressed.retain(|id, holds| {
            let is_its = holds.iter().any(&is_over);
            if is_its {
                released.push(*id);
            }
            !is_its
        });
        let queued = self.views().flat_map(|session| session.injector.held_by(&is_over));
        released.extend(queued);
        released.extend(self.standing.for_user.held_by(&is_over));
        released.sort_unstable();
        let released: SortedSet<NotificationId> = released.into_iter().collect();
        let is_its = |own: &Notification, hold: &Hold| hold.is_suppression() && released.contains(&own.id);
        if !released.is_empty() {
            self.release_all(is_its);
            self.standing.for_user.end_holds(is_its);
        }
        released
    }

    /// The sessions in which some of `notifications` are pending, with each of them.
    pub fn queues_with(&self, notifications: &SortedSet<NotificationId>) -> Vec<(NotificationId, SessionId)> {
        let of_session = |session: SessionView<'_>| {
            let own = session.injector.pending_notifications().map(|own| own.id);
            let own = own.filter(|id| notifications.contains(id)).collect::<Vec<_>>();
            own.into_iter().map(|id| (id, session.id.clone())).collect::<Vec<_>>()
        };
        self.views().flat_map(of_session).collect()
    }

    /// The holds of a notification that waits for a session to open.
    pub fn holds_of_unclaimed(&self, notification: &Notification) -> Vec<Hold> {
        self.standing.holds(notification)
    }

    /// Number of notifications with a hold in all queues, and of their holds of each kind.
    pub fn held(&self) -> (u64, SortedMap<HoldKind, u64>) {
        let (mut count, mut kinds) = (0, SortedMap::new());
        for (own, of_kind) in self.views().map(|session| session.injector.held()) {
            count += u64::from(own);
            for (kind, number) in of_kind {
                *kinds.get_or_default(kind) += u64::from(number);
            }
        }
        (count, kinds)
    }

    /// Number of notifications that a silence holds, each counted once.
    pub fn held_by(&self, silence: SilenceId) -> usize {
        let is_its = |hold: &Hold| matches!(hold, Hold::Silenced { by, .. } if *by == silence);
        self.standing.suppressed.values().filter(|holds| holds.iter().any(is_its)).count()
    }
}

impl Sessions {
    /// Passes a notification to the user, or keeps it while something holds it, `suppressed` included.
    pub fn pass_to_user(
        &mut self,
        notification: &Arc<Notification>,
        audience: Audience,
        suppressed: Vec<Hold>,
    ) {
        self.end_for_user(&Reason::Superseded, |older| older.is_superseded_by(notification));
        let mut holds = self.standing.holds(notification);
        holds.extend(suppressed);
        self.standing.for_user.insert(notification, audience, holds);
        self.release_for_user();
    }

    /// Suppresses what waits for the user: `decide` says what becomes of each notification.
    pub fn suppress_for_user(&mut self, decide: &mut dyn FnMut(&Notification) -> Option<Suppress>) {
        for (id, reason) in self.standing.for_user.suppress(decide) {
            self.end_for_user(&reason, |own| own.id == id);
        }
    }

    /// What waits for the user alone, the notification that was made first first, with its holds.
    pub fn waiting_for_user(&self) -> Vec<(&Arc<Notification>, &[Hold])> {
        self.standing.for_user.of_user_alone()
    }

    /// Ends the holds of the user's own quiet hours on what waits for the user, and decides again.
    pub fn apply_for_user(&mut self, decide: &mut dyn FnMut(&Notification) -> Option<Suppress>) {
        let is_over = |_: &Notification, hold: &Hold| matches!(hold, Hold::Quiet { of_user: true, .. });
        self.standing.for_user.end_holds(is_over);
        self.suppress_for_user(decide);
        self.release_for_user();
    }

    /// When a delay or a time to live of what waits for the user is over next.
    pub fn for_user_timeout(&self) -> Option<Timestamp> {
        self.standing.for_user.poll_timeout()
    }

    /// Ends the delays and the notifications for the user that are over at `at`.
    pub fn expire_for_user(&mut self, at: Timestamp) {
        self.end_for_user(&Reason::Expired, |own| own.expires_at.is_some_and(|until| until <= at));
        self.standing.for_user.end_delays(at);
        self.release_for_user();
    }

    /// Ends what waits for the user and is selected.
    pub(super) fn end_for_user(&mut self, reason: &Reason, is_over: impl Fn(&Notification) -> bool) {
        for id in self.standing.for_user.end(is_over) {
            self.end(id, reason.clone());
        }
    }

    /// Ends the holds that `is_over` selects, and passes what has none left to the user.
    fn end_holds_for_user(&mut self, is_over: impl FnMut(&Notification, &Hold) -> bool) {
        self.standing.for_user.end_holds(is_over);
        self.release_for_user();
    }

    /// Applies the end of rules to what waits for the user.
    pub(super) fn end_rules_for_user(&mut self, ended: &EndedRules) {
        self.standing.for_user.end_rules(ended);
        self.release_for_user();
    }

    /// Passes what nothing holds any more to the user.
    pub fn release_for_user(&mut self) {
        for (notification, audience) in self.standing.for_user.take_free() {
            self.emit(SessionOutput::ForUser(notification, audience));
        }
    }
}

/// What a suppression that began concerned.
#[derive(Debug, Clone, Default)]
pub struct Suppressed {
    /// The silence and the subscriber of each notification that a silence ended.
    pub silenced: Vec<(SilenceId, SubscriberId)>,
    /// Number of all.
    pub count: u64,
}

/// The decisions about notifications.
struct Deciding<'a> {
    decide: &'a mut dyn FnMut(&Notification, Option<&SessionView<'_>>) -> Option<Suppress>,
    decided: HashMap<NotificationId, Decided>,
    done: Suppressed,
}

/// What becomes of a notification.
#[derive(Debug, Clone)]
struct Decided {
    /// In all sessions.
    in_all: Option<Suppress>,
    /// Whether it is counted.
    is_counted: bool,
}

impl Deciding<'_> {
    fn in_all(&mut self, notification: &Notification) -> Option<Suppress> {
        let Self { decide, decided, .. } = self;
        let decided = decided
            .entry(notification.id)
            .or_insert_with(|| Decided { in_all: decide(notification, None), is_counted: false });
        let suppress = decided.in_all.clone();
        self.count(notification, suppress.as_ref());
        suppress
    }

    fn in_session(&mut self, notification: &Notification, session: &SessionView<'_>) -> Option<Suppress> {
        self.in_all(notification).or_else(|| {
            let suppress = (self.decide)(notification, Some(session));
            self.count(notification, suppress.as_ref());
            suppress
        })
    }

    /// Counts a notification once, however many sessions have it.
    fn count(&mut self, notification: &Notification, suppress: Option<&Suppress>) {
        let decided = self.decided.get_mut(&notification.id).filter(|one| !one.is_counted);
        let (Some(decided), Some(suppress)) = (decided, suppress) else { return };
        decided.is_counted = true;
        self.done.count += 1;
        if let Suppress::End(Reason::Silenced { by }) = suppress {
            self.done.silenced.push((*by, notification.subscriber.clone()));
        }
    }
}
