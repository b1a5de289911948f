//! Watches: one notification when a condition becomes true.
//!
//! A watch is an event (`watch.set`) and its state is a fold over events, so a restart loses none
//! and a replay ends each at the same record. Conditions about the machine are reported by
//! `watch.met`; the fold itself sees times, events, turns and sessions. Once enough conditions are
//! met, it returns the event that ends the watch. That event has the id of the watch, so a second
//! publish is a duplicate. docs/design/watches.md describes how the parts work together.

pub mod condition;
pub mod hosts;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use self::condition::Condition;
use crate::{
    event::{Event, EventRef, OWN_SOURCE, Pattern, Provenance, Scope, Seq, SessionId, Severity, Trust},
    time::{Timestamp, short_duration},
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
const TURN_END: &str = "agent.turn.end";
/// Types of the events for the end of a push's checks; the payload is a [`ChecksEnded`].
const CHECKS_ENDED: [&str; 3] = ["ci.run.completed", "ci.run.failed", "ci.follow.ended"];
/// The `reason` of an end that is superseded by another push.
const SUPERSEDED: &str = "superseded";
/// Prefix of the types of these events.
const PREFIX: &str = "watch.";
/// The source of these events; events of other sources have no effect.
pub const SOURCE: &str = OWN_SOURCE;

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
/// Most kept events that ended a watch, until their notifications are created.
const SAID_MAX: usize = 256;
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

/// The subject of a reminder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

impl ReminderKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Discovery, Self::Warning, Self::Checkpoint, Self::Reminder, Self::Context];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Discovery => "discovery",
            Self::Warning => "warning",
            Self::Checkpoint => "checkpoint",
            Self::Reminder => "reminder",
            Self::Context => "context",
        }
    }
}

/// One condition of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its text, as written.
    pub text: String,
    /// Its meaning.
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
    /// When it was set.
    pub set_at: Timestamp,
    /// Its latest end.
    pub expires_at: Timestamp,
    /// The session that is notified; the event that sets the watch is addressed to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The folder whose sessions are notified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Arc<str>>,
}

/// A condition that became true; the payload of a [`MET`] event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Met {
    /// Its watch.
    pub watch: Arc<str>,
    /// Its index in the watch.
    pub condition: usize,
    /// The current state.
    pub state: String,
}

/// A change of a condition.
enum Step {
    /// It became true; the text describes how.
    Met(String),
    /// The number of turns left.
    TurnsLeft(u32),
}

/// The payload of a [`CANCELLED`] or [`FAILED`] event, with the fields that the fold uses.
#[derive(Deserialize)]
struct Ended {
    watch: Arc<str>,
}

/// The end of a commit's checks.
#[derive(Deserialize)]
struct ChecksEnded {
    branch: Option<String>,
    commit: Option<String>,
    reason: Option<String>,
    summary: String,
}

impl ChecksEnded {
    /// Reads it from an event; `None` for other events, and for an end that is superseded by
    /// another push.
    fn of(event: &EventRef<'_>, trust: Trust) -> Option<Self> {
        let is_it = trust.is_trusted() && event.source == SOURCE && CHECKS_ENDED.contains(&event.event_type);
        let ended: Self = is_it.then(|| serde_json::from_str(event.payload).ok())??;
        (ended.reason.as_deref() != Some(SUPERSEDED)).then_some(ended)
    }

    /// Whether `reference` refers to the commit.
    fn is_of(&self, reference: Option<&str>) -> bool {
        let Some(reference) = reference.filter(|reference| *reference != "HEAD") else { return true };
        // It may be a prefix of the commit's id.
        let is_commit =
            |commit: &String| commit.starts_with(reference) || reference.starts_with(commit.as_str());
        self.branch.as_deref() == Some(reference) || self.commit.as_ref().is_some_and(is_commit)
    }
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
        let conditions = joined(met.iter().map(|part| part.text.as_str()).collect());
        let event = if self.is_reminder() {
            let text = payload.remove("note").unwrap_or_else(|| conditions.clone().into());
            payload.insert("text".to_owned(), text);
            if let Some(kind) = self.kind {
                payload.insert("kind".to_owned(), kind.as_str().into());
            }
            self.event(REMINDER, self.id.to_string(), Severity::Info, Value::Object(payload), now)
        } else {
            let states = met.iter().filter_map(|part| part.met.as_deref()).collect();
            payload.insert("condition".to_owned(), conditions.into());
            payload.insert("state".to_owned(), joined(states).into());
            let paths: Vec<&str> = met.iter().filter_map(|part| part.condition.path()).collect();
            if !paths.is_empty() {
                payload.insert("paths".to_owned(), paths.into());
            }
            self.event(FIRED, self.id.to_string(), Severity::Info, Value::Object(payload), now)
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

fn fired(done: &[Arc<Watch>], provenance: Provenance, now: Timestamp) -> Vec<Event> {
    done.iter().map(|watch| watch.fired(provenance, now)).collect()
}

/// All open watches.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct Watches {
    open: BTreeMap<Arc<str>, Arc<Watch>>,
    /// The newest events that ended a watch of a session, oldest first.
    said: VecDeque<(SessionId, Seq)>,
    /// The earliest of the deadlines.
    #[serde(skip)]
    deadline: Option<Timestamp>,
    /// Whether the watches changed since the last [`Watches::take_changes`].
    #[serde(skip)]
    has_changed: bool,
}

/// Their state in a snapshot.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Stored {
    open: BTreeMap<Arc<str>, Arc<Watch>>,
    said: VecDeque<(SessionId, Seq)>,
}

