//! The shipped subscribers pass their own `[[tests]]`, in simulated time, through the whole engine.

use std::collections::BTreeSet;

use aside::config::{
    compile::compile,
    layers::{LayerKind, SourceFile, Sources},
    trial::Cases,
};
use engine::{
    Engine, Input, Output, RequestId,
    event::{Event, Payload, Seq, SessionId, Severity, catalogue},
    exchange::{Budget, CarrierEffect, ContextChange, Exchange, Format, Harness, Release, Trigger},
    ledger::{LedgerEntry, Reason},
    notification::{InjectionPoint, SubscriberId},
    rules::CompiledRules,
};
use journal::time::Timestamp;
use serde_json::Value;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

#[test]
fn every_shipped_subscriber_does_what_its_tests_say() {
    let compiled = compile(&Sources::shipped_with_tests(), &[]);
    assert_eq!(compiled.report.error_count(), 0, "{}", compiled.report);
    for rule in &compiled.rules.subscribers {
        let tests = compiled.tests.get(&rule.id).map(Vec::as_slice).unwrap_or_default();
        assert!(tests.len() >= 2, "{} has {} tests", rule.id, tests.len());
    }
    let mut failures = Vec::new();
    for case in Cases::new(&compiled).iter() {
        if let Err(wrong) = case.run() {
            failures.push(format!("{}, {}: {wrong}", case.subscriber(), case.test.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The decoded notifications, oldest first.
fn contents(engine: &mut Engine, now: Timestamp, subscriber: &SubscriberId) -> Vec<Value> {
    let mut contents = Vec::new();
    for seq in (1_000..).map(Seq) {
        let exchange = Exchange {
            session: SessionId::new("s"),
            point: InjectionPoint::TurnStart,
            carrier: seq.to_string().into(),
            turn: None,
            step: None,
            harness: Harness::default(),
            tool: None,
            acks: Vec::new(),
            known_calls: Vec::new(),
            budget: Budget::default(),
            format: Some(Format::Json),
            carrier_effect: CarrierEffect::None,
            context: ContextChange::default(),
            shows_notices: false,
            trigger: Trigger::Agent,
        };
        let exchange = exchange.into();
        engine.handle(
            Input::Exchange { seq, request: RequestId(seq.0), exchange, release: Release::Decide },
            now,
        );
        let answer = std::iter::from_fn(|| engine.poll_output()).find_map(|output| match output {
            Output::Answer { answer, .. } => Some(answer),
            Output::Record(_)
            | Output::Made(_)
            | Output::Said(_)
            | Output::Session(..)
            | Output::Publish(_)
            | Output::Refuse { .. }
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

/// The rules of one subscriber with a window of two seconds, on or off.
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
fn disabling_a_subscriber_ends_its_pending_notifications() {
    let mut engine = Engine::new(waiting(true));
    let at = |seconds| START + std::time::Duration::from_secs(seconds);
    let publish = |engine: &mut Engine, seq, session: &str, now| {
        let event = Event {
            id: format!("e{seq}").into(),
            event_type: "a.b".parse().expect("valid"),
            source: "test".into(),
            provenance: engine::event::Provenance::Harness,
            severity: Severity::Info,
            timestamp: now,
            payload: Payload::from(serde_json::json!({})),
            dedupe_key: None,
            session: Some(SessionId::new(session)),
            workspace: None,
            cause: None,
            deliver_after: None,
        };
        engine.handle(Input::Event { seq: Seq(seq), event: event.as_ref() }, now);
    };
    let opened = Input::SessionOpened { session: SessionId::new("open"), harness: Harness::default() };
    engine.handle(opened, START);
    // One is in a queue, one is pending for its session, and one is in an open batch.
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
    assert_eq!(engine.sessions().unclaimed_len(), 0);
}

/// The fields of `value`; the names of nested ones have dots.
fn fields(value: &Value, prefix: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(own) => {
            for (key, below) in own {
                found.insert(format!("{prefix}{key}"));
                fields(below, &format!("{prefix}{key}."), found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, prefix, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The payload fields that a template or an `[output]` uses: the names after `r.`, `p.`, `d.` or
/// `payload.`, and the sources of columns.
fn looked_up(template: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names = BTreeSet::new();
    for root in ["r.", "p.", "payload."] {
        for (at, _) in template.match_indices(root) {
            if !template[..at].ends_with(is_name) && !template[..at].ends_with('.') {
                let name: String = template[at + root.len()..].chars().take_while(|c| is_name(*c)).collect();
                names.insert(name);
            }
        }
    }
    for columns in template.split("columns={").skip(1) {
        let columns = columns.split('}').next().expect("a first part");
        for pair in columns.split("\": ").skip(1) {
            let sources =
                pair.split(if pair.starts_with('[') { ']' } else { ',' }).next().expect("a first part");
            let quoted = sources.split('"').skip(1).step_by(2).filter(|name| !name.starts_with('@'));
            names.extend(quoted.map(str::to_owned));
        }
    }
    names.extend(columns_of_file(template));
    names.remove("repeats");
    names
}

/// The fields in the columns of an `[output.table]`; none if `text` is not a subscriber's file.
fn columns_of_file(text: &str) -> Vec<String> {
    let Some((_, table)) = text.split_once("[output.table]") else { return Vec::new() };
    let table: toml::Table = table.parse().expect("the rest of the file is TOML");
    let columns = table.get("columns").and_then(|columns| columns.as_table().cloned());
    let texts = |from: toml::Value| from.as_array().cloned().unwrap_or_else(|| vec![from]);
    let names = columns.into_iter().flatten().flat_map(|(_, from)| texts(from));
    names.filter_map(|name| Some(name.as_str()?.to_owned())).filter(|name| !name.starts_with('@')).collect()
}

#[test]
fn shipped_templates_and_tests_use_catalogue_field_names() {
    let compiled = compile(&Sources::shipped_with_tests(), &[]);
    for rule in &compiled.rules.subscribers {
        let entries: Vec<_> = catalogue::types()
            .filter(|entry| rule.types.iter().any(|pattern| pattern.matches(&entry.event_type)))
            .collect();
        assert!(!entries.is_empty(), "{} takes nothing of the catalogue", rule.id);
        let (mut known, mut aliases) = (BTreeSet::new(), BTreeSet::new());
        for entry in entries {
            fields(entry.example.value(), "", &mut known);
            aliases.extend(entry.aliases.keys().cloned());
        }
        // Fields of a list of diagnostics in addition to those of LSP.
        known.extend(["diagnostics.line", "diagnostics.severity"].map(str::to_owned));
        let path = match rule.output.layout.template() {
            Some(name) => format!("templates/{name}"),
            None => format!("subscribers/{}.toml", rule.id),
        };
        let text = std::fs::read_to_string(&path).expect("a shipped file");
        let text = text.split("[[tests]]").next().expect("a first part");
        let text = text.split_once("[output]").map_or(text, |(_, output)| output);
        let unknown: Vec<_> = looked_up(text)
            .into_iter()
            .filter(|name| !known.contains(name) && !aliases.contains(name))
            .collect();
        assert_eq!(unknown, Vec::<String>::new(), "{path}");
        for test in compiled.tests.get(&rule.id).into_iter().flatten() {
            for (_, event) in test.events() {
                let mut used = BTreeSet::new();
                fields(&event.payload, "", &mut used);
                used.retain(|name| !known.contains(name) && !aliases.contains(name) && !name.contains('.'));
                let is_of_another_shape = test.name.contains("without") || test.name.contains("no text");
                assert!(used.is_empty() || is_of_another_shape, "{}, {}: {used:?}", rule.id, test.name);
            }
        }
    }
}
