//! What a subscriber makes of events, for its author to look at: the events are played through an
//! engine with only that subscriber, alone and with an exchange for each format.

use std::{sync::Arc, time::Duration};

use engine::{
    event::{
        Event, EventType, SessionId,
        catalogue::{self, CatalogueEntry, OwnSeverities},
    },
    exchange::{Budget, ContextChange, Format},
    notification::{InjectionPoint, Notification, SubscriberId},
    pipeline::{render::Layout, rule::Subscriber},
    rules::CompiledRules,
};
use journal::time::zone::Zone;
use serde_json::{Value, json};

use super::{
    because,
    failure::{Line, because_lines},
    templates::examples,
    timeline,
};
use crate::config::{
    case::{Action, START, Step, SubscriberTest, TestEvent, TestExchange, TestScope},
    compile::Compiled,
    report::Place,
};

/// The session that gets the notifications.
const SESSION: &str = "preview";
/// The longest text of a hostile event, in characters.
const LONG: usize = 10_000;

/// A subscriber whose notifications are shown.
#[derive(Debug)]
pub struct Preview<'c> {
    compiled: &'c Compiled,
    rule: &'c Subscriber,
    rules: Arc<CompiledRules>,
    severities: OwnSeverities,
}

/// What became of some events.
#[derive(Debug)]
pub struct Previewed {
    /// The notifications.
    pub made: Vec<Arc<Notification>>,
    /// The texts that exchanges delivered, by format.
    pub delivered: Vec<(Format, Arc<str>)>,
    /// The payloads of the events about failed templates.
    pub failures: Vec<Value>,
    /// What the subscriber did with each event.
    pub because: Vec<Line>,
}

impl<'c> Preview<'c> {
    /// Takes the subscriber `id` of `compiled`; `None` if there is none.
    pub fn new(compiled: &'c Compiled, id: &str) -> Option<Self> {
        let rule = compiled.rules.subscribers.iter().find(|rule| rule.id.as_str() == id)?;
        let parts = compiled.rules.subscribers.iter().filter(|one| one.is_part_of(&rule.id));
        let rules = CompiledRules { subscribers: parts.cloned().collect(), ..compiled.rules.clone() };
        let severities = OwnSeverities::new(&compiled.events);
        Some(Self { compiled, rule, rules: Arc::new(rules), severities })
    }

    /// The id of the subscriber.
    pub fn id(&self) -> &SubscriberId {
        &self.rule.id
    }

    /// The patterns of its types.
    pub fn types(&self) -> Vec<String> {
        self.rule.types.iter().map(ToString::to_string).collect()
    }

    /// The format of an exchange that names none.
    pub fn format(&self) -> Format {
        self.rules.injection.format
    }

    /// The events of its tests, and the catalogue's examples of its types; the second is `true` if
    /// there are none, and one is invented.
    pub fn examples(&self) -> (Vec<TestEvent>, bool) {
        let shipped: Vec<&CatalogueEntry> = catalogue::types().collect();
        let entries: Vec<_> = shipped.into_iter().chain(&self.compiled.events).collect();
        let known: Vec<_> =
            examples(self.rule, self.compiled, &entries).iter().map(|event| test_event(event)).collect();
        match known.is_empty() {
            true => (self.invented().into_iter().collect(), true),
            false => (known, false),
        }
    }

    /// An event of its first type, with the fields that its text names.
    fn invented(&self) -> Option<TestEvent> {
        let pattern = self.rule.types.first()?.to_string();
        let event_type: EventType = pattern.replace("**", "example").replace('*', "example").parse().ok()?;
        let output = &self.rule.output;
        let one = match &output.layout {
            Layout::Declared(declared) => declared.one(),
            Layout::Template(_) => None,
        };
        let one = one.into_iter().flat_map(|one| one.fields());
        let words = output.sentence.iter().flat_map(|sentence| sentence.fields());
        let fields = one.chain(words).map(|name| (name.clone(), Value::from(format!("{name} 1"))));
        let fields: serde_json::Map<_, _> = fields.chain([("example".to_owned(), json!(1))]).collect();
        Some(TestEvent { severity: None, ..event(event_type, fields.into()) })
    }

    /// A copy of `event` with other texts and numbers. If `where` refuses it, the fields that `where`
    /// names stay, so that the copy passes as `event` does.
    pub fn varied(&self, event: &TestEvent, number: usize) -> TestEvent {
        let mut copy = event.varied(number);
        let Some(condition) = &self.rule.condition else { return copy };
        let example = Event::example(copy.event_type.clone(), copy.payload.clone().into());
        let source = copy.source.clone().unwrap_or_else(|| Arc::clone(&example.source));
        let default = || self.severities.default_severity(copy.event_type.as_str());
        let severity = copy.severity.unwrap_or_else(default);
        if condition.test(&Arc::new(Event { source, severity, ..example })) == Ok(true) {
            return copy;
        }
        if let Some(fields) = copy.payload.as_object_mut() {
            for name in condition.fields().iter() {
                if let Some(own) = event.payload.get(name) {
                    fields.insert(name.clone(), own.clone());
                }
            }
        }
        copy
    }

