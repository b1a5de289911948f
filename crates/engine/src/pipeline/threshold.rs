//! Thresholds: how many events, or how much of them, lets one go on.
//!
//! A counter adds up the events of a key within a sliding time, in 60 steps. An event that
//! reaches a level goes on, once a level within that time; an event that jumps over several levels
//! goes on once, for the highest. The counts of trusted and untrusted events are separate, so
//! nobody can use up the level of a trusted event.

use std::{sync::Arc, time::Duration};

use journal::time::{Timestamp, duration_millis};
use serde::{Deserialize, Serialize};

use super::aged::Aged;
use crate::{
    event::{Event, FieldPath, FieldValue},
    notification::StateKey,
};

/// Steps of the sliding time: a level counts to one part in 60.
const STEPS: u64 = 60;
/// Most counters of a subscriber, at most 1.2 kB each. When it is reached, the one that was quiet
/// longest is forgotten.
const COUNTERS_MAX: usize = 4_096;

/// The rule of a threshold.
#[derive(Debug, Clone, PartialEq)]
pub struct ThresholdRule {
    /// The fields that have a counter for each of their values; one counter if empty.
    pub by: Vec<FieldPath>,
    /// What is added up.
    pub measure: Measure,
    /// The levels, ascending; at least one.
    pub at: Vec<f64>,
    /// How long an event counts.
    pub within: Within,
}

/// How long an event counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// So long after it.
    Sliding(Duration),
    /// Until the end of its local day.
    Day,
}

impl Within {
    /// The number of the step of an event at `now`, in the local day that began at `day`.
    fn step(self, now: Timestamp, day: Timestamp) -> u64 {
        match self {
            Self::Sliding(within) => now.as_millis() / (duration_millis(within) / STEPS).max(1),
            Self::Day => day.as_millis(),
        }
    }

    /// Whether a step still counts in the step `now`.
    fn counts(self, step: u64, now: u64) -> bool {
        match self {
            Self::Sliding(_) => step + STEPS > now,
            Self::Day => step == now,
        }
    }

    /// Whether what was at `at` still counts.
    fn has(self, at: Timestamp, now: Timestamp, day: Timestamp) -> bool {
        match self {
            Self::Sliding(within) => now.since(at) < within,
            Self::Day => at >= day,
        }
    }
}

impl ThresholdRule {
    /// What an event that reaches the first level exactly has.
    pub fn example(&self) -> Reached {
        let level = self.at.first().copied().unwrap_or_default();
        Reached { total: level, level: Some(level), by: "".into() }
    }
}

/// What a threshold adds up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Measure {
    /// The events.
    Count,
    /// The numbers in this field.
    Sum(FieldPath),
}

/// What an event that goes on has: the level that it reached, or none if it is critical.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reached {
    /// The sum or count with this event.
    pub total: f64,
    /// The level; `None` if it reached none.
    pub level: Option<f64>,
    /// The values of the fields that name the counter, joined by colons.
    pub by: Arc<str>,
}

/// Error: the field to add up is not a number, and counts 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoNumber;

/// The counters of one subscriber.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Thresholds {
    counters: Aged<StateKey, Counter>,
}

/// The sum of one key.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Counter {
    /// The sums of the steps that are not empty, oldest first, with the numbers of the steps.
    steps: Vec<(u64, f64)>,
    /// When an event went on for each level, in the order of the levels.
    passed: Vec<Option<Timestamp>>,
}

impl Thresholds {
    /// Counts an event of `key` at `now`, in the local day that began at `day`. Returns the level that
    /// it is the first to reach within the time, and whether its field is a number.
    pub(crate) fn add(
        &mut self,
        rule: &ThresholdRule,
        key: StateKey,
        event: &Event,
        (now, day): (Timestamp, Timestamp),
    ) -> (Option<Reached>, Result<(), NoNumber>) {
        let amount = match &rule.measure {
            Measure::Count => Some(1.0),
            Measure::Sum(field) => number(&field.value(event)),
        };
        let counter = self.counters.use_or_default(&key, now, COUNTERS_MAX);
        let total = counter.add(rule, amount.unwrap_or_default(), (now, day));
        (
            counter
                .pass(rule, total, (now, day))
                .map(|(total, level)| reached(rule, total, Some(level), event)),
            amount.map(drop).ok_or(NoNumber),
        )
    }

    /// The sum of a key after the last event that was counted there.
    pub(crate) fn total(&self, key: StateKey) -> Option<f64> {
        self.counters.get(&key).map(|counter| counter.steps.iter().map(|(_, sum)| sum).sum())
    }

    /// The sum of a key after `event`, which was counted there and reached no level.
    pub(crate) fn counted(&self, rule: &ThresholdRule, key: StateKey, event: &Event) -> Option<Reached> {
        Some(reached(rule, self.total(key)?, None, event))
    }

    /// Forgets every counter, because the rule changed.
    pub(crate) fn clear(&mut self) {
        self.counters.clear();
    }
}

