//! Which events were published already, so that publishing twice is answered with the first one's position.
//!
//! Pure: keys and positions in, the earlier position out. Bounded; the oldest key is forgotten first. A key is a hash that
//! the caller made, so its low bits are as good as any hash of it.

use crate::event::Seq;

/// How many keys are remembered: about 34 MiB when all are used, about 100 minutes of 10,000 events a minute.
pub const PUBLISHED_KEYS_MAX: usize = 1_000_000;

/// How many slots are brought into the processor's cache at a time; more than it fetches at once, and few beside what it holds.
const TOUCHED_TOGETHER: usize = 64;

/// The smallest table; a power of two.
const SLOTS_MIN: usize = 1 << 10;

/// The newest keys and where each was first written.
#[derive(Debug, Clone)]
pub struct PublishedKeys {
    keys_max: usize,
    /// In order of arrival, as a ring once it is full.
    entries: Vec<PublishedKey>,
    /// Where the oldest entry is, once the ring is full.
    oldest: usize,
    /// An open table of entry numbers, at most half full; its length is a power of two.
    slots: Vec<Slot>,
}

/// A key, and where it was first written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedKey {
    /// In halves, so that it takes 24 bytes.
    low: u64,
    high: u64,
    /// The record it was first written with.
    pub seq: Seq,
}

/// An entry's number plus one in the low bits, zero when free, and above it the key's tag.
///
/// A search compares tags, so that hardly any entry but the one that is found is looked at: there are more entries than a
/// processor's cache holds, and keys come in no order.
type Slot = u32;

/// Bits of a slot that hold a number.
const NUMBER_BITS: u32 = 20;
/// Most keys: every number plus one fits.
const KEYS_LIMIT: usize = (1 << NUMBER_BITS) - 1;
const _: () = assert!(PUBLISHED_KEYS_MAX <= KEYS_LIMIT, "a slot's number must reach every entry");

impl PublishedKeys {
    /// Remembers up to `keys_max` keys; memory grows as they are used.
    pub fn new(keys_max: usize) -> Self {
        Self { keys_max: keys_max.clamp(1, KEYS_LIMIT), entries: Vec::new(), oldest: 0, slots: Vec::new() }
    }

    /// Room for `count` keys from the beginning, so that no table is made twice on the way there.
    pub fn with_room(keys_max: usize, count: usize) -> Self {
        let mut keys = Self::new(keys_max);
        let count = count.min(keys.keys_max);
        keys.entries.reserve(count.next_power_of_two().min(keys.keys_max));
        keys.slots = vec![0; slots_for(count)];
        keys
    }

    /// The keys of records after `after`, oldest first.
    ///
    /// Shape: a copy of 24 bytes a key.
    pub fn since(&self, after: Seq) -> Vec<PublishedKey> {
        let (newer, older) = self.entries.split_at(self.oldest);
        [keys_since(older, after), keys_since(newer, after)].concat()
    }

    /// How many keys are remembered.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Remembers a key, unless it is remembered: then returns where it was first written.
    pub fn remember(&mut self, key: u128, seq: Seq) -> Option<Seq> {
        self.has_grown_for(self.entries.len() + 1);
        let entry = PublishedKey::new(key, seq);
        let mut slot = self.home_of(entry.low);
        while let Some(found) = self.used(slot) {
            if tag_of(found) == entry.tag()
                && let Some(known) = self.entries.get(number_of(found)).filter(|known| known.is_same(&entry))
            {
                return Some(known.seq);
            }
            slot = self.after(slot);
        }
        if self.entries.len() < self.keys_max {
            self.entries.push(entry);
            self.set(slot, slot_of(self.entries.len() - 1, &entry));
            return None;
        }
        let replaced = self.oldest;
        self.oldest = (replaced + 1) % self.keys_max;
        self.free_slot_of(replaced);
        if let Some(place) = self.entries.get_mut(replaced) {
            *place = entry;
        }
        self.place(replaced);
        None
    }

    /// Remembers keys that are not, without looking for them, and of records after those of all others.
    ///
    /// Shape: all keys together must not be more than there may be.
    pub fn add(&mut self, keys: impl IntoIterator<Item = PublishedKey>) {
        let begin = self.entries.len();
        self.entries.extend(keys);
        debug_assert!(self.entries.len() <= self.keys_max, "there is room for each key that is added");
        if !self.has_grown_for(self.entries.len()) {
            self.place_from(begin);
        }
    }

