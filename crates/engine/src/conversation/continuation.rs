//! Changes of a session's context: it was compacted, or is that of another session, as in a
//! continuation or a fork.

use std::time::Duration;

use super::{
    arrival::Met,
    key::SessionKey,
    session::Session,
    sessions::{SessionOutput, Sessions},
    table::Table,
};
use journal::time::Timestamp;

use crate::{
    event::SessionId,
    exchange::ContextChange,
    session::{Pending, SessionChange, Succession},
};

/// Most sessions that one session can continue; older ones concern no session. Each is a
/// conversation that its user cleared.
const PREDECESSORS_MAX: usize = 16;
/// For how long after its end a session can be continued by the same process: a client starts the
/// next one at once, and process ids are reused.
const SAME_PROCESS_MAX: Duration = Duration::from_secs(60);

impl Sessions {
    /// Applies the change of the context that an exchange reports; `met`: whether the exchange
    /// opened the session.
    ///
    /// Shape: when a client clears a conversation, its first hook may be lost. The end of the
    /// previous session implies the same transition, so the next hook applies it. A late or
    /// repeated hook continues no other session.
    pub(super) fn apply_context(
        &mut self,
        key: SessionKey,
        context: &ContextChange,
        met: Met,
        now: Timestamp,
    ) {
        let is_unchanged = matches!(context, ContextChange::Unstated | ContextChange::Unchanged);
        if is_unchanged && met == Met::Open {
            return;
        }
        let left = self.table.left_for(key, now);
        let from = match context {
            ContextChange::Cleared { from: Some(from) } => self.table.other_root(key, from),
            ContextChange::Cleared { from: None } => left.filter(|left| {
                let may_continue = met == Met::New || self.table.get(key).predecessors.is_empty();
                may_continue && self.table.are_in_one_folder(*left, key)
            }),
            ContextChange::Unstated
            | ContextChange::Unchanged
            | ContextChange::Compacted
            | ContextChange::Resumed
            | ContextChange::Forked { .. } => left,
        };
        // Read before, because the key ends when its session is continued.
        let moved = from.map(|from| self.table.get(from).id().clone());
        match context {
            ContextChange::Unstated | ContextChange::Unchanged => {
                if let Some(from) = from.filter(|from| self.table.was_cleared(*from, key)) {
                    self.continue_as(from, key);
                }
            }
            ContextChange::Cleared { .. } => {
                if let Some(from) = from {
                    self.continue_as(from, key);
                }
            }
            ContextChange::Compacted => self.with_queue(key, |injector| injector.lose_context(now)),
            ContextChange::Resumed => self.with_queue(key, |injector| injector.resume_context(now)),
            ContextChange::Forked { from: original } => {
                let named = original.as_ref().map(|original| self.table.other_root(key, original));
                if let Some(original) = named.unwrap_or(from) {
                    self.copy(original, key);
                }
            }
        }
        if let Some(moved) = moved {
            self.notify_moved(moved, key);
        }
    }

    /// Notifies watchers of `from` that its harness's process is in another session now.
    fn notify_moved(&mut self, from: SessionId, to: SessionKey) {
        let moved_to = Some(self.table.get(to).id().clone());
        self.emit(SessionOutput::Wake(Pending { moved_to, ..Pending::nothing(from) }));
    }

    /// Makes `successor` the continuation of `from`: it gets the pending notifications of `from`,
    /// and those addressed to `from` later.
    fn continue_as(&mut self, from: SessionKey, successor: SessionKey) {
        self.catch_up(from);
        let session = self.table.remove(from);
        let id = session.id().clone();
        let Session { mut injector, mut predecessors, last_seen, .. } = session;
        let to = self.table.get(successor).id().clone();
        self.emit(SessionOutput::Succession(Succession::Continued { from: id.clone(), to }));
        let waiting = injector.close();
        let evicted = injector.evicted().clone();
        for entry in injector.take_outputs() {
            self.record(entry);
        }
        let change = SessionChange::Closed { last_seen, keeps_pending: false };
        self.emit(SessionOutput::Changed(id.clone(), change));
        predecessors.push(id.clone());
        self.table.succeed(predecessors, successor);
        self.note_evicted(successor, evicted);
        for left in waiting {
            self.hand_over(&id, Some(successor), left);
        }
        self.claim(successor);
    }

