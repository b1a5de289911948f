//! Word for the user: what an agent, a subscriber or a person wants them to know, and its way to each sink.
//!
//! A notice is an event (`user.notice`) or a notification whose audience the user is. Its way is a fold over events, [`Deliveries`]: which
//! sinks it goes to, what is over a limit, when a sink that failed is tried again. A source carries what is due and reports it with
//! `sink.sent` or `sink.failed`, so a restart goes on where it was. A question is a notice with choices; [`Questions`] is the fold of
//! their answers. docs/design/word.md says how the parts play together.

mod fold;
mod limits;
pub mod question;
mod questions;
mod settings;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use self::{
    fold::{Deliveries, Verdict},
    limits::{Held, PER_MINUTE_MAX},
    question::Question,
    questions::{QuestionState, Questions},
    settings::{Apprise, Log, Ntfy, RETRY, Settings, Url, Webhook},
};
use crate::{
    event::{Event, EventRef, OWN_SOURCE, Scope, SessionId, Severity, cut_text, mask_secrets, strip_text},
    notification::Sink,
    time::{Timestamp, duration_millis},
};

/// The type of the event that says something to the user; its payload is a [`Notice`].
pub const NOTICE: &str = "user.notice";
/// The type of the event that says that a sink took a notice.
pub const SENT: &str = "sink.sent";
/// The type of the event that says that a sink did not take a notice.
pub const FAILED: &str = "sink.failed";
/// The type of the event that says that a notice waits for the end of the quiet hours.
pub const WAITS: &str = "sink.waits";
/// The source of these events; others say nothing to the user by them.
pub const SOURCE: &str = OWN_SOURCE;

/// Longest message, in characters; what is longer is cut, with a mark.
pub const MESSAGE_CHARS_MAX: usize = 1_000;
/// Longest context, in characters.
pub const CONTEXT_CHARS_MAX: usize = 64;
/// The context of a notice that names none.
pub const CONTEXT_DEFAULT: &str = "llm";
/// Longest error and longest id of a sink that are kept, in characters.
const DETAIL_CHARS_MAX: usize = 200;

/// How bad a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// To know.
    #[default]
    Info,
    /// To look at.
    Warn,
    /// Something failed.
    Error,
}

impl Level {
    /// All levels, least first.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warn, Self::Error];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }

    /// The level that a word means; `info` for any that means none.
    pub fn read(word: &str) -> Self {
        match word.trim().to_ascii_lowercase().as_str() {
            "warn" | "warning" => Self::Warn,
            "error" => Self::Error,
            _ => Self::Info,
        }
    }

    /// The level of what is that severe.
    pub const fn of(severity: Severity) -> Self {
        match severity {
            Severity::Debug | Severity::Info => Self::Info,
            Severity::Warning => Self::Warn,
            Severity::Error | Severity::Critical => Self::Error,
        }
    }

    const fn severity(self) -> Severity {
        match self {
            Self::Info => Severity::Info,
            Self::Warn => Severity::Warning,
            Self::Error => Severity::Error,
        }
    }
}

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// What something means.
    Analysis,
    /// How the work goes on.
    Workflow,
    /// What could do harm.
    Safety,
    /// What takes long or much.
    Performance,
    /// What was found.
    Discovery,
}

impl Category {
    /// All categories.
    pub const ALL: [Self; 5] =
        [Self::Analysis, Self::Workflow, Self::Safety, Self::Performance, Self::Discovery];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Analysis => "analysis",
            Self::Workflow => "workflow",
            Self::Safety => "safety",
            Self::Performance => "performance",
            Self::Discovery => "discovery",
        }
    }
}

/// What the user is to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Its name: the id of its event, or of its notification.
    #[serde(rename = "notice")]
    pub id: Arc<str>,
    /// One line.
    pub message: Arc<str>,
    /// How bad it is.
    #[serde(default)]
    pub level: Level,
    /// What it belongs to, such as `llm` or the id of a subscriber.
    pub context: Arc<str>,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// The session that it comes from; its event says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The folder that it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Arc<str>>,
    /// When it was said.
    pub at: Timestamp,
    /// What can be chosen, if it is a question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choices: Option<Choices>,
    /// What was not sent before it.
    #[serde(default, skip_serializing_if = "Held::is_nothing")]
    pub held: Held,
}

