//! The resolution of conditions by an event.

use std::sync::Arc;

use super::{Nature, Notification, State, StateKey, SubscriberId, Version};
use crate::event::{Scope, Seq};

/// Resolves conditions of one subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// The subscriber of the conditions.
    pub subscriber: SubscriberId,
    /// The resolving event; conditions of later events remain.
    pub seq: Seq,
    /// The sessions in which they are resolved.
    pub scope: Scope,
    /// The conditions.
    pub keys: Vec<StateKey>,
    /// The version of the resolving event; conditions of newer ones, and of other revisions without
    /// a known order, remain.
    pub version: Option<Box<Version>>,
}

impl Resolution {
    /// Returns `notification` without the resolved conditions; `None` if nothing changes.
    pub fn applied_to(&self, notification: &Notification) -> Option<Arc<Notification>> {
        let is_changed = notification.subscriber == self.subscriber
            && notification.unresolved.iter().any(|state| self.ends(state));
        is_changed.then(|| {
            let mut left = notification.clone();
            left.unresolved.retain(|state| !self.ends(state));
            Arc::new(left)
        })
    }

    /// Whether it resolves the condition `state`.
    pub fn ends(&self, state: &State) -> bool {
        let replaces = || {
            let own = State { key: state.key, seq: self.seq, version: self.version.clone() };
            own.replaces(state)
        };
        self.keys.contains(&state.key) && replaces()
    }
}

impl Notification {
    /// Whether it reports only conditions, and all of them are resolved.
    pub fn is_resolved(&self) -> bool {
        self.nature == Nature::Condition && self.unresolved.is_empty()
    }
}
