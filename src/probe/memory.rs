//! What every session knows, as a fold over the journal.
//!
//! Learns from what probes noted, and from what harnesses report of calls and turns. It is in the snapshot; what a handler looks at is
//! a copy that costs a pointer.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Known, NOTED, Noted, Other, Pushed, SOURCE, context::Limit, published::Published};
use crate::{
    event::{EventRef, Seq, SessionId, Severity},
    session::OPENING_EVENT,
    time::Timestamp,
};

/// Most sessions that are remembered; beyond it the one that was silent for longest is forgotten.
const SESSIONS_MAX: usize = 1_000;
/// Most files that all sessions know together, at some 250 bytes each in memory and in a snapshot; beyond it the session that was silent
/// for longest is forgotten.
const FILES_MAX: usize = 65_536;
/// Most other sessions that a probe is given: those of the same folder that were heard of last.
const OTHERS_MAX: usize = 16;
/// Most models whose limits are remembered; beyond it all are forgotten.
const LIMITS_MAX: usize = 64;
/// The end of a watch; its payload has the `paths` that it is about.
const WATCH_FIRED: &str = "watch.fired";
/// The events that say how the checks of what a session pushed ended; their payload has the `branch` and a `summary`.
const CHECKS_ENDED: [&str; 3] = ["ci.run.completed", "ci.run.failed", "ci.follow.ended"];
/// Most branches of which is remembered how their checks ended.
const PUSHED_MAX: usize = 3;
/// Most paths of ended watches that are remembered of a session, give or take those of one watch.
const WATCHED_MAX: usize = 64;
/// For how long a session that says nothing counts as one that may have changed something.
const OTHERS_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// What the sessions know.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    sessions: BTreeMap<SessionId, Arc<Known>>,
    /// With how many tokens the context of each model is full.
    limits: Arc<BTreeMap<String, u64>>,
    /// The changes of files that were published for a folder.
    published: Published,
    /// The sessions of which something changed since that was asked; `None` for all, as after a start.
    #[serde(skip)]
    changed: Option<BTreeSet<SessionId>>,
}

/// What changed of what sessions know.
#[derive(Debug)]
pub struct Changes {
    /// What each of them knows now; nothing of one that was forgotten.
    pub sessions: Vec<(SessionId, Option<Arc<Known>>)>,
    /// With how many tokens the context of each model is full.
    pub limits: Arc<BTreeMap<String, u64>>,
}

/// What a probe is given of it.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// What the session knows; nothing of one that was not heard of.
    pub known: Arc<Known>,
    /// The other sessions that work in, under or above its folder, the one that was heard of last first.
    pub others: Vec<Other>,
    /// With how many tokens the context of each model is full.
    pub limits: Arc<BTreeMap<String, u64>>,
}

impl View {
    /// Adds what another session knows, if it matters to `session`, which works in `workspace`.
    pub fn add(
        &mut self,
        session: &SessionId,
        workspace: Option<&str>,
        (id, known): (&SessionId, &Arc<Known>),
        is_open: impl Fn(&SessionId) -> bool,
        now: Timestamp,
    ) {
        let is_near = match (workspace, known.workspace.as_deref()) {
            (Some(own), Some(other)) => {
                let (own, other) = (Path::new(own), Path::new(other));
                own.starts_with(other) || other.starts_with(own)
            }
            (None, _) | (_, None) => false,
        };
        if id != session && is_near && now.since(known.heard_at) <= OTHERS_FOR {
            self.others.push(Other { session: id.clone(), known: Arc::clone(known), is_open: is_open(id) });
        }
    }

    /// Puts the others into their order, after the last was added.
    pub fn order(&mut self) {
        self.others.sort_by(|one, other| {
            other.known.heard_at.cmp(&one.known.heard_at).then_with(|| one.session.cmp(&other.session))
        });
        self.others.truncate(OTHERS_MAX);
    }
}

