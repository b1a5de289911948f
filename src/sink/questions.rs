//! The open questions, folded from events: each ends once, by the first answer or by its time.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    SOURCE,
    question::{
        ASKED, Awaited, CHOICES, CHOSEN, Chosen, End, IsTaken, QUESTIONS_MAX, Question, TAKEN, TAKEN_WITHIN,
    },
};
use crate::{
    event::{Event, EventRef, SessionId, Trust},
    time::Timestamp,
};

/// Most ends that are remembered, for those who ask again after a restart.
const ENDED_MAX: usize = 256;

/// How a question is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionState {
    /// It waits for an answer.
    Open(Arc<Question>),
    /// It ended so.
    Ended(End),
}

/// All questions that are open, and how the newest ones ended.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct Questions {
    /// Those that wait for an answer, and those whose end waits for who asked.
    open: BTreeMap<Arc<str>, Arc<Question>>,
    /// Oldest first.
    ended: VecDeque<(Arc<str>, End)>,
    #[serde(skip)]
    deadline: Option<Timestamp>,
    #[serde(skip)]
    has_changed: bool,
    /// Those that need not be shown any more.
    #[serde(skip)]
    closed: Vec<Arc<str>>,
}

/// What a snapshot holds of them.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Stored {
    open: BTreeMap<Arc<str>, Arc<Question>>,
    ended: VecDeque<(Arc<str>, End)>,
}

impl From<Stored> for Questions {
    fn from(Stored { open, ended }: Stored) -> Self {
        let mut questions = Self { open, ended, ..Self::default() };
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
    /// Takes an event, and gives what is to be published with it: ends of questions.
    pub fn observe(&mut self, event: &EventRef<'_>, trust: Trust, now: Timestamp) -> Vec<Event> {
        if event.source != SOURCE || !trust.is_trusted() {
            return Vec::new();
        }
        match event.event_type {
            ASKED => {
                self.ask(event);
                Vec::new()
            }
            CHOSEN => match serde_json::from_str(event.payload) {
                Ok(chosen) => self.choose(chosen, event.id, now),
                Err(_) => Vec::new(),
            },
            TAKEN => match serde_json::from_str(event.payload) {
                Ok(Taken { question }) => self.take(&question, now),
                Err(_) => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn ask(&mut self, event: &EventRef<'_>) {
        let Ok(asked) = serde_json::from_str::<Question>(event.payload) else { return };
        let (session, workspace) = (event.session.map(SessionId::new), event.workspace.map(Into::into));
        // The server counts before; this bounds what a made-up journal does.
        let has_room = self.open.len() < QUESTIONS_MAX && CHOICES.contains(&asked.choices.len());
        if has_room && self.state(&asked.id).is_none() {
            let question = Question { session, workspace, end: None, ..asked };
            self.open.insert(Arc::clone(&question.id), Arc::new(question));
            self.note_change();
        }
    }

    /// Ends a question by an answer, unless it has ended or the answer is none of its choices.
    fn choose(&mut self, chosen: Chosen, event: &str, now: Timestamp) -> Vec<Event> {
        let Chosen { question, answer, by } = chosen;
        let is_meant = |open: &&Arc<Question>| open.end.is_none() && open.choices.contains(&answer);
        match self.open.get(&question).filter(is_meant).cloned() {
            Some(open) => self.end(open, End::Answered { answer, by, event: event.into() }, now),
            None => Vec::new(),
        }
    }

    /// Ends `question`: at once, or when who waits for that has it.
    fn end(&mut self, question: Arc<Question>, end: End, now: Timestamp) -> Vec<Event> {
        let id = Arc::clone(&question.id);
        self.ended.push_back((Arc::clone(&id), end.clone()));
        self.ended.drain(..self.ended.len().saturating_sub(ENDED_MAX));
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

    /// Announces an end that who waited for it has.
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

    /// When a question expires, or its end is announced because nobody took it.
    pub const fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// What is to be published at `now`, when [`Questions::poll_timeout`] has come.
    pub fn take_due(&mut self, now: Timestamp) -> Vec<Event> {
        let due = self.open.values().filter(|open| open.deadline() <= now);
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
        events
    }

    /// How a question is, if it is open or one of the newest that ended.
    pub fn state(&self, id: &str) -> Option<QuestionState> {
        match self.open.get(id).filter(|open| open.end.is_none()) {
            Some(open) => Some(QuestionState::Open(Arc::clone(open))),
            None => {
                let mut ended = self.ended.iter().rev();
                // The beginning of an id names it, as it did while it was open.
                ended
                    .find(|(known, _)| !id.is_empty() && known.starts_with(id))
                    .map(|(_, end)| QuestionState::Ended(end.clone()))
            }
        }
    }

    /// Those that wait for an answer, if that is another list than when this was asked before.
    pub fn take_changes(&mut self) -> Option<Arc<[Arc<Question>]>> {
        let is_open = |open: &&Arc<Question>| open.end.is_none();
        std::mem::take(&mut self.has_changed).then(|| self.open.values().filter(is_open).cloned().collect())
    }

    /// Those that ended since this was asked before.
    pub fn take_closed(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.closed)
    }

    /// Lets the questions of one session be those of another one, which takes its place.
    pub fn follow(&mut self, from: &SessionId, to: &SessionId) {
        self.change_asker(from, |question| question.session = Some(to.clone()));
    }

    /// Lets the questions of a session that has ended for good be those of its folder, whose next
    /// session gets the answers.
    pub fn end_of(&mut self, session: &SessionId) {
        self.change_asker(session, |question| {
            if question.workspace.is_some() {
                question.session = None;
            }
        });
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
        self.deadline = self.open.values().map(|open| open.deadline()).min();
    }
}

#[cfg(test)]
mod tests;
