//! Delays of a delivery.

use engine::{
    hold::{DELAY_FORMS, Delay},
    nearest::nearest,
};

use super::{at_most, one_or_list, words};
use crate::config::{
    raw::{Parsed, Value},
    report::shown,
};

/// Delays, of which the first that is over counts.
pub(crate) fn delays(value: &Value<'_>, max: usize) -> Parsed<Vec<Delay>> {
    let delays = one_or_list(value, |value| {
        let text = words(value)?;
        text.parse().map_err(|_| {
            let message = format!("`{}` is not a delay", shown(text));
            let wrong = value.error(message).with_nearest(meant_delay(text));
            vec![wrong.with_note(format!("a delay is {DELAY_FORMS}"))]
        })
    })?;
    at_most(value, delays, max)
}

/// The delay that a text probably means: with its word spelt right, or with the sign that it lacks.
pub(crate) fn meant_delay(text: &str) -> Option<String> {
    let spelt = |separator: char, words: &[&'static str]| {
        let (word, rest) = text.split_once(separator)?;
        nearest(word, words.iter().copied()).map(|word| format!("{word}{separator}{rest}"))
    };
    let turns = || {
        let (count, word) = text.split_once(' ')?;
        nearest(word.trim(), ["turns", "turn"]).map(|word| format!("{count} {word}"))
    };
    let percent = || text.strip_prefix("context:").map(|share| format!("context:{share}%"));
    let all = [turns(), percent(), spelt(':', &["tool", "event", "context"])];
    all.into_iter().flatten().find(|meant| meant.parse::<Delay>().is_ok())
}
