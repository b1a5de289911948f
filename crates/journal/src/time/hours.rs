//! Hours of a week in local time, such as `22:00-07:00` and `sat`.

use std::{fmt, iter, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::Timestamp;

const DAY_MINUTES: u64 = 24 * 60;
/// Hours from midnight to midnight.
const WHOLE_DAY: &str = "00:00-24:00";
const MINUTE_MILLIS: u64 = 60 * 1_000;
/// The days, from Monday.
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// The day of the week on which Unix time begins: a Thursday.
const FIRST_DAY: u64 = 3;
/// A week, in which the hours repeat.
const WEEK: Duration = Duration::from_secs(7 * DAY_MINUTES * 60);
/// Most parts of a week that are looked at for the end of the hours: every part of every day, with
/// some changes of the clock.
const PARTS_MAX: usize = 64;

/// Parts of each week, by the local wall clock; none if it is empty.
///
/// Shape: two changes of the clock are more than a day apart. In an hour that a change skips, a part
/// begins with the first minute that exists; an hour that comes twice is in a part both times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hours(Vec<Part>);

impl Serialize for Hours {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Part::to_string))
    }
}

impl<'de> Deserialize<'de> for Hours {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parts = Vec::<String>::deserialize(deserializer)?;
        let parts = parts.iter().map(|part| part.parse().map_err(D::Error::custom));
        parts.collect::<Result<_, _>>().map(Self)
    }
}

/// A part of each week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// From and to are minutes after midnight, and not equal; if the end is before the start, it
    /// crosses midnight.
    OfDay { from: u64, to: u64 },
    /// A whole day, from Monday.
    Day(u64),
}

/// Why a text is not a part of a week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HoursError {
    /// It has another form.
    #[error("no hours of the day, and no day")]
    Form,
    /// It ends at its start.
    #[error("hours that end when they begin")]
    Empty,
    /// It is each day from midnight to midnight.
    #[error("the whole week")]
    Always,
}

impl FromStr for Hours {
    type Err = HoursError;

    /// Reads one part: hours of each day, or a day of the week.
    fn from_str(text: &str) -> Result<Self, HoursError> {
        Part::from_str(text).map(|part| Self(vec![part]))
    }
}

impl FromStr for Part {
    type Err = HoursError;

    fn from_str(text: &str) -> Result<Self, HoursError> {
        if let Some(day) = (0..).zip(DAYS).find(|(_, name)| *name == text) {
            return Ok(Self::Day(day.0));
        }
        if text == WHOLE_DAY {
            return Err(HoursError::Always);
        }
        let (from, to) = text.split_once('-').ok_or(HoursError::Form)?;
        let [from, to] = [from, to].map(|text| minutes(text).map(u64::from).ok_or(HoursError::Form));
        let (from, to) = (from?, to?);
        if from == to { Err(HoursError::Empty) } else { Ok(Self::OfDay { from, to }) }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |minutes: u64| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        match self {
            Self::OfDay { from, to } => write!(f, "{}-{}", time(*from), time(*to)),
            Self::Day(day) => f.write_str(DAYS.get(usize::try_from(*day).unwrap_or(0)).unwrap_or(&"")),
        }
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(Part::to_string).collect();
        f.write_str(&parts.join(", "))
    }
}

