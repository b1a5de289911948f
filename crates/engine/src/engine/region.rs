//! What is true for a session: the region, from the parts of the engine. Reading it changes nothing.

use std::sync::Arc;

use super::parts::Engine;
use crate::{
    conversation::{RegionEntry, SessionView},
    event::{Scope, SessionId},
    hold::Hold,
    notification::{Notification, Priority},
    pipeline::{mute::Place, silence::Matchers},
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
        let is_suppressing = |hold: &Hold| matches!(hold, Hold::Silenced { .. } | Hold::Inhibited { .. });
        self.sessions.suppressed(&notification.id).iter().any(is_suppressing)
            || self.is_silenced_in(session, notification)
            || self.is_muted_in(session, notification)
    }

    /// Whether silences in force suppress each event of a notification in a session, also one that
    /// was delivered before they began.
    fn is_silenced_in(&self, session: &SessionView<'_>, notification: &Notification) -> bool {
        if self.silences().in_force().next().is_none() {
            return false;
        }
        let rule = self.rules.position(&notification.subscriber);
        let rule = rule.and_then(|at| self.rules.subscribers.get(at));
        let Some((rule, events)) = rule.zip(self.recent.get(notification.id)) else { return false };
        let place = Place { session: session.id, workspace: session.harness.workspace.as_deref() };
        let is_for = |matchers: &Matchers| {
            !matchers.is_scoped() || place.is_meant(matchers.session.as_ref(), matchers.workspace.as_ref())
        };
        let is_critical = notification.priority == Priority::Critical;
        !events.is_empty()
            && events.iter().all(|event| self.silences().find(rule, event, is_critical, is_for).is_some())
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
