//! The JSON of an event, as it is shown, and the outcome of published events.

use std::{borrow::Cow, sync::Arc};

use engine::event::{EventRef, Seq, Severity, mask_value};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::api::wire::ErrorView;

/// Writes an event as the API's JSON, on one line.
///
/// Shape: the fields in the order of [`EventRef`], `seq` first if known; absent ones are omitted.
pub fn to_json(event: &EventRef<'_>, seq: Option<Seq>) -> String {
    // Line breaks in JSON text are only between tokens, where any blank is equivalent.
    let payload: Cow<'_, str> = match memchr::memchr2(b'\n', b'\r', event.payload.as_bytes()) {
        Some(_) => event.payload.replace(['\n', '\r'], " ").into(),
        None => event.payload.into(),
    };
    let wire = EventView {
        seq: seq.map(|seq| seq.0),
        id: event.id.into(),
        event_type: event.event_type.into(),
        source: event.source.into(),
        severity: event.severity,
        timestamp: event.timestamp.to_string(),
        payload: serde_json::from_str(&payload).expect("an EventRef holds a valid payload"),
        dedupe_key: event.dedupe_key.map(Into::into),
        session: event.session.map(Into::into),
        workspace: event.workspace.map(Into::into),
        cause: event.cause.map(Into::into),
        deliver_after: event.deliver_after.map(Into::into),
    };
    serde_json::to_string(&wire).expect("text and numbers always serialize")
}

/// Like [`to_json`], with the credentials of the payload masked, for screens.
pub fn to_masked_json(event: &EventRef<'_>, seq: Option<Seq>) -> String {
    let mut payload: Value = serde_json::from_str(event.payload).expect("an EventRef holds a valid payload");
    mask_value(&mut payload);
    to_json(&EventRef { payload: &payload.to_string(), ..*event }, seq)
}

/// An event; only `type` is required for publishing.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[cfg_attr(test, schema(as = Event))]
pub struct EventView<'a> {
    /// Its position in the journal; output only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(read_only))]
    pub seq: Option<u64>,
    /// Unique for its source; generated if absent.
    #[cfg_attr(test, schema(required = false))]
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    /// 2 to 8 dotted segments of letters, digits, `_` and `-`.
    #[serde(rename = "type", borrow)]
    pub event_type: Cow<'a, str>,
    /// The component it comes from; `api` if absent.
    #[cfg_attr(test, schema(required = false))]
    #[serde(borrow)]
    pub source: Cow<'a, str>,
    /// `debug`, `info`, `warning` (or `warn`), `error` or `critical`; the catalogue's default for
    /// the type if absent.
    #[cfg_attr(test, schema(required = false))]
    #[cfg_attr(test, schema(value_type = String))]
    pub severity: Severity,
    /// RFC 3339; the time of receipt if absent.
    #[cfg_attr(test, schema(required = false))]
    pub timestamp: String,
    /// A JSON object, nested at most 16 deep; empty if absent.
    #[cfg_attr(test, schema(required = false, value_type = Object))]
    #[serde(borrow)]
    pub payload: &'a RawValue,
    /// The producer's own deduplication key.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub dedupe_key: Option<Cow<'a, str>>,
    /// The session it is addressed to.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub session: Option<Cow<'a, str>>,
    /// The folder it concerns, absolute.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Cow<'a, str>>,
    /// Id of the causing event or notification.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cow<'a, str>>,
    /// What the delivery of its notifications waits for: a delay as in `[limits] deliver_after` of a
    /// subscriber, or up to 8 of them with ` or ` between them.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub deliver_after: Option<Cow<'a, str>>,
}

/// The header by which a publisher states the scope of events that name none.
pub const SCOPE_HEADER: &str = "aside-scope";
/// The value of [`SCOPE_HEADER`] for: a task of the session below whose client the publisher runs.
pub const SCOPE_OF_CALLER: &str = "caller";

