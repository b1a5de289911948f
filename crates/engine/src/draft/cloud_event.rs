//! Converts CloudEvents 1.0 to events: structured and batch mode as JSON, binary mode as headers
//! and a body.
//!
//! `id`, `source`, `type` and `time` are the event's own; so are the extension attributes
//! `severity`, `session`, `workspace`, `cause`, `dedupekey` and `deliverafter`. A `data` object is the payload; other
//! data become `{"data": ...}`, non-text bytes `{"data_base64": ...}`. Bytes are JSON or text as their
//! content type says; without one they are JSON if they can be read as JSON. `subject` is added to the
//! payload, and so are the other extension attributes as the object `extensions`, unless the payload
//! has such a field. Of the specification's attributes `datacontenttype` and `dataschema` are
//! dropped, and so are the identifiers of traces, which would make equal events differ.
//!
//! Source: CloudEvents 1.0.2, its JSON format and its HTTP protocol binding.

use std::{borrow::Cow, collections::BTreeMap};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, value::RawValue};

use crate::{
    draft::{
        Defaults, Draft, check_payload, check_size, read_dedupe_key, read_delay, read_severity, read_source,
        read_timestamp, read_type,
    },
    event::{Provenance, codec::IdOrigin, cut_text},
    raw_json,
    request::{
        self, FieldError, Text, excerpt,
        names::{read_name, read_workspace},
    },
};

/// Most extension attributes in a payload; of more, the first ones by name.
const EXTENSIONS_MAX: usize = 32;
/// Longest name of an extension attribute, in bytes. Source: the specification advises 20.
const NAME_BYTES_MAX: usize = 64;
/// Most characters of an extension's value; a longer one is cut, with a mark.
const VALUE_CHARS_MAX: usize = 1_000;
/// The attributes that are no part of `extensions`: those of the specification, aside's own, and
/// those of traces.
const OTHERS: [&str; 18] = [
    "cause",
    "data",
    "data_base64",
    "datacontenttype",
    "dataschema",
    "dedupekey",
    "deliverafter",
    "id",
    "session",
    "severity",
    "source",
    "specversion",
    "subject",
    "time",
    "traceparent",
    "tracestate",
    "type",
    "workspace",
];

/// Extension attributes, by name.
type Extensions = BTreeMap<String, Value>;

/// The attributes with a meaning.
#[derive(Deserialize)]
struct Attributes<'a> {
    #[serde(borrow)]
    specversion: Option<Text<'a>>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    source: Option<Text<'a>>,
    #[serde(borrow, rename = "type")]
    event_type: Option<Text<'a>>,
    #[serde(borrow)]
    time: Option<Text<'a>>,
    #[serde(borrow)]
    subject: Option<Text<'a>>,
    #[serde(borrow, rename = "datacontenttype")]
    content_type: Option<Text<'a>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    data_base64: Option<Text<'a>>,
    #[serde(borrow)]
    severity: Option<Text<'a>>,
    #[serde(borrow)]
    session: Option<Text<'a>>,
    #[serde(borrow)]
    workspace: Option<Text<'a>>,
    #[serde(borrow)]
    cause: Option<Text<'a>>,
    #[serde(borrow, rename = "dedupekey")]
    dedupe_key: Option<Text<'a>>,
    #[serde(borrow, rename = "deliverafter")]
    deliver_after: Option<Text<'a>>,
}

