//! A question to the user: a notice with a few choices, which is answered at most once.
//!
//! The question, each choice and the end are events; [`Questions`] is their fold.
//! A question is sent to the sinks like a notice, and its answer is returned to the asker.
//!
//! The open questions are folded from events: each ends once, by the first answer or by its expiry.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use journal::time::{Timestamp, short_duration};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Notice;
use crate::{
    event::{Event, EventRef, SessionId, Severity},
    fold::{Dispatched, Effects, Fold},
    notification::Level,
    session::Succession,
    sorted::SortedMap,
};

pub use super::notice::{CHOICE_CHARS_MAX, CHOICES, short};

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
    /// The text, in one line.
    pub message: Arc<str>,
    /// Whether the message is markdown.
    #[serde(default, rename = "markdown", skip_serializing_if = "std::ops::Not::not")]
    pub is_markdown: bool,
    /// A web address to open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Arc<str>>,
    /// The distinct choices, in the order in which they are shown.
    pub choices: Vec<Arc<str>>,
    /// How serious it is.
    #[serde(default)]
    pub level: Level,
    /// The context.
    pub context: Arc<str>,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it expires, or its held end is announced.
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
    fn end_event(&self, end: &End, is_taken: IsTaken, now: Timestamp) -> Event {
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
}

/// Whether the waiting caller has received the end of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IsTaken {
    Yes,
    No,
}

/// Most remembered ends, for callers that ask again after a restart.
const ENDED_MAX: usize = 256;

/// The state of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionState {
    /// It waits for an answer.
    Open(Arc<Question>),
    /// It has ended.
    Ended {
        /// Its end.
        end: End,
        /// The session that asked it.
        asker: Option<SessionId>,
    },
}

/// All open questions, and the ends of the newest ended ones.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct Questions {
    /// Questions that wait for an answer, and those whose end waits for the asker.
    open: SortedMap<Arc<str>, Arc<Question>>,
    /// Oldest first.
    ended: VecDeque<(Arc<str>, End)>,
    /// The sessions that asked the ended ones.
    askers: SortedMap<Arc<str>, SessionId>,
    #[serde(skip)]
    deadline: Option<Timestamp>,
    #[serde(skip)]
    has_changed: bool,
    /// Ids of questions that no longer have to be shown.
    #[serde(skip)]
    closed: Vec<Arc<str>>,
}

#[derive(Default, Deserialize)]
struct Stored {
    open: SortedMap<Arc<str>, Arc<Question>>,
    ended: VecDeque<(Arc<str>, End)>,
    askers: SortedMap<Arc<str>, SessionId>,
}

impl From<Stored> for Questions {
    fn from(Stored { open, ended, askers }: Stored) -> Self {
        let mut questions = Self { open, ended, askers, ..Self::default() };
        questions.note_change();
        questions
    }
}

/// The payload of a [`TAKEN`] event.
#[derive(Deserialize)]
struct Taken {
    question: Arc<str>,
}

impl Questions {
    fn ask(&mut self, event: &EventRef<'_>) {
        let Ok(asked) = serde_json::from_str::<Question>(event.payload) else { return };
        let (session, workspace) = (event.session.map(SessionId::new), event.workspace.map(Into::into));
        // The server checks this earlier; here it bounds the effects of a forged journal.
        let has_room = self.open.len() < QUESTIONS_MAX && CHOICES.contains(&asked.choices.len());
        if has_room && self.state(&asked.id).is_none() {
            let question = Question { session, workspace, end: None, ..asked };
            self.open.insert(Arc::clone(&question.id), Arc::new(question));
            self.note_change();
        }
    }

    /// Ends a question by an answer, unless it has already ended or does not have this choice.
    fn choose(&mut self, chosen: Chosen, event: &str, now: Timestamp) -> Vec<Event> {
        let Chosen { question, answer, by } = chosen;
        let is_meant = |open: &&Arc<Question>| open.end.is_none() && open.choices.contains(&answer);
        match self.open.get(&question).filter(is_meant).cloned() {
            Some(open) => self.end(open, End::Answered { answer, by, event: event.into() }, now),
            None => Vec::new(),
        }
    }

