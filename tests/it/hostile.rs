//! Hostile payloads through the whole engine: for any event, an injection stays one block of its
//! format and contains the values.
//!
//! A session for each format gets the same events; their injections are parsed and compared
//! with the published values, after [`clean_text`].

mod texts;
mod tokens;

use std::{cell::RefCell, collections::BTreeMap, env, time::Duration};

use engine::{
    event::{Event, Payload, SessionId, Severity, clean_text, strip_text},
    exchange::{Exchange, Format, Harness, Injection},
    format::line::LINE_CHARS_MAX,
    io::{Input, Output},
    notification::{InjectionPoint, Priority},
};
use journal::time::Timestamp;
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use serde_json::{Map, Value, json};
use strum::VariantArray;

use self::texts::TEXTS;
use crate::support::{
    drive::Drive,
    written::{CUT, Said, assert_no_control_token, assert_sentence, merged, read},
};

/// Longer than any window of the subscribers used here, and than the dedupe windows.
const PAUSE: Duration = Duration::from_secs(20);

/// Name, template and batch size of small subscribers in the style that people write.
const OWN: [(&str, usize, &str); 6] = [
    (
        "plain",
        1,
        "{% for e in events %}\ntool_fail: {{ e.payload.tool_name }} {{ e.payload.error_type }}{% if e.payload.error_message %} - {{ e.payload.error_message }}{% endif %}\n{% endfor %}",
    ),
    (
        "rows",
        3,
        "rows[{{ events|length }}]{first,second,both}:\n{% for e in events %}\n  {{ e.payload.a }},{{ e.payload.b }},{{ e.payload.a }}: {{ e.payload.b }}\n{% endfor %}",
    ),
    (
        "items",
        3,
        "items[{{ count }}]:\n{% for e in events %}\n  - {{ e.payload.a }}\n{% endfor %}\nquoted: \"{{ events[0].payload.b }}\"\nwords[2]: {{ events[0].payload.a }}, {{ events[0].payload.b }}",
    ),
    (
        "noted",
        1,
        "# about {{ events[0].payload.a }}\nnoted: {{ events[0].payload.a }}\n# {{ events[0].payload.b }}",
    ),
    ("whole", 1, "{{ events[0].payload|toon(key=\"whole\") }}"),
    ("table", 3, "{{ rows|toon(key=\"table\") }}"),
];

/// An engine with a session for each format.
struct Stage {
    drive: Drive,
    now: Timestamp,
    count: u64,
}

impl Stage {
    fn new() -> Self {
        let mut files = vec![(
            "aside.toml".to_owned(),
            "[injection]\nmax_tokens = 20000\nmax_chars = 100000\n[budget]\nturn = \"off\"\nhour = \"off\"\n"
                .to_owned(),
        )];
        for (name, size, template) in OWN {
            files.push((format!("templates/{name}.toon.j2"), template.to_owned()));
            files.push((format!("subscribers/{name}.toml"), subscriber(name, size, template.is_empty())));
        }
        files.push(("subscribers/generic.toml".to_owned(), subscriber("generic", 1, true)));
        let now = Timestamp::from_millis(1_700_000_000_000);
        let mut drive = Drive::new(&files);
        for format in Format::VARIANTS.iter().copied() {
            let session = SessionId::new(format.as_str());
            drive.input(Input::SessionOpened { session, harness: Harness::default() }, now);
        }
        Self { drive, now, count: 0 }
    }

    /// Publishes `events` and returns the next injection of each session.
    fn tell(&mut self, events: &[(&str, Value)]) -> BTreeMap<Format, Injection> {
        self.now = self.now + PAUSE;
        self.drive.advance(self.now);
        for (event_type, payload) in events {
            self.count += 1;
            let event = Event {
                id: format!("e{}", self.count).into(),
                event_type: event_type.parse().expect("a valid type"),
                source: "test".into(),
                provenance: engine::event::Provenance::Harness,
                severity: Severity::Warning,
                timestamp: self.now,
                payload: Payload::parse(&payload.to_string()).expect("a valid payload"),
                dedupe_key: None,
                session: None,
                workspace: None,
                cause: None,
                deliver_after: None,
            };
            self.drive.emit(&event, self.now);
        }
        self.now = self.now + PAUSE;
        self.drive.advance(self.now);
        for format in Format::VARIANTS.iter().copied() {
            for _ in events {
                self.count += 1;
                self.drive.exchange(exchange(format, self.count), self.now);
            }
        }
        merged(self.drive.take_outputs().into_iter().filter_map(|(_, output)| injection(output)))
    }