/// The outcome of each event of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Results {
    /// In the order of the request.
    pub results: Vec<ResultView>,
    /// `sync` when published events survive a power failure, `interval` when they survive only a
    /// crash of the daemon; absent when nothing was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
}

/// How outcomes are answered: one by one, or as counts and the first refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ResultsKind {
    /// A [`ResultView`] for each event.
    Full,
    /// A [`Summary`].
    Summary,
}

/// The outcome of one event: published (with `seq` and `id`), or refused (with `error`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ResultView {
    /// Its position in the journal; a duplicate has the position of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Whether an event of the same source and id was published before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
    /// The session to which the daemon addressed it, because the publisher runs below its client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Arc<str>>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
}

/// Counted outcomes of the events of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Summary {
    /// Published and new.
    pub accepted: u64,
    /// Published before.
    pub duplicates: u64,
    /// Refused.
    pub refused: u64,
    /// The lowest position among the new ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// The highest position among the new ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// Why events were refused; the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<NumberedError>,
    /// `sync` when published events survive a power failure, `interval` when they survive only a
    /// crash of the daemon; absent when nothing was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
}

/// Why one event was refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NumberedError {
    /// Its line in the body, or its index in the array, from 1.
    pub number: u64,
    /// The error.
    pub error: ErrorView,
}

/// The answer to published events: one outcome each, or for many their counts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Published {
    /// One outcome each.
    Each(Results),
    /// Counts, and the first refusals.
    Counted(Summary),
}

#[cfg(test)]
mod tests {
    use engine::{
        draft::{Defaults, Draft},
        event::{Provenance, catalogue::OwnSeverities},
        request::FieldError,
    };
    use journal::time::Timestamp;

    use super::*;

    fn parse_text(text: &str) -> Result<Draft<'_>, FieldError> {
        static NONE: std::sync::LazyLock<OwnSeverities> = std::sync::LazyLock::new(OwnSeverities::default);
        let defaults = Defaults::api(Timestamp::from_millis(1_000), Provenance::Local, &NONE);
        Draft::read(text.as_bytes(), &defaults, &mut || "generated".to_owned())
    }

    #[test]
    fn full_event_is_printed_as_published() {
        let text = concat!(
            r#"{"id":"e1","type":"tool.call.failure","source":"tool_executor","severity":"error","#,
            r#""timestamp":"2026-11-21T12:00:00Z","payload":{"b":1,"a":[true,null,"\u00e4"]},"dedupe_key":"k","#,
            r#""session":"s1","workspace":"/home/u/project","cause":"e0"}"#
        );
        let parsed = parse_text(text).expect("valid");
        assert_eq!(to_json(&parsed.as_event(), None), text);
        assert_eq!(to_json(&parsed.as_event(), Some(Seq(7))), text.replacen('{', r#"{"seq":7,"#, 1));
    }

    #[test]
    fn event_is_printed_on_a_single_line() {
        let parsed = parse_text("{\"id\":\"e\",\"type\":\"a.b\",\r\n\"payload\":{\r\n\"k\":\"v\\n\"}}")
            .expect("valid");
        let shown = to_json(&parsed.as_event(), None);
        assert_eq!(
            shown,
            r#"{"id":"e","type":"a.b","source":"api","severity":"info","timestamp":"1970-01-01T00:00:01Z","payload":{  "k":"v\n"}}"#
        );
    }

    #[test]
    fn an_event_for_a_screen_has_no_credentials() {
        let parsed = parse_text(
            r#"{"id":"e","type":"a.b","payload":{"password":"hunter2","run":"mysql -phunter2 x","at":[{"token":"a1b2c3d4e5"}],"n":1.50}}"#,
        );
        let shown = to_masked_json(&parsed.expect("an event").as_event(), None);
        let payload = r#""payload":{"password":"[masked]","run":"mysql -p[masked] x","at":[{"token":"[masked]"}],"n":1.5}"#;
        assert!(shown.contains(payload), "{shown}");
    }
}
