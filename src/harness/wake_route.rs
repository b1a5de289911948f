//! By which route a session is woken whose harness makes no exchange by itself.

use crate::session::WakeKind;

/// A way in which a session can be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeRoute {
    /// A process of the session that follows its queue, such as `aside attach`, and makes the exchange itself.
    Monitor,
    /// The client's own socket for messages, to which the daemon writes what an exchange of its own releases.
    MessageSocket,
    /// None: what is pending is delivered at the next hook.
    NextHook,
}

/// The one route for a wake of `kind`.
///
/// Shape: in a turn it is the next hook. A client shows what is pushed at the next boundary of the turn, where it runs a hook
/// too; the hook comes for less, and before a tool it can hold the call back. For an idle session a monitor goes first, as its line
/// is shown as what it is; a message is shown as one of another agent.
///
/// Source: measured with client 2.1.329: a pushed text lands at the next tool boundary, in some 160 tokens of wrapping.
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