    /// Ends `question`: at once, or when its waiting caller has received the end.
    fn end(&mut self, question: Arc<Question>, end: End, now: Timestamp) -> Vec<Event> {
        let id = Arc::clone(&question.id);
        self.ended.push_back((Arc::clone(&id), end.clone()));
        self.askers.extend(question.session.clone().map(|asker| (Arc::clone(&id), asker)));
        for (evicted, _) in self.ended.drain(..self.ended.len().saturating_sub(ENDED_MAX)) {
            self.askers.remove(&evicted);
        }
        self.closed.push(Arc::clone(&id));
        let events = match question.awaited {
            Awaited::BySession => {
                self.open.remove(&id);
                vec![question.end_event(&end, IsTaken::No, now)]
            }
            Awaited::ByCaller => {
                let ended =
                    Question { end: Some(end), expires_at: now + TAKEN_WITHIN, ..question.as_ref().clone() };
                self.open.insert(id, Arc::new(ended));
                Vec::new()
            }
        };
        self.note_change();
        events
    }

    /// Announces an end that its waiting caller has received.
    fn take(&mut self, id: &str, now: Timestamp) -> Vec<Event> {
        let Some((question, end)) =
            self.open.get(id).and_then(|open| Some((Arc::clone(open), open.end.clone()?)))
        else {
            return Vec::new();
        };
        self.open.remove(id);
        self.note_change();
        vec![question.end_event(&end, IsTaken::Yes, now)]
    }

    /// The state of a question, if it is open or one of the newest ended ones.
    pub fn state(&self, id: &str) -> Option<QuestionState> {
        match self.open.get(id).filter(|open| open.end.is_none()) {
            Some(open) => Some(QuestionState::Open(Arc::clone(open))),
            None => {
                let mut ended = self.ended.iter().rev();
                // The beginning of an id is enough, as for an open question.
                ended.find(|(known, _)| !id.is_empty() && known.starts_with(id)).map(|(id, end)| {
                    QuestionState::Ended { end: end.clone(), asker: self.askers.get(id).cloned() }
                })
            }
        }
    }

    /// The questions that wait for an answer, if the list may have changed since the last call.
    pub fn take_changes(&mut self) -> Option<Arc<[Arc<Question>]>> {
        let is_open = |open: &&Arc<Question>| open.end.is_none();
        std::mem::take(&mut self.has_changed).then(|| self.open.values().filter(is_open).cloned().collect())
    }

    /// Ids of the questions that have ended since the last call.
    pub fn take_closed(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.closed)
    }

    fn change_asker(&mut self, asker: &SessionId, change: impl Fn(&mut Question)) {
        let mut has_changed = false;
        for question in self.open.values_mut().filter(|open| open.session.as_ref() == Some(asker)) {
            change(Arc::make_mut(question));
            has_changed = true;
        }
        if has_changed {
            self.note_change();
        }
    }

    fn note_change(&mut self) {
        self.has_changed = true;
        self.deadline = self.open.values().map(|open| open.expires_at).min();
    }
}

impl Fold for Questions {
    type Settings = ();

    fn observe(&mut self, dispatched: &Dispatched<'_>, (): &(), to: &mut Effects) -> bool {
        let Dispatched { event, now, .. } = *dispatched;
        if !event.is_own() {
            return false;
        }
        let ended = match event.event_type {
            ASKED => {
                self.ask(event);
                return false;
            }
            CHOSEN => serde_json::from_str(event.payload).map(|chosen| self.choose(chosen, event.id, now)),
            TAKEN => serde_json::from_str(event.payload).map(|Taken { question }| self.take(&question, now)),
            _ => return false,
        };
        to.publish(ended.unwrap_or_default());
        false
    }

    /// When the next question expires, or the next end is announced because no caller received it.
    fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadline
    }

    fn handle_timeout(&mut self, now: Timestamp, to: &mut Effects) {
        let due = self.open.values().filter(|open| open.expires_at <= now);
        let due: Vec<Arc<Question>> = due.cloned().collect();
        let mut events = Vec::new();
        for question in due {
            match &question.end {
                None => events.extend(self.end(Arc::clone(&question), End::Expired, now)),
                Some(end) => {
                    self.open.remove(&question.id);
                    events.push(question.end_event(end, IsTaken::No, now));
                }
            }
        }
        self.note_change();
        to.publish(events);
    }

    /// The questions of an ended session move to its folder, whose next session gets the answers.
    fn follow(&mut self, change: &Succession, _: &mut Effects) {
        match change {
            Succession::Continued { from, to } => {
                self.change_asker(from, |question| question.session = Some(to.clone()));
            }
            Succession::Copied { .. } => {}
            Succession::Ended { session, .. } => self.change_asker(session, |question| {
                if question.workspace.is_some() {
                    question.session = None;
                }
            }),
        }
    }
}

#[cfg(test)]
mod tests;
