//! The exchange: a harness's one call at a safe point, and its answer.
//!
//! An [`Exchange`] reports the agent's point, confirms earlier injections, and takes what may be
//! delivered now; the [`Answer`] has at most one [`Injection`]. These are the engine's own types:
//! `wire` has the JSON of the API, `harness` the formats of each harness.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    event::{Seq, SessionId, Severity},
    name::ShortName,
    notification::{InjectionPoint, NotificationId, Priority, SubscriberId, Tokens},
};

/// The prefix of a line shown to the user.
pub const LINE_BEGIN: &str = "aside: ";

/// A harness's request at an injection point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The conversation.
    pub session: SessionId,
    /// The injection point.
    pub point: InjectionPoint,
    /// Id of the message that will carry the answer; the same id again gets the same answer.
    pub carrier: Arc<str>,
    /// The harness's name of the turn, if it has one.
    pub turn: Option<Arc<str>>,
    /// The harness; opens the session if it is not open yet.
    pub harness: Harness,
    /// The tool whose call or result this concerns.
    pub tool: Option<Arc<str>>,
    /// Injections that have arrived.
    pub acks: Vec<InjectionId>,
    /// Limits below the configured ones.
    pub budget: Budget,
    /// The format of the injection; the configured one if `None`.
    pub format: Option<Format>,
    /// What the carrier does besides when it takes text.
    pub carrier_effect: CarrierEffect,
    /// What has become of the agent's context since the last exchange.
    pub context: ContextChange,
    /// Whether the harness can show its user a line.
    pub shows_notices: bool,
    /// Why it is made.
    pub trigger: Trigger,
}

impl Exchange {
    /// An exchange with only its session, point and carrier.
    pub fn new(session: SessionId, point: InjectionPoint, carrier: &str) -> Self {
        Self {
            session,
            point,
            carrier: carrier.into(),
            turn: None,
            harness: Harness::default(),
            tool: None,
            acks: Vec::new(),
            budget: Budget::default(),
            format: None,
            carrier_effect: CarrierEffect::default(),
            context: ContextChange::default(),
            shows_notices: false,
            trigger: Trigger::default(),
        }
    }

    /// The point whose rule applies: a pull releases what a turn start releases.
    pub(crate) fn releases_as_at(&self) -> InjectionPoint {
        match self.trigger {
            Trigger::Pull => InjectionPoint::TurnStart,
            Trigger::Agent | Trigger::Wake => self.point,
        }
    }

    /// The sessions that it names: its own first.
    pub fn sessions_mut(&mut self) -> impl Iterator<Item = &mut SessionId> {
        let from = match &mut self.context {
            ContextChange::Cleared { from } | ContextChange::Forked { from } => from.as_mut(),
            ContextChange::Unchanged | ContextChange::Compacted | ContextChange::Resumed => None,
        };
        std::iter::once(&mut self.session).chain(&mut self.harness.parent).chain(from)
    }
}

/// Why an exchange is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The agent is at the exchange's point.
    #[default]
    Agent,
    /// A wake requested it, and the agent has not moved. So it does not prove that an earlier
    /// injection arrived.
    Wake,
    /// The agent asks for everything pending during its turn; all of it is released at any point.
    /// The agent's position is unchanged, and as calls run in parallel, it does not prove that an
    /// earlier injection arrived.
    Pull,
}

/// What the message that carries an injection does besides.
///
/// Before version 4 of a record the words were `always`, `only_to_continue` and `only_to_cancel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CarrierEffect {
    /// Nothing.
    #[default]
    #[serde(alias = "always")]
    None,
    /// At `turn_end`, text makes the agent go on, so text leaves only if a notification asks for
    /// that.
    #[serde(alias = "only_to_continue")]
    Continue,
    /// At `before_tool`, text comes in place of the call, so text leaves only if a notification is
    /// worth a call.
    #[serde(alias = "only_to_cancel")]
    Cancel,
}

/// What happened to the model's context since the exchange before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ContextChange {
    /// Nothing.
    #[default]
    Unchanged,
    /// It was compacted: what was delivered may be gone.
    Compacted,
    /// The conversation was resumed with its history: delivered text is there.
    Resumed,
    /// It is empty, and the session replaces another one, which ends with that.
    Cleared {
        /// Which; `None` is the last session of the same process, if that has one conversation at a
        /// time.
        from: Option<SessionId>,
    },
    /// It is a copy of another session's, which goes on.
    Forked {
        /// Which; `None` is the last session of the same process.
        from: Option<SessionId>,
    },
}

/// The properties of the harness and the session behind an exchange; absent ones leave the
/// session's unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Harness {
    /// Its name, in lower case, which is also the source of its events.
    pub name: Option<Arc<str>>,
    /// The harness's version.
    pub version: Option<Arc<str>>,
    /// The folder the session works in.
    pub workspace: Option<Arc<str>>,
    /// The user of the agent.
    pub user: Option<Arc<str>>,
    /// The harness's process.
    pub pid: Option<u32>,
    /// When that process started, in clock ticks since boot: process ids are reused.
    pub pid_started: Option<u64>,
    /// How many conversations that process can have.
    pub conversations: Option<Conversations>,
    /// The session of which this one is a subagent.
    pub parent: Option<SessionId>,
}

impl Harness {
    /// The process, if it is known.
    pub fn process(&self) -> Option<Process> {
        self.pid.map(|pid| Process { pid, started: self.pid_started })
    }

