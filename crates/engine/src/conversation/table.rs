//! The known sessions, and the indices by which they are found.
//!
//! An index by folder finds the sessions in, under or above one without checking each session.
//! Folders are in text order, so those under one are adjacent, and those above one are as many as
//! it has segments. [`Scope::concerns`](crate::event::Scope::concerns) defines the relation of two
//! folders; this is only an index.

use std::sync::Arc;

use hashbrown::HashMap;
use journal::time::{Timestamp, deadlines::Deadlines};
use serde::{Deserialize, Serialize, Serializer};

use super::session::{Lifecycle, Pressure, Session, SessionKey, SessionSettings, Weight, is_of_another};
use crate::{
    event::{Scope, SessionId},
    exchange::Harness,
    sorted::{SortedMap, SortedSet},
};

/// Most sessions whose start was reported before their first exchange; beyond that the first
/// exchange of the oldest counts as a turn.
const ANNOUNCED_MAX: usize = 64;

#[derive(Debug, Default, Deserialize)]
#[serde(from = "Restored")]
pub(crate) struct Table {
    /// Never iterated.
    sessions: HashMap<SessionKey, Session>,
    /// Never iterated.
    by_id: HashMap<SessionId, SessionKey>,
    open: SortedSet<SessionKey>,
    /// They get nothing new; their notifications expire as usual.
    suspended: SortedSet<SessionKey>,
    last_key: SessionKey,
    /// The successor of each continued session: the reverse of [`Session::predecessors`].
    aliases: SortedMap<SessionId, SessionKey>,
    /// Sessions that are not open and whose start was reported, oldest first.
    announced: Vec<SessionId>,
    deadlines: Deadlines<SessionKey>,
    pub(super) evictions: Evictions,
    /// The open sessions that are not subagents.
    roots: SortedSet<SessionKey>,
    /// The total of all queues.
    pub(super) pressure: Pressure,
    /// The folders of the open sessions that are not subagents.
    folders: Folders,
    /// The sessions called by their full names.
    namesakes: Namesakes,
}

/// Counts of evicted sessions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Evictions {
    /// Since the journal began.
    pub(super) count: u64,
    /// Since the last event that reported them.
    pub(super) unreported: u64,
    pub(super) reported_at: Option<Timestamp>,
}

impl Table {
    /// The known session with this id.
    pub(super) fn key(&self, id: &SessionId) -> Option<SessionKey> {
        self.by_id.get(id).copied()
    }

    /// The open session with this id.
    pub(super) fn open_key(&self, id: &SessionId) -> Option<SessionKey> {
        self.key(id).filter(|key| self.get(*key).is_open())
    }

    /// Whether the key still names a session.
    pub(super) fn contains(&self, key: SessionKey) -> bool {
        self.sessions.contains_key(&key)
    }

    pub(super) fn get(&self, key: SessionKey) -> &Session {
        self.sessions.get(&key).expect("a key names a known session")
    }

    pub(super) fn get_mut(&mut self, key: SessionKey) -> &mut Session {
        self.sessions.get_mut(&key).expect("a key names a known session")
    }

    pub(super) fn pair_mut(&mut self, one: SessionKey, other: SessionKey) -> (&mut Session, &mut Session) {
        match self.sessions.get_disjoint_mut([&one, &other]) {
            [Some(one), Some(other)] => (one, other),
            _ => unreachable!("a key names a known session"),
        }
    }

    pub(super) fn known(&self, id: &SessionId) -> Option<&Session> {
        self.key(id).map(|key| self.get(key))
    }

    /// The open sessions, oldest first.
    pub(super) fn open(&self) -> impl Iterator<Item = &Session> {
        self.open.iter().map(|key| self.get(*key))
    }

    /// The suspended sessions, oldest first.
    pub(super) fn suspended(&self) -> impl Iterator<Item = &Session> {
        self.suspended.iter().map(|key| self.get(*key))
    }

    pub(super) fn open_len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn suspended_len(&self) -> usize {
        self.suspended.len()
    }

    /// The keys of all known sessions: the open ones, then the suspended ones.
    pub(super) fn keys(&self) -> Vec<SessionKey> {
        self.open.iter().chain(&self.suspended).copied().collect()
    }

    /// All sessions in id order.
    pub(super) fn by_id(&self) -> Vec<&Session> {
        let mut all: Vec<&Session> = self.open().chain(self.suspended()).collect();
        all.sort_unstable_by_key(|session| session.id());
        all
    }

    /// Adds a session that is not known, and returns its key.
    pub(super) fn insert(&mut self, session: Session) -> SessionKey {
        self.last_key.0 += 1;
        let key = self.last_key;
        self.by_id.insert(session.id().clone(), key);
        self.sessions.insert(key, Session { key, ..session });
        self.open.insert(key);
        key
    }

