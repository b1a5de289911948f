//! Sessions by id: one hash lookup, iterated in id order.
//!
//! An exchange looks up its session a dozen times. In a tree of a thousand ids each lookup reads
//! ten of them from all over memory.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::SessionId;

/// A value for each session.
#[derive(Debug)]
pub(super) struct ById<T> {
    /// Never iterated.
    all: HashMap<SessionId, T>,
    in_order: BTreeSet<SessionId>,
}

impl<T> Default for ById<T> {
    fn default() -> Self {
        Self { all: HashMap::new(), in_order: BTreeSet::new() }
    }
}

impl<T> ById<T> {
    pub(super) fn get(&self, id: &SessionId) -> Option<&T> {
        self.all.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &SessionId) -> Option<&mut T> {
        self.all.get_mut(id)
    }

    pub(super) fn get_key_value(&self, id: &SessionId) -> Option<(&SessionId, &T)> {
        self.all.get_key_value(id)
    }

    pub(super) fn contains_key(&self, id: &SessionId) -> bool {
        self.all.contains_key(id)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn insert(&mut self, id: SessionId, value: T) {
        self.in_order.insert(id.clone());
        self.all.insert(id, value);
    }

    pub(super) fn remove(&mut self, id: &SessionId) -> Option<T> {
        self.in_order.remove(id);
        self.all.remove(id)
    }

    /// The ids in order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &SessionId> {
        self.in_order.iter()
    }

    /// All, in id order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&SessionId, &T)> {
        self.keys().map(|id| (id, self.all.get(id).expect("each id has its value")))
    }

    /// Changes each, in id order.
    pub(super) fn for_each_mut(&mut self, mut change: impl FnMut(&SessionId, &mut T)) {
        for id in &self.in_order {
            change(id, self.all.get_mut(id).expect("each id has its value"));
        }
    }
}

/// A map, in id order.
impl<T: Serialize> Serialize for ById<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter().collect::<Vec<_>>())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ById<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let all = <BTreeMap<SessionId, T>>::deserialize(from)?;
        Ok(Self { in_order: all.keys().cloned().collect(), all: all.into_iter().collect() })
    }
}