/// Parses one CloudEvent in structured mode; in batch mode, one item of the array.
///
/// Errors: the first missing or invalid attribute.
pub(super) fn structured<'a>(body: &'a [u8], defaults: &Defaults<'_>) -> Result<Draft<'a>, FieldError> {
    check_size(body.len())?;
    let attributes: Attributes<'a> = request::read_body(body)?;
    let payload = match (attributes.data, &attributes.data_base64) {
        (Some(_), Some(_)) => {
            return Err(FieldError::new("data_base64", "is given together with `data`; only one is allowed"));
        }
        (Some(data), None) => payload_of_json(data.get()),
        (None, Some(encoded)) => {
            let bytes = BASE64_STANDARD
                .decode(&**encoded)
                .map_err(|_| FieldError::new("data_base64", "is not base64 (RFC 4648, with padding)"))?;
            let media = Media::read(attributes.content_type.as_deref());
            payload_of_bytes(&bytes, media)?.into_owned().into()
        }
        (None, None) => Cow::Borrowed("{}"),
    };
    let mut extensions = Extensions::new();
    // `read_body` has found the object.
    if let Some(object) = std::str::from_utf8(body).ok().and_then(|text| raw_json::json(text).ok()) {
        let take = |name: &str, value: &RawValue| {
            let is_scalar = !raw_json::is_object(value) && !raw_json::is_array(value);
            if is_scalar && is_extension(name) {
                extensions.insert(name.to_owned(), serde_json::from_str(value.get())?);
            }
            Ok(())
        };
        raw_json::each_entry(object, take).ok();
    }
    event(attributes, extensions, payload, defaults)
}

/// The headers of a CloudEvent in binary mode.
#[derive(Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    media: Media,
    /// The values of `ce-<attribute>`, by attribute.
    given: BTreeMap<&'a str, &'a [u8]>,
}

impl<'a> Headers<'a> {
    /// Keeps those with a meaning of `headers`, which are names in lower case and their values.
    pub fn of(headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut kept = Self { media: Media::Unstated, given: BTreeMap::new() };
        for (name, value) in headers {
            if name == "content-type" {
                kept.media = Media::read(std::str::from_utf8(value).ok());
            } else if let Some(name) = name.strip_prefix("ce-") {
                kept.given.insert(name, value);
            }
        }
        kept
    }
}

/// Parses one CloudEvent in binary mode.
///
/// Shape: the values of `headers` may be quoted and are percent-encoded; `body` is the data. Errors:
/// as [`structured`].
pub(super) fn binary<'a>(
    headers: &Headers<'a>,
    body: &'a [u8],
    defaults: &Defaults<'_>,
) -> Result<Draft<'a>, FieldError> {
    check_size(body.len())?;
    let Headers { media, given } = headers;
    let decode = |name: &str, value: &'a [u8]| {
        let text = std::str::from_utf8(value).ok().map(unquoted).and_then(percent_decoded);
        text.ok_or_else(|| FieldError::new(name.to_owned(), "is not percent-encoded UTF-8"))
    };
    let attribute = |name: &'static str| {
        given.get(name).map(|text| decode(name, text)).transpose().map(|text| text.map(Text))
    };
    let extensions = given.iter().filter(|(name, _)| is_extension(name));
    let extensions = extensions.map(|(name, text)| Ok(((*name).to_owned(), decode(name, text)?.into())));
    let extensions = extensions.collect::<Result<Extensions, FieldError>>()?;
    let payload = if body.is_empty() { Cow::Borrowed("{}") } else { payload_of_bytes(body, *media)? };
    let attributes = Attributes {
        specversion: attribute("specversion")?,
        id: attribute("id")?,
        source: attribute("source")?,
        event_type: attribute("type")?,
        time: attribute("time")?,
        subject: attribute("subject")?,
        content_type: None,
        data: None,
        data_base64: None,
        severity: attribute("severity")?,
        session: attribute("session")?,
        workspace: attribute("workspace")?,
        cause: attribute("cause")?,
        dedupe_key: attribute("dedupekey")?,
        deliver_after: attribute("deliverafter")?,
    };
    event(attributes, extensions, payload, defaults)
}