    /// Suspends an open session, or opens a suspended one.
    pub(super) fn set_lifecycle(&mut self, key: SessionKey, lifecycle: Lifecycle) {
        self.get_mut(key).lifecycle = lifecycle;
        let (from, to) = match lifecycle {
            Lifecycle::Open => (&mut self.suspended, &mut self.open),
            Lifecycle::Suspended => (&mut self.open, &mut self.suspended),
        };
        from.remove(&key);
        to.insert(key);
        self.update_indices(key);
    }

    /// Removes a session and its index entries.
    pub(super) fn remove(&mut self, key: SessionKey) -> Session {
        self.open.remove(&key);
        self.suspended.remove(&key);
        self.roots.remove(&key);
        self.folders.set(key, None);
        self.deadlines.set(key, None);
        let mut session = self.sessions.remove(&key).expect("a key names a known session");
        self.by_id.remove(session.id());
        self.pressure.change(key, session.weight.take(), None);
        self.namesakes.remove(session.own_id.as_ref(), session.id());
        for predecessor in &session.predecessors {
            self.aliases.remove(predecessor);
        }
        session
    }

    /// Updates the indices that depend on a session's folder, its parent, and whether it is open.
    pub(super) fn update_indices(&mut self, key: SessionKey) {
        let session = self.sessions.get(&key).expect("a key names a known session");
        let is_root = session.is_open() && !session.is_subagent();
        if is_root {
            self.roots.insert(key);
        } else {
            self.roots.remove(&key);
        }
        self.folders.set(key, session.harness.workspace.as_ref().filter(|_| is_root));
    }

    /// Notes the deadline and the weight of a session.
    pub(super) fn update_deadline(&mut self, key: SessionKey, at: Timestamp, weights: (Weight, Weight)) {
        self.deadlines.set(key, Some(at));
        self.pressure.change(key, weights.0, weights.1);
    }

