//! Selects the wake route of a session whose harness does not start an exchange automatically.

use crate::session::WakeKind;

/// A wake route of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeRoute {
    /// A process of the session that follows its queue and makes the exchange itself, such as
    /// `aside attach`.
    Monitor,
    /// The client's own message socket, to which the daemon writes the text released by its own
    /// exchange.
    MessageSocket,
    /// None: pending notifications are delivered at the next hook.
    NextHook,
}

/// The one route for a wake of `kind`.
///
/// Shape: during a turn it is the next hook. A client shows a pushed message at the next boundary
/// of the turn, where it runs a hook too; the hook costs less, and before a tool it can defer the
/// call. For an idle session a monitor has precedence, because its line is shown as such; a message
/// is shown as one of another agent.
///
/// Source: measured with client 2.1.329: a pushed text arrives at the next tool boundary, wrapped
/// in some 160 tokens.
pub fn choose(has_monitor: bool, has_socket: bool, kind: WakeKind) -> WakeRoute {
    match (kind, has_monitor, has_socket) {
        (WakeKind::StartTurn, true, _) => WakeRoute::Monitor,
        (WakeKind::StartTurn, false, true) => WakeRoute::MessageSocket,
        (WakeKind::StartTurn, false, false)
        | (WakeKind::InjectAndContinue | WakeKind::CancelAndRestart, _, _) => WakeRoute::NextHook,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use WakeKind::{CancelAndRestart, InjectAndContinue, StartTurn};

    #[test]
    fn an_idle_session_has_one_route_and_a_turn_has_its_hooks() {
        for (has_monitor, has_socket, kind, expected) in [
            (true, false, StartTurn, WakeRoute::Monitor),
            (true, true, StartTurn, WakeRoute::Monitor),
            (false, true, StartTurn, WakeRoute::MessageSocket),
            (false, false, StartTurn, WakeRoute::NextHook),
            (true, true, InjectAndContinue, WakeRoute::NextHook),
            (true, true, CancelAndRestart, WakeRoute::NextHook),
        ] {
            assert_eq!(
                choose(has_monitor, has_socket, kind),
                expected,
                "{has_monitor} {has_socket} {kind:?}"
            );
        }
    }
}
