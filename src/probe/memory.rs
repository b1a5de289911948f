//! What every session knows, as a fold over the journal.
//!
//! Learns from what probes noted, and from what harnesses report of calls and turns. It is in the snapshot; what a handler looks at is
//! a copy that costs a pointer.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Known, NOTED, Noted, Other};
use crate::{
    event::{EventRef, SessionId},
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
/// For how long a session that says nothing counts as one that may have changed something.
const OTHERS_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// What the sessions know.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    sessions: BTreeMap<SessionId, Arc<Known>>,
}

/// What a probe is given of it.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// What the session knows; nothing of one that was not heard of.
    pub known: Arc<Known>,
    /// The other sessions that work in, under or above its folder, the one that was heard of last first.
    pub others: Vec<Other>,
}

impl Memory {
    /// Takes an event that is trusted.
    pub fn learn(&mut self, event: &EventRef<'_>, now: Timestamp) {
        let Some(session) = event.session else { return };
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
            Some(noted) => known.apply(noted),
            None => {
                known.heard_at = now;
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

    /// Forgets sessions, but not `session`, until all files together are within their bound.
    fn bound_files(&mut self, session: &SessionId) {
        let count = |sessions: &BTreeMap<SessionId, Arc<Known>>| -> usize {
            sessions.values().map(|known| known.files.len()).sum()
        };
        while count(&self.sessions) > FILES_MAX {
            let others = self.sessions.iter().filter(|(id, known)| *id != session && known.files.len() > 0);
            let silent = others.min_by_key(|(_, known)| known.heard_at).map(|(id, _)| id.clone());
            let Some(silent) = silent else { return };
            self.sessions.remove(&silent);
        }
    }

    /// Lets `copy` know what `original` knows.
    pub fn copy(&mut self, original: &SessionId, copy: &SessionId) {
        if let Some(known) = self.sessions.get(original).cloned() {
            self.make_room();
            self.sessions.insert(copy.clone(), known);
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
        let is_near = |other: &Known| match (workspace, other.workspace.as_deref()) {
            (Some(own), Some(other)) => {
                let (own, other) = (Path::new(own), Path::new(other));
                own.starts_with(other) || other.starts_with(own)
            }
            (None, _) | (_, None) => false,
        };
        let is_of_now = |other: &Known| now.since(other.heard_at) <= OTHERS_FOR;
        let others =
            self.sessions.iter().filter(|(id, other)| *id != session && is_of_now(other) && is_near(other));
        let other = |(id, known): (&SessionId, &Arc<Known>)| Other {
            session: id.clone(),
            known: Arc::clone(known),
            is_open: is_open(id),
        };
        let mut others: Vec<Other> = others.map(other).collect();
        others.sort_by_key(|other| std::cmp::Reverse(other.known.heard_at));
        others.truncate(OTHERS_MAX);
        View { known: self.sessions.get(session).cloned().unwrap_or_default(), others }
    }

    fn known_mut(&mut self, session: &SessionId) -> &mut Known {
        if !self.sessions.contains_key(session) {
            self.make_room();
        }
        Arc::make_mut(self.sessions.entry(session.clone()).or_default())
    }

    fn make_room(&mut self) {
        while self.sessions.len() >= SESSIONS_MAX {
            let silent =
                self.sessions.iter().min_by_key(|(_, known)| known.heard_at).map(|(id, _)| id.clone());
            let Some(silent) = silent else { return };
            self.sessions.remove(&silent);
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
