//! The pending and leased notifications of a session, for display; changes nothing.

use std::{sync::Arc, time::Duration};

use journal::time::Timestamp;

use crate::{
    exchange::InjectionId,
    notification::{InjectionPoint, Notification, NotificationId},
};

use super::{
    entry::Entry,
    lease::{Lease, Leases},
    queue::Queue,
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

fn pending(entry: &Entry, now: Timestamp) -> PendingView {
    PendingView {
        notification: Arc::clone(&entry.notification),
        is_for_user: entry.is_for_user(),
        age: now.since(entry.notification.created_at),
        redelivered: entry.redelivered().is_some(),
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