    /// Checks that every session gets exactly `expected`, in its format.
    fn check(&mut self, events: &[(&str, Value)], expected: &[(Priority, Value)]) {
        let delivered = self.tell(events);
        for format in Format::VARIANTS.iter().copied() {
            let injection =
                delivered.get(&format).unwrap_or_else(|| panic!("{format:?}: nothing for {events:?}"));
            let priorities: Vec<Priority> =
                injection.notifications.iter().map(|released| released.priority).collect();
            assert_eq!(priorities, expected.iter().map(|(priority, _)| *priority).collect::<Vec<_>>());
            let said = read(format, &injection.text, expected.len());
            let severities: Vec<Severity> =
                injection.notifications.iter().map(|released| released.severity).collect();
            let expected = with_cuts(&said, expected_of(format, expected, &severities));
            assert_eq!(said, expected, "{format:?}\n{}", injection.text);
            assert_sentence(injection);
        }
    }
}

fn subscriber(name: &str, size: usize, is_generic: bool) -> String {
    let template =
        if is_generic { String::new() } else { format!("template = \"templates/{name}.toon.j2\"\n") };
    let window = if size > 1 { 1_000 } else { 0 };
    format!(
        "[subscriber]\nid = \"{name}\"\n[events]\ntypes = [\"hostile.{name}\"]\nseverity_filter = \"debug\"\n\
         [batching]\nwindow_ms = {window}\nmax_size = {size}\n\
         [output]\npriority = \"high\"\ninject_at = \"after_tool\"\nmax_tokens = 2000\n{template}"
    )
}

/// An exchange that releases everything and confirms the one before it.
fn exchange(format: Format, carrier: u64) -> Exchange {
    let session = SessionId::new(format.as_str());
    Exchange {
        format: Some(format),
        shows_notices: true,
        ..Exchange::new(session, InjectionPoint::TurnStart, &format!("c{carrier}"))
    }
}

fn injection(output: Output) -> Option<(Format, Injection)> {
    match output {
        Output::Answer { session, answer, .. } => {
            Some((session.as_str().parse().expect("sessions are named after formats"), answer.injection?))
        }
        Output::Publish(event) => panic!("{}: {}", event.event_type, event.payload.as_str()),
        Output::Record(_)
        | Output::Refuse { .. }
        | Output::Wake(_)
        | Output::Made(_)
        | Output::Said(_)
        | Output::Session(..) => None,
    }
}

/// The result of parsing `format` when notifications of these severities contain `expected`.
fn expected_of(format: Format, expected: &[(Priority, Value)], severities: &[Severity]) -> Said {
    let of = |wanted: Option<Severity>| -> Vec<Value> {
        let is_wanted = |severity: Severity| wanted.is_none_or(|wanted| wanted == severity);
        let both = expected.iter().zip(severities).filter(|(_, severity)| is_wanted(**severity));
        both.map(|((_, value), _)| value.clone()).collect()
    };
    match format {
        Format::XmlEach | Format::Json | Format::Line => Said::Contents(of(None)),
        Format::Xml
        | Format::Toon
        | Format::OpenaiDeveloper
        | Format::SystemMessage
        | Format::AnthropicBlock
        | Format::SyntheticTool
        | Format::UserPrefix => Said::Documents(vec![(None, of(None))]),
        Format::Markdown => {
            let groups = Severity::VARIANTS.iter().rev().map(|severity| (severity, of(Some(*severity))));
            let documents = groups.filter(|(_, contents)| !contents.is_empty());
            let named = documents.map(|(severity, contents)| (Some(severity.as_str().to_owned()), contents));
            Said::Documents(named.collect())
        }
    }
}

/// The expected contents, with [`CUT`] for a content that was cut and is too long for a line with
/// all others on it.
fn with_cuts(said: &Said, expected: Said) -> Said {
    let (Said::Contents(lines), Said::Contents(contents)) = (said, &expected) else { return expected };
    let length = |content: &Value| content.to_string().replace(['<', '[', '~'], "\\u003c").chars().count();
    let may_be_cut = |content: &Value| length(content) > LINE_CHARS_MAX - 180;
    let cut = lines.iter().zip(contents).map(|(line, content)| match line {
        line if line == CUT && may_be_cut(content) => line.clone(),
        _ => content.clone(),
    });
    if lines.len() == contents.len() { Said::Contents(cut.collect()) } else { expected }
}

