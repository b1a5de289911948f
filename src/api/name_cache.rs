//! The cache of resolved session ids.

use std::sync::Arc;

use dashmap::DashMap;

use engine::event::SessionId;

/// Most cached answers: twice the number of sessions that can be open. The cache is cleared beyond
/// it.
const NAMES_MAX: usize = 20_000;

/// Cache of resolved ids: the harness that asked last, if it named itself, and the session.
///
/// Shape: one answer per id, so harnesses that share an id query the engine each time.
#[derive(Debug, Default)]
pub(crate) struct Names(DashMap<SessionId, (Option<Arc<str>>, SessionId)>);

impl Names {
    /// Removes an id whose session has ended or belongs to another harness.
    pub(crate) fn forget(&self, id: &SessionId) {
        self.0.remove(id);
    }

    pub(super) fn get(&self, id: &SessionId, harness: Option<&str>) -> Option<SessionId> {
        let known = self.0.get(id)?;
        (known.0.as_deref() == harness).then(|| known.1.clone())
    }

    pub(super) fn set(&self, id: SessionId, harness: Option<&str>, session: SessionId) {
        if self.0.len() >= NAMES_MAX {
            self.0.clear();
        }
        self.0.insert(id, (harness.map(Into::into), session));
    }
}
