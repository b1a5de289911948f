//! Keys that are not supported yet.
//!
//! Their shape is checked, and the value without effect is accepted, so that a file with all the
//! defaults loads. Any other value is an error: an accepted key must have its effect.

use engine::settings::{Key, keys};
use journal::time::{hours::minutes, parse_duration};

use crate::config::{
    patterns,
    raw::{Parsed, Section, Value},
    report::shown,
    values,
};

/// The keys of `[limits]`.
pub(super) fn limits() -> Vec<Key> {
    keys! {
        /// Event types that inhibit the notifications of this subscriber.
        inhibited_by: (), only("[]");
        /// Whether a newer session gets the newest state.
        retain: (), only("false");
    }
}

/// The keys of `[output]`.
pub(super) fn output() -> Vec<Key> {
    keys! {
        /// Whether the agent has to answer.
        requires_response: (), only("false");
    }
}

/// Checks the keys of `[limits]`.
pub(crate) fn check_limits(section: &mut Section<'_>) {
    refuse(section, "inhibited_by", |value| {
        values::list(value, patterns::read).map(|patterns| !patterns.is_empty())
    });
    refuse(section, "quiet", hours);
    refuse(section, "deliver_after", delay);
    refuse(section, "retain", values::flag);
}

/// Checks the keys of `[output]`.
pub(crate) fn check_output(section: &mut Section<'_>) {
    refuse(section, "requires_response", values::flag);
}

/// Refuses a value for which `check` returns true: one with another effect than an absent key.
fn refuse(section: &mut Section<'_>, key: &'static str, check: impl Fn(&Value<'_>) -> Parsed<bool>) {
    section.read(key, |value| match check(value)? {
        false => Ok(()),
        true => Err(vec![value.error(format!("`{key}` is not supported yet"))]),
    });
}

/// Hours of each day, such as `22:00-07:00`.
fn hours(value: &Value<'_>) -> Parsed<bool> {
    values::hours(value).map(|_| true)
}

/// A number of turns, a duration, a time of day, or a tool.
fn delay(value: &Value<'_>) -> Parsed<bool> {
    let text = values::words(value)?;
    let is_turns = text.strip_suffix(" turns").or_else(|| text.strip_suffix(" turn")).is_some_and(is_count);
    let is_tool = text.strip_prefix("tool:").is_some_and(|tool| !tool.trim().is_empty());
    let is_delay = is_turns || is_tool || minutes(text).is_some() || parse_duration(text).is_some();
    let wrong = || {
        let message = format!("`{}` is not a valid delay", shown(text));
        vec![
            value
                .error(message)
                .with_note("it is written like \"3 turns\", \"10m\", \"18:00\" or \"tool:Bash\""),
        ]
    };
    is_delay.then_some(true).ok_or_else(wrong)
}

fn is_count(text: &str) -> bool {
    text.parse::<u32>().is_ok_and(|count| count > 0)
}
