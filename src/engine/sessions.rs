//! The sessions: their identity, their folders, and the state of their queues.
//!
//! A session that ended and can be resumed is suspended: it gets nothing new, and its queue is kept
//! until it is resumed or was suspended for as long as a session may be silent. A subagent is a
//! session with a parent. It gets only what is addressed to it; when it ends, the rest of its queue
//! goes to its parent.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    Engine,
    by_id::ById,
    deadlines::Deadlines,
    folders::Folders,
    io::{Output, Pending, SessionChange},
    namesakes::Namesakes,
    pressure::{Pressure, Weight},
    room::Evictions,
    rules::SessionSettings,
};
use crate::{
    event::{Scope, SessionId},
    exchange::{Conversations, Decision, Harness},
    injector::Injector,
    ledger::{LedgerEntry, Reason},
    notification::{NotificationId, Priority, SubscriberId},
    session::{SessionState, Wake},
    time::Timestamp,
};

/// Most open sessions. A new one evicts the session that was silent for longest, preferring those
/// with an empty queue and no client attached.
pub(super) const SESSIONS_MAX: usize = 10_000;
/// Most open sessions of one harness, so that a harness that opens a session for every request
/// evicts its own. Evicted as above.
pub(super) const SESSIONS_PER_HARNESS_MAX: usize = SESSIONS_MAX / 2;
/// How long a client reported as attached counts as attached; the report repeats every hour.
const ATTACHED_FOR: Duration = Duration::from_secs(2 * 60 * 60);
/// Least time between two events that report how many sessions were evicted.
pub(super) const EVICTED_SAID_EVERY: Duration = Duration::from_secs(60 * 60);

/// One open or suspended session.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) harness: Harness,
    /// The id given by its harness, if it is called by its full name.
    #[serde(default)]
    pub(super) own_id: Option<SessionId>,
    pub(super) opened_at: Timestamp,
    /// Since when it has been open without interruption.
    #[serde(default)]
    pub(super) open_since: Timestamp,
    pub(super) last_seen: Timestamp,
    pub(super) injector: Injector,
    /// The sessions that it continues: what concerns one of them concerns it. Oldest first.
    pub(super) former: Vec<SessionId>,
    pub(super) state: SessionState,
    /// The number of the first broadcast that it has not taken.
    #[serde(default)]
    pub(super) taken: u64,
    /// When its harness last reported its state.
    #[serde(default)]
    pub(super) state_at: Timestamp,
    /// When a client was last reported as attached.
    #[serde(default)]
    pub(super) attached_at: Option<Timestamp>,
    /// Its start was reported, and no turn has started since.
    pub(super) is_opening: bool,
    /// Its end was reported because its user cleared the conversation.
    pub(super) is_cleared: bool,
    /// The queue state last published to watchers.
    pub(super) told: Told,
    /// Its queue's weight when that was last added to [`Sessions::pressure`].
    #[serde(skip)]
    pub(super) weight: Weight,
}

/// The published state of a session's queue: as [`Pending`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Told {
    count: u32,
    top: Option<Priority>,
    for_user: u32,
    wake: Option<Wake>,
}

/// The public view of a session.
#[derive(Debug, Clone, Copy)]
pub struct SessionView<'a> {
    /// Its id.
    pub id: &'a SessionId,
    /// Whether it is open; otherwise it is suspended.
    pub is_open: bool,
    /// The properties of its harness.
    pub harness: &'a Harness,
    /// When it was first seen.
    pub opened_at: Timestamp,
    /// When it was last active.
    pub last_seen: Timestamp,
    /// Its queue and leases.
    pub injector: &'a Injector,
    /// The state of its turn.
    pub state: SessionState,
}

/// Every session, by id.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Sessions {
    pub(super) open: ById<Session>,
    /// The suspended ones. They get nothing new; what they keep expires as usual.
    pub(super) away: ById<Session>,
    /// The successor of each continued session: the reverse of [`Session::former`].
    #[serde(skip)]
    pub(super) aliases: BTreeMap<SessionId, SessionId>,
    /// Sessions that are not open and whose start was reported, oldest first.
    pub(super) announced: Vec<SessionId>,
    #[serde(skip)]
    pub(super) deadlines: Deadlines<SessionId>,
    /// The evicted ones.
    pub(super) evicted: Evictions,
    /// The open ones that are not subagents.
    #[serde(skip)]
    pub(super) roots: BTreeSet<SessionId>,
    /// The total of all queues.
    #[serde(skip)]
    pub(super) pressure: Pressure,
    /// The folders of the open ones that are not subagents.
    #[serde(skip)]
    folders: Folders,
    /// Those called by their full names.
    #[serde(skip)]
    pub(super) namesakes: Namesakes,
}

