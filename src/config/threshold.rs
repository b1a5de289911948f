//! `[threshold]` of a subscriber's file: how many events, or how much of them, lets one go on.

use std::{ops::RangeInclusive, time::Duration};

use engine::{
    event::FieldPath,
    nearest::nearest,
    pipeline::threshold::{Measure, ThresholdRule, Within},
    settings::{Keys as _, settings},
};

use crate::config::{raw::Section, report::shown, values};

/// The limits of `within`.
const WITHIN: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(30 * 24 * 3_600);
/// Most levels.
const LEVELS_MAX: usize = 10;

settings! {
    /// How many events, or how much of them, lets one event go on. One that reaches no level ends as
    /// `below_threshold`, and counts; so do repeats. A level lets one event pass in the time of
    /// `within`, and one that jumps over several levels passes once. A critical event of a trusted
    /// source passes at once, and counts.
    pub(super) struct Keys from Section<'_> {
        /// There is a counter for each combination of the values of these fields.
        by: Vec<FieldPath> = Vec::new(), fields();
        /// `true`: the events are counted, which is the default without `sum`.
        count: bool, flag(), else "`true` without `sum`";
        /// The field whose numbers are added up instead.
        sum: FieldPath, field(), else "none";
        /// The levels, ascending.
        at: Vec<f64>, levels(LEVELS_MAX);
        /// How long an event counts, exact to one part in 60; or `"day"`, since local midnight.
        within: Within, required_duration_or_day(WITHIN);
    }
}

impl Section<'_> {
    fn required_duration_or_day(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Duration>,
    ) -> Option<Within> {
        self.require(key, |value| match value.get().as_str() {
            Some("day") => Ok(Within::Day),
            Some(text) if nearest(text, ["day"]).is_some() => {
                let wrong = value.error(format!("`within` cannot be `{}`", shown(text)));
                Err(vec![wrong.with_nearest(Some("day"))])
            }
            _ => values::duration(value, range.clone()).map(Within::Sliding),
        })
    }
}

/// Reads `[threshold]`, if a file has it.
pub(super) fn read(section: &mut Section<'_>, is_there: bool) -> Option<ThresholdRule> {
    if !is_there {
        return None;
    }
    let Keys { by, count, sum, at, within } = Keys::read(section);
    match (count, &sum) {
        (Some(true), Some(_)) => {
            section.object("sum", |value| value.error("`sum` and `count = true` exclude each other"));
        }
        (Some(false), None) => {
            section.object("count", |value| value.error("without `sum` the events are counted"));
        }
        _ => {}
    }
    let measure = sum.map_or(Measure::Count, Measure::Sum);
    Some(ThresholdRule { by, measure, at: at?, within: within? })
}
