//! The total length of all queues, and the choice of the queue that evicts when it exceeds the
//! bound.

use std::{cmp::Reverse, collections::BTreeSet};

use super::key::SessionKey;
use crate::notification::Priority;

/// The lowest priority in a queue, and the queue's length; `None` when it is empty.
pub(super) type Weight = Option<(Priority, usize)>;

/// The total of all queues.
///
/// Shape: usually there is room for everything. The eviction order is built when the bound is
/// exceeded, and kept until half of the bound is free again. Building it visits each session, at
/// most once per as many notifications as that half.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    pub(super) total: usize,
    /// The eviction order.
    order: Option<BTreeSet<Place>>,
}

/// Orders queues: a lesser one evicts first.
type Place = (Priority, Reverse<usize>, SessionKey);

fn place(key: SessionKey, (least, count): (Priority, usize)) -> Place {
    (least, Reverse(count), key)
}

impl Pressure {
    /// Updates the total for a session's weight, from `before` to `now`.
    pub(super) fn change(&mut self, key: SessionKey, before: Weight, now: Weight) {
        if before == now {
            return;
        }
        let count = |weight: Weight| weight.map_or(0, |(_, count)| count);
        self.total = self.total - count(before) + count(now);
        if let Some(order) = &mut self.order {
            if let Some(before) = before {
                order.remove(&place(key, before));
            }
            order.extend(now.map(|now| place(key, now)));
        }
    }

    /// The queue that has to evict, if there are more than `total_max` in all: the longest of those
    /// with a notification of the lowest priority. `weights` are those of all queues.
    pub(super) fn over<I: Iterator<Item = (SessionKey, (Priority, usize))>>(
        &mut self,
        total_max: usize,
        weights: impl FnOnce() -> I,
    ) -> Option<SessionKey> {
        if self.total <= total_max {
            if self.total <= total_max / 2 {
                self.order = None;
            }
            return None;
        }
        let order =
            self.order.get_or_insert_with(|| weights().map(|(key, weight)| place(key, weight)).collect());
        order.first().map(|(_, _, key)| *key)
    }

    /// Whether the eviction order is kept.
    #[cfg(test)]
    pub(super) fn keeps_order(&self) -> bool {
        self.order.is_some()
    }
}
