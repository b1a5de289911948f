//! Fixtures: saved events in `fixtures/NAME.json` of a layer, for tests and previews.
//!
//! A file is an event as it is published, a CloudEvent in structured mode, a list of them, or one
//! after the other. What depends on a running daemon has no effect: the id, the time, the session
//! and the folder. A test names a fixture as `@NAME`.

use std::{cell::Cell, ops::Range, sync::Arc};

use engine::{
    draft::{Defaults, read_any},
    event::{FIELD_CHARS_MAX, Provenance, catalogue::OwnSeverities, first_bytes},
    nearest::{clause, nearest},
    pipeline::render::clean_value,
};
use journal::time::Timestamp;
use serde_json::{Map, Value as Json, value::RawValue};

use super::event::TestEvent;
use crate::config::{
    layers::{LayerKind, SourceFile},
    raw::{Parsed, Value},
    report::{Diagnostic, Place, sentence, shown},
};

/// The character before the name of a fixture in a test.
pub(super) const MARK: char = '@';

/// The fixtures of all layers, in the order of their layers.
#[derive(Debug, Default)]
pub struct Fixtures(Vec<Fixture>);

/// A saved event, or several.
#[derive(Debug)]
struct Fixture {
    name: Arc<str>,
    layer: LayerKind,
    place: Place,
    /// `None` if the file has a mistake.
    events: Option<Vec<TestEvent>>,
    is_used: Cell<bool>,
}

impl Fixtures {
    /// Reads every file; mistakes are added to `found`.
    pub(crate) fn read<'s>(
        files: impl Iterator<Item = &'s SourceFile>,
        severities: &OwnSeverities,
        found: &mut Vec<Diagnostic>,
    ) -> Self {
        let read = |file: &SourceFile| {
            let events = read_events(&file.text, severities).map_err(|mistake| {
                let place = Place::new(&file.path, &file.text, mistake.range);
                found.push(Diagnostic::error(place, "", sentence(&mistake.message)));
            });
            let name = file.name.strip_prefix("fixtures/").unwrap_or(&file.name);
            Fixture {
                name: name.strip_suffix(".json").unwrap_or(name).into(),
                layer: file.layer,
                place: Place::line_of(&file.path, &file.text, 1),
                events: events.ok(),
                is_used: Cell::new(false),
            }
        };
        Self(files.map(read).collect())
    }

    /// The events of the fixture that `value`, a part of a test, names: of the test's layer, else of the
    /// nearest earlier one; `None` if the fixture has a mistake.
    pub(super) fn events(&self, name: &str, value: &Value<'_>) -> Parsed<Option<Vec<TestEvent>>> {
        let layer = value.file().layer;
        let known = || self.0.iter().filter(|fixture| fixture.layer <= layer);
        match known().rfind(|fixture| *fixture.name == *name) {
            Some(fixture) => {
                fixture.is_used.set(true);
                Ok(fixture.events.clone())
            }
            None => {
                let message = format!("there is no fixture `{}`", shown(name));
                let meant = nearest(name, known().map(|fixture| &*fixture.name));
                let note = format!(
                    "a fixture is a file fixtures/{}.json; `aside preview --save` writes one",
                    shown(name)
                );
                let wrong = value.error(message).with_nearest(meant.map(|meant| format!("{MARK}{meant}")));
                Err(vec![wrong.with_note(note)])
            }
        }
    }

    /// The events of the fixture `name` of the latest layer.
    ///
    /// Errors: there is none; a sentence with the nearest name.
    pub fn named(&self, name: &str) -> Result<&[TestEvent], String> {
        let known = || self.0.iter().filter_map(|fixture| Some((&*fixture.name, fixture.events.as_deref()?)));
        known().rfind(|(own, _)| *own == name).map(|(_, events)| events).ok_or_else(|| {
            let meant = nearest(name, known().map(|(own, _)| own));
            format!("there is no fixture `{name}`{}", clause(meant))
        })
    }

    /// Those of later layers than the shipped one that neither a test nor a preview can use: no test names
    /// them, and a later layer replaces them or `is_taken` is false for each of their events.
    pub(crate) fn unused(&self, is_taken: impl Fn(&TestEvent) -> bool) -> Vec<Unused<'_>> {
        let mut unused = Vec::new();
        for (index, fixture) in self.0.iter().enumerate() {
            let later = self.0.get(index + 1..).unwrap_or_default();
            let is_replaced = later.iter().any(|one| one.name == fixture.name);
            let is_shown = fixture.events.iter().flatten().any(&is_taken) && !is_replaced;
            if fixture.layer != LayerKind::Shipped && !fixture.is_used.get() && !is_shown {
                unused.push(Unused { name: &fixture.name, place: &fixture.place, is_replaced });
            }
        }
        unused
    }
}

