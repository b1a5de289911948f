//! Sessions of several harnesses with the same id.
//!
//! Harness and id together identify a session: `main`, `default` and `1` are ids that many loops
//! choose. A session is called by its id alone, or by `harness:id` when a session of another
//! harness already has that name. `harness:id` identifies either of them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Engine, io::Input, sessions::Sessions};
use crate::{event::SessionId, exchange::Harness};

/// The session that a name refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// The session with this name, known or not.
    One(SessionId),
    /// One of these, by full name: the harness was not given.
    Several(Vec<SessionId>),
}

/// The sessions called by their full names, by id.
#[derive(Debug, Default)]
pub(super) struct Namesakes(BTreeMap<SessionId, BTreeSet<SessionId>>);

impl Namesakes {
    pub(super) fn insert(&mut self, id: SessionId, full: SessionId) {
        self.0.entry(id).or_default().insert(full);
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

    fn of(&self, id: &SessionId) -> impl Iterator<Item = &SessionId> {
        self.0.get(id).into_iter().flatten()
    }
}

impl Engine {
    /// The session that `harness` refers to by `id`, which is an id of its own or a full name.
    ///
    /// Shape: without `harness`, the one session with that id, or all of them.
    pub fn named(&self, id: &SessionId, harness: Option<&str>) -> Named {
        match harness {
            Some(harness) => Named::One(self.sessions.named_by(harness, id)),
            None => self.sessions.named(id),
        }
    }

    /// The session that an event addresses by a full name that is not the session's current name.
    pub(super) fn addressed_by_full_name(&self, input: &Input<'_>) -> Option<SessionId> {
        let Input::Event { event, .. } = input else { return None };
        // Nearly no id has a separator; skip those without allocating.
        let name = event.session.filter(|name| name.contains(SessionId::SEPARATOR))?;
        self.sessions.by_full_name(&SessionId::new(name))
    }
}

impl Sessions {
    fn named_by(&self, harness: &str, id: &SessionId) -> SessionId {
        let full = id.full(harness);
        if self.known(&full).is_some() || self.is_of_another(id, harness) {
            return full;
        }
        self.by_full_name(id).unwrap_or_else(|| id.clone())
    }

    fn named(&self, id: &SessionId) -> Named {
        let short = self.known(id).map(|_| id);
        let mut all = short.into_iter().chain(self.namesakes.of(id));
        match (all.next(), all.next()) {
            (None, _) => Named::One(self.by_full_name(id).unwrap_or_else(|| id.clone())),
            (Some(one), None) => Named::One(one.clone()),
            (Some(_), Some(_)) => {
                let short = short.map(|id| id.full(self.harness_of(id).unwrap_or_default()));
                Named::Several(short.into_iter().chain(self.namesakes.of(id).cloned()).collect())
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

    /// Registers a session opened by its full name, and returns the id in it; `None` when `name` is
    /// its id.
    pub(super) fn note_namesake(&mut self, name: &SessionId, harness: &Harness) -> Option<SessionId> {
        let harness = harness.name.as_deref()?;
        let id = name.own(harness).map(SessionId::new).filter(|id| self.is_of_another(id, harness))?;
        self.namesakes.insert(id.clone(), name.clone());
        Some(id)
    }

    /// Whether the session of this id, or its successor, belongs to another harness.
    fn is_of_another(&self, id: &SessionId, harness: &str) -> bool {
        let id = self.aliases.get(id).unwrap_or(id);
        self.harness_of(id).is_some_and(|known| known != harness)
    }

    fn harness_of(&self, id: &SessionId) -> Option<&str> {
        self.known(id)?.harness.name.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{engine::CompiledRules, time::Timestamp};

    fn open(engine: &mut Engine, id: &str, harness: Option<&str>) -> String {
        let id = SessionId::new(id);
        let Named::One(session) = engine.named(&id, harness) else { panic!("{id} is several") };
        let harness = Harness { name: harness.map(Into::into), ..Harness::default() };
        let opened = Input::SessionOpened { session: session.clone(), harness };
        engine.handle(opened, Timestamp::from_millis(1));
        session.to_string()
    }

    fn close(engine: &mut Engine, session: &str, may_return: bool) {
        let closed = Input::SessionClosed { session: SessionId::new(session), may_return };
        engine.handle(closed, Timestamp::from_millis(2));
    }

    fn named(engine: &Engine, id: &str, harness: Option<&str>) -> Vec<String> {
        match engine.named(&SessionId::new(id), harness) {
            Named::One(one) => vec![one.to_string()],
            Named::Several(several) => several.iter().map(SessionId::to_string).collect(),
        }
    }

    #[test]
    fn the_second_harness_with_an_id_has_a_session_of_its_own() {
        let mut engine = Engine::new(Arc::new(CompiledRules::none()));
        assert_eq!(open(&mut engine, "main", Some("a")), "main");
        assert_eq!(named(&engine, "main", None), ["main"]);
        assert_eq!(open(&mut engine, "main", Some("b")), "b:main");
        assert_eq!(open(&mut engine, "b:main", Some("b")), "b:main");
        assert_eq!(open(&mut engine, "a:main", Some("a")), "main");
        assert_eq!(named(&engine, "main", None), ["a:main", "b:main"]);
        for (name, expected) in [("a:main", "main"), ("b:main", "b:main"), ("c:main", "c:main")] {
            assert_eq!(named(&engine, name, None), [expected]);
        }
        // A suspended session keeps its name; a closed one releases it.
        close(&mut engine, "main", true);
        assert_eq!(named(&engine, "main", Some("c")), ["c:main"]);
        close(&mut engine, "main", false);
        assert_eq!(named(&engine, "main", None), ["b:main"]);
        assert_eq!(named(&engine, "main", Some("b")), ["b:main"]);
        assert_eq!(open(&mut engine, "main", Some("c")), "main");
        close(&mut engine, "b:main", false);
        assert_eq!(named(&engine, "main", None), ["main"]);
        assert_eq!(named(&engine, "main", Some("b")), ["b:main"]);
    }

    #[test]
    fn an_id_that_looks_like_a_full_name_is_an_id() {
        let mut engine = Engine::new(Arc::new(CompiledRules::none()));
        assert_eq!(open(&mut engine, "bot:1", Some("bot")), "bot:1");
        assert_eq!(open(&mut engine, "1", Some("a")), "1");
        assert_eq!(open(&mut engine, "bot:1", Some("bot")), "bot:1");
        assert_eq!(named(&engine, "1", None), ["1"]);
        assert_eq!(open(&mut engine, "bot:1", Some("b")), "b:bot:1");
        assert_eq!(named(&engine, "bot:1", None), ["bot:bot:1", "b:bot:1"]);
    }

    #[test]
    fn a_session_whose_harness_is_not_known_is_that_of_the_first_who_says() {
        let mut engine = Engine::new(Arc::new(CompiledRules::none()));
        assert_eq!(open(&mut engine, "main", None), "main");
        assert_eq!(open(&mut engine, "main", Some("a")), "main");
        assert_eq!(open(&mut engine, "main", Some("b")), "b:main");
    }
}
