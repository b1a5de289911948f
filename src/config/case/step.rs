//! The steps of a test: events, exchanges, sessions, and restarts.

use std::{sync::Arc, time::Duration};

use engine::{
    event::{EventType, Pattern, SessionId, Severity},
    exchange::{Budget, ContextChange, Format},
    hold::SilenceId,
    notification::{InjectionPoint, SubscriberId, Tokens},
    pipeline::silence::{Matchers, SILENCE_DEFAULT, SILENCE_MAX},
    words::impl_as_str,
};
use serde_json::Value as Json;
use strum::{IntoStaticStr, VariantArray};

use crate::config::{
    raw::{Parsed, Section, Value},
    report::{Diagnostic, Place},
    subscriber::read_condition,
    values,
};

/// Latest time in a test; a later one is probably a typing mistake. Time costs nothing.
const TEST_TIME_MAX: Duration = Duration::from_secs(400 * 24 * 3600);
/// The session of a step that names none.
const SESSION: &str = "s";
/// The name of a silence that names none.
const SILENCE: &str = "silence";
/// Largest limit of an exchange in a test.
const LIMIT_MAX: u32 = 1_000_000;
/// The keys of which a step that is a table has one.
const KINDS: [&str; 5] = ["exchange", "state", "silence", "expire", "restart"];

/// One step of a test.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// When it happens.
    pub at: Duration,
    /// What happens.
    pub action: Action,
    /// The position of its type, or of its kind.
    pub place: Place,
}

/// What happens at a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// An event is published.
    Publish(Box<TestEvent>),
    /// A harness makes an exchange.
    Exchange(Box<TestExchange>),
    /// A session opens, is suspended or ends.
    Session(TestSession),
    /// A person silences something.
    Silence(Box<TestSilence>),
    /// A person ends a silence, by its name.
    Expire(SilenceId),
    /// The daemon writes a snapshot, and another one continues from it.
    Restart,
}

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
    /// The sessions that it is for.
    pub scope: TestScope,
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

/// An exchange of a test.
#[derive(Debug, Clone, PartialEq)]
pub struct TestExchange {
    /// Its session.
    pub session: SessionId,
    /// Its point.
    pub point: InjectionPoint,
    /// The folder of the session.
    pub workspace: Option<Arc<str>>,
    /// The tool of the call or result.
    pub tool: Option<Arc<str>>,
    /// The turn; the number of the session's turn if `None`.
    pub turn: Option<Arc<str>>,
    /// The step of the turn; the number of the exchange if `None`.
    pub step: Option<Arc<str>>,
    /// The format; the configured one if `None`.
    pub format: Option<Format>,
    /// Lower limits.
    pub budget: Budget,
    /// The change of the session's context.
    pub context: ContextChange,
}

/// A change of a session in a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestSession {
    /// The session.
    pub session: SessionId,
    /// The change.
    pub change: TestSessionState,
    /// Its folder, if it opens in one.
    pub workspace: Option<Arc<str>>,
    /// The session of which it is a subagent.
    pub parent: Option<SessionId>,
}

/// A silence of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestSilence {
    /// Its name.
    pub id: SilenceId,
    /// What it suppresses.
    pub matchers: Matchers,
    /// How long.
    pub lasts: Duration,
}

impl_as_str!(TestSessionState);

/// What a session becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TestSessionState {
    /// It opens.
    Open,
    /// It ends, and may be resumed.
    Suspended,
    /// It ends.
    Closed,
}

/// The words of `context`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
enum ContextWord {
    Unchanged,
    Compacted,
    Resumed,
    Cleared,
    Forked,
}

/// A time of a test.
pub(super) fn time(value: &Value<'_>) -> Parsed<Duration> {
    values::duration(value, Duration::ZERO..=TEST_TIME_MAX)
}

