//! Watches: one notification when a condition becomes true.
//!
//! A watch is an event (`watch.set`) and its state is a fold over events, so a restart loses none
//! and a replay ends each at the same record. Conditions about the machine are reported by
//! `watch.met`; the fold itself sees times, events, turns and sessions. Once enough conditions are
//! met, it returns the event that ends the watch. That event has the id of the watch, so a second
//! publish is a duplicate. docs/design/watches.md describes how the parts work together.
//!
//! Shape: a part of a watch is read as one struct with the fields of every kind of condition.
//! Reading an enum within a struct by its derived implementation would first copy each field, and
//! then choose the kind.

pub mod condition;
mod fold;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use journal::time::{Timestamp, short_duration};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use strum::{IntoStaticStr, VariantArray};

use crate::{
    event::{Event, EventRef, Provenance, Scope, SessionId, Severity},
    notification::Priority,
};

pub use self::{
    condition::{Condition, ReadPosition},
    fold::Watches,
};

/// The type of the event that sets a watch; its payload is a [`Watch`].
pub const SET: &str = "watch.set";
/// The type of the event for a condition that became true; its payload is a [`Met`].
pub const MET: &str = "watch.met";
/// The type of the event that cancels a watch.
pub const CANCELLED: &str = "watch.cancelled";
/// The type of the event for a condition that cannot be checked; its payload has `watch` and
/// `error`.
pub const FAILED: &str = "watch.failed";
const FIRED: &str = "watch.fired";
const EXPIRED: &str = "watch.expired";
const REMINDER: &str = "reminder.due";

/// Most open watches of a session, or of a folder. An agent that needs more is waiting for the same
/// thing repeatedly.
pub const PER_OWNER_MAX: usize = 32;
/// Most open watches in total; each may hold an open file or a connection.
pub const ALL_MAX: usize = 256;
/// Most conditions of a watch.
pub const CONDITIONS_MAX: usize = 8;
/// Default duration of a watch.
pub const EXPIRES_DEFAULT: Duration = Duration::from_secs(60 * 60);
/// Longest duration of a watch.
pub const EXPIRES_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Longest note, in characters.
pub const NOTE_CHARS_MAX: usize = 500;

/// How many conditions have to be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Needs {
    /// One.
    #[default]
    Any,
    /// All, in any order.
    All,
}

impl_as_str!(ReminderKind);

/// The subject of a reminder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReminderKind {
    /// A discovery.
    Discovery,
    /// A danger.
    Warning,
    /// A check before continuing.
    Checkpoint,
    /// A task.
    Reminder,
    /// Background information.
    Context,
}

/// One condition of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredPart")]
pub struct Part {
    /// Its text, as written.
    pub text: String,
    /// What the text means.
    #[serde(flatten)]
    pub condition: Condition,
    /// How it became true; `None` if it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met: Option<String>,
}

/// A watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// Its id, also of the event that ends it.
    #[serde(rename = "watch")]
    pub id: Arc<str>,
    /// Its conditions, at least one.
    #[serde(rename = "conditions")]
    pub parts: Vec<Part>,
    /// How many of them have to be met.
    #[serde(default)]
    pub needs: Needs,
    /// The note for its notification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The kind of reminder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ReminderKind>,
    /// The priority of its notification; that of its subscriber if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// When it was set.
    pub set_at: Timestamp,
    /// When it ends although it was not met.
    pub expires_at: Timestamp,
    /// The session that is notified; the event that sets the watch is addressed to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The folder whose sessions are notified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Arc<str>>,
    /// The caller that set it, which has a share of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Arc<str>>,
}

/// A condition that became true; the payload of a [`MET`] event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Met {
    /// Its watch.
    pub watch: Arc<str>,
    /// Its index in the watch.
    pub condition: usize,
    /// What was found when it became true.
    pub state: String,
}

/// A change of a condition.
enum Step {
    /// It became true; the text describes how.
    Met(String),
    /// The number of turns left.
    TurnsLeft(u32),
    /// It cannot be checked, for this reason.
    Failed(String),
}

