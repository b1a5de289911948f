//! The answers of agents and users to notifications, and the decisions of users, in every place where a
//! notification waits.

use std::sync::Arc;

use journal::time::Timestamp;

use super::{
    injector::Suppress,
    session::{Session, SessionKey},
    sessions::Sessions,
};
use crate::{
    event::{Scope, SessionId},
    exchange::Decision,
    ledger::Reason,
    notification::{
        Nature, Notification, NotificationId,
        repeat::{Action, Response},
    },
};

impl Sessions {
    /// Applies the user's decision about a notification: in one queue, or in every place where it
    /// waits.
    pub fn decide(&mut self, session: Option<&SessionId>, notification: &NotificationId, decision: Decision) {
        if decision == Decision::Dismiss {
            let key = session.and_then(|id| self.table.key(id));
            if session.is_none() || key.is_some() {
                self.dismiss(notification, key);
            }
        }
        let concerned: Vec<SessionKey> = match session {
            Some(id) => {
                self.catch_up_session(id);
                self.table.key(id).into_iter().collect()
            }
            None => {
                if self.fanout.contains(notification) {
                    self.catch_up_all();
                }
                // One table lookup per session, some hundred nanoseconds: an index of ids would
                // cost memory for each of a million notifications.
                let mut keys = self.table.keys();
                keys.retain(|key| self.table.get(*key).injector.waits(notification));
                keys
            }
        };
        for key in concerned {
            if self.table.get_mut(key).injector.decide(notification, decision) {
                self.refresh(key);
            }
        }
    }

    /// Applies an answer to a notification in every session that has or had it.
    pub fn respond(&mut self, notification: &NotificationId, response: &Response, now: Timestamp) {
        if self.fanout.contains(notification) {
            self.catch_up_all();
        }
        if response.action == Action::Dismiss {
            self.dismiss(notification, None);
        }
        for key in self.table.keys() {
            if self.table.get_mut(key).injector.respond(notification, response, now) {
                self.refresh(key);
            }
        }
    }

    /// Ends a notification that was dismissed, in one session or in all, wherever it waits outside a queue,
    /// and the other reports of its conditions. The queues that have it are the caller's.
    pub(super) fn dismiss(&mut self, notification: &NotificationId, session: Option<SessionKey>) {
        let known = self.known(notification, session);
        self.standing.unresolved.dismiss(notification, session);
        if session.is_none() {
            self.standing.retained.forget(notification);
            self.end_for_user(&Reason::Dismissed, |own| own.id == *notification);
            if self.unclaimed.take(notification).is_some() {
                self.end(*notification, Reason::Dismissed);
            }
        }
        let Some(known) = known.filter(|known| known.nature == Nature::Condition) else { return };
        let scope = session.map_or_else(|| known.scope.clone(), |key| Scope::Session(self.id(key).clone()));
        self.standing.dismissed.note(&known, &scope);
        if self.fanout.any(|own| own.id != known.id && own.subscriber == known.subscriber) {
            self.catch_up_all();
        }
        for key in session.map_or_else(|| self.table.known_concerned(&scope), |key| vec![key]) {
            let own = self.table.get(key);
            let is_other = |other: &&Notification| other.id != known.id && self.has_dismissed(own, other);
            let others: Vec<_> =
                own.injector.pending_notifications().filter(is_other).map(|own| own.id).collect();
            self.with_queue(key, |injector| {
                others.into_iter().for_each(|id| injector.suppress(id, &Suppress::End(Reason::Dismissed)));
            });
        }
        for other in self.unclaimed.in_order().into_iter().map(Arc::clone).collect::<Vec<_>>() {
            if self.standing.dismissed.has(&other, |own| own.is_for_all(&other)) {
                self.unclaimed.take(&other.id);
                self.end(other.id, Reason::Dismissed);
            }
        }
    }

    /// Takes a notification that was made; returns whether its conditions are dismissed in all of its
    /// sessions.
    pub fn is_dismissed(&mut self, notification: &Notification) -> bool {
        self.standing.dismissed.take_report(notification);
        self.standing.dismissed.has(notification, |own| own.is_for_all(notification))
    }

    /// Ends a notification that a queue has taken and whose conditions are dismissed in its session.
    pub fn end_dismissed_in(&mut self, notification: NotificationId, session: &SessionId) {
        if self.standing.dismissed.is_empty() {
            return;
        }
        let Some(key) = self.table.key(session) else { return };
        let own = self.table.get(key);
        let pending = own.injector.pending_notification(&notification);
        if pending.is_some_and(|pending| self.has_dismissed(own, pending)) {
            self.with_queue(key, |injector| {
                injector.suppress(notification, &Suppress::End(Reason::Dismissed));
            });
        }
    }

    /// Whether the conditions of a notification are dismissed in a session.
    pub(super) fn has_dismissed(&self, session: &Session, notification: &Notification) -> bool {
        let is_concerned = |scope: &Scope| session.is_concerned_by(scope);
        self.standing.dismissed.has(notification, |own| own.is_for(is_concerned))
    }

    /// A notification that a session has or had, or that waits elsewhere.
    fn known(&self, id: &NotificationId, session: Option<SessionKey>) -> Option<Arc<Notification>> {
        let keys = session.map_or_else(|| self.table.keys(), |key| vec![key]);
        let queued = keys.into_iter().find_map(|key| self.table.get(key).injector.notification(id).cloned());
        let unclaimed = || self.unclaimed.in_order().into_iter().find(|own| own.id == *id).cloned();
        queued.or_else(unclaimed).or_else(|| self.standing.for_user.notification(id).cloned())
    }
}
