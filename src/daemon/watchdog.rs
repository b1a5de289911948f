//! Reports to the service manager that the event loop is running.
//!
//! A daemon with a stuck loop answers no request and does not exit, so it is not restarted. A
//! service manager with a watchdog (`WatchdogSec=` of systemd) ends a process that has not sent
//! `WATCHDOG=1` within that time. The loop itself sends it: a separate thread would still send it
//! when the loop is stuck.

use std::time::Duration;

/// The service manager's watchdog.
#[derive(Debug, Clone, Copy)]
pub struct Watcher {
    /// Its timeout.
    pub limit: Duration,
    /// Sends the keep-alive.
    pub say: fn(),
}

/// When the next keep-alive is due.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// `None` without a watchdog.
    watcher: Option<Watcher>,
    /// When the last keep-alive was sent, by the monotonic clock.
    said: Duration,
}

impl Watchdog {
    /// Creates a schedule with an interval of half the watchdog's limit.
    ///
    /// Source: `sd_watchdog_enabled(3)`.
    pub(super) fn new(watcher: Option<Watcher>, now: Duration) -> Self {
        Self { watcher, said: now }
    }

    fn every(&self) -> Option<Duration> {
        self.watcher.map(|watcher| watcher.limit / 2)
    }

    /// Shortens a sleep of `wait` to when the next keep-alive is due.
    pub(super) fn until_next(&self, wait: Option<Duration>, now: Duration) -> Option<Duration> {
        let due = self.every().map(|every| (self.said + every).saturating_sub(now));
        wait.into_iter().chain(due).min()
    }

    /// Sends a keep-alive if it is due.
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
    fn watchdog_reports_twice_per_service_manager_limit() {
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
        for (now, wait, until_next) in [
            (170, None, 15),
            (184, None, 1),
            (184, Some(seconds(15)), 1),
            (184, Some(Duration::ZERO), 0),
            (190, Some(seconds(2)), 0),
        ] {
            assert_eq!(watchdog.until_next(wait, seconds(now)), Some(seconds(until_next)), "{now}");
        }
        assert_eq!(Watchdog::new(None, seconds(100)).until_next(None, seconds(100)), None);
    }
}
