//! The sessions that are called by their full names, because another harness has their id.

use crate::{
    event::SessionId,
    sorted::{SortedMap, SortedSet},
};

/// The sessions called by their full names, by id.
#[derive(Debug, Default)]
pub(super) struct Namesakes(SortedMap<SessionId, SortedSet<SessionId>>);

impl Namesakes {
    pub(super) fn insert(&mut self, id: SessionId, full: SessionId) {
        self.0.get_or_default(id).insert(full);
    }

    /// Removes a session that ends, if it is called by its full name.
    pub(super) fn remove(&mut self, own_id: Option<&SessionId>, full: &SessionId) {
        let Some(id) = own_id else { return };
        if let Some(named) = self.0.get_mut(id) {
            named.remove(full);
            if named.is_empty() {
                self.0.remove(id);
            }
        }
    }

    /// The full names of the sessions with this id, in order.
    pub(super) fn with_id(&self, id: &SessionId) -> impl Iterator<Item = &SessionId> {
        self.0.get(id).into_iter().flatten()
    }
}
