//! One session: its identity, its turn, and its queue.
//!
//! A session that ended and can be resumed is suspended: it gets nothing new, and its queue is kept
//! until it is resumed or was suspended for as long as a session may be silent. A subagent is a
//! session with a parent. It gets only notifications addressed to it; when it ends, the rest of its
//! queue goes to its parent.

use std::{collections::VecDeque, ops::Not, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    injector::Injector,
    key::SessionKey,
    pressure::Weight,
    settings::{SessionSettings, Settings},
    turns::Turns,
};
use journal::time::Timestamp;

use crate::{
    event::{Scope, SessionId},
    exchange::{Conversations, Harness, Process},
    ledger::LedgerEntry,
    notification::{Notification, Priority},
    session::{Pending, SessionState, Wake},
};

/// How long a client reported as attached counts as attached; the report repeats every hour.
const ATTACHED_FOR: Duration = Duration::from_secs(2 * 60 * 60);

/// Most earlier processes of a session that are remembered.
const EARLIER_PROCESSES_MAX: usize = 8;

/// Whether a session takes notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Lifecycle {
    #[default]
    Open,
    Suspended,
}

/// One open or suspended session.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Session {
    /// Assigned by the table.
    pub(super) key: SessionKey,
    #[serde(skip)]
    pub(super) lifecycle: Lifecycle,
    pub(super) harness: Harness,
    /// The processes that it was in before, newest last.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub(super) earlier_processes: VecDeque<Process>,
    /// A process that it was never in continues it, and has made no exchange yet.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub(super) is_in_new_process: bool,
    /// The id given by its harness, if it is called by its full name.
    pub(super) own_id: Option<SessionId>,
    pub(super) opened_at: Timestamp,
    /// Since when it has been open without interruption.
    pub(super) open_since: Timestamp,
    pub(super) last_seen: Timestamp,
    pub(super) injector: Injector,
    /// The sessions that it continues, oldest first: a scope that concerns one of them concerns it.
    pub(super) predecessors: Vec<SessionId>,
    pub(super) state: SessionState,
    /// The number of the first broadcast that it has not taken.
    pub(super) taken: u64,
    /// When its harness last reported its state.
    pub(super) state_at: Timestamp,
    /// When a client was last reported as attached.
    pub(super) attached_at: Option<Timestamp>,
    /// Its turns, as its exchanges show them.
    pub(super) turns: Turns,
    /// Its start was reported, and no turn has started since.
    pub(super) is_opening: bool,
    /// Its end was reported because its user cleared the conversation.
    pub(super) is_cleared: bool,
    /// The queue state last published to watchers.
    pub(super) published: Published,
    /// Its queue's weight when that was last added to the total of all queues.
    #[serde(skip)]
    pub(super) weight: Weight,
}

/// The published state of a session's queue; the fields are those of [`Pending`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Published {
    count: u32,
    top: Option<Priority>,
    for_user: u32,
    wake: Option<Wake>,
    wakes_if_stopped: bool,
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

/// The reports of a session's queue after a possible change.
pub(super) struct Refreshed {
    pub(super) entries: VecDeque<LedgerEntry>,
    /// When the session is due next.
    pub(super) deadline: Timestamp,
    /// The queue's weight before and now.
    pub(super) weights: (Weight, Weight),
    /// The new state for watchers, if it changed.
    pub(super) pending: Option<Pending>,
}

impl Session {
    pub(super) fn new(id: SessionId, queue_len_max: u32, now: Timestamp) -> Self {
        Self {
            key: SessionKey::default(),
            lifecycle: Lifecycle::Open,
            harness: Harness::default(),
            earlier_processes: VecDeque::new(),
            is_in_new_process: false,
            own_id: None,
            opened_at: now,
            open_since: now,
            last_seen: now,
            injector: Injector::new(id, queue_len_max),
            predecessors: Vec::new(),
            state: SessionState::default(),
            taken: 0,
            state_at: now,
            attached_at: None,
            turns: Turns::default(),
            is_opening: false,
            is_cleared: false,
            published: Published::default(),
            weight: None,
        }
    }

    pub(super) fn id(&self) -> &SessionId {
        self.injector.session()
    }

    pub(super) fn is_open(&self) -> bool {
        self.lifecycle == Lifecycle::Open
    }

    pub(super) fn is_subagent(&self) -> bool {
        self.harness.parent.is_some()
    }

    pub(super) fn workspace(&self) -> Option<&str> {
        self.harness.workspace.as_deref()
    }