    /// Remembers keys that come one after the other; each one that is remembered keeps its first position.
    pub fn remember_all(&mut self, keys: &[PublishedKey]) {
        for keys in keys.chunks(TOUCHED_TOGETHER) {
            self.has_grown_for(self.entries.len() + keys.len());
            self.touch(keys);
            if self.entries.len() == self.keys_max {
                // They take the places of these.
                let end = self.keys_max.min(self.oldest + keys.len());
                self.touch(self.entries.get(self.oldest..end).unwrap_or_default());
            }
            for key in keys {
                self.remember(key.key(), key.seq);
            }
        }
    }

    /// Has the slots that are about to be looked at brought into the processor's cache, all at once: the table is larger than
    /// that, and who looks at one after the other waits for each.
    fn touch(&self, keys: &[PublishedKey]) {
        let slots = keys.iter().map(|key| self.slots.get(self.home_of(key.low)).copied().unwrap_or_default());
        std::hint::black_box(slots.fold(0, |all, slot| all ^ slot));
    }

    /// Makes a larger table if `count` keys need one; returns whether it did, with every entry in it.
    fn has_grown_for(&mut self, count: usize) -> bool {
        let size = slots_for(count);
        let is_larger = size > self.slots.len();
        if is_larger {
            self.slots = vec![0; size];
            self.place_from(0);
        }
        is_larger
    }

    /// Puts this entry and all after it, none of which has a slot, into theirs.
    fn place_from(&mut self, number: usize) {
        let mut begin = number;
        while begin < self.entries.len() {
            let end = self.entries.len().min(begin + TOUCHED_TOGETHER);
            self.touch(self.entries.get(begin..end).unwrap_or_default());
            (begin..end).for_each(|number| self.place(number));
            begin = end;
        }
    }

    /// Puts an entry that has no slot into the first free one from its home on.
    fn place(&mut self, number: usize) {
        let Some(entry) = self.entries.get(number).copied() else { return };
        let mut slot = self.home_of(entry.low);
        while self.used(slot).is_some() {
            slot = self.after(slot);
        }
        self.set(slot, slot_of(number, &entry));
    }

    /// Frees an entry's slot and moves later ones up, so that no search ends at the gap before it finds them.
    fn free_slot_of(&mut self, number: usize) {
        let Some(entry) = self.entries.get(number) else { return };
        let mut gap = self.home_of(entry.low);
        while self.used(gap).is_some_and(|found| number_of(found) != number) {
            gap = self.after(gap);
        }
        let mut slot = self.after(gap);
        while let Some(found) = self.used(slot) {
            let home = self.entries.get(number_of(found)).map_or(slot, |entry| self.home_of(entry.low));
            let from_home = slot.wrapping_sub(home) & self.mask();
            if from_home >= (slot.wrapping_sub(gap) & self.mask()) {
                self.set(gap, found);
                gap = slot;
            }
            slot = self.after(slot);
        }
        self.set(gap, 0);
    }

    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    fn home_of(&self, low: u64) -> usize {
        low as usize & self.mask()
    }

    fn after(&self, slot: usize) -> usize {
        (slot + 1) & self.mask()
    }

    fn used(&self, slot: usize) -> Option<Slot> {
        self.slots.get(slot).copied().filter(|slot| *slot != 0)
    }

    fn set(&mut self, slot: usize, to: Slot) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = to;
        }
    }
}

impl PublishedKey {
    /// The key of the record at `seq`.
    pub fn new(key: u128, seq: Seq) -> Self {
        Self { low: key as u64, high: (key >> 64) as u64, seq }
    }

    /// The key itself.
    pub fn key(&self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }

    /// Bits of the key that are not a part of its home.
    fn tag(&self) -> u32 {
        (self.high as u32) >> NUMBER_BITS
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.low, self.high) == (other.low, other.high)
    }
}

/// Those of `keys`, which are in order of their records, that are of records after `after`.
fn keys_since(keys: &[PublishedKey], after: Seq) -> &[PublishedKey] {
    keys.get(keys.partition_point(|key| key.seq <= after)..).unwrap_or_default()
}

