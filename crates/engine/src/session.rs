//! The state of a conversation, and the requests of its queue to its harness.
//!
//! The state derives from the points of the harness's exchanges and from the events about its
//! turns. Nothing reports the state between them, so it is always the last one observed.

use std::sync::Arc;

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::{
    event::SessionId,
    exchange::{Directive, Harness},
    notification::{InjectionPoint, Priority},
    sorted::SortedSet,
};

impl_as_str!(SessionState, WakeKind);

/// The sessions whose data may be read. Data of no session may always be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Readable {
    /// All.
    #[default]
    All,
    /// These, by each of their names.
    Of(SortedSet<SessionId>),
}

impl Readable {
    /// Whether the data of `session` may be read.
    pub fn contains(&self, session: Option<&str>) -> bool {
        match (self, session) {
            (Self::All, _) | (Self::Of(_), None) => true,
            (Self::Of(sessions), Some(session)) => sessions.contains(session),
        }
    }
}

/// A change of a session's identity, which the state kept for it follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Succession {
    /// The state of `from` now belongs to `to`, which continues it.
    Continued {
        /// The session that ended with it.
        from: SessionId,
        /// Its successor.
        to: SessionId,
    },
    /// The state of `from` is also true of `to`, which is a copy of it.
    Copied {
        /// The original, which stays open.
        from: SessionId,
        /// The copy.
        to: SessionId,
    },
    /// The session ended and cannot be resumed.
    Ended {
        /// The session.
        session: SessionId,
        /// The session of which it was a subagent.
        parent: Option<SessionId>,
    },
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SessionState {
    /// No turn is running.
    #[default]
    Idle,
    /// A turn has started, and the model is writing.
    Streaming,
    /// A tool is about to run, or waits for permission.
    ToolPending,
    /// A tool has run, and the model continues.
    ToolComplete,
    /// The turn was about to end, and was asked to continue.
    Continuing,
    /// The user stopped the turn.
    Interrupted,
}

impl SessionState {
    /// The state after an exchange at `point` with this `directive`.
    ///
    /// Shape: a directive at the end of a turn prolongs the turn. If an exchange cancels the
    /// current step, the turn continues: the agent decides again, and can be reached meanwhile.
    #[must_use]
    pub fn after_exchange(self, point: InjectionPoint, directive: Option<&Directive>) -> Self {
        match point {
            InjectionPoint::TurnStart => Self::Streaming,
            InjectionPoint::BeforeTool => Self::ToolPending,
            InjectionPoint::AfterTool => Self::ToolComplete,
            InjectionPoint::TurnEnd if directive.is_some() => Self::Continuing,
            InjectionPoint::TurnEnd => Self::Idle,
            InjectionPoint::Immediate => self,
        }
    }

    /// The state after an event of `event_type` with this `reason`, addressed to the session.
    ///
    /// Shape: an agent that waits for the next prompt has ended its turn; if no end was reported, its
    /// user stopped it. A stopped turn remains stopped.
    #[must_use]
    pub fn after_event(self, event_type: &str, reason: Option<&str>) -> Self {
        match event_type {
            WAITING_EVENT if reason == Some("idle_prompt") => self.after_unreported_end(),
            "agent.turn.start" => Self::Streaming,
            "agent.turn.end" | "agent.turn.failed" | "agent.session.end" => Self::Idle,
            "agent.turn.interrupted" => Self::Interrupted,
            "tool.call.pending" => Self::ToolPending,
            "tool.call.success" | "tool.call.failure" | "tool.call.timeout" => Self::ToolComplete,
            _ => self,
        }
    }

    /// The state if no turn is running any more, although no end of one was reported: its user
    /// stopped it, since a client reports each other end.
    #[must_use]
    pub const fn after_unreported_end(self) -> Self {
        if self.is_in_turn() { Self::Interrupted } else { self }
    }

    /// Whether a turn is running.
    pub const fn is_in_turn(self) -> bool {
        match self {
            Self::Streaming | Self::ToolPending | Self::ToolComplete | Self::Continuing => true,
            Self::Idle | Self::Interrupted => false,
        }
    }
}

/// The event type for an agent that waits for its user; its payload has the `reason`.
pub const WAITING_EVENT: &str = "agent.waiting";

/// The event type for the start of a turn.
pub const TURN_START_EVENT: &str = "agent.turn.start";

/// The event type for the end of a turn.
pub const TURN_END_EVENT: &str = "agent.turn.end";

/// The event type for the start of a session: the next `turn_start` opens it without starting a
/// turn, unless an `agent.turn.start` occurs first.
pub const OPENING_EVENT: &str = "agent.session.start";

/// The event type for the end of a session; its payload has the `reason`.
pub const CLOSING_EVENT: &str = "agent.session.end";

