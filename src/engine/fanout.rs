//! Broadcasts: notifications for so many sessions that queueing them all at once would delay the
//! next input.
//!
//! A broadcast is kept once, in a log. A session takes its pending broadcasts before anything else
//! is done with its queue, so every decision about it is the same as if they had been queued at
//! once. The other sessions take theirs in slices: while some are pending the engine requests
//! ticks, and each tick does a fixed amount of that work. The schedule depends on the inputs alone,
//! so a replay repeats it.

use std::{collections::VecDeque, ops::Bound, sync::Arc};

use serde::{Deserialize, Serialize};

use super::Engine;
use crate::{
    event::{Scope, SessionId},
    notification::{Notification, NotificationId, Resolution},
    snapshot,
    time::Timestamp,
};

/// Most sessions that get a notification at once; one for more is a broadcast. An event for so many
/// costs some 10 microseconds more than one for a single session.
pub(super) const DIRECT_MAX: usize = 8;
/// After how many taken notifications a tick stops: one to two milliseconds, the longest an
/// exchange waits for it. The current session first takes all that is pending.
const TAKEN_PER_TICK: usize = 1_024;
/// With this many broadcasts in the log, each input does as much work as a broadcast adds, so the
/// log stops growing. With many sessions, publishing waits before that ([`Engine::untaken`]); with
/// few, the work is small.
const LOG_MAX: usize = 4_000;

/// The broadcasts that some session may not have taken.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Fanout {
    /// The number of the first broadcast in the log.
    first: u64,
    #[serde(with = "snapshot::shared::list")]
    log: VecDeque<Arc<Notification>>,
    sweep: Option<Sweep>,
    /// The time of the last input.
    handled_at: Timestamp,
}

/// One pass over the sessions, in id order.
#[derive(Debug, Serialize, Deserialize)]
struct Sweep {
    /// The last session visited.
    after: Option<SessionId>,
    /// When the pass ends, all sessions have taken the broadcasts before this number.
    until: u64,
}

impl Fanout {
    /// The number of the next broadcast; a session that opens counts as having taken all before it.
    pub(super) fn head(&self) -> u64 {
        self.first + self.log.len() as u64
    }

    /// Whether a notification is in the log.
    pub(super) fn contains(&self, id: &NotificationId) -> bool {
        self.log.iter().any(|notification| notification.id == *id)
    }

    /// Applies a resolution to the conditions in the log.
    ///
    /// Shape: the notifications with no condition left, and whether some sessions have to take
    /// others unchanged.
    pub(super) fn resolve(&mut self, resolution: &Resolution) -> (Vec<NotificationId>, bool) {
        let (mut ended, mut is_for_others) = (Vec::new(), false);
        for notification in self.log.iter_mut() {
            let Some(left) = resolution.applied_to(notification) else { continue };
            if !resolution.scope.covers(&notification.scope) {
                is_for_others |= resolution.scope.meets(&notification.scope);
                continue;
            }
            if left.is_resolved() {
                ended.push(left.id.clone());
            }
            *notification = left;
        }
        (ended, is_for_others)
    }

    /// When sessions have to take more.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        (!self.log.is_empty()).then_some(self.handled_at)
    }

    /// The pending broadcasts of a session that has taken those before `taken`.
    fn after(&self, taken: u64) -> impl Iterator<Item = &Arc<Notification>> {
        let skipped = taken.saturating_sub(self.first);
        self.log.iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX))
    }
}

impl Engine {
    /// Adds a notification for the sessions that it concerns; they take it in slices.
    pub(super) fn broadcast(&mut self, notification: Arc<Notification>) {
        self.fanout.log.push_back(notification);
    }

    /// Whether the session has broadcasts pending, which its queue does not show yet.
    pub fn is_behind(&self, id: &SessionId) -> bool {
        self.sessions.get(id).is_some_and(|session| session.taken < self.fanout.head())
    }

    /// How many notifications are pending over all sessions, at most.
    pub fn untaken(&self) -> u64 {
        (self.fanout.log.len() as u64).saturating_mul(self.sessions.roots.len() as u64)
    }