/// Reads a step: an array is an event, a table one of [`KINDS`].
pub(super) fn read(value: &Value<'_>) -> Parsed<Step> {
    match value.section() {
        Some(section) => read_table(value, section),
        None => read_event(value),
    }
}

fn read_table(value: &Value<'_>, mut section: Section<'_>) -> Parsed<Step> {
    let kinds: Vec<_> = KINDS.into_iter().filter(|kind| section.value(kind).is_some()).collect();
    let [kind] = kinds[..] else {
        let message = match kinds[..] {
            [] => format!("a step that is a table has one of the keys {}", KINDS.join(", ")),
            _ => format!("a step has one of the keys {}, not several", kinds.join(", ")),
        };
        return Err(vec![value.error(message)]);
    };
    let at = section.require("at", time);
    let place = section.value(kind).map_or_else(|| value.place(), Value::place);
    let action = match kind {
        "exchange" => exchange(&mut section).map(|exchange| Action::Exchange(Box::new(exchange))),
        "state" => session(&mut section).map(Action::Session),
        "silence" => section.read("silence", silence).map(|silence| Action::Silence(Box::new(silence))),
        "expire" => name(&mut section, "expire").map(|id| Action::Expire(SilenceId::new(&id))),
        _ => section.read("restart", values::flag).filter(|is_asked| *is_asked).map(|_| Action::Restart),
    };
    if kind == "restart" && action.is_none() && !section.is_wrong("restart") {
        section.object("restart", |value| value.error("`restart` is true or absent"));
    }
    let found = section.finish();
    match (at, action) {
        (Some(at), Some(action)) if found.is_empty() => Ok(Step { at, action, place }),
        _ => Err(found),
    }
}

fn name(section: &mut Section<'_>, key: &'static str) -> Option<Arc<str>> {
    section.read(key, values::words).map(Arc::from)
}

fn session_of(section: &mut Section<'_>) -> SessionId {
    SessionId::new(name(section, "session").as_deref().unwrap_or(SESSION))
}

fn exchange(section: &mut Section<'_>) -> Option<TestExchange> {
    let point = section.read("exchange", values::word::<InjectionPoint>);
    let session = session_of(section);
    let workspace = section.read("workspace", values::absolute_path);
    let [tool, turn, step] = ["tool", "turn", "step"].map(|key| name(section, key));
    let format = section.read("format", values::word::<Format>);
    let budget = section.read("budget", budget).unwrap_or_default();
    let from = name(section, "from").map(|id| SessionId::new(&id));
    let word = section.read("context", values::word::<ContextWord>);
    let context = match word {
        None => ContextChange::Unstated,
        Some(ContextWord::Unchanged) => ContextChange::Unchanged,
        Some(ContextWord::Compacted) => ContextChange::Compacted,
        Some(ContextWord::Resumed) => ContextChange::Resumed,
        Some(ContextWord::Cleared) => ContextChange::Cleared { from },
        Some(ContextWord::Forked) => ContextChange::Forked { from },
    };
    if context.origin().is_none() {
        section
            .object("from", |value| value.error("`from` belongs to `context = \"cleared\"` or \"forked\""));
    }
    Some(TestExchange { session, point: point?, workspace, tool, turn, step, format, budget, context })
}

fn budget(value: &Value<'_>) -> Parsed<Budget> {
    let mut section = value.section().ok_or_else(|| value.wrong_kind("a table"))?;
    let number = |value: &Value<'_>| values::integer(value, 1..=LIMIT_MAX);
    let budget = Budget {
        max_notifications: section.read("max_notifications", number),
        max_tokens: section.read("max_tokens", number).map(Tokens),
        max_chars: section.read("max_chars", number),
    };
    let found = section.finish();
    if found.is_empty() { Ok(budget) } else { Err(found) }
}

