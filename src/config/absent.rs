//! `[absent]` of a subscriber's file: a notification of what did not come.

use std::{ops::RangeInclusive, time::Duration};

use engine::{
    event::FieldPath,
    pipeline::absence::AbsenceRule,
    settings::{Keys as _, settings},
};

use crate::config::raw::Section;

/// The limits of `after`.
const AFTER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 3_600);
/// The limits of `forget`.
const FORGET: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(30 * 24 * 3_600);

settings! {
    /// A notification of what did not come, in place of the events themselves: a condition, which the
    /// next event ends. It begins with the first event of a key, so what never came is not missed. The
    /// clock stands while the machine sleeps and while the daemon is not running.
    pub(super) struct Keys from Section<'_> {
        /// How long no event comes after the last one.
        after: Duration, absence_after(AFTER);
        /// There is a clock for each combination of the values of these fields.
        by: Vec<FieldPath> = Vec::new(), fields();
        /// How long after its last event something is not missed any more.
        forget: Duration = Duration::from_secs(7 * 24 * 3_600), duration(FORGET);
    }
}

impl Section<'_> {
    fn absence_after(&mut self, key: &'static str, range: RangeInclusive<Duration>) -> Option<Duration> {
        self.require(key, |value| crate::config::values::duration(value, range.clone()))
    }
}

/// Reads `[absent]`, if a file has it.
pub(super) fn read(
    section: &mut Section<'_>,
    is_there: bool,
    limits: &mut Section<'_>,
) -> Option<AbsenceRule> {
    if !is_there {
        return None;
    }
    let Keys { after, by, forget } = Keys::read(section);
    limits.object("resolved_by", |value| {
        value.error("`resolved_by` and `[absent]` exclude each other: the next event ends an absence")
    });
    if after.is_some_and(|after| forget <= after) {
        section.object("forget", |value| value.error("`forget` must be longer than `after`"));
    }
    Some(AbsenceRule { after: after?, by, forget })
}
