//! Ordered collections in one vector, for few entries.
//!
//! Shape: as [`BTreeMap`](std::collections::BTreeMap) and [`BTreeSet`](std::collections::BTreeSet),
//! with the same order and the same encoding. A lookup is a binary search. An insertion at the end is
//! immediate; elsewhere it moves the entries behind it, so a collection of thousands that changes
//! with every event is a tree instead. Many entries at once are sorted together. Each type of a tree is compiled again, with ten times the
//! code.

use std::{borrow::Borrow, cmp::Ordering, fmt, marker::PhantomData, mem, slice::Iter, vec::IntoIter};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess},
    ser::SerializeMap,
};

/// Most entries that are added one by one; more are sorted together with those that are there.
const FEW: usize = 8;

/// `entries` in order, the last one of equal ones.
///
/// Only places are sorted, by one function for all types of entries.
fn in_order<T>(entries: Vec<T>, compare: impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    if entries.is_sorted_by(|one, other| compare(one, other).is_lt()) {
        return entries;
    }
    let at = |place: usize| entries.get(place).expect("a place of an entry");
    let places = sorted_places(entries.len(), &|one, other| compare(at(one), at(other)));
    let mut left: Vec<Option<T>> = entries.into_iter().map(Some).collect();
    let take = |place: usize| left.get_mut(place).and_then(Option::take).expect("each place is taken once");
    places.into_iter().map(take).collect()
}

/// The places of `count` entries in their order, the last one of equal ones.
fn sorted_places(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).rev().collect();
    places.sort_by(|one, other| compare(*one, *other));
    places.dedup_by(|later, kept| compare(*later, *kept).is_eq());
    places
}

/// A map in one vector, in key order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SortedMap<K, V>(Vec<(K, V)>);

impl<K, V> SortedMap<K, V> {
    /// A map without entries.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Number of entries.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no entries.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes every entry.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The entries in order.
    pub fn iter(&self) -> Iter<'_, (K, V)> {
        self.0.iter()
    }

    /// The entries in order, with values to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.0.iter_mut().map(|(key, value)| (&*key, value))
    }

    /// The keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// The values in key order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The values in key order, to change.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// The keys in order, owned.
    pub fn into_keys(self) -> impl Iterator<Item = K> {
        self.0.into_iter().map(|(key, _)| key)
    }

    /// The values in key order, owned.
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.0.into_iter().map(|(_, value)| value)
    }

    /// The entry with the last key.
    pub fn last(&self) -> Option<&(K, V)> {
        self.0.last()
    }

    /// Removes the entry with the first key.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        if self.is_empty() { None } else { Some(self.0.remove(0)) }
    }

    /// Removes the first entry with the least `rank`.
    pub fn pop_least<R: Ord>(&mut self, rank: impl Fn(&V) -> R) -> Option<(K, V)> {
        let ranked = self.values().map(rank).enumerate();
        let (place, _) = ranked.min_by(|(_, one), (_, other)| one.cmp(other))?;
        Some(self.0.remove(place))
    }

    /// Removes the entries that `is_kept` does not select.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain_mut(|(key, value)| is_kept(key, value));
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    fn place<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(known, _)| known.borrow().cmp(key))
    }

    /// The value of `key`.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let (_, value) = self.0.get(self.place(key).ok()?)?;
        Some(value)
    }

    /// The value of `key`, to change.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let place = self.place(key).ok()?;
        let (_, value) = self.0.get_mut(place)?;
        Some(value)
    }

    /// Whether there is a value of `key`.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.place(key).is_ok()
    }

    /// Sets the value of `key`; returns the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if self.0.last().is_none_or(|(last, _)| *last < key) {
            self.0.push((key, value));
            return None;
        }
        match self.place(&key) {
            Ok(place) => self.0.get_mut(place).map(|(_, known)| mem::replace(known, value)),
            Err(place) => {
                self.0.insert(place, (key, value));
                None
            }
        }
    }

    /// The value of `key`, which `make` makes if there is none.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let place = match self.place(&key) {
            Ok(place) => place,
            Err(place) => {
                self.0.insert(place, (key, make()));
                place
            }
        };
        let (_, value) = self.0.get_mut(place).expect("the entry is at its place");
        value
    }

    /// The value of `key`, which is the default if there is none.
    pub fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.get_or_insert_with(key, V::default)
    }

    /// Removes the value of `key`.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.remove_entry(key).map(|(_, value)| value)
    }

    /// Removes `key` and its value.
    pub fn remove_entry<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        let place = self.place(key).ok()?;
        Some(self.0.remove(place))
    }

    /// The entries with a key from `first` on, in order.
    pub fn range_from<Q: Ord + ?Sized>(&self, first: &Q) -> &[(K, V)]
    where
        K: Borrow<Q>,
    {
        let (Ok(place) | Err(place)) = self.place(first);
        self.0.get(place..).expect("the place is within the map")
    }
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SortedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(key, value)| (key, value))).finish()
    }
}