/// The reason of an end after the user cleared the conversation: the same process continues in
/// another session, the successor.
pub const CLEARED: &str = "clear";

/// A request of a session's queue to its harness. It contains no text; only an exchange does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    /// What the harness should do.
    pub kind: WakeKind,
    /// One line of explanation: a priority and a subscriber.
    pub reason: Arc<str>,
    /// The number of pending notifications that may wake the agent.
    pub causes: u32,
}

impl Wake {
    /// Whether it asks for a turn.
    pub fn starts_turn(&self) -> bool {
        self.kind == WakeKind::StartTurn
    }
}

/// The action requested of a harness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum WakeKind {
    /// For an idle session: start a turn, with an exchange at `turn_start`.
    StartTurn,
    /// For a running turn: make an exchange at its next boundary, and let it continue.
    InjectAndContinue,
    /// For a running turn: cancel its step, make an exchange, and let the agent decide again.
    CancelAndRestart,
}

/// Whether the client itself started the turn that an event [`TURN_START_EVENT`] reports.
pub fn is_started_by_client(payload: &str) -> bool {
    #[derive(Deserialize)]
    struct Started {
        started_by: String,
    }
    serde_json::from_str(payload).is_ok_and(|Started { started_by }| started_by == "client")
}

/// A change of a session, except of its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionChange {
    /// The session began, with these properties.
    Opened(Harness),
    /// Its properties changed.
    Updated(Harness),
    /// The session ended.
    Closed {
        /// When it was last active.
        last_seen: Timestamp,
        /// Whether its queue is kept because the session can be resumed; otherwise the
        /// notifications moved to another session or ended.
        keeps_pending: bool,
    },
}

/// The state of a session's queue, without text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The session.
    pub session: SessionId,
    /// The number of notifications for the agent.
    pub count: u32,
    /// The highest priority of these; `None` if there are none.
    pub top: Option<Priority>,
    /// The number of notifications that wait for the user's decision.
    pub for_user: u32,
    /// The queue's request to the harness; `None` if it can wait for the next point.
    pub wake: Option<Wake>,
    /// Whether a turn is running, and something is pending that would wake the agent if its user
    /// had stopped that turn, which a client may not report.
    pub wakes_if_stopped: bool,
    /// Whether the harness has ended the session.
    pub is_closed: bool,
    /// The session in which the harness's process continues; `None` if unknown.
    pub moved_to: Option<SessionId>,
}

impl Pending {
    /// The state of an empty queue.
    pub fn nothing(session: SessionId) -> Self {
        Self {
            session,
            count: 0,
            top: None,
            for_user: 0,
            wake: None,
            wakes_if_stopped: false,
            is_closed: false,
            moved_to: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SessionState::{Continuing, Idle, Interrupted, Streaming, ToolComplete, ToolPending};

    #[test]
    fn a_turn_goes_through_its_states() {
        let prolonged = Directive::Continue { reason: "a test failed".into() };
        let points = [
            (InjectionPoint::TurnStart, None, Streaming),
            (InjectionPoint::BeforeTool, None, ToolPending),
            (InjectionPoint::Immediate, None, ToolPending),
            (InjectionPoint::AfterTool, None, ToolComplete),
            (InjectionPoint::TurnEnd, Some(&prolonged), Continuing),
            (InjectionPoint::Immediate, None, Continuing),
            (InjectionPoint::TurnEnd, None, Idle),
        ];
        let mut state = SessionState::default();
        for (point, directive, expected) in points {
            state = state.after_exchange(point, directive);
            assert_eq!(state, expected, "{point}");
        }
    }

    #[test]
    fn only_turn_events_change_the_session_state() {
        for (event_type, expected) in [
            ("agent.turn.start", Streaming),
            ("agent.turn.end", Idle),
            ("agent.turn.failed", Idle),
            ("agent.turn.interrupted", Interrupted),
            ("agent.waiting", ToolPending),
            ("tool.call.success", ToolComplete),
            ("tool.call.waiting", ToolPending),
        ] {
            assert_eq!(ToolPending.after_event(event_type, None), expected, "{event_type}");
        }
        for (state, reason, expected) in [
            (Streaming, "idle_prompt", Interrupted),
            (Idle, "idle_prompt", Idle),
            (Streaming, "permission_prompt", Streaming),
            (Interrupted, "idle_prompt", Interrupted),
        ] {
            assert_eq!(state.after_event(WAITING_EVENT, Some(reason)), expected, "{state:?} {reason}");
        }
    }

    #[test]
    fn a_stopped_turn_is_not_under_way() {
        let in_turn = [Idle, Streaming, ToolPending, ToolComplete, Continuing, Interrupted]
            .map(SessionState::is_in_turn);
        assert_eq!(in_turn, [false, true, true, true, true, false]);
    }
}
