//! Where a conversation stands, and what its queue asks of its harness.
//!
//! A session's state follows from what its harness does: the points at which it makes exchanges, and the events it reports of its
//! turns. What it does in between is not known, so a state is the last thing that was seen.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::notification::InjectionPoint;

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// No turn is under way.
    #[default]
    Idle,
    /// A turn has begun, and the model writes.
    Streaming,
    /// A tool is about to run, or waits for leave.
    ToolPending,
    /// A tool has run, and the model goes on.
    ToolComplete,
    /// The turn was at its end and was prolonged.
    Continuing,
    /// The turn was stopped by its user.
    Interrupted,
}

impl SessionState {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Streaming => "streaming",
            Self::ToolPending => "tool_pending",
            Self::ToolComplete => "tool_complete",
            Self::Continuing => "continuing",
            Self::Interrupted => "interrupted",
        }
    }

    /// The state after an exchange at `point`.
    ///
    /// `is_prolonged`: the turn was asked to go on. An exchange that took what cancels the step under way leaves the turn under way:
    /// the agent decides again, and can be reached meanwhile.
    #[must_use]
    pub fn after_exchange(self, point: InjectionPoint, is_prolonged: bool) -> Self {
        match point {
            InjectionPoint::TurnStart => Self::Streaming,
            InjectionPoint::BeforeTool => Self::ToolPending,
            InjectionPoint::AfterTool => Self::ToolComplete,
            InjectionPoint::TurnEnd if is_prolonged => Self::Continuing,
            InjectionPoint::TurnEnd => Self::Idle,
            InjectionPoint::Immediate => self,
        }
    }

    /// The state after an event of `event_type` that is addressed to the session and gives this `reason`.
    ///
    /// Shape: that an agent waits for the next prompt shows that its turn is over, also where nobody reported its end; one that was
    /// stopped stays so.
    #[must_use]
    pub fn after_event(self, event_type: &str, reason: Option<&str>) -> Self {
        match event_type {
            WAITING_EVENT if reason == Some("idle_prompt") && self.is_in_turn() => Self::Idle,
            "agent.turn.start" => Self::Streaming,
            "agent.turn.end" | "agent.turn.failed" | "agent.session.end" => Self::Idle,
            "agent.turn.interrupted" => Self::Interrupted,
            "tool.call.pending" => Self::ToolPending,
            "tool.call.success" | "tool.call.failure" | "tool.call.timeout" => Self::ToolComplete,
            _ => self,
        }
    }

    /// Whether a turn is under way.
    pub const fn is_in_turn(self) -> bool {
        match self {
            Self::Streaming | Self::ToolPending | Self::ToolComplete | Self::Continuing => true,
            Self::Idle | Self::Interrupted => false,
        }
    }
}

/// Says that an agent waits for its user; its payload gives the `reason`.
pub const WAITING_EVENT: &str = "agent.waiting";

/// Says that the next `turn_start` of a session opens it and begins no turn, unless an `agent.turn.start` comes between.
pub const OPENING_EVENT: &str = "agent.session.start";

/// Says that a session ended; its payload gives the `reason`.
pub const CLOSING_EVENT: &str = "agent.session.end";

/// The reason of a session whose user emptied the conversation: the same process goes on in another session, which takes its
/// place.
pub const CLEARED: &str = "clear";

/// What a session's queue asks of its harness by itself. It carries no text: that leaves by an exchange alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    /// What is to be done.
    pub kind: WakeKind,
    /// One line for whoever wonders why: a priority and a subscriber.
    pub reason: Arc<str>,
}

/// What a harness is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeKind {
    /// The session is idle: begin a turn, with an exchange at `turn_start`.
    StartTurn,
    /// A turn is under way: make an exchange at its next boundary, and let it go on.
    InjectAndContinue,
    /// A turn is under way: cancel its step, make an exchange, and let the agent decide anew.
    CancelAndRestart,
}

impl WakeKind {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StartTurn => "start_turn",
            Self::InjectAndContinue => "inject_and_continue",
            Self::CancelAndRestart => "cancel_and_restart",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SessionState::{Continuing, Idle, Interrupted, Streaming, ToolComplete, ToolPending};

    #[test]
    fn a_turn_goes_through_its_states() {
        let points = [
            (InjectionPoint::TurnStart, false, Streaming),
            (InjectionPoint::BeforeTool, false, ToolPending),
            (InjectionPoint::Immediate, false, ToolPending),
            (InjectionPoint::AfterTool, false, ToolComplete),
            (InjectionPoint::TurnEnd, true, Continuing),
            (InjectionPoint::Immediate, false, Continuing),
            (InjectionPoint::TurnEnd, false, Idle),
        ];
        let mut state = SessionState::default();
        for (point, is_prolonged, expected) in points {
            state = state.after_exchange(point, is_prolonged);
            assert_eq!(state, expected, "{point}");
        }
    }

    #[test]
    fn events_of_a_turn_say_where_it_stands_and_others_say_nothing() {
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
            (Streaming, "idle_prompt", Idle),
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
