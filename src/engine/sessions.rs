//! The open sessions: who they are, where they work, and what each one's queue wants.
//!
//! A subagent is a session with a parent. It gets only what is addressed to it; what it leaves behind when it ends goes to its
//! parent.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Engine,
    deadlines::Deadlines,
    io::{Output, Pending, SessionChange},
    rules::SessionSettings,
};
use crate::{
    event::{Scope, SessionId},
    exchange::Harness,
    injector::Injector,
    ledger::{LedgerEntry, Reason},
    notification::{Notification, Priority, SubscriberId},
    time::Timestamp,
};

/// Most open sessions; the one that has been silent for longest is closed for a new one.
pub(super) const SESSIONS_MAX: usize = 10_000;

/// One open session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) harness: Harness,
    pub(super) opened_at: Timestamp,
    pub(super) last_seen: Timestamp,
    pub(super) injector: Injector,
    /// What watchers were told last.
    told: (u32, Option<Priority>),
}

/// What is shown of a session.
#[derive(Debug, Clone, Copy)]
pub struct SessionView<'a> {
    /// Its id.
    pub id: &'a SessionId,
    /// What is known of its harness.
    pub harness: &'a Harness,
    /// When it was first heard of.
    pub opened_at: Timestamp,
    /// When it was last heard of.
    pub last_seen: Timestamp,
    /// Its queue and leases.
    pub injector: &'a Injector,
}

/// Every open session, by id.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: BTreeMap<SessionId, Session>,
    deadlines: Deadlines<SessionId>,
}

impl Sessions {
    pub(super) fn get_mut(&mut self, id: &SessionId) -> Option<&mut Session> {
        self.open.get_mut(id)
    }

    pub(super) fn get(&self, id: &SessionId) -> Option<&Session> {
        self.open.get(id)
    }

    pub(super) fn views(&self) -> impl Iterator<Item = SessionView<'_>> {
        self.open.iter().map(|(id, session)| session.view(id))
    }

    pub(super) fn view(&self, id: &SessionId) -> Option<SessionView<'_>> {
        self.open.get_key_value(id).map(|(id, session)| session.view(id))
    }

    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadlines.first()
    }

    /// The open sessions that `scope` concerns, in the order of their ids.
    pub(super) fn concerned(&self, scope: &Scope) -> Vec<SessionId> {
        match scope {
            Scope::Session(id) => self.open.contains_key(id).then(|| id.clone()).into_iter().collect(),
            Scope::Workspace(_) | Scope::All => {
                let roots = self.open.iter().filter(|(_, session)| session.harness.parent.is_none());
                let concerned =
                    roots.filter(|(id, session)| scope.concerns(id, session.harness.workspace.as_deref()));
                concerned.map(|(id, _)| id.clone()).collect()
            }
        }
    }

    /// Whom the scope of an event has to concern to reach the session `id`.
    pub(super) fn audience(&self, id: &SessionId) -> Option<Audience> {
        self.open.get(id).map(|session| Audience {
            id: id.clone(),
            workspace: session.harness.workspace.clone(),
            is_child: session.harness.parent.is_some(),
        })
    }

    /// Hands new limits to every queue, and what was `switched_off`; returns the sessions, which are to be settled.
    pub(super) fn apply(
        &mut self,
        settings: &SessionSettings,
        switched_off: &BTreeSet<SubscriberId>,
    ) -> Vec<SessionId> {
        for session in self.open.values_mut() {
            session.injector.set_queue_len_max(settings.queue_len_max);
            session.injector.mute(switched_off);
        }
        self.open.keys().cloned().collect()
    }
}

/// Who a session is, for deciding what concerns it.
#[derive(Debug)]
pub(super) struct Audience {
    id: SessionId,
    workspace: Option<Arc<str>>,
    is_child: bool,
}

impl Audience {
    /// Whether `scope` concerns the session; a subagent only by its own name.
    pub(super) fn is_concerned_by(&self, scope: &Scope) -> bool {
        match scope {
            Scope::Workspace(_) | Scope::All if self.is_child => false,
            Scope::Session(_) | Scope::Workspace(_) | Scope::All => {
                scope.concerns(&self.id, self.workspace.as_deref())
            }
        }
    }
}

impl Session {
    fn view<'a>(&'a self, id: &'a SessionId) -> SessionView<'a> {
        SessionView {
            id,
            harness: &self.harness,
            opened_at: self.opened_at,
            last_seen: self.last_seen,
            injector: &self.injector,
        }
    }

    fn deadline(&self, settings: &SessionSettings) -> Timestamp {
        let silent_until = self.last_seen + settings.idle_close;
        self.injector.poll_timeout().map_or(silent_until, |at| at.min(silent_until))
    }
}

