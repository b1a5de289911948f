//! Redelivery of conditions whose context was lost.
//!
//! A session remembers the newest [`TOLD_MAX`] conditions that reached it, or may have. When its
//! context is compacted, those that have not expired are queued again, marked as redelivered. A
//! confirmed occurrence is delivered once and does not return, whatever happens to the context.
//! Unconfirmed injections return to the queue.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use hashbrown::HashSet;
use serde::{Deserialize, Serialize};

use super::Injector;
use crate::{
    ledger::{LedgerEntry, Reason},
    notification::{Notification, NotificationId, Priority, Resolution, SubscriberId},
    snapshot,
    time::Timestamp,
};

/// Most remembered conditions of a session: as many as three injections hold, since everything
/// after the first one is delivered during the work that follows.
pub const TOLD_MAX: usize = 32;

/// The delivered conditions, each once.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "ToldState")]
pub(super) struct Told {
    #[serde(with = "snapshot::shared::list")]
    newest_last: VecDeque<Arc<Notification>>,
    /// The same; never iterated.
    #[serde(skip)]
    ids: HashSet<NotificationId>,
}

impl Told {
    /// Remembers a condition; beyond [`TOLD_MAX`] the oldest is forgotten. Low priority is not
    /// worth a second delivery.
    pub(super) fn insert(&mut self, notification: Arc<Notification>) {
        if notification.unresolved.is_empty() || notification.priority == Priority::Low {
            return;
        }
        if !self.ids.insert(notification.id.clone()) {
            self.newest_last.retain(|told| told.id != notification.id);
        }
        self.newest_last.push_back(notification);
        if self.newest_last.len() > TOLD_MAX
            && let Some(oldest) = self.newest_last.pop_front()
        {
            self.ids.remove(&oldest.id);
        }
    }

    /// Forgets those of `subscribers`.
    pub(super) fn forget_of(&mut self, subscribers: &BTreeSet<SubscriberId>) {
        let ids = &mut self.ids;
        self.newest_last.retain(|told| {
            let is_kept = !subscribers.contains(&told.subscriber);
            if !is_kept {
                ids.remove(&told.id);
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

    /// Takes all out, and returns those not expired at `now`, in delivery order.
    fn take_true(&mut self, now: Timestamp) -> Vec<Arc<Notification>> {
        let told = std::mem::take(self).newest_last;
        told.into_iter().filter(|told| told.expires_at.is_none_or(|at| at > now)).collect()
    }
}

/// The snapshot form.
#[derive(Deserialize)]
struct ToldState {
    #[serde(with = "snapshot::shared::list")]
    newest_last: VecDeque<Arc<Notification>>,
}

impl From<ToldState> for Told {
    fn from(ToldState { newest_last }: ToldState) -> Self {
        let ids = newest_last.iter().map(|told| told.id.clone()).collect();
        Self { newest_last, ids }
    }
}

impl Injector {
    /// The context was compacted: unconfirmed injections and conditions that still hold are queued
    /// again.
    pub fn lose_context(&mut self, now: Timestamp) {
        self.take_back_leased();
        for notification in self.told.take_true(now) {
            let (id, session) = (notification.id.clone(), self.session.clone());
            self.outputs.push_back(LedgerEntry::Recalled { notification: id, session });
            self.queue.recall(notification);
            self.evict_overflow();
        }
        self.begin_context(now);
    }

    /// The conversation was resumed with its history: unconfirmed injections are queued again, as
    /// the history may lack them.
    pub fn resume_context(&mut self, now: Timestamp) {
        self.take_back_leased();
        self.begin_context(now);
    }

    /// Puts unconfirmed notifications back, as returned from their injection; low ones end.
    fn take_back_leased(&mut self) {
        for lease in self.leases.take_all() {
            for mut entry in lease.entries {
                if entry.notification.priority == Priority::Low {
                    self.end(&entry.notification, Reason::Uncertain);
                } else {
                    entry.returned_from = Some(lease.injection.clone());
                    self.put_back(entry);
                }
            }
        }
    }

    fn begin_context(&mut self, now: Timestamp) {
        self.expire_pending(now);
        self.continuations = 0;
        self.held = None;
    }

    /// Remembers what was or is being delivered to `other`: this session's context is a copy of
    /// that one's.
    pub fn remember_told(&mut self, other: &Self) {
        let leased = other.leases.iter().flat_map(|lease| &lease.entries).map(|entry| &entry.notification);
        for notification in other.told.newest_last.iter().chain(leased) {
            self.recent.insert(notification.id.clone());
            self.told.insert(notification.clone());
        }
        // Notifications that were released and returned wait in the copy too.
        let left = other.recent.oldest_first().filter(|id| !other.queue.contains(id));
        left.for_each(|id| self.recent.insert(id.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::injector::tests::notification;
    use crate::{
        event::Seq,
        notification::{InjectionPoint, State, StateKey},
    };

    #[test]
    fn the_oldest_condition_is_forgotten_and_neither_low_ones_nor_occurrences_are_kept() {
        let mut told = Told::default();
        let made = |name: &str, priority, unresolved: &[State]| {
            let unresolved = unresolved.to_vec();
            Arc::new(Notification { unresolved, ..notification(name, priority, InjectionPoint::AfterTool) })
        };
        let holds = [State { key: StateKey(1), seq: Seq(1) }];
        told.insert(made("low", Priority::Low, &holds));
        for number in 0..=TOLD_MAX {
            told.insert(made(&number.to_string(), Priority::Normal, &holds));
        }
        told.insert(made("1", Priority::Normal, &holds));
        told.insert(made("happened", Priority::Critical, &[]));
        let names: Vec<String> =
            told.take_true(Timestamp::ZERO).iter().map(|told| told.id.to_string()).collect();
        assert_eq!((names.len(), names[0].as_str(), names[TOLD_MAX - 1].as_str()), (TOLD_MAX, "2", "1"));
    }
}
