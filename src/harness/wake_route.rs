//! Selects the wake route of a session whose harness does not start an exchange automatically.

use crate::session::WakeKind;

/// A wake route of a session; the first ones have precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

/// The one route for a wake of `kind`, of those that a session has besides its hooks.
///
/// Shape: during a turn it is the next hook. A client shows a pushed message at the next boundary
/// of the turn, where it runs a hook too; the hook costs less, and before a tool it can defer the
/// call. For an idle session a monitor has precedence, because its line is shown as such; a message
/// is shown as one of another agent.
///
/// Source: measured with client 2.1.329: a pushed text arrives at the next tool boundary, wrapped
/// in some 160 tokens.
pub fn choose(kind: WakeKind, routes: impl IntoIterator<Item = WakeRoute>) -> WakeRoute {
    match kind {
        WakeKind::StartTurn => routes.into_iter().min().unwrap_or(WakeRoute::NextHook),
        WakeKind::InjectAndContinue | WakeKind::CancelAndRestart => WakeRoute::NextHook,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use WakeKind::{CancelAndRestart, InjectAndContinue, StartTurn};
    use WakeRoute::{MessageSocket, Monitor, NextHook};

    #[test]
    fn an_idle_session_has_one_route_and_a_turn_has_its_hooks() {
        let (none, one, both): (&[_], &[_], &[_]) = (&[], &[MessageSocket], &[MessageSocket, Monitor]);
        for (routes, kind, expected) in [
            (&[Monitor][..], StartTurn, Monitor),
            (both, StartTurn, Monitor),
            (one, StartTurn, MessageSocket),
            (none, StartTurn, NextHook),
            (both, InjectAndContinue, NextHook),
            (both, CancelAndRestart, NextHook),
        ] {
            assert_eq!(choose(kind, routes.iter().copied()), expected, "{routes:?} {kind:?}");
        }
    }
}