impl Sessions {
    pub(super) fn get_mut(&mut self, id: &SessionId) -> Option<&mut Session> {
        self.open.get_mut(id)
    }

    pub(super) fn get(&self, id: &SessionId) -> Option<&Session> {
        self.open.get(id)
    }

    /// The session, whether open or suspended.
    pub(super) fn known_mut(&mut self, id: &SessionId) -> Option<&mut Session> {
        match self.open.get_mut(id) {
            Some(open) => Some(open),
            None => self.away.get_mut(id),
        }
    }

    /// Removes the session; returns it and whether it was open.
    pub(super) fn take(&mut self, id: &SessionId) -> Option<(Session, bool)> {
        let open = self.open.remove(id).map(|session| (session, true));
        let session = open.or_else(|| self.away.remove(id).map(|session| (session, false)));
        self.deadlines.set(id.clone(), None);
        self.folders.set(id, None);
        self.roots.remove(id);
        session.map(|(mut session, is_open)| {
            self.pressure.change(id, session.weight.take(), None);
            (session, is_open)
        })
    }

    /// Updates the index of a session's folder, when the folder or the parent may have changed.
    pub(super) fn place(&mut self, id: &SessionId) {
        let root = self.open.get(id).filter(|session| session.harness.parent.is_none());
        if root.is_some() {
            self.roots.insert(id.clone());
        } else {
            self.roots.remove(id);
        }
        self.folders.set(id, root.and_then(|session| session.harness.workspace.as_ref()));
    }

    /// The folders of open sessions, if they changed since the last call.
    pub(super) fn take_folders(&mut self) -> Option<Arc<[Arc<str>]>> {
        self.folders.take_changes()
    }

    /// The session, whether open or suspended.
    pub(super) fn known(&self, id: &SessionId) -> Option<&Session> {
        self.open.get(id).or_else(|| self.away.get(id))
    }

    pub(super) fn views(&self) -> impl Iterator<Item = SessionView<'_>> {
        let open = self.open.iter().map(|(id, session)| session.view(id, true));
        open.chain(self.away.iter().map(|(id, session)| session.view(id, false)))
    }

    /// The same in id order.
    pub(super) fn views_by_id(&self) -> impl Iterator<Item = SessionView<'_>> {
        let mut open = self.open.iter().peekable();
        let mut away = self.away.iter().peekable();
        std::iter::from_fn(move || {
            let is_open = match (open.peek(), away.peek()) {
                (Some((open, _)), Some((away, _))) => open < away,
                (open, _) => open.is_some(),
            };
            let next = if is_open { open.next() } else { away.next() };
            next.map(|(id, session)| session.view(id, is_open))
        })
    }

    pub(super) fn view(&self, id: &SessionId) -> Option<SessionView<'_>> {
        let open = self.open.get_key_value(id).map(|(id, session)| session.view(id, true));
        open.or_else(|| self.away.get_key_value(id).map(|(id, session)| session.view(id, false)))
    }

    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadlines.first()
    }

    /// The open sessions that `scope` concerns, in id order; `None` if there are more than `count`,
    /// after visiting no more than that.
    pub(super) fn concerned(&self, scope: &Scope, count: usize) -> Option<Vec<SessionId>> {
        let mut concerned: Vec<SessionId> =
            self.each_concerned(scope).take(count.saturating_add(1)).cloned().collect();
        if concerned.len() > count {
            return None;
        }
        concerned.sort_unstable();
        debug_assert!(
            matches!(scope, Scope::Session(_)) || concerned == self.roots_of(scope),
            "each is placed where it works"
        );
        Some(concerned)
    }

    /// The open sessions that `scope` concerns, in some order.
    pub(super) fn each_concerned<'a>(
        &'a self,
        scope: &'a Scope,
    ) -> Box<dyn Iterator<Item = &'a SessionId> + 'a> {
        match scope {
            Scope::Session(id) => {
                let id = self.aliases.get(id).unwrap_or(id);
                Box::new(self.open.contains_key(id).then_some(id).into_iter())
            }
            Scope::Workspace(folder) => Box::new(self.folders.around(folder)),
            Scope::All => Box::new(self.roots.iter()),
        }
    }

    /// The same for open sessions that are not subagents, by checking each; verifies the index.
    fn roots_of(&self, scope: &Scope) -> Vec<SessionId> {
        let roots = self.open.iter().filter(|(_, session)| session.harness.parent.is_none());
        let concerned =
            roots.filter(|(id, session)| scope.concerns(id, session.harness.workspace.as_deref()));
        concerned.map(|(id, _)| id.clone()).collect()
    }

    /// What decides whether the scope of an event concerns the session `id`.
    pub(super) fn audience(&self, id: &SessionId) -> Option<Audience> {
        self.open.get(id).map(|session| Audience {
            id: id.clone(),
            former: session.former.clone(),
            workspace: session.harness.workspace.clone(),
            is_child: session.harness.parent.is_some(),
        })
    }

    /// Applies new limits and `switched_off` subscribers to every queue; returns the sessions,
    /// which the caller has to settle.
    pub(super) fn apply(
        &mut self,
        settings: &SessionSettings,
        switched_off: &BTreeSet<SubscriberId>,
    ) -> Vec<SessionId> {
        for sessions in [&mut self.open, &mut self.away] {
            sessions.for_each_mut(|_, session| {
                session.injector.set_queue_len_max(settings.queue_len_max);
                session.injector.mute(switched_off);
            });
        }
        self.open.keys().chain(self.away.keys()).cloned().collect()
    }
}

