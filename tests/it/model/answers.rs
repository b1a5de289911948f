//! The part of the account about repetitions and answers.

use engine::{
    event::SessionId,
    hold::{DelayedBy, Hold},
    notification::{NotificationId, repeat::Action},
};

use super::{
    account::{Account, Place},
    silences_critical,
};

impl Account {
    /// A notification that has arrived, or was not confirmed in time, waits for its repetition.
    pub(super) fn repeat(&mut self, id: &NotificationId, session: &SessionId) {
        let place = std::mem::replace(self.place(session, id), Place::Queued { again: false });
        assert!(matches!(place, Place::Over | Place::Leased { .. }), "{id} in {session}: {place:?}");
        self.wait_again(id, session);
    }

    /// What was delivered and is in the queue again leaves it with an answer, or stays for a snooze. What
    /// is not delivered yet ends with an entry of its own.
    pub(super) fn answer(&mut self, id: &NotificationId, session: &SessionId, action: Action) {
        let is_repeated = self.repeated.contains(&(session.clone(), *id));
        // A copy of a session has in its context what that one was delivered.
        if self.delivered.get(session).is_some_and(|delivered| delivered.contains(id)) {
            self.places.entry(session.clone()).or_default().entry(*id).or_insert(Place::Over);
        }
        let place = self.place(session, id);
        match (action, &*place) {
            (Action::Snooze, Place::Over) => {
                *place = Place::Queued { again: false };
                self.wait_again(id, session);
            }
            (Action::Snooze, Place::Queued { .. } | Place::Leased { .. }) => {}
            (Action::Acknowledge | Action::Investigate | Action::Dismiss, Place::Queued { again })
                if is_repeated || *again =>
            {
                *place = Place::Over;
            }
            (Action::Acknowledge | Action::Investigate, Place::Queued { .. }) => {
                panic!("{id} was not delivered in {session}")
            }
            (Action::Acknowledge | Action::Investigate | Action::Dismiss, _) => {}
        }
    }

    /// It has arrived, also if it had gone back to the queue.
    pub(super) fn confirm(&mut self, id: &NotificationId, session: &SessionId) {
        let is_retaining = self.is_retaining(id);
        let place = std::mem::replace(self.place(session, id), Place::Over);
        let may_be = match place {
            Place::Leased { .. } => true,
            Place::Queued { again } => again || is_retaining,
            Place::Over => false,
        };
        assert!(may_be, "{id} in {session}: {place:?}");
    }

    /// Nobody answered it after its last delivery.
    pub(super) fn end_unanswered(&mut self, id: &NotificationId, session: &SessionId) {
        let place = std::mem::replace(self.place(session, id), Place::Over);
        assert_eq!(place, Place::Queued { again: false }, "{id} in {session}");
        assert!(self.repeated.contains(&(session.clone(), *id)), "{id} in {session}");
    }

    fn wait_again(&mut self, id: &NotificationId, session: &SessionId) {
        let key = (session.clone(), *id);
        self.cancelled.insert(key.clone());
        self.recalled.remove(&key);
        self.repeated.insert(key);
    }
}

/// Whether somebody snoozed it or silenced critical ones, or it waits for its repetition: these hold
/// critical ones too.
pub(super) fn is_put_off(holds: &[Hold]) -> bool {
    holds.iter().any(|hold| match hold {
        Hold::Snoozed { .. } | Hold::Deferred { by: DelayedBy::Repetition | DelayedBy::Answer, .. } => true,
        Hold::Silenced { by, .. } => silences_critical(*by),
        Hold::Deferred { by: DelayedBy::Subscriber | DelayedBy::Event, .. }
        | Hold::Quiet { .. }
        | Hold::Budget { .. }
        | Hold::Inhibited { .. } => false,
    })
}
