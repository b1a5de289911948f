//! Drafts: events as published, before they have a position in the journal.
//!
//! Shape of the JSON: `id`, `type`, `source`, `severity`, `timestamp`, `payload`, `dedupe_key`,
//! `session`, `workspace`, `cause`, `deliver_after`; only `type` is required. The producer's text is borrowed and the
//! payload stays unparsed, so that an event without subscribers is read once and never rebuilt. An
//! unknown field is refused, because it is usually a misspelt one.
//!
//! A body passes through here once, from its bytes to the records of a batch: [`Drafts`] splits what
//! was read whole, [`LineSplitter`] what still arrives; each yields drafts, and an [`Intake`] encodes
//! them and keeps what their answer needs.

mod body;
mod cloud_event;
mod intake;

use std::{borrow::Cow, collections::BTreeMap};

use journal::time::Timestamp;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

pub use self::{
    body::{BodyError, BodyKind, Drafts, LineSplitter, NumberedDraft, read_any},
    cloud_event::Headers,
    intake::{CallerFacts, CallerNeeded, Counts, Intake, TakenBatch, Verdict, Verdicts},
};
use crate::{
    event::{
        EVENT_BYTES_MAX, EventRef, EventType, NESTING_MAX, OWN_SOURCE, Payload, PayloadError, Provenance,
        Severity, catalogue, catalogue::OwnSeverities, codec::IdOrigin,
    },
    hold::{DELAY_FORMS, EventDelay, WAITS_MAX},
    nearest::nearest,
    request::{
        self, FieldError, Text,
        names::{NAME_BYTES_MAX, check_printable, read_name, read_workspace},
    },
};

/// Longest dedupe key, in bytes; twice a name, because keys are often joined names.
pub const DEDUPE_KEY_BYTES_MAX: usize = 512;
/// The source of an event from a client that names none.
pub const SOURCE_DEFAULT: &str = "api";

/// Defaults for absent fields of an event.
#[derive(Debug, Clone, Copy)]
pub struct Defaults<'a> {
    /// The source.
    pub source: &'a str,
    /// The session of an event without a session and folder.
    pub session: Option<&'a str>,
    /// When the event arrived.
    pub now: Timestamp,
    /// How it arrived; an event cannot set this itself.
    pub provenance: Provenance,
    /// The severities of types that layers define.
    pub severities: &'a OwnSeverities,
}

impl<'a> Defaults<'a> {
    /// The API's defaults: its own name as the source, and no session.
    pub const fn api(now: Timestamp, provenance: Provenance, severities: &'a OwnSeverities) -> Self {
        Self { source: SOURCE_DEFAULT, session: None, now, provenance, severities }
    }
}

/// A valid event; most of it is borrowed from the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft<'a> {
    id: Cow<'a, str>,
    id_origin: IdOrigin,
    event_type: Cow<'a, str>,
    source: Cow<'a, str>,
    provenance: Provenance,
    severity: Severity,
    timestamp: Timestamp,
    payload: Cow<'a, str>,
    dedupe_key: Option<Cow<'a, str>>,
    session: Option<Cow<'a, str>>,
    workspace: Option<Cow<'a, str>>,
    cause: Option<Cow<'a, str>>,
    deliver_after: Option<Cow<'a, str>>,
}