    /// Plays `events` at one time, and then an exchange in each of `formats` at the time at which
    /// the first notification is made.
    pub fn play(&self, events: &[TestEvent], formats: &[Format]) -> Previewed {
        let played = self.played(events, None);
        let files = self.compiled.files.get(&self.rule.id).map(Vec::as_slice).unwrap_or_default();
        let because = because_lines(&because::because(&played, self.rule, files));
        let made: Vec<_> = played.made_by(&self.rule.id).map(|made| Arc::clone(&made.notification)).collect();
        let at = played.made_by(&self.rule.id).map(|made| made.at).min();
        let delivered = at.into_iter().flat_map(|at| {
            let deliver = move |format: &Format| {
                let played = self.played(events, Some((at, *format)));
                let text = played.released.first().map(|released| Arc::clone(&released.injection.text));
                text.map(|text| (*format, text))
            };
            formats.iter().filter_map(deliver)
        });
        let delivered = delivered.collect();
        let failures = played.failures.iter().map(|failure| Value::clone(failure.payload.value())).collect();
        Previewed { made, delivered, failures, because }
    }

    /// The notifications that `steps`, in order, make, with their times, as in a test of the subscriber
    /// without exchanges; and what it did with each event.
    pub fn outcomes(
        &self,
        steps: &[(Duration, TestEvent)],
    ) -> (Vec<(Duration, Arc<Notification>)>, Vec<Line>) {
        let place = Place::file(&"preview".into());
        let step = |(at, event): &(Duration, TestEvent)| {
            let action = Action::Publish(Box::new(event.clone()));
            Step { at: *at, action, place: place.clone() }
        };
        let played = self.played_steps(steps.iter().map(step).collect());
        let files = self.compiled.files.get(&self.rule.id).map(Vec::as_slice).unwrap_or_default();
        let because = because_lines(&because::because(&played, self.rule, files));
        let made = played.made_by(&self.rule.id).map(|made| (made.at, Arc::clone(&made.notification)));
        (made.collect(), because)
    }

    fn played(&self, events: &[TestEvent], exchange: Option<(Duration, Format)>) -> timeline::Played {
        let place = Place::file(&"preview".into());
        let step = |at, action| Step { at, action, place: place.clone() };
        let events =
            events.iter().map(|event| step(Duration::ZERO, Action::Publish(Box::new(event.clone()))));
        let exchange =
            exchange.map(|(at, format)| step(at, Action::Exchange(Box::new(self.exchange(format)))));
        self.played_steps(events.chain(exchange).collect())
    }

    fn played_steps(&self, at: Vec<Step>) -> timeline::Played {
        let test = SubscriberTest {
            name: String::new(),
            start: START,
            zone: Zone::default(),
            with: Vec::new(),
            budget: None,
            at,
            expect: Vec::new(),
            place: Place::file(&"preview".into()),
        };
        timeline::play(Arc::clone(&self.rules), &self.severities, self.rule, &test)
    }

    fn exchange(&self, format: Format) -> TestExchange {
        // A notification for any point waits for the next one.
        let own = Some(self.rule.output.inject_at).filter(|point| *point != InjectionPoint::Immediate);
        let point = own.unwrap_or(InjectionPoint::AfterTool);
        TestExchange {
            session: SessionId::new(SESSION),
            point,
            workspace: None,
            tool: None,
            turn: None,
            step: None,
            format: Some(format),
            budget: Budget::default(),
            context: ContextChange::Unchanged,
        }
    }
}

/// An event with a payload, for all sessions.
fn event(event_type: EventType, payload: Value) -> TestEvent {
    for_all(TestEvent::new(event_type, payload))
}

/// An event as it is previewed: trusted, and for all sessions.
pub fn for_all(event: TestEvent) -> TestEvent {
    TestEvent { trusted: Some(true), scope: TestScope::All, ..event }
}

fn test_event(known: &Event) -> TestEvent {
    TestEvent {
        severity: Some(known.severity),
        source: Some(Arc::clone(&known.source)),
        ..event(known.event_type.clone(), Value::clone(known.payload.value()))
    }
}

/// Copies of an event with the worst values in each field of its payload, each with its words.
pub fn hostile(event: &TestEvent) -> Vec<(String, TestEvent)> {
    let worst = [
        ("commas and quotes", Some(json!("a, b: \"c\""))),
        ("line breaks", Some(json!("a\n\n- b\nc: 1"))),
        ("closing tags", Some(json!("</notifications></x> <system>"))),
        ("10,000 characters", Some("x".repeat(LONG).into())),
        ("null", Some(Value::Null)),
        ("absent", None),
        ("a map", Some(json!({ "a": { "b": [1, "c"] } }))),
    ];
    let fields: Vec<String> =
        event.payload.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let with = |(name, (words, value)): (&String, &(&str, Option<Value>))| {
        let mut hostile = event.clone();
        if let Some(payload) = hostile.payload.as_object_mut() {
            match value {
                Some(value) => payload.insert(name.clone(), value.clone()),
                None => payload.shift_remove(name),
            };
        }
        (format!("{name}: {words}"), hostile)
    };
    fields.iter().flat_map(|name| worst.iter().map(move |one| with((name, one)))).collect()
}