/// The identity of a session, for scope checks.
#[derive(Debug)]
pub(super) struct Audience {
    id: SessionId,
    former: Vec<SessionId>,
    workspace: Option<Arc<str>>,
    is_child: bool,
}

impl Audience {
    /// Whether `scope` concerns the session; a subagent only by its own id.
    pub(super) fn is_concerned_by(&self, scope: &Scope) -> bool {
        match scope {
            Scope::Session(id) if self.former.contains(id) => true,
            Scope::Workspace(_) | Scope::All if self.is_child => false,
            Scope::Session(_) | Scope::Workspace(_) | Scope::All => {
                scope.concerns(&self.id, self.workspace.as_deref())
            }
        }
    }
}

impl Session {
    fn view<'a>(&'a self, id: &'a SessionId, is_open: bool) -> SessionView<'a> {
        SessionView {
            id,
            is_open,
            harness: &self.harness,
            opened_at: self.opened_at,
            last_seen: self.last_seen,
            injector: &self.injector,
            state: self.state,
        }
    }

    /// Whether it is the one conversation of its process; never true for a subagent.
    pub(super) fn is_of_some_process(&self) -> bool {
        let is_only_one = self.harness.conversations == Some(Conversations::OnePerProcess);
        is_only_one && self.harness.parent.is_none() && self.harness.pid.is_some()
    }

    /// Whether it is a conversation of the same user in the same process as `other`.
    pub(super) fn is_of_process_of(&self, other: &Self) -> bool {
        let (own, other) = (&self.harness, &other.harness);
        let is_same = own.process() == other.process() && own.name == other.name && own.user == other.user;
        self.is_of_some_process() && is_same
    }

    /// Whether it has pending or unconfirmed notifications, or a recently attached client.
    pub(super) fn is_of_use(&self, now: Timestamp) -> bool {
        let (pending, _) = self.injector.pending();
        let is_attached = self.attached_at.is_some_and(|at| now.since(at) <= ATTACHED_FOR);
        is_attached || pending > 0 || self.injector.for_user() > 0 || self.injector.unconfirmed() > 0
    }

    fn new(id: &SessionId, queue_len_max: u32, now: Timestamp) -> Self {
        Self {
            harness: Harness::default(),
            own_id: None,
            opened_at: now,
            open_since: now,
            last_seen: now,
            injector: Injector::new(id.clone(), queue_len_max),
            former: Vec::new(),
            state: SessionState::default(),
            taken: 0,
            state_at: now,
            attached_at: None,
            is_opening: false,
            is_cleared: false,
            told: Told::default(),
            weight: None,
        }
    }

    fn deadline(&self, settings: &SessionSettings) -> Timestamp {
        let silent_until = self.last_seen + settings.idle_close;
        self.injector.poll_timeout().map_or(silent_until, |at| at.min(silent_until))
    }
}

impl Engine {
    /// Opens the session if needed, updates its properties from `harness`, and gives it the
    /// notifications that wait for it.
    ///
    /// Those concerned no open session when they were made, so only a session that is new, or has a
    /// new folder, can take some; others are not checked. The caller has to settle the session
    /// afterwards, as it was active.
    pub(super) fn meet_session(&mut self, id: &SessionId, harness: &Harness, now: Timestamp) {
        let is_new = self.sessions.get(id).is_none();
        if is_new {
            self.give_up_of_another_harness(id, harness, now);
            self.make_room(harness, now);
            self.give_back_place(id);
            let session = self.sessions.away.remove(id);
            let queue_len_max = self.rules.sessions.queue_len_max;
            let session = session.unwrap_or_else(|| {
                let own_id = self.sessions.note_namesake(id, harness);
                Session { own_id, ..Session::new(id, queue_len_max, now) }
            });
            let is_opening = self.sessions.take_announced(id);
            let taken = self.fanout.head();
            let session = Session { is_opening, is_cleared: false, open_since: now, taken, ..session };
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
            self.sessions.place(id);
            self.claim(id);
        }
        if is_new || learned.is_news {
            self.settle_session(id);
        }
    }

