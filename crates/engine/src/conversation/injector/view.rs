//! What a session's queue tells others: its notifications for display, the wake that it requests, and
//! the line for the user.
//!
//! An idle session is woken by an active notification of at least the threshold's priority, and by
//! any that its user wants discussed; not by one for which another session is woken. If its user
//! interrupted the turn, only critical ones wake it, and those that it asked for. A running turn is
//! interrupted only by critical ones, each as it specifies; one that waits for the next turn
//! interrupts nothing.
//!
//! A harness shows its user one line: the notifications that wait for the user's decision, and those
//! just delivered.

use std::{sync::Arc, time::Duration};

use journal::time::Timestamp;

use super::{
    budget::Fitted,
    entry::{Entry, Lane, Readiness},
    lease::{Lease, Leases},
    queue::Queue,
};
use crate::{
    exchange::{Directive, InjectionId, LINE_BEGIN},
    hold::Hold,
    notification::{InjectionPoint, Notification, NotificationId, Priority, SubscriberId},
    session::{SessionState, Wake, WakeKind},
};

/// One session's notifications at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectorView {
    /// The pending ones, in delivery order.
    pub pending: Vec<PendingView>,
    /// The unconfirmed ones, oldest release first.
    pub leases: Vec<LeaseView>,
}

/// A pending notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingView {
    /// The notification.
    pub notification: Arc<Notification>,
    /// Whether it waits for the user to release it to the agent.
    pub is_for_user: bool,
    /// How long ago it was made.
    pub age: Duration,
    /// Whether it may have been delivered before.
    pub redelivered: bool,
    /// What keeps it from being released.
    pub holds: Vec<Hold>,
}

/// An unconfirmed injection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// Its id.
    pub injection: InjectionId,
    /// The point that released it.
    pub point: InjectionPoint,
    /// The message that carries it.
    pub carrier: Arc<str>,
    /// How long ago it was released.
    pub age: Duration,
    /// When its lease expires.
    pub expires_at: Timestamp,
    /// Its notifications.
    pub notifications: Vec<NotificationId>,
}

pub(super) fn view(queue: &Queue, leases: &Leases, now: Timestamp) -> InjectorView {
    InjectorView {
        pending: queue.in_order().into_iter().map(|entry| pending(entry, now)).collect(),
        leases: leases.iter().map(|lease| on_its_way(lease, now)).collect(),
    }
}

/// A pending notification at `now`.
pub(super) fn pending(entry: &Entry, now: Timestamp) -> PendingView {
    PendingView {
        notification: Arc::clone(&entry.notification),
        is_for_user: entry.is_for_user(),
        age: now.since(entry.notification.created_at),
        redelivered: entry.redelivered().is_some(),
        holds: entry.holds.clone(),
    }
}

fn on_its_way(lease: &Lease, now: Timestamp) -> LeaseView {
    LeaseView {
        injection: lease.injection,
        point: lease.point,
        carrier: lease.carrier.clone(),
        age: now.since(lease.released_at),
        expires_at: lease.expires_at,
        notifications: lease.entries.iter().map(|entry| entry.notification.id).collect(),
    }
}

/// The wake that the queue requests while its session is in `state`; `None` when it can wait.
pub(super) fn wanted_wake(queue: &Queue, state: SessionState, threshold: Priority) -> Option<Wake> {
    if !state.is_in_turn() {
        let is_worth_a_turn = |lane: Lane| lane.urgency.0 >= threshold || lane.readiness == Readiness::Asked;
        let has_effect = |entry: &Entry| !entry.is_quiet && is_worth_it_in(state, entry);
        let cause = queue.most_urgent_active(is_worth_a_turn, has_effect)?;
        return Some(wake(WakeKind::StartTurn, cause, queue));
    }
    let critical = |hold| {
        let is_it = |lane: Lane| lane.urgency.0 == Priority::Critical && lane.readiness == hold;
        queue.most_urgent_active(is_it, |_| true)
    };
    let cancels = critical(Readiness::Cancels).map(|cause| wake(WakeKind::CancelAndRestart, cause, queue));
    cancels.or_else(|| critical(Readiness::Free).map(|cause| wake(WakeKind::InjectAndContinue, cause, queue)))
}

/// Whether an active notification wakes a session in `state`, in which no turn is running.
fn is_worth_it_in(state: SessionState, entry: &Entry) -> bool {
    let notification = &entry.notification;
    let is_asked = notification.is_asked || entry.readiness() == Readiness::Asked;
    state != SessionState::Interrupted || notification.priority == Priority::Critical || is_asked
}

fn wake(kind: WakeKind, cause: &Notification, queue: &Queue) -> Wake {
    let causes = u32::try_from(queue.len_of_active()).unwrap_or(u32::MAX);
    Wake { kind, reason: format!("{}: {}", cause.priority, cause.subscriber).into(), causes }
}

/// The text for the user about a delivery; `None` if all of it is of low priority, or if the
/// harness shows the reason of a directive.
pub(super) fn delivery_text<'f>(
    fitted: Option<&'f Fitted>,
    directive: Option<&Directive>,
) -> Option<&'f str> {
    let fitted = fitted.filter(|_| directive.is_none())?;
    let is_worth_it = |priority: Priority| priority > Priority::Low;
    fitted
        .chosen
        .iter()
        .any(|chosen| is_worth_it(chosen.notification.priority))
        .then_some(fitted.sentence.as_str())
}

/// The line from its parts; `None` when it is empty. Each waiting notification is announced once.
pub(super) fn user_line(
    queue: &mut Queue,
    delivered: Option<&str>,
    for_user: Option<&str>,
) -> Option<Arc<str>> {
    let shown = queue.show_to_user();
    let subscribers: Vec<&str> = shown.iter().map(SubscriberId::as_str).collect();
    let waiting = (!subscribers.is_empty())
        .then(|| format!("{} waiting for you: {}", queue.len_for_user(), subscribers.join(", ")));
    let said = match (waiting, delivered) {
        (None, None) => None,
        (Some(waiting), None) => Some(waiting),
        (None, Some(delivered)) => Some(delivered.to_owned()),
        // The waiting ones come first, because their part contains no payload.
        (Some(waiting), Some(delivered)) => Some(format!("{waiting}; delivered: {delivered}")),
    };
    // Text written by others comes last, whole.
    let parts: Vec<&str> = said.as_deref().into_iter().chain(for_user).collect();
    (!parts.is_empty()).then(|| format!("{LINE_BEGIN}{}", parts.join("; ")).into())
}
