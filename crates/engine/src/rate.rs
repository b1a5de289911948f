//! Limits the rate of anything that has a key, with one token bucket for each key.
//!
//! A busy key does not use up another's tokens, as long as there is a bucket for each. The arithmetic is
//! in whole units and exact: the number of calls does not change the result.

use std::{borrow::Borrow, fmt, num::NonZeroU32, time::Duration};

use serde::{Deserialize, Serialize};

use journal::time::{Timestamp, duration_millis};

use crate::sorted::SortedMap;

/// Most buckets of a table, about 200 bytes each. One that is full again is forgotten, as a new one
/// would be the same. Keys for which there is no room share a bucket, so that many made-up keys do not
/// get a limit each.
pub(crate) const BUCKETS_MAX: usize = 4_096;

/// A rate limit: a token bucket that starts full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The bucket's size, and the tokens added during `per`.
    pub count: NonZeroU32,
    /// The period; never zero.
    pub per: Duration,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per.as_secs() {
            60 => "min",
            3_600 => "h",
            _ => "s",
        };
        write!(f, "{}/{unit}", self.count)
    }
}

/// The buckets of one limit, by their keys.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Buckets<K: Ord> {
    buckets: SortedMap<K, TokenBucket>,
    /// The bucket of the keys without one, for each rate: tokens, and the milliseconds of its period.
    #[serde(default, skip_serializing_if = "SortedMap::is_empty")]
    shared: SortedMap<(u32, u64), TokenBucket>,
    /// No bucket is full again before; `None` if that is not known.
    #[serde(skip)]
    full_from: Option<Timestamp>,
}

impl<K: Ord> Default for Buckets<K> {
    fn default() -> Self {
        Self { buckets: SortedMap::new(), shared: SortedMap::new(), full_from: None }
    }
}

impl<K: Ord + Clone> Buckets<K> {
    /// Takes a token from the bucket of `key`. Errors: the time from which one is available.
    pub(crate) fn try_take<Q>(&mut self, rate: Rate, key: &Q, now: Timestamp) -> Result<(), Timestamp>
    where
        Q: Ord + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        if let Some(bucket) = self.buckets.get_mut(key) {
            return bucket.try_take(now);
        }
        self.make_room(now);
        if self.buckets.len() >= BUCKETS_MAX {
            let own = (rate.count.get(), duration_millis(rate.per));
            return self.shared.get_or_insert_with(own, || TokenBucket::new(rate, now)).try_take(now);
        }
        let bucket = self.buckets.get_or_insert_with(key.to_owned(), || TokenBucket::new(rate, now));
        let taken = bucket.try_take(now);
        self.full_from = self.full_from.map(|at| at.min(bucket.full_at()));
        taken
    }

    /// Forgets the buckets that are full again, if there is no room for another one.
    fn make_room(&mut self, now: Timestamp) {
        if self.buckets.len() < BUCKETS_MAX || self.full_from.is_some_and(|at| at > now) {
            return;
        }
        self.buckets.retain(|_, bucket| bucket.full_at() > now);
        self.full_from = self.buckets.values().map(TokenBucket::full_at).min();
    }

    /// Removes every bucket, because the rate changed.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// A token bucket: `count` tokens at once, and `count` more per period.
///
/// Units: a token has as many parts as the period has milliseconds, so `count` parts are added per
/// millisecond.
#[derive(Debug, Serialize, Deserialize)]
struct TokenBucket {
    token_parts: u128,
    parts_per_ms: u128,
    parts: u128,
    filled_at: Timestamp,
}

impl TokenBucket {
    fn new(rate: Rate, now: Timestamp) -> Self {
        let token_parts = u128::from(duration_millis(rate.per).max(1));
        let parts_per_ms = u128::from(rate.count.get());
        Self { token_parts, parts_per_ms, parts: token_parts * parts_per_ms, filled_at: now }
    }

    /// When it is full again, if nothing is taken before.
    fn full_at(&self) -> Timestamp {
        self.time_of(self.token_parts * self.parts_per_ms)
    }

    /// When it has so many parts, if nothing is taken before.
    fn time_of(&self, parts: u128) -> Timestamp {
        let wait_ms = parts.saturating_sub(self.parts).div_ceil(self.parts_per_ms);
        let wait_ms = u64::try_from(wait_ms).unwrap_or(u64::MAX);
        Timestamp::from_millis(self.filled_at.as_millis().saturating_add(wait_ms))
    }

