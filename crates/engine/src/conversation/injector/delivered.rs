//! What left a session's queue: the conditions that were, or may have been, delivered, and the ids of
//! recent notifications, so that none is accepted again.

use std::{collections::VecDeque, sync::Arc};

use hashbrown::HashSet;
use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    conversation::ended::EndedRules,
    notification::{Notification, NotificationId, Priority, Resolution, SubscriberId},
    snapshot,
    sorted::SortedSet,
};

/// Most remembered conditions of a session: as many as three injections hold, since everything
/// after the first one is delivered during the work that follows.
pub const DELIVERED_MAX: usize = 32;

/// The delivered conditions, each once.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Delivered {
    #[serde(with = "snapshot::shared::list")]
    newest_last: VecDeque<Arc<Notification>>,
}

impl Delivered {
    /// Remembers a condition, or what asks for an answer; beyond [`DELIVERED_MAX`] the oldest is forgotten. One of low priority
    /// is not worth a second delivery, so it is not remembered.
    pub(super) fn insert(&mut self, notification: Arc<Notification>) {
        let is_over = notification.unresolved.is_empty() || notification.priority == Priority::Low;
        if is_over && !notification.requires_response {
            return;
        }
        self.newest_last.retain(|delivered| delivered.id != notification.id);
        self.newest_last.push_back(notification);
        self.newest_last.drain(..self.newest_last.len().saturating_sub(DELIVERED_MAX));
    }

    /// Forgets the conditions of `subscribers`.
    pub(super) fn forget_of(&mut self, subscribers: &SortedSet<SubscriberId>) {
        self.newest_last.retain(|delivered| !subscribers.contains(&delivered.subscriber));
    }

    /// Forgets the conditions that nothing can resolve any more; what asks for an answer is kept.
    pub(super) fn end_rules(&mut self, ended: &EndedRules) {
        self.newest_last.retain_mut(|delivered| {
            let Some(left) = ended.applied_to(delivered) else { return true };
            *delivered = left;
            !delivered.unresolved.is_empty() || delivered.requires_response
        });
    }

    pub(super) fn resolve(&mut self, resolution: &Resolution) {
        self.newest_last.retain_mut(|delivered| {
            let Some(left) = resolution.applied_to(delivered) else { return true };
            *delivered = left;
            !delivered.unresolved.is_empty() || delivered.requires_response
        });
    }

    /// Whether it is remembered.
    pub(super) fn contains(&self, id: &NotificationId) -> bool {
        self.newest_last.iter().any(|delivered| delivered.id == *id)
    }

    /// Forgets one, and returns it.
    pub(super) fn take(&mut self, id: &NotificationId) -> Option<Arc<Notification>> {
        let at = self.newest_last.iter().position(|delivered| delivered.id == *id)?;
        self.newest_last.remove(at)
    }

    /// All conditions, oldest first.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = &Arc<Notification>> {
        self.newest_last.iter()
    }

    /// Removes all conditions, and returns those not expired at `now`, in delivery order.
    pub(super) fn take_true(&mut self, now: Timestamp) -> Vec<Arc<Notification>> {
        let all = std::mem::take(self).newest_last;
        all.into_iter().filter(|delivered| delivered.expires_at.is_none_or(|at| at > now)).collect()
    }
}

/// Most kept ids of those that left a queue. A notification arrives twice only if two inputs close
/// together cause it, so the newest few suffice.
pub(super) const RECENT_IDS_MAX: usize = 256;

/// The newest ids that were inserted, at most `MAX`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub(in crate::conversation) struct RecentIds<const MAX: usize> {
    newest_last: VecDeque<NotificationId>,
    /// An index of `newest_last`; never iterated.
    #[serde(skip_serializing)]
    known: HashSet<NotificationId>,
}

#[derive(Deserialize)]
struct Stored {
    newest_last: VecDeque<NotificationId>,
}

impl<const MAX: usize> From<Stored> for RecentIds<MAX> {
    fn from(Stored { newest_last }: Stored) -> Self {
        let known = newest_last.iter().copied().collect();
        Self { newest_last, known }
    }
}

impl<const MAX: usize> RecentIds<MAX> {
    /// Adds `id`; beyond `MAX` the oldest is evicted.
    pub(in crate::conversation) fn insert(&mut self, id: NotificationId) {
        if !self.known.insert(id) {
            return;
        }
        if self.newest_last.len() == MAX
            && let Some(oldest) = self.newest_last.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.newest_last.push_back(id);
    }

    /// Removes `id`, so that it can be accepted again.
    pub(super) fn forget(&mut self, id: NotificationId) {
        if self.known.remove(&id) {
            self.newest_last.retain(|known| *known != id);
        }
    }

    pub(in crate::conversation) fn contains(&self, id: NotificationId) -> bool {
        self.known.contains(&id)
    }

    pub(super) fn oldest_first(&self) -> impl Iterator<Item = &NotificationId> {
        self.newest_last.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        conversation::injector::tests::notification,
        event::Seq,
        notification::{InjectionPoint, State, StateKey},
    };

    #[test]
    fn a_full_table_evicts_the_oldest_delivered_condition() {
        let mut delivered = Delivered::default();
        let made = |name: &str, priority, unresolved: &[State]| {
            let unresolved = unresolved.to_vec();
            Arc::new(Notification { unresolved, ..notification(name, priority, InjectionPoint::AfterTool) })
        };
        let holds = [State { key: StateKey(1), seq: Seq(1), version: None }];
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

    #[test]
    fn a_full_list_evicts_the_oldest_recent_id() {
        let mut recent = RecentIds::<RECENT_IDS_MAX>::default();
        let id = |n: usize| NotificationId::new(&n.to_string());
        for n in 0..=RECENT_IDS_MAX {
            recent.insert(id(n));
            recent.insert(id(n));
        }
        assert!(!recent.contains(id(0)));
        let stored = serde_json::to_string(&recent).expect("written");
        let mut read: RecentIds<RECENT_IDS_MAX> = serde_json::from_str(&stored).expect("read");
        for recent in [&mut recent, &mut read] {
            assert!((1..=RECENT_IDS_MAX).all(|n| recent.contains(id(n))));
            recent.forget(id(7));
            assert!(!recent.contains(id(7)) && recent.oldest_first().count() == RECENT_IDS_MAX - 1);
        }
    }
}