    /// Applies the user's decision about a notification: in one queue, or wherever it waits.
    pub(super) fn decide(
        &mut self,
        session: Option<&SessionId>,
        notification: &NotificationId,
        decision: Decision,
    ) {
        if session.is_none()
            && decision == Decision::Dismiss
            && let Some(dismissed) = self.unclaimed.take(notification)
        {
            let (notification, reason) = (dismissed.id.clone(), Reason::Dismissed);
            self.record(LedgerEntry::NotificationEnded { notification, session: None, reason });
        }
        // One table lookup per session, some hundred nanoseconds: an index of ids would cost memory
        // for each of a million notifications.
        let waits = |view: &SessionView<'_>| view.injector.waits(notification);
        let concerned: Vec<SessionId> = match session {
            Some(id) => vec![id.clone()],
            None => self.sessions.views().filter(waits).map(|view| view.id.clone()).collect(),
        };
        for id in concerned {
            let session = self.sessions.known_mut(&id);
            if session.is_some_and(|session| session.injector.decide(notification, decision)) {
                self.settle_session(&id);
            }
        }
    }

    /// Expires what is due in the sessions whose deadline is `at`, and closes those that were
    /// silent for too long.
    pub(super) fn fire_sessions(&mut self, at: Timestamp) {
        for id in self.sessions.deadlines.take_due(at) {
            self.catch_up(&id);
            let Some(session) = self.sessions.known_mut(&id) else {
                continue;
            };
            session.injector.handle_timeout(at);
            let is_silent = session.last_seen + self.rules.sessions.idle_close <= at;
            self.settle_session(&id);
            if is_silent {
                self.close_session(&id, at);
            }
        }
    }

    /// Publishes the outputs and state of a session's queue, after anything that may have changed
    /// it.
    pub(super) fn settle_session(&mut self, id: &SessionId) {
        let settings = &self.rules.sessions;
        let open = self.sessions.open.get_mut(id);
        let is_open = open.is_some();
        let Some(session) = open.or_else(|| self.sessions.away.get_mut(id)) else {
            return;
        };
        let entries = session.injector.take_outputs();
        let deadline = session.deadline(settings);
        let (count, top) = session.injector.pending();
        let wake = session.injector.wake(session.state, self.rules.wake.threshold);
        let weight = session.injector.weight();
        let before = std::mem::replace(&mut session.weight, weight);
        let told = Told { count, top, for_user: session.injector.for_user(), wake };
        let has_changed = is_open && session.told != told;
        if has_changed {
            session.told.clone_from(&told);
        }
        self.sessions.deadlines.set(id.clone(), Some(deadline));
        self.sessions.pressure.change(id, before, weight);
        for entry in entries {
            self.record(entry);
        }
        if has_changed {
            let Told { count, top, for_user, wake } = told;
            let pending = Pending { count, top, for_user, wake, ..Pending::nothing(id.clone()) };
            self.outputs.push_back(Output::Wake(pending));
        }
    }
}

/// Updates the process id together with its start time.
fn take_process(known: &mut Harness, harness: &Harness) -> bool {
    let is_other = match (known.process(), harness.process()) {
        (_, None) => false,
        (Some(known), Some(said)) if known.pid == said.pid && said.started.is_none() => false,
        (known, said) => known != said,
    };
    if is_other {
        (known.pid, known.pid_started) = (harness.pid, harness.pid_started);
    }
    is_other
}

/// What a harness reported that was not known.
#[derive(Debug, Clone, Copy)]
struct Learned {
    is_news: bool,
    /// It changes which scopes concern the session.
    is_elsewhere: bool,
}

/// Updates `known` from `harness`; absent fields stay unchanged.
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
        | take_process(known, harness)
        | take(&mut known.conversations, &harness.conversations);
    let is_elsewhere =
        take(&mut known.workspace, &harness.workspace) | take(&mut known.parent, &harness.parent);
    Learned { is_news: is_other || is_elsewhere, is_elsewhere }
}

impl Sessions {
    /// Rebuilds the indices that a snapshot omits; `settings` give the deadlines.
    pub(super) fn restore_indices(&mut self, settings: &SessionSettings) {
        let Self {
            open,
            away,
            aliases,
            announced: _,
            deadlines,
            evicted: _,
            roots: _,
            pressure,
            folders: _,
            namesakes,
        } = self;
        for sessions in [open, away] {
            sessions.for_each_mut(|id, session| {
                aliases.extend(session.former.iter().map(|former| (former.clone(), id.clone())));
                deadlines.set(id.clone(), Some(session.deadline(settings)));
                session.weight = session.injector.weight();
                pressure.change(id, None, session.weight);
                if let Some(own) = &session.own_id {
                    namesakes.insert(own.clone(), id.clone());
                }
            });
        }
        for id in self.open.keys().cloned().collect::<Vec<_>>() {
            self.place(&id);
        }
    }
}