    /// Sets the process to `process`; a known start time stays.
    pub fn runs_in(&mut self, process: Process) {
        self.pid = Some(process.pid);
        self.pid_started = self.pid_started.or(process.started);
    }
}

/// A process of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// When it started, in clock ticks since boot; `None` if unknown.
    pub started: Option<u64>,
}

impl Process {
    /// Whether both can be the same process: start times are compared if both are known.
    pub fn can_be(self, other: Self) -> bool {
        let has_other_start =
            matches!((self.started, other.started), (Some(own), Some(other)) if own != other);
        self.pid == other.pid && !has_other_start
    }
}

/// How many conversations a process of a harness can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conversations {
    /// Any number at a time: a server, a bot. Two sessions of one process are unrelated.
    Many,
    /// One at a time: a client at a terminal. A new session in it continues the user's previous
    /// one.
    OnePerProcess,
}

impl Conversations {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Many, Self::OnePerProcess];

    /// The value's text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Many => "many",
            Self::OnePerProcess => "one_per_process",
        }
    }
}

/// The limits of an injection; `None` is the configured limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct Budget {
    /// Notifications.
    pub max_notifications: Option<u32>,
    /// Estimated tokens, wrapper included.
    pub max_tokens: Option<Tokens>,
    /// Characters, wrapper included.
    pub max_chars: Option<u32>,
}

/// How an injection is rendered for its carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// `<notifications>` around TOON.
    Xml,
    /// Grouped by level, with an intro.
    Markdown,
    /// TOON alone.
    Toon,
    /// A JSON object.
    Json,
    /// One line, for a wake route that turns each line into an event.
    Line,
}

impl Format {
    /// All formats that can be requested.
    pub const ALL: [Self; 5] = [Self::Xml, Self::Markdown, Self::Toon, Self::Json, Self::Line];

    /// The format's text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Xml => "xml",
            Self::Markdown => "markdown",
            Self::Toon => "toon",
            Self::Json => "json",
            Self::Line => "line",
        }
    }
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        Self::ALL
            .into_iter()
            .find(|format| format.as_str() == text)
            .ok_or_else(|| FormatError(text.chars().take(64).collect()))
    }
}

/// A text that is not a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a format; use one of {formats}", formats = Format::ALL.map(Format::as_str).join(", "))]
pub struct FormatError(pub String);

/// The short name of an injection, which is also in its text.
///
/// Shape: 6 letters and digits. Another text, at most 7 bytes of it, names no injection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InjectionId(ShortName<7>);

impl InjectionId {
    /// Wraps a name from an earlier injection.
    pub fn new(id: &str) -> Self {
        Self(ShortName::new(id))
    }

    /// The text of the name.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for InjectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The answer to an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What is released, if anything is.
    pub injection: Option<Injection>,
    /// How many notifications stay in the session's queue.
    pub pending: u32,
    /// Whether the harness should make an exchange before its next tool, because something critical
    /// is pending.
    pub check_before_tool: bool,
    /// The directive to the harness.
    pub directive: Option<Directive>,
    /// One line for the user, not for the agent: what waits for the user's decision, each
    /// notification once, and what this answer delivers.
    pub notice: Option<Arc<str>>,
}

/// What an exchange released when it was made, as recorded in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseRecord {
    /// The position of the exchange's record.
    pub exchange: Seq,
    /// The injection's short name.
    pub injection: InjectionId,
    /// Its notifications, in text order.
    pub notifications: Vec<NotificationId>,
    /// The directive to the harness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directive: Option<Directive>,
}

/// What an exchange releases: to be decided, or as recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Release {
    /// Nothing yet: decide now.
    Decide,
    /// What it released when it was made; `None` for nothing. It is repeated, whatever the current
    /// decision would be.
    Recorded(Option<ReleaseRecord>),
}

/// A user's decision about a pending notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It is not delivered.
    Dismiss,
    /// It is delivered to the agent at the next point that releases it.
    Discuss,
}

impl Decision {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Dismiss, Self::Discuss];

    /// The decision's text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dismiss => "dismiss",
            Self::Discuss => "discuss",
        }
    }
}

/// What a harness is asked to do besides carrying text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Directive {
    /// At `turn_end`: let the agent continue.
    Continue {
        /// One line of explanation.
        reason: Arc<str>,
    },
    /// At `before_tool`: replace the call by the text.
    Cancel {
        /// One line of explanation.
        reason: Arc<str>,
    },
}

/// What an exchange releases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injection {
    /// Its short name.
    pub id: InjectionId,
    /// The notifications as one text, in the requested format.
    pub text: Arc<str>,
    /// Its content in one sentence for the user. Only the format `line` includes it, so a client
    /// that shows the text to the user puts it first.
    #[serde(default)]
    pub sentence: Arc<str>,
    /// The role of the message it belongs in.
    pub role: Role,
    /// Its notifications, in text order.
    pub notifications: Vec<Released>,
}

/// The role of the message that carries an injection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// With the result of a tool.
    Tool,
    /// With the user's message.
    User,
    /// As a system message.
    System,
}

impl Role {
    /// The role's text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::User => "user",
            Self::System => "system",
        }
    }
}

/// One notification of an injection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// Its id.
    pub id: NotificationId,
    /// The subscriber that made it.
    pub subscriber: SubscriberId,
    /// Its priority.
    pub priority: Priority,
    /// The worst severity among its events.
    pub severity: Severity,
    /// Whether it may have been delivered before.
    pub redelivered: bool,
}
