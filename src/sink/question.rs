//! A question to the user: a notice with a few choices, which is answered at most once.
//!
//! What was asked, what was chosen and how it ended are events; their fold is
//! [`Questions`](super::Questions). A question goes to the sinks as a notice does, and its answer
//! goes back to who asked.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Notice;
pub use super::choices::{CHOICE_CHARS_MAX, CHOICES, short};
use crate::{
    event::{Event, SessionId, Severity},
    notification::Level,
    time::{Timestamp, short_duration},
};

/// The type of the event that asks something; its payload is a [`Question`].
pub const ASKED: &str = "user.question";
/// The type of the event that says what somebody chose; its payload is a [`Chosen`].
pub const CHOSEN: &str = "user.answer";
/// The type of the event that says that who waited for the end of a question has it; its payload
/// has `question`.
pub const TAKEN: &str = "user.answer.taken";
/// The type of the event that ends a question by an answer.
pub const ANSWERED: &str = "user.answered";
/// The type of the event that ends a question that nobody answered in time.
pub const EXPIRED: &str = "user.question.expired";

/// For how long a question waits that does not say so.
pub const ASKED_FOR_DEFAULT: Duration = Duration::from_secs(60 * 60);
/// Longest time that one can wait.
pub const ASKED_FOR_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Most open questions of a session, or of a folder.
pub const PER_ASKER_MAX: usize = 32;
/// Most open questions in all.
pub const QUESTIONS_MAX: usize = 256;
/// How long the end of a question waits for who said that they wait for it; then it is announced to
/// the session.
pub const TAKEN_WITHIN: Duration = Duration::from_secs(5);

/// Who waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awaited {
    /// The session, which is notified of it.
    #[default]
    BySession,
    /// A command that asks for it until it has it; the session is notified only if that command has
    /// gone.
    ByCaller,
}

/// How a question ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Somebody chose.
    Answered {
        /// Which of the choices.
        answer: Arc<str>,
        /// Where: `desktop`, `cli`, `api`, or the session below whose client that was.
        by: Arc<str>,
        /// The id of the event that says so.
        event: Arc<str>,
    },
    /// Nobody did in time.
    Expired,
}

/// What the user is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Its name, and the id of its event.
    #[serde(rename = "question")]
    pub id: Arc<str>,
    /// One line.
    pub message: Arc<str>,
    /// Whether the message is markdown.
    #[serde(default, rename = "markdown", skip_serializing_if = "std::ops::Not::not")]
    pub is_markdown: bool,
    /// What to open, an address on the web.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Arc<str>>,
    /// What can be chosen, each once, in the order in which they are shown.
    pub choices: Vec<Arc<str>>,
    /// How bad it is.
    #[serde(default)]
    pub level: Level,
    /// What it belongs to.
    pub context: Arc<str>,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it ends unanswered.
    pub expires_at: Timestamp,
    /// Who waits for the answer.
    #[serde(default)]
    pub awaited: Awaited,
    /// The session that asks; the event says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The folder that it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Arc<str>>,
    /// How it ended, while that waits to be taken by who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<End>,
}

/// What somebody chose; the payload of a [`CHOSEN`] event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// Of which question.
    pub question: Arc<str>,
    /// Which of its choices.
    pub answer: Arc<str>,
    /// Where.
    pub by: Arc<str>,
}

impl Chosen {
    /// The event that says so; `name` tells it from other answers to the same question.
    pub fn event(&self, name: &str, now: Timestamp) -> Event {
        let payload = serde_json::to_value(self).expect("texts always serialize");
        Event::own(CHOSEN, format!("{}:{name}", self.question), Severity::Debug, payload, now)
    }
}

/// The event that says that who waited for the end of `question` has it.
pub fn taken_event(question: &str, now: Timestamp) -> Event {
    let payload = json!({ "question": question });
    Event::own(TAKEN, format!("{question}:taken"), Severity::Debug, payload, now)
}

impl Question {
    /// What `notice` asks, without choices yet.
    pub fn of(notice: &Notice) -> Self {
        Self {
            id: Arc::clone(&notice.id),
            message: Arc::clone(&notice.message),
            is_markdown: notice.is_markdown,
            link: notice.link.clone(),
            choices: Vec::new(),
            level: notice.level,
            context: Arc::clone(&notice.context),
            asked_at: notice.at,
            expires_at: notice.at + ASKED_FOR_DEFAULT,
            awaited: Awaited::default(),
            session: notice.session.clone(),
            workspace: notice.workspace.clone(),
            end: None,
        }
    }

    /// The event that asks it.
    pub fn event(&self) -> Event {
        let payload = serde_json::to_value(self).expect("texts and numbers always serialize");
        self.own(ASKED, self.id.to_string(), self.level.severity(), payload, self.asked_at)
    }

    /// The event that says how it ended; `awaited` is in it if who asked has that already.
    pub(super) fn end_event(&self, end: &End, is_taken: IsTaken, now: Timestamp) -> Event {
        let mut payload = Map::new();
        payload.insert("question".to_owned(), Value::from(&*self.id));
        payload.insert("message".to_owned(), Value::from(&*self.message));
        let event_type = match end {
            End::Answered { answer, by, .. } => {
                payload.insert("answer".to_owned(), Value::from(&**answer));
                payload.insert("by".to_owned(), Value::from(&**by));
                ANSWERED
            }
            End::Expired => EXPIRED,
        };
        payload.insert("after".to_owned(), short_duration(now.since(self.asked_at)).into());
        if is_taken == IsTaken::Yes {
            payload.insert("awaited".to_owned(), true.into());
        }
        let id = format!("{}:end", self.id);
        self.own(event_type, id, Severity::Info, Value::Object(payload), now)
    }

    fn own(&self, event_type: &str, id: String, severity: Severity, payload: Value, now: Timestamp) -> Event {
        Event {
            session: self.session.clone(),
            workspace: self.workspace.clone(),
            ..Event::own(event_type, id, severity, payload, now)
        }
    }

    /// When something becomes of it by itself.
    pub(super) fn deadline(&self) -> Timestamp {
        self.expires_at
    }
}

/// Whether who waited for the end of a question has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IsTaken {
    Yes,
    No,
}
