//! Says to the service manager that the event loop still turns.
//!
//! A daemon whose loop waits for ever answers nobody and does not end, so nobody starts it again. A service manager that is asked
//! to (`WatchdogSec=` of systemd) ends a process that has not said `WATCHDOG=1` for so long. The loop says it, not a thread of its
//! own: that would go on saying it.

use std::time::Duration;

use sd_notify::NotifyState;

/// When it is to be said next.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// `None` where nobody asked for it.
    every: Option<Duration>,
    /// When it was said last, by the monotonic clock.
    said: Duration,
}

impl Watchdog {
    /// One for a service manager that waits for `limit`, half of which may pass from one word to the next.
    ///
    /// Source: `sd_watchdog_enabled(3)`.
    pub(super) fn new(limit: Option<Duration>, now: Duration) -> Self {
        Self { every: limit.map(|limit| limit / 2), said: now }
    }

    /// How long the loop may sleep that would sleep for `wait`.
    pub(super) fn until_next(&self, wait: Option<Duration>) -> Option<Duration> {
        wait.into_iter().chain(self.every).min()
    }

    /// Says it if it is time to.
    pub(super) fn say(&mut self, now: Duration) {
        if self.is_due(now) {
            // Nobody can be told that nobody can be told.
            sd_notify::notify(&[NotifyState::Watchdog]).ok();
        }
    }

    fn is_due(&mut self, now: Duration) -> bool {
        let is_due = self.every.is_some_and(|every| now.saturating_sub(self.said) >= every);
        if is_due {
            self.said = now;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_twice_in_the_time_that_the_service_manager_waits() {
        let seconds = Duration::from_secs;
        let mut watchdog = Watchdog::new(Some(seconds(30)), seconds(100));
        let said: Vec<u64> = (100..160).filter(|now| watchdog.is_due(seconds(*now))).collect();
        assert_eq!(said, [115, 130, 145]);
        assert_eq!(watchdog.until_next(None), Some(seconds(15)));
        assert_eq!(watchdog.until_next(Some(seconds(2))), Some(seconds(2)));
        let mut unasked = Watchdog::new(None, seconds(100));
        assert!(!unasked.is_due(seconds(1_000)));
        assert_eq!(unasked.until_next(None), None);
    }
}