/// What a question adds to its notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choices {
    /// The choices, in the order in which they are shown.
    pub words: Vec<Arc<str>>,
    /// When it ends unanswered.
    pub expires_at: Timestamp,
}

impl Notice {
    /// A notice with this name and message, said at `now`: `info`, of the default context, of no session and no folder.
    pub fn new(id: &str, message: &str, now: Timestamp) -> Self {
        Self {
            id: id.into(),
            message: message.into(),
            level: Level::default(),
            context: CONTEXT_DEFAULT.into(),
            category: None,
            session: None,
            workspace: None,
            at: now,
            choices: None,
            held: Held::default(),
        }
    }

    /// The event that says it.
    pub fn event(&self) -> Event {
        let mut payload = Map::new();
        payload.insert("notice".to_owned(), Value::from(&*self.id));
        payload.insert("message".to_owned(), Value::from(&*self.message));
        payload.insert("level".to_owned(), self.level.as_str().into());
        payload.insert("context".to_owned(), Value::from(&*self.context));
        payload.extend(self.category.map(|category| ("category".to_owned(), category.as_str().into())));
        Event {
            session: self.session.clone(),
            workspace: self.workspace.clone(),
            ..Event::own(NOTICE, self.id.to_string(), self.level.severity(), Value::Object(payload), self.at)
        }
    }

    /// What an event says to the user, within the bounds, also if others wrote its payload.
    fn of(event: &EventRef<'_>, now: Timestamp) -> Option<Self> {
        let said: Said = serde_json::from_str(event.payload).ok()?;
        let message = clean_line(&said.message, MESSAGE_CHARS_MAX);
        (!message.is_empty()).then(|| Self {
            id: event.id.into(),
            message: message.into(),
            level: said.level.as_deref().map(Level::read).unwrap_or_default(),
            context: clean_line(&said.context.unwrap_or_default(), CONTEXT_CHARS_MAX).into(),
            category: Category::ALL
                .into_iter()
                .find(|known| said.category.as_deref() == Some(known.as_str())),
            session: event.session.map(SessionId::new),
            workspace: event.workspace.map(Into::into),
            at: now,
            choices: said.choices.zip(said.expires_at).map(|(words, expires_at)| {
                let words = words.iter().map(|word| clean_line(word, question::CHOICE_CHARS_MAX).into());
                Choices { words: words.take(*question::CHOICES.end()).collect(), expires_at }
            }),
            held: Held::default(),
        })
    }

    /// Whose hooks can show it.
    fn scope(&self) -> Scope {
        match (&self.session, &self.workspace) {
            (Some(session), _) => Scope::Session(session.clone()),
            (None, Some(folder)) => Scope::Workspace(Arc::clone(folder)),
            (None, None) => Scope::All,
        }
    }

    /// The message, with how many were not sent before it.
    pub fn body(&self) -> String {
        if self.held.is_nothing() {
            self.message.to_string()
        } else {
            format!("{} [{}]", self.message, self.held)
        }
    }

    /// The body, with the command that answers a question.
    pub fn text(&self) -> String {
        let mut text = self.body();
        if let Some(Choices { words, .. }) = &self.choices {
            let words: Vec<_> = words.iter().map(|word| shlex::try_quote(word).unwrap_or_default()).collect();
            text.push_str(&format!(" [aside answer {} {}]", question::short(&self.id), words.join(" | ")));
        }
        text
    }

    /// The message for a line among others: what it belongs to goes first, with the level unless that is `info`.
    pub fn line(&self) -> String {
        let level = match self.level {
            Level::Info => "",
            Level::Warn => " (warning)",
            Level::Error => " (error)",
        };
        format!("{}{level}: {}", self.context, self.text())
    }

