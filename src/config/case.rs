//! `[[tests]]` of a subscriber: a timeline of events, and the expected outcome.
//!
//! They are read here, kept with the subscriber, and run in simulated time. Units: every time
//! counts from the beginning of the test.

use std::{sync::Arc, time::Duration};

use engine::{
    event::{EventType, Severity},
    sorted::SortedSet,
};
use serde_json::{Map, Value as Json, json};
use toml::de::DeValue;

use crate::config::{
    raw::{Document, Parsed, Section, Value},
    report::{Diagnostic, Place, shown},
    values,
};

/// Latest time in a test: longer than any window; a later one is probably a typing mistake.
const TEST_TIME_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The fields of a notice that a test can compare.
const NOTICE_FIELDS: [&str; 4] = ["message", "level", "category", "link"];

/// One test of a subscriber.
#[derive(Debug, Clone, PartialEq)]
pub struct SubscriberTest {
    /// Its name; unique in its file.
    pub name: String,
    /// The events, in order.
    pub at: Vec<TestEvent>,
    /// Every expected notification, in order; empty if none is expected.
    pub expect: Vec<Expectation>,
    /// The position of its name.
    pub place: Place,
}

/// An event of a test.
#[derive(Debug, Clone, PartialEq)]
pub struct TestEvent {
    /// When it is published.
    pub at: Duration,
    /// The type of the event.
    pub event_type: EventType,
    /// Its payload, a JSON object.
    pub payload: Json,
    /// Its severity; the catalogue's if `None`.
    pub severity: Option<Severity>,
    /// The component it comes from, if the test has one.
    pub source: Option<Arc<str>>,
    /// The producer's own dedupe key.
    pub dedupe_key: Option<Arc<str>>,
    /// The position of its type.
    pub place: Place,
}

/// A notification that a test expects.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    /// When it is created.
    pub at: Duration,
    /// A subset of its decoded content: keys that are absent here are not compared.
    pub decoded: Json,
    /// Its line for a person; not compared if `None`.
    pub sentence: Option<String>,
    /// All notices of its template to the user; not compared if `None`.
    pub notices: Option<Vec<Json>>,
    /// Its position.
    pub place: Place,
}

/// Reads every `[[tests]]` of a file.
pub(crate) fn read(document: &Document<'_>) -> (Vec<SubscriberTest>, Vec<Diagnostic>) {
    let Some(value) = document.value("tests") else { return (Vec::new(), Vec::new()) };
    let Some(items) = value.items() else { return (Vec::new(), value.wrong_kind("an array of tables")) };
    let (mut tests, mut found, mut names) = (Vec::new(), Vec::new(), SortedSet::new());
    for item in items {
        match read_test(&item) {
            Ok(test) if !names.insert(test.name.clone()) => {
                found.push(item.error(format!("there are two tests named `{}`", shown(&test.name))));
            }
            Ok(test) => tests.push(test),
            Err(wrong) => found.extend(wrong),
        }
    }
    (tests, found)
}

fn read_test(value: &Value<'_>) -> Parsed<SubscriberTest> {
    let mut section = value.section().ok_or_else(|| value.wrong_kind("a table"))?;
    let name = section.require("name", values::words);
    let at = section.require("at", |value| values::list(value, read_event));
    let expect = section.require("expect", |value| values::list(value, expectation));
    if let Some(at) = &at
        && !at.is_sorted_by_key(|event: &TestEvent| event.at)
    {
        section.object("at", |value| value.error("the events are not in the order of their times"));
    }
    let place = section.value("name").map_or_else(|| value.place(), Value::place);
    let found = section.finish();
    match (name, at, expect) {
        (Some(name), Some(at), Some(expect)) if found.is_empty() => {
            Ok(SubscriberTest { name: name.to_owned(), at, expect, place })
        }
        _ => Err(found),
    }
}

fn read_event(value: &Value<'_>) -> Parsed<TestEvent> {
    let wrong =
        || value.wrong_kind("an array such as [\"0ms\", \"tool.call.failure\", { tool_name = \"grep\" }]");
    let items = value.items().ok_or_else(wrong)?;
    let (at, event_type, payload, attributes) = match items.as_slice() {
        [at, event_type, payload] => (at, event_type, payload, None),
        [at, event_type, payload, attributes] => (at, event_type, payload, Some(attributes)),
        other => {
            let message =
                format!("an event has 3 or 4 items (time, type, payload, attributes), not {}", other.len());
            return Err(vec![value.error(message)]);
        }
    };
    let (mut section, mut found) = (None, Vec::new());
    if let Some(attributes) = attributes {
        section = attributes.section();
        found.extend(section.is_none().then(|| attributes.wrong_kind("a table")).into_iter().flatten());
    }
    let at = keep(&mut found, time(at));
    let place = event_type.place();
    let event_type = keep(&mut found, values::parsed(event_type));
    let payload = keep(&mut found, object(payload));
    let (mut severity, mut source, mut dedupe_key) = (None, None, None);
    if let Some(mut section) = section {
        severity = section.read("severity", values::severity);
        source = section.read("source", values::words).map(Arc::from);
        dedupe_key = section.read("dedupe_key", values::words).map(Arc::from);
        found.extend(section.finish());
    }
    match (at, event_type, payload) {
        (Some(at), Some(event_type), Some(payload)) if found.is_empty() => {
            Ok(TestEvent { at, event_type, payload, severity, source, dedupe_key, place })
        }
        _ => Err(found),
    }
}

