//! The conditions that reached a session, or may have.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use hashbrown::HashSet;
use serde::{Deserialize, Serialize};

use crate::{
    notification::{Notification, NotificationId, Priority, Resolution, SubscriberId},
    snapshot,
    time::Timestamp,
};

/// Most remembered conditions of a session: as many as three injections hold, since everything
/// after the first one is delivered during the work that follows.
pub const DELIVERED_MAX: usize = 32;

/// The delivered conditions, each once.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "DeliveredState")]
pub(super) struct Delivered {
    #[serde(with = "snapshot::shared::list")]
    newest_last: VecDeque<Arc<Notification>>,
    /// The same; never iterated.
    #[serde(skip)]
    ids: HashSet<NotificationId>,
}

impl Delivered {
    /// Remembers a condition; beyond [`DELIVERED_MAX`] the oldest is forgotten. Low priority is not
    /// worth a second delivery.
    pub(super) fn insert(&mut self, notification: Arc<Notification>) {
        if notification.unresolved.is_empty() || notification.priority == Priority::Low {
            return;
        }
        if !self.ids.insert(notification.id.clone()) {
            self.newest_last.retain(|delivered| delivered.id != notification.id);
        }
        self.newest_last.push_back(notification);
        if self.newest_last.len() > DELIVERED_MAX
            && let Some(oldest) = self.newest_last.pop_front()
        {
            self.ids.remove(&oldest.id);
        }
    }

    /// Forgets those of `subscribers`.
    pub(super) fn forget_of(&mut self, subscribers: &BTreeSet<SubscriberId>) {
        let ids = &mut self.ids;
        self.newest_last.retain(|delivered| {
            let is_kept = !subscribers.contains(&delivered.subscriber);
            if !is_kept {
                ids.remove(&delivered.id);
            }
            is_kept
        });
    }

    /// Forgets resolved conditions.
    pub(super) fn resolve(&mut self, resolution: &Resolution) {
        let ids = &mut self.ids;
        self.newest_last.retain_mut(|delivered| {
            let Some(left) = resolution.applied_to(delivered) else { return true };
            let holds = !left.unresolved.is_empty();
            if !holds {
                ids.remove(&left.id);
            }
            *delivered = left;
            holds
        });
    }

    /// All of them, oldest first.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = &Arc<Notification>> {
        self.newest_last.iter()
    }

    /// Takes all out, and returns those not expired at `now`, in delivery order.
    pub(super) fn take_true(&mut self, now: Timestamp) -> Vec<Arc<Notification>> {
        let all = std::mem::take(self).newest_last;
        all.into_iter().filter(|delivered| delivered.expires_at.is_none_or(|at| at > now)).collect()
    }
}

/// The snapshot form.
#[derive(Deserialize)]
struct DeliveredState {
    #[serde(with = "snapshot::shared::list")]
    newest_last: VecDeque<Arc<Notification>>,
}

impl From<DeliveredState> for Delivered {
    fn from(DeliveredState { newest_last }: DeliveredState) -> Self {
        let ids = newest_last.iter().map(|delivered| delivered.id.clone()).collect();
        Self { newest_last, ids }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::injector::tests::notification;
    use crate::{
        event::Seq,
        notification::{InjectionPoint, State, StateKey},
    };

    #[test]
    fn the_oldest_condition_is_forgotten_and_neither_low_ones_nor_occurrences_are_kept() {
        let mut delivered = Delivered::default();
        let made = |name: &str, priority, unresolved: &[State]| {
            let unresolved = unresolved.to_vec();
            Arc::new(Notification { unresolved, ..notification(name, priority, InjectionPoint::AfterTool) })
        };
        let holds = [State { key: StateKey(1), seq: Seq(1) }];
        delivered.insert(made("low", Priority::Low, &holds));
        for number in 0..=DELIVERED_MAX {
            delivered.insert(made(&number.to_string(), Priority::Normal, &holds));
        }
        delivered.insert(made("1", Priority::Normal, &holds));
        delivered.insert(made("happened", Priority::Critical, &[]));
        let names: Vec<String> =
            delivered.take_true(Timestamp::ZERO).iter().map(|delivered| delivered.id.to_string()).collect();
        assert_eq!(
            (names.len(), names[0].as_str(), names[DELIVERED_MAX - 1].as_str()),
            (DELIVERED_MAX, "2", "1")
        );
    }
}