impl From<Stored> for Watches {
    fn from(Stored { open, said }: Stored) -> Self {
        let mut watches = Self { open, said, deadline: None, has_changed: true };
        watches.note_change();
        watches
    }
}

impl Watches {
    /// The open watch with this id.
    pub fn get(&self, id: &str) -> Option<&Arc<Watch>> {
        self.open.get(id)
    }

    /// Whether no watch is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The open ones, sorted by id.
    pub fn open(&self) -> impl Iterator<Item = &Arc<Watch>> {
        self.open.values()
    }

    /// The open ones, if they changed since the last call.
    pub fn take_changes(&mut self) -> Option<Arc<[Arc<Watch>]>> {
        std::mem::take(&mut self.has_changed).then(|| self.open.values().cloned().collect())
    }

    /// Takes an event, trusted or not, and returns the events to publish: ends of watches.
    ///
    /// Shape: an end that an untrusted event causes is untrusted too, so it wakes no session.
    pub fn observe(&mut self, seq: Seq, event: &EventRef<'_>, trust: Trust, now: Timestamp) -> Vec<Event> {
        let is_own = event.source == SOURCE && event.event_type.starts_with(PREFIX);
        if self.open.is_empty() && !(is_own && event.event_type == SET) {
            return Vec::new();
        }
        if is_own {
            return if trust.is_trusted() { self.take_own(event, now) } else { Vec::new() };
        }
        let turn_of = event.session.filter(|_| trust.is_trusted() && event.event_type == TURN_END);
        let checks = ChecksEnded::of(event, trust);
        let step = |condition: &Condition, watch: &Watch| {
            if let Condition::Ci { reference, .. } = condition {
                let checks = checks.as_ref().filter(|checks| checks.is_of(reference.as_deref()))?;
                return watch.is_concerned_by(event).then(|| Step::Met(checks.summary.clone()));
            }
            if let Condition::Event { pattern } = condition {
                let pattern = pattern.parse::<Pattern>().ok()?;
                let is_meant = pattern.matches_text(event.event_type) && watch.is_concerned_by(event);
                return is_meant.then(|| Step::Met(format!("{} from {}", event.event_type, event.source)));
            }
            let Condition::Turns { left } = condition else { return None };
            let is_own = turn_of.is_some() && turn_of == watch.session.as_ref().map(SessionId::as_str);
            is_own.then(|| match left {
                0 | 1 => Step::Met("the turns have ended".to_owned()),
                left => Step::TurnsLeft(left - 1),
            })
        };
        let provenance = if trust.is_trusted() { Provenance::Local } else { event.provenance };
        let done = self.meet(step);
        for watch in &done {
            let is_of_events =
                |part: &Part| matches!(part.condition, Condition::Event { .. } | Condition::Ci { .. });
            let waits_for_events = watch.parts.iter().any(is_of_events);
            if let Some(session) = watch.session.clone().filter(|_| waits_for_events) {
                self.said.push_back((session, seq));
                self.said.drain(..self.said.len().saturating_sub(SAID_MAX));
            }
        }
        fired(&done, provenance, now)
    }

