//! The state of each session's turn, from its harness's events and exchanges.

use serde::Deserialize;

use super::{session::Session, sessions::Sessions, turns::Passed};
use journal::time::Timestamp;

use crate::{
    event::{EventRef, SessionId, Trust},
    exchange::{Answer, Exchange, Trigger},
    notification::InjectionPoint,
    session::{
        CLEARED, CLOSING_EVENT, OPENING_EVENT, SessionState, TURN_START_EVENT, WAITING_EVENT,
        is_started_by_client,
    },
};

impl Sessions {
    /// Updates the turn state of an event's session.
    pub fn note_turn(&mut self, event: &EventRef<'_>, trust: Trust, now: Timestamp) {
        let is_of_an_agent = event.event_type.starts_with("agent.");
        let is_of_a_tool = event.event_type.starts_with("tool.call.");
        let Some(id) = event.session.filter(|_| is_of_an_agent || is_of_a_tool).map(SessionId::new) else {
            return;
        };
        if !trust.is_trusted() {
            return;
        }
        let Some(key) = self.table.open_key(&id) else {
            return self.note_before_opening(id, event.event_type);
        };
        let threshold = self.settings.wake_threshold;
        let session = self.table.get_mut(key);
        session.turns.note_event(event.event_type);
        // Any producer may report a failed tool or a finished agent; only the harness knows the
        // turn state.
        let is_own = match session.harness.name.as_deref() {
            Some(harness) => harness == event.source,
            None => is_of_an_agent,
        };
        if !is_own {
            return;
        }
        let has_reason = event.event_type == WAITING_EVENT || event.event_type == CLOSING_EVENT;
        let reason = has_reason.then(|| reason_of(event.payload)).flatten();
        if event.event_type == TURN_START_EVENT {
            let is_by_client = is_started_by_client(event.payload);
            let wake = is_by_client.then(|| session.injector.wake(session.state, threshold)).flatten();
            session.turns.note_start(wake.as_ref());
        }
        if event.event_type == CLOSING_EVENT {
            session.is_cleared = reason.as_deref() == Some(CLEARED);
        }
        let state = session.state.after_event(event.event_type, reason.as_deref());
        session.state_at = now;
        if event.event_type == OPENING_EVENT {
            session.is_opening = true;
        } else if state != session.state {
            session.is_opening = false;
            session.state = state;
            self.refresh(key);
        }
    }

    /// Notes from an event of a session that is not open whether its next exchange opens it or
    /// starts a turn. A harness reports a start and makes its exchange in one call, so the event
    /// comes first.
    fn note_before_opening(&mut self, id: SessionId, event_type: &str) {
        let is_start = event_type == OPENING_EVENT;
        if is_start || SessionState::default().after_event(event_type, None).is_in_turn() {
            self.table.take_announced(&id);
        }
        if is_start {
            self.table.announce(id);
        }
    }

    /// Accepts a client's own files as evidence that no turn was running at `as_of`, unless its
    /// harness reported later. A turn whose end no hook reported was stopped by the user.
    pub fn note_idle(&mut self, id: &SessionId, as_of: Timestamp) {
        let Some(key) = self.table.open_key(id) else { return };
        self.catch_up(key);
        let session = self.table.get_mut(key);
        if session.state_at <= as_of {
            (session.state, session.state_at) = (session.state.after_unreported_end(), as_of);
            self.refresh(key);
        }
    }

    /// Counts an attached client as activity.
    pub fn note_attached(&mut self, id: &SessionId, now: Timestamp) {
        let Some(key) = self.table.open_key(id) else { return };
        self.catch_up(key);
        let session = self.table.get_mut(key);
        (session.last_seen, session.attached_at) = (now, Some(now));
        self.refresh(key);
    }

    /// Whether no turn is running in the current session of the process that was in `id`.
    pub fn is_idle(&self, id: &SessionId) -> bool {
        let current = self.table.open_key(&self.current(id));
        current.is_none_or(|key| !self.table.get(key).state.is_in_turn())
    }
}

impl Session {
    /// Updates the turn state after an exchange that was not a repetition.
    pub(super) fn note_point(&mut self, exchange: &Exchange, answer: &Answer, now: Timestamp) -> Passed {
        match exchange.trigger {
            Trigger::Pull => return Passed::default(),
            Trigger::Wake if answer.injection.is_none() => return Passed::default(),
            // Text taken by a wake route starts a turn, even in a session that has had none.
            Trigger::Wake => self.is_opening = false,
            Trigger::Agent => {
                self.state_at = now;
                let is_turn_start = exchange.point == InjectionPoint::TurnStart;
                if is_turn_start && std::mem::take(&mut self.is_opening) {
                    return Passed::default();
                }
            }
        }
        self.state = self.state.after_exchange(exchange.point, answer.directive.as_ref());
        self.state_at = now;
        if let Some(turn) = &exchange.turn {
            self.turns.note_id(turn);
        }
        self.turns.note_exchange(exchange.point, answer.directive.as_ref())
    }
}

/// The `reason` of a payload, if it is a string.
fn reason_of(payload: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Reason {
        reason: String,
    }
    serde_json::from_str(payload).ok().map(|Reason { reason }| reason)
}
