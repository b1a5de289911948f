//! The state of each session's turn, from its harness's events and exchanges.

use serde::Deserialize;

use super::{Engine, sessions::Sessions};
use crate::{
    event::{EventRef, SessionId},
    exchange::{Answer, Exchange, Trigger},
    notification::InjectionPoint,
    session::{CLEARED, CLOSING_EVENT, OPENING_EVENT, SessionState, WAITING_EVENT},
    time::Timestamp,
};

/// Most sessions whose start was reported before their first exchange; beyond that the first
/// exchange of the oldest counts as a turn.
const ANNOUNCED_MAX: usize = 64;

impl Engine {
    /// Updates the turn state of an event's session.
    pub(super) fn note_turn(&mut self, event: &EventRef<'_>, now: Timestamp) {
        let is_of_an_agent = event.event_type.starts_with("agent.");
        let is_of_a_tool = event.event_type.starts_with("tool.call.");
        let Some(id) = event.session.filter(|_| is_of_an_agent || is_of_a_tool).map(SessionId::new) else {
            return;
        };
        let is_trusted = self.rules.wake.trusts(event.source, event.provenance);
        let Some(session) = self.sessions.get_mut(&id) else {
            if is_trusted {
                self.sessions.note_before_opening(&id, event.event_type);
            }
            return;
        };
        // Anyone may report a failed tool or a finished agent; only the harness knows the turn
        // state.
        let is_own = match session.harness.name.as_deref() {
            Some(harness) => is_trusted && harness == event.source,
            None => is_trusted && is_of_an_agent,
        };
        if !is_own {
            return;
        }
        let has_reason = event.event_type == WAITING_EVENT || event.event_type == CLOSING_EVENT;
        let reason = has_reason.then(|| reason_of(event.payload)).flatten();
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
            self.settle_session(&id);
        }
    }

    /// Updates the turn state after an exchange that was not a repetition.
    pub(super) fn note_point(&mut self, exchange: &Exchange, answer: &Answer, now: Timestamp) {
        let Some(session) = self.sessions.get_mut(&exchange.session) else { return };
        match exchange.trigger {
            Trigger::Pull => return,
            Trigger::Wake if answer.injection.is_none() => return,
            // What a wake route takes starts a turn, even in a session that has had none.
            Trigger::Wake => session.is_opening = false,
            Trigger::Agent => {
                session.state_at = now;
                let is_turn_start = exchange.point == InjectionPoint::TurnStart;
                if is_turn_start && std::mem::take(&mut session.is_opening) {
                    return;
                }
            }
        }
        session.state = session.state.after_exchange(exchange.point, answer.directive.is_some());
        session.state_at = now;
    }

    /// Accepts a client's own files as evidence that no turn was running at `as_of`, unless its
    /// harness reported later.
    pub(super) fn note_idle(&mut self, id: &SessionId, as_of: Timestamp) {
        let Some(session) = self.sessions.get_mut(id).filter(|session| session.state_at <= as_of) else {
            return;
        };
        session.state = SessionState::Idle;
        session.state_at = as_of;
        self.settle_session(id);
    }

    /// Counts an attached client as activity.
    pub(super) fn note_attached(&mut self, id: &SessionId, now: Timestamp) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.last_seen = now;
        session.attached_at = Some(now);
        self.settle_session(id);
    }
}

impl Sessions {
    /// Notes from an event of a session that is not open whether its next exchange opens it or
    /// starts a turn. A harness reports a start and makes its exchange in one call, so the event
    /// comes first.
    fn note_before_opening(&mut self, id: &SessionId, event_type: &str) {
        let is_start = event_type == OPENING_EVENT;
        if is_start || SessionState::default().after_event(event_type, None).is_in_turn() {
            self.take_announced(id);
        }
        if is_start {
            self.announced.push(id.clone());
            if self.announced.len() > ANNOUNCED_MAX {
                self.announced.remove(0);
            }
        }
    }

    /// Whether the session's start was reported before it was open; forgets the report.
    pub(super) fn take_announced(&mut self, id: &SessionId) -> bool {
        let at = self.announced.iter().position(|announced| announced == id);
        at.map(|at| self.announced.remove(at)).is_some()
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
