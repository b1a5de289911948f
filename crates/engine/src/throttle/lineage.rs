//! The length of the chain of causes of an event, to stop loops of agents or subscribers.
//!
//! Only items with a cause are kept, and only the newest [`REMEMBERED_MAX`]; an event without a
//! cause costs nothing.

use std::{collections::VecDeque, sync::Arc};

use hashbrown::HashMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    event::{EventRef, Seq},
    fold::Fold,
    notification::Notification,
    sorted::SortedMap,
};

/// Most ids with a known chain; far more than the chained events during one loop.
const REMEMBERED_MAX: usize = 10_000;

/// The lengths of recent chains, by the id of their last item.
#[derive(Debug, Default)]
pub struct Lineage {
    /// Never iterated.
    lengths: HashMap<Arc<str>, u32>,
    order: VecDeque<Arc<str>>,
    /// The same for events by position, as notifications refer to them; in order.
    of_events: VecDeque<(Seq, u32)>,
}

impl Fold for Lineage {
    type Settings = ();
}

impl Lineage {
    /// The length of the chain of causes of an event: zero without a cause, one with a cause whose
    /// own chain is not known. It is stored for events that this one causes.
    pub fn extend(&mut self, seq: Seq, event: &EventRef<'_>) -> u32 {
        let Some(cause) = event.cause else { return 0 };
        let length = self.of(cause) + 1;
        self.of_events.push_back((seq, length));
        if self.of_events.len() > REMEMBERED_MAX {
            self.of_events.pop_front();
        }
        self.keep(event.id, length);
        length
    }

    /// The length of the chain that ends at `id`; zero without a known cause.
    fn of(&self, id: &str) -> u32 {
        self.lengths.get(id).copied().unwrap_or(0)
    }

    /// Stores a notification: its chain is the longest of its events.
    pub fn remember_notification(&mut self, notification: &Notification) {
        let length = |seq: &Seq| {
            let place = self.of_events.binary_search_by_key(seq, |(known, _)| *known).ok()?;
            self.of_events.get(place).map(|(_, length)| *length)
        };
        if let Some(length) = notification.events.iter().filter_map(length).max() {
            self.keep(notification.id.as_str(), length);
        }
    }

    fn keep(&mut self, id: &str, length: u32) {
        if self.lengths.contains_key(id) {
            return;
        }
        if self.order.len() == REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.lengths.remove(&oldest);
        }
        let id: Arc<str> = id.into();
        self.lengths.insert(id.clone(), length);
        self.order.push_back(id);
    }
}

/// The snapshot form.
#[derive(Serialize, Deserialize)]
struct LineageState<K> {
    /// The ids in order, with their lengths.
    kept: K,
    of_events: SortedMap<Seq, u32>,
}

impl Serialize for Lineage {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { lengths, order, of_events } = self;
        let length = |id: &Arc<str>| lengths.get(id).copied().expect("every id in the order has a length");
        let kept: Vec<(&Arc<str>, u32)> = order.iter().map(|id| (id, length(id))).collect();
        LineageState { kept, of_events: of_events.iter().copied().collect() }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Lineage {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let LineageState { kept, of_events } = <LineageState<Vec<(Arc<str>, u32)>>>::deserialize(from)?;
        let order = kept.iter().map(|(id, _)| Arc::clone(id)).collect();
        let of_events = of_events.into_iter().collect();
        Ok(Self { lengths: kept.into_iter().collect(), order, of_events })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::{Event, Severity};
    use journal::time::Timestamp;

    #[test]
    fn a_full_table_evicts_the_oldest_chain() {
        let mut lineage = Lineage::default();
        let own = |id: String| Event::own("test.event", id, Severity::Info, json!({}), Timestamp::ZERO);
        for (index, seq) in (0..=REMEMBERED_MAX).zip(1..) {
            let event = Event { cause: Some("unknown".into()), ..own(format!("e{index}")) };
            assert_eq!(lineage.extend(Seq(seq), &event.as_ref()), 1);
        }
        assert_eq!((lineage.of("e0"), lineage.of("e1")), (0, 1));
        assert_eq!(lineage.of_events.len(), REMEMBERED_MAX);
    }
}
