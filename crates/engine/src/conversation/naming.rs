//! Sessions of several harnesses with the same id.
//!
//! Harness and id together identify a session: `main`, `default` and `1` are ids that many loops
//! choose. A session is called by its id alone, or by `harness:id` when a session of another
//! harness already has that name. `harness:id` identifies either of them.

use super::{session::Session, sessions::Sessions, table::Table};
use crate::{event::SessionId, exchange::Harness};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{Suspension, tests::sessions};
    use journal::time::Timestamp;

    const LATER: Timestamp = Timestamp::from_millis(2);

    fn open(all: &mut Sessions, id: &str, harness: Option<&str>) -> String {
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
        assert_eq!(open(&mut all, "main", Some("a")), "main");
        assert_eq!(named(&all, "main", None), ["main"]);
        assert_eq!(open(&mut all, "main", Some("b")), "b:main");
        assert_eq!(open(&mut all, "b:main", Some("b")), "b:main");
        assert_eq!(open(&mut all, "a:main", Some("a")), "main");
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
        assert_eq!(open(&mut all, "main", Some("c")), "main");
        all.end_session(&SessionId::new("b:main"), LATER);
        assert_eq!(named(&all, "main", None), ["main"]);
        assert_eq!(named(&all, "main", Some("b")), ["b:main"]);
    }

    #[test]
    fn id_resembling_a_full_name_stays_an_id() {
        let mut all = sessions();
        assert_eq!(open(&mut all, "bot:1", Some("bot")), "bot:1");
        assert_eq!(open(&mut all, "1", Some("a")), "1");
        assert_eq!(open(&mut all, "bot:1", Some("bot")), "bot:1");
        assert_eq!(named(&all, "1", None), ["1"]);
        assert_eq!(open(&mut all, "bot:1", Some("b")), "b:bot:1");
        assert_eq!(named(&all, "bot:1", None), ["bot:bot:1", "b:bot:1"]);
    }

    #[test]
    fn first_named_harness_owns_a_session_without_harness() {
        let mut all = sessions();
        assert_eq!(open(&mut all, "main", None), "main");
        assert_eq!(open(&mut all, "main", Some("a")), "main");
        assert_eq!(open(&mut all, "main", Some("b")), "b:main");
    }
}