impl Extend<Self> for Hours {
    fn extend<T: IntoIterator<Item = Self>>(&mut self, others: T) {
        self.0.extend(others.into_iter().flat_map(|other| other.0));
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

/// The next time after `now` at which the local clock shows `minutes` after midnight. In an hour that
/// a change of the clock skips it is the first minute that exists.
pub fn next_time_of_day(minutes: u16, now: Timestamp, utc_offset: impl Fn(Timestamp) -> i32) -> Timestamp {
    let from = u64::from(minutes);
    let half_day = Hours(vec![Part::OfDay { from, to: (from + DAY_MINUTES / 2) % DAY_MINUTES }]);
    let outside = half_day.end(now, &utc_offset).unwrap_or(now);
    half_day.next_change(outside, &utc_offset).unwrap_or(outside)
}

impl Part {
    /// Whether a minute is in it, counted from midnight of the first day of local Unix time.
    fn contains(self, minute: u64) -> bool {
        let in_day = minute % DAY_MINUTES;
        match self {
            Self::OfDay { from, to } if from < to => (from..to).contains(&in_day),
            Self::OfDay { from, to } => in_day >= from || in_day < to,
            Self::Day(day) => (minute / DAY_MINUTES + FIRST_DAY) % 7 == day,
        }
    }

    /// The minutes of a day at which it may begin or end.
    fn edges(self) -> [u64; 2] {
        match self {
            Self::OfDay { from, to } => [from, to],
            Self::Day(_) => [0, 0],
        }
    }
}

impl Hours {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the whole week is in them.
    pub fn is_always(&self) -> bool {
        let now = Timestamp::ZERO;
        self.contains(now, &|_| 0) && self.next_change(now, &|_| 0).is_none()
    }

    /// The shortest stretch of them in a week without a change of the clock; `None` if they never
    /// begin or never end.
    pub fn shortest(&self) -> Option<Duration> {
        let next = |at| self.next_change(at, &|_| 0);
        let first = next(Timestamp::ZERO)?;
        let changes = iter::successors(Some(first), |at| next(*at));
        let mut changes: Vec<Timestamp> = changes.take_while(|at| at.since(first) <= WEEK).collect();
        if !self.contains(first, &|_| 0) {
            changes.remove(0);
        }
        let stretches = changes.chunks_exact(2).filter_map(|both| Some(both.get(1)?.since(*both.first()?)));
        stretches.min()
    }

    /// Whether `now` is in them; `utc_offset` returns the seconds that local time is ahead of UTC.
    pub fn contains(&self, now: Timestamp, utc_offset: &impl Fn(Timestamp) -> i32) -> bool {
        let minute = local(now, utc_offset(now)) / MINUTE_MILLIS;
        self.0.iter().any(|part| part.contains(minute))
    }

    /// The end of the hours, if `now` is in them and they end; always after `now`.
    pub fn end(&self, now: Timestamp, utc_offset: impl Fn(Timestamp) -> i32) -> Option<Timestamp> {
        self.contains(now, &utc_offset).then(|| self.next_change(now, &utc_offset)).flatten()
    }

    /// The next time at which they begin or end; `None` if they never do.
    pub fn next_change(&self, now: Timestamp, utc_offset: &impl Fn(Timestamp) -> i32) -> Option<Timestamp> {
        let is_in = self.contains(now, utc_offset);
        let mut at = now;
        for _ in 0..PARTS_MAX {
            at = self.next_edge(at, utc_offset)?;
            if self.contains(at, utc_offset) != is_in {
                return Some(at);
            }
        }
        None
    }

    /// The next time after `now` at which a part may begin or end, or at which the clock changes.
    fn next_edge(&self, now: Timestamp, utc_offset: &impl Fn(Timestamp) -> i32) -> Option<Timestamp> {
        let offset = utc_offset(now);
        let millis = local(now, offset);
        let in_day = millis % (DAY_MINUTES * MINUTE_MILLIS);
        let until = |edge: u64| match edge * MINUTE_MILLIS {
            edge if edge > in_day => edge - in_day,
            edge => edge + DAY_MINUTES * MINUTE_MILLIS - in_day,
        };
        let left = self.0.iter().flat_map(|part| part.edges()).map(until).min()?;
        let edge = now + Duration::from_millis(left);
        if utc_offset(edge) == offset {
            return Some(edge);
        }
        // The clock changes in between, at the first time with the other offset.
        let (mut before, mut after) = (now.as_millis(), edge.as_millis());
        while after - before > 1 {
            let middle = before.midpoint(after);
            if utc_offset(Timestamp::from_millis(middle)) == offset {
                before = middle
            } else {
                after = middle
            }
        }
        Some(Timestamp::from_millis(after))
    }
}

/// Milliseconds of local time at `at`.
fn local(at: Timestamp, utc_offset: i32) -> u64 {
    at.as_millis().saturating_add_signed(i64::from(utc_offset) * 1_000)
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
            ("22:00-07:00", "2026-11-26T05:59:30.500Z", Some("2026-11-26T06:00:00Z")),
            ("22:00-07:00", "2026-11-26T06:00:00Z", None),
            ("12:00-13:30", "2026-11-25T11:10:00Z", Some("2026-11-25T12:30:00Z")),
            ("12:00-13:30", "2026-11-25T10:59:00Z", None),
            ("00:00-23:59", "2026-11-25T22:59:10Z", None),
            // The night is an hour shorter, or longer.
            ("22:00-07:00", "2026-03-28T22:00:00Z", Some("2026-03-29T05:00:00Z")),
            ("22:00-07:00", "2026-10-24T21:00:00Z", Some("2026-10-25T06:00:00Z")),
            // The first minute is skipped, and the hour comes twice.
            ("02:30-05:00", "2026-03-29T00:59:59Z", None),
            ("02:30-05:00", "2026-03-29T01:00:00Z", Some("2026-03-29T03:00:00Z")),
            ("02:00-02:45", "2026-10-25T00:10:00Z", Some("2026-10-25T00:45:00Z")),
            ("02:00-02:45", "2026-10-25T01:10:00Z", Some("2026-10-25T01:45:00Z")),
            ("sat", "2026-11-27T22:59:59Z", None),
            ("sat", "2026-11-27T23:00:00Z", Some("2026-11-28T23:00:00Z")),
        ] {
            let found = hours.parse::<Hours>().expect("hours").end(time(now), offset);
            assert_eq!(found, expected.map(time), "{hours} at {now}");
        }
    }