impl<'a> Draft<'a> {
    /// Reads one event.
    ///
    /// Shape: `line` is one JSON object. `new_id` creates an id if the event has none. Errors: the
    /// first violated rule, with the field; such an event is refused whole.
    pub fn read(
        line: &'a [u8],
        defaults: &Defaults<'a>,
        new_id: &mut dyn FnMut() -> String,
    ) -> Result<Self, FieldError> {
        check_size(line.len())?;
        let body: EventBody<'a> =
            request::read_body(line).map_err(|error| bare_payload(line).unwrap_or(error))?;
        let event_type = body.event_type.0;
        let type_text = read_type(&event_type, defaults.provenance)?;
        let severity = read_severity(body.severity.as_deref(), type_text, defaults.severities)?;
        let timestamp = read_timestamp("timestamp", body.timestamp.as_deref(), defaults.now)?;
        let source = read_source(body.source, defaults.provenance)?.unwrap_or(Cow::Borrowed(defaults.source));
        let session = read_name("session", body.session)?;
        let workspace = read_workspace("workspace", body.workspace)?;
        let is_addressed = session.is_some() || workspace.is_some();
        let (id, id_origin) = match read_name("id", body.id)? {
            Some(id) => (id, IdOrigin::Producer),
            None => (new_id().into(), IdOrigin::Daemon),
        };
        Ok(Self {
            id,
            id_origin,
            event_type,
            source,
            provenance: defaults.provenance,
            severity,
            timestamp,
            payload: read_payload(body.payload)?,
            dedupe_key: read_dedupe_key("dedupe_key", body.dedupe_key)?,
            session: if is_addressed { session } else { defaults.session.map(Cow::Borrowed) },
            workspace,
            cause: read_name("cause", body.cause)?,
            deliver_after: read_delay("deliver_after", body.deliver_after)?,
        })
    }

    /// Addresses it to a session.
    pub fn address_to(&mut self, session: &str) {
        self.session = Some(Cow::Owned(session.to_owned()));
    }

    /// Sets its source.
    pub fn set_source(&mut self, source: &str) {
        self.source = Cow::Owned(source.to_owned());
    }

    /// Borrows its parts.
    pub fn as_event(&self) -> EventRef<'_> {
        EventRef {
            id: &self.id,
            event_type: &self.event_type,
            source: &self.source,
            provenance: self.provenance,
            severity: self.severity,
            timestamp: self.timestamp,
            payload: &self.payload,
            dedupe_key: self.dedupe_key.as_deref(),
            session: self.session.as_deref(),
            workspace: self.workspace.as_deref(),
            cause: self.cause.as_deref(),
            deliver_after: self.deliver_after.as_deref(),
        }
    }
}

/// An event as published.
///
/// Reading it takes 3,160 instructions for a short event and 6,300 for one with every field.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventBody<'a> {
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow, rename = "type")]
    event_type: Text<'a>,
    #[serde(borrow)]
    source: Option<Text<'a>>,
    #[serde(borrow)]
    severity: Option<Text<'a>>,
    #[serde(borrow)]
    timestamp: Option<Text<'a>>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    #[serde(borrow)]
    dedupe_key: Option<Text<'a>>,
    #[serde(borrow)]
    session: Option<Text<'a>>,
    #[serde(borrow)]
    workspace: Option<Text<'a>>,
    #[serde(borrow)]
    cause: Option<Text<'a>>,
    #[serde(borrow)]
    deliver_after: Option<Text<'a>>,
}

/// Validates the delay that an event has for itself.
///
/// Errors: it is no delay.
fn read_delay<'a>(field: &'static str, text: Option<Text<'a>>) -> Result<Option<Cow<'a, str>>, FieldError> {
    let Some(Text(text)) = text else { return Ok(None) };
    match text.parse::<EventDelay>() {
        Ok(_) => Ok(Some(text)),
        Err(error) => {
            let error = excerpt_words(&error);
            let forms =
                format!("{error}; use {DELAY_FORMS}, or up to {WAITS_MAX} of them with ` or ` between them");
            Err(FieldError::new(field, forms))
        }
    }
}

/// Refuses an event of more than [`EVENT_BYTES_MAX`] bytes.
pub fn check_size(bytes: usize) -> Result<(), FieldError> {
    if bytes > EVENT_BYTES_MAX {
        let message = format!("an event has at most {EVENT_BYTES_MAX} bytes of JSON, this one has {bytes}");
        return Err(FieldError::whole(message));
    }
    Ok(())
}

