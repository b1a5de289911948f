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

/// When a client takes what is written to its inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// At any time; a message to an idle session begins a turn.
    Always,
    /// During a turn: the process ends with its last one, and a message that comes later is lost.
    InTurn,
}

/// The one door for a wake of `kind`.
///
/// Shape: a monitor goes first, as its line is shown as what it is; an inbox's message is shown as one of another agent.
pub fn choose(has_monitor: bool, inbox: Option<Reach>, kind: WakeKind) -> Door {
    match (has_monitor, inbox, kind) {
        (true, _, _) => Door::Monitor,
        (false, Some(Reach::Always), _)
        | (false, Some(Reach::InTurn), WakeKind::InjectAndContinue | WakeKind::CancelAndRestart) => {
            Door::Inbox
        }
        (false, Some(Reach::InTurn), WakeKind::StartTurn) | (false, None, _) => Door::NextHook,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use WakeKind::{CancelAndRestart, InjectAndContinue, StartTurn};

    #[test]
    fn there_is_one_door_and_the_monitor_goes_first() {
        for (has_monitor, inbox, kind, expected) in [
            (true, None, StartTurn, Door::Monitor),
            (true, Some(Reach::Always), InjectAndContinue, Door::Monitor),
            (false, Some(Reach::Always), StartTurn, Door::Inbox),
            (false, Some(Reach::InTurn), InjectAndContinue, Door::Inbox),
            (false, Some(Reach::InTurn), CancelAndRestart, Door::Inbox),
            (false, Some(Reach::InTurn), StartTurn, Door::NextHook),
            (false, None, CancelAndRestart, Door::NextHook),
        ] {
            assert_eq!(choose(has_monitor, inbox, kind), expected, "{has_monitor} {inbox:?} {kind:?}");
        }
    }
}
