//! The shipped subscribers do what their own `[[tests]]` say, in simulated time, through the whole engine.

use aside::{
    config::{
        compile::compile,
        layers::{LayerKind, SourceFile, Sources},
    },
    engine::{CompiledRules, Engine, Input, Output, RequestId},
    event::{Event, Payload, Seq, SessionId, Severity},
    exchange::{Begins, Budget, Carries, Exchange, Format, Harness, Trigger},
    ledger::{LedgerEntry, Reason},
    notification::{InjectionPoint, SubscriberId},
    time::Timestamp,
    trial::run_test,
};
use serde_json::Value;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

#[test]
fn every_shipped_subscriber_does_what_its_tests_say() {
    let compiled = compile(&Sources::shipped(), &[]);
    assert_eq!(compiled.report.error_count(), 0, "{}", compiled.report);
    let rules = compiled.rules;
    let mut failures = Vec::new();
    for rule in &rules.subscribers {
        let tests = compiled.tests.get(&rule.id).map(Vec::as_slice).unwrap_or_default();
        assert!(tests.len() >= 2, "{} has {} tests", rule.id, tests.len());
        for test in tests {
            if let Err(difference) = run_test(&rules, rule, test) {
                failures.push(format!("{}, {}: {difference}", rule.id, test.name));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
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
            trigger: Trigger::Agent,
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
            provenance: aside::event::Provenance::Harness,
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
