//! Durations, counted in buckets while the daemon runs.
//!
//! An observation is two clock reads and two lock-free additions, some tens of nanoseconds in all,
//! so it can be on any path. The caller passes the clock; this module reads none of its own.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Upper bounds of the buckets, in microseconds; longer durations are in one more bucket.
///
/// Source: a sync takes 0.1 to 30 ms, an exchange some 50 us, a hook gives up after 150 ms.
pub const BOUNDS_US: [u64; 18] = [
    25, 50, 100, 150, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 150_000, 250_000,
    500_000, 1_000_000, 10_000_000,
];

/// Reads the monotonic clock; only differences have a meaning.
pub type MonotonicClock = fn() -> Duration;

/// The start time of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Duration);

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Histogram {
    /// One per bound, and one for longer durations.
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// The count of each bucket, in the order of [`BOUNDS_US`]; the last one is for longer
    /// durations.
    pub buckets: [u64; BOUNDS_US.len() + 1],
    /// The sum of all durations.
    pub sum: Duration,
}

/// The daemon's measurements of itself.
#[derive(Debug)]
pub struct Meters {
    clock: MonotonicClock,
    /// From parsed events to their configured durability; once per batch.
    pub publish: Histogram,
    /// From the append of an exchange to its answer, without the probes; those of hooks included.
    pub exchange: Histogram,
    /// From a hook call to its answer.
    pub hook: Histogram,
    /// The disk's part of a commit.
    pub commit: Histogram,
    /// The duration of all probes of an exchange, even if the exchange did not wait for them.
    pub look: Histogram,
    /// The exchanges that were made without the results of their probes.
    pub looks_missed: AtomicU64,
}

impl Histogram {
    /// Counts one duration.
    pub fn observe(&self, took: Duration) {
        let us = took.as_micros();
        let at = BOUNDS_US.partition_point(|bound| u128::from(*bound) < us);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The current counts.
    pub fn counts(&self) -> Counts {
        let buckets = self.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed));
        Counts { buckets, sum: Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed)) }
    }
}

impl Meters {
    /// Meters with the monotonic clock `clock`.
    pub fn new(clock: MonotonicClock) -> Self {
        Self {
            clock,
            publish: Histogram::default(),
            exchange: Histogram::default(),
            hook: Histogram::default(),
            commit: Histogram::default(),
            look: Histogram::default(),
            looks_missed: AtomicU64::new(0),
        }
    }

    /// Starts a measurement.
    pub fn begin(&self) -> Stopwatch {
        Stopwatch((self.clock)())
    }

    /// The time since `stopwatch` was started.
    pub fn since(&self, stopwatch: Stopwatch) -> Duration {
        (self.clock)().saturating_sub(stopwatch.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_bounds_are_inclusive_and_overflow_is_counted() {
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
        assert_eq!(meters.since(Stopwatch(Duration::from_secs(1))), Duration::ZERO);
    }
}
