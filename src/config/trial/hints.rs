//! Finds the probable meaning of a name that no event has.

use std::collections::BTreeSet;

use engine::{nearest::nearest, pipeline::row::Row};

/// The fields of an event in a template.
const EVENT_FIELDS: [&str; 9] =
    ["id", "type", "source", "severity", "timestamp", "payload", "repeats", "session", "workspace"];
/// Named arguments of `toon` and the related filters.
const TOON_OPTIONS: [&str; 4] = ["key", "columns", "indent", "repeats"];

/// The probable name if `template` failed with `message` for `rows`; `None` if none is similar.
pub(super) fn meant(message: &str, template: &str, rows: &[Row]) -> Option<String> {
    if let Some((_, rest)) = message.split_once("unknown keyword argument \'") {
        let option = rest.split_once('\'').map_or(rest, |(option, _)| option);
        return nearest(option, TOON_OPTIONS).map(str::to_owned);
    }
    let path = message.strip_prefix('`')?.strip_suffix("` is undefined")?;
    let (parent, name) = path.rsplit_once('.')?;
    let keys = payload_keys(rows);
    let near_key = || nearest(name, keys.iter().map(String::as_str));
    let is_payload = parent == "payload" || parent.ends_with(".payload");
    let is_row = parent.starts_with("rows[") || template.contains(&format!("for {parent} in rows"));
    if is_payload || is_row {
        return near_key().map(|key| format!("{parent}.{key}"));
    }
    if keys.contains(name) {
        return Some(format!("{parent}.payload.{name}"));
    }
    let field = nearest(name, EVENT_FIELDS).map(|field| format!("{parent}.{field}"));
    field.or_else(|| near_key().map(|key| format!("{parent}.payload.{key}")))
}

/// The probable column for one that none of `rows` has.
pub(super) fn meant_column(column: &str, rows: &[Row]) -> Option<String> {
    nearest(column, payload_keys(rows).iter().map(String::as_str)).map(str::to_owned)
}

/// The top-level keys of the payloads.
fn payload_keys(rows: &[Row]) -> BTreeSet<String> {
    rows.iter()
        .filter_map(|row| row.event.payload.value().as_object())
        .flat_map(|fields| fields.keys().cloned())
        .collect()
}