impl<K: Ord, V> Extend<(K, V)> for SortedMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        let added: Vec<(K, V)> = entries.into_iter().collect();
        if added.len() <= FEW && !self.is_empty() {
            for (key, value) in added {
                self.insert(key, value);
            }
            return;
        }
        let mut all = mem::take(&mut self.0);
        all.extend(added);
        self.0 = in_order(all, |(one, _), (other, _)| one.cmp(other));
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for SortedMap<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = IntoIter<(K, V)>;

    fn into_iter(self) -> IntoIter<(K, V)> {
        self.0.into_iter()
    }
}

impl<'a, K, V> IntoIterator for &'a SortedMap<K, V> {
    type Item = &'a (K, V);
    type IntoIter = Iter<'a, (K, V)>;

    fn into_iter(self) -> Iter<'a, (K, V)> {
        self.0.iter()
    }
}

impl<K: Serialize, V: Serialize> Serialize for SortedMap<K, V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.len()))?;
        for (key, value) in self {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Deserialize<'de> for SortedMap<K, V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Entries(PhantomData))
    }
}

struct Entries<K, V>(PhantomData<(K, V)>);

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> de::Visitor<'de> for Entries<K, V> {
    type Value = SortedMap<K, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<SortedMap<K, V>, A::Error> {
        let mut read = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            read.push(entry);
        }
        Ok(read.into_iter().collect())
    }
}

/// A set in one vector, in order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SortedSet<T>(Vec<T>);

impl<T> SortedSet<T> {
    /// A set without members.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Number of members.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no members.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The members in order.
    pub fn iter(&self) -> Iter<'_, T> {
        self.0.iter()
    }

    /// Removes every member.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Removes the members that `is_kept` does not select.
    pub fn retain(&mut self, is_kept: impl FnMut(&T) -> bool) {
        self.0.retain(is_kept);
    }

    /// The first member.
    pub fn first(&self) -> Option<&T> {
        self.0.first()
    }
}

impl<T: Ord> SortedSet<T> {
    fn place<Q: Ord + ?Sized>(&self, member: &Q) -> Result<usize, usize>
    where
        T: Borrow<Q>,
    {
        self.0.binary_search_by(|known| known.borrow().cmp(member))
    }

    /// Whether it has this member.
    pub fn contains<Q: Ord + ?Sized>(&self, member: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.place(member).is_ok()
    }

    /// Adds a member; returns whether it is new.
    pub fn insert(&mut self, member: T) -> bool {
        if self.0.last().is_none_or(|last| *last < member) {
            self.0.push(member);
            return true;
        }
        let Err(place) = self.place(&member) else { return false };
        self.0.insert(place, member);
        true
    }

    /// Removes a member; returns whether it was there.
    pub fn remove<Q: Ord + ?Sized>(&mut self, member: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        let Ok(place) = self.place(member) else { return false };
        self.0.remove(place);
        true
    }

    /// The members from `first` on, in order.
    pub fn range_from(&self, first: &T) -> &[T] {
        let (Ok(place) | Err(place)) = self.place(first);
        self.0.get(place..).expect("the place is within the set")
    }

