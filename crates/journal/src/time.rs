//! Time as data: a point in time is a number passed in by the caller.
//!
//! All deciding code takes `now: Timestamp` as an argument, so a test can jump a year and a replay
//! has the same results. Neither that code nor this module reads a clock; only `daemon/clock.rs`
//! does.
//!
//! ```
//! use aside_journal::time::Timestamp;
//! use std::time::Duration;
//!
//! let noon: Timestamp = "2026-11-21T12:00:00Z".parse()?;
//! assert_eq!((noon + Duration::from_millis(1500)).to_string(), "2026-11-21T12:00:01.5Z");
//! # Ok::<(), aside_journal::time::TimestampError>(())
//! ```

pub mod deadlines;
pub mod hours;
pub mod zone;

use std::{fmt, ops, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

/// A point in time, in milliseconds since the Unix epoch.
///
/// Unix time rather than a process clock, because state outlives the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch, earlier than any record.
    pub const ZERO: Self = Self(0);

    /// Wraps a count of milliseconds since the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The earliest of these times, if there is one.
    pub fn earliest<const N: usize>(times: [Option<Self>; N]) -> Option<Self> {
        times.into_iter().fold(None, |first, time| match (first, time) {
            (Some(first), Some(time)) => Some(first.min(time)),
            (first, time) => first.or(time),
        })
    }

    /// The duration since `earlier`; zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The local minute for a clock `utc_offset` seconds ahead of UTC, such as `2026-11-22 08:14
    /// +01:00`.
    pub fn local(self, utc_offset: i32) -> String {
        let offset = jiff::tz::Offset::from_seconds(utc_offset).unwrap_or(jiff::tz::Offset::UTC);
        let millis = i64::try_from(self.0).unwrap_or(i64::MAX);
        let Ok(timestamp) = jiff::Timestamp::from_millisecond(millis) else { return self.to_string() };
        let at = offset.to_datetime(timestamp);
        let (sign, minutes) = if utc_offset < 0 { ('-', -utc_offset / 60) } else { ('+', utc_offset / 60) };
        let (year, month, day, hour, minute) = (at.year(), at.month(), at.day(), at.hour(), at.minute());
        let (ahead_hours, ahead_minutes) = (minutes / 60, minutes % 60);
        format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} {sign}{ahead_hours:02}:{ahead_minutes:02}")
    }
}

impl ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration_millis(duration)))
    }
}

impl fmt::Display for Timestamp {
    /// Writes RFC 3339 in UTC, with as many fractional digits as needed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = i64::try_from(self.0).unwrap_or(i64::MAX);
        match jiff::Timestamp::from_millisecond(millis) {
            Ok(timestamp) => timestamp.fmt(f),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

/// Why a text is not a timestamp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is not an RFC 3339 timestamp after 1970, such as 2026-11-21T12:00:00Z")]
pub struct TimestampError {
    found: String,
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    /// Parses RFC 3339 with an offset or `Z`; truncates to milliseconds.
    fn from_str(text: &str) -> Result<Self, TimestampError> {
        text.parse::<jiff::Timestamp>()
            .ok()
            .and_then(|timestamp| u64::try_from(timestamp.as_millisecond()).ok())
            .map(Self)
            .ok_or_else(|| TimestampError { found: text.chars().take(64).collect() })
    }
}

/// Parses a duration such as `250ms`, `1h30m`, `30d` or `0s`; `None` if it is invalid or negative.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if let Some(days) = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok()) {
        return Some(Duration::from_secs(u64::from(days) * 24 * 3_600));
    }
    text.parse::<jiff::SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok())
}

/// A duration in short form: `42s`, `8m`, `9h12m` or `3d4h`. Smaller units are cut off.
pub fn short_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, minutes) => format!("{hours}h{minutes:02}m"),
        (days, hours, _) => format!("{days}d{hours}h"),
    }
}

/// Whole milliseconds of a duration, saturating at the far future.
pub fn duration_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_since_a_later_time_is_zero() {
        let early = Timestamp::from_millis(1_000);
        let late = early + Duration::from_millis(250);
        assert_eq!(late.since(early), Duration::from_millis(250));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn text_round_trips_and_offsets_become_utc() {
        let parsed: Timestamp = "2026-11-21T13:00:00.250+01:00".parse().expect("valid");
        assert_eq!(parsed.to_string(), "2026-11-21T12:00:00.25Z");
        assert_eq!(parsed.to_string().parse(), Ok(parsed));
    }

    #[test]
    fn a_wall_clock_shows_its_own_minute() {
        let at: Timestamp = "2026-11-21T23:14:59Z".parse().expect("valid");
        for (offset, expected) in [
            (0, "2026-11-21 23:14 +00:00"),
            (3_600, "2026-11-22 00:14 +01:00"),
            (-12_600, "2026-11-21 19:44 -03:30"),
        ] {
            assert_eq!(at.local(offset), expected);
        }
    }

    #[test]
    fn duration_shows_its_two_largest_units() {
        for (seconds, expected) in
            [(0, "0s"), (59, "59s"), (61, "1m"), (33_120, "9h12m"), (3_600, "1h00m"), (273_600, "3d4h")]
        {
            assert_eq!(short_duration(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn invalid_timestamp_is_quoted_in_the_error() {
        let error = "yesterday".parse::<Timestamp>().expect_err("no timestamp");
        assert!(error.to_string().contains("`yesterday`"), "{error}");
        assert!("1969-12-31T23:59:59Z".parse::<Timestamp>().is_err());
    }
}
