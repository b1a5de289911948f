//! A pending notification that an exchange may release.

use std::sync::Arc;

use super::entry::Entry;
use crate::{
    exchange::Released,
    ledger::Redelivered,
    notification::{Cut, Notification},
};

/// A notification that could be released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The notification.
    pub notification: Arc<Notification>,
    /// Why it is redelivered, if it may have been delivered before.
    pub redelivered: Option<Redelivered>,
    /// Whether it already cancelled a tool call.
    pub has_cancelled: bool,
    /// The part that fits; `None` for all of it.
    pub cut: Option<Cut>,
}

/// An entry as it is offered.
pub(super) fn candidate(entry: &Entry) -> Candidate {
    Candidate {
        notification: entry.notification.clone(),
        redelivered: entry.redelivered(),
        has_cancelled: entry.has_cancelled,
        cut: None,
    }
}

/// An entry as it is released.
pub(super) fn released(entry: &Entry) -> Released {
    let notification = &entry.notification;
    Released {
        id: notification.id,
        subscriber: notification.subscriber.clone(),
        priority: notification.priority,
        severity: notification.severity,
        redelivered: entry.redelivered().is_some(),
    }
}