impl Counter {
    fn add(&mut self, rule: &ThresholdRule, amount: f64, (now, day): (Timestamp, Timestamp)) -> f64 {
        let step = rule.within.step(now, day);
        self.steps.retain(|(number, _)| rule.within.counts(*number, step));
        match self.steps.last_mut().filter(|(number, _)| *number == step) {
            Some((_, sum)) => *sum += amount,
            None => self.steps.push((step, amount)),
        }
        self.steps.iter().map(|(_, sum)| sum).sum()
    }

    fn pass(
        &mut self,
        rule: &ThresholdRule,
        total: f64,
        (now, day): (Timestamp, Timestamp),
    ) -> Option<(f64, f64)> {
        self.passed.resize(rule.at.len(), None);
        let reached = rule.at.iter().take_while(|level| total >= **level).count();
        let (below, _) = self.passed.split_at_mut(reached);
        let is_recent = |at: &Timestamp| rule.within.has(*at, now, day);
        if below.last()?.as_ref().is_some_and(is_recent) {
            return None;
        }
        below.fill(Some(now));
        rule.at.get(reached - 1).map(|level| (total, *level))
    }
}

fn reached(rule: &ThresholdRule, total: f64, level: Option<f64>, event: &Event) -> Reached {
    let by = rule.by.iter().map(|field| field.text(event)).collect::<Vec<_>>().join(":");
    Reached { total, level, by: by.into() }
}

fn number(value: &FieldValue<'_>) -> Option<f64> {
    match value {
        FieldValue::Json(json) => json.parse::<f64>().ok().filter(|number| number.is_finite()),
        FieldValue::Absent | FieldValue::Null | FieldValue::Text(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::tests::{event, field};

    const KEY: StateKey = StateKey(1);

    fn rule(measure: Measure, at: &[f64], within_s: u64) -> ThresholdRule {
        ThresholdRule {
            by: Vec::new(),
            measure,
            at: at.to_vec(),
            within: Within::Sliding(Duration::from_secs(within_s)),
        }
    }

    fn usd() -> Measure {
        Measure::Sum(field("payload.usd"))
    }

    /// The levels at which events at these seconds, each with this field, go on.
    fn passed(rule: &ThresholdRule, events: &[(u64, &str)]) -> Vec<Option<(f64, f64)>> {
        let mut thresholds = Thresholds::default();
        let pass = |(second, fields): &(u64, &str)| {
            let now = Timestamp::from_millis(1_000_000 + second * 1_000);
            let event: Arc<Event> = event(fields);
            let (reached, _) = thresholds.add(rule, KEY, &event, (now, Timestamp::ZERO));
            reached.and_then(|reached| Some((reached.total, reached.level?)))
        };
        events.iter().map(pass).collect()
    }

    #[test]
    fn each_level_lets_one_event_pass() {
        let rule = rule(Measure::Count, &[3.0, 5.0], 3_600);
        let events: Vec<(u64, &str)> = (0..7).map(|second| (second, "")).collect();
        let expected = [None, None, Some((3.0, 3.0)), None, Some((5.0, 5.0)), None, None];
        assert_eq!(passed(&rule, &events), expected);
    }

    #[test]
    fn a_jump_over_levels_passes_once() {
        let rule = rule(usd(), &[5.0, 10.0, 20.0], 3_600);
        let events = [(0, r#""usd":4.5"#), (1, r#""usd":7"#), (2, r#""usd":1"#), (3, r#""usd":9"#)];
        let expected = [None, Some((11.5, 10.0)), None, Some((21.5, 20.0))];
        assert_eq!(passed(&rule, &events), expected);
    }

    #[test]
    fn old_events_do_not_count() {
        let rule = rule(Measure::Count, &[2.0], 60);
        let events = [(0, ""), (61, ""), (90, ""), (100, ""), (200, ""), (210, "")];
        let expected = [None, None, Some((2.0, 2.0)), None, None, Some((2.0, 2.0))];
        assert_eq!(passed(&rule, &events), expected);
    }

    #[test]
    fn a_field_without_a_number_counts_nothing() {
        let rule = rule(usd(), &[1.0], 60);
        for fields in ["", r#""usd":null"#, r#""usd":"5""#, r#""usd":[5]"#, r#""usd":true"#] {
            let mut thresholds = Thresholds::default();
            let outcome =
                thresholds.add(&rule, KEY, &event(fields), (Timestamp::from_millis(1), Timestamp::ZERO));
            assert_eq!(outcome, (None, Err(NoNumber)), "{fields}");
        }
    }

    #[test]
    fn counters_are_bounded_and_the_quietest_goes() {
        let rule = rule(Measure::Count, &[2.0], 3_600);
        let mut thresholds = Thresholds::default();
        for key in 0..=COUNTERS_MAX as u64 {
            let (reached, _) = thresholds.add(
                &rule,
                StateKey(key),
                &event(""),
                (Timestamp::from_millis(key), Timestamp::ZERO),
            );
            assert_eq!(reached, None);
        }
        assert_eq!(thresholds.counters.len(), COUNTERS_MAX);
        assert!(thresholds.counters.get(&StateKey(0)).is_none());
        let (reached, _) =
            thresholds.add(&rule, StateKey(1), &event(""), (Timestamp::from_millis(9_000), Timestamp::ZERO));
        assert_eq!(reached, Some(Reached { total: 2.0, level: Some(2.0), by: "".into() }));
    }
}
