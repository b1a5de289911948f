//! `[sources]` of `aside.toml` and its tables, one for each probe, detector and source. Each of
//! them defines the keys of its table, and reads them from [`Keys`].

use std::{collections::BTreeMap, num::NonZeroU32, ops::RangeInclusive, sync::Arc, time::Duration};

use engine::{
    rate::Rate,
    settings::{ENTRIES_MAX, Entry, Form, Keys, Switch},
    throttle::SourceRates,
    words::Words,
};

use crate::config::{
    producers,
    raw::{Parsed, Section, Value},
    report::shown,
    values,
};

/// Default rate of a source that other people than the user write to: a checkout of some thousand
/// files passes, an endless loop does not.
const REMOTE_RATE: Rate =
    Rate { count: NonZeroU32::new(6_000).expect("not zero"), per: Duration::from_secs(60) };

/// The tables in `[sources]`, by their names.
pub(super) fn tables<'s>(sources: &mut Section<'s>) -> BTreeMap<&'static str, Section<'s>> {
    producers::switched().map(|row| (row.name, sources.table(row.name))).collect()
}

/// The keys of `[sources]` itself.
pub(super) fn read(section: &mut Section<'_>) -> SourceRates {
    let rate = |value: &Value<'_>| values::unless_off(value, values::rate);
    SourceRates {
        rate: section.read("rate", rate).unwrap_or(None),
        remote_rate: section.read("remote_rate", rate).unwrap_or(Some(REMOTE_RATE)),
    }
}

impl Keys for Section<'_> {
    fn flag(&mut self, key: &'static str) -> Option<bool> {
        self.read(key, values::flag)
    }

    fn switch(&mut self, key: &'static str) -> Option<Switch> {
        self.read(key, |value| match (value.get().as_bool(), value.get().as_str()) {
            (Some(true), _) => Ok(Switch::On),
            (Some(false), _) => Ok(Switch::Off),
            (None, Some("auto")) => Ok(Switch::Auto),
            (None, Some(found)) => {
                let wrong = value.error(format!("`{key}` cannot be `{}`", shown(found)));
                Err(vec![wrong.with_allowed(found, &["true", "false", "\"auto\""])])
            }
            (None, None) => Err(value.wrong_kind("true, false or \"auto\"")),
        })
    }

    fn number(&mut self, key: &'static str, limits: RangeInclusive<u32>) -> Option<u32> {
        self.read(key, |value| values::integer(value, limits.clone()))
    }

    fn duration(&mut self, key: &'static str, limits: RangeInclusive<Duration>) -> Option<Duration> {
        self.read(key, |value| values::duration(value, limits.clone()))
    }

    fn word<T: Words>(&mut self, key: &'static str) -> Option<T> {
        self.read(key, values::word)
    }

    fn text<T>(&mut self, key: &'static str, form: &Form<T>) -> Option<T> {
        self.read(key, |value| formed(value, form))
    }

    fn texts<T>(&mut self, key: &'static str, form: &Form<T>, max: usize) -> Option<Vec<T>> {
        let is_wrong = |count: usize| format!("`{key}` has {count} items; {max} are allowed");
        self.read(key, |value| match values::list(value, |item| formed(item, form))? {
            texts if texts.len() <= max => Ok(texts),
            texts => Err(vec![value.error(is_wrong(texts.len()))]),
        })
    }

    fn rising(
        &mut self,
        key: &'static str,
        limits: RangeInclusive<u8>,
        max: usize,
        note: &str,
    ) -> Option<Vec<u8>> {
        self.read(key, |value| {
            let found = values::list(value, |item| values::integer(item, limits.clone()))?;
            if (1..=max).contains(&found.len()) && found.is_sorted_by(|one, other| one < other) {
                return Ok(found);
            }
            let wrong = value.error(format!("`{key}` is not a list of 1 to {max} increasing integers"));
            Err(vec![wrong.with_note(note)])
        })
    }

    fn named<T>(&mut self, key: &'static str, max: usize, read: fn(&mut Self) -> T) -> Vec<(Arc<str>, T)> {
        self.named_tables(key, max, read)
    }

    fn parsed<T>(&mut self, key: &'static str, parse: fn(&str) -> Result<T, String>) -> Option<T> {
        self.read(key, |value| {
            let text = values::words(value)?;
            parse(text).map_err(|why| vec![value.error(format!("`{key}` is `{}`: {why}", shown(text)))])
        })
    }

    fn needed<T>(&mut self, key: &'static str, parse: fn(&str) -> Result<T, String>) -> Option<T> {
        self.miss(key);
        self.parsed(key, parse)
    }

    fn entries<T: Entry>(&mut self) -> Vec<T> {
        self.list(ENTRIES_MAX, T::read, T::name)
    }
}

fn formed<T>(value: &Value<'_>, form: &Form<T>) -> Parsed<T> {
    let text = values::words(value)?;
    let wrong = || value.error(format!("`{}` is not {}", shown(text), form.noun)).with_note(form.note);
    (form.parse)(text).ok_or_else(|| vec![wrong()])
}
