//! The notifications that recently left a session's queue, so that none is accepted again.

use std::collections::{HashSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::notification::NotificationId;

/// Most kept ids. A notification arrives twice only if two inputs close together cause it, so the
/// newest few suffice.
pub(super) const RECENT_IDS_MAX: usize = 256;

/// The ids of the notifications that left last.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub(super) struct RecentIds {
    newest_last: VecDeque<NotificationId>,
    /// The same ids: each notification is looked up as it arrives, and as it leaves.
    #[serde(skip_serializing)]
    known: HashSet<NotificationId>,
}

#[derive(Deserialize)]
struct Stored {
    newest_last: VecDeque<NotificationId>,
}

impl From<Stored> for RecentIds {
    fn from(Stored { newest_last }: Stored) -> Self {
        let known = newest_last.iter().copied().collect();
        Self { newest_last, known }
    }
}

impl RecentIds {
    /// Adds `id`; beyond [`RECENT_IDS_MAX`] the oldest is evicted.
    pub(super) fn insert(&mut self, id: NotificationId) {
        if !self.known.insert(id) {
            return;
        }
        if self.newest_last.len() == RECENT_IDS_MAX
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

    pub(super) fn contains(&self, id: NotificationId) -> bool {
        self.known.contains(&id)
    }

    pub(super) fn oldest_first(&self) -> impl Iterator<Item = &NotificationId> {
        self.newest_last.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_list_evicts_the_oldest_recent_id() {
        let mut recent = RecentIds::default();
        let id = |n: usize| NotificationId::new(&n.to_string());
        for n in 0..=RECENT_IDS_MAX {
            recent.insert(id(n));
            recent.insert(id(n));
        }
        assert!(!recent.contains(id(0)));
        let stored = serde_json::to_string(&recent).expect("written");
        let mut read: RecentIds = serde_json::from_str(&stored).expect("read");
        for recent in [&mut recent, &mut read] {
            assert!((1..=RECENT_IDS_MAX).all(|n| recent.contains(id(n))));
            recent.forget(id(7));
            assert!(!recent.contains(id(7)) && recent.oldest_first().count() == RECENT_IDS_MAX - 1);
        }
    }
}