/// How many slots `count` keys need.
fn slots_for(count: usize) -> usize {
    (count * 2).next_power_of_two().max(SLOTS_MIN)
}

fn slot_of(number: usize, entry: &PublishedKey) -> Slot {
    let number = Slot::try_from(number + 1).expect("keys_max leaves room for every number");
    entry.tag() << NUMBER_BITS | number
}

/// The number of its entry; only of a slot that is used.
fn number_of(slot: Slot) -> usize {
    (slot & ((1 << NUMBER_BITS) - 1)) as usize - 1
}

fn tag_of(slot: Slot) -> u32 {
    slot >> NUMBER_BITS
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_position_is_answered_until_the_key_is_the_oldest_of_too_many() {
        let mut keys = PublishedKeys::new(2);
        assert_eq!(keys.remember(1, Seq(10)), None);
        assert_eq!(keys.remember(1, Seq(11)), Some(Seq(10)));
        assert_eq!(keys.remember(2, Seq(12)), None);
        assert_eq!(keys.remember(3, Seq(13)), None);
        assert_eq!(keys.remember(2, Seq(14)), Some(Seq(12)));
        assert_eq!(keys.remember(1, Seq(15)), None);
        assert_eq!(keys.len(), 2);
    }

    #[test]
    fn keys_that_differ_only_in_their_high_half_differ() {
        let mut keys = PublishedKeys::new(8);
        assert_eq!(keys.remember(5, Seq(1)), None);
        assert_eq!(keys.remember(5 | 1 << 100, Seq(2)), None);
        assert_eq!(keys.remember(5 | 1 << 100, Seq(3)), Some(Seq(2)));
    }

    #[test]
    fn many_keys_are_found_again_after_growing() {
        let mut keys = PublishedKeys::new(100_000);
        let key = |number: u64| u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert!((0..50_000).all(|number| keys.remember(key(number), Seq(number)).is_none()));
        assert!((0..50_000).all(|number| keys.remember(key(number), Seq(0)) == Some(Seq(number))));
    }

    proptest! {
        #[test]
        fn it_does_what_a_plain_list_does(
            keys_max in 1_usize..40,
            // Few homes, also the last of the table, so that runs of slots wrap and overlap.
            keys in prop::collection::vec((prop::sample::select(vec![0_u128, 1, 2, 1021, 1022, 1023]), 0_u128..8), 0..400),
            since in 0_u64..400,
            room in 0_usize..40,
        ) {
            let mut keys_seen = PublishedKeys::new(keys_max);
            let mut list: VecDeque<(u128, Seq)> = VecDeque::new();
            let since = Seq(since);
            for (seq, (home, turn)) in (1..).map(Seq).zip(keys) {
                let key = home | turn << 64;
                let known = list.iter().find(|(known, _)| *known == key).map(|(_, seq)| *seq);
                if known.is_none() {
                    list.push_back((key, seq));
                    if list.len() > keys_max {
                        list.pop_front();
                    }
                }
                prop_assert_eq!(keys_seen.remember(key, seq), known);
            }
            let newer = list.iter().filter(|(_, seq)| *seq > since).map(|(key, seq)| PublishedKey::new(*key, *seq));
            prop_assert_eq!(keys_seen.since(since), newer.collect::<Vec<_>>());
            // What is taken over from another one is known as well, and is forgotten in the same order.
            let mut again = PublishedKeys::with_room(keys_max, room);
            let taken_over = keys_seen.since(Seq::ZERO);
            let (first, second) = taken_over.split_at(taken_over.len() / 2);
            again.add(first.to_vec());
            again.add(second.to_vec());
            for (seq, home) in (1_000..).map(Seq).zip([0, 9, 1, 8, 1023, 7]) {
                prop_assert_eq!(again.remember(home, seq), keys_seen.remember(home, seq));
            }
            prop_assert_eq!(again.since(Seq::ZERO), keys_seen.since(Seq::ZERO));
            let some = [5, 1, 1024, 3, 5, 0].map(|home| PublishedKey::new(home, Seq(2_000 + home as u64)));
            again.remember_all(&some);
            for key in some {
                keys_seen.remember(key.key(), key.seq);
            }
            prop_assert_eq!(again.since(Seq::ZERO), keys_seen.since(Seq::ZERO));
        }
    }
}
