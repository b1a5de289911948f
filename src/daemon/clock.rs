//! The only reader of the clock.
//!
//! The journal's time is wall time that never steps back. When the wall clock is set back, time
//! continues at the pace of the monotonic clock, which counts while the machine sleeps, until the
//! wall clock has caught up. When it is ahead of the monotonic clock by more than [`DOUBTED_MIN`],
//! time also continues at that pace, and follows the wall clock after [`DOUBT`]. So a wall clock
//! that is wrong for a short time causes no expiry and no deletion.
#![expect(clippy::disallowed_methods, reason = "the only reader of the clock")]

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::time::{ClockId, clock_gettime};

use journal::time::{Timestamp, duration_millis};

/// How far the wall clock may fall behind before it counts as set back; less is a drift correction,
/// and time waits for it.
const SET_BACK_MIN: Duration = Duration::from_secs(2);

/// The largest step forward that is followed at once. Time servers correct less, and no window is
/// that long.
const DOUBTED_MIN: Duration = Duration::from_secs(60);
/// How long a step forward has to last before it is followed: a time server corrects a clock within
/// minutes of the network's return.
const DOUBT: Duration = Duration::from_secs(5 * 60);

/// The longest time without a daemon that is accepted at once. A longer one more likely means a
/// clock without a battery.
const PAUSE_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A clock that never steps back.
#[derive(Debug)]
pub struct Clock {
    /// The last result, and the monotonic clock at that time. Locked for two clock reads and a
    /// comparison.
    last: Mutex<Reading>,
    /// Reads the wall clock and the monotonic clock.
    read: fn() -> (Timestamp, Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reading {
    answer: Timestamp,
    monotonic: Duration,
    /// Since when, by the monotonic clock, the wall clock has been ahead without confirmation.
    ahead_since: Option<Duration>,
}

impl Reading {
    fn new(answer: Timestamp, monotonic: Duration) -> Self {
        Self { answer, monotonic, ahead_since: None }
    }
}

impl Clock {
    /// Starts a clock whose time is at least `not_before`.
    pub fn starting_at(not_before: Timestamp) -> Self {
        Self::reading(machine_now, not_before)
    }

    /// Creates a clock that reads other clocks than the machine's.
    pub(super) fn reading(read: fn() -> (Timestamp, Duration), not_before: Timestamp) -> Self {
        let (_, monotonic) = read();
        Self { last: Mutex::new(Reading::new(not_before, monotonic)), read }
    }

    /// Sets the least time from now on: `not_before`, the last time in the journal, once it is
    /// open. Deadlines count from that time, so a wall clock that was set back while no daemon ran
    /// must not delay them.
    ///
    /// Shape: only the wall clock knows how long no daemon ran, so its time is accepted at once, up
    /// to `PAUSE_MAX`.
    pub fn go_on_from(&self, not_before: Timestamp) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, monotonic) = (self.read)();
        let is_doubted = not_before > Timestamp::ZERO && wall.since(not_before) > PAUSE_MAX;
        *last = Reading::new(if is_doubted { not_before } else { wall.max(not_before) }, monotonic);
    }

    /// The current time; never before an earlier result.
    pub fn now(&self) -> Timestamp {
        self.read().0
    }

    /// How long until this clock reaches `deadline`; zero after that. Includes waiting for a drift
    /// correction.
    pub fn until(&self, deadline: Timestamp) -> Duration {
        let (now, wall) = self.read();
        if deadline <= now { Duration::ZERO } else { deadline.since(wall) }
    }

    /// The time, and the time from which to count the wait for a deadline.
    fn read(&self) -> (Timestamp, Timestamp) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, monotonic) = (self.read)();
        *last = advance(*last, wall, monotonic);
        let is_waited_out = last.answer.since(wall) < SET_BACK_MIN;
        (last.answer, if is_waited_out { wall.min(last.answer) } else { last.answer })
    }
}

