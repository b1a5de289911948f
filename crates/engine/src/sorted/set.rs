//! Members without a value.

use std::{borrow::Borrow, fmt, marker::PhantomData, slice::Iter, vec::IntoIter};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, SeqAccess},
};

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
        for member in members {
            self.insert(member);
        }
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
        from.deserialize_seq(Members(PhantomData))
    }
}

struct Members<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Ord> de::Visitor<'de> for Members<T> {
    type Value = SortedSet<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<SortedSet<T>, A::Error> {
        let mut set = SortedSet::new();
        while let Some(member) = members.next_element()? {
            set.insert(member);
        }
        Ok(set)
    }
}
