//! When a batch closes: by its window, at the times of a digest, and not within quiet hours.

use journal::time::{
    Timestamp,
    hours::{Hours, next_time_of_day},
    zone::Zone,
};

use serde::{Deserialize, Serialize};

use super::rule::{BatchMode, Batching, DigestTimes};

/// The quiet hours that keep a batch open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldOpen {
    /// When they began, or when the batch opened in them.
    pub(crate) since: Timestamp,
    /// When the batch would have closed without them.
    pub(crate) due_at: Timestamp,
}

/// The rule of a batch's time, and the local clock by which quiet hours and times of day count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing<'a> {
    pub(crate) rule: &'a Batching,
    pub(crate) quiet: &'a Hours,
    pub(crate) zone: &'a Zone,
}

impl Timing<'_> {
    /// Whether only its time closes a batch at `now`: no exchange, no number of rows and no shutdown.
    pub(crate) fn is_by_time(&self, now: Timestamp) -> bool {
        matches!(self.rule.mode, BatchMode::Digest(_)) || self.is_quiet(now)
    }

    /// Whether `now` is within the quiet hours.
    pub(crate) fn is_quiet(&self, now: Timestamp) -> bool {
        !self.quiet.is_empty() && self.quiet.contains(now, &|at| self.zone.offset(at))
    }

    /// Whether events wait for others at `now`.
    pub(crate) fn collects(&self, now: Timestamp) -> bool {
        self.rule.collects() || self.is_by_time(now)
    }

    /// The end of a batch that opened at `opened_at` and whose window begins at `now`, never before
    /// `now`, even if the rule changed after it opened; and what keeps it open until then.
    pub(crate) fn ending(&self, opened_at: Timestamp, now: Timestamp) -> (Timestamp, Option<HeldOpen>) {
        let offset = |at| self.zone.offset(at);
        let end = match &self.rule.mode {
            BatchMode::Window => now + self.rule.window,
            BatchMode::Debounce { max_wait } => (now + self.rule.window).min(opened_at + *max_wait).max(now),
            BatchMode::Digest(DigestTimes::Every(every)) => (opened_at + *every).max(now),
            BatchMode::Digest(DigestTimes::At(times)) => {
                let next = times.iter().map(|minutes| next_time_of_day(*minutes, now, offset)).min();
                next.unwrap_or(now)
            }
        };
        match self.quiet.end(end, offset) {
            None => (end, None),
            Some(until) => (until, Some(HeldOpen { since: self.quiet_since(opened_at, end), due_at: end })),
        }
    }

    /// Since when the quiet hours that last at `now` have kept something from being released that was
    /// there at `from`.
    fn quiet_since(&self, from: Timestamp, now: Timestamp) -> Timestamp {
        let mut since = from;
        while !self.is_quiet(since) || self.quiet_until(since).is_some_and(|until| until <= now) {
            match self.next_change(since).filter(|next| *next <= now) {
                Some(next) => since = next,
                None => return now,
            }
        }
        since
    }

    /// The end of quiet hours that last at `now`.
    pub(crate) fn quiet_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.quiet.end(now, |at| self.zone.offset(at))
    }

    /// The next time after `now` at which quiet hours begin or end.
    pub(crate) fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        if self.quiet.is_empty() { None } else { self.quiet.next_change(now, &|at| self.zone.offset(at)) }
    }

    /// Whether each event restarts the window.
    pub(crate) fn restarts_window(&self) -> bool {
        matches!(self.rule.mode, BatchMode::Debounce { .. })
    }
}