    /// Lets the session take its pending broadcasts; returns how many it checked.
    pub(super) fn catch_up(&mut self, id: &SessionId) -> usize {
        let head = self.fanout.head();
        let Some(session) = self.sessions.get_mut(id).filter(|session| session.taken < head) else {
            return 0;
        };
        let (is_child, workspace) = (session.harness.parent.is_some(), session.harness.workspace.clone());
        let (mut looked_at, mut is_new) = (0, false);
        for notification in self.fanout.after(session.taken) {
            looked_at += 1;
            let is_own = matches!(notification.scope, Scope::Session(_));
            let is_over = notification.is_resolved();
            if !is_child && !is_own && !is_over && notification.scope.concerns(id, workspace.as_deref()) {
                is_new |= session.injector.push(Arc::clone(notification)).is_new;
            }
        }
        session.taken = head;
        if is_new {
            self.settle_session(id);
        }
        looked_at
    }

    /// Lets every session take its pending broadcasts.
    pub(super) fn catch_up_all(&mut self) {
        while !self.fanout.log.is_empty() {
            self.advance_sweep();
        }
    }

    /// Lets sessions take broadcasts after a tick, and after any other input when the log is too
    /// long.
    pub(super) fn advance_fanout(&mut self, is_tick: bool, now: Timestamp) {
        self.fanout.handled_at = now;
        let mut budget = if is_tick { TAKEN_PER_TICK } else { 0 };
        if self.fanout.log.len() > LOG_MAX {
            budget += self.sessions.roots.len();
        }
        while budget > 0 && !self.fanout.log.is_empty() {
            budget = budget.saturating_sub(self.advance_sweep().max(1));
        }
    }

    /// Lets the next session take its pending broadcasts; returns how many it checked.
    fn advance_sweep(&mut self) -> usize {
        let until = self.fanout.head();
        let sweep = self.fanout.sweep.get_or_insert(Sweep { after: None, until });
        let from = sweep.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.sessions.roots.range::<SessionId, _>((from, Bound::Unbounded)).next().cloned();
        if let Some(id) = next {
            sweep.after = Some(id.clone());
            return self.catch_up(&id);
        }
        let taken_by_all = sweep.until - self.fanout.first;
        self.fanout.log.drain(..usize::try_from(taken_by_all).unwrap_or(usize::MAX));
        self.fanout.first = sweep.until;
        self.fanout.sweep = None;
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::{CompiledRules, Input, Output, RequestId, WakeReason},
        event::{Seq, Severity},
        exchange::{Exchange, Harness, Release},
        notification::{
            Activation, Audience, InjectionPoint, Interrupt, Nature, NotificationId, Priority, State,
            StateKey, SubscriberId, Tokens,
        },
    };

    const SESSIONS: usize = 200;
    const BROADCASTS: usize = 30;

    fn id(number: usize) -> SessionId {
        SessionId::new(&format!("s{number:03}"))
    }

    fn notification(number: usize, scope: Scope) -> Arc<Notification> {
        Arc::new(Notification {
            id: NotificationId::new(&format!("n{number:02}")),
            subscriber: SubscriberId::new("s"),
            scope,
            priority: Priority::High,
            inject_at: InjectionPoint::AfterTool,
            activation: Activation::Passive,
            interrupt: Interrupt::InjectAndContinue,
            severity: Severity::Info,
            content: "key: value".into(),
            tokens: Tokens(3),
            raw_bytes: 40,
            states: Vec::new(),
            unresolved: Vec::new(),
            events: Vec::new(),
            created_at: Timestamp::from_millis(1),
            expires_at: None,
            nature: Default::default(),
            untrusted_source: None,
        })
    }

    /// An engine whose sessions have broadcasts pending: for all, and one in three for the folder
    /// of half of them.
    fn behind() -> Engine {
        let mut engine = Engine::new(Arc::new(CompiledRules::none()));
        for number in 0..SESSIONS {
            let workspace = if number % 2 == 0 { "/even" } else { "/odd" };
            let harness = Harness { workspace: Some(workspace.into()), ..Harness::default() };
            engine.handle(Input::SessionOpened { session: id(number), harness }, Timestamp::from_millis(1));
        }
        while engine.poll_output().is_some() {}
        for number in 0..BROADCASTS {
            let scope = if number % 3 == 0 { Scope::Workspace("/even".into()) } else { Scope::All };
            engine.broadcast(notification(number, scope));
        }
        engine
    }

