//! The idempotency keys of published events, so that a retry is answered with the first position.
//!
//! Pure: takes keys and positions, returns the earlier position. Bounded: the keys of the newest
//! records are known, each at its newest record. So the end of a state is never evicted before the
//! state that it ended, and a snapshot can take the keys up to a record. A key is already a hash, so
//! its low bits serve as the table's hash.

use hashbrown::HashTable;

use crate::Seq;

/// Most records whose keys are remembered: some 2 MiB of memory, 1.5 MiB in a snapshot, six minutes
/// of 10,000 events a minute.
///
/// Source: a producer without an answer retries within seconds.
pub const IDEMPOTENCY_KEYS_MAX: usize = 65_536;

/// The newest idempotency keys, and the first position of each.
#[derive(Debug, Clone)]
pub struct IdempotencyKeys {
    keys_max: usize,
    /// In the order of their records; a ring once full. The place of a key with a newer record is
    /// vacant.
    ring: Vec<IdempotencyKey>,
    /// The ring index of the oldest place.
    oldest: usize,
    /// The ring index of each key.
    places: HashTable<u32>,
}

/// An idempotency key, and its first position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// Two halves, so that the struct takes 24 bytes.
    low: u64,
    high: u64,
    /// The first record with this key.
    pub seq: Seq,
}

impl Default for IdempotencyKeys {
    fn default() -> Self {
        Self::new(IDEMPOTENCY_KEYS_MAX)
    }
}

impl IdempotencyKeys {
    /// Remembers the keys of up to `keys_max` records; memory grows as they are used.
    pub fn new(keys_max: usize) -> Self {
        let keys_max = keys_max.clamp(1, IDEMPOTENCY_KEYS_MAX);
        Self { keys_max, ring: Vec::new(), oldest: 0, places: HashTable::new() }
    }

    /// How many keys are remembered.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// All keys, in the order of their records.
    pub fn to_vec(&self) -> Vec<IdempotencyKey> {
        let (newer, older) = self.ring.split_at(self.oldest);
        older.iter().chain(newer).filter(|key| !key.is_vacant()).copied().collect()
    }

    /// Adds a key; returns the first position if it is already known.
    pub fn remember(&mut self, key: u128, seq: Seq) -> Option<Seq> {
        match self.known(key) {
            Some(known) => Some(known.seq),
            None => {
                self.add(IdempotencyKey::new(key, seq));
                None
            }
        }
    }

    /// Adds the key of a state whose end has the key `opposite`; returns the position if the state
    /// is known and has not ended since.
    ///
    /// Shape: a state that holds again after its end has the position of its newest beginning.
    pub fn remember_change(&mut self, key: u128, opposite: u128, seq: Seq) -> Option<Seq> {
        let ended = self.known(opposite).map(|ended| ended.seq);
        let known = self.remember(key, seq)?;
        if ended <= Some(known) {
            return Some(known);
        }
        self.renew(IdempotencyKey::new(key, seq));
        None
    }

    fn known(&self, key: u128) -> Option<&IdempotencyKey> {
        let key = IdempotencyKey::new(key, Seq::ZERO);
        let same = |place: &u32| self.ring.get(*place as usize).filter(|known| known.is_same(&key));
        self.places.find(key.hash(), |place| same(place).is_some()).and_then(same)
    }

    /// Gives a known key the place of its newest record.
    fn renew(&mut self, key: IdempotencyKey) {
        let ring = &mut self.ring;
        let is_same = |place: &u32| ring.get(*place as usize).is_some_and(|known| known.is_same(&key));
        if let Ok(entry) = self.places.find_entry(key.hash(), is_same) {
            let (place, _) = entry.remove();
            if let Some(old) = ring.get_mut(place as usize) {
                *old = IdempotencyKey::VACANT;
            }
        }
        self.add(key);
    }

    /// Adds an unknown key, in the oldest place if there is no room.
    fn add(&mut self, key: IdempotencyKey) -> Option<()> {
        let Self { keys_max, ring, oldest, places } = self;
        let place = if ring.len() < *keys_max {
            ring.push(key);
            ring.len() - 1
        } else {
            let replaced = *oldest;
            *oldest = (replaced + 1) % *keys_max;
            let evicted = std::mem::replace(ring.get_mut(replaced)?, key);
            if let Ok(entry) = places.find_entry(evicted.hash(), |place| *place as usize == replaced) {
                entry.remove();
            }
            replaced
        };
        let place = u32::try_from(place).expect("IDEMPOTENCY_KEYS_MAX places have small numbers");
        let hash_at = |place: &u32| ring.get(*place as usize).map_or(0, IdempotencyKey::hash);
        places.insert_unique(key.hash(), place, hash_at);
        Some(())
    }