impl Watch {
    /// The event that sets it.
    pub fn set_event(&self) -> Event {
        let payload = serde_json::to_value(self).expect("texts and numbers always serialize");
        self.event(SET, format!("{}:set", self.id), Severity::Debug, payload, self.set_at)
    }

    /// The event for its met condition `condition`.
    pub fn met_event(&self, condition: usize, state: &str, now: Timestamp) -> Event {
        let met = Met { watch: Arc::clone(&self.id), condition, state: state.to_owned() };
        let payload = serde_json::to_value(met).expect("texts and numbers always serialize");
        self.event(MET, format!("{}:met:{condition}", self.id), Severity::Debug, payload, now)
    }

    /// The event that cancels it.
    pub fn cancelled_event(&self, now: Timestamp) -> Event {
        let payload = json!({ "watch": self.id });
        self.event(CANCELLED, format!("{}:cancelled", self.id), Severity::Debug, payload, now)
    }

    /// The event that ends it because its condition `condition` cannot be checked.
    pub fn failed_event(&self, condition: usize, error: &str, now: Timestamp) -> Event {
        let mut payload = self.ending(now);
        let text = self.parts.get(condition).map(|part| part.text.as_str());
        payload.insert("condition".to_owned(), text.into());
        payload.insert("error".to_owned(), error.into());
        self.event(FAILED, self.id.to_string(), Severity::Warning, Value::Object(payload), now)
    }

    fn event(
        &self,
        event_type: &str,
        id: String,
        severity: Severity,
        payload: Value,
        now: Timestamp,
    ) -> Event {
        Event {
            session: self.session.clone(),
            workspace: self.workspace.clone(),
            ..Event::own(event_type, id, severity, payload, now)
        }
    }

    /// Payload fields of every end.
    fn ending(&self, now: Timestamp) -> Map<String, Value> {
        let mut payload = Map::new();
        payload.insert("watch".to_owned(), Value::from(&*self.id));
        if let Some(note) = &self.note {
            payload.insert("note".to_owned(), Value::from(note.as_str()));
        }
        if let Some(priority) = self.priority {
            payload.insert("priority".to_owned(), priority.as_str().into());
        }
        payload.insert("after".to_owned(), short_duration(now.since(self.set_at)).into());
        payload
    }

    fn is_done(&self) -> bool {
        let mut met = self.parts.iter().map(|part| part.met.is_some());
        match self.needs {
            Needs::Any => met.any(|is_met| is_met),
            Needs::All => met.all(|is_met| is_met),
        }
    }

    /// Whether it is a reminder: all its conditions are times.
    fn is_reminder(&self) -> bool {
        self.parts.iter().all(|part| part.condition.is_time())
    }

    /// The event when enough conditions are met.
    fn fired(&self, provenance: Provenance, now: Timestamp) -> Event {
        let met: Vec<&Part> = self.parts.iter().filter(|part| part.met.is_some()).collect();
        let joined = |texts: Vec<&str>| texts.join("; ");
        let mut payload = self.ending(now);
        // A critical event makes a critical notification.
        let is_critical = self.priority == Some(Priority::Critical);
        let severity = if is_critical { Severity::Critical } else { Severity::Info };
        let conditions = joined(met.iter().map(|part| part.text.as_str()).collect());
        let event = if self.is_reminder() {
            let text = payload.remove("note").unwrap_or_else(|| conditions.clone().into());
            payload.insert("text".to_owned(), text);
            if let Some(kind) = self.kind {
                payload.insert("kind".to_owned(), kind.as_str().into());
            }
            self.event(REMINDER, self.id.to_string(), severity, Value::Object(payload), now)
        } else {
            let states = met.iter().filter_map(|part| part.met.as_deref()).collect();
            payload.insert("condition".to_owned(), conditions.into());
            payload.insert("state".to_owned(), joined(states).into());
            let paths: Vec<&str> = met.iter().filter_map(|part| part.condition.path()).collect();
            if !paths.is_empty() {
                payload.insert("paths".to_owned(), paths.into());
            }
            self.event(FIRED, self.id.to_string(), severity, Value::Object(payload), now)
        };
        Event { provenance, ..event }
    }

