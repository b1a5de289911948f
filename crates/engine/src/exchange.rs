//! The exchange: a call of a harness at a safe point, and the answer to it.
//!
//! An [`Exchange`] reports the agent's point, confirms earlier injections, and requests the
//! notifications that may be delivered now. The [`Answer`] has at most one [`Injection`]. These are
//! the engine's types: `wire` has the JSON of the API, `harness` the formats of each harness.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::{
    budget::BudgetLeft,
    event::{Seq, SessionId, Severity},
    name::ShortName,
    notification::{InjectionPoint, NotificationId, Priority, SubscriberId, Tokens},
    words::Words,
};

/// The prefix of a line for the user.
pub const LINE_BEGIN: &str = "aside: ";

/// A harness's request at an injection point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The conversation.
    pub session: SessionId,
    /// The injection point.
    pub point: InjectionPoint,
    /// The id of the message that will carry the answer; the same id receives the same answer.
    pub carrier: Arc<str>,
    /// The harness's id of the turn, if it has one.
    pub turn: Option<Arc<str>>,
    /// The harness's id of the step: a call of the model in the turn, another one once the model has
    /// answered. So what was released in a step has arrived when another step is named.
    pub step: Option<Arc<str>>,
    /// The harness; the exchange opens the session if it is not open yet.
    pub harness: Harness,
    /// The tool of the call or result at which the exchange is made.
    pub tool: Option<Arc<str>>,
    /// The injections that have arrived.
    pub acks: Vec<InjectionId>,
    /// The calls whose results the model has: failures of them are counted, and not delivered to
    /// this session.
    pub known_calls: Vec<Arc<str>>,
    /// Limits that are lower than the configured ones.
    pub budget: Budget,
    /// The format of the injection; `None` for that of the harness, else the configured one.
    pub format: Option<Format>,
    /// The effect of the carrying message besides its text.
    pub carrier_effect: CarrierEffect,
    /// The change of the agent's context since the previous exchange.
    pub context: ContextChange,
    /// Whether the harness can show a line to its user.
    pub shows_notices: bool,
    /// The reason for the exchange.
    pub trigger: Trigger,
}

impl Exchange {
    /// Builds an exchange from its session, point and carrier alone.
    pub fn new(session: SessionId, point: InjectionPoint, carrier: &str) -> Self {
        Self {
            session,
            point,
            carrier: carrier.into(),
            turn: None,
            step: None,
            harness: Harness::default(),
            tool: None,
            acks: Vec::new(),
            known_calls: Vec::new(),
            budget: Budget::default(),
            format: None,
            carrier_effect: CarrierEffect::default(),
            context: ContextChange::default(),
            shows_notices: false,
            trigger: Trigger::default(),
        }
    }

    /// Whether the agent's turn ends with this exchange, which `directive` answers.
    pub(crate) fn ends_turn(&self, directive: Option<&Directive>) -> bool {
        self.trigger == Trigger::Agent && self.point == InjectionPoint::TurnEnd && directive.is_none()
    }

    /// The tool that has run, if the agent reports its result.
    pub(crate) fn tool_that_ran(&self) -> Option<&str> {
        let has_run = self.point == InjectionPoint::AfterTool && self.trigger == Trigger::Agent;
        self.tool.as_deref().filter(|_| has_run)
    }

    /// The point whose release rule applies: a pull releases the same as a turn start.
    pub(crate) fn releases_as_at(&self) -> InjectionPoint {
        match self.trigger {
            Trigger::Pull => InjectionPoint::TurnStart,
            Trigger::Agent | Trigger::Wake => self.point,
        }
    }

    /// The sessions that it names, its own first.
    pub fn sessions_mut(&mut self) -> impl Iterator<Item = &mut SessionId> {
        let from = match &mut self.context {
            ContextChange::Cleared { from } | ContextChange::Forked { from } => from.as_mut(),
            ContextChange::Unstated
            | ContextChange::Unchanged
            | ContextChange::Compacted
            | ContextChange::Resumed => None,
        };
        std::iter::once(&mut self.session).chain(&mut self.harness.parent).chain(from)
    }
}

