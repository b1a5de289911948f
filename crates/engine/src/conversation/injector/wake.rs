//! Whether the queue justifies waking or interrupting an agent.
//!
//! An idle session is woken by an active notification of at least the threshold's priority, and by
//! any that its user wants discussed; not by one for which another session is woken. If its user
//! interrupted the turn, only critical ones wake it, and those that it asked for. A running turn is
//! interrupted only by critical ones, each as it specifies; one that waits for the next turn
//! interrupts nothing.

use crate::{
    notification::{Notification, Priority},
    session::{SessionState, Wake, WakeKind},
};

use super::{
    entry::{Entry, Hold, Lane},
    queue::Queue,
};

/// The wake that the queue requests while its session is in `state`; `None` when it can wait.
pub(super) fn wanted(queue: &Queue, state: SessionState, threshold: Priority) -> Option<Wake> {
    if !state.is_in_turn() {
        let is_worth_a_turn = |lane: Lane| lane.urgency.0 >= threshold || lane.hold == Hold::Asked;
        let has_effect = |entry: &Entry| !entry.is_quiet && is_worth_it_in(state, entry);
        let cause = queue.most_urgent_active(is_worth_a_turn, has_effect)?;
        return Some(wake(WakeKind::StartTurn, cause, queue));
    }
    let critical = |hold| {
        let is_it = |lane: Lane| lane.urgency.0 == Priority::Critical && lane.hold == hold;
        queue.most_urgent_active(is_it, |_| true)
    };
    let cancels = critical(Hold::Cancels).map(|cause| wake(WakeKind::CancelAndRestart, cause, queue));
    cancels.or_else(|| critical(Hold::Free).map(|cause| wake(WakeKind::InjectAndContinue, cause, queue)))
}

/// Whether an active notification wakes a session in `state`, in which no turn is running.
fn is_worth_it_in(state: SessionState, entry: &Entry) -> bool {
    let notification = &entry.notification;
    let is_asked = notification.is_asked || entry.hold() == Hold::Asked;
    state != SessionState::Interrupted || notification.priority == Priority::Critical || is_asked
}

fn wake(kind: WakeKind, cause: &Notification, queue: &Queue) -> Wake {
    let causes = u32::try_from(queue.len_of_active()).unwrap_or(u32::MAX);
    Wake { kind, reason: format!("{}: {}", cause.priority, cause.subscriber).into(), causes }
}
