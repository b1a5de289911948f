//! A table whose entries have an age, so that the oldest one can make room for a new one.
//!
//! Shape: the entries by key, and their ages in order; a use costs as much as a lookup in a tree, also
//! when the table is full. A snapshot has the entries in the order of their ages, so equal tables have
//! equal bytes.

use std::{collections::BTreeSet, hash::Hash, mem};

use hashbrown::HashMap;
use journal::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::sorted::SortedMap;

/// Values by key, each with the age `A`: the time of its last use, or what has one order with it.
#[derive(Debug)]
pub(crate) struct Aged<K, V, A = Timestamp> {
    /// Never iterated.
    entries: HashMap<K, (A, V)>,
    ages: BTreeSet<(A, K)>,
}

impl<K, V, A> Default for Aged<K, V, A> {
    fn default() -> Self {
        Self { entries: HashMap::new(), ages: BTreeSet::new() }
    }
}

impl<K: Ord + Hash + Clone, V, A: Ord + Copy> Aged<K, V, A> {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// The value of a key, whose age is now `age`. A new one is the default value, and takes the place of
    /// the oldest one if there are `max` entries.
    pub(crate) fn use_or_default(&mut self, key: &K, age: A, max: usize) -> &mut V
    where
        V: Default,
    {
        if let Some((own, _)) = self.entries.get_mut(key) {
            if *own != age {
                self.ages.remove(&(*own, key.clone()));
                *own = age;
                self.ages.insert((age, key.clone()));
            }
        } else {
            if self.len() >= max {
                self.pop_oldest();
            }
            self.insert(key.clone(), age, V::default());
        }
        &mut self.entries.get_mut(key).expect("it was just used").1
    }

    /// Adds an entry, or replaces that of the same key.
    pub(crate) fn insert(&mut self, key: K, age: A, value: V) {
        self.remove(&key);
        self.ages.insert((age, key.clone()));
        self.entries.insert(key, (age, value));
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        if self.ages.is_empty() {
            return None;
        }
        let (age, value) = self.entries.remove(key)?;
        self.ages.remove(&(age, key.clone()));
        Some(value)
    }

    /// The age of the oldest entry; of equal ages the least key is the oldest.
    pub(crate) fn oldest_age(&self) -> Option<A> {
        self.ages.first().map(|(age, _)| *age)
    }

    /// Removes the oldest entry.
    pub(crate) fn pop_oldest(&mut self) -> Option<(K, V)> {
        let (_, key) = self.ages.pop_first()?;
        let (_, value) = self.entries.remove(&key).expect("each age is of an entry");
        Some((key, value))
    }

    /// The entries, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (A, &K, &V)> {
        self.ages.iter().map(|(age, key)| {
            let (_, value) = self.entries.get(key).expect("each age is of an entry");
            (*age, key, value)
        })
    }

    /// Changes the age of every entry.
    pub(crate) fn change_ages(&mut self, change: impl Fn(A) -> A) {
        let Self { mut entries, ages } = mem::take(self);
        for (age, key) in ages {
            let (_, value) = entries.remove(&key).expect("each age is of an entry");
            self.insert(key, change(age), value);
        }
    }

    /// Removes every entry.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<K: Ord + Hash + Clone, V, A: Ord + Copy> FromIterator<(A, K, V)> for Aged<K, V, A> {
    fn from_iter<I: IntoIterator<Item = (A, K, V)>>(entries: I) -> Self {
        let mut aged = Self::default();
        entries.into_iter().for_each(|(age, key, value)| aged.insert(key, age, value));
        aged
    }
}

impl<K: Ord + Hash + Clone + Serialize, V: Serialize, A: Ord + Copy + Serialize> Serialize for Aged<K, V, A> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter().map(|(age, key, value)| (key, (value, age))))
    }
}

impl<'de, K, V, A> Deserialize<'de> for Aged<K, V, A>
where
    K: Ord + Hash + Clone + Deserialize<'de>,
    V: Deserialize<'de>,
    A: Ord + Copy + Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let entries = SortedMap::<K, (V, A)>::deserialize(from)?;
        Ok(entries.into_iter().map(|(key, (value, age))| (age, key, value)).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::snapshot;

    const MAX: usize = 4;

    proptest! {
        #[test]
        fn it_equals_a_list_of_ages(steps in prop::collection::vec((0..4_u8, 0..7_u8, 0..3_u64), 0..60)) {
            let (mut aged, mut list) = (Aged::<u8, u32>::default(), Vec::<(Timestamp, u8, u32)>::new());
            let mut now = 0;
            for (step, key, later) in steps {
                now += later;
                let age = Timestamp::from_millis(now);
                let place = list.iter().position(|(_, own, _)| *own == key);
                match step {
                    0 => prop_assert_eq!(aged.remove(&key), place.map(|place| list.remove(place).2)),
                    1 => {
                        let oldest = list.iter().map(|(age, key, _)| (*age, *key)).min();
                        let oldest = oldest.map(|(_, key)| key);
                        prop_assert_eq!(aged.pop_oldest().map(|(key, _)| key), oldest);
                        list.retain(|(_, key, _)| Some(*key) != oldest);
                    }
                    _ => {
                        let known = place.map(|place| list.remove(place).2);
                        if known.is_none() && list.len() >= MAX {
                            list.sort_unstable();
                            list.remove(0);
                        }
                        list.push((age, key, known.unwrap_or_default() + 1));
                        *aged.use_or_default(&key, age, MAX) += 1;
                    }
                }
                list.sort_unstable();
                prop_assert_eq!(aged.get(&key).copied(), list.iter().find(|own| own.1 == key).map(|own| own.2));
                prop_assert_eq!((aged.len(), aged.oldest_age()), (list.len(), list.first().map(|own| own.0)));
                prop_assert!(aged.iter().map(|(age, key, value)| (age, *key, *value)).eq(list.iter().copied()));
                let bytes = snapshot::write(&aged).expect("it can be written");
                let read: Aged<u8, u32> = snapshot::read(&bytes).expect("it can be read");
                prop_assert_eq!(snapshot::write(&read).expect("it can be written"), bytes);
            }
        }
    }
}