impl Engine {
    /// Opens the session if it is not open, learns what `harness` adds, and hands it what waited for it.
    ///
    /// What waits concerned no open session when it came, so only a session that is new, or is learned to be elsewhere, can
    /// take some of it; any other is not asked.
    pub(super) fn meet_session(&mut self, id: &SessionId, harness: &Harness, now: Timestamp) {
        let is_new = self.sessions.get(id).is_none();
        if is_new {
            self.make_room();
            let injector = Injector::new(id.clone(), self.rules.sessions.queue_len_max);
            let session = Session {
                harness: Harness::default(),
                opened_at: now,
                last_seen: now,
                injector,
                told: (0, None),
            };
            self.sessions.open.insert(id.clone(), session);
        }
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        session.last_seen = now;
        let learned = learn(&mut session.harness, harness);
        if is_new || learned.is_news {
            let known = session.harness.clone();
            let change = if is_new { SessionChange::Opened(known) } else { SessionChange::Learned(known) };
            self.outputs.push_back(Output::Session(id.clone(), change));
        }
        if is_new || learned.is_elsewhere {
            self.claim(id);
        }
        self.settle_session(id);
    }

    fn claim(&mut self, id: &SessionId) {
        let Some(audience) = self.sessions.audience(id) else {
            return;
        };
        for notification in self.unclaimed.claim(|scope| audience.is_concerned_by(scope)) {
            self.queue(id, notification);
        }
    }

    /// Closes a session; what it leaves goes to its parent, or ends.
    pub(super) fn close_session(&mut self, id: &SessionId) {
        let Some(mut session) = self.sessions.open.remove(id) else {
            return;
        };
        self.sessions.deadlines.set(id.clone(), None);
        let left = session.injector.close();
        while let Some(entry) = session.injector.poll_output() {
            self.record(entry);
        }
        let parent = session.harness.parent.filter(|parent| self.sessions.get(parent).is_some());
        for notification in left {
            self.hand_over(id, parent.as_ref(), notification);
        }
        self.outputs.push_back(Output::Wake(Pending { session: id.clone(), count: 0, top: None }));
        let change = SessionChange::Closed { last_seen: session.last_seen };
        self.outputs.push_back(Output::Session(id.clone(), change));
    }

    /// Gives a notification to the parent; it ends if there is none, or if the parent had it from before it was one.
    fn hand_over(&mut self, from: &SessionId, parent: Option<&SessionId>, notification: Arc<Notification>) {
        if parent.is_some_and(|parent| self.queue(parent, notification.clone())) {
            return;
        }
        self.record(LedgerEntry::NotificationEnded {
            notification: notification.id.clone(),
            session: Some(from.clone()),
            reason: Reason::SessionGone,
        });
    }

    /// Expires what is due in the sessions whose deadline is `at`, and closes those that were silent for too long.
    pub(super) fn fire_sessions(&mut self, at: Timestamp) {
        for id in self.sessions.deadlines.take_due(at) {
            let Some(session) = self.sessions.get_mut(&id) else {
                continue;
            };
            session.injector.handle_timeout(at);
            let is_silent = session.last_seen + self.rules.sessions.idle_close <= at;
            self.settle_session(&id);
            if is_silent {
                self.close_session(&id);
            }
        }
    }

    /// Takes over what a session's queue has to say, after anything that may have changed it.
    pub(super) fn settle_session(&mut self, id: &SessionId) {
        let Some(session) = self.sessions.open.get_mut(id) else {
            return;
        };
        let entries: Vec<_> = std::iter::from_fn(|| session.injector.poll_output()).collect();
        let deadline = session.deadline(&self.rules.sessions);
        let pending = session.injector.pending();
        let has_changed = std::mem::replace(&mut session.told, pending) != pending;
        self.sessions.deadlines.set(id.clone(), Some(deadline));
        for entry in entries {
            self.record(entry);
        }
        if has_changed {
            let (count, top) = pending;
            self.outputs.push_back(Output::Wake(Pending { session: id.clone(), count, top }));
        }
    }

    fn make_room(&mut self) {
        if self.sessions.open.len() < SESSIONS_MAX {
            return;
        }
        let silent_longest = self.sessions.open.iter().min_by_key(|(_, session)| session.last_seen);
        if let Some(id) = silent_longest.map(|(id, _)| id.clone()) {
            self.close_session(&id);
        }
    }
}

/// What a harness said that was not known before.
#[derive(Debug, Clone, Copy)]
struct Learned {
    is_news: bool,
    /// It changes what concerns the session.
    is_elsewhere: bool,
}

/// Takes over what `harness` says; what it leaves out stays as it was.
fn learn(known: &mut Harness, harness: &Harness) -> Learned {
    fn take<T: Clone + PartialEq>(known: &mut Option<T>, said: &Option<T>) -> bool {
        let is_other = said.is_some() && known != said;
        if is_other {
            known.clone_from(said);
        }
        is_other
    }
    let is_other = take(&mut known.name, &harness.name)
        | take(&mut known.version, &harness.version)
        | take(&mut known.user, &harness.user)
        | take(&mut known.pid, &harness.pid);
    let is_elsewhere =
        take(&mut known.workspace, &harness.workspace) | take(&mut known.parent, &harness.parent);
    Learned { is_news: is_other || is_elsewhere, is_elsewhere }
}
