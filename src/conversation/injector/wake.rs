//! Whether the queue justifies waking or interrupting an agent.
//!
//! An idle session is woken by an active notification of at least the threshold's priority, and by
//! any that its user wants discussed. A running turn is interrupted only by critical ones, each as
//! it specifies; one that waits for the next turn interrupts nothing.

use crate::{
    notification::{Notification, Priority},
    session::{SessionState, Wake, WakeKind},
};

use super::{
    entry::{Hold, Lane},
    queue::Queue,
};

/// The wake that the queue requests while its session is in `state`; `None` when it can wait.
pub(super) fn wanted(queue: &Queue, state: SessionState, threshold: Priority) -> Option<Wake> {
    if state == SessionState::Idle {
        let is_worth_a_turn = |lane: Lane| lane.urgency.0 >= threshold || lane.hold == Hold::Asked;
        let cause = queue.most_urgent_active(is_worth_a_turn)?;
        return Some(wake(WakeKind::StartTurn, cause));
    }
    if !state.is_in_turn() {
        return None;
    }
    let critical = |hold| {
        queue.most_urgent_active(|lane: Lane| lane.urgency.0 == Priority::Critical && lane.hold == hold)
    };
    let cancels = critical(Hold::Cancels).map(|cause| wake(WakeKind::CancelAndRestart, cause));
    cancels.or_else(|| critical(Hold::Free).map(|cause| wake(WakeKind::InjectAndContinue, cause)))
}

fn wake(kind: WakeKind, cause: &Notification) -> Wake {
    Wake { kind, reason: format!("{}: {}", cause.priority, cause.subscriber).into() }
}
