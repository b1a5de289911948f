//! Which events were published already, so that publishing twice is answered with the first one's position.
//!
//! Pure: keys and positions in, the earlier position out. Bounded; the oldest key is forgotten first. A key is a hash that
//! the caller made, so its low bits are as good as any hash of it.

use crate::event::Seq;

/// How many keys are remembered: about 34 MiB when all are used, about 100 minutes of 10,000 events a minute.
pub const PUBLISHED_KEYS_MAX: usize = 1_000_000;

/// The smallest table; a power of two.
const SLOTS_MIN: usize = 1 << 10;

/// The newest keys and where each was first written.
#[derive(Debug, Clone)]
pub struct PublishedKeys {
    keys_max: usize,
    /// In order of arrival, as a ring once it is full.
    entries: Vec<Entry>,
    /// Where the oldest entry is, once the ring is full.
    oldest: usize,
    /// An open table of entry numbers, at most half full; its length is a power of two.
    slots: Vec<Slot>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    low: u64,
    high: u64,
    seq: Seq,
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

    /// Every key that is remembered and where it was first written, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u128, Seq)> {
        let (newer, older) = self.entries.split_at(self.oldest);
        older
            .iter()
            .chain(newer)
            .map(|entry| (u128::from(entry.high) << 64 | u128::from(entry.low), entry.seq))
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
        if (self.entries.len() + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let [low, high] = [key as u64, (key >> 64) as u64];
        let entry = Entry { low, high, seq };
        let mut slot = self.home_of(low);
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

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(SLOTS_MIN);
        self.slots = vec![0; size];
        for number in 0..self.entries.len() {
            self.place(number);
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

impl Entry {
    /// Bits of the key that are not a part of its home.
    fn tag(&self) -> u32 {
        (self.high as u32) >> NUMBER_BITS
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.low, self.high) == (other.low, other.high)
    }
}

fn slot_of(number: usize, entry: &Entry) -> Slot {
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
        ) {
            let mut keys_seen = PublishedKeys::new(keys_max);
            let mut list: VecDeque<(u128, Seq)> = VecDeque::new();
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
        }
    }
}
