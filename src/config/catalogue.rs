//! `events.toml` of a layer: types of events that are not in the shipped catalogue, with default
//! severities and examples.
//!
//! Each `[[event]]` has a `type`; `severity`, `description` and `example` are optional. An entry of
//! a later layer replaces the whole entry of an earlier one. One of a workspace has no severity: an
//! event gets it when it is published, for all who see it.

use engine::{
    event::{
        EventType, Payload,
        catalogue::{self, CatalogueEntry},
    },
    sorted::SortedMap,
};
use serde_json::Value as Json;

use crate::config::{
    layers::{LayerKind, SourceFile},
    raw::{Parsed, Value},
    report::Diagnostic,
    values,
};

/// The entries of all layers above the shipped one, by type.
pub(crate) type Entries = SortedMap<EventType, CatalogueEntry>;

/// Adds the entries of one file to those of earlier layers; returns the mistakes.
pub(crate) fn read(file: &SourceFile, entries: &mut Entries) -> Vec<Diagnostic> {
    let mut own = Entries::new();
    let found = values::each_table(file, "event", usize::MAX, |item| {
        let entry = entry(item, entries)?;
        if own.contains_key(&entry.event_type) {
            return Err(vec![item.error(format!("there are two entries for `{}`", entry.event_type))]);
        }
        own.insert(entry.event_type.clone(), entry);
        Ok(())
    });
    entries.extend(own);
    found
}

fn entry(value: &Value<'_>, earlier: &Entries) -> Parsed<CatalogueEntry> {
    let mut section = value.section().ok_or_else(|| value.wrong_kind("a table"))?;
    let event_type = section.require("type", values::open_type);
    let description = section.read("description", values::text).unwrap_or_default().to_owned();
    let example =
        section.read("example", values::object).unwrap_or_else(|| Json::Object(serde_json::Map::new()));
    let mut severity = section.read("severity", values::severity);
    if value.file().layer == LayerKind::Workspace {
        section.object("severity", |value| {
            let message = "a workspace sets no severity of a type, as sessions of other folders see it too";
            value
                .error(message)
                .with_note("its publisher can name one, and its subscriber with `severity_when`")
        });
        severity = event_type.as_ref().and_then(|own| earlier.get(own)).map(|earlier| earlier.severity);
    }
    let found = section.finish();
    match event_type {
        Some(event_type) if found.is_empty() => Ok(CatalogueEntry {
            severity: severity
                .or_else(|| catalogue::default_severity(event_type.as_str()))
                .unwrap_or(catalogue::SEVERITY_DEFAULT),
            event_type,
            description,
            producers: Vec::new(),
            example: Payload::from(example),
            aliases: SortedMap::new(),
        }),
        _ => Err(found),
    }
}