fn event<'a>(
    attributes: Attributes<'a>,
    extensions: Extensions,
    payload: Cow<'a, str>,
    defaults: &Defaults<'_>,
) -> Result<Draft<'a>, FieldError> {
    match attributes.specversion.as_deref() {
        Some("1.0") => {}
        Some(other) => {
            return Err(FieldError::new("specversion", format!("must be `1.0`, not `{}`", excerpt(other))));
        }
        None => return Err(missing("specversion")),
    }
    let event_type = attributes.event_type.ok_or_else(|| missing("type"))?.0;
    let severity = read_severity(
        attributes.severity.as_deref(),
        read_type(&event_type, defaults.provenance)?,
        defaults.severities,
    )?;
    let payload = match attributes.subject {
        None => payload,
        Some(subject) => with_field(payload, "subject", &Value::from(&*subject))?,
    };
    let payload = with_extensions(payload, extensions)?;
    check_size(payload.len())?;
    check_payload(&payload).map_err(|error| FieldError::new("data", error.message))?;
    Ok(Draft {
        id: read_name("id", attributes.id)?.ok_or_else(|| missing("id"))?,
        id_origin: IdOrigin::Producer,
        event_type,
        source: read_source(attributes.source, defaults.provenance)?.ok_or_else(|| missing("source"))?,
        // A CloudEvent may have passed through other systems, with any sender.
        provenance: Provenance::Remote,
        severity,
        timestamp: read_timestamp("time", attributes.time.as_deref(), defaults.now)?,
        payload,
        dedupe_key: read_dedupe_key("dedupekey", attributes.dedupe_key)?,
        session: read_name("session", attributes.session)?,
        workspace: read_workspace("workspace", attributes.workspace)?,
        cause: read_name("cause", attributes.cause)?,
        deliver_after: read_delay("deliverafter", attributes.deliver_after)?,
    })
}

fn missing(attribute: &'static str) -> FieldError {
    FieldError::new(attribute, "is missing")
}

fn payload_of_json(data: &str) -> Cow<'_, str> {
    if data.trim_start().starts_with('{') {
        Cow::Borrowed(data)
    } else {
        format!(r#"{{"data":{data}}}"#).into()
    }
}

/// What a content type says about bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Media {
    Json,
    /// Anything else, also if it can be read as JSON.
    Other,
    /// Nothing: it is absent, or one that clients send by default.
    Unstated,
}

impl Media {
    fn read(content_type: Option<&str>) -> Self {
        let Some(content_type) = content_type else { return Self::Unstated };
        let name = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match name.as_str() {
            "" | "application/octet-stream" | "application/x-www-form-urlencoded" => Self::Unstated,
            "application/json" | "text/json" => Self::Json,
            name if name.ends_with("+json") => Self::Json,
            _ => Self::Other,
        }
    }
}

/// Errors: they are not the JSON that their content type states.
fn payload_of_bytes(bytes: &[u8], media: Media) -> Result<Cow<'_, str>, FieldError> {
    let no_json = |error: &dyn std::fmt::Display| FieldError::new("data", format!("is not JSON: {error}"));
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if media == Media::Json => return Err(no_json(&error)),
        Err(_) => return Ok(format!(r#"{{"data_base64":"{}"}}"#, BASE64_STANDARD.encode(bytes)).into()),
    };
    if media != Media::Other {
        match serde_json::from_str::<&RawValue>(text) {
            Ok(json) => return Ok(payload_of_json(json.get())),
            Err(error) if media == Media::Json => return Err(no_json(&error)),
            Err(_) => {}
        }
    }
    Ok(format!(r#"{{"data":{}}}"#, Value::from(text)).into())
}

/// Whether an attribute belongs into `extensions`, by its name.
fn is_extension(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_valid) && !OTHERS.contains(&name)
}

fn with_extensions(payload: Cow<'_, str>, extensions: Extensions) -> Result<Cow<'_, str>, FieldError> {
    // A `null` is an absent attribute.
    let extensions = extensions.into_iter().filter(|(_, value)| !value.is_null());
    let bounded = extensions.take(EXTENSIONS_MAX).map(|(name, value)| {
        let cut = value.as_str().map(|text| Value::from(cut_text(text.into(), VALUE_CHARS_MAX)));
        (name, cut.unwrap_or(value))
    });
    let extensions: serde_json::Map<String, Value> = bounded.collect();
    if extensions.is_empty() { Ok(payload) } else { with_field(payload, "extensions", &extensions.into()) }
}

/// Adds a field after the payload's own keys, unless it is one of them.
fn with_field<'a>(payload: Cow<'a, str>, name: &str, value: &Value) -> Result<Cow<'a, str>, FieldError> {
    let own: BTreeMap<Cow<'_, str>, IgnoredAny> =
        request::read(&payload).map_err(|error| FieldError::new("data", error.message))?;
    // A `null` counts: a second key would replace it for some readers.
    if own.contains_key(name) {
        return Ok(payload);
    }
    let Some(open) = payload.trim_end().strip_suffix('}') else { return Ok(payload) };
    let comma = if open.trim() == "{" { "" } else { "," };
    Ok(format!(r#"{open}{comma}"{name}":{value}}}"#).into())
}

/// The content of a quoted string, which older versions of the specification send; any other text
/// as it is.
///
/// Source: RFC 9110, section 5.6.4.
fn unquoted(text: &str) -> Cow<'_, str> {
    let Some(inside) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return text.into();
    };
    let (mut plain, mut rest) = (String::with_capacity(inside.len()), inside.chars());
    while let Some(found) = rest.next() {
        match found {
            // Not one string.
            '"' => return text.into(),
            '\\' => plain.extend(rest.next()),
            _ => plain.push(found),
        }
    }
    plain.into()
}

