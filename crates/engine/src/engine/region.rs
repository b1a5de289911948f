//! What is true for a session: the region, from the parts of the engine. Reading it changes nothing.

use std::sync::Arc;

use super::parts::Engine;
use crate::{
    conversation::{RegionEntry, SessionView},
    event::{Scope, SessionId},
    hold::Hold,
    notification::Notification,
    region::{Fact, Region},
};

/// Most conditions, and retained states, of which a region has the text; the others are counted.
const FACTS_MAX: usize = 256;
/// Most problems of which it has the text.
const PROBLEMS_MAX: usize = 64;

impl Engine {
    /// What is true for a session; `None` for a session that is not known.
    ///
    /// A subagent has what is addressed to it alone. What a silence, a mute or an inhibiting event
    /// keeps from the session is left out.
    pub fn region(&self, session: &SessionId) -> Option<Region> {
        let view = self.sessions.view(session)?;
        let is_shown = |entry: &RegionEntry<'_>| !self.is_kept_from(&view, entry.notification);
        let (conditions, more_conditions) = first(self.sessions.conditions_of(session).filter(is_shown));
        // What is over was ended at its time.
        let retained = self.sessions.retained_of(session, self.now).into_iter();
        let (retained, more_retained) = first(retained.filter(is_shown));
        let is_in = |scope: &Scope| self.sessions.is_in_scope(session, scope);
        let (problems, more_problems) = self.folds.editor.problems(is_in, PROBLEMS_MAX);
        Some(Region {
            folder: view.harness.workspace.clone(),
            conditions,
            more_conditions,
            forgotten: self.sessions.conditions_evicted(),
            retained,
            more_retained,
            open: self.folds.editor.open(is_in),
            problems,
            more_problems,
            files: self.folds.files.newest(is_in),
        })
    }

    /// A number that is larger after each change of what a region can have. It is of this process.
    pub fn region_changes(&self) -> u64 {
        self.region_changes
            + self.sessions.region_changes()
            + self.folds.files.changes()
            + self.folds.editor.changes()
    }

    /// Whether a silence, a mute or an inhibiting event keeps a notification from a session.
    fn is_kept_from(&self, session: &SessionView<'_>, notification: &Notification) -> bool {
        self.sessions.suppressed(&notification.id).iter().any(Hold::is_suppression)
            || self.is_suppressed_in(session, notification)
            || self.is_muted_in(session, notification)
    }
}

/// The first entries, and the number of the others.
fn first<'a>(mut entries: impl Iterator<Item = RegionEntry<'a>>) -> (Vec<Fact>, u64) {
    let fact = |RegionEntry { notification, made_of }: RegionEntry<'a>| Fact {
        notification: Arc::clone(notification),
        made_of,
    };
    let facts = entries.by_ref().take(FACTS_MAX).map(fact).collect();
    (facts, entries.count() as u64)
}