/// A fixture that nothing can use.
pub(crate) struct Unused<'f> {
    pub(crate) name: &'f str,
    pub(crate) place: &'f Place,
    /// Whether a later layer has one of its name.
    pub(crate) is_replaced: bool,
}

/// Why a text has no events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The bytes of the text.
    pub range: Range<usize>,
    /// A sentence.
    pub message: String,
}

/// Reads the events of a text; an event without a severity has that of its type.
///
/// Errors: the first mistake; also that there is no event.
pub fn read_events(text: &str, severities: &OwnSeverities) -> Result<Vec<TestEvent>, Mistake> {
    let mut events = Vec::new();
    for item in serde_json::Deserializer::from_str(text).into_iter::<&RawValue>() {
        let item = item.map_err(|error| not_json(text, 0, &error))?;
        let start = offset(text, item.get());
        let items: Vec<&RawValue> = match item.get().starts_with('[') {
            true => serde_json::from_str(item.get()).map_err(|error| not_json(text, start, &error))?,
            false => vec![item],
        };
        for item in items {
            events.push(read_event(text, item.get(), severities)?);
        }
    }
    let empty = Mistake { range: 0..text.len(), message: "there is no event in it".to_owned() };
    if events.is_empty() { Err(empty) } else { Ok(events) }
}

/// The start of a part of `text`.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

/// A mistake in the syntax of the part of `text` that begins at `start`.
fn not_json(text: &str, start: usize, error: &serde_json::Error) -> Mistake {
    let part = text.get(start..).unwrap_or_default();
    let lines = part.split_inclusive('\n').take(error.line().saturating_sub(1));
    let at = start + lines.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
    let at = first_bytes(text, at).len();
    let end = text.get(at..).and_then(|rest| rest.chars().next()).map_or(at, |c| at + c.len_utf8());
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    Mistake { range: at..end, message: format!("not JSON: {message}") }
}

fn read_event(text: &str, item: &str, severities: &OwnSeverities) -> Result<TestEvent, Mistake> {
    // The position in the journal is a field of events that the daemon prints.
    let mut fields: Map<String, Json> = serde_json::from_str(item).unwrap_or_default();
    let printed = fields.shift_remove("seq").map(|_| Json::Object(fields).to_string());
    let read = printed.as_deref().unwrap_or(item);
    let api = Defaults::api(Timestamp::ZERO, Provenance::Own, severities);
    let defaults = Defaults { source: "", ..api };
    let draft = read_any(read.as_bytes(), &defaults, &mut String::new).map_err(|error| {
        let start = offset(text, item);
        let field = error
            .field
            .as_deref()
            .map(|field| format!("\"{}\"", field.split('.').next().unwrap_or_default()));
        let field = field.and_then(|field| Some((item.find(&field)?, field.len())));
        let range = field.map_or(start..start + item.len(), |(at, length)| start + at..start + at + length);
        Mistake { range, message: error.to_string() }
    })?;
    let event = draft.as_event().to_event();
    Ok(TestEvent {
        severity: Some(event.severity),
        source: Some(event.source).filter(|source| !source.is_empty()),
        dedupe_key: event.dedupe_key,
        deliver_after: event.deliver_after,
        ..TestEvent::new(event.event_type, Json::clone(event.payload.value()))
    })
}

