//! Schedules calls: the gaps between those of one push, and the rate of all.

use std::{collections::VecDeque, time::Duration};

use serde::{Deserialize, Serialize};

use journal::time::Timestamp;

/// Most calls for one push.
pub(super) const CALLS_MAX: u32 = 60;
/// How long a push is followed.
pub(super) const FOLLOWED_FOR: Duration = Duration::from_secs(6 * 60 * 60);
/// The first wait after exceeding a rate limit; doubled after each further one.
const BACK_OFF_MIN: Duration = Duration::from_secs(60);
/// Longest wait of that kind, unless the answer requests a longer one.
const BACK_OFF_MAX: Duration = Duration::from_secs(60 * 60);
/// Longest requested wait that is honored; no limit of GitHub lasts longer than an hour.
const ASKED_MAX: Duration = Duration::from_secs(2 * 60 * 60);
const HOUR: Duration = Duration::from_secs(60 * 60);
/// Age of a push up to which a gap between two calls applies, and the gap, in seconds.
const GAPS: [(u64, u64); 4] = [(30, 10), (15 * 60, 30), (60 * 60, 60), (u64::MAX, 5 * 60)];

/// The gap after a call at which the push is `age` old.
pub(super) fn gap(age: Duration) -> Duration {
    let gap = GAPS.iter().find(|(until, _)| age.as_secs() < *until).map_or(5 * 60, |(_, gap)| *gap);
    Duration::from_secs(gap)
}

/// The calls of the last hour, and pauses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Gate {
    /// The calls, oldest first.
    calls: VecDeque<Timestamp>,
    /// End of the pause.
    held_until: Timestamp,
    /// Duration of the last back-off; zero after a successful answer.
    back_off: Duration,
}

impl Gate {
    /// Records an answered call.
    pub(super) fn note_call(&mut self, now: Timestamp) {
        self.calls.push_back(now);
        while self.calls.front().is_some_and(|at| now.since(*at) >= HOUR) {
            self.calls.pop_front();
        }
    }

    /// Records a successful answer.
    pub(super) fn note_answer(&mut self) {
        self.back_off = Duration::ZERO;
    }

    /// Records a rate limit, with the requested wait.
    pub(super) fn hold(&mut self, asked: Option<Duration>, now: Timestamp) {
        self.back_off = (self.back_off * 2).clamp(BACK_OFF_MIN, BACK_OFF_MAX);
        self.wait(self.back_off.max(asked.unwrap_or_default()), now);
    }

    /// Pauses all calls.
    pub(super) fn wait(&mut self, wait: Duration, now: Timestamp) {
        self.held_until = self.held_until.max(now + wait.min(ASKED_MAX));
    }

    /// Earliest time of the next call, with at most `per_hour` an hour.
    pub(super) fn not_before(&self, per_hour: u32) -> Timestamp {
        let per_hour = usize::try_from(per_hour).unwrap_or(usize::MAX);
        let oldest = self.calls.len().checked_sub(per_hour).and_then(|index| self.calls.get(index));
        oldest.map_or(self.held_until, |oldest| self.held_until.max(*oldest + HOUR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn poll_gaps_grow_with_the_push_age() {
        let (mut age, mut times) = (0, Vec::new());
        while age < FOLLOWED_FOR.as_secs() {
            age += gap(Duration::from_secs(age)).as_secs();
            times.push(age);
        }
        assert_eq!(times[..6], [10, 20, 30, 60, 90, 120]);
        let minutes =
            |from: u64, to: u64| times.iter().filter(|age| (from..to).contains(&(**age / 60))).count();
        assert_eq!((minutes(5, 6), minutes(20, 30), minutes(60, 90)), (2, 10, 6));
    }

    #[test]
    fn hourly_cap_and_refusals_delay_all_calls() {
        let mut gate = Gate::default();
        for seconds in [10, 20, 30] {
            gate.note_call(at(seconds));
        }
        assert_eq!(
            [4, 3, 2, 1].map(|per_hour| gate.not_before(per_hour)),
            [at(0), at(3_610), at(3_620), at(3_630)]
        );
        gate.note_call(at(3_615));
        assert_eq!(gate.not_before(3), at(3_620), "the first one is more than an hour ago");
        let mut held = |asked: Option<u64>, now: u64| {
            gate.hold(asked.map(Duration::from_secs), at(now));
            gate.not_before(10).since(at(now)).as_secs()
        };
        assert_eq!([held(None, 4_000), held(None, 4_100), held(Some(900), 5_000)], [60, 120, 900]);
        assert_eq!([held(None, 9_000), held(Some(u64::MAX), 20_000)], [480, 7_200]);
        gate.note_answer();
        gate.hold(None, at(50_000));
        assert_eq!(gate.not_before(10), at(50_060));
    }
}
