//! Runs the `[[tests]]` of subscribers in simulated time.

use std::{sync::Arc, time::Duration};

use engine::{
    Engine, Input, Output,
    event::{Event, Payload, Provenance, Seq, SessionId, catalogue::OwnSeverities},
    format,
    notification::Notification,
    pipeline::rule::Subscriber,
    rules::CompiledRules,
    sink::Notice,
    sorted::SortedSet,
};
use journal::time::Timestamp;
use serde_json::{Map, Value};

use crate::config::{
    case::{SubscriberTest, TestEvent},
    compile::Compiled,
    report::{Diagnostic, sentence},
};

/// The start time of a test.
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// How long a test continues after its last event: the longest time that a batch stays open.
const TAIL: Duration = Duration::from_secs(60);

/// Runs the tests in the files `own`, and returns those that fail.
pub(super) fn findings(compiled: &Compiled, own: &SortedSet<&Arc<str>>) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let severities = OwnSeverities::new(&compiled.events);
    for rule in &compiled.rules.subscribers {
        let tests = compiled.tests.get(&rule.id).map(Vec::as_slice).unwrap_or_default();
        for (index, test) in tests.iter().enumerate().filter(|(_, test)| own.contains(&test.place.file)) {
            let not_taken = test.at.iter().filter(|event| !takes(rule, event));
            let wrong: Vec<_> = not_taken.map(|event| type_not_taken(rule, event, index)).collect();
            if wrong.is_empty() {
                found.extend(run_test(&compiled.rules, &severities, rule, test).err().map(|failure| {
                    let message = format!("test `{}` fails: {}", test.name, sentence(failure));
                    Diagnostic::error(test.place.clone(), format!("tests[{index}]"), message)
                }));
            }
            found.extend(wrong);
        }
    }
    found
}

/// Whether an event of a test concerns the subscriber: it takes the event, or the event resolves
/// its conditions.
fn takes(rule: &Subscriber, event: &TestEvent) -> bool {
    let resolving = rule.resolve.iter().flat_map(|resolve| &resolve.by);
    rule.types.iter().chain(resolving).any(|pattern| pattern.matches_text(event.event_type.as_str()))
}

fn type_not_taken(rule: &Subscriber, event: &TestEvent, index: usize) -> Diagnostic {
    let message = format!("`{}` does not match `{}`, so it has no effect", rule.id, event.event_type);
    let types = rule.types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Diagnostic::error(event.place.clone(), format!("tests[{index}].at"), message)
        .with_note(format!("it takes {types}"))
}

/// Publishes the events of a test, and compares the subscriber's notifications with the expected
/// ones.
///
/// Errors: the first difference, as a lowercase fragment.
pub fn run_test(
    rules: &CompiledRules,
    severities: &OwnSeverities,
    rule: &Arc<Subscriber>,
    test: &SubscriberTest,
) -> Result<(), String> {
    let mut engine = Engine::new(Arc::new(alone(rules, rule)));
    let mut made = Vec::new();
    for (seq, event) in (1..).map(Seq).zip(&test.at) {
        let own = published(seq, event, severities);
        engine.handle(Input::Event { seq, event: own.as_ref() }, START + event.at);
        collect(&mut engine, &mut made);
    }
    let end = test.at.last().map(|event| event.at).unwrap_or_default() + TAIL;
    engine.handle(Input::Tick, START + end);
    collect(&mut engine, &mut made);
    compare(&made, test)
}

/// The rules with only this subscriber, enabled.
fn alone(rules: &CompiledRules, rule: &Arc<Subscriber>) -> CompiledRules {
    CompiledRules {
        hash: Arc::clone(&rules.hash),
        subscribers: vec![Arc::clone(rule)],
        templates: Arc::clone(&rules.templates),
        injection: rules.injection.clone(),
        sessions: rules.sessions.clone(),
        sources: rules.sources.clone(),
        detectors: rules.detectors.clone(),
        probes: rules.probes.clone(),
        ci: rules.ci.clone(),
        takes_webhooks: rules.takes_webhooks,
        sinks: Arc::clone(&rules.sinks),
        wake: Arc::clone(&rules.wake),
    }
}