impl Memory {
    /// Takes an event that is trusted.
    pub fn learn(&mut self, event: &EventRef<'_>, now: Timestamp) {
        let Some(session) = event.session else { return };
        if event.event_type == WATCH_FIRED {
            return self.learn_watched(&SessionId::new(session), event);
        }
        if event.source == SOURCE && CHECKS_ENDED.contains(&event.event_type) {
            return self.learn_checks(&SessionId::new(session), event, now);
        }
        let is_of_calls = event.event_type.starts_with("tool.call.");
        let is_of_turns = event.event_type.starts_with("agent.") && event.event_type != OPENING_EVENT;
        if event.event_type != NOTED && !is_of_calls && !is_of_turns {
            return;
        }
        let noted = match event.event_type {
            NOTED => match serde_json::from_str::<Noted>(event.payload) {
                Ok(noted) => Some(noted),
                // Nobody but a probe writes it; what a user made up teaches nothing.
                Err(_) => return,
            },
            _ => None,
        };
        let session = SessionId::new(session);
        let is_noted = noted.is_some();
        let known = self.known_mut(&session);
        if let Some(folder) = event.workspace.filter(|folder| known.workspace.as_deref() != Some(*folder)) {
            known.workspace = Some(folder.into());
        }
        match noted {
            Some(noted) => {
                known.apply(noted);
                if let Some(limit) = known.around.context.learnt.clone() {
                    self.learn_limit(limit);
                }
            }
            None => {
                known.heard_at = now;
                known.around.learn(event, now);
                known.calling_since = match event.event_type {
                    "tool.call.pending" => known.calling_since.or(Some(now)),
                    _ => None,
                };
            }
        }
        if is_noted {
            self.bound_files(&session);
        }
    }

    /// Takes an event that may say how a file changed.
    pub fn note_published(&mut self, seq: Seq, event: &EventRef<'_>) {
        self.published.note(seq, event);
    }

    /// Whether a session knows all that these events say: files with that content.
    pub fn knows_all(&self, session: &SessionId, events: &[Seq]) -> bool {
        self.sessions.get(session).is_some_and(|known| self.published.are_known(events, &known.files))
    }

    /// Learns of which paths a session is notified by the end of a watch.
    fn learn_watched(&mut self, session: &SessionId, event: &EventRef<'_>) {
        #[derive(Deserialize)]
        struct Fired {
            #[serde(default)]
            paths: Vec<Arc<str>>,
        }
        let Ok(Fired { paths }) = serde_json::from_str(event.payload) else { return };
        if paths.is_empty() || !self.sessions.contains_key(session) {
            return;
        }
        let known = self.known_mut(session);
        if known.watched.len() < WATCHED_MAX {
            known.watched.extend(paths);
        }
    }

    /// Learns how the checks of what a session pushed ended, unless that is nothing to say.
    fn learn_checks(&mut self, session: &SessionId, event: &EventRef<'_>, now: Timestamp) {
        #[derive(Deserialize)]
        struct Ended {
            branch: Option<String>,
            summary: String,
        }
        let Ok(Ended { branch, summary }) = serde_json::from_str(event.payload) else { return };
        if event.severity == Severity::Debug || !self.sessions.contains_key(session) {
            return;
        }
        let pushed = &mut self.known_mut(session).pushed;
        pushed.retain(|before| before.branch != branch);
        pushed.push(Pushed { at: now, branch, ended: summary });
        pushed.drain(..pushed.len().saturating_sub(PUSHED_MAX));
    }

    fn learn_limit(&mut self, limit: Limit) {
        let Limit { model, tokens } = limit;
        if self.limits.get(&model) == Some(&tokens) {
            return;
        }
        let limits = Arc::make_mut(&mut self.limits);
        if limits.len() >= LIMITS_MAX {
            limits.clear();
        }
        limits.insert(model, tokens);
    }

    /// Forgets sessions, but not `session`, until all files together are within their bound.
    fn bound_files(&mut self, session: &SessionId) {
        let count = |sessions: &BTreeMap<SessionId, Arc<Known>>| -> usize {
            sessions.values().map(|known| known.files.len()).sum()
        };
        while count(&self.sessions) > FILES_MAX {
            let others = self.sessions.iter().filter(|(id, known)| *id != session && known.files.len() > 0);
            let silent = others.min_by_key(|(_, known)| known.heard_at).map(|(id, _)| id.clone());
            let Some(silent) = silent else { return };
            self.remove(&silent);
        }
    }

    /// Lets `copy` know what `original` knows.
    pub fn copy(&mut self, original: &SessionId, copy: &SessionId) {
        if let Some(known) = self.sessions.get(original).cloned() {
            self.make_room();
            self.sessions.insert(copy.clone(), known);
            self.note_change(copy);
        }
    }