    fn pending(engine: &Engine, number: usize) -> u32 {
        engine.session(&id(number)).expect("open").injector.pending().0
    }

    fn outputs(engine: &mut Engine) -> Vec<String> {
        std::iter::from_fn(|| engine.poll_output()).map(|output| format!("{output:?}")).collect()
    }

    fn restored(engine: &Engine) -> Engine {
        let bytes = snapshot::write(&engine.state()).expect("written");
        let state = snapshot::read(&bytes).expect("just written");
        Engine::from_state(Arc::clone(engine.rules()), state)
    }

    #[test]
    fn whoever_asks_has_everything_and_the_others_take_theirs_in_slices() {
        let mut engine = behind();
        let now = Timestamp::from_millis(2);
        let exchange = Exchange::new(id(198), InjectionPoint::TurnStart, "c1");
        engine.handle(
            Input::Exchange { seq: Seq(9), request: RequestId(9), exchange, release: Release::Decide },
            now,
        );
        let pending_then = std::iter::from_fn(|| engine.poll_output()).find_map(|output| {
            let Output::Answer { answer, .. } = output else { return None };
            Some(answer.pending)
        });
        let all = u32::try_from(BROADCASTS).expect("small");
        assert_eq!(pending_then, Some(all - 10));
        assert_eq!((pending(&engine, 0), pending(&engine, 197)), (0, 0));
        assert!(engine.is_behind(&id(197)) && !engine.is_behind(&id(198)));
        let mut ticks = 0;
        while engine.poll_timeout().is_some_and(|(at, reason)| at == now && reason == WakeReason::Fanout) {
            engine.handle(Input::Tick, now);
            while engine.poll_output().is_some() {}
            ticks += 1;
        }
        assert!((6..=8).contains(&ticks), "{ticks} ticks of {TAKEN_PER_TICK}");
        let of_odd = all - all / 3;
        let found: Vec<u32> = (0..SESSIONS).map(|number| pending(&engine, number)).collect();
        let expected = |number| match number {
            198 => all - 10,
            even if even % 2 == 0 => all,
            _ => of_odd,
        };
        assert_eq!(found, (0..SESSIONS).map(expected).collect::<Vec<u32>>());
        assert!(engine.fanout.log.is_empty() && engine.fanout.head() == BROADCASTS as u64);
    }

    /// How many notifications the outputs of the last input put into queues.
    fn queued(engine: &mut Engine) -> usize {
        outputs(engine).iter().filter(|output| output.contains("Queued")).count()
    }

    #[test]
    fn an_exchange_in_a_burst_waits_for_no_more_than_a_slice_however_many_sessions_are_open() {
        const EVENTS: usize = 200;
        let now = Timestamp::from_millis(2);
        for (sessions, scope) in [
            (DIRECT_MAX, Scope::All),
            (DIRECT_MAX + 1, Scope::All),
            (1_000, Scope::All),
            (1_000, Scope::Workspace("/shop/src".into())),
        ] {
            let mut engine = Engine::new(Arc::new(CompiledRules::none()));
            for number in 0..sessions {
                let harness = Harness { workspace: Some("/shop".into()), ..Harness::default() };
                engine.handle(Input::SessionOpened { session: id(number), harness }, now);
            }
            outputs(&mut engine);
            let mut most = 0;
            for number in 0..EVENTS {
                engine.route(notification(number, scope.clone()), Audience::Agent, Timestamp::ZERO);
                engine.handle(Input::SessionSeen { session: SessionId::new("unknown") }, now);
                most = most.max(queued(&mut engine));
            }
            assert!(most <= DIRECT_MAX, "{most} for an event to {sessions} sessions");
            let exchange = Exchange::new(id(sessions - 1), InjectionPoint::AfterTool, "c1");
            let (request, release) = (RequestId(9), Release::Decide);
            engine.handle(Input::Exchange { seq: Seq(9), request, exchange, release }, now);
            assert!(queued(&mut engine) <= EVENTS, "its own");
            let (mut ticks, mut most) = (0, 0);
            while engine.poll_timeout().is_some_and(|(_, reason)| reason == WakeReason::Fanout) {
                engine.handle(Input::Tick, now);
                most = most.max(queued(&mut engine));
                ticks += 1;
            }
            assert!(most <= TAKEN_PER_TICK + EVENTS, "{most} in a tick");
            assert!(ticks <= sessions * EVENTS / TAKEN_PER_TICK + 2, "{ticks} ticks");
            assert_eq!(pending(&engine, 0), u32::try_from(EVENTS).expect("small"));
        }
    }

