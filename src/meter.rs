//! How long things take, counted in buckets while the daemon runs.
//!
//! An observation is two reads of a clock and three additions to numbers that nobody locks, some tens of nanoseconds in all, so
//! it may stand on any path. The clock is given: nothing here reads one.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Upper bounds of the buckets, in microseconds; what is longer is in one more.
///
/// Source: a sync takes 0.1 to 30 ms, an exchange some 50 us, a hook gives up after 150 ms.
pub const BOUNDS_US: [u64; 18] = [
    25, 50, 100, 150, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 150_000, 250_000,
    500_000, 1_000_000, 10_000_000,
];

/// Reads a clock that nobody sets; only differences mean anything.
pub type Steady = fn() -> Duration;

/// What a stopwatch showed when something began.
#[derive(Debug, Clone, Copy)]
pub struct Begun(Duration);

/// How often something took how long.
#[derive(Debug, Default)]
pub struct Histogram {
    /// One for each bound, and the one for what is longer.
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

/// A histogram as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// How many fell into each bucket, in the order of [`BOUNDS_US`]; the last one is what was longer.
    pub buckets: [u64; BOUNDS_US.len() + 1],
    /// How long all took together.
    pub sum: Duration,
}

/// What the daemon measures of itself.
#[derive(Debug)]
pub struct Meters {
    steady: Steady,
    /// From events that were read to their being as durable as is set; once a batch.
    pub publish: Histogram,
    /// From an exchange that was read to its answer; those of hooks are among them.
    pub exchange: Histogram,
    /// From a hook call to its answer.
    pub hook: Histogram,
    /// The disk's part of a commit.
    pub commit: Histogram,
    /// What all probes of an exchange take, also when the exchange did not wait for them.
    pub look: Histogram,
    /// The exchanges that were made without what their probes would have found.
    pub looks_missed: AtomicU64,
}

impl Histogram {
    /// Counts something that took this long.
    pub fn observe(&self, took: Duration) {
        let us = took.as_micros();
        let at = BOUNDS_US.partition_point(|bound| u128::from(*bound) < us);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What was counted until now.
    pub fn counts(&self) -> Counts {
        let buckets = self.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed));
        Counts { buckets, sum: Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed)) }
    }
}

impl Meters {
    /// Meters that read `steady`.
    pub fn new(steady: Steady) -> Self {
        Self {
            steady,
            publish: Histogram::default(),
            exchange: Histogram::default(),
            hook: Histogram::default(),
            commit: Histogram::default(),
            look: Histogram::default(),
            looks_missed: AtomicU64::new(0),
        }
    }

    /// Begins to measure.
    pub fn begin(&self) -> Begun {
        Begun((self.steady)())
    }

    /// How long it has been since `begun`.
    pub fn since(&self, begun: Begun) -> Duration {
        (self.steady)().saturating_sub(begun.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket_and_what_is_longer_is_counted_too() {
        let histogram = Histogram::default();
        for us in [0, 25, 26, 10_000_000, 10_000_001] {
            histogram.observe(Duration::from_micros(us));
        }
        let counts = histogram.counts();
        let mut expected = [0; BOUNDS_US.len() + 1];
        expected[0] = 2;
        expected[1] = 1;
        expected[17] = 1;
        expected[18] = 1;
        assert_eq!(counts.buckets, expected);
        assert_eq!(counts.sum, Duration::from_micros(20_000_052));
        assert!(BOUNDS_US.is_sorted());
    }

    #[test]
    fn a_clock_that_steps_back_measures_nothing() {
        let meters = Meters::new(|| Duration::ZERO);
        assert_eq!(meters.since(Begun(Duration::from_secs(1))), Duration::ZERO);
    }
}
