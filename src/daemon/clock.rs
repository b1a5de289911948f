//! The one place that reads the clock.
//!
//! The journal's time is wall time that never steps back. When the wall clock is set back, time goes on from where it was at
//! the pace of a clock that keeps counting while the machine sleeps, until the wall clock has caught up; when it is set
//! forward, time follows.
#![expect(clippy::disallowed_methods, reason = "the only reader of the clock")]

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::time::{ClockId, clock_gettime};

use crate::time::{Timestamp, duration_millis};

/// How far the wall clock may fall behind before it counts as set back; less is the correction of a drift, and is waited out.
const SET_BACK_MIN: Duration = Duration::from_secs(2);

/// A clock that never steps back.
#[derive(Debug)]
pub struct Clock {
    /// The last answer, and the steady clock's reading at that time. Held for two clock reads and a comparison.
    last: Mutex<Reading>,
    /// The wall clock and the steady clock.
    read: fn() -> (Timestamp, Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reading {
    answer: Timestamp,
    steady: Duration,
}

impl Clock {
    /// Starts a clock that shows `not_before` at the least.
    pub fn starting_at(not_before: Timestamp) -> Self {
        Self::reading(machine_now, not_before)
    }

    /// The same by other clocks than the machine's.
    pub(super) fn reading(read: fn() -> (Timestamp, Duration), not_before: Timestamp) -> Self {
        let (_, steady) = read();
        Self { last: Mutex::new(Reading { answer: not_before, steady }), read }
    }

    /// Never shows less than `not_before` from here on: the last time that the journal holds, once it is open. Deadlines
    /// count from that time, so a wall clock that was set back while no daemon ran must not hold them up.
    pub fn go_on_from(&self, not_before: Timestamp) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.answer < not_before {
            *last = Reading { answer: not_before, steady: (self.read)().1 };
        }
    }

    /// Never before anything that it answered earlier.
    pub fn now(&self) -> Timestamp {
        self.read().0
    }

    /// How long it is until this clock shows `deadline`; zero once it does. A correction that is waited out counts as a part of it.
    pub fn until(&self, deadline: Timestamp) -> Duration {
        let (now, wall) = self.read();
        if deadline <= now { Duration::ZERO } else { deadline.since(wall) }
    }

    /// The time, and the time that has to become later than it for it to go on.
    fn read(&self) -> (Timestamp, Timestamp) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, steady) = (self.read)();
        *last = advance(*last, wall, steady);
        let is_waited_out = last.answer.since(wall) < SET_BACK_MIN;
        (last.answer, if is_waited_out { wall.min(last.answer) } else { last.answer })
    }
}

fn machine_now() -> (Timestamp, Duration) {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (Timestamp::from_millis(duration_millis(wall)), steady_now())
}

fn advance(last: Reading, wall: Timestamp, steady: Duration) -> Reading {
    let answer = if wall >= last.answer {
        wall
    } else if last.answer.since(wall) < SET_BACK_MIN {
        last.answer
    } else {
        last.answer + steady.saturating_sub(last.steady)
    };
    // Below a millisecond nothing would be added, so the steady reading is kept until it counts.
    if answer == last.answer { last } else { Reading { answer, steady } }
}

/// A clock that nobody sets and that counts while the machine sleeps.
pub fn steady_now() -> Duration {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(last: &mut Reading, wall_ms: u64, steady_ms: u64) -> u64 {
        *last = advance(*last, Timestamp::from_millis(wall_ms), Duration::from_millis(steady_ms));
        last.answer.as_millis()
    }

    #[test]
    fn a_clock_that_is_set_back_goes_on_at_the_steady_pace() {
        let mut last = Reading { answer: Timestamp::from_millis(100_000), steady: Duration::ZERO };
        assert_eq!(read(&mut last, 100_010, 10), 100_010);
        assert_eq!(read(&mut last, 40_000, 510), 100_510);
        assert_eq!(read(&mut last, 40_500, 1_010), 101_010);
    }

    #[test]
    fn however_far_a_clock_is_set_back_time_goes_on_and_catches_up() {
        const HOUR: u64 = 3_600_000;
        let now = 500_000 * HOUR;
        for back in [HOUR, 24 * HOUR, now] {
            let mut last = Reading { answer: Timestamp::from_millis(now), steady: Duration::ZERO };
            let mut previous = now;
            for steady in (1_000..=back.min(2 * HOUR)).step_by(1_000) {
                let shown = read(&mut last, now - back + steady, steady);
                assert!(shown > previous, "{back} back, {steady} later");
                previous = shown;
            }
            assert_eq!(previous, now + back.min(2 * HOUR));
            assert_eq!(read(&mut last, now + 3 * HOUR, 3 * HOUR), now + 3 * HOUR, "the clock is right again");
        }
    }

    #[test]
    fn after_a_year_forward_and_back_time_goes_on_from_the_year_ahead() {
        const YEAR: u64 = 365 * 24 * 3_600_000;
        let mut last = Reading { answer: Timestamp::from_millis(YEAR), steady: Duration::ZERO };
        assert_eq!(read(&mut last, 2 * YEAR, 1_000), 2 * YEAR);
        assert_eq!(read(&mut last, YEAR + 2_000, 2_000), 2 * YEAR + 1_000);
        assert_eq!(read(&mut last, YEAR + 60_000, 60_000), 2 * YEAR + 59_000);
    }

    #[test]
    fn a_small_correction_is_waited_out_and_a_jump_forward_is_followed() {
        let mut last = Reading { answer: Timestamp::from_millis(100_000), steady: Duration::ZERO };
        assert_eq!(read(&mut last, 99_990, 5), 100_000);
        assert_eq!(read(&mut last, 100_001, 16), 100_001);
        assert_eq!(read(&mut last, 31_000_000_000, 20), 31_000_000_000);
    }

    #[test]
    fn a_clock_goes_on_from_the_last_time_of_the_journal() {
        let clock = Clock::starting_at(Timestamp::ZERO);
        let journaled = clock.now() + Duration::from_secs(3_600);
        clock.go_on_from(journaled);
        assert!(clock.now() >= journaled);
        clock.go_on_from(Timestamp::ZERO);
        assert!(clock.now() >= journaled);
    }

    #[test]
    fn a_deadline_in_a_correction_is_as_far_as_the_wall_clock_has_to_go() {
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
        let mut last = Reading { answer: Timestamp::from_millis(100_000), steady: Duration::ZERO };
        for tenth in 1..=20_u64 {
            last = advance(last, Timestamp::ZERO, Duration::from_micros(tenth * 100));
        }
        assert_eq!(last.answer.as_millis(), 100_002);
    }
}
