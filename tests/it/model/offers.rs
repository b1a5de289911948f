//! The part of the account about notifications that a session leaves when it ends: who may get them
//! next, and whether they were delivered before.

use engine::{
    event::{Scope, SessionId},
    exchange::InjectionId,
    ledger::Reason,
    notification::NotificationId,
};

use super::account::{Account, Place};

/// A notification that a session left when it ended.
#[derive(Debug)]
pub(super) struct LeftBy {
    pub(super) session: SessionId,
    /// The injection that may have delivered it there.
    pub(super) injection: Option<InjectionId>,
    /// Whether it may have been delivered there.
    pub(super) again: bool,
}

impl Account {
    /// A notification ended in a session; others can get it if it was not addressed to that
    /// session.
    pub(super) fn end(&mut self, id: &NotificationId, session: &SessionId, reason: &Reason) {
        let place = std::mem::replace(self.place(session, id), Place::Over);
        let was_delivered = *reason == Reason::Uncertain;
        // A successor that opens has the retained states already, so it takes none from its predecessor.
        if place == Place::Over && self.is_retaining(id) && self.has_just_ended(session) {
            return;
        }
        assert_eq!(
            was_delivered,
            matches!(place, Place::Leased { .. }),
            "{id} in {session}: {place:?}, {reason:?}"
        );
        assert_ne!(place, Place::Over, "{id} in {session}: {reason:?}");
        let is_for_others = !matches!(self.made[id].scope, Scope::Session(_));
        if is_for_others && matches!(reason, Reason::Uncertain | Reason::SessionGone) {
            self.leave(id, session, place);
        }
    }

    /// An unclaimed notification is confirmed by the session that left it.
    pub(super) fn confirm_left(&mut self, id: &NotificationId, session: &SessionId) {
        let left = self.left.remove(id).expect("it had been delivered");
        assert!(left.session == *session && (left.again || self.is_retaining(id)), "{id}");
        self.made.get_mut(id).expect("made").is_unclaimed = false;
    }

    fn leave(&mut self, id: &NotificationId, session: &SessionId, place: Place) {
        let (injection, again) = match place {
            Place::Leased { injection, .. } => (Some(injection), true),
            Place::Queued { again } => (None, again),
            Place::Over => unreachable!("it was somewhere"),
        };
        self.was_left.insert((session.clone(), *id));
        self.left.insert(*id, LeftBy { session: session.clone(), injection, again });
    }

    /// A notification that was left as possibly delivered was not delivered.
    pub(super) fn note_undelivered(&mut self, session: &SessionId, injection: &InjectionId) {
        for (id, left) in &mut self.left {
            let is_it = left.session == *session && left.injection.as_ref() == Some(injection);
            if is_it && self.made[id].is_unclaimed {
                (left.injection, left.again) = (None, false);
            }
        }
    }
}
