//! The one call of a harness at a safe moment, and what it is answered.
//!
//! An [`Exchange`] tells where the agent stands, confirms what arrived, and takes what may be told now; the [`Answer`] holds
//! at most one [`Injection`]. These are the engine's own types: the JSON of the API is `protocol`'s, the words of one
//! harness are `harness`'s.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    event::{Seq, SessionId, Severity},
    notification::{InjectionPoint, NotificationId, Priority, SubscriberId, Tokens},
};

/// What a line begins with that a user sees.
pub const LINE_BEGIN: &str = "aside: ";

/// What a harness says at an injection point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The conversation.
    pub session: SessionId,
    /// The moment.
    pub point: InjectionPoint,
    /// Id of the message the answer will ride on; the same one again gets the same answer.
    pub carrier: Arc<str>,
    /// The harness's name of the turn, if it has one.
    pub turn: Option<Arc<str>>,
    /// Who asks; opens the session if it is not open yet.
    pub harness: Harness,
    /// The tool whose call or result this is about.
    pub tool: Option<Arc<str>>,
    /// Injections that are known to have arrived.
    pub acks: Vec<InjectionId>,
    /// Limits below the configured ones.
    pub budget: Budget,
    /// How the injection is to be written; the configured format if there is none.
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
    /// An exchange that says nothing but who asks, where and for which message.
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

    /// The point whose rule says what is released: an agent that asks for all gets what a turn's start releases.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The agent is at the point that the exchange names.
    #[default]
    Agent,
    /// A wake asked for it, and the agent is where it was: only an injection moves it. It is no proof that an earlier injection
    /// arrived, because the agent did nothing since.
    Wake,
    /// The agent asks for all that waits for it, amid its turn: everything pending leaves at any point. It is where it was before and
    /// after, and as calls run side by side, it is no proof that an earlier injection arrived.
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
    /// At `turn_end`, text makes the agent go on, so text leaves only if a notification asks for that.
    #[serde(alias = "only_to_continue")]
    Continue,
    /// At `before_tool`, text comes in place of the call, so text leaves only if a notification is worth a call.
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
    /// The conversation was resumed with its history: what was delivered is there.
    Resumed,
    /// It is empty, and the session replaces another one, which ends with that.
    Cleared {
        /// Which; `None` is the last session of the same process, if that has one conversation at a time.
        from: Option<SessionId>,
    },
    /// It is a copy of another session's, which goes on.
    Forked {
        /// Which; `None` is the last session of the same process.
        from: Option<SessionId>,
    },
}

/// What is known of the harness and the session behind an exchange; what is absent leaves the session's as it was.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Harness {
    /// Its name, in lower case, which is also the source of its events.
    pub name: Option<Arc<str>>,
    /// The harness's version.
    pub version: Option<Arc<str>>,
    /// The folder the session works in.
    pub workspace: Option<Arc<str>>,
    /// Whom the agent works for.
    pub user: Option<Arc<str>>,
    /// The harness's process.
    pub pid: Option<u32>,
    /// When that process started, in clock ticks since the machine did: the number of a process is given to another one some day.
    pub pid_started: Option<u64>,
    /// How many conversations that process can have.
    pub conversations: Option<Conversations>,
    /// The session this one is a subagent of.
    pub parent: Option<SessionId>,
}

impl Harness {
    /// The process, if it is known.
    pub fn process(&self) -> Option<Process> {
        self.pid.map(|pid| Process { pid, started: self.pid_started })
    }

    /// Says that the process is `process`; a start that was given stays.
    pub fn runs_in(&mut self, process: Process) {
        self.pid = Some(process.pid);
        self.pid_started = self.pid_started.or(process.started);
    }
}

/// A process of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since the machine did; `None` where nobody could tell.
    pub started: Option<u64>,
}

impl Process {
    /// Whether both can be one: the starts are compared where both are known.
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
    /// Any number at a time: a server, a bot. Two sessions of one process have nothing to do with each other.
    Many,
    /// One at a time: a client at a terminal. A session that begins there is what its user went on to from the one before.
    OnePerProcess,
}

impl Conversations {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Many, Self::OnePerProcess];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Many => "many",
            Self::OnePerProcess => "one_per_process",
        }
    }
}

/// The most an injection may hold; `None` is the configured limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct Budget {
    /// Notifications.
    pub max_notifications: Option<u32>,
    /// Estimated tokens, wrapper included.
    pub max_tokens: Option<Tokens>,
    /// Characters, wrapper included.
    pub max_chars: Option<u32>,
}

/// How an injection is written for its carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
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
    /// One line, for a wake route that makes an event of each line.
    Line,
}

impl Format {
    /// All formats that can be asked for.
    pub const ALL: [Self; 5] = [Self::Xml, Self::Markdown, Self::Toon, Self::Json, Self::Line];

    /// The word for it.
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

/// A word that is no format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no format; there are xml, markdown, toon, json and line")]
pub struct FormatError(pub String);

/// The short name of an injection, which also stands in its text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InjectionId(Arc<str>);

impl InjectionId {
    /// Wraps a name that was given out before.
    pub fn new(id: &str) -> Self {
        Self(id.into())
    }

    /// The text of the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InjectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an exchange gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What is released, if anything is.
    pub injection: Option<Injection>,
    /// How many notifications stay in the session's queue.
    pub pending: u32,
    /// Whether the harness should ask before its next tool, because something critical waits.
    pub check_before_tool: bool,
    /// What the harness is asked to do besides.
    pub directive: Option<Directive>,
    /// One line for the user, not for the agent: what waits for the user's word, said of each notification once, and what is
    /// delivered with this answer.
    pub notice: Option<Arc<str>>,
}

/// What an exchange released when it was made, as the journal has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseRecord {
    /// The position of the exchange's record.
    pub exchange: Seq,
    /// The injection's short name.
    pub injection: InjectionId,
    /// What was in it, in the order of the text.
    pub notifications: Vec<NotificationId>,
    /// What the harness was asked to do besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directive: Option<Directive>,
}

/// What is known of what an exchange releases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Release {
    /// Nothing yet: it is decided.
    Decide,
    /// What it released when it was made; `None` when nothing left. It is repeated, whatever would be decided now.
    Recorded(Option<ReleaseRecord>),
}

/// What a user does with a notification that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Nobody is told of it.
    Dismiss,
    /// The agent is told of it at the next point that releases it.
    Discuss,
}

impl Decision {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Dismiss, Self::Discuss];

    /// The word for it.
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
    /// At `turn_end`: let the agent go on.
    Continue {
        /// One line for whoever wonders why.
        reason: Arc<str>,
    },
    /// At `before_tool`: let the text come in place of the call.
    Cancel {
        /// One line for whoever wonders why.
        reason: Arc<str>,
    },
}

/// What one exchange releases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injection {
    /// Its short name.
    pub id: InjectionId,
    /// The notifications as one text, in the format that was asked for.
    pub text: Arc<str>,
    /// What is in it, in one sentence for a person. No text but that of `line` has it, so whoever shows the text to a user puts it first.
    #[serde(default)]
    pub sentence: Arc<str>,
    /// The role of the message it belongs in.
    pub role: Role,
    /// What is in it, in the order of the text.
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
    /// The word for it.
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
    /// Who made it.
    pub subscriber: SubscriberId,
    /// How urgent it is.
    pub priority: Priority,
    /// The worst severity among its events.
    pub severity: Severity,
    /// Whether it may have been told before.
    pub redelivered: bool,
}
