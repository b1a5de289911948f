//! Says to the service manager that the event loop still turns.
//!
//! A daemon whose loop waits for ever answers nobody and does not end, so nobody starts it again. A service manager that is asked
//! to (`WatchdogSec=` of systemd) ends a process that has not said `WATCHDOG=1` for so long. The loop says it, not a thread of its
//! own: that would go on saying it.

use std::time::Duration;

/// Who waits for a sign of life.
#[derive(Debug, Clone, Copy)]
pub struct Watcher {
    /// For how long it waits.
    pub limit: Duration,
    /// Gives it one.
    pub say: fn(),
}

/// When it is to be said next.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// `None` where nobody asked for it.
    watcher: Option<Watcher>,
    /// When it was said last, by the monotonic clock.
    said: Duration,
}

impl Watchdog {
    /// Half of the watcher's limit may pass from one word to the next.
    ///
    /// Source: `sd_watchdog_enabled(3)`.
    pub(super) fn new(watcher: Option<Watcher>, now: Duration) -> Self {
        Self { watcher, said: now }
    }

    fn every(&self) -> Option<Duration> {
        self.watcher.map(|watcher| watcher.limit / 2)
    }

    /// How long the loop may sleep that would sleep for `wait`.
    pub(super) fn until_next(&self, wait: Option<Duration>) -> Option<Duration> {
        wait.into_iter().chain(self.every()).min()
    }

    /// Says it if it is time to.
    pub(super) fn say(&mut self, now: Duration) {
        let Some(watcher) = self.watcher else { return };
        if self.every().is_some_and(|every| now.saturating_sub(self.said) >= every) {
            self.said = now;
            (watcher.say)();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    static SAID: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn it_is_said_twice_in_the_time_that_the_service_manager_waits() {
        let seconds = Duration::from_secs;
        let say = || {
            SAID.fetch_add(1, Ordering::Relaxed);
        };
        let watcher = Watcher { limit: seconds(30), say };
        let mut watchdog = Watchdog::new(Some(watcher), seconds(100));
        for (now, said) in [(100, 0), (114, 0), (115, 1), (129, 1), (130, 2), (170, 3)] {
            watchdog.say(seconds(now));
            assert_eq!(SAID.load(Ordering::Relaxed), said, "{now}");
        }
        assert_eq!(watchdog.until_next(None), Some(seconds(15)));
        assert_eq!(watchdog.until_next(Some(seconds(2))), Some(seconds(2)));
        assert_eq!(Watchdog::new(None, seconds(100)).until_next(None), None);
    }
}
