//! `[activation]` of `aside.toml`: what notifications may do automatically: in general, by source,
//! and by type.

use engine::{
    event::Pattern,
    notification::{Activation, Priority},
    pipeline::activation::{THRESHOLD, WakeSettings},
};
use toml::de::DeValue;

use crate::config::{
    raw::{Parsed, Section, Value},
    report::shown,
    values,
};

/// Reads the section.
pub(crate) fn read(section: &mut Section<'_>) -> WakeSettings {
    let default = WakeSettings::default();
    let threshold = section.read("threshold", values::word::<Priority>);
    let source = |value: &Value<'_>| values::words(value).map(str::to_owned);
    let trusted = section.read("trusted", |value| values::list(value, source));
    WakeSettings {
        level: section.read("level", values::activation).unwrap_or(default.level),
        threshold: threshold.unwrap_or(THRESHOLD),
        sources: section.read("sources", |value| levels(value, name)).unwrap_or_default(),
        types: section.read("types", |value| levels(value, pattern)).unwrap_or_default(),
        trusted: trusted.unwrap_or_default(),
    }
}

/// A table from names to levels.
fn levels<T>(value: &Value<'_>, key: impl Fn(&Value<'_>, &str) -> Parsed<T>) -> Parsed<Vec<(T, Activation)>> {
    let entries = value.entries().ok_or_else(|| {
        value.wrong_kind("a table of names and levels, such as { \"ide.diagnostics\" = \"prompt\" }")
    })?;
    let (mut levels, mut found) = (Vec::new(), Vec::new());
    for (name, entry) in entries {
        if matches!(entry.get(), DeValue::Table(_)) {
            let message = format!("a name with a dot is quoted, such as \"{}.x\" = \"prompt\"", shown(name));
            found.push(entry.key_error(message));
            continue;
        }
        match (key(&entry, name), values::activation(&entry)) {
            (Ok(name), Ok(level)) => levels.push((name, level)),
            (name, level) => found.extend([name.err(), level.err()].into_iter().flatten().flatten()),
        }
    }
    if found.is_empty() { Ok(levels) } else { Err(found) }
}

fn name(entry: &Value<'_>, name: &str) -> Parsed<String> {
    match name.trim().is_empty() {
        true => Err(vec![entry.key_error("the name of a source is empty")]),
        false => Ok(name.to_owned()),
    }
}

fn pattern(entry: &Value<'_>, name: &str) -> Parsed<Pattern> {
    name.parse().map_err(|error| vec![entry.key_error(crate::config::report::sentence(error))])
}