    fn take_own(&mut self, event: &EventRef<'_>, now: Timestamp) -> Vec<Event> {
        match event.event_type {
            SET => self.set(event),
            MET => {
                let Ok(met) = serde_json::from_str::<Met>(event.payload) else { return Vec::new() };
                let Some(watch) = self.open.get_mut(&met.watch) else { return Vec::new() };
                if let Some(part) = Arc::make_mut(watch).parts.get_mut(met.condition) {
                    part.met = Some(met.state);
                }
                return fired(&self.take_done(), Provenance::Local, now);
            }
            CANCELLED | FAILED => {
                if let Ok(Ended { watch }) = serde_json::from_str(event.payload)
                    && self.open.remove(&watch).is_some()
                {
                    self.note_change();
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn set(&mut self, event: &EventRef<'_>) {
        let Ok(watch) = serde_json::from_str::<Watch>(event.payload) else { return };
        let (session, workspace) = (event.session.map(SessionId::new), event.workspace.map(Into::into));
        // The publisher enforces the limits too; this check bounds a forged journal.
        if self.open.len() < ALL_MAX && watch.parts.len() <= CONDITIONS_MAX {
            self.open.insert(Arc::clone(&watch.id), Arc::new(Watch { session, workspace, ..watch }));
            self.note_change();
        }
    }

    /// Applies the steps that `step` returns for unmet conditions.
    fn meet(&mut self, step: impl Fn(&Condition, &Watch) -> Option<Step>) -> Vec<Arc<Watch>> {
        let mut steps = Vec::new();
        for (id, watch) in &self.open {
            let open = watch.parts.iter().enumerate().filter(|(_, part)| part.met.is_none());
            let found = open.filter_map(|(index, part)| Some((index, step(&part.condition, watch)?)));
            steps.extend(found.map(|(index, step)| (Arc::clone(id), index, step)));
        }
        if steps.is_empty() {
            return Vec::new();
        }
        for (id, index, step) in steps {
            let Some(watch) = self.open.get_mut(&id) else { continue };
            let Some(part) = Arc::make_mut(watch).parts.get_mut(index) else { continue };
            match step {
                Step::Met(state) => part.met = Some(state),
                Step::TurnsLeft(left) => part.condition = Condition::Turns { left },
            }
        }
        self.take_done()
    }

    /// Whether the end of a watch of `session` covers all of `events`.
    pub fn has_said(&self, session: &SessionId, events: &[Seq]) -> bool {
        let is_said = |seq: &Seq| self.said.iter().any(|(of, said)| of == session && said == seq);
        !self.said.is_empty() && !events.is_empty() && events.iter().all(is_said)
    }

    /// Removes the watches with enough met conditions.
    fn take_done(&mut self) -> Vec<Arc<Watch>> {
        self.note_change();
        self.take(|watch| watch.is_done())
    }

    fn take(&mut self, is_wanted: impl Fn(&Watch) -> bool) -> Vec<Arc<Watch>> {
        let wanted = self.open.iter().filter(|(_, watch)| is_wanted(watch));
        let wanted: Vec<Arc<str>> = wanted.map(|(id, _)| Arc::clone(id)).collect();
        let taken: Vec<_> = wanted.iter().filter_map(|id| self.open.remove(id)).collect();
        if !taken.is_empty() {
            self.note_change();
        }
        taken
    }

    /// The next time at which a condition is met or a watch expires.
    pub const fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// The events to publish at `now`, after [`Watches::poll_timeout`].
    pub fn take_due(&mut self, now: Timestamp) -> Vec<Event> {
        let come = |condition: &Condition, _: &Watch| {
            let has_come = condition.time().is_some_and(|time| time <= now);
            has_come.then(|| Step::Met("the time has come".to_owned()))
        };
        let mut events = fired(&self.meet(come), Provenance::Local, now);
        let expired = self.take(|watch| watch.expires_at <= now);
        events.extend(expired.iter().map(|watch| watch.expired(now)));
        events
    }

    /// Whether a watch waits for an idle session.
    pub fn waits_for_idle(&self) -> bool {
        let mut parts = self.open.values().flat_map(|watch| &watch.parts);
        parts.any(|part| matches!(part.condition, Condition::Idle { .. }) && part.met.is_none())
    }

    /// Meets conditions on idle sessions; `is_idle` returns whether a session is idle.
    pub fn note_idle(&mut self, is_idle: impl Fn(&SessionId) -> bool, now: Timestamp) -> Vec<Event> {
        let step = |condition: &Condition, _: &Watch| {
            let Condition::Idle { session } = condition else { return None };
            is_idle(session).then(|| Step::Met("no turn is under way".to_owned()))
        };
        fired(&self.meet(step), Provenance::Local, now)
    }

    /// Moves the watches of a session to its successor.
    pub fn follow(&mut self, from: &SessionId, to: &SessionId) {
        self.change_owner(from, |watch| Some(Watch { session: Some(to.clone()), ..watch.clone() }));
    }

    /// Ends the watches of a finally ended session; its reminders move to its folder.
    pub fn end_of(&mut self, session: &SessionId) {
        self.change_owner(session, |watch| {
            let has_turns = watch.parts.iter().any(|part| matches!(part.condition, Condition::Turns { .. }));
            let stays = watch.is_reminder() && !has_turns && watch.workspace.is_some();
            stays.then(|| Watch { session: None, ..watch.clone() })
        });
    }

    fn change_owner(&mut self, session: &SessionId, change: impl Fn(&Watch) -> Option<Watch>) {
        let own = self.take(|watch| watch.session.as_ref() == Some(session));
        let changed: Vec<Watch> = own.iter().filter_map(|watch| change(watch)).collect();
        if !changed.is_empty() {
            self.open.extend(changed.into_iter().map(|watch| (Arc::clone(&watch.id), Arc::new(watch))));
            self.note_change();
        }
    }

    fn note_change(&mut self) {
        self.has_changed = true;
        self.deadline = self.open.values().map(|watch| watch.deadline()).min();
    }
}
