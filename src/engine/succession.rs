//! A session with the context of another: it was compacted, it continues a session, or it is a fork
//! of one.

use super::{
    Engine,
    io::{Output, Pending, SessionChange},
    sessions::{Session, Sessions},
};
use crate::{
    event::SessionId,
    exchange::{ContextChange, Exchange},
    time::Timestamp,
};
use std::time::Duration;

/// Most sessions that one session can continue; older ones concern no session. Each is a
/// conversation that its user cleared.
const FORMER_MAX: usize = 16;
/// For how long after its end a session can be continued by the same process: a client starts the
/// next one at once, and process ids are reused.
const SAME_PROCESS_MAX: Duration = Duration::from_secs(60);

impl Engine {
    /// Applies what an exchange says about its session's context; `is_new`: it opened the session.
    ///
    /// Shape: when a client clears a conversation, its first hook may be lost. The end of the
    /// previous session implies the same transition, so the next hook applies it. A late or
    /// repeated hook continues no other session.
    pub(super) fn begin(&mut self, exchange: &Exchange, is_new: bool, now: Timestamp) {
        let session = &exchange.session;
        if exchange.context == ContextChange::Unchanged && !is_new {
            return;
        }
        let left = self.sessions.left_for(session, now);
        let left = match &exchange.context {
            ContextChange::Unchanged => {
                let is_cleared = |from: &&SessionId| {
                    self.sessions.was_cleared(from) && self.sessions.work_in_one_folder(from, session)
                };
                if let Some(from) = left.as_ref().filter(is_cleared) {
                    self.succeed(from, session);
                }
                left
            }
            ContextChange::Compacted => {
                self.with_injector(session, |injector| injector.lose_context(now));
                left
            }
            ContextChange::Resumed => {
                self.with_injector(session, |injector| injector.resume_context(now));
                left
            }
            ContextChange::Cleared { from } => {
                let from = match from {
                    Some(from) => self.sessions.other_root(session, from),
                    None => left.filter(|left| {
                        (is_new || !self.sessions.has_taken_a_place(session))
                            && self.sessions.work_in_one_folder(left, session)
                    }),
                };
                if let Some(from) = &from {
                    self.succeed(from, session);
                }
                from
            }
            ContextChange::Forked { from } => {
                let named = from.as_ref().map(|from| self.sessions.other_root(session, from));
                if let Some(from) = named.unwrap_or_else(|| left.clone()) {
                    self.copy(&from, session);
                }
                left
            }
        };
        if let Some(left) = left {
            self.tell_moved(&left, session);
        }
    }

    /// Notifies watchers of `from` that its harness's process is in another session now.
    fn tell_moved(&mut self, from: &SessionId, to: &SessionId) {
        let moved = Pending { moved_to: Some(to.clone()), ..Pending::nothing(from.clone()) };
        self.outputs.push_back(Output::Wake(moved));
    }

    /// Makes `successor` go on from `from`: it gets what was never delivered there, and what is
    /// addressed to it later.
    fn succeed(&mut self, from: &SessionId, successor: &SessionId) {
        self.catch_up(from);
        let Some((Session { mut injector, mut former, last_seen, own_id, .. }, _)) = self.sessions.take(from)
        else {
            return;
        };
        self.sessions.namesakes.remove(own_id.as_ref(), from);
        self.watches.follow(from, successor);
        self.for_user.follow(from, successor);
        self.questions.follow(from, successor);
        self.ci.hand_over(from, successor);
        let waiting = injector.close();
        let evicted = injector.evicted().clone();
        while let Some(entry) = injector.poll_output() {
            self.record(entry);
        }
        let change = SessionChange::Closed { last_seen, keeps_pending: false };
        self.outputs.push_back(Output::Session(from.clone(), change));
        former.push(from.clone());
        self.sessions.take_place(successor, former);
        self.note_evicted(successor, evicted);
        for left in waiting {
            self.hand_over(from, Some(successor), left);
        }
        self.claim(successor);
    }