fn machine_now() -> (Timestamp, Duration) {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (Timestamp::from_millis(duration_millis(wall)), monotonic_now())
}

fn advance(last: Reading, wall: Timestamp, monotonic: Duration) -> Reading {
    let passed = last.answer + monotonic.saturating_sub(last.monotonic);
    let is_ahead = last.answer > Timestamp::ZERO && wall.since(passed) > DOUBTED_MIN;
    let ahead_since = is_ahead.then(|| last.ahead_since.unwrap_or(monotonic));
    let is_doubted = ahead_since.is_some_and(|since| monotonic.saturating_sub(since) < DOUBT);
    let answer = if wall >= last.answer && !is_doubted {
        wall
    } else if !is_doubted && last.answer.since(wall) < SET_BACK_MIN {
        last.answer
    } else {
        passed
    };
    let ahead_since = ahead_since.filter(|_| is_doubted);
    // Below a millisecond nothing would be added, so the monotonic reading is kept until it counts.
    let monotonic = if answer == last.answer { last.monotonic } else { monotonic };
    Reading { answer, monotonic, ahead_since }
}

/// A clock that cannot be set and that counts while the machine sleeps.
pub fn monotonic_now() -> Duration {
    #[cfg(target_os = "linux")]
    let id = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let id = ClockId::Monotonic;
    let time = clock_gettime(id);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// The wall clock, which may have been set in either direction.
pub(super) fn wall_now() -> Timestamp {
    machine_now().0
}

/// The time zone of this machine; UTC if none is set.
pub(super) fn zone() -> jiff::tz::TimeZone {
    jiff::tz::TimeZone::system()
}

/// The offset of local time from UTC at `at`, in seconds; zero if no time zone is set.
pub fn utc_offset(at: Timestamp) -> i32 {
    let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    let at = jiff::Timestamp::from_millisecond(millis).unwrap_or_default();
    zone().to_offset(at).seconds()
}

/// The clock as a function, for code that only reads it.
pub(super) fn clock_fn(clock: &Arc<Clock>) -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
    let clock = clock.clone();
    Arc::new(move || clock.now())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(last: &mut Reading, wall_ms: u64, steady_ms: u64) -> u64 {
        *last = advance(*last, Timestamp::from_millis(wall_ms), Duration::from_millis(steady_ms));
        last.answer.as_millis()
    }

    #[test]
    fn clock_set_back_continues_at_monotonic_pace() {
        let mut last = Reading::new(Timestamp::from_millis(100_000), Duration::ZERO);
        assert_eq!(read(&mut last, 100_010, 10), 100_010);
        assert_eq!(read(&mut last, 40_000, 510), 100_510);
        assert_eq!(read(&mut last, 40_500, 1_010), 101_010);
    }

    #[test]
    fn time_advances_until_wall_clock_catches_up() {
        const HOUR: u64 = 3_600_000;
        let now = 500_000 * HOUR;
        for back in [HOUR, 24 * HOUR, now] {
            let mut last = Reading::new(Timestamp::from_millis(now), Duration::ZERO);
            let mut previous = now;
            for monotonic in (1_000..=back.min(2 * HOUR)).step_by(1_000) {
                let shown = read(&mut last, now - back + monotonic, monotonic);
                assert!(shown > previous, "{back} back, {monotonic} later");
                previous = shown;
            }
            assert_eq!(previous, now + back.min(2 * HOUR));
            assert_eq!(read(&mut last, now + 3 * HOUR, 3 * HOUR), now + 3 * HOUR, "the clock is right again");
        }
    }

    const YEAR: u64 = 365 * 24 * 3_600_000;

    #[test]
    fn brief_forward_jump_of_wall_clock_is_ignored() {
        let mut last = Reading::new(Timestamp::from_millis(YEAR), Duration::ZERO);
        assert_eq!(read(&mut last, 2 * YEAR, 1_000), YEAR + 1_000);
        assert_eq!(read(&mut last, 2 * YEAR + 3_000, 4_000), YEAR + 4_000);
        assert_eq!(read(&mut last, YEAR + 5_000, 5_000), YEAR + 5_000, "the clock is right again");
        assert_eq!(read(&mut last, 2 * YEAR, 6_000), YEAR + 6_000);
        assert_eq!(read(&mut last, 2 * YEAR + 299_000, 305_000), YEAR + 305_000, "it is doubted again");
    }

    #[test]
    fn lasting_forward_step_is_followed_after_five_minutes() {
        let mut last = Reading::new(Timestamp::from_millis(YEAR), Duration::ZERO);
        for second in 1..=300 {
            assert_eq!(read(&mut last, 2 * YEAR + second * 1_000, second * 1_000), YEAR + second * 1_000);
        }
        assert_eq!(read(&mut last, 2 * YEAR + 301_000, 301_000), 2 * YEAR + 301_000);
        assert_eq!(read(&mut last, 2 * YEAR + 302_000, 302_000), 2 * YEAR + 302_000);
        assert_eq!(read(&mut last, YEAR + 303_000, 303_000), 2 * YEAR + 303_000, "it never steps back");
    }

    #[test]
    fn small_clock_corrections_are_followed_without_stepping_back() {
        let mut last = Reading::new(Timestamp::from_millis(100_000), Duration::ZERO);
        assert_eq!(read(&mut last, 99_990, 5), 100_000);
        assert_eq!(read(&mut last, 100_001, 16), 100_001);
        assert_eq!(read(&mut last, 160_000, 20), 160_000);
    }

    #[test]
    fn time_includes_the_sleep_of_the_machine() {
        let mut last = Reading::new(Timestamp::from_millis(YEAR), Duration::ZERO);
        assert_eq!(read(&mut last, YEAR + 9 * 3_600_000, 9 * 3_600_000), YEAR + 9 * 3_600_000);
    }

    #[test]
    fn clock_continues_from_journal_time_or_wall_clock() {
        const WALL: u64 = 2 * YEAR;
        fn fixed() -> (Timestamp, Duration) {
            (Timestamp::from_millis(WALL), Duration::from_secs(7))
        }
        for (journaled, shown) in [
            (0, WALL),
            (WALL - 1, WALL),
            (WALL - 30 * 24 * 3_600_000, WALL),
            (WALL + 3_600_000, WALL + 3_600_000),
            (1, 1),
        ] {
            let clock = Clock::reading(fixed, Timestamp::ZERO);
            assert_eq!(clock.now().as_millis(), WALL, "nothing is known yet");
            clock.go_on_from(Timestamp::from_millis(journaled));
            assert_eq!(clock.now().as_millis(), shown, "{journaled}");
        }
    }

    #[test]
    fn deadline_during_correction_waits_for_wall_clock() {
        fn corrected() -> (Timestamp, Duration) {
            (Timestamp::from_millis(99_000), Duration::ZERO)
        }
        let clock = Clock::reading(corrected, Timestamp::from_millis(100_000));
        assert_eq!(clock.until(Timestamp::from_millis(100_001)), Duration::from_millis(1_001));
        assert_eq!(clock.until(Timestamp::from_millis(100_000)), Duration::ZERO);
        let clock = Clock::reading(corrected, Timestamp::from_millis(200_000));
        assert_eq!(clock.until(Timestamp::from_millis(200_001)), Duration::from_millis(1));
    }

    #[test]
    fn reads_closer_than_a_millisecond_add_up() {
        let mut last = Reading::new(Timestamp::from_millis(100_000), Duration::ZERO);
        for tenth in 1..=20_u64 {
            last = advance(last, Timestamp::ZERO, Duration::from_micros(tenth * 100));
        }
        assert_eq!(last.answer.as_millis(), 100_002);
    }
}