/// The error of an object that has fields, and neither `type` nor `payload` nor a misspelt one: it is
/// probably a payload alone.
fn bare_payload(line: &[u8]) -> Option<FieldError> {
    let fields: BTreeMap<String, IgnoredAny> = serde_json::from_slice(line).ok()?;
    let is_of_event = |name: &String| nearest(name, ["type", "payload"]).is_some();
    let is_payload = !fields.is_empty() && !fields.keys().any(is_of_event);
    let message = r#"is missing; an event is { "type": "a.b", "payload": { .. } }"#;
    is_payload.then(|| FieldError::new("type", message))
}

/// Validates an event type and returns it.
///
/// Errors: it is no type, or one that only aside makes, of another producer.
fn read_type(text: &str, provenance: Provenance) -> Result<&str, FieldError> {
    EventType::check(text).map_err(|error| FieldError::new("type", excerpt_words(&error)))?;
    match catalogue::reserved(text).filter(|_| provenance != Provenance::Own) {
        None => Ok(text),
        Some(message) => Err(FieldError::new("type", message)),
    }
}

/// Validates the source of an event.
///
/// Errors: it is no name, or aside's own, of another producer.
fn read_source(text: Option<Text<'_>>, provenance: Provenance) -> Result<Option<Cow<'_, str>>, FieldError> {
    let source = read_name("source", text)?;
    if source.as_deref() == Some(OWN_SOURCE) && provenance != Provenance::Own {
        let message = format!("`{OWN_SOURCE}` is reserved for events that aside makes itself");
        return Err(FieldError::new("source", message));
    }
    Ok(source)
}

// A type error contains the type, which may be as long as an event.
fn excerpt_words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    if let Some((end, _)) = text.char_indices().nth(2 * NAME_BYTES_MAX) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// The given severity, else the default of the type.
fn read_severity(
    said: Option<&str>,
    event_type: &str,
    severities: &OwnSeverities,
) -> Result<Severity, FieldError> {
    said.map_or_else(
        || Ok(severities.default_severity(event_type)),
        |word| {
            word.parse()
                .map_err(|error: crate::event::SeverityError| FieldError::new("severity", error.to_string()))
        },
    )
}

/// The given time, else `now`.
fn read_timestamp(field: &'static str, said: Option<&str>, now: Timestamp) -> Result<Timestamp, FieldError> {
    said.map_or(Ok(now), |text| {
        text.parse().map_err(|error: journal::time::TimestampError| FieldError::new(field, error.to_string()))
    })
}

/// Validates a dedupe key; an empty one means none.
fn read_dedupe_key<'a>(
    field: &'static str,
    text: Option<impl Into<Cow<'a, str>>>,
) -> Result<Option<Cow<'a, str>>, FieldError> {
    let Some(text) = text.map(Into::into).filter(|text| !text.is_empty()) else { return Ok(None) };
    check_printable(field, &text, DEDUPE_KEY_BYTES_MAX)?;
    Ok(Some(text))
}

/// Validates the payload of an event; an absent one is empty.
fn read_payload(raw: Option<&RawValue>) -> Result<Cow<'_, str>, FieldError> {
    let Some(raw) = raw else { return Ok(Cow::Borrowed("{}")) };
    Payload::check_raw(raw).map_err(|error| payload_error(&error))?;
    Ok(Cow::Borrowed(raw.get()))
}

/// Refuses an invalid payload.
fn check_payload(text: &str) -> Result<(), FieldError> {
    Payload::check(text).map_err(|error| payload_error(&error))
}