    #[test]
    fn a_restart_in_the_midst_changes_nothing() {
        let (mut whole, mut stopped) = (behind(), behind());
        for at in 2..12 {
            stopped = restored(&stopped);
            assert_eq!(stopped.poll_timeout(), whole.poll_timeout());
            for engine in [&mut whole, &mut stopped] {
                engine.handle(Input::Tick, Timestamp::from_millis(at));
            }
            assert_eq!(outputs(&mut whole), outputs(&mut stopped));
        }
        assert!(whole.fanout.log.is_empty());
    }

    #[test]
    fn a_session_that_ends_or_opens_meanwhile_has_what_was_made_while_it_was_open() {
        let mut engine = behind();
        let now = Timestamp::from_millis(2);
        engine.handle(Input::SessionClosed { session: id(199), may_return: true }, now);
        let ended = outputs(&mut engine).iter().filter(|output| output.contains("SessionGone")).count();
        assert_eq!(ended, BROADCASTS - BROADCASTS / 3);
        let harness = Harness::default();
        engine.handle(Input::SessionOpened { session: SessionId::new("late"), harness }, now);
        engine.catch_up_all();
        let late = engine.session(&SessionId::new("late")).expect("open");
        assert_eq!(late.injector.pending().0, 0);
    }

    #[test]
    fn what_is_resolved_is_not_taken_by_those_whom_that_concerns() {
        let now = Timestamp::from_millis(2);
        let holds = |number, scope| {
            let unresolved = vec![State { key: StateKey(7), seq: Seq(1) }];
            let notification = Arc::unwrap_or_clone(notification(number, scope));
            Arc::new(Notification { nature: Nature::Condition, unresolved, ..notification })
        };
        let resolution = |scope| Resolution {
            subscriber: SubscriberId::new("s"),
            seq: Seq(2),
            scope,
            keys: vec![StateKey(7)],
        };
        let all = u32::try_from(BROADCASTS).expect("small");
        let mut engine = behind();
        engine.broadcast(holds(90, Scope::All));
        engine.withdraw(&resolution(Scope::All));
        let ended = outputs(&mut engine);
        assert_eq!(ended.iter().filter(|output| output.contains("Withdrawn")).count(), 1, "once, for nobody");
        engine.handle(Input::SessionSeen { session: id(0) }, now);
        assert_eq!(pending(&engine, 0), all);
        let mut engine = behind();
        engine.broadcast(holds(90, Scope::All));
        engine.withdraw(&resolution(Scope::Workspace("/even".into())));
        engine.catch_up_all();
        assert_eq!((pending(&engine, 0), pending(&engine, 1)), (all, all - all / 3 + 1));
    }

    #[test]
    fn the_log_stays_within_its_bound_however_many_come() {
        let mut engine = behind();
        assert_eq!(engine.untaken(), (SESSIONS * BROADCASTS) as u64);
        for number in 100..100 + 2 * LOG_MAX {
            engine.broadcast(notification(number, Scope::All));
            engine.handle(Input::ShuttingDown, Timestamp::from_millis(2));
            while engine.poll_output().is_some() {}
        }
        assert!(engine.fanout.log.len() <= LOG_MAX + 100, "{}", engine.fanout.log.len());
    }
}
