//! A subscriber's message about one or more events: text, priority, and injection point; and the
//! resolution of conditions by an event.
//!
//! A notification is immutable and shared between the queues of its sessions; the ledger records
//! its outcome in each of them. In a snapshot a notification is an entry of a table, because many
//! queues may share it.

mod counts;
pub mod link;
mod notice;
mod priority;
pub mod repeat;
mod version;

use std::{fmt, ops::Not, str::FromStr, sync::Arc};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};
use toon::Document;

use self::repeat::Repeat;
use crate::{
    event::{Scope, Seq, Severity},
    hold::Postponed,
    name::ShortName,
    snapshot::{self, Damaged, Shared},
    words::Words,
};

pub use counts::{Counts, Detail, LeftOut, NAMED_MAX, Waiting};
pub use notice::{Category, Level, TemplateNotice, WORDS_MAX};
pub use priority::Priority;
pub use toon::Tokens;
pub use version::{Ordinal, Relation, Version};

impl_as_str!(InjectionPoint, Activation, ActiveFor, Audience, Sink, Interrupt, RegionUse);

/// The moments at which text may enter an agent's context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, strum::Display, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum InjectionPoint {
    /// As soon as the harness can; critical notifications only.
    Immediate,
    /// Before the model sees the user's message.
    TurnStart,
    /// Before a tool runs; a harness can pause here for a decision.
    BeforeTool,
    /// With the result of a tool.
    AfterTool,
    /// When the agent is about to end its turn.
    TurnEnd,
}

/// The action of a pending notification, in ascending order of strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Activation {
    /// None; it waits for a point that releases it.
    #[default]
    Passive,
    /// It is shown to the user, and delivered to the agent after the user approves.
    Prompt,
    /// It wakes the agent.
    Active,
}

/// The scopes in which an active notification of a subscriber wakes an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ActiveFor {
    /// All.
    #[default]
    Any,
    /// One session: a notification for a folder or for all sessions is passive.
    Session,
}

/// Whether the region of a session has the notifications of a subscriber, while what they report is
/// true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RegionUse {
    /// It has none of them.
    Never,
    /// It has their conditions and retained states, which are delivered too.
    #[default]
    Also,
    /// It has their conditions and retained states, and no point releases them, unless they are
    /// critical.
    Only,
}

impl RegionUse {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The kind of report: an occurrence or only conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nature {
    /// An occurrence; it is delivered even if its conditions are resolved.
    #[default]
    Occurrence,
    /// Only conditions, which hold until they are resolved.
    Condition,
}

/// The recipients of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Audience {
    /// The agents in its scope.
    #[default]
    Agent,
    /// Their user: it goes to the default sinks, and to no agent.
    User,
    /// Both.
    Both,
}

/// A sink for user notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Sink {
    /// A line that a session's harness shows with its next hook.
    Harness,
    /// The desktop's notifications.
    Desktop,
    /// A file of JSON lines.
    Log,
    /// An ntfy server.
    Ntfy,
    /// A server that accepts signed webhooks.
    Webhook,
    /// The `apprise` command, which supports about a hundred services.
    Apprise,
    /// A program of the user, such as an editor or a terminal multiplexer.
    Command,
}

/// How a sink delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Whether a failed delivery is tried again. A sink that shows a notice at once does not: it
    /// would be out of date.
    pub is_retried: bool,
    /// Whether it may wake the user, so that it waits in quiet hours.
    pub wakes: bool,
    /// The keys of its table in `[sinks]` without which it cannot deliver.
    pub needs: &'static [&'static str],
}

impl Sink {
    /// How it delivers.
    pub fn delivery(self) -> Delivery {
        let row = |is_retried, wakes, needs| Delivery { is_retried, wakes, needs };
        match self {
            Self::Harness => row(false, false, &[]),
            Self::Desktop => row(false, true, &[]),
            Self::Log => row(true, false, &[]),
            Self::Ntfy => row(true, true, &["url"]),
            Self::Webhook => row(true, true, &["url", "secret_file"]),
            Self::Apprise => row(true, true, &[]),
            Self::Command => row(true, true, &["command"]),
        }
    }
}

/// The effect of a critical notification on a running turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Interrupt {
    /// It is delivered at the next boundary, and the turn continues.
    #[default]
    InjectAndContinue,
    /// The current step is cancelled with the notification as the reason, and the agent decides
    /// again.
    CancelAndRestart,
    /// It waits for the next turn.
    QueueForNext,
}

/// Error: a text is not among a field's allowed values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is not one of {allowed}")]
pub struct WordError {
    found: String,
    allowed: String,
}

impl FromStr for Priority {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        parse_word(text)
    }
}

impl FromStr for InjectionPoint {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        parse_word(text)
    }
}

fn parse_word<T: Words>(text: &str) -> Result<T, WordError> {
    let found = || text.chars().take(64).collect();
    T::of_word(text).ok_or_else(|| WordError { found: found(), allowed: T::list() })
}