    /// The members after `member`, in order.
    pub fn after(&self, member: &T) -> &[T] {
        match self.range_from(member) {
            [first, rest @ ..] if first == member => rest,
            from => from,
        }
    }
}

impl<T> Default for SortedSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for SortedSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(&self.0).finish()
    }
}

impl<T: Ord> Extend<T> for SortedSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, members: I) {
        let added: Vec<T> = members.into_iter().collect();
        if added.len() <= FEW && !self.is_empty() {
            for member in added {
                self.insert(member);
            }
            return;
        }
        let mut all = mem::take(&mut self.0);
        all.extend(added);
        self.0 = in_order(all, T::cmp);
    }
}

impl<T: Ord> FromIterator<T> for SortedSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(members: I) -> Self {
        let mut set = Self::new();
        set.extend(members);
        set
    }
}

impl<T: Ord, const N: usize> From<[T; N]> for SortedSet<T> {
    fn from(members: [T; N]) -> Self {
        members.into_iter().collect()
    }
}

impl<T> IntoIterator for SortedSet<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a SortedSet<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.0.iter()
    }
}

impl<T: Serialize> Serialize for SortedSet<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de, T: Deserialize<'de> + Ord> Deserialize<'de> for SortedSet<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::deserialize(from).map(Self::from_iter)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_sorted_map_equals_a_tree(steps in prop::collection::vec((0..5_u8, 0..12_u8, any::<u8>()), 0..60)) {
            let (mut map, mut tree) = (SortedMap::new(), BTreeMap::new());
            for (step, key, value) in steps {
                match step {
                    0 => prop_assert_eq!(map.insert(key, value), tree.insert(key, value)),
                    1 => prop_assert_eq!(map.remove(&key), tree.remove(&key)),
                    2 => prop_assert_eq!(&*map.get_or_default(key), &*tree.entry(key).or_default()),
                    3 => {
                        let least = tree.iter().min_by_key(|(_, value)| **value).map(|(key, _)| *key);
                        let least = least.and_then(|key| tree.remove_entry(&key));
                        prop_assert_eq!(map.pop_least(|value| *value), least);
                    }
                    _ => prop_assert_eq!(map.pop_first(), tree.pop_first()),
                }
                prop_assert_eq!(map.get(&key), tree.get(&key));
                prop_assert_eq!(map.last().map(|(key, _)| key), tree.keys().next_back());
                prop_assert!(map.range_from(&key).iter().map(|(key, _)| key).eq(tree.range(key..).map(|(key, _)| key)));
            }
            prop_assert_eq!(format!("{map:?}"), format!("{tree:?}"));
        }

        #[test]
        fn many_added_entries_equal_those_of_a_tree(
            first in prop::collection::vec((any::<u8>(), any::<u16>()), 0..40),
            added in prop::collection::vec((any::<u8>(), any::<u16>()), 0..200),
        ) {
            let (mut map, mut tree) = (SortedMap::from_iter(first.clone()), BTreeMap::from_iter(first.clone()));
            map.extend(added.clone());
            tree.extend(added.clone());
            prop_assert!(map.into_iter().eq(tree));
            let (mut set, mut tree) = (SortedSet::from_iter(first.clone()), BTreeSet::from_iter(first));
            set.extend(added.clone());
            tree.extend(added);
            prop_assert!(set.into_iter().eq(tree));
        }

        #[test]
        fn a_sorted_set_equals_a_tree(steps in prop::collection::vec((any::<bool>(), 0..12_u8), 0..60)) {
            let (mut set, mut tree) = (SortedSet::new(), BTreeSet::new());
            for (inserts, member) in steps {
                if inserts {
                    prop_assert_eq!(set.insert(member), tree.insert(member));
                } else {
                    prop_assert_eq!(set.remove(&member), tree.remove(&member));
                }
                prop_assert_eq!(set.contains(&member), tree.contains(&member));
                prop_assert!(set.after(&member).iter().eq(tree.range(member + 1..)));
            }
            prop_assert_eq!(format!("{set:?}"), format!("{tree:?}"));
        }
    }
}