    /// Adds the keys of records that were written, in order. A key that was written twice is that
    /// of a state that began again, and has the later position.
    pub fn remember_all(&mut self, keys: impl IntoIterator<Item = IdempotencyKey>) {
        for key in keys {
            if self.remember(key.key(), key.seq).is_some_and(|known| known < key.seq) {
                self.renew(key);
            }
        }
    }
}

impl IdempotencyKey {
    /// Fills a place without a key. No record has this position.
    const VACANT: Self = Self { low: 0, high: 0, seq: Seq::ZERO };

    fn is_vacant(&self) -> bool {
        self.seq == Seq::ZERO
    }

    /// The key of the record at `seq`.
    pub fn new(key: u128, seq: Seq) -> Self {
        Self { low: key as u64, high: (key >> 64) as u64, seq }
    }

    /// The key itself.
    pub fn key(&self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }

    fn hash(&self) -> u64 {
        self.low
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.low, self.high) == (other.low, other.high)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn key_returns_its_first_position_until_evicted() {
        let mut keys = IdempotencyKeys::new(2);
        assert_eq!(keys.remember(1, Seq(10)), None);
        assert_eq!(keys.remember(1, Seq(11)), Some(Seq(10)));
        assert_eq!(keys.remember(2, Seq(12)), None);
        assert_eq!(keys.remember(3, Seq(13)), None);
        assert_eq!(keys.remember(2, Seq(14)), Some(Seq(12)));
        assert_eq!(keys.remember(1, Seq(15)), None);
        assert_eq!(keys.len(), 2);
    }

    #[test]
    fn a_state_is_new_again_after_its_end() {
        const FIRING: u128 = 1;
        const RESOLVED: u128 = 2;
        let mut keys = IdempotencyKeys::new(8);
        let mut said = Vec::new();
        for (seq, key) in (10..).map(Seq).zip([FIRING, FIRING, RESOLVED, RESOLVED, FIRING, FIRING, RESOLVED])
        {
            let known = keys.remember_change(key, FIRING + RESOLVED - key, seq);
            said.push(known.map(|known| known.0));
            // A start reads what was written.
            let mut again = IdempotencyKeys::new(8);
            again.remember_all(keys.to_vec());
            keys = again;
        }
        assert_eq!(said, [None, Some(10), None, Some(12), None, Some(14), None]);
        let mut read = IdempotencyKeys::new(8);
        read.remember_all(
            [10, 12, 14].map(|seq| IdempotencyKey::new(FIRING + u128::from(seq == 12), Seq(seq))),
        );
        assert_eq!(read.remember_change(FIRING, RESOLVED, Seq(20)), Some(Seq(14)));
        assert_eq!(read.len(), 2);
    }

    #[test]
    fn keys_with_equal_low_halves_stay_distinct() {
        let mut keys = IdempotencyKeys::new(8);
        assert_eq!(keys.remember(5, Seq(1)), None);
        assert_eq!(keys.remember(5 | 1 << 100, Seq(2)), None);
        assert_eq!(keys.remember(5 | 1 << 100, Seq(3)), Some(Seq(2)));
    }

    #[test]
    fn the_newest_of_many_keys_are_found_again() {
        let mut keys = IdempotencyKeys::default();
        let (count, kept) = (150_000, IDEMPOTENCY_KEYS_MAX as u64);
        let key = |number: u64| u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert!((1..=count).all(|number| keys.remember(key(number), Seq(number)).is_none()));
        assert!(
            (count - kept + 1..=count).all(|number| keys.remember(key(number), Seq(0)) == Some(Seq(number)))
        );
        assert_eq!((keys.len() as u64, keys.to_vec()[0].seq), (kept, Seq(count - kept + 1)));
        assert_eq!(keys.remember(key(1), Seq(count + 1)), None);
    }

    /// A journal in which `keys_max` records are remembered, as a list of them.
    #[derive(Default)]
    struct NewestRecords(VecDeque<(u128, Seq)>);

