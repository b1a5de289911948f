//! Hours of each day in local time, such as `22:00-07:00`.

use std::{str::FromStr, time::Duration};

use super::Timestamp;

const DAY_MINUTES: u64 = 24 * 60;
const MINUTE_MILLIS: u64 = 60 * 1_000;

/// A part of each day.
///
/// Shape: from and to are minutes after midnight, and not equal; if the end is before the start,
/// the part crosses midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hours {
    from: u16,
    to: u16,
}

/// Why a text is not a part of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HoursError {
    /// It has another form.
    #[error("no hours of the day")]
    Form,
    /// It ends at its start.
    #[error("hours that end when they begin")]
    Empty,
}

impl FromStr for Hours {
    type Err = HoursError;

    fn from_str(text: &str) -> Result<Self, HoursError> {
        let (from, to) = text.split_once('-').ok_or(HoursError::Form)?;
        let (from, to) = (minutes(from).ok_or(HoursError::Form)?, minutes(to).ok_or(HoursError::Form)?);
        if from == to { Err(HoursError::Empty) } else { Ok(Self { from, to }) }
    }
}

/// Parses a time such as `07:30` as minutes after midnight.
pub fn minutes(text: &str) -> Option<u16> {
    let below = |text: &str, limit: u16| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u16>().ok()).flatten().filter(|number| *number < limit)
    };
    let (hours, minutes) = text.split_once(':')?;
    Some(below(hours, 24)? * 60 + below(minutes, 60)?)
}

impl Hours {
    /// The end of the hours, if `now` is in them; `utc_offset` returns the seconds that local time
    /// is ahead of UTC.
    ///
    /// Shape: always after `now`, also if a clock change is within them.
    pub fn end(self, now: Timestamp, utc_offset: impl Fn(Timestamp) -> i32) -> Option<Timestamp> {
        let local = |at: Timestamp| at.as_millis().saturating_add_signed(i64::from(utc_offset(at)) * 1_000);
        let minute = local(now) / MINUTE_MILLIS % DAY_MINUTES;
        let (from, to) = (u64::from(self.from), u64::from(self.to));
        let is_in = if from < to { (from..to).contains(&minute) } else { minute >= from || minute < to };
        if !is_in {
            return None;
        }
        let left = (to + DAY_MINUTES - minute) % DAY_MINUTES * MINUTE_MILLIS;
        let end = now + Duration::from_millis(left - local(now) % MINUTE_MILLIS);
        // With a clock change in between, the end is in the new local time.
        let moved = (i64::from(utc_offset(now)) - i64::from(utc_offset(end))) * 1_000;
        let end = Timestamp::from_millis(end.as_millis().saturating_add_signed(moved));
        Some(end.max(now + Duration::from_millis(MINUTE_MILLIS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    /// A zone that changes from +1 h to +2 h at 2026-03-29T01:00Z, and back at 2026-10-25T01:00Z.
    fn offset(at: Timestamp) -> i32 {
        let is_summer = (time("2026-03-29T01:00:00Z")..time("2026-10-25T01:00:00Z")).contains(&at);
        if is_summer { 7_200 } else { 3_600 }
    }

    #[test]
    fn hours_end_by_the_local_wall_clock() {
        for (hours, now, expected) in [
            ("22:00-07:00", "2026-11-25T20:59:59Z", None),
            ("22:00-07:00", "2026-11-25T21:00:00Z", Some("2026-11-26T06:00:00Z")),
            ("22:00-07:00", "2026-11-26T05:59:30.500Z", Some("2026-11-26T06:00:30.500Z")),
            ("22:00-07:00", "2026-11-26T06:00:00Z", None),
            ("12:00-13:30", "2026-11-25T11:10:00Z", Some("2026-11-25T12:30:00Z")),
            ("12:00-13:30", "2026-11-25T10:59:00Z", None),
            ("00:00-23:59", "2026-11-25T22:59:10Z", None),
            // The night is an hour shorter, or longer.
            ("22:00-07:00", "2026-03-28T22:00:00Z", Some("2026-03-29T05:00:00Z")),
            ("22:00-07:00", "2026-10-24T21:00:00Z", Some("2026-10-25T06:00:00Z")),
        ] {
            let found = hours.parse::<Hours>().expect("hours").end(time(now), offset);
            assert_eq!(found, expected.map(time), "{hours} at {now}");
        }
    }

    #[test]
    fn invalid_or_empty_hours_are_refused() {
        for text in ["22-7", "22:00", "24:00-07:00", "22:60-07:00", "2:00-07:00", "+2:00-07:00", ""] {
            assert_eq!(text.parse::<Hours>(), Err(HoursError::Form), "{text}");
        }
        assert_eq!("07:00-07:00".parse::<Hours>(), Err(HoursError::Empty));
    }
}