    /// Where it comes from, in a few words: its context, and the folder that the session works in.
    pub fn title(&self) -> String {
        let folder =
            self.workspace.as_deref().and_then(|folder| folder.rsplit('/').find(|part| !part.is_empty()));
        match folder {
            Some(folder) => format!("{} @ {}", self.context, clean_line(folder, CONTEXT_CHARS_MAX)),
            None => self.context.to_string(),
        }
    }
}

/// The payload of a [`NOTICE`], as far as it is read.
#[derive(Deserialize)]
struct Said {
    message: String,
    level: Option<String>,
    context: Option<String>,
    category: Option<String>,
    choices: Option<Vec<String>>,
    expires_at: Option<Timestamp>,
}

/// Something for a sink to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// What it is to take.
    pub notice: Arc<Notice>,
    /// Which sink.
    pub sink: Sink,
    /// How often it failed before.
    pub failures: u32,
}

/// How a sink answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// It took the notice, and calls it so.
    Took(Option<String>),
    /// It showed a question, and its user chose this.
    Chose(Arc<str>),
    /// It did not take it.
    Refused {
        /// Why.
        error: String,
        /// Whether it never will.
        is_final: bool,
    },
}

/// The payload of a [`SENT`], [`FAILED`] or [`WAITS`] event.
#[derive(Debug, Deserialize)]
struct Report {
    notice: Arc<str>,
    sink: Sink,
    failures: u32,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    is_final: bool,
    #[serde(default)]
    until: Option<Timestamp>,
}

impl Job {
    /// The event that says how the sink answered; published twice, it is known.
    pub fn event(&self, answered: &Answered, now: Timestamp) -> Event {
        let Self { notice, sink, failures } = self;
        let mut payload = Map::new();
        payload.insert("notice".to_owned(), Value::from(&*notice.id));
        payload.insert("sink".to_owned(), sink.as_str().into());
        payload.insert("failures".to_owned(), (*failures).into());
        let (event_type, severity) = match answered {
            Answered::Took(id) => {
                let id = id.as_deref().map(|id| clean_line(id, DETAIL_CHARS_MAX));
                payload.extend(id.map(|id| ("id".to_owned(), id.into())));
                (SENT, Severity::Debug)
            }
            Answered::Chose(_) => (SENT, Severity::Debug),
            Answered::Refused { error, is_final } => {
                payload.insert("error".to_owned(), clean_line(error, DETAIL_CHARS_MAX).into());
                payload.extend(is_final.then(|| ("is_final".to_owned(), json!(true))));
                (FAILED, Severity::Info)
            }
        };
        let id = format!("{}:{}:{failures}", notice.id, sink.as_str());
        Event::own(event_type, id, severity, Value::Object(payload), now)
    }

    /// The event that says that it waits `until` the quiet hours end.
    pub fn waits_event(&self, until: Timestamp, now: Timestamp) -> Event {
        let Self { notice, sink, failures } = self;
        let payload = json!({
            "notice": &*notice.id, "sink": sink.as_str(), "failures": failures, "until": until,
        });
        // It may wait more than once: the hours were changed, or the clock.
        let id = format!("{}:{}:{failures}:waits:{}", notice.id, sink.as_str(), now.as_millis());
        Event::own(WAITS, id, Severity::Debug, payload, now)
    }
}

/// What is due, and how the sinks are set.
#[derive(Debug, Clone, Default)]
pub struct Outbound {
    /// How the sinks are set.
    pub settings: Arc<Settings>,
    /// What is due, oldest first.
    pub jobs: Arc<[Job]>,
}

/// One line of `text` without escapes, control characters and secrets, of at most `chars_max` characters and a mark.
pub fn clean_line(text: &str, chars_max: usize) -> String {
    let stripped = strip_text(text);
    let masked = mask_secrets(&stripped);
    let line = masked.split_whitespace().collect::<Vec<_>>().join(" ");
    cut_text(line.into(), chars_max).into_owned()
}

/// How long ago `then` was, such as `40 s ago`.
pub(crate) fn seconds_ago(then: Timestamp, now: Timestamp) -> String {
    format!("{} s ago", duration_millis(now.since(then)) / 1_000)
}