fn expectation(value: &Value<'_>) -> Parsed<Expectation> {
    let mut section: Section<'_> = value.section().ok_or_else(|| value.wrong_kind("a table"))?;
    let at = section.require("at", time);
    let decoded = section.require("decoded", object);
    let sentence = section.read("sentence", |value| values::text(value).map(str::to_owned));
    let notices = section.read("notices", |value| values::list(value, notice));
    let found = section.finish();
    match (at, decoded) {
        (Some(at), Some(decoded)) if found.is_empty() => {
            Ok(Expectation { at, decoded, sentence, notices, place: value.place() })
        }
        _ => Err(found),
    }
}

/// An expected notice: its text, or a table with a subset of its fields.
fn notice(value: &Value<'_>) -> Parsed<Json> {
    if let Ok(text) = values::text(value) {
        return Ok(json!({ "message": text }));
    }
    let mut section = value.section().ok_or_else(|| value.wrong_kind("a text or a table"))?;
    let mut expected = Map::new();
    for name in NOTICE_FIELDS {
        let text = section.read(name, |value| values::text(value).map(str::to_owned));
        expected.extend(text.map(|text| (name.to_owned(), text.into())));
    }
    let found = section.finish();
    if found.is_empty() { Ok(expected.into()) } else { Err(found) }
}

fn keep<T>(found: &mut Vec<Diagnostic>, parsed: Parsed<T>) -> Option<T> {
    parsed.map_err(|wrong| found.extend(wrong)).ok()
}

fn time(value: &Value<'_>) -> Parsed<Duration> {
    values::duration(value, Duration::ZERO..=TEST_TIME_MAX)
}

/// A table as a JSON object.
pub(crate) fn object(value: &Value<'_>) -> Parsed<Json> {
    let json = value.get().as_table().is_some().then(|| to_json(value.get()));
    match json {
        None => Err(value.wrong_kind("a table")),
        Some(None) => {
            Err(vec![value.error(format!("`{}` holds a number that JSON does not have", value.name()))])
        }
        Some(Some(json)) => Ok(json),
    }
}

/// The same value in JSON, a date as its text; `None` if it holds a number that JSON cannot
/// represent.
fn to_json(value: &DeValue<'_>) -> Option<Json> {
    Some(match value {
        DeValue::String(text) => Json::from(text.as_ref()),
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix()).ok()?.into(),
        DeValue::Float(float) => serde_json::Number::from_f64(float.as_str().parse().ok()?)?.into(),
        DeValue::Boolean(flag) => Json::from(*flag),
        DeValue::Datetime(datetime) => Json::from(datetime.to_string()),
        DeValue::Array(items) => {
            Json::Array(items.iter().map(|item| to_json(item.get_ref())).collect::<Option<_>>()?)
        }
        DeValue::Table(table) => {
            let entry =
                |(key, value): (&toml::Spanned<toml::de::DeString<'_>>, &toml::Spanned<DeValue<'_>>)| {
                    Some((key.get_ref().to_string(), to_json(value.get_ref())?))
                };
            Json::Object(table.iter().map(entry).collect::<Option<_>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toml_becomes_the_json_that_means_the_same() {
        let table = toml::de::DeTable::parse(
            "a = [1, 0x10, -2.5, true, 'x', { b = [] }]\nc.d = 2026-11-21T12:00:00Z\n",
        );
        let value = DeValue::Table(table.expect("TOML").into_inner());
        let json = serde_json::json!({
            "a": [1, 16, -2.5, true, "x", { "b": [] }],
            "c": { "d": "2026-11-21T12:00:00Z" },
        });
        assert_eq!(to_json(&value), Some(json));
    }

    #[test]
    fn numbers_that_json_does_not_have_are_refused() {
        for number in ["inf", "nan", "99999999999999999999"] {
            let text = format!("a = {number}");
            let table = toml::de::DeTable::parse(&text).expect("TOML");
            assert_eq!(to_json(&DeValue::Table(table.into_inner())), None, "{number}");
        }
    }
}