    /// Takes a token. Errors: the time from which one is available.
    fn try_take(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        let elapsed_ms = u128::from(duration_millis(now.since(self.filled_at)));
        let full = self.token_parts * self.parts_per_ms;
        self.parts = full.min(self.parts + elapsed_ms * self.parts_per_ms);
        self.filled_at = self.filled_at.max(now);
        match self.parts.checked_sub(self.token_parts) {
            Some(left) => {
                self.parts = left;
                Ok(())
            }
            None => Err(self.time_of(self.token_parts)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(count: u32, per_ms: u64) -> Rate {
        let count = NonZeroU32::new(count).expect("not zero");
        Rate { count, per: Duration::from_millis(per_ms) }
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_bucket_starts_full_and_gives_retry_time() {
        let mut bucket = TokenBucket::new(rate(3, 1_000), at(0));
        for (ms, expected) in [
            (0, Ok(())),
            (0, Ok(())),
            (10, Ok(())),
            (10, Err(at(334))),
            (333, Err(at(334))),
            (334, Ok(())),
            (335, Err(at(667))),
            (60_000, Ok(())),
            (60_000, Ok(())),
            (60_000, Ok(())),
            (60_000, Err(at(60_334))),
        ] {
            assert_eq!(bucket.try_take(at(ms)), expected, "at {ms}");
        }
    }

    #[test]
    fn asking_often_neither_loses_nor_gains_tokens() {
        let mut bucket = TokenBucket::new(rate(7, 10_000), at(0));
        let taken = (0..=1_000_000).filter(|ms| bucket.try_take(at(*ms)).is_ok()).count();
        assert_eq!(taken, 7 + 700);
    }

    #[test]
    fn each_key_has_its_own_bucket() {
        let mut buckets = Buckets::<String>::default();
        let rate = rate(1, 1_000);
        assert_eq!(buckets.try_take(rate, "one", at(0)), Ok(()));
        assert_eq!(buckets.try_take(rate, "one", at(1)), Err(at(1_000)));
        assert_eq!(buckets.try_take(rate, "other", at(1)), Ok(()));
    }

    #[test]
    fn keys_without_a_bucket_share_one() {
        let mut buckets = Buckets::<usize>::default();
        let (rate, other) = (rate(2, 3_600_000), rate(1, 3_600_000));
        for id in 0..BUCKETS_MAX {
            assert_eq!(buckets.try_take(rate, &id, at(id as u64)), Ok(()));
        }
        let taken = (BUCKETS_MAX..100_000).filter(|id| buckets.try_take(rate, id, at(10_000)).is_ok());
        assert_eq!(taken.count(), 2, "they share two tokens");
        assert_eq!(buckets.buckets.len(), BUCKETS_MAX);
        assert_eq!(buckets.try_take(other, &99_999, at(10_000)), Ok(()), "another rate is not theirs");
        assert_eq!(buckets.try_take(rate, &1, at(10_000)), Ok(()), "the first keep their own");
        assert!(buckets.try_take(rate, &1, at(10_000)).is_err());
    }

    #[test]
    fn a_bucket_that_is_full_again_makes_room() {
        let mut buckets = Buckets::<usize>::default();
        let rate = rate(1, 10_000);
        for id in 0..BUCKETS_MAX {
            assert_eq!(buckets.try_take(rate, &id, at(id as u64)), Ok(()));
        }
        let taken = |buckets: &mut Buckets<usize>, ms| {
            let last = buckets.buckets.len() + 1_000_000;
            (last..last + 9).filter(|id| buckets.try_take(rate, id, at(ms)).is_ok()).count()
        };
        assert_eq!(taken(&mut buckets, 9_999), 1, "none is full again");
        assert_eq!(taken(&mut buckets, 10_004), 5, "five are, and the shared one is not");
        assert_eq!(buckets.buckets.len(), BUCKETS_MAX);
    }

    proptest! {
        #[test]
        fn the_rate_holds_over_every_interval(
            count in 1_u32..20, per_ms in 1_u64..5_000, gaps in prop::collection::vec(0_u64..400, 1..200),
        ) {
            let mut bucket = TokenBucket::new(rate(count, per_ms), at(0));
            let (mut ms, mut taken) = (0, Vec::new());
            for gap in gaps {
                ms += gap;
                match bucket.try_take(at(ms)) {
                    Ok(()) => taken.push(ms),
                    Err(retry_at) => prop_assert!(retry_at > at(ms) && retry_at <= at(ms + per_ms)),
                }
            }
            for (index, from) in taken.iter().enumerate() {
                for (extra, to) in taken[index..].iter().enumerate() {
                    let allowed = u64::from(count) + (to - from) * u64::from(count) / per_ms;
                    prop_assert!(u64::try_from(extra).expect("small") < allowed + 1);
                }
            }
        }
    }
}