/// The name of a subscriber: `[a-z0-9_]+`, and `@` with a layer or a folder if there are others of
/// that name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubscriberId(#[serde(deserialize_with = "snapshot::text::read")] Arc<str>);

impl SubscriberId {
    /// Wraps a name that the configuration has validated.
    pub fn new(id: &str) -> Self {
        Self(id.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name in its file: without the layer or the folder that tells it apart from others of that
    /// name.
    pub fn in_file(&self) -> &str {
        self.0.split('@').next().unwrap_or_default()
    }
}

impl fmt::Display for SubscriberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Notification {
    /// Builds an example for tests: a passive one-line occurrence for all sessions, by the subscriber
    /// `s`.
    pub fn example(name: &str, priority: Priority) -> Self {
        Self {
            id: NotificationId::new(name),
            subscriber: SubscriberId::new("s"),
            scope: Scope::All,
            priority,
            inject_at: InjectionPoint::AfterTool,
            activation: Activation::Passive,
            is_asked: false,
            interrupt: Interrupt::InjectAndContinue,
            nature: Nature::Occurrence,
            untrusted_source: None,
            rows_name_sources: false,
            severity: Severity::Info,
            content: "key: value".into(),
            sentences: Vec::new(),
            tokens: Tokens(3),
            raw_bytes: 40,
            states: Vec::new(),
            unresolved: Vec::new(),
            events: Vec::new(),
            created_at: Timestamp::ZERO,
            expires_at: None,
            delays: Box::default(),
            retain_until: None,
            requires_response: false,
            repeat: None,
            region: RegionUse::Also,
            charged_to: Box::default(),
            summarised: None,
        }
    }
}

/// The id of a notification, derived from its subscriber and events, so a replay returns the same
/// id.
///
/// Shape: `n` and 12 hexadecimal digits. Any other text is kept up to 15 bytes and matches no
/// notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NotificationId(ShortName<15>);

impl NotificationId {
    /// Wraps an id that was derived before.
    pub fn new(id: &str) -> Self {
        Self(ShortName::new(id))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for NotificationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The key of a state or a condition: the values of a subscriber's `supersede_key`, or of its
/// `equal`, in an event.
///
/// Shape: the first 64 bits of a SHA-256; compared only among the notifications of one subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StateKey(pub u64);

/// A state, as of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The key of the state.
    pub key: StateKey,
    /// The event; a later event for the same key is newer, unless the versions differ.
    pub seq: Seq,
    /// What the event says of its place in its sender's order; `None` if that is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Box<Version>>,
}

impl State {
    /// Whether it replaces `earlier`: it has the same key, a later event, and a version that is
    /// neither older nor of another revision without a known order.
    pub fn replaces(&self, earlier: &Self) -> bool {
        self.key == earlier.key
            && self.seq > earlier.seq
            && match (&self.version, &earlier.version) {
                (Some(own), Some(earlier)) => own.replaces(earlier),
                (Some(_) | None, _) => true,
            }
    }
}

/// The key for an untrusted source: of an item, and in a table with rows of several sources.
pub const UNTRUSTED_SOURCE: &str = "untrusted_source";

/// One rendered message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// Derived from the subscriber and the events.
    pub id: NotificationId,
    /// The subscriber that created it.
    pub subscriber: SubscriberId,
    /// The sessions that it concerns.
    pub scope: Scope,
    /// Its priority.
    pub priority: Priority,
    /// Its injection point.
    pub inject_at: InjectionPoint,
    /// Its action while it is pending.
    pub activation: Activation,
    /// Whether the agent asked for it: a watch, a reminder, an answer. If it is active too, it wakes
    /// an agent whose turn the user interrupted.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub is_asked: bool,
    /// Its effect on a running turn, if it is critical.
    pub interrupt: Interrupt,
    /// Whether it reports an occurrence or only conditions.
    pub nature: Nature,
    /// The untrusted sources of its events in one line; `None` if all of them are trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untrusted_source: Option<Arc<str>>,
    /// Whether each row of the content names its own untrusted source, in the column
    /// [`UNTRUSTED_SOURCE`]; the text then does not repeat the line.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub rows_name_sources: bool,
    /// The highest severity of its events.
    pub severity: Severity,
    /// Strict TOON, without a trailing newline.
    pub content: Document,
    /// Words for a person about its first rows, one line each; empty if its subscriber has no
    /// `sentence`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sentences: Vec<Arc<str>>,
    /// The estimated size of `content`.
    pub tokens: Tokens,
    /// The size of the payloads that it summarizes, in bytes of JSON. A row counts with its
    /// size times its count; an event without a row counts with the mean of the rows.
    pub raw_bytes: u64,
    /// The events of its rows, oldest first; duplicates are counted, not listed.
    pub events: Vec<Seq>,
    /// The states of its rows, in key order; a key occurs twice only with revisions between which no
    /// order is known. Empty if its subscriber has no `supersede_key`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<State>,
    /// The unresolved conditions of its rows, in the order of [`Self::states`]. While there are
    /// any, the notification is redelivered if its context is lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<State>,
    /// When its batch was closed.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// What postpones its delivery.
    #[serde(default, skip_serializing_if = "<[Postponed]>::is_empty")]
    pub delays: Box<[Postponed]>,
    /// Until when a session that opens gets it, if it is the newest of its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain_until: Option<Timestamp>,
    /// Whether it asks for an answer.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub requires_response: bool,
    /// How it is repeated once it is delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<Box<Repeat>>,
    /// Whether the regions of its sessions have it.
    #[serde(default, skip_serializing_if = "RegionUse::is_default")]
    pub region: RegionUse,
    /// The names in `[budget] sources` that the sources of its rows are charged to.
    #[serde(default, skip_serializing_if = "<[Arc<str>]>::is_empty")]
    pub charged_to: Box<[Arc<str>]>,
    /// What it is delivered in place of; `None` for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summarised: Option<Box<Summarised>>,
}

/// The notifications in whose place one is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summarised {
    /// How many.
    pub count: u32,
    /// When the first was made.
    pub first: Timestamp,
    /// When the last was made.
    pub last: Timestamp,
}

impl Notification {
    /// Whether no point releases it, because regions alone have it.
    pub fn is_in_region_only(&self) -> bool {
        self.region == RegionUse::Only && self.priority != Priority::Critical
    }