impl ContextChange {
    /// The other session that it names.
    pub fn origin(&self) -> Option<&SessionId> {
        match self {
            Self::Cleared { from } | Self::Forked { from } => from.as_ref(),
            Self::Unstated | Self::Unchanged | Self::Compacted | Self::Resumed => None,
        }
    }
}

/// The reason for an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The agent is at the exchange's point.
    #[default]
    Agent,
    /// A wake requested it, and the agent's position is unchanged. So it does not prove that an
    /// earlier injection arrived.
    Wake,
    /// The agent requests everything that is pending during its turn; all of it is released at any
    /// point. The agent's position is unchanged, and calls may run in parallel, so it does not
    /// prove that an earlier injection arrived.
    Pull,
}

/// The effect of the message that carries an injection, besides its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CarrierEffect {
    /// None.
    #[default]
    None,
    /// At `turn_end`, text makes the agent continue, so it is sent only if a notification requires
    /// that.
    Continue,
    /// At `before_tool`, text replaces the call, so it is sent only if a notification justifies
    /// that.
    Cancel,
}

/// The change of the model's context since the previous exchange.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ContextChange {
    /// The harness does not say. Then nothing has changed, unless another process continues the
    /// session.
    #[default]
    Unstated,
    /// None.
    Unchanged,
    /// It was compacted: delivered text may be lost.
    Compacted,
    /// The conversation was resumed with its history: delivered text is still present.
    Resumed,
    /// It is empty, and the session replaces another one, which ends.
    Cleared {
        /// The replaced session; `None` for the last session of the same process, if that process
        /// has one conversation at a time.
        from: Option<SessionId>,
    },
    /// It is a copy of the context of another session, which continues.
    Forked {
        /// The copied session; `None` for the last session of the same process.
        from: Option<SessionId>,
    },
}

/// The properties of the harness and the session of an exchange; absent ones leave the session's
/// properties unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Harness {
    /// The harness's name in lower case, also the source of its events.
    pub name: Option<Arc<str>>,
    /// The harness's version.
    pub version: Option<Arc<str>>,
    /// The folder in which the session works.
    pub workspace: Option<Arc<str>>,
    /// The user of the agent.
    pub user: Option<Arc<str>>,
    /// The harness's process.
    pub pid: Option<u32>,
    /// When that process started, in clock ticks since boot, because process ids are reused.
    pub pid_started: Option<u64>,
    /// The number of conversations that this process can have.
    pub conversations: Option<Conversations>,
    /// The session of which this one is a subagent.
    pub parent: Option<SessionId>,
    /// The first known one of the formats that it can place.
    pub format: Option<Format>,
    /// The API of its model.
    pub dialect: Option<Dialect>,
}

impl Harness {
    /// The process, if it is known.
    pub fn process(&self) -> Option<Process> {
        self.pid.map(|pid| Process { pid, started: self.pid_started })
    }

    /// The number of conversations of the process, as stated or by default; `None` without a process.
    pub fn process_conversations(&self) -> Option<Conversations> {
        self.conversations.or(self.pid.map(|_| Conversations::Many))
    }

    /// Sets the process to `process`; keeps a known start time.
    pub fn runs_in(&mut self, process: Process) {
        self.pid = Some(process.pid);
        self.pid_started = self.pid_started.or(process.started);
    }
}

/// A process on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// When it started, in clock ticks since boot; `None` if unknown.
    pub started: Option<u64>,
}

impl Process {
    /// Whether both can be the same process. Start times are compared only if both are known.
    pub fn can_be(self, other: Self) -> bool {
        let has_other_start =
            matches!((self.started, other.started), (Some(own), Some(other)) if own != other);
        self.pid == other.pid && !has_other_start
    }
}

impl_as_str!(AnswerField, Conversations, Decision, Dialect, Format, Role);