fn clean(value: &Value) -> Value {
    match value {
        Value::String(text) => clean_text(text).into(),
        Value::Array(items) => items.iter().map(clean).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (clean_text(key).into_owned(), clean(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The line of the plain template.
fn plain_line(tool: &str, error: &str, message: &str) -> Value {
    let [tool, error, message] = [tool, error, message].map(clean_text);
    let tail = if message.is_empty() { String::new() } else { format!(" - {message}") };
    json!({ "tool_fail": format!("{tool} {error}{tail}") })
}

fn plain_event(tool: &str, error: &str, message: &str) -> (&'static str, Value) {
    ("hostile.plain", json!({ "tool_name": tool, "error_type": error, "error_message": message }))
}

fn pair_event(event_type: &'static str, a: &Value, b: &Value) -> (&'static str, Value) {
    (event_type, json!({ "a": a, "b": b }))
}

fn rows_document(pairs: &[(Value, Value)]) -> Value {
    let row = |(a, b): &(Value, Value)| {
        let (a, b) = (clean(a), clean(b));
        json!({ "first": a, "second": b, "both": format!("{}: {}", shown(&a), shown(&b)) })
    };
    json!({ "rows": pairs.iter().map(row).collect::<Vec<_>>() })
}

fn items_document(pairs: &[(Value, Value)]) -> Value {
    let items: Vec<Value> = pairs.iter().map(|(a, _)| clean(a)).collect();
    let (a, b) = pairs.first().map(|(a, b)| (clean(a), clean(b))).expect("an event");
    json!({ "items": items, "quoted": shown(&b), "words": [a, b] })
}

/// The text of a scalar among other text: a number has no exponent.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => number.as_f64().expect("a float").to_string(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

fn text_pairs() -> Vec<(Value, Value)> {
    TEXTS.iter().zip(TEXTS.iter().rev()).map(|(a, b)| ((*a).into(), (*b).into())).collect()
}

#[test]
fn plain_style_template_concatenates_any_values() {
    let mut stage = Stage::new();
    for (index, text) in TEXTS.into_iter().enumerate() {
        let next = TEXTS[(index + 1) % TEXTS.len()];
        for (tool, error, message) in
            [(text, "timeout", ""), ("grep", text, next), (next, text, text), ("grep", "timeout", text)]
        {
            stage.check(
                &[plain_event(tool, error, message)],
                &[(Priority::High, plain_line(tool, error, message))],
            );
        }
    }
}

#[test]
fn handwritten_rows_and_items_give_exact_cells() {
    let mut stage = Stage::new();
    let kept = [
        json!(5),
        json!(-1.5),
        json!(u64::MAX),
        json!(1e-7),
        json!(1e20),
        json!(1e300),
        json!(true),
        Value::Null,
        json!("5"),
        json!("null"),
    ];
    let mut pairs = text_pairs();
    pairs.extend(kept.iter().map(|value| (value.clone(), "x".into())));
    for chunk in pairs.chunks(3) {
        for (event_type, document) in [
            ("hostile.rows", rows_document(chunk)),
            ("hostile.items", items_document(chunk)),
            ("hostile.table", table_document(chunk)),
        ] {
            let events: Vec<_> = chunk.iter().map(|(a, b)| pair_event(event_type, a, b)).collect();
            stage.check(&events, &[(Priority::High, document)]);
        }
    }
}

#[test]
fn single_cell_rows_stay_rows_for_any_value() {
    let mut stage = Stage::new();
    for texts in TEXTS.chunks(3) {
        let events: Vec<_> = texts.iter().map(|text| ("hostile.table", json!({ "a": text }))).collect();
        let rows: Vec<Value> = texts.iter().map(|text| json!({ "a": clean_text(text) })).collect();
        stage.check(&events, &[(Priority::High, json!({ "table": rows }))]);
    }
}

#[test]
fn payload_in_a_comment_stays_in_the_comment() {
    let mut stage = Stage::new();
    for (a, b) in text_pairs() {
        let events = [pair_event("hostile.noted", &a, &b), plain_event("grep", "x", "")];
        let noted = (Priority::High, json!({ "noted": clean(&a) }));
        let plain = (Priority::High, plain_line("grep", "x", ""));
        stage.check(&events[..1], std::slice::from_ref(&noted));
        stage.check(&events, &[noted, plain]);
        let noted = (Priority::High, json!({ "noted": clean(&a) }));
        stage.check(&[events[0].clone(), events[0].clone()], &[noted.clone(), noted]);
    }
}

fn table_document(pairs: &[(Value, Value)]) -> Value {
    let rows: Vec<Value> = pairs.iter().map(|(a, b)| json!({ "a": clean(a), "b": clean(b) })).collect();
    json!({ "table": rows })
}

#[test]
fn several_notifications_form_a_single_block() {
    let mut stage = Stage::new();
    for pairs in text_pairs().chunks(3) {
        let mut events = Vec::new();
        let mut expected = Vec::new();
        for (a, b) in pairs {
            let (a, b) = (shown(a), shown(b));
            events.push(plain_event(&a, &b, &a));
            expected.push((Priority::High, plain_line(&a, &b, &a)));
        }
        let (first, second) = &pairs[0];
        events.push(("hostile.whole", json!({ "a": first, "b": [second, { "c": first }] })));
        let whole = json!({ "whole": { "a": clean(first), "b": [clean(second), { "c": clean(first) }] } });
        expected.push((Priority::High, whole));
        stage.check(&events, &expected);
        stage.check(&events[1..], &expected[1..]);
    }
}

#[test]
fn the_shipped_subscribers_say_what_was_published() {
    let mut stage = Stage::new();
    for (index, text) in TEXTS.into_iter().enumerate() {
        let next = TEXTS[(index + 1) % TEXTS.len()];
        let (cleaned, cleaned_next) = (clean_text(text), clean_text(next));
        let or_source = |text: &str| if text.is_empty() { "test".to_owned() } else { text.to_owned() };
        let message = |from: &str, text: &str| json!({ "from": from, "text": text });
        let delivered = |from: &str, text: &str| {
            (Priority::High, json!({ "message_from": or_source(from), "text": text }))
        };
        let budget = json!({ "budget_type": text, "percentage": 100, "current": 2, "limit": 1 });
        let or_type = if cleaned.is_empty() { "budget.token.exceeded" } else { &*cleaned };
        let exceeded = json!({ "budget_exceeded": format!("{or_type} 100% used (2 of 1)") });
        let mut reminder = Map::from_iter([("reminder".to_owned(), or_source(&cleaned).into())]);
        if !cleaned_next.is_empty() {
            reminder.insert("kind".to_owned(), cleaned_next.as_ref().into());
        }
        stage.check(
            &[
                ("reminder.due", json!({ "text": text, "category": next })),
                ("message.agent.sent", message(text, next)),
                ("message.agent.sent", message(next, text)),
                ("budget.token.exceeded", budget),
            ],
            &[
                (Priority::Critical, exceeded),
                delivered(&cleaned, &cleaned_next),
                delivered(&cleaned_next, &cleaned),
                (Priority::High, Value::Object(reminder)),
            ],
        );
    }
}

#[test]
fn tool_failure_renders_alone_and_as_table() {
    let mut stage = Stage::new();
    for text in TEXTS {
        let cleaned = clean_text(text);
        let failure =
            |tool: &str| json!({ "tool_name": tool, "error_type": "timeout", "error_message": text });
        let mut alone = Map::from_iter([("tool_fail".to_owned(), "grep timeout".into())]);
        if !cleaned.is_empty() {
            alone.insert("error".to_owned(), cleaned.as_ref().into());
        }
        stage.check(&[("tool.call.failure", failure("grep"))], &[(Priority::High, Value::Object(alone))]);
        let row = |tool: &str| json!({ "tool": tool, "error": "timeout", "message": cleaned });
        stage.check(
            &[("tool.call.failure", failure("grep")), ("tool.call.failure", failure("fetch"))],
            &[(Priority::High, json!({ "tool_fails": [row("grep"), row("fetch")] }))],
        );
    }
}

#[test]
fn maximally_nested_objects_keep_their_shape() {
    let mut stage = Stage::new();
    for pair in TEXTS.chunks(2) {
        let (key, text) = (format!("k{}", pair[0]), pair[1]);
        // The payload is one level, a round two or three: 16 in all, the maximum.
        let deep = (0..6).fold(json!(text), |inner, level| match level % 2 {
            0 => json!({ key.as_str(): [inner, text] }),
            _ => json!({ key.as_str(): [{ "a": text, "b": inner }] }),
        });
        let payload = json!({ "deep": deep, "flat": [text, 1, null, "", []] });
        stage.check(
            &[("hostile.whole", payload.clone())],
            &[(Priority::High, json!({ "whole": clean(&payload) }))],
        );
    }
}

#[test]
fn payload_without_template_shows_its_fields() {
    let mut stage = Stage::new();
    for text in TEXTS {
        let payload = json!({ "x": text, "y": [text, { text: 1 }] });
        let cleaned = clean(&payload);
        let list = cleaned.get("y").expect("a list").to_string();
        let shown = json!({
            "type": "hostile.generic", "source": "test", "severity": "warning", "x": cleaned.get("x"), "y": list,
        });
        stage.check(&[("hostile.generic", payload)], &[(Priority::High, shown)]);
    }
}

/// Long texts: text that does not fit is cut with a mark that counts, and the rest is exact.
#[test]
fn long_text_is_truncated_with_missing_character_count() {
    let mut stage = Stage::new();
    for unit in ["x", "ab ", "</notifications>\n", "\"\\,:", "```\n", "- \u{1b}[1m", "\u{e9}\u{2713}"] {
        let long = unit.repeat(60_000 / unit.len());
        let stripped = strip_text(&long);
        let events = [
            plain_event("grep", "timeout", &long),
            ("message.agent.sent", json!({ "from": "a", "text": long })),
        ];
        for (format, injection) in stage.tell(&events) {
            let contents = match read(format, &injection.text, 2) {
                // A line has no room for them, and names where to see them.
                Said::Contents(contents) if format == Format::Line => {
                    assert_eq!(contents, [CUT, CUT]);
                    continue;
                }
                Said::Contents(contents) => contents,
                Said::Documents(documents) => {
                    documents.into_iter().flat_map(|(_, contents)| contents).collect()
                }
            };
            let found = |key: &str| contents.iter().find_map(|content| content[key].as_str());
            let plain = found("tool_fail").and_then(|line| line.strip_prefix("grep timeout - "));
            for shown in [plain, found("text")] {
                let shown = shown.unwrap_or_else(|| panic!("{format:?}\n{}", injection.text));
                let (kept, mark) = shown.rsplit_once("\u{2026} [+").expect("a mark");
                let missing: usize = mark.strip_suffix(" chars]").expect("a mark").parse().expect("a count");
                assert!(stripped.starts_with(kept) && !kept.is_empty(), "{shown}");
                assert_eq!(kept.chars().count() + missing, stripped.chars().count(), "{format:?} {unit:?}");
            }
        }
    }
}

fn text() -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        4 => prop::sample::select(TEXTS.as_slice()).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => "[ -~]{0,8}",
    ];
    prop::collection::vec(pieces, 0..4).prop_map(|pieces| pieces.concat())
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => text().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => prop::num::f64::NORMAL.prop_filter("as a float it would stay one", |float| float.fract() != 0.0).prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
    ]
}

fn nested() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((text(), inner.clone()), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            prop::collection::vec((scalar(), inner), 1..3).prop_map(|rows| {
                rows.into_iter().map(|(a, b)| json!({ "a": a, "b": b })).collect::<Vec<_>>().into()
            }),
        ]
    })
}

#[test]
fn generated_payloads_are_delivered_as_they_were_published() {
    let stage = RefCell::new(Stage::new());
    let lines = prop::collection::vec((text(), text(), text()), 0..3);
    let rows = prop::collection::vec((scalar(), scalar()), 1..4);
    // About four payloads a case.
    let cases = env::var("ASIDE_HOSTILE_CASES").map_or(128, |cases| cases.parse().expect("a number"));
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let run = runner.run(&(lines, rows, nested()), |(lines, rows, nested)| {
        let mut events: Vec<_> = lines.iter().map(|(a, b, c)| plain_event(a, b, c)).collect();
        let mut expected: Vec<Value> = lines.iter().map(|(a, b, c)| plain_line(a, b, c)).collect();
        events.push(("hostile.whole", json!({ "x": nested })));
        expected.push(json!({ "whole": clean(&json!({ "x": nested })) }));
        events.extend(rows.iter().map(|(a, b)| pair_event("hostile.rows", a, b)));
        expected.push(rows_document(&rows));
        let expected: Vec<_> = expected.into_iter().map(|value| (Priority::High, value)).collect();
        stage.borrow_mut().check(&events, &expected);
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}
