//! What an agent was told and is told again, because the context it stood in is gone.
//!
//! A session remembers the newest [`TOLD_MAX`] notifications that reached it, or may have. When its context is compacted or
//! read again, those that have not expired wait once more, marked as told before. A session that takes the place of another
//! one gets the urgent ones of them; one that is a copy remembers the same.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use hashbrown::HashSet;
use serde::{Deserialize, Serialize};

use super::Injector;
use crate::{
    ledger::{LedgerEntry, Reason},
    notification::{Notification, NotificationId, Priority, SubscriberId},
    snapshot,
    time::Timestamp,
};

/// Most notifications of a session that are remembered as told: as many as three injections hold, since what comes after
/// the first one is told in the midst of the work that follows.
pub const TOLD_MAX: usize = 32;

/// What was told, each once.
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
    /// Remembers a notification; beyond [`TOLD_MAX`] the oldest one is forgotten. What is low is not worth a second telling.
    pub(super) fn insert(&mut self, notification: Arc<Notification>) {
        if notification.priority == Priority::Low {
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

    /// Forgets what one of `subscribers` made.
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

    /// Takes out all, and gives those that are still true at `now`, in the order in which they were told.
    fn take_true(&mut self, now: Timestamp) -> Vec<Arc<Notification>> {
        let told = std::mem::take(self).newest_last;
        told.into_iter().filter(|told| told.expires_at.is_none_or(|at| at > now)).collect()
    }
}

/// What stands of it in a snapshot.
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
    /// Begins a new epoch: what is on its way and what was told and is still true waits once more, low ones excepted.
    pub fn begin_epoch(&mut self, now: Timestamp) {
        for lease in self.leases.take_all() {
            for mut entry in lease.entries {
                if entry.notification.priority == Priority::Low {
                    self.end(&entry.notification, Reason::Uncertain);
                } else {
                    entry.is_recalled = true;
                    self.put_back(entry);
                }
            }
        }
        for notification in self.told.take_true(now) {
            let (id, session) = (notification.id.clone(), self.session.clone());
            self.outputs.push_back(LedgerEntry::Recalled { notification: id, session });
            self.queue.recall(notification);
            self.evict_overflow();
        }
        self.expire_pending(now);
        self.continuations = 0;
    }

    /// Ends the session for another one that takes its place with an empty context: what is on its way ends as uncertain;
    /// what waits is handed over, and after it what was told, is still true, and is at least of high priority.
    pub fn hand_on(&mut self, now: Timestamp) -> (Vec<Arc<Notification>>, Vec<Arc<Notification>>) {
        let waiting = self.close();
        let mut told = self.told.take_true(now);
        told.retain(|told| told.priority >= Priority::High);
        (waiting, told)
    }

    /// What waits, in the order in which it would be told.
    pub fn waiting(&self) -> Vec<Arc<Notification>> {
        self.queue.in_order().into_iter().map(|entry| entry.notification.clone()).collect()
    }

    /// Remembers as told what `other` was told or is being told: the context of this session is a copy of that one's.
    pub fn remember_told(&mut self, other: &Self) {
        let leased = other.leases.iter().flat_map(|lease| &lease.entries).map(|entry| &entry.notification);
        for notification in other.told.newest_last.iter().chain(leased) {
            self.recent.insert(notification.id.clone());
            self.told.insert(notification.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::injector::tests::notification;
    use crate::notification::InjectionPoint;

    #[test]
    fn the_oldest_told_one_is_forgotten_and_low_ones_are_not_kept() {
        let mut told = Told::default();
        let made = |name: &str, priority| Arc::new(notification(name, priority, InjectionPoint::AfterTool));
        told.insert(made("low", Priority::Low));
        for number in 0..=TOLD_MAX {
            told.insert(made(&number.to_string(), Priority::Normal));
        }
        told.insert(made("1", Priority::Normal));
        let names: Vec<String> =
            told.take_true(Timestamp::ZERO).iter().map(|told| told.id.to_string()).collect();
        assert_eq!((names.len(), names[0].as_str(), names[TOLD_MAX - 1].as_str()), (TOLD_MAX, "2", "1"));
    }
}