/// The number of conversations that a process of a harness can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Conversations {
    /// Any number at a time, as in a server or a bot. Two sessions of one process are unrelated.
    Many,
    /// One at a time, as in a client at a terminal. A new session in the process continues the
    /// user's previous one.
    OnePerProcess,
}

/// The limits of an injection; `None` means the configured limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Budget {
    /// Number of notifications.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_notifications: Option<u32>,
    /// Estimated tokens, wrapper included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<Tokens>,
    /// Number of characters, wrapper included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<u32>,
}

/// The format of an injection for its carrier; `format` has a row for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Format {
    /// `<notifications>` around TOON.
    #[default]
    Xml,
    /// `<notification>` around the TOON of each notification.
    XmlEach,
    /// Grouped by severity, with an introduction in the first text of a context.
    Markdown,
    /// TOON alone.
    Toon,
    /// A JSON object.
    Json,
    /// One line per notification, for a wake route that turns each line into an event.
    Line,
    /// A message of the role `developer`.
    OpenaiDeveloper,
    /// A message of the role `system`.
    SystemMessage,
    /// A text block in a message of the role `user`.
    AnthropicBlock,
    /// A tool call that the model did not make, with its result.
    SyntheticTool,
    /// `xml` and a blank line, before the user's own words.
    UserPrefix,
}

/// The API of a model's provider, in whose words messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Dialect {
    /// OpenAI's Chat Completions, and servers that are compatible with it.
    #[default]
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Anthropic,
    /// Google's `generateContent`.
    Gemini,
}

/// The field of an answer that has the carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AnswerField {
    /// A text.
    Text,
    /// A message as JSON.
    Message,
    /// A block of a message's content as JSON.
    Block,
    /// A list of messages as JSON.
    Messages,
}

impl Format {
    /// The field of the answer that has it.
    pub fn field(self) -> AnswerField {
        match self {
            Self::OpenaiDeveloper | Self::SystemMessage => AnswerField::Message,
            Self::AnthropicBlock => AnswerField::Block,
            Self::SyntheticTool => AnswerField::Messages,
            Self::Xml
            | Self::XmlEach
            | Self::Markdown
            | Self::Toon
            | Self::Json
            | Self::Line
            | Self::UserPrefix => AnswerField::Text,
        }
    }

    /// The APIs for which its words differ, the default first.
    pub fn dialects(self) -> &'static [Dialect] {
        match self {
            Self::OpenaiDeveloper => &[Dialect::Chat, Dialect::Responses],
            Self::SyntheticTool => Dialect::VARIANTS,
            Self::Xml
            | Self::XmlEach
            | Self::Markdown
            | Self::Toon
            | Self::Json
            | Self::Line
            | Self::SystemMessage
            | Self::AnthropicBlock
            | Self::UserPrefix => &[],
        }
    }

    /// Those that are a text, which every harness can place.
    pub fn texts() -> Vec<Self> {
        Self::VARIANTS.iter().copied().filter(|format| format.field() == AnswerField::Text).collect()
    }
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        Self::of_word(text).ok_or_else(|| FormatError(text.chars().take(64).collect()))
    }
}

/// Error: a text is not a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a format; use one of {formats}", formats = Format::list())]
pub struct FormatError(pub String);

/// The id of an injection, which its text includes.
///
/// Shape: 6 letters and digits. Any other text is kept up to 7 bytes and matches no injection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InjectionId(ShortName<7>);

impl InjectionId {
    /// Wraps the id of an earlier injection.
    pub fn new(id: &str) -> Self {
        Self(ShortName::new(id))
    }

