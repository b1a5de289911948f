//! Times: relative and local for users, or exact and in UTC.

use jiff::{Zoned, tz::TimeZone};
use journal::time::Timestamp;

use crate::cli::terminal::one_line::one_line;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

/// Format of times.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Moments {
    /// The time of the command.
    pub(in crate::cli) now: Timestamp,
    /// Looks up the user's time zone on the first use; `None` keeps the daemon's format: RFC 3339
    /// in UTC.
    pub(in crate::cli) zone: Option<fn() -> TimeZone>,
}

impl Moments {
    /// A relative time in its largest unit within a day, else the date and time.
    ///
    /// Shape: `3m ago`, `in 12m`, `5h ago`, `yesterday 14:02`, `Nov 9 14:02`, `2025-11-09 14:02`;
    /// invalid text stays unchanged.
    pub(in crate::cli) fn relative(&self, at: &str) -> String {
        let Some((at, now)) = self.local(at) else { return one_line(at) };
        let ago = now.timestamp().as_second() - at.timestamp().as_second();
        let (distance, unit) = match ago.abs() {
            seconds @ 0..MINUTE => (seconds, 's'),
            seconds @ MINUTE..HOUR => (seconds / MINUTE, 'm'),
            seconds if at.date() == now.date() => (seconds / HOUR, 'h'),
            _ => return day(&at, &now),
        };
        if ago < 0 { format!("in {distance}{unit}") } else { format!("{distance}{unit} ago") }
    }

    /// The time of day, to the millisecond, with the date unless it is today.
    pub(in crate::cli) fn exact(&self, at: &str) -> String {
        match self.local(at) {
            Some((at, now)) if at.date() == now.date() => at.strftime("%H:%M:%S.%3f").to_string(),
            Some((at, _)) => at.strftime("%Y-%m-%d %H:%M:%S.%3f").to_string(),
            None => one_line(at),
        }
    }

    /// The age of something, given in milliseconds.
    pub(in crate::cli) fn age(&self, age_ms: u64) -> String {
        self.relative(&Timestamp::from_millis(self.now.as_millis().saturating_sub(age_ms)).to_string())
    }

    /// This time and the current one, in the user's time zone; `None` if times are not converted.
    fn local(&self, at: &str) -> Option<(Zoned, Zoned)> {
        let zone = self.zone?();
        let at: jiff::Timestamp = at.parse().ok()?;
        let now = jiff::Timestamp::from_millisecond(i64::try_from(self.now.as_millis()).ok()?).ok()?;
        Some((at.to_zoned(zone.clone()), now.to_zoned(zone)))
    }
}

/// The date and time, relative to `now`.
fn day(at: &Zoned, now: &Zoned) -> String {
    let date = at.date();
    let named = if now.date().yesterday().ok() == Some(date) {
        "yesterday %H:%M"
    } else if now.date().tomorrow().ok() == Some(date) {
        "tomorrow %H:%M"
    } else if date.year() == now.date().year() {
        "%b %-d %H:%M"
    } else {
        "%Y-%m-%d %H:%M"
    };
    at.strftime(named).to_string()
}

#[cfg(test)]
mod tests {
    use jiff::tz::{self, TimeZone};

    use super::*;

    fn at_noon(zone: Option<fn() -> TimeZone>) -> Moments {
        Moments { now: "2026-11-21T12:00:00Z".parse().expect("a time"), zone }
    }

    #[test]
    fn relative_time_shows_distance_or_day() {
        let moments = at_noon(Some(|| TimeZone::fixed(tz::offset(1))));
        for (at, shown) in [
            ("2026-11-21T12:00:00.4Z", "0s ago"),
            ("2026-11-21T11:59:18Z", "42s ago"),
            ("2026-11-21T11:56:30Z", "3m ago"),
            ("2026-11-21T12:12:30Z", "in 12m"),
            ("2026-11-21T07:00:00Z", "5h ago"),
            ("2026-11-21T14:59:00Z", "in 2h"),
            // 23:30 local time is the day before, 00:10 is not.
            ("2026-11-20T23:10:00Z", "12h ago"),
            ("2026-11-20T22:30:00Z", "yesterday 23:30"),
            ("2026-11-22T10:00:00Z", "tomorrow 11:00"),
            ("2026-11-09T13:02:00Z", "Nov 9 14:02"),
            ("2025-11-09T13:02:00Z", "2025-11-09 14:02"),
            ("soon\u{1b}[31m", "soon"),
        ] {
            assert_eq!(moments.relative(at), shown, "{at}");
        }
        assert_eq!(moments.age(125_000), "2m ago");
    }

    #[test]
    fn exact_time_is_local_unless_utc_is_requested() {
        let moments = at_noon(Some(|| TimeZone::fixed(tz::offset(1))));
        assert_eq!(moments.exact("2026-11-21T11:56:30.25Z"), "12:56:30.250");
        assert_eq!(moments.exact("2026-11-20T11:56:30Z"), "2026-11-20 12:56:30.000");
        let moments = at_noon(None);
        for at in ["2026-11-21T11:56:30.25Z", "2026-11-20T11:56:30Z"] {
            assert_eq!((moments.relative(at), moments.exact(at)), (at.to_owned(), at.to_owned()));
        }
        assert_eq!(moments.age(1_000), "2026-11-21T11:59:59Z");
    }
}
