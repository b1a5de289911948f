//! The events of a test, such as `["0ms", "tool.call.failure", { tool_name = "grep" }]`.

use std::sync::Arc;

use engine::{
    event::{EventType, SessionId, Severity},
    hold::{DELAY_FORMS, EventDelay},
};
use serde_json::Value as Json;

use super::copies::vary;
use crate::config::{
    raw::{Parsed, Section, Value},
    report::Diagnostic,
    values,
};

/// Most copies of an event.
const COPIES_MAX: usize = 1_000;
/// The session of a step that names none.
pub(super) const SESSION: &str = "s";

/// An event of a test.
#[derive(Debug, Clone, PartialEq)]
pub struct TestEvent {
    /// The type of the event.
    pub event_type: EventType,
    /// Its payload, a JSON object.
    pub payload: Json,
    /// Its severity; the catalogue's if `None`.
    pub severity: Option<Severity>,
    /// The component it comes from, if the test has one.
    pub source: Option<Arc<str>>,
    /// Whether its source is trusted; as the daemon would decide if `None`.
    pub trusted: Option<bool>,
    /// The producer's own dedupe key.
    pub dedupe_key: Option<Arc<str>>,
    /// What its delivery waits for.
    pub deliver_after: Option<Arc<str>>,
    /// The sessions that it is for.
    pub scope: TestScope,
}

impl TestEvent {
    /// An event for the session of a step that names none.
    pub fn new(event_type: EventType, payload: Json) -> Self {
        Self::with(event_type, payload, &Attributes::default())
    }

    fn with(event_type: EventType, payload: Json, attributes: &Attributes) -> Self {
        let Attributes { severity, source, trusted, dedupe_key, deliver_after, scope, copies: _ } =
            attributes.clone();
        Self { event_type, payload, severity, source, trusted, dedupe_key, deliver_after, scope }
    }

    /// A copy with other texts and numbers; number 0 is the event itself.
    #[must_use]
    pub fn varied(&self, number: usize) -> Self {
        let mut varied = self.clone();
        if number > 0 {
            vary(&mut varied.payload, number);
        }
        varied
    }
}

/// The sessions that an event of a test is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestScope {
    /// This one.
    Session(SessionId),
    /// Those in, under or above this folder.
    Workspace(Arc<str>),
    /// All.
    All,
}

/// Reads the items of an event after its time: the event, or its copies.
pub(super) fn read(
    event_type: &Value<'_>,
    payload: &Value<'_>,
    attributes: Option<&Value<'_>>,
) -> Parsed<Vec<TestEvent>> {
    let mut found = Vec::new();
    let mut section = attributes.and_then(Value::section);
    if let (Some(attributes), None) = (attributes, &section) {
        found.extend(attributes.wrong_kind("a table"));
    }
    let event_type = keep(&mut found, values::parsed(event_type));
    let payload = keep(&mut found, values::object(payload));
    let attributes = section.as_mut().map(attributes_of).unwrap_or_default();
    found.extend(section.map(Section::finish).unwrap_or_default());
    match (event_type, payload) {
        (Some(event_type), Some(payload)) if found.is_empty() => {
            let event = TestEvent::with(event_type, payload, &attributes);
            Ok((0..attributes.copies).map(|number| event.varied(number)).collect())
        }
        _ => Err(found),
    }
}

/// A text of a section.
pub(super) fn name(section: &mut Section<'_>, key: &'static str) -> Option<Arc<str>> {
    section.read(key, values::words).map(Arc::from)
}

/// The last item of an event.
#[derive(Clone)]
struct Attributes {
    severity: Option<Severity>,
    source: Option<Arc<str>>,
    trusted: Option<bool>,
    dedupe_key: Option<Arc<str>>,
    deliver_after: Option<Arc<str>>,
    scope: TestScope,
    /// How many events it is, each with other texts and numbers.
    copies: usize,
}

impl Default for Attributes {
    fn default() -> Self {
        let scope = TestScope::Session(SessionId::new(SESSION));
        Self {
            severity: None,
            source: None,
            trusted: None,
            dedupe_key: None,
            deliver_after: None,
            scope,
            copies: 1,
        }
    }
}

fn attributes_of(section: &mut Section<'_>) -> Attributes {
    let severity = section.read("severity", values::severity);
    let [source, dedupe_key, session] = ["source", "dedupe_key", "session"].map(|key| name(section, key));
    let trusted = section.read("trusted", values::flag);
    let deliver_after = section.read("deliver_after", event_delay);
    let workspace: Option<Arc<str>> = section.read("workspace", values::absolute_path);
    let everywhere = section.read("everywhere", values::flag).unwrap_or_default();
    let scopes = usize::from(session.is_some()) + usize::from(workspace.is_some()) + usize::from(everywhere);
    if scopes > 1 {
        let key = if everywhere { "everywhere" } else { "workspace" };
        let message = "an event has one of session, workspace and everywhere";
        section.object(key, |value| value.error(message));
    }
    let scope = match (session, workspace, everywhere) {
        (_, _, true) => TestScope::All,
        (_, Some(folder), _) => TestScope::Workspace(folder),
        (session, ..) => TestScope::Session(SessionId::new(session.as_deref().unwrap_or(SESSION))),
    };
    let copies = section.read("copies", |value| values::integer(value, 1..=COPIES_MAX)).unwrap_or(1);
    Attributes { severity, source, trusted, dedupe_key, deliver_after, scope, copies }
}

fn event_delay(value: &Value<'_>) -> Parsed<Arc<str>> {
    let text = values::words(value)?;
    match text.parse::<EventDelay>() {
        Ok(_) => Ok(text.into()),
        Err(error) => {
            let forms = format!("a delay is {DELAY_FORMS}, or several of them with ` or ` between them");
            Err(vec![value.error(error.to_string()).with_note(forms)])
        }
    }
}

pub(super) fn keep<T>(found: &mut Vec<Diagnostic>, parsed: Parsed<T>) -> Option<T> {
    parsed.map_err(|wrong| found.extend(wrong)).ok()
}
