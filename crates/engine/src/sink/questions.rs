//! The open questions, folded from events: each ends once, by the first answer or by its expiry.

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};

use super::question::{
    ASKED, Awaited, CHOICES, CHOSEN, Chosen, End, IsTaken, QUESTIONS_MAX, Question, TAKEN, TAKEN_WITHIN,
};
use journal::time::Timestamp;

use crate::{
    event::{Event, EventRef, SessionId},
    fold::{Dispatched, Effects, Fold},
    session::Succession,
    sorted::SortedMap,
};

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

/// The snapshot form.
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
        self.deadline = self.open.values().map(|open| open.deadline()).min();
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
