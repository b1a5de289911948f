//! Liveness of the event loop, readable without waiting for it.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::meter::MonotonicClock;

/// The value in place of a start time: the loop is idle.
const WAITS: u64 = 0;

/// The event loop's record of its turns.
#[derive(Debug)]
pub struct Pulse {
    clock: MonotonicClock,
    /// Start of the current turn, in milliseconds from 1 on, or [`WAITS`].
    begun: AtomicU64,
    /// When the loop last became idle, in the same unit.
    waited: AtomicU64,
}

impl Pulse {
    /// The pulse of a loop before its first turn.
    pub fn new(clock: MonotonicClock) -> Self {
        let pulse = Self { clock, begun: AtomicU64::new(WAITS), waited: AtomicU64::new(0) };
        pulse.wait();
        pulse
    }

    /// Notes the start of a turn.
    pub fn begin(&self) {
        self.begun.store(self.now(), Ordering::Relaxed);
    }

    /// Notes that the loop is idle.
    pub fn wait(&self) {
        self.waited.store(self.now(), Ordering::Relaxed);
        self.begun.store(WAITS, Ordering::Relaxed);
    }

    /// How long the current turn has lasted, or how long the loop has been idle while `lag` records
    /// wait for it.
    pub fn held_up(&self, lag: u64) -> Duration {
        let since = match self.begun.load(Ordering::Relaxed) {
            WAITS if lag > 0 => self.waited.load(Ordering::Relaxed),
            WAITS => return Duration::ZERO,
            begun => begun,
        };
        Duration::from_millis(self.now().saturating_sub(since))
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
    fn a_loop_is_held_up_in_a_turn_and_by_work_that_it_does_not_come_to() {
        let pulse = Pulse::new(|| Duration::from_millis(NOW.load(Ordering::Relaxed)));
        let after = |ms: u64, lag| {
            NOW.fetch_add(ms, Ordering::Relaxed);
            u64::try_from(pulse.held_up(lag).as_millis()).expect("small")
        };
        assert_eq!(
            (after(7, 0), after(0, 1)),
            (0, 7),
            "it waits for long, which is held up if there is work"
        );
        pulse.begin();
        assert_eq!((after(0, 1), after(5, 0)), (0, 5));
        pulse.wait();
        assert_eq!((after(0, 1), after(3, 1)), (0, 3));
    }
}
