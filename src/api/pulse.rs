//! Liveness of the event loop, readable without waiting for it.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use journal::meter::MonotonicClock;

/// The value in place of a start time: the loop is idle.
const WAITS: u64 = 0;

/// In place of the time of a first check: no check has seen waiting records.
const NOT_SEEN: u64 = 0;

/// The event loop's record of its iterations.
#[derive(Debug)]
pub struct Pulse {
    clock: MonotonicClock,
    /// Start of the current iteration, in milliseconds from 1 on, or [`WAITS`].
    begun: AtomicU64,
    /// When a check first saw records that wait for the idle loop, in the same unit, or
    /// [`NOT_SEEN`].
    behind_at: AtomicU64,
}

impl Pulse {
    /// The pulse of a loop before its first iteration.
    pub fn new(clock: MonotonicClock) -> Self {
        Self { clock, begun: AtomicU64::new(WAITS), behind_at: AtomicU64::new(NOT_SEEN) }
    }

    /// Notes the start of an iteration.
    pub fn begin(&self) {
        self.begun.store(self.now(), Ordering::Relaxed);
        self.behind_at.store(NOT_SEEN, Ordering::Relaxed);
    }

    /// Notes that the loop is idle.
    pub fn wait(&self) {
        self.begun.store(WAITS, Ordering::Relaxed);
        self.behind_at.store(NOT_SEEN, Ordering::Relaxed);
    }

    /// How long the current iteration has lasted, or how long the loop has been idle since a check
    /// first saw that records wait for it; `lag` is their present number.
    pub fn held_up(&self, lag: u64) -> Duration {
        let now = self.now();
        let since = match self.begun.load(Ordering::Relaxed) {
            WAITS if lag > 0 => {
                let first =
                    self.behind_at.compare_exchange(NOT_SEEN, now, Ordering::Relaxed, Ordering::Relaxed);
                first.map_or_else(|seen_at| seen_at, |_| now)
            }
            WAITS => {
                self.behind_at.store(NOT_SEEN, Ordering::Relaxed);
                return Duration::ZERO;
            }
            begun => begun,
        };
        Duration::from_millis(now.saturating_sub(since))
    }

    fn now(&self) -> u64 {
        u64::try_from((self.clock)().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static NOW: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn pulse_measures_long_iterations_and_unhandled_records() {
        let pulse = Pulse::new(|| Duration::from_millis(NOW.load(Ordering::Relaxed)));
        let after = |ms: u64, lag| {
            NOW.fetch_add(ms, Ordering::Relaxed);
            u64::try_from(pulse.held_up(lag).as_millis()).expect("small")
        };
        assert_eq!((after(7, 0), after(0, 1)), (0, 0), "it was idle for long, and has new records");
        assert_eq!((after(3, 1), after(4, 2)), (3, 7));
        assert_eq!((after(1, 0), after(9, 1)), (0, 0), "nothing was left unhandled meanwhile");
        pulse.begin();
        assert_eq!((after(0, 1), after(5, 0)), (0, 5));
        pulse.wait();
        assert_eq!((after(2, 1), after(3, 1)), (0, 3));
    }
}
