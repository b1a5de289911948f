//! A time zone as data: what a local clock is ahead of UTC, and its next changes.
//!
//! A replay on another machine, or with another database of time zones, decides by the same clock.

use std::time::Duration;

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::Timestamp;

/// How long the changes of a new zone are known.
const KNOWN: Duration = Duration::from_secs(2 * 366 * 24 * 3_600);
/// How long the changes of a zone have to be known.
const NEEDED: Duration = Duration::from_secs(366 * 24 * 3_600);
/// Most changes of a zone; zones change twice a year, and one that is near a pole some more often.
const CHANGES_MAX: usize = 16;
const DAY_MILLIS: u64 = 24 * 3_600 * 1_000;

/// A time zone from a time on; UTC by default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Zone {
    /// What local time is ahead of UTC before the first change, in seconds.
    offset: i32,
    /// The times from which on local time is so many seconds ahead, ascending.
    changes: Vec<(Timestamp, i32)>,
}

impl Zone {
    /// The zone from `now` on.
    pub fn new(zone: &TimeZone, now: Timestamp) -> Self {
        let at = jiff::Timestamp::from_millisecond(i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
        let at = at.unwrap_or_default();
        let until = now + KNOWN;
        let changes = zone.following(at).filter_map(|change| {
            let millis = u64::try_from(change.timestamp().as_millisecond()).ok()?;
            Some((Timestamp::from_millis(millis), change.offset().seconds()))
        });
        let changes = changes.take_while(|(at, _)| *at <= until).take(CHANGES_MAX).collect();
        Self { offset: zone.to_offset(at).seconds(), changes }
    }

    /// What local time is ahead of UTC at `at`, in seconds.
    pub fn offset(&self, at: Timestamp) -> i32 {
        let passed = self.changes.partition_point(|(from, _)| *from <= at);
        let last = passed.checked_sub(1).and_then(|index| self.changes.get(index));
        last.map_or(self.offset, |(_, offset)| *offset)
    }

    /// The start of the local day of `at`; of two midnights the last one before it.
    pub fn midnight(&self, at: Timestamp) -> Timestamp {
        let local = |at: Timestamp| at.as_millis().saturating_add_signed(i64::from(self.offset(at)) * 1_000);
        let start = Timestamp::from_millis(at.as_millis().saturating_sub(local(at) % DAY_MILLIS));
        // With a change of the clock in between, midnight was by the other offset.
        let moved = i64::from(self.offset(at)) - i64::from(self.offset(start));
        Timestamp::from_millis(start.as_millis().saturating_add_signed(moved * 1_000)).min(at)
    }

    /// Whether it is as good as `newer` for what comes after `now`.
    pub fn serves_as(&self, newer: &Self, now: Timestamp) -> bool {
        let until = now + NEEDED;
        let coming = |zone: &Self| {
            let changes: Vec<_> =
                zone.changes.iter().filter(|(at, _)| (now..until).contains(at)).copied().collect();
            (zone.offset(now), changes)
        };
        coming(self) == coming(newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    /// Central Europe by its rule, so that the test needs no database.
    fn zone() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone")
    }

    #[test]
    fn a_zone_knows_the_changes_of_two_years() {
        let now = time("2026-11-28T12:00:00Z");
        let known = Zone::new(&zone(), now);
        for (at, hours) in [
            ("2026-11-28T12:00:00Z", 1),
            ("2027-03-28T00:59:59Z", 1),
            ("2027-03-28T01:00:00Z", 2),
            ("2027-10-31T01:00:00Z", 1),
            ("2028-07-01T00:00:00Z", 2),
        ] {
            assert_eq!(known.offset(time(at)), hours * 3_600, "{at}");
        }
        let later = time("2027-06-01T00:00:00Z");
        assert!(known.serves_as(&Zone::new(&zone(), later), later));
        assert!(!known.serves_as(&Zone::new(&TimeZone::UTC, now), now));
        let much_later = time("2028-06-01T00:00:00Z");
        assert!(!known.serves_as(&Zone::new(&zone(), much_later), much_later));
    }

    #[test]
    fn a_day_begins_at_local_midnight() {
        let known = Zone::new(&zone(), time("2027-03-01T00:00:00Z"));
        for (at, midnight) in [
            ("2027-03-27T22:59:59Z", "2027-03-26T23:00:00Z"),
            ("2027-03-27T23:00:00Z", "2027-03-27T23:00:00Z"),
            ("2027-03-28T12:00:00Z", "2027-03-27T23:00:00Z"),
            ("2027-10-31T12:00:00Z", "2027-10-30T22:00:00Z"),
        ] {
            assert_eq!(known.midnight(time(at)), time(midnight), "{at}");
        }
    }
}
