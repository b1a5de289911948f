//! One session: its key, its identity, its turn, its queue, and the settings of sessions.
//!
//! A session that ended and can be resumed is suspended: it gets nothing new, and its queue is kept
//! until it is resumed or was suspended for as long as a session may be silent. A subagent is a
//! session with a parent. It gets only notifications addressed to it; when it ends, the rest of its
//! queue goes to its parent.
//!
//! When the total length of all queues exceeds the bound, the queue with the greatest weight evicts.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, VecDeque},
    ops::{Not, RangeInclusive},
    sync::Arc,
    time::Duration,
};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    injector::{Injector, SourceChange},
    turns::Turns,
};
use crate::{
    budget::Budgets,
    event::{Scope, SessionId},
    exchange::{Conversations, Format, Harness, Process},
    ledger::LedgerEntry,
    notification::{Notification, Priority, Tokens},
    session::{Pending, SessionState, Wake},
    settings::{Keys, settings},
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
    /// Those that ended because nobody answered them.
    pub(super) unanswered: Vec<Arc<Notification>>,
    /// When the session is due next.
    pub(super) deadline: Timestamp,
    /// The queue's weight before and now.
    pub(super) weights: (Weight, Weight),
    /// What changes of the budgets of sources.
    pub(super) source_changes: Vec<SourceChange>,
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

    /// Whose it is, for what the sessions of a user share; empty for the daemon's own user.
    pub(super) fn user(&self) -> Arc<str> {
        self.harness.user.clone().unwrap_or_default()
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
            Scope::Workspace(_) | Scope::All | Scope::Part(_) if self.is_subagent() => false,
            Scope::Session(_) | Scope::Workspace(_) | Scope::All | Scope::Part(_) => {
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
        let is_waited_for = pending > 0 || self.injector.for_user() > 0 || self.injector.is_held();
        is_attached || is_waited_for || self.injector.unconfirmed() > 0
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
        self.earlier_processes.push_back(before);
        self.earlier_processes.drain(..self.earlier_processes.len().saturating_sub(EARLIER_PROCESSES_MAX));
    }

    /// When it is due next: something in its queue ends, or it was silent for too long.
    pub(super) fn deadline(&self, settings: &SessionSettings) -> Timestamp {
        let silent_until = self.last_seen + settings.idle_close;
        self.injector.poll_timeout().map_or(silent_until, |at| at.min(silent_until))
    }

    /// Takes the reports of its queue; to be called after a possible change of the queue.
    pub(super) fn refresh(&mut self, settings: &Settings) -> Refreshed {
        if !self.state.is_in_turn() {
            self.injector.end_turn_holds();
        }
        let entries = self.injector.take_outputs();
        let unanswered = self.injector.take_unanswered();
        let source_changes = self.injector.take_source_changes();
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
        Refreshed {
            entries,
            unanswered,
            deadline: self.deadline(&settings.sessions),
            weights: (before, weight),
            source_changes,
            pending,
        }
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
        | take(&mut known.conversations, &harness.conversations)
        | take(&mut known.format, &harness.format)
        | take(&mut known.dialect, &harness.dialect);
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

/// Identifies a known session.
///
/// Shape: counted from 1, in the order in which sessions are first opened, and never reused; 0 is
/// not assigned yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionKey(pub(super) u64);

/// The lowest priority in a queue, and the queue's length; `None` when it is empty.
pub(super) type Weight = Option<(Priority, usize)>;

/// The total of all queues.
///
/// Shape: usually there is room for everything. The eviction order is built when the bound is
/// exceeded, and kept until half of the bound is free again. Building it visits each session, at
/// most once per as many notifications as that half.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    pub(super) total: usize,
    /// The eviction order.
    order: Option<BTreeSet<EvictionRank>>,
}

/// Orders queues: a lesser one evicts first.
type EvictionRank = (Priority, Reverse<usize>, SessionKey);

fn eviction_rank(key: SessionKey, (least, count): (Priority, usize)) -> EvictionRank {
    (least, Reverse(count), key)
}

impl Pressure {
    /// Updates the total for a session's weight, from `before` to `now`.
    pub(super) fn change(&mut self, key: SessionKey, before: Weight, now: Weight) {
        if before == now {
            return;
        }
        let count = |weight: Weight| weight.map_or(0, |(_, count)| count);
        self.total = self.total - count(before) + count(now);
        if let Some(order) = &mut self.order {
            if let Some(before) = before {
                order.remove(&eviction_rank(key, before));
            }
            order.extend(now.map(|now| eviction_rank(key, now)));
        }
    }

    /// The queue that has to evict, if there are more than `total_max` in all: the longest of those
    /// with a notification of the lowest priority. `weights` are those of all queues.
    pub(super) fn over<I: Iterator<Item = (SessionKey, (Priority, usize))>>(
        &mut self,
        total_max: usize,
        weights: impl FnOnce() -> I,
    ) -> Option<SessionKey> {
        if self.total <= total_max {
            if self.total <= total_max / 2 {
                self.order = None;
            }
            return None;
        }
        let order = self
            .order
            .get_or_insert_with(|| weights().map(|(key, weight)| eviction_rank(key, weight)).collect());
        order.first().map(|(_, _, key)| *key)
    }

    /// Whether the eviction order is kept.
    #[cfg(test)]
    pub(super) fn keeps_order(&self) -> bool {
        self.order.is_some()
    }
}

/// Most notifications in all queues together, unless configured: at some 550 bytes each 220 MB, and
/// as much again while the history folds the journal with an engine of its own. With the servers'
/// memory that stays within the 1 GB that the installed unit allows the daemon.
pub const PENDING_MAX: u32 = 400_000;
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Shortest and longest time for which sessions and their pending notifications are kept.
const KEEP_LIMITS: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(30 * 24 * 3_600);

/// All settings of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `[injection]` of `aside.toml`.
    pub injection: InjectionSettings,
    /// `[sessions]` of `aside.toml`.
    pub sessions: SessionSettings,
    /// The least priority that wakes an idle session.
    pub wake_threshold: Priority,
    /// All budgets.
    pub budgets: Arc<Budgets>,
}

settings! {
    /// One injection is the text that one hook adds to the context of an agent.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct InjectionSettings from impl Keys {
        /// Most notifications in one injection.
        max_notifications: u32 = 10, number(1..=100);
        /// Most tokens of one injection, its wrapper included; the number is estimated.
        max_tokens: Tokens = Tokens(800), number(Tokens(100)..=Tokens(20_000));
        /// Most characters of one injection, its wrapper included. Some clients cut the output of a
        /// hook at 10,000.
        max_chars: u32 = 8_000, number(400..=100_000);
        /// The format of an injection, unless the client asks for another one.
        format: Format = Format::Xml, among(&Format::texts());
        /// An injection that its client does not confirm within this time counts as lost. The time
        /// covers tools that run long.
        lease: Duration = Duration::from_secs(15 * 60), duration(Duration::from_secs(1)..=DAY);
        /// Shows the user one line about each delivery, such as "aside: 2 tool failures, 1 file
        /// change", if the client can show one and not all notifications have low priority.
        delivery_notice: bool = true, flag();
    }
}

settings! {
    /// Sessions and their queues.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SessionSettings from impl Keys {
        /// Most notifications that wait for one session. Beyond it, the least important one is
        /// evicted and counted.
        queue_len_max: u32 = 1_000, number(10..=100_000);
        /// Most notifications that wait in all queues together. Each takes some 550 bytes, twice
        /// while the history is rebuilt; the systemd unit allows the daemon 1 GB in all. Beyond it,
        /// the least important notification of the longest queue is evicted and counted.
        pending_max: u32 = PENDING_MAX, number(1_000..=10_000_000);
        /// A session is closed after this time without activity.
        idle_close: Duration = DAY, duration(KEEP_LIMITS);
        /// How long a notification without a `ttl` waits for a session that is not open yet.
        unclaimed_ttl: Duration = DAY, duration(KEEP_LIMITS);
    }
}
