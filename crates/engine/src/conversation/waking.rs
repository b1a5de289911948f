//! Which session is woken for a notification that concerns several.
//!
//! Each session in scope gets a notification for a folder or for all, and two idle agents that are
//! woken for it would repair the same thing. So of the sessions without a running turn only the one
//! that was active last is woken. For the others it waits until they make an exchange. If the woken
//! one ends before it confirmed the notification, the next one is woken.

use std::cmp::Reverse;

use super::{
    session::{Session, SessionKey},
    sessions::Sessions,
};
use crate::{
    event::Scope,
    notification::{Activation, Notification},
};

impl Sessions {
    /// Of these sessions, the one that is woken for `notification`; `None` if it wakes nobody, is
    /// addressed to one session, or none of them is without a turn.
    pub fn woken_for(
        &self,
        notification: &Notification,
        among: impl IntoIterator<Item = SessionKey>,
    ) -> Option<SessionKey> {
        let is_shared = !matches!(notification.scope, Scope::Session(_));
        if notification.activation != Activation::Active || !is_shared {
            return None;
        }
        let without_turn = among.into_iter().map(|key| self.table.get(key));
        let without_turn = without_turn.filter(|session| !session.state.is_in_turn());
        // A client that is only attached is no more active for that, so `last_seen` is not used.
        let last = without_turn.max_by_key(|session| (session.state_at, Reverse(session.key)));
        last.map(|session| session.key)
    }

    /// Wakes another session for a notification, if every open session that has it pending leaves
    /// that to another one.
    pub(super) fn pass_wake_on(&mut self, notification: &Notification) {
        let has_it = |session: &Session| session.injector.waits(&notification.id);
        let keys = self.table.each_concerned(&notification.scope);
        let keys: Vec<SessionKey> = keys.filter(|key| has_it(self.table.get(*key))).collect();
        let leaves_it = |key: &SessionKey| self.table.get(*key).injector.leaves_wake(&notification.id);
        if !keys.iter().all(leaves_it) {
            return;
        }
        if let Some(key) = self.woken_for(notification, keys) {
            self.with_queue(key, |injector| injector.set_quiet(&notification.id, false));
        }
    }
}

impl Session {
    /// Whether the wake for a notification is left to the session `woken`.
    pub(super) fn leaves_wake_to(&self, woken: Option<SessionKey>) -> bool {
        woken.is_some_and(|woken| woken != self.key) && !self.state.is_in_turn()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        conversation::{fanout::DIRECT_MAX, tests::sessions},
        event::{EventRef, SessionId, Severity, Trust},
        exchange::{Exchange, Harness, Release},
        notification::{InjectionPoint, Priority},
    };
    use journal::time::Timestamp;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    /// Opens sessions in `/w`, each idle since its number of seconds.
    fn opened(count: usize) -> Sessions {
        let mut all = sessions();
        for number in 1..=count {
            let workspace = Some("/w".into());
            let id = SessionId::new(&format!("s{number}"));
            let harness = Harness { workspace, ..Harness::default() };
            all.open_session(&id, &harness, at(number as u64));
        }
        all
    }

    fn publish(all: &mut Sessions, name: &str, scope: Scope) -> Arc<Notification> {
        let made = Notification {
            scope,
            activation: Activation::Active,
            created_at: at(100),
            ..Notification::example(name, Priority::Critical)
        };
        let notification = Arc::new(made);
        match all.concerned(&notification.scope) {
            super::super::Concerned::Few(keys) => {
                let woken = all.woken_for(&notification, keys.iter().copied());
                for key in keys {
                    all.queue(key, Arc::clone(&notification), woken);
                }
            }
            super::super::Concerned::Many => all.broadcast(Arc::clone(&notification)),
            super::super::Concerned::Nobody => all.keep(Arc::clone(&notification)),
        }
        notification
    }

    /// The sessions that request a wake, and the number of those with something pending.
    fn woken(all: &mut Sessions) -> (Vec<String>, usize) {
        all.catch_up_all();
        let pending = all.views().filter(|view| view.injector.pending().0 > 0).count();
        let wakes = all.views().filter(|view| view.injector.wake(view.state, Priority::High).is_some());
        (wakes.map(|view| view.id.to_string()).collect(), pending)
    }

    /// Begins or ends the turn of a session.
    fn turn(all: &mut Sessions, session: &str, event_type: &str, seconds: u64) {
        let event = EventRef {
            id: "e",
            event_type,
            source: "x",
            provenance: crate::event::Provenance::Harness,
            severity: Severity::Debug,
            timestamp: at(seconds),
            payload: "{}",
            dedupe_key: None,
            session: Some(session),
            workspace: None,
            cause: None,
            deliver_after: None,
        };
        all.note_turn(&event, Trust::Trusted, at(seconds));
    }

    #[test]
    fn the_last_active_idle_session_is_woken() {
        let folder = || Scope::Workspace("/w".into());
        let mut all = opened(3);
        publish(&mut all, "first", folder());
        assert_eq!(woken(&mut all), (vec!["s3".to_owned()], 3));
        turn(&mut all, "s1", "agent.turn.start", 90);
        turn(&mut all, "s1", "agent.turn.end", 91);
        publish(&mut all, "second", folder());
        assert_eq!(woken(&mut all).0, ["s1", "s3"], "each for another one");
        let mut all = opened(1);
        publish(&mut all, "alone", folder());
        assert_eq!(woken(&mut all).0, ["s1"]);
    }

    #[test]
    fn session_in_turn_is_interrupted_all_the_same() {
        let mut all = opened(3);
        turn(&mut all, "s3", "agent.turn.start", 90);
        publish(&mut all, "n", Scope::All);
        assert_eq!(woken(&mut all).0, ["s2", "s3"]);
    }

    #[test]
    fn a_broadcast_wakes_one_session() {
        let mut all = opened(DIRECT_MAX + 5);
        publish(&mut all, "n", Scope::All);
        assert_eq!(woken(&mut all), (vec!["s13".to_owned()], DIRECT_MAX + 5));
        publish(&mut all, "m", Scope::Session(SessionId::new("s1")));
        assert_eq!(woken(&mut all).0, ["s1", "s13"]);
    }

    #[test]
    fn another_session_is_woken_after_the_first_ends() {
        let mut all = opened(3);
        publish(&mut all, "n", Scope::All);
        all.end_session(&SessionId::new("s1"), at(200));
        assert_eq!(woken(&mut all).0, ["s3"], "the wake is another one's");
        all.end_session(&SessionId::new("s3"), at(201));
        assert_eq!(woken(&mut all).0, ["s2"]);
    }

    #[test]
    fn text_that_woke_another_session_is_still_delivered() {
        let mut all = opened(2);
        publish(&mut all, "n", Scope::All);
        let id = SessionId::new("s1");
        let exchange = Exchange::new(id, InjectionPoint::TurnStart, "c");
        let (key, _) = all.begin_exchange(&exchange, &Release::Decide, at(300));
        let limits = crate::conversation::injector::Limits::new(10, crate::notification::Tokens(800), 8_000);
        let (offer, _) = all.offer(key, &exchange, &limits, at(300));
        assert_eq!(offer.candidates.len(), 1);
    }
}