    fn expired(&self, now: Timestamp) -> Event {
        let mut payload = self.ending(now);
        let open = self.parts.iter().filter(|part| part.met.is_none()).map(|part| part.text.as_str());
        payload.insert("condition".to_owned(), open.collect::<Vec<_>>().join("; ").into());
        self.event(EXPIRED, self.id.to_string(), Severity::Info, Value::Object(payload), now)
    }

    /// The next time at which one of its conditions is met, or it expires.
    fn deadline(&self) -> Timestamp {
        let open = self.parts.iter().filter(|part| part.met.is_none());
        let times = open.filter_map(|part| part.condition.time());
        times.chain([self.expires_at]).min().unwrap_or(self.expires_at)
    }

    /// Whether an event is addressed to the watch's owner itself.
    fn owns(&self, event: &EventRef<'_>) -> bool {
        match &self.session {
            Some(session) => event.session == Some(session.as_str()),
            None => event.workspace == self.workspace.as_deref(),
        }
    }

    /// Whether an event's scope includes the watch's owner.
    fn is_concerned_by(&self, event: &EventRef<'_>) -> bool {
        let scope = match (event.session, event.workspace) {
            (Some(session), _) => Scope::Session(SessionId::new(session)),
            (None, Some(folder)) => Scope::Workspace(folder.into()),
            (None, None) => Scope::All,
        };
        match (&self.session, &self.workspace) {
            (Some(session), folder) => scope.concerns(session, folder.as_deref()),
            (None, Some(folder)) => scope.meets(&Scope::Workspace(Arc::clone(folder))),
            (None, None) => true,
        }
    }
}

#[derive(Deserialize)]
struct StoredPart {
    text: String,
    met: Option<String>,
    kind: Kind,
    pid: Option<u32>,
    started: Option<u64>,
    host: Option<String>,
    port: Option<u16>,
    open: Option<bool>,
    url: Option<String>,
    status: Option<u16>,
    path: Option<String>,
    exists: Option<bool>,
    since: Option<String>,
    pattern: Option<String>,
    from: Option<ReadPosition>,
    reference: Option<String>,
    folder: Option<String>,
    time: Option<Timestamp>,
    left: Option<u32>,
    name: Option<String>,
    share: Option<u8>,
    session: Option<SessionId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Exit,
    Port,
    Http,
    File,
    Change,
    Line,
    Ci,
    Event,
    At,
    Turns,
    Tool,
    Context,
    Idle,
}

/// A part lacks a field that its kind of condition has.
#[derive(Debug, thiserror::Error)]
#[error("a condition lacks a field of its kind")]
struct Incomplete;

impl TryFrom<StoredPart> for Part {
    type Error = Incomplete;

    fn try_from(mut part: StoredPart) -> Result<Self, Incomplete> {
        let (text, met) = (std::mem::take(&mut part.text), part.met.take());
        let condition = part.condition().ok_or(Incomplete)?;
        Ok(Self { text, condition, met })
    }
}

impl StoredPart {
    fn condition(self) -> Option<Condition> {
        Some(match self.kind {
            Kind::Exit => Condition::Exit { pid: self.pid?, started: self.started },
            Kind::Port => Condition::Port { host: self.host?, port: self.port?, open: self.open? },
            Kind::Http => Condition::Http { url: self.url?, status: self.status },
            Kind::File => Condition::File { path: self.path?, exists: self.exists? },
            Kind::Change => Condition::Change { path: self.path?, since: self.since },
            Kind::Line => Condition::Line { path: self.path?, pattern: self.pattern?, from: self.from },
            Kind::Ci => Condition::Ci { reference: self.reference, folder: self.folder? },
            Kind::Event => Condition::Event { pattern: self.pattern? },
            Kind::At => Condition::At { time: self.time? },
            Kind::Turns => Condition::Turns { left: self.left? },
            Kind::Tool => Condition::Tool { name: self.name? },
            Kind::Context => Condition::Context { share: self.share? },
            Kind::Idle => Condition::Idle { session: self.session? },
        })
    }
}
