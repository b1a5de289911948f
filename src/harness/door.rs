//! Through which door a session that is to be woken is reached, when its harness makes no exchange by itself.

use crate::session::WakeKind;

/// A way into a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// A process of the session that follows its queue, such as `aside attach`, and makes the exchange itself.
    Monitor,
    /// The client's own socket, to which the daemon writes what an exchange of its own releases.
    Inbox,
    /// None: what waits is told at the next hook.
    NextHook,
}

/// The one door for a wake of `kind`.
///
/// Shape: in a turn it is the next hook. A client shows what is pushed at the next boundary of the turn, where it runs a hook
/// too; the hook comes for less, and before a tool it can hold the call back. For an idle session a monitor goes first, as its line
/// is shown as what it is; an inbox's message is shown as one of another agent.
///
/// Source: measured with client 2.1.329: a pushed text lands at the next tool boundary, in some 160 tokens of wrapping.
pub fn choose(has_monitor: bool, has_inbox: bool, kind: WakeKind) -> Door {
    match (kind, has_monitor, has_inbox) {
        (WakeKind::StartTurn, true, _) => Door::Monitor,
        (WakeKind::StartTurn, false, true) => Door::Inbox,
        (WakeKind::StartTurn, false, false)
        | (WakeKind::InjectAndContinue | WakeKind::CancelAndRestart, _, _) => Door::NextHook,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use WakeKind::{CancelAndRestart, InjectAndContinue, StartTurn};

    #[test]
    fn an_idle_session_has_one_door_and_a_turn_has_its_hooks() {
        for (has_monitor, has_inbox, kind, expected) in [
            (true, false, StartTurn, Door::Monitor),
            (true, true, StartTurn, Door::Monitor),
            (false, true, StartTurn, Door::Inbox),
            (false, false, StartTurn, Door::NextHook),
            (true, true, InjectAndContinue, Door::NextHook),
            (true, true, CancelAndRestart, Door::NextHook),
        ] {
            assert_eq!(choose(has_monitor, has_inbox, kind), expected, "{has_monitor} {has_inbox} {kind:?}");
        }
    }
}