fn published(seq: Seq, event: &TestEvent, severities: &OwnSeverities) -> Event {
    let default = || severities.default_severity(event.event_type.as_str());
    Event {
        id: seq.to_string().into(),
        event_type: event.event_type.clone(),
        source: event.source.clone().unwrap_or_else(|| "test".into()),
        // A source named by a test has the trust of a client of the socket.
        provenance: event.source.as_ref().map_or(Provenance::Harness, |_| Provenance::Local),
        severity: event.severity.unwrap_or_else(default),
        timestamp: START + event.at,
        payload: Payload::from(event.payload.clone()),
        dedupe_key: event.dedupe_key.clone(),
        session: Some(SessionId::new("s")),
        workspace: None,
        cause: None,
    }
}

/// A notification, and the notices of its template for the user.
struct Made {
    notification: Arc<Notification>,
    notices: Vec<Arc<Notice>>,
}

fn collect(engine: &mut Engine, made: &mut Vec<Made>) {
    while let Some(output) = engine.poll_output() {
        match output {
            Output::Made(notification) => made.push(Made { notification, notices: Vec::new() }),
            Output::Said(notice) => made.last_mut().expect("it was made before").notices.push(notice),
            Output::Record(_)
            | Output::Session(..)
            | Output::Answer { .. }
            | Output::Publish(_)
            | Output::Refuse { .. }
            | Output::Wake(_) => {}
        }
    }
}

fn compare(made: &[Made], test: &SubscriberTest) -> Result<(), String> {
    let milliseconds = |time: Duration| format!("{} ms", time.as_millis());
    let at = |notification: &Notification| milliseconds(notification.created_at.since(START));
    if made.len() != test.expect.len() {
        let times = made.iter().map(|made| at(&made.notification)).collect::<Vec<_>>().join(", ");
        let times = if made.is_empty() { String::new() } else { format!(" (at {times})") };
        return Err(format!("{} notifications are made{times}, not {}", made.len(), test.expect.len()));
    }
    for (number, (Made { notification, notices }, expected)) in (1..).zip(made.iter().zip(&test.expect)) {
        if notification.created_at != START + expected.at {
            let (found, wanted) = (at(notification), milliseconds(expected.at));
            return Err(format!("notification {number} is made at {found}, not at {wanted}"));
        }
        let decoded = toon::decode(notification.content.text()).map_err(|error| error.to_string())?;
        if !holds(&decoded, &expected.decoded) {
            return Err(format!(
                "notification {number} is {decoded}, which lacks a part of {}",
                expected.decoded
            ));
        }
        if let Some(expected) = &expected.sentence {
            let found = format::line_for_user(notification, format::LINE_CHARS_MAX);
            if found != *expected {
                return Err(format!("notification {number} has the sentence {found:?}, not {expected:?}"));
            }
        }
        if let Some(expected) = &expected.notices {
            compare_notices(number, notices, expected)?;
        }
    }
    Ok(())
}

/// Compares the notices of a template for the user, one by one.
fn compare_notices(number: usize, notices: &[Arc<Notice>], expected: &[Value]) -> Result<(), String> {
    let found = Value::from(notices.iter().map(|notice| fields(notice)).collect::<Vec<_>>());
    let expected = Value::from(expected.to_vec());
    if holds(&found, &expected) {
        return Ok(());
    }
    Err(format!("notification {number} sends {found} to the user, not {expected}"))
}

fn fields(notice: &Notice) -> Value {
    let mut fields = Map::new();
    fields.insert("message".to_owned(), Value::from(&*notice.message));
    fields.insert("level".to_owned(), notice.level.as_str().into());
    fields.extend(
        notice.category.map(|category| category.as_str()).map(|word| ("category".to_owned(), word.into())),
    );
    fields.extend(notice.link.as_deref().map(|link| ("link".to_owned(), link.into())));
    Value::Object(fields)
}

/// Whether `found` contains `expected`; keys that are absent in `expected` are not compared.
fn holds(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            expected.iter().all(|(key, value)| found.get(key).is_some_and(|found| holds(found, value)))
        }
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(found, value)| holds(found, value))
        }
        _ => found == expected,
    }
}
