//! The event types that aside knows, each with a default severity and a sample payload.
//!
//! The catalogue is read once from `config/events.toml`, which is embedded in the binary and sorted
//! by type. It is open: a type that is not in it is equally valid and has [`SEVERITY_DEFAULT`].
//! Other modules decide whether an event may be published, and which consumers select it.
//!
//! ```
//! use aside_engine::event::{Severity, catalogue};
//!
//! assert_eq!(catalogue::default_severity("tool.call.failure"), Some(Severity::Error));
//! assert_eq!(catalogue::default_severity("shop.order.placed"), None);
//! ```

pub mod own;

use std::sync::LazyLock;

use serde::Deserialize;

use crate::{
    event::{EventType, Payload, Severity},
    sorted::SortedMap,
};

/// The severity of an event that has none and whose type is not in the catalogue.
pub const SEVERITY_DEFAULT: Severity = Severity::Info;

static TEXT: &str = include_str!("../../../../config/events.toml");
static CATALOGUE: LazyLock<Vec<CatalogueEntry>> = LazyLock::new(|| read(TEXT));

/// One event type that aside knows.
#[derive(Debug)]
pub struct CatalogueEntry {
    /// The type.
    pub event_type: EventType,
    /// The default severity of events of this type.
    pub severity: Severity,
    /// When it is published, in one sentence.
    pub description: String,
    /// The names of the parts of aside that publish it; empty if only other producers do.
    pub producers: Vec<String>,
    /// A sample payload, as producers send it.
    pub example: Payload,
    /// Alternative names that producers use for fields of the example, each mapped to the field's
    /// name.
    pub aliases: SortedMap<String, String>,
}

/// The whole catalogue, sorted by type.
pub fn types() -> impl Iterator<Item = &'static CatalogueEntry> {
    CATALOGUE.iter()
}

/// Finds the entry of a type.
pub fn find(event_type: &str) -> Option<&'static CatalogueEntry> {
    let found = CATALOGUE.binary_search_by(|entry| entry.event_type.as_str().cmp(event_type)).ok()?;
    CATALOGUE.get(found)
}

/// The catalogue's severity of a type; `None` if the type is not in the catalogue.
///
/// Does not allocate: it is called for each event without a severity.
pub fn default_severity(event_type: &str) -> Option<Severity> {
    find(event_type).map(|entry| entry.severity)
}

/// Default severities of types in a layer's `events.toml`; other types use the catalogue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnSeverities(SortedMap<Box<str>, Severity>);

impl OwnSeverities {
    /// Collects the severities of `entries`.
    pub fn new(entries: &[CatalogueEntry]) -> Self {
        Self(entries.iter().map(|entry| (entry.event_type.as_str().into(), entry.severity)).collect())
    }

    /// The severity of an event that has none: from the layers, else the catalogue, else
    /// [`SEVERITY_DEFAULT`].
    pub fn default_severity(&self, event_type: &str) -> Severity {
        let own = self.0.get(event_type).copied();
        own.or_else(|| default_severity(event_type)).unwrap_or(SEVERITY_DEFAULT)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCatalogue {
    event: Vec<RawEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    #[serde(rename = "type")]
    event_type: String,
    severity: String,
    description: String,
    producers: Vec<String>,
    example: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    aliases: SortedMap<String, String>,
}

/// Reads the embedded text. A test reads it too, so a binary with an invalid catalogue cannot be
/// released.
fn read(text: &str) -> Vec<CatalogueEntry> {
    let value: serde_json::Value = toml::from_str(text).expect("the embedded catalogue is valid TOML");
    let raw = RawCatalogue::deserialize(value).expect("the embedded catalogue has known keys");
    let entry = |raw: RawEntry| CatalogueEntry {
        event_type: raw.event_type.parse().expect("the embedded catalogue has valid types"),
        severity: raw.severity.parse().expect("the embedded catalogue has valid severities"),
        description: raw.description,
        producers: raw.producers,
        example: Payload::from(serde_json::Value::Object(raw.example)),
        aliases: raw.aliases,
    };
    raw.event.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_sorted_and_unique() {
        let types: Vec<&str> = types().map(|entry| entry.event_type.as_str()).collect();
        assert!(types.is_sorted_by(|left, right| left < right), "{types:?}");
    }

    #[test]
    fn each_catalogue_entry_has_description_and_example() {
        for entry in types() {
            assert_eq!(Payload::check(entry.example.as_str()), Ok(()), "{}", entry.event_type);
            assert!(entry.example.as_str() != "{}", "{}", entry.event_type);
            for (alias, field) in &entry.aliases {
                let example = entry.example.value();
                assert!(example.get(field).is_some(), "{}: `{alias}` means `{field}`", entry.event_type);
                assert!(example.get(alias).is_none(), "{}: `{alias}` is a field", entry.event_type);
            }
            let is_sentence = entry.description.ends_with('.')
                && entry.description.starts_with(|first: char| first.is_ascii_uppercase());
            assert!(is_sentence, "{}: {}", entry.event_type, entry.description);
        }
    }

    #[test]
    fn every_type_that_was_promised_is_there() {
        let promised = "
            tool.call.pending tool.call.success tool.call.failure tool.call.timeout tool.handle.stopped
            tool.handle.waiting tool.handle.failed budget.token.warning budget.token.exceeded
            budget.iteration.warning budget.iteration.exceeded budget.timeout.warning agent.turn.start
            agent.turn.end agent.loop.detected subagent.complete subagent.failed cli.event
            mcp.server.disconnected mcp.server.reconnected agent.session.start agent.session.end
            source.throttled subscriber.failed task.started task.completed task.failed fs.file.created
            fs.file.modified fs.file.deleted ide.diagnostics.changed timer.fired ci.check.started
            ci.check.passed ci.check.failed message.agent.sent reminder.due";
        let missing: Vec<&str> = promised.split_whitespace().filter(|name| find(name).is_none()).collect();
        assert_eq!(missing, Vec::<&str>::new());
    }

    #[test]
    fn promised_payload_fields_are_in_the_examples() {
        let budget = ["budget_type", "current", "limit", "percentage", "remaining"];
        let failure = ["tool_name", "error_type", "error_message", "retry_count", "call_id"];
        let cases = [
            ("agent.loop.detected", vec!["pattern", "repetitions", "window_seconds", "outcome"]),
            ("budget.token.warning", budget.to_vec()),
            ("budget.iteration.exceeded", budget.to_vec()),
            ("tool.call.failure", [&failure[..], &["subject", "args", "result"]].concat()),
        ];
        for (name, fields) in cases {
            let entry = find(name).expect("promised above");
            let example = entry.example.value().as_object().expect("an example is an object");
            assert!(example.keys().eq(&fields), "{name}: {example:?}");
        }
    }

    #[test]
    #[should_panic(expected = "valid severities")]
    fn a_broken_catalogue_is_not_taken() {
        read(
            "event = [{ type = 'a.b', severity = 'bad', description = 'X.', producers = [], example = {} }]",
        );
    }
}
