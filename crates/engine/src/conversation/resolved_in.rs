//! The parts of the sessions in which the conditions of a notification are resolved, while they hold in
//! others.

use serde::{Deserialize, Serialize};

use crate::{
    event::Scope,
    notification::{Resolution, State, SubscriberId},
};

/// Most parts; beyond it, the conditions are resolved in all sessions.
const PARTS_MAX: usize = 16;

/// The parts in which all conditions of one notification are resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct ResolvedIn(Vec<Scope>);

/// The sessions of a notification in which a resolution ends conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// In none of them.
    Nowhere,
    /// In a part of them.
    Part,
    /// In all of them.
    Everywhere,
}

impl ResolvedIn {
    /// Whether there is no such part.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where a resolution ends conditions of a subscriber in the sessions of `scope`.
    pub(super) fn reach(&self, resolution: &Resolution, of: &SubscriberId, scope: &Scope) -> Reach {
        if *of != resolution.subscriber || !resolution.scope.meets(scope) {
            Reach::Nowhere
        } else if resolution.scope.covers(scope) || self.0.len() >= PARTS_MAX {
            Reach::Everywhere
        } else {
            Reach::Part
        }
    }

    /// Notes a resolution in a part, if it ends all `conditions`; returns whether that is new.
    pub(super) fn note(&mut self, resolution: &Resolution, conditions: &[State]) -> bool {
        let is_new =
            conditions.iter().all(|state| resolution.ends(state)) && !self.0.contains(&resolution.scope);
        if is_new {
            self.0.push(resolution.scope.clone());
        }
        is_new
    }

    /// Whether it is resolved for a session, by the scopes that concern it.
    pub(super) fn concerns(&self, is_concerned_by: impl Fn(&Scope) -> bool) -> bool {
        self.0.iter().any(is_concerned_by)
    }
}