fn payload_error(error: &PayloadError) -> FieldError {
    let message = match error {
        PayloadError::Syntax(detail) => format!("is not JSON: {detail}"),
        PayloadError::NotAnObject(kind) => format!("must be a JSON object, not {kind}"),
        PayloadError::TooDeep => format!("is nested deeper than {} levels", NESTING_MAX),
    };
    FieldError::new("payload", message)
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::LazyLock;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);
    static NONE: LazyLock<OwnSeverities> = LazyLock::new(OwnSeverities::default);

    /// The event of a draft as JSON.
    pub(in crate::draft) fn to_json(draft: &Draft<'_>) -> String {
        let event = draft.as_event();
        let payload: &RawValue = serde_json::from_str(event.payload).expect("valid");
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let fields = [
            ("id", Some(text(event.id))),
            ("type", Some(text(event.event_type))),
            ("source", Some(text(event.source))),
            ("severity", Some(text(event.severity.as_str()))),
            ("timestamp", Some(text(&event.timestamp.to_string()))),
            ("payload", Some(payload.get().to_owned())),
            ("dedupe_key", event.dedupe_key.map(text)),
            ("session", event.session.map(text)),
            ("workspace", event.workspace.map(text)),
            ("cause", event.cause.map(text)),
        ];
        let fields = fields.into_iter().filter_map(|(name, value)| Some(format!("\"{name}\":{}", value?)));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    }

    fn parse_text(text: &str) -> Result<Draft<'_>, FieldError> {
        Draft::read(text.as_bytes(), &Defaults::api(NOW, Provenance::Local, &NONE), &mut || {
            "generated".to_owned()
        })
    }

    #[test]
    fn missing_event_fields_get_defaults() {
        let parsed = parse_text(r#"{"type":"made.up"}"#).expect("valid");
        let expected = EventRef {
            id: "generated",
            event_type: "made.up",
            source: "api",
            provenance: Provenance::Local,
            severity: Severity::Info,
            timestamp: NOW,
            payload: "{}",
            dedupe_key: None,
            session: None,
            workspace: None,
            cause: None,
            deliver_after: None,
        };
        assert_eq!(parsed.as_event(), expected);
    }

    #[test]
    fn full_event_is_borrowed_and_round_trips() {
        let text = concat!(
            r#"{"id":"e1","type":"tool.call.failure","source":"tool_executor","severity":"error","#,
            r#""timestamp":"2026-11-21T12:00:00Z","payload":{"b":1,"a":[true,null,"\u00e4"]},"dedupe_key":"k","#,
            r#""session":"s1","workspace":"/home/u/project","cause":"e0"}"#
        );
        let parsed = parse_text(text).expect("valid");
        assert!(matches!(
            (&parsed.id, &parsed.payload, &parsed.workspace),
            (Cow::Borrowed(_), Cow::Borrowed(_), Some(Cow::Borrowed(_)))
        ));
        assert_eq!(to_json(&parsed), text);
    }

    #[test]
    fn default_session_applies_to_unaddressed_events_only() {
        let none = OwnSeverities::default();
        let api = Defaults::api(NOW, Provenance::Local, &none);
        let defaults = Defaults { source: "harness", session: Some("s1"), ..api };
        let session_of = |text: &'static str| {
            let parsed = Draft::read(text.as_bytes(), &defaults, &mut String::new).expect("valid");
            parsed.session.map(Cow::into_owned)
        };
        assert_eq!(session_of(r#"{"id":"1","type":"a.b"}"#).as_deref(), Some("s1"));
        assert_eq!(session_of(r#"{"id":"1","type":"a.b","session":"s2"}"#).as_deref(), Some("s2"));
        assert_eq!(session_of(r#"{"id":"1","type":"a.b","workspace":"/w"}"#), None);
    }

    #[test]
    fn invalid_event_error_names_field_and_reason() {
        let long_name = format!(r#"{{"type":"a.b","id":"{}"}}"#, "x".repeat(257));
        let long_key = format!(r#"{{"type":"a.b","dedupe_key":"{}"}}"#, "x".repeat(513));
        let deep = format!(r#"{{"type":"a.b","payload":{}1{}}}"#, r#"{"a":"#.repeat(17), "}".repeat(17));
        for (text, expected) in [
            ("nonsense", "is not JSON: expected ident at line 1 column 2"),
            ("[]", "must be a JSON object, not an array"),
            (r#"{"type":"a.b""#, "is not JSON: EOF while parsing an object at line 1 column 13"),
            ("{}", "type: is missing"),
            (r#"{"type":null}"#, "type: is missing"),
            (r#"{"type":7}"#, "type: must be a string, not a number"),
            (r#"{"type":"tool"}"#, "type: an event type has 2 to 8 segments separated by dots, `tool` has 1"),
            (
                r#"{"type":"a.b","severity":"fatal"}"#,
                "severity: `fatal` is not a severity; use debug, info, warning (or warn), error or critical",
            ),
            (r#"{"type":"a.b","severty":"error"}"#, "severty: unknown field; did you mean `severity`?"),
            (
                r#"{"type":"a.b","color":"red"}"#,
                "color: unknown field; use one of id, type, source, severity, timestamp, payload, dedupe_key, session, workspace, cause, deliver_after",
            ),
            (
                r#"{"service":"web","ok":false}"#,
                r#"type: is missing; an event is { "type": "a.b", "payload": { .. } }"#,
            ),
            (r#"{"tpye":"a.b"}"#, "tpye: unknown field; did you mean `type`?"),
            (
                r#"{"type":"a.b","timestamp":"yesterday"}"#,
                "timestamp: `yesterday` is not an RFC 3339 timestamp after 1970, such as 2026-11-21T12:00:00Z",
            ),
            (r#"{"type":"a.b","timestamp":1700000000}"#, "timestamp: must be a string, not a number"),
            (r#"{"type":"a.b","payload":[1]}"#, "payload: must be a JSON object, not an array"),
            (r#"{"type":"a.b","payload":"x"}"#, "payload: must be a JSON object, not a string"),
            (&deep, "payload: is nested deeper than 16 levels"),
            (r#"{"type":"a.b","type":"a.c"}"#, "type: is given twice"),
            (r#"{"type":"a.b","id":""}"#, "id: must not be empty"),
            (&long_name, "id: has 257 bytes, at most 256 are allowed"),
            (&long_key, "dedupe_key: has 513 bytes, at most 512 are allowed"),
            (
                r#"{"type":"a.b","source":"a\nb"}"#,
                "source: must be made of printable characters: no line breaks, control or invisible ones",
            ),
            (
                r#"{"type":"a.b","session":"a\u202eb"}"#,
                "session: must be made of printable characters: no line breaks, control or invisible ones",
            ),
            (r#"{"type":"a.b","workspace":"project"}"#, "workspace: must be an absolute path, not `project`"),
            (
                r#"{"type":"a.b","workspace":"/a/../b"}"#,
                "workspace: must be a path without `..`, not `/a/../b`",
            ),
            (r#"{"type":"a.b","id":"\ud800"}"#, "id: is not text: unexpected end of hex escape"),
        ] {
            assert_eq!(parse_text(text).expect_err(text).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn payloads_that_no_reader_could_build_are_refused() {
        for (payload, expected) in
            [(r#"{"a":"\ud800"}"#, "unexpected end of hex escape"), (r#"{"a":1e999}"#, "number out of range")]
        {
            let text = format!(r#"{{"type":"a.b","payload":{payload}}}"#);
            let error = parse_text(&text).expect_err(payload);
            assert_eq!(error.field.as_deref(), Some("payload"));
            assert!(error.message.contains(expected), "{error}");
        }
    }

    #[test]
    fn event_over_the_size_limit_is_refused() {
        let sized = |bytes: usize| {
            let shell = r#"{"type":"a.b","payload":{"a":""}}"#;
            let filling = "x".repeat(bytes - shell.len());
            shell.replace(r#""""#, &format!("\"{filling}\""))
        };
        assert!(parse_text(&sized(EVENT_BYTES_MAX)).is_ok());
        assert_eq!(
            parse_text(&sized(1_000_000)).expect_err("too large").to_string(),
            "an event has at most 65536 bytes of JSON, this one has 1000000"
        );
        assert!(
            Draft::read(
                b"{\"type\":\"a.b\xff\"}",
                &Defaults::api(NOW, Provenance::Local, &OwnSeverities::default()),
                &mut String::new
            )
            .is_err()
        );
    }

    #[test]
    fn workspace_is_normalized_and_empty_key_ignored() {
        let parsed = parse_text(r#"{"type":"a.b","workspace":"/a/","dedupe_key":""}"#).expect("valid");
        assert_eq!((parsed.workspace.as_deref(), parsed.dedupe_key), (Some("/a"), None));
    }
}