    /// The keys of its states and unresolved conditions; a key may occur twice.
    pub fn keys(&self) -> impl Iterator<Item = StateKey> {
        self.states.iter().chain(&self.unresolved).map(|state| state.key)
    }

    /// Whether `newer` has a later event for each of its states.
    pub fn is_superseded_by(&self, newer: &Self) -> bool {
        self.is_outdated_by(&newer.subscriber, &newer.states)
    }

    /// Whether later reports of a subscriber, in key order, are about each of its states.
    pub fn is_outdated_by(&self, subscriber: &SubscriberId, later: &[State]) -> bool {
        let has_later = |state: &State| {
            let first = later.partition_point(|other| other.key < state.key);
            let of_key = later.iter().skip(first).take_while(|other| other.key == state.key);
            of_key.into_iter().any(|other| other.replaces(state))
        };
        !self.states.is_empty() && self.subscriber == *subscriber && self.states.iter().all(has_later)
    }
}

/// A report that nobody gets. What is older about the same state is out of date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    /// Its subscriber.
    pub subscriber: SubscriberId,
    /// The sessions that it is for.
    pub scope: Scope,
    /// Its state; `None` if its subscriber has no `supersede_key`.
    pub state: Option<State>,
}

impl Unseen {
    /// Whether a notification is out of date.
    pub fn outdates(&self, older: &Notification) -> bool {
        older.is_outdated_by(&self.subscriber, self.state.as_slice())
    }
}

/// The part of a notification that is delivered if there is too little room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// A part of its content, as TOON.
    pub content: Document,
    /// Whether that is only its beginning, as one text without rows.
    pub is_text: bool,
    /// One line with the amount of missing text, and how to read all of it.
    pub mark: Arc<str>,
}

impl Shared for Notification {
    const TABLE: &'static str = "notifications";

    fn append_to(&self, bytes: &mut Vec<u8>) -> Result<(), Damaged> {
        snapshot::append_named(self, bytes)
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Damaged> {
        snapshot::from_named(bytes)
    }
}

/// Resolves conditions of one subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// The subscriber of the conditions.
    pub subscriber: SubscriberId,
    /// The resolving event; conditions of later events remain.
    pub seq: Seq,
    /// The sessions in which they are resolved.
    pub scope: Scope,
    /// The keys of the resolved conditions.
    pub keys: Vec<StateKey>,
    /// The version of the resolving event; conditions of newer ones, and of other revisions without
    /// a known order, remain.
    pub version: Option<Box<Version>>,
}

impl Resolution {
    /// Returns `notification` without the resolved conditions; `None` if nothing changes.
    pub fn applied_to(&self, notification: &Notification) -> Option<Arc<Notification>> {
        let is_changed = notification.subscriber == self.subscriber
            && notification.unresolved.iter().any(|state| self.ends(state));
        is_changed.then(|| {
            let mut left = notification.clone();
            left.unresolved.retain(|state| !self.ends(state));
            Arc::new(left)
        })
    }

    /// Whether it resolves the condition `state`.
    pub fn ends(&self, state: &State) -> bool {
        let replaces = || {
            let own = State { key: state.key, seq: self.seq, version: self.version.clone() };
            own.replaces(state)
        };
        self.keys.contains(&state.key) && replaces()
    }
}

impl Notification {
    /// Whether it reports only conditions, and all of them are resolved.
    pub fn is_resolved(&self) -> bool {
        self.nature == Nature::Condition && self.unresolved.is_empty()
    }
}
