//! The part of the account about the arrival of notifications in queues.

use engine::{event::SessionId, notification::NotificationId};

use super::account::{Account, Place};
use crate::support::generations;

impl Account {
    /// Whether a notification is a state that is retained. A session that opens gets it as a new one or
    /// as one that another session left, which no entry tells apart, so its mark is not followed.
    pub(super) fn is_retaining(&self, id: &NotificationId) -> bool {
        generations::RETAINING.contains(&self.made[id].subscriber.as_str())
    }

    /// A notification is queued because it is new, because it was pending for the session, or
    /// because a child left it.
    pub(super) fn queue(&mut self, id: &NotificationId, session: &SessionId) {
        let is_routed =
            self.routed.as_mut().is_some_and(|(routed, missing)| routed == id && missing.remove(session));
        let is_concerned = self.concerns(&self.made[id].scope, session);
        let made = self.made.get_mut(id).expect("made");
        let is_claimed = is_concerned && std::mem::replace(&mut made.is_unclaimed, false);
        let is_new = is_routed || is_claimed;
        let continued = if is_new { None } else { self.comes_from_predecessor(id, session) };
        let left = self.left.get(id).filter(|left| is_concerned && (is_claimed || left.session != *session));
        // One that a third session left comes from the predecessor all the same.
        let left = left.filter(|_| continued.is_none());
        let mut again = left.is_some_and(|left| left.again);
        let is_left = left.is_some();
        if is_left {
            self.left.remove(id);
        }
        let had_left = self.was_left.remove(&(session.clone(), *id));
        let handed = if is_new || is_left { Some(again) } else { continued };
        // A session that opens gets the states that are retained, unless it has or had them.
        let is_unknown = had_left || !self.places.get(session).is_some_and(|places| places.contains_key(id));
        let is_retained = is_unknown && self.is_retaining(id);
        if let Some(before) = handed {
            again = before;
        } else {
            let children = self.open.iter().filter(|(_, open)| open.parent.as_ref() == Some(session));
            let left_by = children.map(|(child, _)| child.clone()).find(|child| {
                self.places
                    .get(child)
                    .is_some_and(|places| matches!(places.get(id), Some(Place::Queued { .. })))
            });
            assert!(left_by.is_some() || is_retained, "{id} has no way into the queue of {session}");
            if let Some(child) = left_by {
                // If the child stays open, its queue will not agree with this.
                let place = self.place(&child, id);
                again = *place == Place::Queued { again: true };
                *place = Place::Over;
            }
        }
        let places = self.places.entry(session.clone()).or_default();
        let before = places.insert(*id, Place::Queued { again });
        assert!(
            before.is_none() || had_left && before == Some(Place::Over),
            "{id} comes to {session} once, unless it left it: {before:?}"
        );
    }

    /// A delivered condition that still holds, or what nobody answered, is pending again.
    pub(super) fn recall(&mut self, id: &NotificationId, session: &SessionId) {
        let made = &self.made[id];
        let is_absence = generations::ABSENT_ID == made.subscriber.as_str();
        // What asks for an answer comes again without a repetition too.
        let is_asking = made.subscriber.as_str() == generations::ASKING;
        let holds = is_absence || is_asking || self.conditions.hold(&made.subscriber, &made.events);
        assert!(holds, "{id} does not hold");
        let places = self.places.entry(session.clone()).or_default();
        let before = places.insert(*id, Place::Queued { again: true });
        // What waits for its repetition had been delivered too.
        let waits = self.repeated.contains(&(session.clone(), *id));
        let had_it = matches!(before, None | Some(Place::Over)) || waits;
        assert!(had_it, "{id} in {session}: {before:?}");
        self.cancelled.insert((session.clone(), *id));
        // It had arrived, so it can still go back once.
        self.recalled.insert((session.clone(), *id));
    }
}
