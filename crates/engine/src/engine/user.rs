//! The settings of users and the mutes of the configuration, where the queues of sessions take
//! notifications, and for what is pending when they change.

use std::sync::Arc;

use journal::time::Timestamp;

use super::{
    parts::{Engine, Taken},
    suppression::place_of,
};
use crate::{
    conversation::{Concerned, SessionView, Sessions, Suppress},
    event::{Event, SessionId},
    hold::Hold,
    ledger::Reason,
    notification::{Audience, Notification, NotificationId, Priority},
    pipeline::{
        mute::Place,
        recent::RecentEvents,
        rule::{Subscriber, Weight, is_alone},
        territory,
    },
    rules::CompiledRules,
    user::{OWN_USER, UserSettings, Users, user_of},
};

/// Finds what is muted.
#[derive(Clone, Copy)]
struct Finder<'a> {
    rules: &'a CompiledRules,
    users: &'a Users,
    recent: &'a RecentEvents,
}

impl Finder<'_> {
    /// Why a user does not get what `rule` makes of `events` at `place`, in words.
    fn muted<'e>(
        self,
        user: &str,
        place: Option<Place<'_>>,
        rule: &Subscriber,
        events: impl Iterator<Item = &'e Arc<Event>>,
        priority: Priority,
    ) -> Option<Arc<str>> {
        let of_event = |event| {
            let by_user = self.users.mutes(user, place, rule, event, priority);
            by_user.or_else(|| {
                let mute = self.rules.mutes.find(place, rule, event?, priority)?;
                Some(format!("aside.toml mutes {mute}").into())
            })
        };
        let mut events = events.peekable();
        if events.peek().is_none() {
            return of_event(None);
        }
        let by: Option<Vec<Arc<str>>> = events.map(|event| of_event(Some(event))).collect();
        by.and_then(|by| by.into_iter().next())
    }

    /// Why a user does not get a notification at `place`, in words. The events of an old one may be
    /// forgotten; then only its subscriber counts.
    fn muted_one(self, user: &str, place: Option<Place<'_>>, one: &Notification) -> Option<Arc<str>> {
        let rule = self.rules.subscribers.get(self.rules.position(&one.subscriber)?)?;
        let events = self.recent.get(one.id).into_iter().flatten();
        self.muted(user, place, rule, events, one.priority)
    }

    /// What becomes of a notification in the queue of a session.
    fn decide(self, notification: &Notification, session: &SessionView<'_>) -> Option<Suppress> {
        let by = self.muted_one(user_of(session.harness), Some(place_of(session)), notification)?;
        Some(Suppress::End(Reason::Muted { by }))
    }

    /// What becomes of the notice to the daemon's own user.
    fn decide_for_user(self, notification: &Notification, now: Timestamp) -> Option<Suppress> {
        if self.has_none() {
            return None;
        }
        match self.muted_one(OWN_USER, None, notification) {
            Some(by) => Some(Suppress::End(Reason::Muted { by })),
            None => quiet(self.users, OWN_USER, notification, now),
        }
    }

    fn has_none(self) -> bool {
        self.users.is_empty() && self.rules.mutes.is_empty()
    }
}

impl Engine {
    fn mutes(&mut self) -> (Finder<'_>, &mut Sessions) {
        let Self { rules, users, recent, sessions, .. } = self;
        (Finder { rules, users, recent }, sessions)
    }

    /// Replaces the settings of a user.
    pub(super) fn set_user(&mut self, user: &Arc<str>, settings: UserSettings, now: Timestamp) {
        if self.users.set(user, settings, &self.zone, now) {
            self.apply_settings(Some(user), now);
        }
    }

    /// Notes the quiet hours of users that have begun or ended.
    pub(super) fn note_quiet_users(&mut self, now: Timestamp) {
        for user in self.users.note_time(&self.zone, now) {
            self.apply_settings(Some(&user), now);
        }
    }