    impl NewestRecords {
        fn newest(&self, key: u128) -> Option<Seq> {
            self.0.iter().rev().find(|(known, _)| *known == key).map(|(_, seq)| *seq)
        }

        fn remember(&mut self, key: u128, opposite: Option<u128>, seq: Seq, keys_max: usize) -> Option<Seq> {
            let known = self.newest(key);
            if known.is_some() && opposite.and_then(|opposite| self.newest(opposite)) <= known {
                return known;
            }
            self.0.push_back((key, seq));
            self.0.drain(..self.0.len().saturating_sub(keys_max));
            None
        }

        fn listed(&self) -> Vec<IdempotencyKey> {
            let newest = self.0.iter().filter(|(key, seq)| self.newest(*key) == Some(*seq));
            newest.map(|(key, seq)| IdempotencyKey::new(*key, *seq)).collect()
        }
    }

    #[test]
    fn restarted_state_outlasts_the_keys_before_it() {
        const RESOLVED: u128 = 1;
        const FIRING: u128 = 2;
        let mut keys = IdempotencyKeys::new(3);
        assert_eq!(keys.remember_change(RESOLVED, FIRING, Seq(10)), None);
        assert_eq!(keys.remember_change(FIRING, RESOLVED, Seq(11)), None);
        assert_eq!(keys.remember_change(RESOLVED, FIRING, Seq(12)), None);
        assert_eq!(keys.to_vec().iter().map(|key| key.seq).collect::<Vec<_>>(), [Seq(11), Seq(12)]);
        // The end is younger than what it ended, so it is not evicted first: a firing state would
        // count as known.
        assert_eq!(keys.remember(3, Seq(13)), None);
        assert_eq!(keys.remember_change(FIRING, RESOLVED, Seq(14)), None);
        assert_eq!(keys.remember_change(RESOLVED, FIRING, Seq(15)), None);
    }

    proptest! {
        #[test]
        fn it_remembers_the_newest_records_in_their_order(
            keys_max in 1_usize..12,
            reports in prop::collection::vec((0_u128..6, any::<bool>()), 0..200),
        ) {
            let (mut remembered, mut model) = (IdempotencyKeys::new(keys_max), NewestRecords::default());
            for (seq, (key, is_change)) in (1..).map(Seq).zip(reports) {
                let opposite = is_change.then_some(key ^ 1);
                let known = match opposite {
                    Some(opposite) => remembered.remember_change(key, opposite, seq),
                    None => remembered.remember(key, seq),
                };
                prop_assert_eq!(known, model.remember(key, opposite, seq, keys_max));
                prop_assert_eq!(remembered.to_vec(), model.listed());
                prop_assert_eq!(remembered.len(), model.listed().len());
                // A start reads the records again.
                let mut read = IdempotencyKeys::new(keys_max);
                read.remember_all(model.0.iter().map(|(key, seq)| IdempotencyKey::new(*key, *seq)));
                prop_assert_eq!(read.to_vec(), model.listed());
            }
        }

        #[test]
        fn it_does_what_a_plain_list_does(
            keys_max in 1_usize..40,
            // Few hashes, so that many keys share one.
            keys in prop::collection::vec((0_u128..6, 0_u128..8), 0..400),
        ) {
            let mut remembered = IdempotencyKeys::new(keys_max);
            let mut list: VecDeque<(u128, Seq)> = VecDeque::new();
            for (seq, (low, high)) in (1..).map(Seq).zip(keys) {
                let key = low | high << 64;
                let known = list.iter().find(|(known, _)| *known == key).map(|(_, seq)| *seq);
                if known.is_none() {
                    list.push_back((key, seq));
                    if list.len() > keys_max {
                        list.pop_front();
                    }
                }
                prop_assert_eq!(remembered.remember(key, seq), known);
            }
            let listed = list.iter().map(|(key, seq)| IdempotencyKey::new(*key, *seq));
            prop_assert_eq!(remembered.to_vec(), listed.collect::<Vec<_>>());
            // Keys copied from another instance are also detected, and are evicted in the same
            // order.
            let mut again = IdempotencyKeys::new(keys_max);
            again.remember_all(remembered.to_vec());
            for (seq, low) in (1_000..).map(Seq).zip([0, 9, 1, 8, 1023, 7]) {
                prop_assert_eq!(again.remember(low, seq), remembered.remember(low, seq));
            }
            prop_assert_eq!(again.to_vec(), remembered.to_vec());
        }
    }
}
