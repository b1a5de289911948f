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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reading {
    answer: Timestamp,
    steady: Duration,
}

impl Clock {
    /// Starts a clock that shows `not_before` at the least.
    pub fn starting_at(not_before: Timestamp) -> Self {
        Self { last: Mutex::new(Reading { answer: not_before, steady: steady_now() }) }
    }

    /// Never shows less than `not_before` from here on: the last time that the journal holds, once it is open. Deadlines
    /// count from that time, so a wall clock that was set back while no daemon ran must not hold them up.
    pub fn go_on_from(&self, not_before: Timestamp) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.answer < not_before {
            *last = Reading { answer: not_before, steady: steady_now() };
        }
    }

    /// Never before anything that it answered earlier.
    pub fn now(&self) -> Timestamp {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = advance(*last, Timestamp::from_millis(duration_millis(wall)), steady_now());
        last.answer
    }
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
    fn reads_closer_than_a_millisecond_add_up() {
        let mut last = Reading { answer: Timestamp::from_millis(100_000), steady: Duration::ZERO };
        for tenth in 1..=20_u64 {
            last = advance(last, Timestamp::ZERO, Duration::from_micros(tenth * 100));
        }
        assert_eq!(last.answer.as_millis(), 100_002);
    }
}
