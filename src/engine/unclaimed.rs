//! Notifications for sessions that are not open yet.
//!
//! The first session in scope that opens takes one and it leaves; what nobody takes expires. Bounded: when it is full, the
//! one that expires soonest goes, and says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    event::Scope,
    notification::{Notification, SubscriberId},
    snapshot,
    time::Timestamp,
};

/// Most notifications that wait for a session; about a day of a busy machine without any agent.
pub(super) const UNCLAIMED_MAX: usize = 10_000;

/// What waits for a session, by when it expires and then by when it came.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Unclaimed {
    #[serde(with = "snapshot::shared::map")]
    waiting: BTreeMap<(Timestamp, u64), Arc<Notification>>,
    arrivals: u64,
}

impl Unclaimed {
    /// Keeps `notification` until `expires_at`; returns the one that had to go for it.
    pub(super) fn keep(
        &mut self,
        notification: Arc<Notification>,
        expires_at: Timestamp,
    ) -> Option<Arc<Notification>> {
        self.arrivals += 1;
        self.waiting.insert((expires_at, self.arrivals), notification);
        if self.waiting.len() > UNCLAIMED_MAX {
            return self.waiting.pop_first().map(|(_, evicted)| evicted);
        }
        None
    }

    /// Removes what `concerns` picks, oldest first.
    pub(super) fn claim(&mut self, concerns: impl Fn(&Scope) -> bool) -> Vec<Arc<Notification>> {
        let concerned = self.waiting.iter().filter(|(_, notification)| concerns(&notification.scope));
        let mut keys: Vec<_> = concerned.map(|(key, _)| *key).collect();
        keys.sort_by_key(|(_, arrival)| *arrival);
        keys.iter().filter_map(|key| self.waiting.remove(key)).collect()
    }

    /// Removes what expires at or before `now`, soonest first.
    pub(super) fn take_expired(&mut self, now: Timestamp) -> Vec<Arc<Notification>> {
        let later = self.waiting.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.waiting, later).into_values().collect()
    }

    /// Removes what one of `subscribers` made, soonest to expire first.
    pub(super) fn take_of(&mut self, subscribers: &BTreeSet<SubscriberId>) -> Vec<Arc<Notification>> {
        let of_them = self.waiting.iter().filter(|(_, waiting)| subscribers.contains(&waiting.subscriber));
        let keys: Vec<_> = of_them.map(|(key, _)| *key).collect();
        keys.iter().filter_map(|key| self.waiting.remove(key)).collect()
    }

    /// When the next one expires.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.waiting.keys().next().map(|(at, _)| *at)
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}