    pub(super) fn view(&self) -> SessionView<'_> {
        SessionView {
            id: self.id(),
            is_open: self.is_open(),
            harness: &self.harness,
            opened_at: self.opened_at,
            last_seen: self.last_seen,
            injector: &self.injector,
            state: self.state,
        }
    }

    /// Whether `scope` concerns the session; a subagent only by its own id.
    pub(super) fn is_concerned_by(&self, scope: &Scope) -> bool {
        match scope {
            Scope::Session(id) if self.predecessors.contains(id) => true,
            Scope::Workspace(_) | Scope::All if self.is_subagent() => false,
            Scope::Session(_) | Scope::Workspace(_) | Scope::All => {
                scope.concerns(self.id(), self.workspace())
            }
        }
    }

    /// The folder whose next session gets what its agent asked for, when it ends. A subagent leaves it
    /// to its parent, and a cleared conversation to its continuation.
    pub(super) fn asked_goes_to(&self) -> Option<Arc<str>> {
        let is_left = !self.is_subagent() && !self.is_cleared;
        is_left.then(|| self.workspace().map(Arc::from)).flatten()
    }

    /// Whether a broadcast concerns it: one that is not addressed to a single session and not
    /// resolved.
    pub(super) fn is_concerned_by_broadcast(&self, notification: &Notification) -> bool {
        let is_own = matches!(notification.scope, Scope::Session(_));
        !is_own && !notification.is_resolved() && self.is_concerned_by(&notification.scope)
    }

    /// Whether it is the one conversation of its process; never true for a subagent.
    pub(super) fn is_of_some_process(&self) -> bool {
        let is_only_one = self.harness.conversations == Some(Conversations::OnePerProcess);
        is_only_one && !self.is_subagent() && self.harness.pid.is_some()
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

    /// Updates the harness's properties; absent ones stay.
    pub(super) fn update_harness(&mut self, harness: &Harness) -> Update {
        let before = self.harness.process();
        let update = update(&mut self.harness, harness);
        if let (Some(before), Some(now)) = (before, self.harness.process())
            && update != Update::Nothing
            && !before.can_be(now)
        {
            self.note_process(before, now);
        }
        update
    }

    /// Notes that the process `now` took the place of `before`. One of several that take turns is
    /// new only once.
    fn note_process(&mut self, before: Process, now: Process) {
        self.is_in_new_process = !self.earlier_processes.iter().any(|earlier| earlier.can_be(now));
        self.remember_process(before);
    }

    /// A process that is not known yet has resumed it. The process that is found later is this one,
    /// so it continues nothing.
    pub(super) fn leave_process(&mut self) {
        let Some(before) = self.harness.process() else { return };
        (self.harness.pid, self.harness.pid_started) = (None, None);
        self.remember_process(before);
    }

    fn remember_process(&mut self, before: Process) {
        self.earlier_processes.retain(|earlier| !earlier.can_be(before));
        if self.earlier_processes.len() == EARLIER_PROCESSES_MAX {
            self.earlier_processes.pop_front();
        }
        self.earlier_processes.push_back(before);
    }

    /// When it is due next: something in its queue ends, or it was silent for too long.
    pub(super) fn deadline(&self, settings: &SessionSettings) -> Timestamp {
        let silent_until = self.last_seen + settings.idle_close;
        self.injector.poll_timeout().map_or(silent_until, |at| at.min(silent_until))
    }

    /// Takes the reports of its queue; to be called after a possible change of the queue.
    pub(super) fn refresh(&mut self, settings: &Settings) -> Refreshed {
        let entries = self.injector.take_outputs();
        let (count, top) = self.injector.pending();
        let wake = self.injector.wake(self.state, settings.wake_threshold);
        let weight = self.injector.weight();
        let before = std::mem::replace(&mut self.weight, weight);
        let if_stopped = || self.injector.wake(SessionState::Interrupted, settings.wake_threshold);
        let wakes_if_stopped = self.state.is_in_turn() && if_stopped().is_some();
        let state = Published { count, top, for_user: self.injector.for_user(), wake, wakes_if_stopped };
        let pending = (self.is_open() && self.published != state).then(|| {
            self.published.clone_from(&state);
            let Published { count, top, for_user, wake, wakes_if_stopped } = state;
            Pending { count, top, for_user, wake, wakes_if_stopped, ..Pending::nothing(self.id().clone()) }
        });
        Refreshed { entries, deadline: self.deadline(&settings.sessions), weights: (before, weight), pending }
    }
}

/// How the reported properties of a harness differ from the known ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Update {
    Nothing,
    Properties,
    /// Other scopes concern the session now.
    Scopes,
}

/// Updates `known` from `harness`; absent fields stay unchanged.
fn update(known: &mut Harness, harness: &Harness) -> Update {
    fn take<T: Clone + PartialEq>(known: &mut Option<T>, reported: &Option<T>) -> bool {
        let is_other = reported.is_some() && known != reported;
        if is_other {
            known.clone_from(reported);
        }
        is_other
    }
    let has_properties = take(&mut known.name, &harness.name)
        | take(&mut known.version, &harness.version)
        | take(&mut known.user, &harness.user)
        | take_process(known, harness)
        | take(&mut known.conversations, &harness.conversations);
    let has_scopes =
        take(&mut known.workspace, &harness.workspace) | take(&mut known.parent, &harness.parent);
    match (has_properties, has_scopes) {
        (_, true) => Update::Scopes,
        (true, false) => Update::Properties,
        (false, false) => Update::Nothing,
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

/// Whether both name a harness, and differ.
pub(super) fn is_of_another(known: &Harness, harness: &Harness) -> bool {
    matches!((&known.name, &harness.name), (Some(known), Some(name)) if known != name)
}
