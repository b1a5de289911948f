//! `[repeat]` of a subscriber's file: how a delivered notification is repeated.

use engine::{
    hold::{Delay, Wait},
    notification::{
        Priority,
        repeat::{REPEATS_MAX, Repeat, RepeatAfter, RepeatUntil},
    },
    settings::{Keys as _, settings},
};

use crate::config::{
    raw::{Parsed, Section, Value},
    report::shown,
    values,
};

/// Most repetitions, as a number of items.
const WAITS_MAX: usize = REPEATS_MAX as usize;

settings! {
    /// How a delivered notification is repeated: the same text, with the number of the repetition
    /// (`reminder: 2`). An answer by `aside inbox acknowledge` or the MCP tool `inbox` ends it, and so
    /// does the end of its condition. After 10 repetitions without an answer it ends as `unanswered`,
    /// and the user gets a notice.
    pub(super) struct Keys from Section<'_> {
        /// What ends the repetitions: `"answered"`, or `"resolved"` for a condition that is repeated
        /// while it holds.
        until: RepeatUntil = RepeatUntil::Answered, word();
        /// The wait for each repetition since the delivery before: turns of the session or a time,
        /// such as `["3 turns", "30m", "2h"]`.
        after: Vec<RepeatAfter>, repeat_waits(WAITS_MAX);
        /// The priority of each repetition, the last one also of those that follow.
        raise: Vec<Priority> = Vec::new(), word_list(WAITS_MAX);
        /// Whether the last wait counts again and again.
        endless: bool = false, flag();
    }
}

impl Section<'_> {
    fn repeat_waits(&mut self, key: &'static str, max: usize) -> Option<Vec<RepeatAfter>> {
        self.require(key, |value| {
            let waits = values::list(value, read_wait)?;
            if waits.is_empty() {
                return Err(vec![value.error("`after` names no wait")]);
            }
            values::at_most(value, waits, max)
        })
    }

    fn word_list(&mut self, key: &'static str, max: usize) -> Option<Vec<Priority>> {
        self.read(key, |value| {
            let words = values::list(value, values::word)?;
            values::at_most(value, words, max)
        })
    }
}

fn read_wait(value: &Value<'_>) -> Parsed<RepeatAfter> {
    match values::text(value)?.parse() {
        Ok(Delay::For(time)) => Ok(RepeatAfter::time(time)),
        Ok(Delay::Wait(Wait::Turns(turns))) => Ok(RepeatAfter::Turns(turns)),
        Ok(Delay::TimeOfDay(_) | Delay::Wait(_)) | Err(_) => {
            let text = values::text(value)?;
            let wrong = value.error(format!("`{}` is neither turns nor a time", shown(text)));
            let meant = values::meant_delay(text).filter(|meant| meant.contains(' '));
            Err(vec![wrong.with_nearest(meant).with_note("a wait is written like \"3 turns\" or \"30m\"")])
        }
    }
}

/// Reads `[repeat]`, if a file has it.
pub(super) fn read(section: &mut Section<'_>, is_there: bool, has_conditions: bool) -> Option<Box<Repeat>> {
    if !is_there {
        return None;
    }
    let Keys { until, after, raise, endless } = Keys::read(section);
    if until == RepeatUntil::Resolved && !has_conditions {
        let message = "`until = \"resolved\"` needs `resolved_by`: without it nothing holds";
        section.object("until", |value| value.error(message));
    }
    Some(Box::new(Repeat { until, after: after?, raise, is_endless: endless }))
}