    /// What a probe is given for `session`, which works in `workspace`; `is_open` says it of the others.
    pub fn view(
        &self,
        session: &SessionId,
        workspace: Option<&str>,
        is_open: impl Fn(&SessionId) -> bool,
        now: Timestamp,
    ) -> View {
        let known = self.sessions.get(session).cloned().unwrap_or_default();
        let mut view = View { known, others: Vec::new(), limits: Arc::clone(&self.limits) };
        for (id, other) in &self.sessions {
            view.add(session, workspace, (id, other), &is_open, now);
        }
        view.order();
        view
    }

    /// What changed since this was asked before; at first everything is new.
    pub fn take_changes(&mut self) -> Changes {
        let changed = self.changed.replace(BTreeSet::new());
        let changed = changed.unwrap_or_else(|| self.sessions.keys().cloned().collect());
        let state = |id: SessionId| {
            let known = self.sessions.get(&id).cloned();
            (id, known)
        };
        Changes { sessions: changed.into_iter().map(state).collect(), limits: Arc::clone(&self.limits) }
    }

    /// Whether [`Memory::take_changes`] would give something new.
    pub fn has_changes(&self) -> bool {
        self.changed.as_ref().is_none_or(|changed| !changed.is_empty())
    }

    fn note_change(&mut self, session: &SessionId) {
        if let Some(changed) = &mut self.changed {
            changed.insert(session.clone());
        }
    }

    fn remove(&mut self, session: &SessionId) {
        self.sessions.remove(session);
        self.note_change(session);
    }

    fn known_mut(&mut self, session: &SessionId) -> &mut Known {
        if !self.sessions.contains_key(session) {
            self.make_room();
        }
        self.note_change(session);
        Arc::make_mut(self.sessions.entry(session.clone()).or_default())
    }

    fn make_room(&mut self) {
        while self.sessions.len() >= SESSIONS_MAX {
            let silent =
                self.sessions.iter().min_by_key(|(_, known)| known.heard_at).map(|(id, _)| id.clone());
            let Some(silent) = silent else { return };
            self.remove(&silent);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::{Event, Payload, Provenance, Severity};

    fn noted(session: &str, count: usize) -> Event {
        let state = json!({ "present": { "print": "1:2:3:4:5" } });
        let file = json!({ "by": "read", "state": state });
        let files: serde_json::Map<_, _> = (0..count).map(|n| (format!("/w/{n}"), file.clone())).collect();
        Event {
            id: "1".into(),
            event_type: NOTED.parse().expect("valid"),
            source: "aside".into(),
            provenance: Provenance::Local,
            severity: Severity::Debug,
            timestamp: Timestamp::ZERO,
            payload: Payload::from(json!({ "files": files })),
            dedupe_key: None,
            session: Some(SessionId::new(session)),
            workspace: None,
            cause: None,
        }
    }

    #[test]
    fn the_files_of_all_sessions_are_bounded_by_forgetting_the_one_that_is_silent() {
        let mut memory = Memory::default();
        let known = |memory: &Memory, session: &str| {
            let view = memory.view(&SessionId::new(session), None, |_| true, Timestamp::ZERO);
            view.known.files.len()
        };
        memory.learn(&noted("first", FILES_MAX / 2).as_ref(), Timestamp::ZERO);
        memory.learn(&noted("second", FILES_MAX / 2).as_ref(), Timestamp::ZERO);
        assert_eq!(known(&memory, "first"), FILES_MAX / 2);
        let turn = Event { event_type: "agent.turn.start".parse().expect("valid"), ..noted("first", 0) };
        memory.learn(&turn.as_ref(), Timestamp::from_millis(5));
        memory.learn(&noted("third", 1).as_ref(), Timestamp::ZERO);
        assert_eq!(
            [known(&memory, "first"), known(&memory, "second"), known(&memory, "third")],
            [FILES_MAX / 2, 0, 1]
        );
    }

    #[test]
    fn what_is_no_note_teaches_nothing_and_sessions_are_bounded() {
        let mut memory = Memory::default();
        let wrong = Event { payload: Payload::from(json!({ "files": 7 })), ..noted("s", 0) };
        memory.learn(&wrong.as_ref(), Timestamp::ZERO);
        assert!(memory.sessions.is_empty());
        for number in 0..=SESSIONS_MAX {
            memory.learn(&noted(&number.to_string(), 1).as_ref(), Timestamp::ZERO);
        }
        assert_eq!(memory.sessions.len(), SESSIONS_MAX);
    }
}
