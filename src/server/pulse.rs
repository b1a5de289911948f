//! Whether the event loop turns, for whoever asks without waiting for it.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::meter::Steady;

/// Instead of the time at which a turn began: the loop waits for something to do.
const WAITS: u64 = 0;

/// What the event loop notes of its turns.
#[derive(Debug)]
pub struct Pulse {
    steady: Steady,
    /// When the turn under way began, in milliseconds from 1 on, or [`WAITS`].
    begun: AtomicU64,
    /// When it last began to wait, in the same.
    waited: AtomicU64,
}

impl Pulse {
    /// Of a loop that has not begun to turn.
    pub fn new(steady: Steady) -> Self {
        let pulse = Self { steady, begun: AtomicU64::new(WAITS), waited: AtomicU64::new(0) };
        pulse.wait();
        pulse
    }

    /// Notes that the loop has something to do.
    pub fn begin(&self) {
        self.begun.store(self.now(), Ordering::Relaxed);
    }

    /// Notes that it waits.
    pub fn wait(&self) {
        self.waited.store(self.now(), Ordering::Relaxed);
        self.begun.store(WAITS, Ordering::Relaxed);
    }

    /// How long the turn under way takes already, or, if the loop waits although there `is_work`, for how long it has.
    pub fn held_up(&self, is_work: bool) -> Duration {
        let since = match self.begun.load(Ordering::Relaxed) {
            WAITS if is_work => self.waited.load(Ordering::Relaxed),
            WAITS => return Duration::ZERO,
            begun => begun,
        };
        Duration::from_millis(self.now().saturating_sub(since))
    }

    fn now(&self) -> u64 {
        u64::try_from((self.steady)().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static NOW: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn a_loop_is_held_up_in_a_turn_and_by_work_that_it_does_not_come_to() {
        let pulse = Pulse::new(|| Duration::from_millis(NOW.load(Ordering::Relaxed)));
        let after = |ms: u64, is_work| {
            NOW.fetch_add(ms, Ordering::Relaxed);
            u64::try_from(pulse.held_up(is_work).as_millis()).expect("small")
        };
        assert_eq!(
            (after(7, false), after(0, true)),
            (0, 7),
            "it waits for long, which is held up if there is work"
        );
        pulse.begin();
        assert_eq!((after(0, true), after(5, false)), (0, 5));
        pulse.wait();
        assert_eq!((after(0, true), after(3, true)), (0, 3));
    }
}