    /// When the first session is due.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadlines.first()
    }

    /// The sessions that are due at or before `now`, soonest first.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Vec<SessionKey> {
        self.deadlines.take_due(now)
    }

    /// The folders of open sessions, if they changed since the last call.
    pub(super) fn take_folders(&mut self) -> Option<Arc<[Arc<str>]>> {
        self.folders.take_changes()
    }

    /// Number of open sessions that are not subagents.
    pub(super) fn roots_len(&self) -> usize {
        self.roots.len()
    }

    /// The first open session after `after` that is not a subagent.
    pub(super) fn next_root(&self, after: SessionKey) -> Option<SessionKey> {
        self.roots.after(&after).first().copied()
    }

    /// The open sessions that `scope` concerns, oldest first; `None` if there are more than
    /// `count`, after visiting one more.
    pub(super) fn concerned(&self, scope: &Scope, count: usize) -> Option<Vec<SessionKey>> {
        let mut concerned: Vec<SessionKey> =
            self.each_concerned(scope).take(count.saturating_add(1)).collect();
        if concerned.len() > count {
            return None;
        }
        concerned.sort_unstable();
        debug_assert!(
            matches!(scope, Scope::Session(_)) || concerned == self.roots_of(scope),
            "the folder index agrees with a check of every session"
        );
        Some(concerned)
    }

    /// The open sessions that `scope` concerns, in some order.
    pub(super) fn each_concerned<'a>(
        &'a self,
        scope: &'a Scope,
    ) -> Box<dyn Iterator<Item = SessionKey> + 'a> {
        match scope {
            Scope::Session(id) => {
                Box::new(self.addressed(id).filter(|key| self.get(*key).is_open()).into_iter())
            }
            Scope::Workspace(folder) => Box::new(self.folders.sessions_around(folder)),
            Scope::All => Box::new(self.roots.iter().copied()),
            Scope::Part(part) => Box::new(self.each_concerned(part.whole()).filter(move |key| {
                let session = self.get(*key);
                scope.concerns(session.id(), session.workspace())
            })),
        }
    }

    /// The open and suspended sessions that `scope` concerns, oldest first.
    pub(super) fn known_concerned(&self, scope: &Scope) -> Vec<SessionKey> {
        let mut concerned: Vec<SessionKey> = self.each_concerned(scope).collect();
        match scope {
            Scope::Session(id) => {
                concerned.extend(self.addressed(id).filter(|key| !self.get(*key).is_open()));
            }
            Scope::Workspace(_) | Scope::All | Scope::Part(_) => {
                let suspended = self.suspended();
                let suspended = suspended.filter(|session| scope.concerns(session.id(), session.workspace()));
                concerned.extend(suspended.map(|session| session.key));
            }
        }
        concerned.sort_unstable();
        concerned
    }

    /// Whether `scope` concerns every session that `other` does: as [`Scope::covers`], which knows neither the
    /// folder of a session nor that a subagent is concerned by its own scope alone.
    pub(super) fn covers(&self, scope: &Scope, other: &Scope) -> bool {
        let addressed = match other {
            Scope::Session(id) => self.key(id),
            Scope::Workspace(_) | Scope::All | Scope::Part(_) => None,
        };
        match addressed {
            Some(key) => self.get(key).is_concerned_by(scope),
            None => scope.covers(other),
        }
    }

    /// The same for open sessions that are not subagents, by checking each; verifies the index.
    fn roots_of(&self, scope: &Scope) -> Vec<SessionKey> {
        let roots = self.open().filter(|session| !session.is_subagent());
        let concerned = roots.filter(|session| scope.concerns(session.id(), session.workspace()));
        concerned.map(|session| session.key).collect()
    }

    /// The session that an id addresses: its successor, or itself.
    pub(super) fn addressed(&self, id: &SessionId) -> Option<SessionKey> {
        self.aliases.get(id).copied().or_else(|| self.key(id))
    }

    /// Makes `successor` the one that the ids of `predecessors` address.
    pub(super) fn add_predecessors(
        &mut self,
        successor: SessionKey,
        predecessors: Vec<SessionId>,
        max: usize,
    ) {
        for id in predecessors {
            self.aliases.insert(id.clone(), successor);
            self.get_mut(successor).predecessors.push(id);
        }
        while self.get(successor).predecessors.len() > max {
            let oldest = self.get_mut(successor).predecessors.remove(0);
            self.aliases.remove(&oldest);
        }
    }

    /// Removes a session's alias, so that it gets its own notifications again.
    pub(super) fn release_alias(&mut self, id: &SessionId) {
        if let Some(successor) = self.aliases.remove(id) {
            self.get_mut(successor).predecessors.retain(|predecessor| predecessor != id);
        }
    }

    /// Notes that the start of a session that is not open was reported.
    pub(super) fn announce(&mut self, id: SessionId) {
        self.announced.push(id);
        self.announced.drain(..self.announced.len().saturating_sub(ANNOUNCED_MAX));
    }

    /// Whether the session's start was reported before it was open; forgets the report.
    pub(super) fn take_announced(&mut self, id: &SessionId) -> bool {
        let at = self.announced.iter().position(|announced| announced == id);
        at.map(|at| self.announced.remove(at)).is_some()
    }

    /// The queue that has to evict, if there are more than `total_max` in all: the longest of those
    /// with a notification of the lowest priority.
    pub(super) fn over(&mut self, total_max: usize) -> Option<SessionKey> {
        let known = self.open.iter().chain(&self.suspended);
        let weights = || known.filter_map(|key| self.sessions.get(key)?.weight.map(|weight| (*key, weight)));
        self.pressure.over(total_max, weights)
    }

    /// The sessions called by their full names.
    pub(super) fn namesakes(&self) -> &Namesakes {
        &self.namesakes
    }

    /// The other harness that has an open session of this id.
    pub(super) fn taken_by(&self, id: &SessionId, harness: &Harness) -> Option<Arc<str>> {
        let open = self.get(self.open_key(id)?);
        is_of_another(&open.harness, harness).then(|| open.harness.name.clone()).flatten()
    }

    /// Registers that a session is called by its full name.
    pub(super) fn note_namesake(&mut self, id: SessionId, full: SessionId) {
        self.namesakes.insert(id, full);
    }

    /// Rebuilds the deadlines, which depend on the settings and are not in a snapshot.
    pub(super) fn restore_deadlines(&mut self, settings: &SessionSettings) {
        for key in self.keys() {
            let deadline = self.get(key).deadline(settings);
            self.deadlines.set(key, Some(deadline));
        }
    }
}

/// The snapshot form, as it is written.
#[derive(Serialize)]
struct Captured<'a> {
    open: SortedMap<&'a SessionId, &'a Session>,
    suspended: SortedMap<&'a SessionId, &'a Session>,
    last_key: SessionKey,
    announced: &'a [SessionId],
    evicted: &'a Evictions,
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Captured {
            open: self.open().map(|session| (session.id(), session)).collect(),
            suspended: self.suspended().map(|session| (session.id(), session)).collect(),
            last_key: self.last_key,
            announced: &self.announced,
            evicted: &self.evictions,
        }
        .serialize(to)
    }
}

/// The snapshot form, as it is read.
#[derive(Default, Deserialize)]
struct Restored {
    open: SortedMap<SessionId, Session>,
    suspended: SortedMap<SessionId, Session>,
    last_key: SessionKey,
    announced: Vec<SessionId>,
    evicted: Evictions,
}

