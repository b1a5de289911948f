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
        let known = self.known_mut(&SessionId::new(session));
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
