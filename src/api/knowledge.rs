//! Facts of sessions, as published by the event loop, so that a look at the machine needs no query.
//!
//! The engine's fold is the source of truth. This copy lags by the record that the event loop works
//! on. A session's own exchange is answered after its changes are published.

use std::sync::{Arc, PoisonError, RwLock};

use dashmap::DashMap;
use engine::{
    event::SessionId,
    probe::{Known, Settings, View, memory::Changes},
    sorted::SortedMap,
};
use journal::time::Timestamp;

use crate::daemon::program::Workspaces;

/// A copy of the facts of sessions.
#[derive(Debug, Default)]
pub struct Knowledge {
    sessions: DashMap<SessionId, Arc<Known>>,
    /// The open sessions, with the folders that their harnesses named.
    open: DashMap<SessionId, Option<Arc<str>>>,
    shared: RwLock<Shared>,
    /// The folders of sessions, whose programs are not run.
    workspaces: Arc<Workspaces>,
}

/// Facts shared by all sessions.
#[derive(Debug, Default, Clone)]
struct Shared {
    limits: Arc<SortedMap<String, u64>>,
    settings: Arc<Settings>,
}

impl Knowledge {
    /// An empty copy; the folders of sessions are noted in `workspaces`.
    pub fn new(workspaces: Arc<Workspaces>) -> Self {
        Self { workspaces, ..Self::default() }
    }

    /// Applies changes.
    pub fn publish(&self, changes: Changes) {
        let Changes { sessions, limits } = changes;
        for (session, known) in sessions {
            match known {
                Some(known) => {
                    known.folders().for_each(|folder| self.workspaces.note(folder));
                    self.sessions.insert(session, known);
                }
                None => drop(self.sessions.remove(&session)),
            }
        }
        self.shared.write().unwrap_or_else(PoisonError::into_inner).limits = limits;
    }

    /// Replaces the settings.
    pub fn publish_settings(&self, settings: Arc<Settings>) {
        self.shared.write().unwrap_or_else(PoisonError::into_inner).settings = settings;
    }

    /// Notes that a session is open, in this folder.
    pub fn publish_open(&self, session: SessionId, workspace: Option<Arc<str>>) {
        self.open.insert(session, workspace);
    }

    /// The folder of an open session, if its harness named one.
    pub(crate) fn folder_of(&self, session: &SessionId) -> Option<Arc<str>> {
        self.open.get(session)?.clone()
    }

    /// Whether anything is known of a session: facts, or a folder.
    pub(crate) fn knows(&self, session: &SessionId) -> bool {
        self.sessions.contains_key(session) || self.folder_of(session).is_some()
    }

    /// Notes that a session is closed.
    pub fn publish_closed(&self, session: &SessionId) {
        self.open.remove(session);
    }

    /// The facts for a look of `session`, which works in `workspace`, and the settings.
    pub(crate) fn view(
        &self,
        session: &SessionId,
        workspace: Option<&str>,
        now: Timestamp,
    ) -> (View, Arc<Settings>) {
        let Shared { limits, settings } = self.shared.read().unwrap_or_else(PoisonError::into_inner).clone();
        let known = self.sessions.get(session).map(|known| Arc::clone(&known)).unwrap_or_default();
        let mut view = View { known, others: Vec::new(), limits };
        // Without a folder no other session is near; each part of the map has a lock.
        for entry in workspace.iter().flat_map(|_| &self.sessions) {
            let is_open = |id: &SessionId| self.open.contains_key(id);
            view.add(session, workspace, entry.pair(), is_open, now);
        }
        view.order();
        (view, settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{
        event::{Event, Payload, Provenance, Severity},
        fold::{Effects, Fold},
        probe::Memory,
        session::Succession,
    };

    fn turn_of(session: &str, at: u64) -> Event {
        Event {
            id: "1".into(),
            event_type: "agent.turn.start".parse().expect("valid"),
            source: "claude-code".into(),
            provenance: Provenance::Harness,
            severity: Severity::Debug,
            timestamp: Timestamp::from_millis(at),
            payload: Payload::from(serde_json::json!({})),
            dedupe_key: None,
            session: Some(SessionId::new(session)),
            workspace: Some("/w".into()),
            cause: None,
        }
    }

    #[test]
    fn the_copy_gives_what_the_fold_gives() {
        let (mut memory, knowledge) = (Memory::default(), Knowledge::default());
        let now = Timestamp::from_millis(10_000);
        let names = ["a", "b", "c", "d"];
        let is_open = |id: &SessionId| id.as_str() < "c";
        for name in names {
            let id = SessionId::new(name);
            knowledge.publish_open(id.clone(), None);
            if !is_open(&id) {
                knowledge.publish_closed(&id);
            }
        }
        for (name, at) in [("a", 1), ("b", 2), ("a", 3), ("c", 3), ("d", 3)] {
            memory.note(&turn_of(name, at).as_ref(), Timestamp::from_millis(at));
            assert!(memory.has_changes());
            knowledge.publish(memory.take_changes());
            assert!(!memory.has_changes());
        }
        let [from, to] = ["a", "copy"].map(SessionId::new);
        memory.follow(&Succession::Copied { from, to }, &mut Effects::default());
        knowledge.publish(memory.take_changes());
        for name in names.into_iter().chain(["copy", "unknown"]) {
            let session = SessionId::new(name);
            let (copy, _) = knowledge.view(&session, Some("/w"), now);
            let fold = memory.view(&session, Some("/w"), is_open, now);
            assert_eq!(format!("{copy:?}"), format!("{fold:?}"), "{name}");
        }
    }
}
