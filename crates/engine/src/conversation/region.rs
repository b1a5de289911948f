//! What the region of a session has of the notifications: the conditions that hold there, and the
//! retained states.
//!
//! A region is read and changes nothing. It leaves out what the user dismissed, and what waits for the
//! user's decision. What is silenced or muted there is the engine's question.

use std::sync::Arc;

use journal::time::Timestamp;

use super::{retained::Retained, session::Session, sessions::Sessions, unresolved::Holding};
use crate::{
    event::{Scope, SessionId},
    hold::Hold,
    notification::{Notification, NotificationId, RegionUse},
};

/// A notification that a region may have.
#[derive(Debug, Clone, Copy)]
pub struct RegionEntry<'a> {
    /// The notification; its conditions are those that hold.
    pub notification: &'a Arc<Notification>,
    /// Number of its conditions when it was made; 0 for a retained state without conditions.
    pub made_of: u32,
}

impl Sessions {
    /// The conditions that hold for a session, in order: the most urgent first, then the newest.
    pub fn conditions_of<'a>(&'a self, session: &SessionId) -> impl Iterator<Item = RegionEntry<'a>> {
        let known = self.table.known(session);
        let own = known.into_iter().flat_map(move |known| {
            self.standing.unresolved.iter().filter(move |holding| {
                is_condition_of(known, holding) && !self.has_dismissed(known, &holding.notification)
            })
        });
        own.map(|Holding { notification, made_of, .. }| RegionEntry { notification, made_of: *made_of })
    }

    /// The retained states of a session that have no condition, the newest first; none for a subagent.
    pub fn retained_of<'a>(&'a self, session: &SessionId, now: Timestamp) -> Vec<RegionEntry<'a>> {
        let known = self.table.known(session).filter(|known| !known.is_subagent());
        let Some(known) = known else { return Vec::new() };
        let concerns = |scope: &Scope| known.is_concerned_by(scope);
        let is_own = |notification: &&Arc<Notification>| {
            notification.unresolved.is_empty()
                && notification.region != RegionUse::Never
                && known.injector.may_be_shown(notification)
        };
        let mut retained: Vec<_> = self.standing.retained.of(&concerns, now).filter(is_own).collect();
        retained.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        retained.into_iter().map(|notification| RegionEntry { notification, made_of: 0 }).collect()
    }

    /// Whether `scope` concerns a session.
    pub fn is_in_scope(&self, session: &SessionId, scope: &Scope) -> bool {
        self.table.known(session).is_some_and(|known| known.is_concerned_by(scope))
    }

    /// Whether a session is a subagent's; false if it is not known.
    pub fn is_subagent(&self, session: &SessionId) -> bool {
        self.table.known(session).is_some_and(Session::is_subagent)
    }

    /// The holds of a suppressed condition that are the same for all sessions.
    pub fn suppressed(&self, notification: &NotificationId) -> &[Hold] {
        self.standing.suppressed.get(notification).map_or(&[], Vec::as_slice)
    }

    /// Number of conditions that made room for others since none was left.
    pub fn conditions_evicted(&self) -> u64 {
        self.standing.unresolved.evicted()
    }

    /// Keeps a notification for the regions of its sessions, in place of earlier ones about the same.
    pub fn note_for_regions(&mut self, notification: &Arc<Notification>) {
        let Self { table, standing, .. } = self;
        standing.unresolved.insert(notification, &|older| table.covers(&notification.scope, older));
    }

    /// When a condition or a retained state is over next.
    pub fn region_timeout(&self) -> Option<Timestamp> {
        let of = |retained: &Retained| retained.poll_timeout();
        Timestamp::earliest([self.standing.unresolved.poll_timeout(), of(&self.standing.retained)])
    }

    /// Ends the conditions and retained states that are over at `at`.
    pub fn expire_regions(&mut self, at: Timestamp) {
        self.standing.unresolved.expire(at);
        self.standing.retained.expire(at);
    }

    /// Number of changes of what regions can have, since the start of the process.
    pub fn region_changes(&self) -> u64 {
        self.standing.unresolved.changes()
            + self.standing.retained.changes()
            + self.standing.dismissed.changes()
    }
}

fn is_condition_of(session: &Session, holding: &Holding) -> bool {
    let notification = &holding.notification;
    session.is_concerned_by(&notification.scope)
        && !holding.dismissed_in.contains(&session.key)
        && !holding.resolved_in.concerns(|scope| session.is_concerned_by(scope))
        && session.injector.may_be_shown(notification)
}
