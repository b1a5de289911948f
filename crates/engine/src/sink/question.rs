//! A question to the user: a notice with a few choices, which is answered at most once.
//!
//! The question, each choice and the end are events; [`Questions`](super::Questions) is their fold.
//! A question is sent to the sinks like a notice, and its answer is returned to the asker.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Notice;
pub use super::choices::{CHOICE_CHARS_MAX, CHOICES, short};
use journal::time::{Timestamp, short_duration};

use crate::{
    event::{Event, SessionId, Severity},
    notification::Level,
};

/// The type of the event that asks a question; its payload is a [`Question`].
pub const ASKED: &str = "user.question";
/// The type of the event that somebody chose an answer; its payload is a [`Chosen`].
pub const CHOSEN: &str = "user.answer";
/// The type of the event that the waiting caller has received the end of a question; its payload
/// has `question`.
pub const TAKEN: &str = "user.answer.taken";
/// The type of the event that ends a question with an answer.
pub const ANSWERED: &str = "user.answered";
/// The type of the event that ends a question without an answer in time.
pub const EXPIRED: &str = "user.question.expired";

/// How long a question waits by default.
pub const ASKED_FOR_DEFAULT: Duration = Duration::from_secs(60 * 60);
/// Longest wait of a question.
pub const ASKED_FOR_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Most open questions of a session, or of a folder.
pub const PER_ASKER_MAX: usize = 32;
/// Most open questions in total.
pub const QUESTIONS_MAX: usize = 256;
/// How long the end of a question is held for a waiting caller; then it is announced to the
/// session.
pub const TAKEN_WITHIN: Duration = Duration::from_secs(5);

/// The party that waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awaited {
    /// The session, which is notified of the answer.
    #[default]
    BySession,
    /// A command that polls for the answer; the session is notified only if the command has ended.
    ByCaller,
}

/// The end of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Somebody chose an answer.
    Answered {
        /// The chosen answer.
        answer: Arc<str>,
        /// The author: `desktop`, `user` (a process at a terminal, of no session), `session ID`,
        /// `token` (over TCP) or `unknown process`.
        by: Arc<str>,
        /// The id of the event of this choice.
        event: Arc<str>,
    },
    /// Nobody answered in time.
    Expired,
}

/// A question to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Its id, and the id of its event.
    #[serde(rename = "question")]
    pub id: Arc<str>,
    /// One line.
    pub message: Arc<str>,
    /// Whether the message is markdown.
    #[serde(default, rename = "markdown", skip_serializing_if = "std::ops::Not::not")]
    pub is_markdown: bool,
    /// A web address to open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Arc<str>>,
    /// The distinct choices, in the order in which they are shown.
    pub choices: Vec<Arc<str>>,
    /// The level.
    #[serde(default)]
    pub level: Level,
    /// The context.
    pub context: Arc<str>,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// The party that waits for the answer.
    #[serde(default)]
    pub awaited: Awaited,
    /// The session that asks, from the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The folder of origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Arc<str>>,
    /// The caller that asked it, which has a share of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Arc<str>>,
    /// Its end, while that waits to be received by the asker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<End>,
}

/// A chosen answer; the payload of a [`CHOSEN`] event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The id of the question.
    pub question: Arc<str>,
    /// The chosen one of its choices.
    pub answer: Arc<str>,
    /// The place, as in [`End::Answered`].
    pub by: Arc<str>,
}

impl Chosen {
    /// The event of this choice; `name` distinguishes its id from those of other answers to the
    /// question.
    pub fn event(&self, name: &str, now: Timestamp) -> Event {
        let payload = serde_json::to_value(self).expect("texts always serialize");
        Event::own(CHOSEN, format!("{}:{name}", self.question), Severity::Debug, payload, now)
    }
}

/// The event that the waiting caller has received the end of `question`.
pub fn taken_event(question: &str, now: Timestamp) -> Event {
    let payload = json!({ "question": question });
    Event::own(TAKEN, format!("{question}:taken"), Severity::Debug, payload, now)
}

impl Question {
    /// A question from `notice`, without choices yet.
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
            caller: None,
            end: None,
        }
    }

    /// The event that asks this question.
    pub fn event(&self) -> Event {
        let payload = serde_json::to_value(self).expect("texts and numbers always serialize");
        self.own(ASKED, self.id.to_string(), self.level.severity(), payload, self.asked_at)
    }

    /// The event of its end; contains `awaited` if the asker already has the answer.
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

    /// When it expires, or its held end is announced.
    pub(super) fn deadline(&self) -> Timestamp {
        self.expires_at
    }
}

/// Whether the waiting caller has received the end of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IsTaken {
    Yes,
    No,
}