    /// The id as text.
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
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// The released notifications; `None` if there are none.
    pub injection: Option<Injection>,
    /// The number of notifications in the session's queue that wait for the agent, or only for a budget.
    pub pending: u32,
    /// Whether the harness should make an exchange before its next tool, because a critical
    /// notification is pending.
    pub check_before_tool: bool,
    /// The directive to the harness.
    pub directive: Option<Directive>,
    /// One line for the user, not for the agent: the notifications that wait for the user's
    /// decision, each shown once, and those that this answer delivers.
    pub notice: Option<Arc<str>>,
    /// Whether it has the first text of its context, which the model may need explained.
    pub is_first_text: bool,
    /// What is left of the budgets after it; `None` if it releases nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_left: Option<BudgetLeft>,
    /// The fields of this request that had no effect; not kept for a repeated request.
    #[serde(skip)]
    pub remarks: Vec<Remark>,
}

/// A field of an exchange that has no effect, and no error of its form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// `ack` has an injection that is neither unconfirmed nor one of the newest of the session.
    UnknownAck {
        /// Its index in `ack`.
        index: usize,
        /// The injection.
        injection: InjectionId,
    },
    /// `turn` is a turn before the last one.
    PastTurn {
        /// The turn.
        turn: Arc<str>,
        /// The last one.
        last: Arc<str>,
    },
    /// A field names a session that does not exist.
    UnknownSession {
        /// The field.
        field: &'static str,
        /// The session.
        session: SessionId,
        /// The most similar one.
        nearest: Option<SessionId>,
    },
}

/// What a carrying message replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replaces {
    /// Nothing: its text is one of several.
    #[default]
    Nothing,
    /// A tool call, which is not run: its text begins with [`NOT_RUN`].
    Call,
}

/// The first sentence of a text in place of a tool call. A model would take the text for the result
/// of the call otherwise.
pub const NOT_RUN: &str = "This call was not run: it was cancelled so that what follows can be read first, and it may be made again.";

/// The release of an exchange, as recorded in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseRecord {
    /// The position of the exchange's record.
    pub exchange: Seq,
    /// The injection's id.
    pub injection: InjectionId,
    /// Its notifications, in text order.
    pub notifications: Vec<NotificationId>,
    /// The directive to the harness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directive: Option<Directive>,
    /// The format of its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// The estimated size of its text, which the budgets were charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
}

/// The release of an exchange: undecided, or as recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Release {
    /// Undecided: decide now.
    Decide,
    /// The recorded release; `None` if nothing was released. It is repeated, whatever the current
    /// decision would be.
    Recorded(Option<ReleaseRecord>),
}

/// A user's decision about a pending notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Decision {
    /// Do not deliver it.
    Dismiss,
    /// Deliver it to the agent at the next point that releases it.
    Discuss,
}

/// A request to a harness besides carrying text.
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

/// The text that an exchange delivers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injection {
    /// The injection's id.
    pub id: InjectionId,
    /// The format of the text.
    #[serde(default)]
    pub format: Format,
    /// The notifications as one text, which is JSON for the other fields than [`AnswerField::Text`].
    pub text: Arc<str>,
    /// A summary in one sentence for the user; empty if the harness shows none and the turn does not
    /// continue with the text. Only the format `line` includes it, so a client that shows the text to
    /// the user puts it first.
    pub sentence: Arc<str>,
    /// The role of the message for the text.
    pub role: Role,
    /// Its notifications, in text order.
    pub notifications: Vec<Released>,
    /// Whether the queue had asked for the turn that begins with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starts_turn: bool,
}

/// The role of the message that carries an injection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Role {
    /// With the result of a tool.
    Tool,
    /// With the user's message.
    User,
    /// As a system message.
    System,
}

/// One notification of an injection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// The notification's id.
    pub id: NotificationId,
    /// The subscriber that created it.
    pub subscriber: SubscriberId,
    /// The priority.
    pub priority: Priority,
    /// The highest severity of its events.
    pub severity: Severity,
    /// Whether it may have been delivered before.
    pub redelivered: bool,
    /// The estimated size of its content.
    #[serde(default)]
    pub tokens: Tokens,
    /// The first of its events; `None` if it has none.
    #[serde(default)]
    pub first_event: Option<Seq>,
}