    /// Applies the settings to what is pending in the sessions of a user; `None` for those of all.
    pub(super) fn apply_settings(&mut self, of: Option<&Arc<str>>, now: Timestamp) {
        let (mutes, sessions) = self.mutes();
        let is_of = |session: &SessionView<'_>| of.is_none_or(|user| **user == *user_of(session.harness));
        sessions.release_in(&is_of, |hold| matches!(hold, Hold::Quiet { of_user: true, .. }));
        sessions.change_pending(&is_of, |notification, session| {
            let user = user_of(session.harness);
            (
                mutes.decide(notification, session).or_else(|| quiet(mutes.users, user, notification, now)),
                mutes.users.level(user),
            )
        });
        if of.is_none_or(|user| &**user == OWN_USER) {
            sessions.apply_for_user(&mut |notification| mutes.decide_for_user(notification, now));
        }
        self.drain_sessions();
    }

    /// Applies the settings of a session's user to a notification that its queue has just taken, and
    /// what suppresses it in a part of the sessions with this one.
    pub(super) fn admit(&mut self, notification: NotificationId, session: &SessionId, taken: Taken) {
        let now = self.now;
        self.sessions.end_dismissed_in(notification, session);
        let (mutes, sessions) = self.mutes();
        if !mutes.has_none() {
            let user = sessions.view(session).map(|session| user_of(session.harness).to_owned());
            let level = user.map(|user| mutes.users.level(&user)).unwrap_or_default();
            sessions.limit(notification, session, level);
            let ended = sessions.suppress_one(notification, session, |own, session| {
                let quiet = || quiet(mutes.users, user_of(session.harness), own, now);
                mutes.decide(own, session).or_else(quiet)
            });
            if let Some((_, Suppress::End(_))) = ended {
                return;
            }
        }
        if taken == Taken::Again {
            self.sessions.hold_in_quiet(notification, session);
        }
        self.suppress_queued(notification, session, taken);
    }

    /// Why nobody gets what a subscriber makes of an event, if that is so now: it leaves it out of its
    /// text.
    pub(super) fn muted_for_all(&self, rule: &Subscriber, event: &Arc<Event>) -> Option<Arc<str>> {
        let mutes = self.muting();
        if mutes.has_none() {
            return None;
        }
        let own = mutes.muted(OWN_USER, None, rule, std::iter::once(event), alone(rule, event));
        if rule.output.audience == Audience::User || own.is_none() && rule.output.audience == Audience::Both {
            return own;
        }
        let scope = territory::scope_for(rule, event);
        // Of many, each queue decides as it takes the notification; of none, the session that opens later.
        let Concerned::Few(takers) = self.sessions.concerned(&scope) else { return None };
        let mut by = None;
        for key in takers {
            by = Some(self.muted_in(self.sessions.id(key), rule, event)?);
        }
        by
    }

    /// Why a session does not get what a subscriber makes of an event.
    pub(super) fn muted_in(
        &self,
        session: &SessionId,
        rule: &Subscriber,
        event: &Arc<Event>,
    ) -> Option<Arc<str>> {
        let session = self.sessions.view(session)?;
        let (user, place) = (user_of(session.harness), place_of(&session));
        self.muting().muted(user, Some(place), rule, std::iter::once(event), alone(rule, event))
    }

    fn muting(&self) -> Finder<'_> {
        let Self { rules, users, recent, .. } = self;
        Finder { rules, users, recent }
    }

    /// Why the daemon's own user does not get the notice of a notification.
    pub(super) fn muted_for_user(&self, notification: &Notification) -> Option<Suppress> {
        self.muting().decide_for_user(notification, self.now)
    }

    /// Whether a notification is muted in a session.
    pub(super) fn is_muted_in(&self, session: &SessionView<'_>, notification: &Notification) -> bool {
        let mutes = self.muting();
        !mutes.has_none() && mutes.decide(notification, session).is_some()
    }

    /// The settings of users.
    pub fn users(&self) -> &Users {
        &self.users
    }
}

/// The priority of the notification of one event.
fn alone(rule: &Subscriber, event: &Arc<Event>) -> Priority {
    if is_alone(rule, Weight::new(rule, event)) { Priority::Critical } else { rule.output.priority }
}

/// The hold of the user's quiet hours, unless the notification is never postponed.
fn quiet(users: &Users, user: &str, notification: &Notification, now: Timestamp) -> Option<Suppress> {
    let is_urgent = notification.priority == Priority::Critical;
    users.hold(user, now).filter(|_| !is_urgent).map(|hold| Suppress::Hold(vec![hold]))
}
