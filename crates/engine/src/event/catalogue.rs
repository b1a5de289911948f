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
//!
//! Requests and configurations cannot name the types that only aside makes. Such an event moves
//! aside's own state, or reports it: the end of a watch, the answer to a question, a failed
//! subscriber. This table is the only list of them. Every entry point of events from outside asks
//! [`maker_of`], and the folds over these events accept
//! [`Provenance::Own`](crate::event::Provenance::Own) only.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::{
    event::{EventRef, EventType, Payload, Severity},
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

/// Types of the events for the end of a push's checks. Their payload has a `summary`, and the
/// `branch`.
const CHECKS_ENDED: [&str; 3] = ["ci.run.completed", "ci.run.failed", "ci.follow.ended"];

/// Whether the event is the end of a push's checks.
pub fn ends_checks(event: &EventRef<'_>) -> bool {
    event.is_own() && CHECKS_ENDED.contains(&event.event_type)
}

/// A type, or a group of types, that only aside makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnType {
    /// A type; with a final `**`, every type below it.
    pub pattern: &'static str,
    /// The part of aside that makes it, as a subject of a sentence.
    pub maker: &'static str,
}

const fn own(pattern: &'static str, maker: &'static str) -> OwnType {
    OwnType { pattern, maker }
}

/// Every reserved type, sorted by pattern.
pub const OWN_TYPES: [OwnType; 24] = [
    own("agent.pause.ended", "the probe `time`"),
    own("agent.session.**", "the adapter of a harness"),
    own("ci.answered", "the source `ci`"),
    own("ci.follow.ended", "the source `ci`"),
    own("ci.followed", "the source `ci`"),
    own("config.reload.**", "a reload"),
    own("probe.noted", "a probe"),
    own("reminder.due", "a watch (`POST /v1/watches`)"),
    own("session.limit.reached", "the daemon"),
    own("silence.ended", "the end of a silence"),
    own("sink.failed", "a sink"),
    own("sink.sent", "a sink"),
    own("sink.waits", "a sink"),
    own("source.**", "the daemon"),
    own("subscriber.**", "the daemon"),
    own("user.answer", "`POST /v1/questions/ID`"),
    own("user.answer.**", "`POST /v1/questions/ID/taken`"),
    own("user.answered", "the end of a question"),
    own("user.answered.**", "the end of a question"),
    own("user.notice", "`POST /v1/notify`"),
    own("user.notice.**", "`POST /v1/notify`"),
    own("user.question", "`POST /v1/questions`"),
    own("user.question.**", "the end of a question"),
    own("watch.**", "a watch (`POST /v1/watches`)"),
];

impl OwnType {
    /// Whether the pattern matches `event_type`.
    pub fn matches(&self, event_type: &str) -> bool {
        match self.pattern.strip_suffix("**") {
            Some(above) => event_type.starts_with(above),
            None => event_type == self.pattern,
        }
    }
}

/// A bit for each letter that begins a pattern, the lowest for `a`.
const FIRST_LETTERS: u32 = first_letters(&OWN_TYPES);

const fn first_letters(types: &[OwnType]) -> u32 {
    match types {
        [first, others @ ..] => letter(first.pattern) | first_letters(others),
        [] => 0,
    }
}

/// The bit of the first letter of a type; none for another character.
const fn letter(event_type: &str) -> u32 {
    match event_type.as_bytes() {
        [first @ b'a'..=b'z', ..] => 1 << (*first - b'a'),
        _ => 0,
    }
}

/// The part of aside that makes events of this type; `None` if other producers may.
///
/// Neither allocates nor searches for most types: it is called for each published event.
pub fn maker_of(event_type: &str) -> Option<&'static str> {
    if FIRST_LETTERS & letter(event_type) == 0 {
        return None;
    }
    OWN_TYPES.iter().find(|own| own.matches(event_type)).map(|own| own.maker)
}

/// The error for a type that only aside makes; `None` if other producers may make it.
pub fn reserved(event_type: &str) -> Option<String> {
    maker_of(event_type).map(|maker| format!("`{event_type}` is reserved: only {maker} makes it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventType, catalogue};

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

    #[test]
    fn table_is_sorted_and_each_row_has_events() {
        assert!(OWN_TYPES.is_sorted_by(|one, other| one.pattern < other.pattern), "{OWN_TYPES:?}");
        for own in OWN_TYPES {
            let bare = own.pattern.trim_end_matches(".**");
            let is_known = catalogue::types().any(|entry| entry.event_type.as_str().starts_with(bare));
            assert!(is_known && !own.maker.is_empty(), "{}", own.pattern);
        }
    }

    #[test]
    fn a_pattern_matches_itself_or_what_is_below() {
        for (event_type, is_own) in [
            ("watch.met", true),
            ("watch.a.b", true),
            ("watches.met", false),
            ("user.answer", true),
            ("user.answer.taken", true),
            ("user.answers", false),
            ("user.command.ended", false),
            ("agent.session.end", true),
            ("agent.turn.end", false),
            ("config.changed", false),
            ("config.reload", false),
            ("config.reload.completed", true),
            ("ci.run.completed", false),
            ("reminder.due", true),
        ] {
            assert!(EventType::check(event_type).is_ok());
            assert_eq!(maker_of(event_type).is_some(), is_own, "{event_type}");
        }
    }

    /// Types that only the daemon makes today, but which move none of its state: reports about the
    /// machine or the agent that any producer may make.
    const OPEN: &str = "
        agent.loop.detected api.rate_limit.reset api.rate_limit.warning budget.iteration.exceeded
        budget.iteration.reset budget.iteration.warning
        budget.timeout.reset budget.timeout.warning budget.token.reset budget.token.warning
        disk.space.low disk.space.ok
        fs.file.created fs.file.deleted fs.file.modified fs.file.renamed fs.known.deleted
        fs.known.folder_deleted fs.known.modified fs.known.renamed fs.known.restored fs.write.held git.head.moved
        git.operation.ended git.operation.started git.stash.changed log.line.matched
        mcp.server.disconnected mcp.server.reconnected mcp.server.responsive mcp.server.unresponsive
        session.other.present timer.fired tool.handle.stopped tool.handle.waiting tool.port.closed tool.port.opened";
    /// Producers outside the daemon, or for a client outside of it.
    const OUTSIDE: [&str; 4] = ["claude-code", "run", "shell", "webhooks"];

    #[test]
    fn each_type_of_daemon_is_reserved_or_open() {
        let open: Vec<&str> = OPEN.split_whitespace().collect();
        for entry in catalogue::types() {
            let mut makers = entry.producers.iter().map(String::as_str);
            let is_of_daemon = !entry.producers.is_empty() && makers.all(|maker| !OUTSIDE.contains(&maker));
            let event_type = entry.event_type.as_str();
            if is_of_daemon {
                assert!(open.contains(&event_type) != maker_of(event_type).is_some(), "{event_type}");
            }
        }
    }
}