/// The text of a fixture with `events`, cleaned as for a template: without control characters and
/// secrets, and with texts of a limited length.
pub fn write_events(events: &[TestEvent]) -> String {
    let write = |event: &TestEvent| {
        let fields = [
            ("type", Some(event.event_type.as_str().into())),
            ("source", event.source.as_deref().map(Json::from)),
            ("severity", event.severity.map(|severity| severity.as_str().into())),
            ("dedupe_key", event.dedupe_key.as_deref().map(Json::from)),
            ("deliver_after", event.deliver_after.as_deref().map(Json::from)),
            ("payload", Some(event.payload.clone())),
        ];
        let clean = |value: Json| clean_value(&value, FIELD_CHARS_MAX);
        let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), clean(value?))));
        Json::Object(fields.collect())
    };
    let events: Vec<Json> = events.iter().map(write).collect();
    let json = match <[Json; 1]>::try_from(events) {
        Ok([one]) => one,
        Err(several) => Json::Array(several),
    };
    format!("{json:#}\n")
}

#[cfg(test)]
mod tests {
    use engine::event::Severity;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Vec<TestEvent>, Mistake> {
        read_events(text, &OwnSeverities::default())
    }

    #[test]
    fn events_of_every_form_are_read() {
        let published = r#"{"type":"a.b","source":"x","payload":{"n":1}}"#;
        let printed = r#"{"seq":7,"id":"e","type":"a.b","source":"x","severity":"info","timestamp":"2026-01-05T09:00:00Z","payload":{"n":1},"session":"s9","workspace":"/w"}"#;
        let cloud = r#"{"specversion":"1.0","type":"a.b","id":"1","source":"x","data":{"n":1}}"#;
        let one = read(published).expect("an event");
        for text in [printed, cloud, &format!("[{published}]"), &format!("\n {published}\n")] {
            assert_eq!(read(text).as_ref(), Ok(&one), "{text}");
        }
        for text in [format!("[{published},{cloud}]"), format!("{published}\n{printed}\n")] {
            assert_eq!(read(&text).map(|events| events.len()), Ok(2), "{text}");
        }
        let own = read(r#"{"type":"budget.token.exceeded","source":"aside"}"#).expect("a type of aside");
        let [own] = own.as_slice() else { panic!("{own:?}") };
        assert_eq!((own.severity, &own.payload), (Some(Severity::Critical), &json!({})));
    }

    #[test]
    fn mistakes_point_at_their_field() {
        for (text, part, place) in [
            ("", "there is no event in it", ""),
            ("[]", "there is no event in it", "[]"),
            ("{\n \"type\": \"a.b\",\n}", "not JSON: key must be a string", "}"),
            ("[{\"type\": \"a.b\"}, {\"typ\": \"a.b\"}]", "did you mean `type`?", "\"typ\""),
            ("[{\"type\": \"a.b\"}, {\"type\": \"b\"}]", "an event type has 2 to 8 segments", "\"type\""),
            ("{\"type\":\"a.b\",\"severity\":\"high\"}", "`high` is not a severity", "\"severity\""),
            ("{\"payload\":{}}", "type: is missing", "{\"payload\":{}}"),
            ("[[]]", "must be a JSON object, not an array", "[]"),
        ] {
            let Mistake { range, message } = read(text).expect_err(text);
            assert!(message.contains(part), "{text}: {message}");
            assert_eq!(text.get(range), Some(place), "{text}");
        }
    }

    #[test]
    fn saved_events_are_clean_and_read_again() {
        let payload = json!({ "text": "a\u{1b}[31mb", "password": "hunter2", "long": "x".repeat(5_000) });
        let event = TestEvent::new("a.b".parse().expect("a type"), payload);
        let text = write_events(&[TestEvent { source: Some("x".into()), ..event.clone() }]);
        assert!(text.starts_with("{\n  \"type\": \"a.b\",\n  \"source\": \"x\",\n"), "{text}");
        assert!(text.contains("\"ab\"") && !text.contains("hunter2") && text.len() < 3_000, "{text}");
        assert_eq!(write_events(&read(&text).expect("read")), write_events(&read(&text).expect("read")));
        assert_eq!(read(&write_events(&[event.clone(), event])).map(|events| events.len()), Ok(2));
    }
}