    /// Copies the queue of `from`, and its record of deliveries, to `copy`.
    fn copy(&mut self, from: SessionKey, copy: SessionKey) {
        self.catch_up(from);
        let (original, fork) = self.table.pair_mut(from, copy);
        let (waiting, evicted) = (original.injector.waiting(), original.injector.evicted().clone());
        fork.injector.remember_delivered(&original.injector);
        let (from, to) = (original.id().clone(), fork.id().clone());
        self.emit(SessionOutput::Succession(Succession::Copied { from, to }));
        self.note_evicted(copy, evicted);
        for left in waiting {
            self.take_over(copy, left);
        }
    }

    /// The current session of the process that was in `id`: its successor, else the open one that
    /// the process was last active in, else `id` itself.
    pub fn current(&self, id: &SessionId) -> SessionId {
        let Some(key) = self.table.addressed(id) else { return id.clone() };
        let key = self.table.current(key);
        self.table.get(key).id().clone()
    }
}

impl Table {
    /// The session that the process of `key` was in before, for a process with one conversation at
    /// a time.
    fn left_for(&self, key: SessionKey, now: Timestamp) -> Option<SessionKey> {
        let own = Some(self.get(key)).filter(|own| own.is_of_some_process())?;
        let just_ended = self.suspended().filter(|session| now.since(session.last_seen) <= SAME_PROCESS_MAX);
        let others = self.open().chain(just_ended).filter(|session| session.key != key);
        let of_process = others.filter(|session| session.is_of_process_of(own));
        of_process.max_by_key(|session| session.last_seen).map(|session| session.key)
    }

    /// `of`, if it is known, not a subagent, and not `key` itself.
    fn other_root(&self, key: SessionKey, of: &SessionId) -> Option<SessionKey> {
        self.key(of).filter(|of| *of != key && !self.get(*of).is_subagent())
    }

    /// Whether two sessions have the same folder, or neither has one.
    fn are_in_one_folder(&self, one: SessionKey, other: SessionKey) -> bool {
        self.get(one).workspace() == self.get(other).workspace()
    }

    /// Whether `from` ended because its user cleared the conversation, and `key` has the same
    /// folder.
    fn was_cleared(&self, from: SessionKey, key: SessionKey) -> bool {
        let session = self.get(from);
        !session.is_open() && session.is_cleared && self.are_in_one_folder(from, key)
    }

    /// The open session that the process of `key` was last active in; `key` if there is none.
    pub(super) fn current(&self, key: SessionKey) -> SessionKey {
        let Some(own) = Some(self.get(key)).filter(|own| own.is_of_some_process()) else { return key };
        let of_process = self.open().filter(|session| session.is_of_process_of(own));
        of_process.max_by_key(|session| session.last_seen).map_or(key, |newest| newest.key)
    }

    /// Makes the ids of `predecessors` address `successor`, and makes it the parent of their
    /// subagents.
    fn succeed(&mut self, predecessors: Vec<SessionId>, successor: SessionKey) {
        let is_child = |session: &&Session| {
            session.harness.parent.as_ref().is_some_and(|parent| predecessors.contains(parent))
        };
        let children: Vec<SessionKey> = self.open().filter(is_child).map(|session| session.key).collect();
        let id = self.get(successor).id().clone();
        for child in children {
            self.get_mut(child).harness.parent = (child != successor).then(|| id.clone());
        }
        self.add_predecessors(successor, predecessors, PREDECESSORS_MAX);
        self.update_indices(successor);
    }
}
