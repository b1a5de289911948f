//! The shipped subscribers do what their own `[[tests]]` say, in simulated time, through the whole engine.

use aside::{
    config::{
        case::SubscriberTest,
        compile::compile,
        layers::{LayerKind, SourceFile, Sources},
    },
    engine::{CompiledRules, Engine, Input, Output, RequestId},
    event::{Event, EventType, Payload, Seq, SessionId, Severity, catalogue},
    exchange::{Begins, Budget, Carries, Exchange, Format, Harness},
    ledger::{LedgerEntry, Reason},
    notification::{InjectionPoint, SubscriberId},
    time::Timestamp,
};
use serde_json::Value;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

#[test]
fn every_shipped_subscriber_does_what_its_tests_say() {
    let compiled = compile(&Sources::shipped(), &[]);
    assert_eq!(compiled.report.error_count(), 0, "{}", compiled.report);
    let rules = std::sync::Arc::new(compiled.rules);
    let mut failures = Vec::new();
    for rule in &rules.subscribers {
        let tests = compiled.tests.get(&rule.id).map(Vec::as_slice).unwrap_or_default();
        assert!(tests.len() >= 2, "{} has {} tests", rule.id, tests.len());
        for test in tests {
            if let Err(difference) = run(Engine::new(rules.clone()), &rule.id, test) {
                failures.push(format!("{}, {}: {difference}", rule.id, test.name));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Publishes what the test says and compares what the subscriber makes of it.
pub(crate) fn run(
    mut engine: Engine,
    subscriber: &SubscriberId,
    test: &SubscriberTest,
) -> Result<(), String> {
    let mut made = Vec::new();
    for (seq, event) in (1..).map(Seq).zip(&test.at) {
        let own = Event {
            id: seq.to_string().into(),
            event_type: event.event_type.clone(),
            source: event.source.clone().unwrap_or_else(|| "test".into()),
            severity: event.severity.unwrap_or_else(|| default_severity(&event.event_type)),
            timestamp: START + event.at,
            payload: Payload::from(event.payload.clone()),
            dedupe_key: event.dedupe_key.clone(),
            session: Some(SessionId::new("s")),
            workspace: None,
            cause: None,
        };
        engine.handle(Input::Event { seq, event: own.as_ref() }, START + event.at);
        collect(&mut engine, subscriber, &mut made);
    }
    let end = test.at.last().map(|event| event.at).unwrap_or_default() + std::time::Duration::from_secs(60);
    engine.handle(Input::Tick, START + end);
    collect(&mut engine, subscriber, &mut made);
    let contents = contents(&mut engine, START + end, subscriber);
    if made.len() != test.expect.len() {
        return Err(format!("{} notifications were made at {made:?}, not {}", made.len(), test.expect.len()));
    }
    for ((at, decoded), expected) in made.iter().zip(&contents).zip(&test.expect) {
        if *at != START + expected.at {
            return Err(format!("made at {at}, not {:?} after the start", expected.at));
        }
        if !holds(decoded, &expected.decoded) {
            return Err(format!("{decoded} does not hold {}", expected.decoded));
        }
    }
    Ok(())
}

fn default_severity(event_type: &EventType) -> Severity {
    catalogue::default_severity(event_type.as_str()).unwrap_or(catalogue::SEVERITY_DEFAULT)
}

fn collect(engine: &mut Engine, subscriber: &SubscriberId, made: &mut Vec<Timestamp>) {
    while let Some(output) = engine.poll_output() {
        if let Output::Record(LedgerEntry::Created { subscriber: own, created_at, .. }) = output
            && own == *subscriber
        {
            made.push(created_at);
        }
    }
}

/// What the notifications decode to, oldest first.
fn contents(engine: &mut Engine, now: Timestamp, subscriber: &SubscriberId) -> Vec<Value> {
    let mut contents = Vec::new();
    for seq in (1_000..).map(Seq) {
        let exchange = Exchange {
            session: SessionId::new("s"),
            point: InjectionPoint::TurnStart,
            carrier: seq.to_string().into(),
            turn: None,
            harness: Harness::default(),
            tool: None,
            acks: Vec::new(),
            budget: Budget::default(),
            format: Some(Format::Json),
            carries: Carries::Always,
            begins: Begins::default(),
            shows_notices: false,
        };
        engine.handle(Input::Exchange { seq, request: RequestId(seq.0), exchange }, now);
        let answer = std::iter::from_fn(|| engine.poll_output()).find_map(|output| match output {
            Output::Answer { answer, .. } => Some(answer),
            Output::Record(_)
            | Output::Made(_)
            | Output::Session(..)
            | Output::Publish(_)
            | Output::Wake(_) => None,
        });
        let Some(injection) = answer.and_then(|answer| answer.injection) else { return contents };
        let text: Value = serde_json::from_str(&injection.text).expect("the format is JSON");
        let notifications = text["notifications"].as_array().expect("an injection has notifications");
        let own =
            notifications.iter().filter(|notification| notification["subscriber"] == subscriber.as_str());
        contents.extend(own.map(|notification| notification["content"].clone()));
    }
    contents
}

/// Whether `found` has everything that `expected` has; keys that are absent in `expected` are not compared.
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

/// The rules of one subscriber that waits two seconds, switched on or off.
fn waiting(enabled: bool) -> std::sync::Arc<CompiledRules> {
    let text = format!(
        "[subscriber]\nid = \"waiting\"\nenabled = {enabled}\n[events]\ntypes = [\"a.b\"]\n[batching]\nwindow_ms = 2000\n"
    );
    let file = SourceFile {
        layer: LayerKind::User,
        name: "subscribers/waiting.toml".into(),
        path: "waiting.toml".into(),
        text: text.into(),
    };
    let compiled = compile(&Sources::new([file]), &[]);
    assert_eq!(compiled.report.error_count(), 0, "{}", compiled.report);
    std::sync::Arc::new(compiled.rules)
}

#[test]
fn nothing_more_is_told_of_a_subscriber_that_is_switched_off() {
    let mut engine = Engine::new(waiting(true));
    let at = |seconds| START + std::time::Duration::from_secs(seconds);
    let publish = |engine: &mut Engine, seq, session: &str, now| {
        let event = Event {
            id: format!("e{seq}").into(),
            event_type: "a.b".parse().expect("valid"),
            source: "test".into(),
            severity: Severity::Info,
            timestamp: now,
            payload: Payload::from(serde_json::json!({})),
            dedupe_key: None,
            session: Some(SessionId::new(session)),
            workspace: None,
            cause: None,
        };
        engine.handle(Input::Event { seq: Seq(seq), event: event.as_ref() }, now);
    };
    let opened = Input::SessionOpened { session: SessionId::new("open"), harness: Harness::default() };
    engine.handle(opened, START);
    // One is in a queue, one waits for its session, and one is in an open batch.
    publish(&mut engine, 1, "open", at(0));
    publish(&mut engine, 2, "absent", at(0));
    publish(&mut engine, 3, "open", at(5));
    while engine.poll_output().is_some() {}

    engine.handle(Input::RulesReplaced(waiting(false)), at(6));
    let ended = std::iter::from_fn(|| engine.poll_output()).filter(|output| {
        matches!(output, Output::Record(LedgerEntry::NotificationEnded { reason: Reason::SubscriberOff, .. }))
    });
    assert_eq!(ended.count(), 3);
    engine.handle(Input::RulesReplaced(waiting(true)), at(7));
    assert_eq!(contents(&mut engine, at(8), &SubscriberId::new("waiting")), Vec::<Value>::new());
    assert_eq!(engine.unclaimed_len(), 0);
}