impl From<Restored> for Table {
    fn from(Restored { open, suspended, last_key, announced, evicted }: Restored) -> Self {
        let mut table = Self { last_key, announced, evictions: evicted, ..Self::default() };
        let open = open.into_iter().map(|all| (Lifecycle::Open, all));
        let suspended = suspended.into_iter().map(|all| (Lifecycle::Suspended, all));
        for (lifecycle, (id, session)) in open.chain(suspended) {
            let key = session.key;
            let weight = session.injector.weight();
            table.aliases.extend(session.predecessors.iter().map(|predecessor| (predecessor.clone(), key)));
            if let Some(own) = &session.own_id {
                table.namesakes.insert(own.clone(), id.clone());
            }
            table.pressure.change(key, None, weight);
            table.sessions.insert(key, Session { weight, lifecycle, ..session });
            table.by_id.insert(id, key);
            table.set_lifecycle(key, lifecycle);
        }
        table
    }
}

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

/// The sessions that have a folder and get notifications for it.
#[derive(Debug, Default)]
struct Folders {
    /// Without trailing slashes.
    by_folder: SortedMap<Box<str>, SortedSet<SessionKey>>,
    of: SortedMap<SessionKey, Arc<str>>,
    /// Whether a folder was added or removed since [`Self::take_changes`].
    has_changed: bool,
}

impl Folders {
    /// Sets a session's folder; `None` if it has none, has ended, or gets only notifications
    /// addressed to it.
    pub(super) fn set(&mut self, key: SessionKey, folder: Option<&Arc<str>>) {
        if self.of.get(&key) == folder {
            return;
        }
        if let Some(previous) = self.of.remove(&key) {
            let previous = without_end(&previous);
            if let Some(sessions) = self.by_folder.get_mut(previous) {
                sessions.remove(&key);
                if sessions.is_empty() {
                    self.by_folder.remove(previous);
                    self.has_changed = true;
                }
            }
        }
        if let Some(folder) = folder {
            self.of.insert(key, Arc::clone(folder));
            let sessions = self.by_folder.get_or_default(without_end(folder).into());
            self.has_changed |= sessions.is_empty();
            sessions.insert(key);
        }
    }

    /// The folders in order, if one was added or removed since the last call.
    pub(super) fn take_changes(&mut self) -> Option<Arc<[Arc<str>]>> {
        let changed = std::mem::take(&mut self.has_changed);
        changed.then(|| self.by_folder.keys().map(|folder| Arc::from(&**folder)).collect())
    }

    /// The sessions in, under or above `folder`, folder by folder.
    pub(super) fn sessions_around<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = SessionKey> + 'a {
        let folder = without_end(folder);
        let above = folder.match_indices('/').filter_map(|(end, _)| self.by_folder.get(folder.get(..end)?));
        let within = format!("{folder}/");
        let under = self.by_folder.range_from(within.as_str()).iter();
        let under = under.take_while(move |(other, _)| other.starts_with(&within));
        let under = under.map(|(_, sessions)| sessions);
        above.chain(self.by_folder.get(folder)).chain(under).flatten().copied()
    }
}

fn without_end(folder: &str) -> &str {
    folder.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::{Scope, SessionId};

    proptest! {
        #[test]
        fn the_folder_index_finds_exactly_the_concerned_sessions(
            moves in prop::collection::vec((0..6_u8, prop::option::of("(/?[ab!0]{0,2}){0,4}/{0,2}")), 1..20),
            folder in "(/?[ab!0]{0,2}){0,4}/{0,2}",
        ) {
            let (mut folders, mut of) = (Folders::default(), SortedMap::new());
            for (number, own) in moves {
                let (key, own) = (SessionKey(number.into()), own.map(Arc::<str>::from));
                folders.set(key, own.as_ref());
                of.insert(key, own);
            }
            let any = SessionId::new("any");
            let scope = Scope::Workspace(folder.as_str().into());
            let concerned = of.iter().filter(|(_, own)| scope.concerns(&any, own.as_deref()));
            let concerned: Vec<SessionKey> = concerned.map(|(key, _)| *key).collect();
            let mut around: Vec<SessionKey> = folders.sessions_around(&folder).collect();
            around.sort_unstable();
            prop_assert_eq!(around, concerned);
            let all: SortedSet<&str> = of.values().flatten().map(|folder| without_end(folder)).collect();
            let taken = folders.take_changes().unwrap_or_default();
            prop_assert!(taken.iter().map(|folder| &**folder).eq(all));
            prop_assert!(folders.take_changes().is_none());
            of.keys().for_each(|key| folders.set(*key, None));
            prop_assert!(folders.by_folder.is_empty() && folders.of.is_empty());
        }
    }
}