fn silence(value: &Value<'_>) -> Parsed<TestSilence> {
    let mut section = value.section().ok_or_else(|| value.wrong_kind("a table"))?;
    let id = name(&mut section, "name").map_or_else(|| SilenceId::new(SILENCE), |id| SilenceId::new(&id));
    let [subscriber, source, session] =
        ["subscriber", "source", "session"].map(|key| name(&mut section, key));
    let matchers = Matchers {
        subscriber: subscriber.map(|id| SubscriberId::new(&id)),
        types: section.read("type", values::parsed::<Pattern>),
        source,
        condition: section.read("where", read_condition).map(|condition| condition.source().into()),
        session: session.map(|id| SessionId::new(&id)),
        workspace: section.read("workspace", values::absolute_path),
        critical: section.read("critical", values::flag).unwrap_or_default(),
    };
    let lasts = section.read("for", |value| values::duration(value, Duration::from_secs(1)..=SILENCE_MAX));
    let found = section.finish();
    if !found.is_empty() {
        return Err(found);
    }
    if matchers.is_empty() {
        let message = "a silence names what it suppresses: `subscriber`, `type`, `source`, `where`, `session` or `workspace`";
        return Err(vec![value.error(message)]);
    }
    Ok(TestSilence { id, matchers, lasts: lasts.unwrap_or(SILENCE_DEFAULT) })
}

fn session(section: &mut Section<'_>) -> Option<TestSession> {
    let change = section.read("state", values::word::<TestSessionState>);
    let session = session_of(section);
    let workspace = section.read("workspace", values::absolute_path);
    let parent = name(section, "parent").map(|id| SessionId::new(&id));
    if change.is_some_and(|change| change != TestSessionState::Open) {
        for key in ["workspace", "parent"] {
            section.object(key, |value| value.error(format!("`{key}` belongs to `state = \"open\"`")));
        }
    }
    Some(TestSession { session, change: change?, workspace, parent })
}

fn read_event(value: &Value<'_>) -> Parsed<Step> {
    let wrong = || {
        value.wrong_kind(
            "an event such as [\"0ms\", \"tool.call.failure\", { tool_name = \"grep\" }], or a table",
        )
    };
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
    let mut found = Vec::new();
    let mut section = attributes.and_then(Value::section);
    if let (Some(attributes), None) = (attributes, &section) {
        found.extend(attributes.wrong_kind("a table"));
    }
    let at = keep(&mut found, time(at));
    let place = event_type.place();
    let event_type = keep(&mut found, values::parsed(event_type));
    let payload = keep(&mut found, values::object(payload));
    let attributes = section.as_mut().map(attributes_of).unwrap_or_default();
    found.extend(section.map(Section::finish).unwrap_or_default());
    match (at, event_type, payload) {
        (Some(at), Some(event_type), Some(payload)) if found.is_empty() => {
            let Attributes { severity, source, trusted, dedupe_key, scope } = attributes;
            let event = TestEvent { event_type, payload, severity, source, trusted, dedupe_key, scope };
            Ok(Step { at, action: Action::Publish(Box::new(event)), place })
        }
        _ => Err(found),
    }
}

/// The fourth item of an event.
struct Attributes {
    severity: Option<Severity>,
    source: Option<Arc<str>>,
    trusted: Option<bool>,
    dedupe_key: Option<Arc<str>>,
    scope: TestScope,
}

impl Default for Attributes {
    fn default() -> Self {
        let scope = TestScope::Session(SessionId::new(SESSION));
        Self { severity: None, source: None, trusted: None, dedupe_key: None, scope }
    }
}

fn attributes_of(section: &mut Section<'_>) -> Attributes {
    let severity = section.read("severity", values::severity);
    let [source, dedupe_key, session] = ["source", "dedupe_key", "session"].map(|key| name(section, key));
    let trusted = section.read("trusted", values::flag);
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
    Attributes { severity, source, trusted, dedupe_key, scope }
}

fn keep<T>(found: &mut Vec<Diagnostic>, parsed: Parsed<T>) -> Option<T> {
    parsed.map_err(|wrong| found.extend(wrong)).ok()
}
