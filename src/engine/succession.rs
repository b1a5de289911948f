//! A session whose context is another one: it was compacted, it took the place of a session, or it is a copy of one.

use super::{
    Engine,
    io::{Output, SessionChange},
    sessions::{Session, Sessions},
};
use crate::{
    event::SessionId,
    exchange::{Begins, Exchange},
    time::Timestamp,
};
use std::time::Duration;

/// Most sessions whose place one session can have taken; what concerns an older one concerns nobody. Each is a conversation
/// that its user cleared.
const FORMER_MAX: usize = 16;
/// For how long after its end a session can be the one that the same process goes on from: a client starts the next one at
/// once, and the number of a process is given to another one some day.
const SAME_PROCESS_MAX: Duration = Duration::from_secs(60);

impl Engine {
    /// Does what an exchange says of its session's context.
    pub(super) fn begin(&mut self, exchange: &Exchange, now: Timestamp) {
        let session = &exchange.session;
        match &exchange.begins {
            Begins::Nothing => {}
            Begins::Epoch => self.with_injector(session, |injector| injector.begin_epoch(now)),
            Begins::Clear { from } => {
                if let Some(from) = self.sessions.predecessor(session, from.as_ref(), now) {
                    self.succeed(&from, session, now);
                }
            }
            Begins::Fork { from } => {
                if let Some(from) = self.sessions.predecessor(session, from.as_ref(), now) {
                    self.copy(&from, session);
                }
            }
        }
    }

    /// Lets `heir` take the place of `from`: it gets what waits there, what is still true and urgent, and what is yet to come.
    fn succeed(&mut self, from: &SessionId, heir: &SessionId, now: Timestamp) {
        let Some((Session { mut injector, mut former, last_seen, .. }, was_open)) = self.sessions.take(from)
        else {
            return;
        };
        let (waiting, told) = injector.hand_on(now);
        while let Some(entry) = injector.poll_output() {
            self.record(entry);
        }
        if was_open {
            self.tell_gone(from);
        }
        let change = SessionChange::Closed { last_seen, keeps_pending: false };
        self.outputs.push_back(Output::Session(from.clone(), change));
        former.push(from.clone());
        self.sessions.take_place(heir, former);
        for notification in waiting {
            self.hand_over(from, Some(heir), notification);
        }
        for notification in told {
            self.queue(heir, notification);
        }
        self.claim(heir);
    }

    /// Gives `copy` what waits for `from`, and the memory of what it was told.
    fn copy(&mut self, from: &SessionId, copy: &SessionId) {
        let Some(original) = self.sessions.known(from) else {
            return;
        };
        let waiting = original.injector.waiting();
        self.sessions.copy_told(from, copy);
        for notification in waiting {
            self.queue(copy, notification);
        }
    }

    /// Lets a session be itself again after another one had taken its place.
    pub(super) fn give_back_place(&mut self, id: &SessionId) {
        let Some(heir) = self.sessions.heirs.remove(id) else {
            return;
        };
        if let Some(heir) = self.sessions.known_mut(&heir) {
            heir.former.retain(|former| former != id);
        }
    }
}

impl Sessions {
    /// The session that `id` goes on from: the one that is named, or the one that the same process was last heard of in.
    fn predecessor(&self, id: &SessionId, from: Option<&SessionId>, now: Timestamp) -> Option<SessionId> {
        let is_other_root = |of: &SessionId, session: &Session| of != id && session.harness.parent.is_none();
        if let Some(from) = from {
            return self.known(from).filter(|session| is_other_root(from, session)).map(|_| from.clone());
        }
        let own = &self.open.get(id)?.harness;
        let pid = own.pid?;
        let just_ended =
            self.away.iter().filter(|(_, session)| now.since(session.last_seen) <= SAME_PROCESS_MAX);
        let of_process = self.open.iter().chain(just_ended).filter(|(of, session)| {
            let harness = &session.harness;
            is_other_root(of, session) && harness.pid == Some(pid) && harness.name == own.name
        });
        of_process.max_by_key(|(_, session)| session.last_seen).map(|(of, _)| of.clone())
    }

    /// Notes that `heir` stands for `former` and that their subagents are its.
    fn take_place(&mut self, heir: &SessionId, former: Vec<SessionId>) {
        for (id, session) in &mut self.open {
            if session.harness.parent.as_ref().is_some_and(|parent| former.contains(parent)) {
                session.harness.parent = (id != heir).then(|| heir.clone());
            }
        }
        let Some(session) = self.open.get_mut(heir) else {
            return;
        };
        for id in former {
            self.heirs.insert(id.clone(), heir.clone());
            session.former.push(id);
        }
        while session.former.len() > FORMER_MAX {
            self.heirs.remove(&session.former.remove(0));
        }
        self.place(heir);
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