    /// Copies the queue of `from`, and the memory of what was delivered there, to `copy`.
    fn copy(&mut self, from: &SessionId, copy: &SessionId) {
        self.catch_up(from);
        let Some(original) = self.sessions.known(from) else {
            return;
        };
        let (waiting, evicted) = (original.injector.waiting(), original.injector.evicted().clone());
        self.sessions.copy_told(from, copy);
        self.probes.copy(from, copy);
        self.note_evicted(copy, evicted);
        for left in waiting {
            self.take_over(copy, left);
        }
    }

    /// Removes a session's alias, so that it gets its own notifications again.
    pub(super) fn give_back_place(&mut self, id: &SessionId) {
        let Some(successor) = self.sessions.aliases.remove(id) else {
            return;
        };
        if let Some(successor) = self.sessions.known_mut(&successor) {
            successor.former.retain(|former| former != id);
        }
    }
}

impl Sessions {
    /// The session that the process of `id` was in before, for a process with one conversation at a
    /// time.
    fn left_for(&self, id: &SessionId, now: Timestamp) -> Option<SessionId> {
        let own = self.open.get(id).filter(|own| own.is_of_some_process())?;
        let just_ended =
            self.away.iter().filter(|(_, session)| now.since(session.last_seen) <= SAME_PROCESS_MAX);
        let others = self.open.iter().chain(just_ended).filter(|(of, _)| *of != id);
        let of_process = others.filter(|(_, session)| session.is_of_process_of(own));
        of_process.max_by_key(|(_, session)| session.last_seen).map(|(of, _)| of.clone())
    }

    /// `of`, if it is known, not a subagent, and not `id` itself.
    fn other_root(&self, id: &SessionId, of: &SessionId) -> Option<SessionId> {
        let session = self.known(of)?;
        (of != id && session.harness.parent.is_none()).then(|| of.clone())
    }

    /// Whether the open session continues another one.
    fn has_taken_a_place(&self, id: &SessionId) -> bool {
        self.open.get(id).is_some_and(|session| !session.former.is_empty())
    }

    /// Whether two sessions have the same folder, or both none.
    fn work_in_one_folder(&self, one: &SessionId, other: &SessionId) -> bool {
        let folder = |id: &SessionId| self.known(id).map(|session| session.harness.workspace.as_deref());
        folder(one) == folder(other)
    }

    /// Whether the session ended because its user cleared the conversation.
    fn was_cleared(&self, id: &SessionId) -> bool {
        self.away.get(id).is_some_and(|session| session.is_cleared)
    }

    /// The current session of the process that was in `id`: its successor, else the open one that
    /// the process was last active in, else `id` itself.
    pub(super) fn now_in<'s>(&'s self, id: &'s SessionId) -> &'s SessionId {
        let id = self.aliases.get(id).unwrap_or(id);
        let Some(own) = self.known(id).filter(|own| own.is_of_some_process()) else {
            return id;
        };
        let of_process = self.open.iter().filter(|(_, session)| session.is_of_process_of(own));
        of_process.max_by_key(|(_, session)| session.last_seen).map_or(id, |(newest, _)| newest)
    }

    /// Makes `successor` the alias of all of `former`, and the parent of their subagents.
    fn take_place(&mut self, successor: &SessionId, former: Vec<SessionId>) {
        self.open.for_each_mut(|id, session| {
            if session.harness.parent.as_ref().is_some_and(|parent| former.contains(parent)) {
                session.harness.parent = (id != successor).then(|| successor.clone());
            }
        });
        let Some(session) = self.open.get_mut(successor) else {
            return;
        };
        for id in former {
            self.aliases.insert(id.clone(), successor.clone());
            session.former.push(id);
        }
        while session.former.len() > FORMER_MAX {
            self.aliases.remove(&session.former.remove(0));
        }
        self.place(successor);
    }

    fn copy_told(&mut self, from: &SessionId, copy: &SessionId) {
        let Some(mut session) = self.open.remove(copy) else {
            return;
        };
        if let Some(original) = self.known(from) {
            session.injector.remember_told(&original.injector);
        }
        self.open.insert(copy.clone(), session);
    }
}
