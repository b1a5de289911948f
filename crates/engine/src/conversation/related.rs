//! The sessions that belong to those of a process: continuations, predecessors, subagents.

use super::{key::SessionKey, session::Session, sessions::Sessions, table::Table};
use crate::{event::SessionId, sorted::SortedSet};

/// Most parents of a subagent that are searched.
const PARENTS_MAX: usize = 8;

/// Some sessions, for finding those that belong to them.
struct Related<'t> {
    table: &'t Table,
    own: &'t [SessionId],
    /// The known ones, and the sessions that now run in their processes.
    keys: SortedSet<SessionKey>,
}

impl Sessions {
    /// Whether `session` is one of `own`, continues one, is continued by one, runs in the process of
    /// one with one conversation at a time, or is a subagent of such a session; `None` if it is none of
    /// `own` and not known.
    pub fn is_related(&self, own: &[SessionId], session: &SessionId) -> Option<bool> {
        Related::new(&self.table, own).contains(session)
    }

    /// Every known session that is [related](Self::is_related) to `own`, by each of its names, and
    /// `own`.
    pub fn related(&self, own: &[SessionId]) -> SortedSet<SessionId> {
        let related = Related::new(&self.table, own);
        let mut names: SortedSet<SessionId> = own.iter().cloned().collect();
        for session in self.table.open().chain(self.table.suspended()) {
            if related.has(session) {
                names.extend(session.predecessors.iter().chain([session.id()]).cloned());
                names.extend(self.table.full_name(session));
            }
        }
        names
    }
}

impl<'t> Related<'t> {
    fn new(table: &'t Table, own: &'t [SessionId]) -> Self {
        let known = own.iter().filter_map(|id| table.addressed(id));
        let keys = known.flat_map(|key| [key, table.current(key)]).collect();
        Self { table, own, keys }
    }

    fn contains(&self, id: &SessionId) -> Option<bool> {
        if self.own.contains(id) {
            return Some(true);
        }
        let name = self.table.by_full_name(id);
        let key = self.table.addressed(name.as_ref().unwrap_or(id))?;
        Some(self.has(self.table.get(key)))
    }

    fn has(&self, session: &Session) -> bool {
        let mut session = self.table.get(session.key);
        for _ in 0..PARENTS_MAX {
            if self.is_one(session) {
                return true;
            }
            let Some(parent) = &session.harness.parent else { return false };
            if self.own.contains(parent) {
                return true;
            }
            let Some(key) = self.table.addressed(parent) else { return false };
            session = self.table.get(key);
        }
        false
    }

    /// Whether it is one of them, their continuation, or in the process of one.
    fn is_one(&self, session: &Session) -> bool {
        let is_in_process = |key: &SessionKey| session.is_of_process_of(self.table.get(*key));
        self.own.contains(session.id())
            || self.keys.contains(&session.key)
            || session.is_of_some_process() && self.keys.iter().any(is_in_process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        conversation::{Suspension, tests::sessions},
        exchange::{ContextChange, Conversations, Exchange, Harness, Release},
        notification::InjectionPoint,
    };
    use journal::time::Timestamp;

    const NOW: Timestamp = Timestamp::from_millis(1);

    fn id(text: &str) -> SessionId {
        SessionId::new(text)
    }

    fn open(all: &mut Sessions, session: &str, harness: Harness) {
        all.open_session(&id(session), &harness, NOW);
    }

    /// Two processes. In the first one `old` was left, `a` was cleared and continues as `a2`, which has
    /// the subagents `x` and, below it, `y`; in the other one `b` runs, with the subagent `z`.
    fn two_processes() -> Sessions {
        let mut all = sessions();
        open(&mut all, "old", of_process(1));
        all.suspend(&id("old"), Suspension::ByHarness, NOW);
        open(&mut all, "a", of_process(1));
        open(&mut all, "x", below("a"));
        open(&mut all, "y", below("x"));
        open(&mut all, "b", of_process(2));
        open(&mut all, "z", below("b"));
        open(&mut all, "lone", below("unknown"));
        let cleared = Exchange {
            harness: of_process(1),
            context: ContextChange::Cleared { from: Some(id("a")) },
            ..Exchange::new(id("a2"), InjectionPoint::TurnStart, "c")
        };
        all.begin_exchange(&cleared, &Release::Decide, NOW);
        all
    }

    #[test]
    fn a_session_is_related_over_continuations_and_subagents() {
        let all = two_processes();
        let everything = ["a", "a2", "a:a2", "a:old", "old", "x", "y"];
        for (own, related, foreign) in [
            (&["a2"][..], &everything[..], &["b", "a:b", "z", "lone"][..]),
            (&["a"], &everything, &["b", "z"]),
            (&["old"], &everything, &["b", "z"]),
            (&["x"], &["x", "y"], &["a", "a2", "old", "b", "z"]),
            (&["b"], &["a:b", "b", "z"], &["a", "a2", "a:a2", "old", "x", "y"]),
            (&["unknown"], &["lone", "unknown"], &["a", "b", "x"]),
            (&["z", "y"], &["y", "z"], &["a2", "b", "x"]),
        ] {
            let own: Vec<SessionId> = own.iter().map(|own| id(own)).collect();
            let found: Vec<String> = all.related(&own).iter().map(SessionId::to_string).collect();
            assert_eq!(found, related, "{own:?}");
            for name in &everything[..] {
                let is_listed = related.contains(name);
                assert_eq!(all.is_related(&own, &id(name)), Some(is_listed), "{own:?} {name}");
            }
            for name in foreign {
                assert_eq!(all.is_related(&own, &id(name)), Some(false), "{own:?} {name}");
            }
            let is_own = own.contains(&id("unknown"));
            assert_eq!(all.is_related(&own, &id("unknown")), is_own.then_some(true), "{own:?}");
        }
    }

    #[test]
    fn parents_are_searched_up_to_a_bound() {
        let mut all = sessions();
        open(&mut all, "0", Harness::default());
        for number in 1..=PARENTS_MAX + 1 {
            open(&mut all, &number.to_string(), below(&(number - 1).to_string()));
        }
        let is_related = |number: usize| all.is_related(&[id("0")], &id(&number.to_string()));
        assert_eq!([is_related(PARENTS_MAX), is_related(PARENTS_MAX + 1)], [Some(true), Some(false)]);
        assert_eq!(all.related(&[id("0")]).len(), PARENTS_MAX + 1);
    }

    fn of_process(pid: u32) -> Harness {
        Harness {
            name: Some("a".into()),
            pid: Some(pid),
            conversations: Some(Conversations::OnePerProcess),
            ..Harness::default()
        }
    }

    fn below(parent: &str) -> Harness {
        Harness { parent: Some(id(parent)), ..Harness::default() }
    }
}
