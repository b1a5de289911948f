//! State for each scope of events, of the newest few scopes.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::{
    event::{Scope, SessionId},
    session::Succession,
};

/// Most scopes with state; the one that changed least recently makes room.
const SCOPES_MAX: usize = 256;

/// The state of each scope, the one that changed last at the end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Scoped<T>(VecDeque<(Scope, T)>);

impl<T> Default for Scoped<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Default> Scoped<T> {
    /// The state of a scope, which changes now.
    pub(super) fn change(&mut self, scope: Scope) -> &mut T {
        let at = self.0.iter().position(|(own, _)| *own == scope);
        let entry = at.and_then(|at| self.0.remove(at)).unwrap_or_else(|| (scope, T::default()));
        self.0.push_back(entry);
        self.0.drain(..self.0.len().saturating_sub(SCOPES_MAX));
        &mut self.0.back_mut().expect("it was just put there").1
    }

    /// The states of the scopes that `is_wanted` selects, the one that changed last first.
    pub(super) fn of<'a>(
        &'a self,
        is_wanted: impl Fn(&Scope) -> bool + 'a,
    ) -> impl Iterator<Item = &'a T> + 'a {
        self.0.iter().rev().filter(move |(scope, _)| is_wanted(scope)).map(|(_, state)| state)
    }
}

impl<T: Default + Clone> Scoped<T> {
    /// Follows a session whose identity changed; returns whether that changed a state.
    pub(super) fn follow(&mut self, change: &Succession) -> bool {
        let of = |id: &SessionId| Scope::Session(id.clone());
        match change {
            Succession::Continued { from, to } => {
                let taken = self.take(&of(from));
                let is_changed = taken.is_some();
                if let Some(state) = taken {
                    *self.change(of(to)) = state;
                }
                is_changed
            }
            Succession::Copied { from, to } => {
                let state =
                    self.0.iter().find(|(scope, _)| *scope == of(from)).map(|(_, state)| state.clone());
                let is_changed = state.is_some();
                if let Some(state) = state {
                    *self.change(of(to)) = state;
                }
                is_changed
            }
            Succession::Ended { session, parent: _ } => self.take(&of(session)).is_some(),
        }
    }

    fn take(&mut self, scope: &Scope) -> Option<T> {
        let at = self.0.iter().position(|(own, _)| own == scope)?;
        self.0.remove(at).map(|(_, state)| state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_changed_scope_makes_room() {
        let mut scoped = Scoped::<u32>::default();
        for number in 0..=SCOPES_MAX {
            *scoped.change(Scope::Workspace(format!("/w{number}").into())) = 1;
            scoped.change(Scope::Workspace("/w1".into()));
        }
        let known = |folder: &str| scoped.of(|scope| *scope == Scope::Workspace(folder.into())).count();
        assert_eq!((known("/w0"), known("/w1"), known("/w2"), scoped.0.len()), (0, 1, 1, SCOPES_MAX));
    }

    #[test]
    fn state_follows_a_session_to_its_continuation() {
        let mut scoped = Scoped::<u32>::default();
        let id = SessionId::new;
        let of = |scoped: &Scoped<u32>, name| {
            scoped.of(|scope| *scope == Scope::Session(id(name))).copied().collect::<Vec<_>>()
        };
        *scoped.change(Scope::Session(id("a"))) = 7;
        assert!(scoped.follow(&Succession::Copied { from: id("a"), to: id("b") }));
        assert!(scoped.follow(&Succession::Continued { from: id("a"), to: id("c") }));
        assert!(!scoped.follow(&Succession::Continued { from: id("a"), to: id("d") }));
        assert_eq!([of(&scoped, "a"), of(&scoped, "b"), of(&scoped, "c")], [vec![], vec![7], vec![7]]);
        assert!(scoped.follow(&Succession::Ended { session: id("b"), parent: None }));
        assert_eq!(of(&scoped, "b"), Vec::<u32>::new());
    }
}
