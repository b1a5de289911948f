//! Compiled rules with files of a user's, and the notifications that they make.

use std::{sync::Arc, time::Duration};

use aside::config::{
    compile::{Compiled, compile},
    layers::{LayerKind, SourceFile, Sources},
};
use engine::{
    Engine, Input, Output,
    event::{Event, Payload, Provenance, Seq, SessionId, Severity, catalogue},
    exchange::Harness,
    notification::Notification,
    pipeline::rule::Subscriber,
};
use journal::time::Timestamp;
use serde_json::Value;

/// The time at which a session opens; the first event follows a minute later.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn user_file(name: &str, text: &str) -> SourceFile {
    SourceFile {
        layer: LayerKind::User,
        name: name.into(),
        path: format!("user/{name}").into(),
        text: text.into(),
    }
}

/// The shipped layer with these files of the user's.
pub(crate) fn with_user(files: &[(&str, &str)]) -> Compiled {
    compile(&with_user_sources(files), &[])
}

/// The files of the same layers.
pub(crate) fn with_user_sources(files: &[(&str, &str)]) -> Sources {
    Sources::shipped().with(files.iter().map(|(name, text)| user_file(name, text)), [])
}

/// The subscriber with this id.
pub(crate) fn rule<'c>(compiled: &'c Compiled, id: &str) -> &'c Arc<Subscriber> {
    let found = compiled.rules.subscribers.iter().find(|rule| rule.id.as_str() == id);
    found.unwrap_or_else(|| panic!("no `{id}`: {}", compiled.report))
}

/// An event of a trusted source for the session `s`.
pub(crate) fn event(event_type: &str, severity: Option<Severity>, payload: &Value) -> Event {
    Event {
        id: format!("{event_type} {payload}").into(),
        event_type: event_type.parse().expect("a type"),
        source: "test".into(),
        provenance: Provenance::Harness,
        severity: severity
            .unwrap_or_else(|| catalogue::OwnSeverities::default().default_severity(event_type)),
        timestamp: START,
        payload: Payload::from(payload.clone()),
        dedupe_key: None,
        session: Some(SessionId::new("s")),
        workspace: None,
        cause: None,
        deliver_after: None,
    }
}

/// Every notification that the rules make of these events, a minute apart from the next.
pub(crate) fn made(compiled: &Compiled, events: &[Event]) -> Vec<Arc<Notification>> {
    let mut engine = Engine::new(Arc::new(compiled.rules.clone()));
    let session = SessionId::new("s");
    engine.handle(Input::SessionOpened { session, harness: Harness::default() }, START);
    let mut made = Vec::new();
    let mut take = |engine: &mut Engine| {
        while let Some(output) = engine.poll_output() {
            if let Output::Made(notification) = output {
                made.push(notification);
            }
        }
    };
    for (number, event) in (1..).zip(events) {
        let at = START + Duration::from_secs(60 * number);
        engine.handle(Input::Event { seq: Seq(number), event: event.as_ref() }, at);
        take(&mut engine);
        engine.handle(Input::Tick, at + Duration::from_secs(59));
        take(&mut engine);
    }
    made
}
