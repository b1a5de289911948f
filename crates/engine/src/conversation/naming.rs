//! The sessions that an id or a process means.
//!
//! Harness and id together identify a session: `main`, `default` and `1` are ids that many loops
//! choose. A session is called by its id alone, or by `harness:id` when a session of another
//! harness already has that name. `harness:id` identifies either of them.
//!
//! Continuations, predecessors and subagents belong to the sessions of a process.

use super::{
    session::{Session, SessionKey},
    sessions::Sessions,
    table::Table,
};
use crate::{event::SessionId, exchange::Harness, sorted::SortedSet};

/// The session that a name refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// The session with this name, known or not.
    One(SessionId),
    /// One of these, by full name: the harness was not given.
    Several(Vec<SessionId>),
}

impl Sessions {
    /// The session that `harness` refers to by `id`, which is an id of its own or a full name.
    ///
    /// Shape: without `harness`, the one session with that id, or all of them.
    pub fn named(&self, id: &SessionId, harness: Option<&str>) -> Named {
        match harness {
            Some(harness) => Named::One(self.table.named_by(harness, id)),
            None => self.table.named(id),
        }
    }

    /// The session called by its id whose full name is `name`, unless a session is called `name`.
    pub fn by_full_name(&self, name: &SessionId) -> Option<SessionId> {
        self.table.by_full_name(name)
    }
}

impl Table {
    fn named_by(&self, harness: &str, id: &SessionId) -> SessionId {
        let full = id.full(harness);
        if self.known(&full).is_some() || self.is_of_another(id, harness) {
            return full;
        }
        self.by_full_name(id).unwrap_or_else(|| id.clone())
    }

    fn named(&self, id: &SessionId) -> Named {
        let short = self.known(id).map(|_| id);
        let mut all = short.into_iter().chain(self.namesakes().with_id(id));
        match (all.next(), all.next()) {
            (None, _) => Named::One(self.by_full_name(id).unwrap_or_else(|| id.clone())),
            (Some(one), None) => Named::One(one.clone()),
            (Some(_), Some(_)) => {
                let short = short.map(|id| id.full(self.harness_of(id).unwrap_or_default()));
                Named::Several(short.into_iter().chain(self.namesakes().with_id(id).cloned()).collect())
            }
        }
    }

    /// The session called by its id whose full name is `name`, unless a session is called `name`.
    pub(super) fn by_full_name(&self, name: &SessionId) -> Option<SessionId> {
        let mut parts = name.parts().map(|(harness, id)| (harness, SessionId::new(id))).peekable();
        if parts.peek().is_none() || self.known(name).is_some() {
            return None;
        }
        parts.find(|(harness, id)| self.harness_of(id) == Some(harness)).map(|(_, id)| id)
    }

    /// The full name of a session that is called by its id, unless another one is called that.
    pub(super) fn full_name(&self, session: &Session) -> Option<SessionId> {
        let harness = session.harness.name.as_deref().filter(|_| session.own_id.is_none())?;
        let full = session.id().full(harness);
        self.known(&full).is_none().then_some(full)
    }

    /// Registers a session opened by its full name, and returns the id in it; `None` when `name` is
    /// its id.
    pub(super) fn claim_full_name(&mut self, name: &SessionId, harness: &Harness) -> Option<SessionId> {
        let harness = harness.name.as_deref()?;
        let id = name.own(harness).map(SessionId::new).filter(|id| self.is_of_another(id, harness))?;
        self.note_namesake(id.clone(), name.clone());
        Some(id)
    }

    /// Whether the session of this id, or its successor, belongs to another harness.
    fn is_of_another(&self, id: &SessionId, harness: &str) -> bool {
        let addressed = self.addressed(id).map(|key| self.get(key));
        addressed.is_some_and(|known| known.harness.name.as_deref().is_some_and(|name| name != harness))
    }

    fn harness_of(&self, id: &SessionId) -> Option<&str> {
        self.known(id)?.harness.name.as_deref()
    }
}

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
    use journal::time::Timestamp;

    use super::*;
    use crate::{
        conversation::{Suspension, tests::sessions},
        exchange::{ContextChange, Conversations, Exchange, Harness, Release},
        notification::InjectionPoint,
    };

    const LATER: Timestamp = Timestamp::from_millis(2);

    fn opened(all: &mut Sessions, id: &str, harness: Option<&str>) -> String {
        let id = SessionId::new(id);
        let Named::One(session) = all.named(&id, harness) else { panic!("{id} is several") };
        let harness = Harness { name: harness.map(Into::into), ..Harness::default() };
        all.open_session(&session, &harness, Timestamp::from_millis(1));
        session.to_string()
    }

    fn named(all: &Sessions, id: &str, harness: Option<&str>) -> Vec<String> {
        match all.named(&SessionId::new(id), harness) {
            Named::One(one) => vec![one.to_string()],
            Named::Several(several) => several.iter().map(SessionId::to_string).collect(),
        }
    }

    #[test]
    fn equal_ids_of_two_harnesses_name_two_sessions() {
        let mut all = sessions();
        assert_eq!(opened(&mut all, "main", Some("a")), "main");
        assert_eq!(named(&all, "main", None), ["main"]);
        assert_eq!(opened(&mut all, "main", Some("b")), "b:main");
        assert_eq!(opened(&mut all, "b:main", Some("b")), "b:main");
        assert_eq!(opened(&mut all, "a:main", Some("a")), "main");
        assert_eq!(named(&all, "main", None), ["a:main", "b:main"]);
        for (name, expected) in [("a:main", "main"), ("b:main", "b:main"), ("c:main", "c:main")] {
            assert_eq!(named(&all, name, None), [expected]);
        }
        // A suspended session keeps its name; a closed one releases it.
        all.suspend(&SessionId::new("main"), Suspension::ByHarness, LATER);
        assert_eq!(named(&all, "main", Some("c")), ["c:main"]);
        all.end_session(&SessionId::new("main"), LATER);
        assert_eq!(named(&all, "main", None), ["b:main"]);
        assert_eq!(named(&all, "main", Some("b")), ["b:main"]);
        assert_eq!(opened(&mut all, "main", Some("c")), "main");
        all.end_session(&SessionId::new("b:main"), LATER);
        assert_eq!(named(&all, "main", None), ["main"]);
        assert_eq!(named(&all, "main", Some("b")), ["b:main"]);
    }

    #[test]
    fn id_resembling_a_full_name_stays_an_id() {
        let mut all = sessions();
        assert_eq!(opened(&mut all, "bot:1", Some("bot")), "bot:1");
        assert_eq!(opened(&mut all, "1", Some("a")), "1");
        assert_eq!(opened(&mut all, "bot:1", Some("bot")), "bot:1");
        assert_eq!(named(&all, "1", None), ["1"]);
        assert_eq!(opened(&mut all, "bot:1", Some("b")), "b:bot:1");
        assert_eq!(named(&all, "bot:1", None), ["bot:bot:1", "b:bot:1"]);
    }

    #[test]
    fn first_named_harness_owns_a_session_without_harness() {
        let mut all = sessions();
        assert_eq!(opened(&mut all, "main", None), "main");
        assert_eq!(opened(&mut all, "main", Some("a")), "main");
        assert_eq!(opened(&mut all, "main", Some("b")), "b:main");
    }

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
