//! What waits for a session and what is on its way to it, for whoever looks; changes nothing.

use std::{sync::Arc, time::Duration};

use crate::{
    exchange::InjectionId,
    notification::{InjectionPoint, NotificationId, Priority, SubscriberId},
    time::Timestamp,
};

use super::{
    lease::{Lease, Leases},
    queue::{Entry, Queue},
};

/// One session's notifications at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectorView {
    /// What waits, in the order in which it would be told.
    pub pending: Vec<PendingView>,
    /// What was released and is not confirmed, oldest release first.
    pub leases: Vec<LeaseView>,
}

/// A notification that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingView {
    /// Its id.
    pub id: NotificationId,
    /// Who made it.
    pub subscriber: SubscriberId,
    /// How urgent it is.
    pub priority: Priority,
    /// What it says, as TOON.
    pub content: Arc<str>,
    /// Whether it waits for the user to say that the agent may have it.
    pub is_for_user: bool,
    /// Where it may enter the context.
    pub inject_at: InjectionPoint,
    /// How long ago it was made.
    pub age: Duration,
    /// When it is no longer worth telling.
    pub expires_at: Option<Timestamp>,
    /// Whether it may have been told before.
    pub redelivered: bool,
}

/// An injection on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// Its short name.
    pub injection: InjectionId,
    /// Where it was released.
    pub point: InjectionPoint,
    /// The message it rides on.
    pub carrier: Arc<str>,
    /// How long ago it was released.
    pub age: Duration,
    /// When it stops being waited for.
    pub expires_at: Timestamp,
    /// What is in it.
    pub notifications: Vec<NotificationId>,
}

pub(super) fn view(queue: &Queue, leases: &Leases, now: Timestamp) -> InjectorView {
    InjectorView {
        pending: queue.in_order().into_iter().map(|entry| pending(entry, now)).collect(),
        leases: leases.iter().map(|lease| on_its_way(lease, now)).collect(),
    }
}

fn pending(entry: &Entry, now: Timestamp) -> PendingView {
    let notification = &entry.notification;
    PendingView {
        id: notification.id.clone(),
        subscriber: notification.subscriber.clone(),
        priority: notification.priority,
        content: notification.content.text().clone(),
        is_for_user: entry.is_for_user(),
        inject_at: notification.inject_at,
        age: now.since(notification.created_at),
        expires_at: notification.expires_at,
        redelivered: entry.redelivered().is_some(),
    }
}

fn on_its_way(lease: &Lease, now: Timestamp) -> LeaseView {
    LeaseView {
        injection: lease.injection.clone(),
        point: lease.point,
        carrier: lease.carrier.clone(),
        age: now.since(lease.released_at),
        expires_at: lease.expires_at,
        notifications: lease.entries.iter().map(|entry| entry.notification.id.clone()).collect(),
    }
}