/// Decodes percent-encoding; `None` if it is invalid or the result is not UTF-8.
fn percent_decoded(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let high = char::from(rest.next()?).to_digit(16)?;
        let low = char::from(rest.next()?).to_digit(16)?;
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use journal::time::Timestamp;

    use super::*;
    use crate::{draft::tests::to_json, event::catalogue::OwnSeverities};

    static NONE: LazyLock<OwnSeverities> = LazyLock::new(OwnSeverities::default);

    fn defaults() -> Defaults<'static> {
        Defaults::api(Timestamp::from_millis(1_000), Provenance::Local, &NONE)
    }

    fn shown(event: Result<Draft<'_>, FieldError>) -> String {
        event.map_or_else(|error| error.to_string(), |event| to_json(&event))
    }

    fn with(rest: &str) -> String {
        format!(r#"{{"specversion":"1.0","id":"1","source":"/s","type":"com.example.pushed"{rest}}}"#)
    }

    fn payload_of(rest: &str) -> String {
        let text = with(rest);
        structured(text.as_bytes(), &defaults())
            .map_or_else(|error| error.to_string(), |event| event.payload.into_owned())
    }

    #[test]
    fn attributes_and_extensions_become_the_event() {
        let text = concat!(
            r#"{"specversion":"1.0","id":"A234","source":"https://github.com/x/y","type":"com.github.pull_request.opened","#,
            r#""time":"2026-11-21T12:00:00+01:00","datacontenttype":"application/json","traceparent":"00-1","#,
            r#""severity":"warn","session":"s1","workspace":"/w","cause":"c0","dedupekey":"k","methodname":"x.delete","data":{"n":1}}"#
        );
        let expected = concat!(
            r#"{"id":"A234","type":"com.github.pull_request.opened","source":"https://github.com/x/y","severity":"warning","#,
            r#""timestamp":"2026-11-21T11:00:00Z","payload":{"n":1,"extensions":{"methodname":"x.delete"}},"dedupe_key":"k","session":"s1","workspace":"/w","cause":"c0"}"#
        );
        assert_eq!(shown(structured(text.as_bytes(), &defaults())), expected);
    }

    #[test]
    fn data_of_every_kind_becomes_an_object() {
        for (rest, expected) in [
            ("", "{}"),
            (r#","data":{"a":1}"#, r#"{"a":1}"#),
            (r#","data":[1,2]"#, r#"{"data":[1,2]}"#),
            (r#","data":"text""#, r#"{"data":"text"}"#),
            (r#","data":null"#, "{}"),
            (r#","data_base64":"eyJhIjoxfQ==""#, r#"{"a":1}"#),
            (r#","data_base64":"aGk=""#, r#"{"data":"hi"}"#),
            (r#","data_base64":"/w==""#, r#"{"data_base64":"/w=="}"#),
            (r#","datacontenttype":"image/png","data_base64":"MTIz""#, r#"{"data":"123"}"#),
            (r#","datacontenttype":"Application/X+JSON; v=1","data_base64":"MTIz""#, r#"{"data":123}"#),
            (
                r#","datacontenttype":"application/json","data_base64":"aGk=""#,
                "data: is not JSON: expected value at line 1 column 1",
            ),
            (r#","datacontenttype":"text/xml","data":"<a/>""#, r#"{"data":"<a/>"}"#),
            (r#","datacontenttype":null,"data":1"#, r#"{"data":1}"#),
            (r#","datacontenttype":7"#, "datacontenttype: must be a string, not a number"),
            (r#","subject":"pr/7""#, r#"{"subject":"pr/7"}"#),
            (r#","subject":"pr/7","data":{"a":1}"#, r#"{"a":1,"subject":"pr/7"}"#),
            (r#","subject":"pr/7","data":{"subject":"own"}"#, r#"{"subject":"own"}"#),
            (r#","subject":"pr/7","data":{"subject":null}"#, r#"{"subject":null}"#),
            (r#","subject":"pr/7","data":3"#, r#"{"data":3,"subject":"pr/7"}"#),
        ] {
            assert_eq!(payload_of(rest), expected, "{rest}");
        }
    }

    #[test]
    fn extension_attributes_are_fields_of_the_payload() {
        for (rest, expected) in [
            (
                r#","methodname":"storage.delete","data":{"a":1}"#,
                r#"{"a":1,"extensions":{"methodname":"storage.delete"}}"#,
            ),
            (
                r#","zone":"b","count":3,"dry":true,"data":[1]"#,
                r#"{"data":[1],"extensions":{"count":3,"dry":true,"zone":"b"}}"#,
            ),
            (r#","x":"1","subject":"s""#, r#"{"subject":"s","extensions":{"x":"1"}}"#),
            (r#","x":null,"traceparent":"00-1","tracestate":"a=1","dataschema":"/s""#, "{}"),
            (r#","x":{"a":1},"y":[1],"Upper":"1","under_score":"1""#, "{}"),
            (r#","x":"1","data":{"extensions":"own"}"#, r#"{"extensions":"own"}"#),
            (r#","x":"1","data":{"x":2}"#, r#"{"x":2,"extensions":{"x":"1"}}"#),
            (r#","x":"\"}],""#, r#"{"extensions":{"x":"\"}],"}}"#),
        ] {
            assert_eq!(payload_of(rest), expected, "{rest}");
        }
        let many: String =
            (10..90).map(|number| format!(r#","x{number}":"{}""#, "v".repeat(2_000))).collect();
        assert!(payload_of(&many).starts_with("an event has at most 65536 bytes"));
        let many: String = (10..90).map(|number| format!(r#","x{number}":"v""#)).collect();
        let payload: Value = serde_json::from_str(&payload_of(&many)).expect("JSON");
        let names: Vec<&str> =
            payload["extensions"].as_object().expect("there").keys().map(|name| &**name).collect();
        assert_eq!((names.len(), names.first(), names.last()), (EXTENSIONS_MAX, Some(&"x10"), Some(&"x41")));
        let payload: Value =
            serde_json::from_str(&payload_of(&format!(r#","x":"{}""#, "v".repeat(2_000)))).expect("JSON");
        let value = payload["extensions"]["x"].as_str().expect("text");
        assert!(value.ends_with("[+1000 chars]") && value.chars().count() < VALUE_CHARS_MAX + 20, "{value}");
    }

    #[test]
    fn bad_cloudevents_are_refused_with_the_attribute() {
        for (text, expected) in [
            (r#"{"id":"1"}"#.to_owned(), "specversion: is missing"),
            (r#"{"specversion":"0.3"}"#.to_owned(), "specversion: must be `1.0`, not `0.3`"),
            (r#"{"specversion":"1.0"}"#.to_owned(), "type: is missing"),
            (r#"{"specversion":"1.0","type":"a.b"}"#.to_owned(), "id: is missing"),
            (r#"{"specversion":"1.0","type":"a.b","id":"1"}"#.to_owned(), "source: is missing"),
            (
                r#"{"specversion":"1.0","type":"pushed"}"#.to_owned(),
                "type: an event type has 2 to 8 segments separated by dots, `pushed` has 1",
            ),
            (
                with(r#","time":"noon""#),
                "time: `noon` is not an RFC 3339 timestamp after 1970, such as 2026-11-21T12:00:00Z",
            ),
            (
                with(r#","data":1,"data_base64":"aGk=""#),
                "data_base64: is given together with `data`; only one is allowed",
            ),
            (with(r#","data_base64":"?""#), "data_base64: is not base64 (RFC 4648, with padding)"),
            (with(r#","data_base64":"aGk""#), "data_base64: is not base64 (RFC 4648, with padding)"),
            (
                with(&format!(r#","data":{}{}"#, "[".repeat(16), "]".repeat(16))),
                "data: is nested deeper than 16 levels",
            ),
            (with(r#","workspace":"w""#), "workspace: must be an absolute path, not `w`"),
        ] {
            assert_eq!(shown(structured(text.as_bytes(), &defaults())), expected, "{text}");
        }
    }

    fn of_headers(headers: &BTreeMap<&str, &str>, body: &[u8]) -> String {
        let headers = headers.iter().map(|(name, text)| (*name, text.as_bytes()));
        shown(binary(&Headers::of(headers), body, &defaults()))
    }

    #[test]
    fn binary_mode_reads_headers_and_data_body() {
        let mut headers: BTreeMap<&str, &str> = [
            ("ce-specversion", "1.0"),
            ("ce-id", "1"),
            ("ce-source", "/s"),
            ("ce-type", "com.example.pushed"),
            ("ce-session", "caf%C3%A9"),
            ("content-type", "application/json"),
        ]
        .into();
        let expected = |payload: &str| {
            format!(
                r#"{{"id":"1","type":"com.example.pushed","source":"/s","severity":"info","timestamp":"1970-01-01T00:00:01Z","payload":{payload},"session":"caf{}"}}"#,
                '\u{e9}'
            )
        };
        for (body, payload) in [(&b"{\"a\":1}"[..], r#"{"a":1}"#), (b"", "{}")] {
            assert_eq!(of_headers(&headers, body), expected(payload));
        }
        let wrong = "data: is not JSON: expected value at line 1 column 1";
        assert_eq!(of_headers(&headers, b"plain"), wrong);
        for (media, body, payload) in [
            ("application/octet-stream", &b"plain \"text\""[..], r#"{"data":"plain \"text\""}"#),
            ("application/octet-stream", b"\xff\xfe", r#"{"data_base64":"//4="}"#),
            ("application/octet-stream", b"{\"a\":1}", r#"{"a":1}"#),
            ("text/plain; charset=utf-8", b"123", r#"{"data":"123"}"#),
            ("application/xml", b"<a/>", r#"{"data":"<a/>"}"#),
        ] {
            headers.insert("content-type", media);
            assert_eq!(of_headers(&headers, body), expected(payload), "{media}");
        }
        headers.insert("content-type", "application/json");
        headers.extend([("ce-methodname", "x%20y"), ("ce-traceparent", "00-1"), ("ce-bad_name", "1")]);
        assert_eq!(
            of_headers(&headers, br#"{"a":1}"#),
            expected(r#"{"a":1,"extensions":{"methodname":"x y"}}"#)
        );
        for (text, read) in [
            (r#""x \"y\\z\" %41""#, r#"x \"y\\z\" A"#),
            (r#"a "b""#, r#"a \"b\""#),
            (r#""a" "b""#, r#"\"a\" \"b\""#),
            ("caf\u{e9}", "caf\u{e9}"),
        ] {
            headers.insert("ce-methodname", text);
            let payload = format!(r#"{{"a":1,"extensions":{{"methodname":"{read}"}}}}"#);
            assert_eq!(of_headers(&headers, br#"{"a":1}"#), expected(&payload), "{text}");
        }
        for (name, text, expected) in [
            ("ce-methodname", "%zz", "methodname: is not percent-encoded UTF-8"),
            ("ce-specversion", "%zz", "specversion: is not percent-encoded UTF-8"),
        ] {
            assert_eq!(of_headers(&[(name, text)].into(), b""), expected);
        }
        assert_eq!(of_headers(&BTreeMap::new(), b""), "specversion: is missing");
        let wide = [("ce-session", &b"caf\xe9"[..])].into_iter();
        let error = shown(binary(&Headers::of(wide), b"", &defaults()));
        assert_eq!(error, "session: is not percent-encoded UTF-8");
    }
}