    #[test]
    fn next_time_of_day_is_after_now() {
        for (minutes, now, expected) in [
            (18 * 60, "2026-11-28T12:00:00Z", "2026-11-28T17:00:00Z"),
            (18 * 60, "2026-11-28T17:00:00Z", "2026-11-29T17:00:00Z"),
            (0, "2026-11-28T12:00:00Z", "2026-11-28T23:00:00Z"),
            (150, "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"),
            (150, "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z"),
            (150, "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
        ] {
            assert_eq!(next_time_of_day(minutes, time(now), offset), time(expected), "{minutes} at {now}");
        }
    }

    #[test]
    fn parts_that_meet_are_one() {
        let mut hours = Hours::default();
        hours.extend(["22:00-07:00", "sat", "sun"].map(|text| text.parse::<Hours>().expect("hours")));
        assert_eq!(hours.to_string(), "22:00-07:00, sat, sun");
        let end = |now| hours.end(time(now), offset);
        assert_eq!(end("2026-11-27T21:00:00Z"), Some(time("2026-11-30T06:00:00Z")));
        assert_eq!(
            hours.next_change(time("2026-11-27T06:00:00Z"), &offset),
            Some(time("2026-11-27T21:00:00Z"))
        );
        assert!(!hours.is_always() && !hours.is_empty());
        hours.extend(["07:00-22:00".parse::<Hours>().expect("hours")]);
        assert!(hours.is_always() && end_of_all(&hours).is_none());
    }

    #[test]
    fn shortest_stretch_of_hours_is_found() {
        for (parts, hours) in [
            (&["22:00-07:00"][..], Some(9)),
            (&["00:00-01:00", "12:00-14:00"], Some(1)),
            (&["22:00-07:00", "sat", "sun"], Some(9)),
            (&["sat", "sun"], Some(48)),
            (&["22:00-23:00", "23:00-01:00"], Some(3)),
            (&["07:00-22:00", "22:00-07:00"], None),
            (&[], None),
        ] {
            let mut all = Hours::default();
            all.extend(parts.iter().map(|text| text.parse::<Hours>().expect("hours")));
            assert_eq!(all.shortest(), hours.map(|hours| Duration::from_secs(hours * 3_600)), "{parts:?}");
        }
    }

    fn end_of_all(hours: &Hours) -> Option<Timestamp> {
        hours.end(time("2026-11-27T06:00:00Z"), offset)
    }

    #[test]
    fn invalid_or_empty_hours_are_refused() {
        for text in ["22-7", "22:00", "24:00-07:00", "22:60-07:00", "2:00-07:00", "+2:00-07:00", ""] {
            assert_eq!(text.parse::<Hours>(), Err(HoursError::Form), "{text}");
        }
        assert_eq!("07:00-07:00".parse::<Hours>(), Err(HoursError::Empty));
        assert_eq!("00:00-24:00".parse::<Hours>(), Err(HoursError::Always));
    }
}
