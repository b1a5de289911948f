//! The steps of a test: events, exchanges, sessions, and restarts.

use std::{sync::Arc, time::Duration};

use engine::{
    event::SessionId,
    exchange::{Budget, ContextChange, Format},
    hold::SilenceId,
    nearest::nearest,
    notification::{
        InjectionPoint, SubscriberId, Tokens,
        repeat::{Action as RepeatAction, SNOOZE_MAX},
    },
    pipeline::silence::{ALL_SUBSCRIBERS, Matchers, SILENCE_DEFAULT, SILENCE_MAX},
    user::UserSettings,
    words::impl_as_str,
};
use strum::{IntoStaticStr, VariantArray};

use super::{
    event::{self, SESSION, TestEvent, keep, name},
    fixture::{Fixtures, MARK},
};
use crate::config::{
    mute,
    raw::{Parsed, Section, Value},
    report::{Place, shown},
    subscriber::read_condition,
    values,
};

/// Latest time in a test; a later one is probably a typing mistake. Time costs nothing.
const TEST_TIME_MAX: Duration = Duration::from_secs(400 * 24 * 3600);
/// The name of a silence that names none.
const SILENCE: &str = "silence";
/// Largest limit of an exchange in a test.
const LIMIT_MAX: u32 = 1_000_000;
/// The keys of which a step that is a table has one.
const KINDS: [&str; 7] = ["exchange", "state", "silence", "expire", "settings", "respond", "restart"];

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
    /// An answer to what was delivered last; a snooze lasts so long.
    Respond(RepeatAction, Option<Duration>),
    /// A user's settings are other ones.
    Settings(Box<(Arc<str>, UserSettings)>),
    /// The daemon writes a snapshot, and another one continues from it.
    Restart,
}

impl Action {
    /// The subscribers that it names, each by its id.
    pub fn subscribers(&self) -> Vec<&SubscriberId> {
        match self {
            Self::Silence(silence) => {
                let named = silence.matchers.subscriber.iter();
                named.filter(|id| id.as_str() != ALL_SUBSCRIBERS).collect()
            }
            Self::Settings(own) => {
                let (_, settings) = &**own;
                let muted = settings.mute.iter().filter_map(|mute| mute.subscriber.as_ref());
                settings.disabled.iter().chain(muted).collect()
            }
            Self::Publish(_)
            | Self::Exchange(_)
            | Self::Session(_)
            | Self::Expire(_)
            | Self::Respond(..)
            | Self::Restart => Vec::new(),
        }
    }
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

/// Reads an item of `at`: an array is an event or the events of a fixture, a table one of [`KINDS`].
///
/// Shape: `None` if the fixture has a mistake, which has a finding of its own.
pub(super) fn read(value: &Value<'_>, fixtures: &Fixtures) -> Parsed<Option<Vec<Step>>> {
    match value.section() {
        Some(section) => read_table(value, section).map(|step| Some(vec![step])),
        None => read_events(value, fixtures),
    }
}

fn read_table(value: &Value<'_>, mut section: Section<'_>) -> Parsed<Step> {
    let kinds: Vec<_> = KINDS.into_iter().filter(|kind| section.value(kind).is_some()).collect();
    let [kind] = kinds[..] else {
        if kinds.is_empty() {
            let keys = value.entries().unwrap_or_default();
            let meant = keys.iter().find_map(|(key, item)| Some((nearest(key, KINDS)?, *key, item)));
            let message = format!("a step that is a table has one of the keys {}", KINDS.join(", "));
            return Err(vec![match meant {
                Some((meant, key, item)) => item
                    .key_error(format!("unknown key `{}`", shown(key)))
                    .with_nearest(Some(meant))
                    .with_note(message),
                None => value.error(message),
            }]);
        }
        return Err(vec![
            value.error(format!("a step has one of the keys {}, not several", kinds.join(", "))),
        ]);
    };
    let at = section.require("at", time);
    let place = section.value(kind).map_or_else(|| value.place(), Value::place);
    let action = match kind {
        "exchange" => exchange(&mut section).map(|exchange| Action::Exchange(Box::new(exchange))),
        "state" => session(&mut section).map(Action::Session),
        "silence" => section.read("silence", silence).map(|silence| Action::Silence(Box::new(silence))),
        "respond" => respond(&mut section),
        "settings" => {
            section.read("settings", mute::read_settings).map(|own| Action::Settings(Box::new(own)))
        }
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
        types: section.read("types", values::patterns).unwrap_or_default(),
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
        let message = "a silence names what it suppresses: `subscriber`, `types`, `source`, `where`, `session` or `workspace`";
        return Err(vec![value.error(message)]);
    }
    Ok(TestSilence { id, matchers, lasts: lasts.unwrap_or(SILENCE_DEFAULT) })
}

fn respond(section: &mut Section<'_>) -> Option<Action> {
    let action = section.read("respond", values::word::<RepeatAction>)?;
    let lasts = section.read("for", |value| values::duration(value, Duration::from_secs(1)..=SNOOZE_MAX));
    if action != RepeatAction::Snooze {
        section.object("for", |value| value.error("`for` belongs to `respond = \"snooze\"`"));
    }
    Some(Action::Respond(action, lasts))
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

fn read_events(value: &Value<'_>, fixtures: &Fixtures) -> Parsed<Option<Vec<Step>>> {
    let wrong = || {
        value.wrong_kind(
            "an event such as [\"0ms\", \"tool.call.failure\", { tool_name = \"grep\" }], or a table",
        )
    };
    let items = value.items().ok_or_else(wrong)?;
    let wrong_count = || {
        let count = items.len();
        value.error(format!("an event has 3 or 4 items (time, type, payload, attributes), not {count}"))
    };
    let (at, named, rest) = match items.as_slice() {
        [at, named, rest @ ..] if rest.len() <= 2 => (at, named, rest),
        _ => return Err(vec![wrong_count()]),
    };
    let (mut found, place) = (Vec::new(), named.place());
    let time = keep(&mut found, time(at));
    let fixture = named.get().as_str().and_then(|name| name.strip_prefix(MARK));
    let events = match (fixture, rest) {
        (Some(name), []) => fixtures.events(name, named),
        (Some(_), [first, ..]) => {
            Err(vec![first.error("a fixture is named alone: its file has the payloads and attributes")])
        }
        (None, [payload, attributes @ ..]) => event::read(named, payload, attributes.first()).map(Some),
        (None, []) => {
            let note = format!("the events of a fixture are written [\"0s\", \"{MARK}name\"]");
            Err(vec![wrong_count().with_note(note)])
        }
    };
    let events = keep(&mut found, events);
    match (time, events) {
        (Some(at), Some(events)) if found.is_empty() => {
            let step = |event| Step { at, action: Action::Publish(Box::new(event)), place: place.clone() };
            Ok(events.map(|events| events.into_iter().map(step).collect()))
        }
        _ => Err(found),
    }
}
