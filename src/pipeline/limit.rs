//! Limits the rate of notifications.
//!
//! Each session (or folder, or the scope of all) has its own token bucket, so a busy session does
//! not use up another's. The arithmetic is in whole units and exact: the number of calls does not
//! change the result. The pipeline counts what is rate-limited.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    event::Scope,
    pipeline::rule::Rate,
    time::{Timestamp, duration_millis},
};

/// Most buckets of a subscriber, about 200 bytes each. When it is reached, the least recently used
/// one is evicted; it starts full again.
pub(crate) const BUCKETS_MAX: usize = 1_024;

/// A token bucket: `count` tokens at once, and `count` more per period.
///
/// Units: a token has as many parts as the period has milliseconds, so `count` parts are added per
/// millisecond.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TokenBucket {
    token_parts: u128,
    parts_per_ms: u128,
    parts: u128,
    filled_at: Timestamp,
}

impl TokenBucket {
    /// A full bucket.
    pub(crate) fn new(rate: Rate, now: Timestamp) -> Self {
        let token_parts = u128::from(duration_millis(rate.per).max(1));
        let parts_per_ms = u128::from(rate.count.get());
        Self { token_parts, parts_per_ms, parts: token_parts * parts_per_ms, filled_at: now }
    }

    /// Takes a token. Errors: the time from which one is available.
    pub(crate) fn try_take(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        let elapsed_ms = u128::from(duration_millis(now.since(self.filled_at)));
        let full = self.token_parts * self.parts_per_ms;
        self.parts = full.min(self.parts + elapsed_ms * self.parts_per_ms);
        self.filled_at = self.filled_at.max(now);
        match self.parts.checked_sub(self.token_parts) {
            Some(left) => {
                self.parts = left;
                Ok(())
            }
            None => {
                let wait_ms = (self.token_parts - self.parts).div_ceil(self.parts_per_ms);
                let wait_ms = u64::try_from(wait_ms).unwrap_or(u64::MAX);
                Err(Timestamp::from_millis(self.filled_at.as_millis().saturating_add(wait_ms)))
            }
        }
    }
}

/// The buckets of one subscriber.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Limiter {
    buckets: BTreeMap<Scope, TokenBucket>,
}

impl Limiter {
    /// Takes a token from the bucket of `scope`. Errors: the time from which one is available.
    pub(crate) fn try_take(&mut self, rate: Rate, scope: &Scope, now: Timestamp) -> Result<(), Timestamp> {
        if let Some(bucket) = self.buckets.get_mut(scope) {
            return bucket.try_take(now);
        }
        if self.buckets.len() >= BUCKETS_MAX {
            self.forget_oldest();
        }
        self.buckets.entry(scope.clone()).or_insert(TokenBucket::new(rate, now)).try_take(now)
    }

    /// Removes every bucket, because the rate changed.
    pub(crate) fn clear(&mut self) {
        self.buckets.clear();
    }

    fn forget_oldest(&mut self) {
        let oldest = self.buckets.iter().min_by_key(|(_, bucket)| bucket.filled_at);
        if let Some(scope) = oldest.map(|(scope, _)| scope.clone()) {
            self.buckets.remove(&scope);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroU32, time::Duration};

    use proptest::prelude::*;

    use super::*;
    use crate::event::SessionId;

    fn rate(count: u32, per_ms: u64) -> Rate {
        let count = NonZeroU32::new(count).expect("not zero");
        Rate { count, per: Duration::from_millis(per_ms) }
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_bucket_starts_full_and_says_when_to_ask_again() {
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
    fn each_scope_has_its_own_bucket() {
        let mut limiter = Limiter::default();
        let (one, other) = (Scope::Session(SessionId::new("a")), Scope::Session(SessionId::new("b")));
        let rate = rate(1, 1_000);
        assert_eq!(limiter.try_take(rate, &one, at(0)), Ok(()));
        assert_eq!(limiter.try_take(rate, &one, at(1)), Err(at(1_000)));
        assert_eq!(limiter.try_take(rate, &other, at(1)), Ok(()));
    }

    #[test]
    fn the_number_of_buckets_is_bounded() {
        let mut limiter = Limiter::default();
        let scope = |id: usize| Scope::Session(SessionId::new(&id.to_string()));
        let rate = rate(1, 3_600_000);
        for id in 0..=BUCKETS_MAX {
            let ms = u64::try_from(id).expect("small");
            assert_eq!(limiter.try_take(rate, &scope(id), at(ms)), Ok(()));
        }
        assert_eq!(limiter.buckets.len(), BUCKETS_MAX);
        assert_eq!(limiter.try_take(rate, &scope(1), at(2_000)), Err(at(3_600_001)));
        assert_eq!(limiter.try_take(rate, &scope(0), at(2_000)), Ok(()));
    }

    proptest! {
        #[test]
        fn the_rate_holds_over_every_span_and_retry_at_is_exact(
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
