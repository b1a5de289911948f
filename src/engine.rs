//! Every pipeline and every session as one state machine.
//!
//! The engine takes what happened and when ([`Input`]), in journal order. It returns what to do
//! ([`Output`]) and when to wake it. It is a pure fold: the same inputs with the same times give
//! the same outputs. So live traffic, recovery, a subscriber's own tests and simulation run the
//! same code. Before each input it fires every deadline up to that input's time, each at its own
//! time, so the order of a timer and the next input does not matter.
//!
//! It does not know sockets, files, clocks or TOML.

pub mod io;
pub mod rules;

mod by_id;
mod deadlines;
mod departures;
mod dispatch;
mod explain;
mod fanout;
mod folders;
mod lineage;
mod namesakes;
mod offers;
mod pressure;
mod release;
mod resolve;
mod room;
mod sessions;
mod state;
mod succession;
mod tally;
mod throttle;
mod turns;
mod unclaimed;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use self::{
    deadlines::Deadlines, departures::Suspension, fanout::Fanout, lineage::Lineage, sessions::Sessions,
    throttle::Throttle, unclaimed::Unclaimed,
};
pub use self::{
    dispatch::SUBSCRIBER_FAILED,
    explain::{Explanation, Verdict},
    io::{Input, Output, Pending, RequestId, SessionChange, WakeReason},
    namesakes::Named,
    rules::{CompiledRules, InjectionSettings, SessionSettings, SourceSettings},
    sessions::SessionView,
    state::EngineState,
    tally::{SubscriberTally, Tally, Word},
};
use crate::{
    ci::{Follows, Plan},
    detector::Detectors,
    event::{EventRef, Scope, Seq, SessionId},
    exchange::{Decision, InjectionId},
    injector::Injector,
    ledger::{ConfirmedBy, HeldBackBy, LedgerEntry, Reason},
    matcher::Matcher,
    notification::{InjectionPoint, Notification, NotificationId, SubscriberId},
    pipeline::{Failing, Pipeline, rule::Activity},
    probe::{self, memory::Changes},
    session::SessionState,
    sink::{Deliveries, Outbound, Question, QuestionState, Questions, Verdict as SinkVerdict},
    time::Timestamp,
    watch::{Watch, Watches},
};

/// The decision logic of the program.
#[derive(Debug)]
pub struct Engine {
    rules: Arc<CompiledRules>,
    matcher: Matcher,
    /// Finds the pipelines whose conditions an event resolves.
    resolvers: Matcher,
    /// One for each of `rules.subscribers`, in that order.
    pipelines: Vec<Pipeline>,
    /// When to wake each pipeline, by its index.
    pipeline_deadlines: Deadlines<u32>,
    sessions: Sessions,
    fanout: Fanout,
    unclaimed: Unclaimed,
    lineage: Lineage,
    throttle: Throttle,
    detectors: Detectors,
    /// What the sessions know of the machine.
    probes: probe::Memory,
    watches: Watches,
    /// Notices on their way to the user.
    for_user: Deliveries,
    questions: Questions,
    ci: Follows,
    tally: Tally,
    outputs: VecDeque<Output>,
}

impl Engine {
    /// Creates an engine with `rules` and no state.
    pub fn new(rules: Arc<CompiledRules>) -> Self {
        let pipelines = rules.subscribers.iter().cloned().map(Pipeline::new).collect();
        let mut ci = Follows::default();
        ci.apply(&rules.outside.ci);
        Self {
            matcher: matcher_of(&rules),
            resolvers: resolvers_of(&rules),
            pipelines,
            pipeline_deadlines: Deadlines::default(),
            sessions: Sessions::default(),
            fanout: Fanout::default(),
            unclaimed: Unclaimed::default(),
            lineage: Lineage::default(),
            throttle: Throttle::default(),
            detectors: Detectors::default(),
            probes: probe::Memory::default(),
            watches: Watches::default(),
            for_user: Deliveries::default(),
            questions: Questions::default(),
            ci,
            tally: Tally::default(),
            outputs: VecDeque::new(),
            rules,
        }
    }

    /// Handles one input. Drain [`Engine::poll_output`] to `None` before the next.
    ///
    /// `now` is the time of the input's journal record; it never goes back.
    pub fn handle(&mut self, input: Input<'_>, now: Timestamp) {
        self.fire_deadlines(now);
        let addressed = self.addressed_by_full_name(&input);
        let input = match (input, &addressed) {
            (Input::Event { seq, event }, Some(session)) => {
                Input::Event { seq, event: EventRef { session: Some(session.as_str()), ..event } }
            }
            (input, _) => input,
        };
        let is_tick = matches!(input, Input::Tick);
        self.catch_up_for(&input);
        match input {
            Input::Event { seq, event } => self.dispatch(seq, &event, now),
            Input::Exchange { seq, request, exchange, release } => {
                self.exchange(seq, request, &exchange, &release, now);
            }
            Input::Skipped { event } => self.skip(event),
            Input::Ack { session, injection, by } => self.ack(&session, &injection, by),
            Input::Undelivered { session, injection } => {
                self.undelivered(&session, &injection);
            }
            Input::SessionOpened { session, harness } => {
                if self.sessions.taken_by(&session, &harness).is_none() {
                    self.meet_session(&session, &harness, now);
                    self.settle_session(&session);
                }
            }
            Input::SessionClosed { session, may_return: true } => {
                self.suspend(&session, Suspension::ByHarness, now);
            }
            Input::SessionClosed { session, may_return: false } => self.end_session(&session, now),
            Input::ProcessGone { session, process } => self.process_gone(&session, process, now),
            Input::SessionSeen { session } => self.note_attached(&session, now),
            Input::SessionIdle { session, as_of } => self.note_idle(&session, as_of),
            Input::Decided { session, notification, decision } => {
                self.decide(session.as_ref(), &notification, decision);
            }
            Input::RulesReplaced(rules) => self.replace_rules(rules, now),
            Input::ShuttingDown => self.close_batches(|_| true, &|_| true, now),
            Input::Tick => {}
        }
        self.note_idle_sessions(now);
        // Other rules can make a batch or a session due.
        self.fire_deadlines(now);
        self.advance_fanout(is_tick, now);
        self.relieve();
    }

    /// Lets the sessions whose queues `input` concerns take their broadcasts first.
    fn catch_up_for(&mut self, input: &Input<'_>) {
        match input {
            Input::Event { event, .. } => {
                if let Some(session) = event.session.filter(|_| self.fanout.poll_timeout().is_some()) {
                    self.catch_up(&SessionId::new(session));
                }
            }
            Input::Exchange { exchange, .. } => {
                self.catch_up(&exchange.session);
            }
            Input::Ack { session, .. }
            | Input::Undelivered { session, .. }
            | Input::SessionOpened { session, .. }
            | Input::SessionClosed { session, .. }
            | Input::ProcessGone { session, .. }
            | Input::SessionSeen { session }
            | Input::SessionIdle { session, .. }
            | Input::Decided { session: Some(session), .. } => {
                self.catch_up(session);
            }
            Input::Decided { session: None, notification, .. } => {
                if self.fanout.contains(notification) {
                    self.catch_up_all();
                }
            }
            Input::RulesReplaced(_) => self.catch_up_all(),
            Input::ShuttingDown | Input::Tick | Input::Skipped { .. } => {}
        }
    }

    /// The next thing the shell must do; the order matters.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When the engine needs an input at the latest, and why. `None` while nothing is pending.
    pub fn poll_timeout(&self) -> Option<(Timestamp, WakeReason)> {
        let fanout = self.fanout.poll_timeout().map(|at| (at, WakeReason::Fanout));
        fanout.into_iter().chain(self.next_deadline()).min()
    }

    /// The earliest deadline and its reason.
    fn next_deadline(&self) -> Option<(Timestamp, WakeReason)> {
        [
            (self.pipeline_deadlines.first(), WakeReason::Pipeline),
            (self.sessions.poll_timeout(), WakeReason::Session),
            (self.unclaimed.poll_timeout(), WakeReason::Unclaimed),
            (self.throttle.poll_timeout(), WakeReason::Throttle),
            (self.watches.poll_timeout(), WakeReason::Watch),
            (self.for_user.poll_timeout(), WakeReason::Sink),
            (self.questions.poll_timeout(), WakeReason::Question),
        ]
        .into_iter()
        .filter_map(|(at, reason)| at.map(|at| (at, reason)))
        .min()
    }

    /// How many open sessions were evicted for lack of room since the journal began.
    pub fn sessions_evicted(&self) -> u64 {
        self.sessions.evicted.count
    }

    /// The rules in force.
    pub fn rules(&self) -> &Arc<CompiledRules> {
        &self.rules
    }

    /// Counts of outcomes of events and notifications since the journal began.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The templates and conditions that failed under the rules in force, with the subscriber of
    /// each.
    pub fn failing(&self) -> impl Iterator<Item = (&SubscriberId, String, &Failing)> {
        self.pipelines.iter().flat_map(|pipeline| {
            let id = &pipeline.rule().id;
            pipeline.failing().map(move |(part, failing)| (id, part.file(id), failing))
        })
    }

    /// How many notifications wait for a session to open.
    pub fn unclaimed_len(&self) -> usize {
        self.unclaimed.len()
    }

    /// The open sessions, then the suspended ones, each in id order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionView<'_>> {
        self.sessions.views()
    }

    /// The same, all in id order.
    pub fn sessions_by_id(&self) -> impl Iterator<Item = SessionView<'_>> {
        self.sessions.views_by_id()
    }

    /// The notifications that wait for a session to open, in delivery order.
    pub fn unclaimed(&self) -> Vec<&Notification> {
        self.unclaimed.in_order()
    }

    /// Whether a decision about a notification is possible: it waits in the session's queue, or in
    /// any queue if `session` is `None`. A notification that waits for the next session can be
    /// dismissed; there is no agent yet to discuss it with.
    pub fn can_decide(
        &self,
        session: Option<&SessionId>,
        notification: &NotificationId,
        decision: Decision,
    ) -> bool {
        match session {
            Some(id) => self.session(id).is_some_and(|session| session.injector.waits(notification)),
            None => {
                self.sessions.views().any(|session| session.injector.waits(notification))
                    || decision == Decision::Dismiss && self.unclaimed.contains(notification)
                    || self.fanout.contains(notification)
            }
        }
    }

    /// One open or suspended session.
    pub fn session(&self, id: &SessionId) -> Option<SessionView<'_>> {
        self.sessions.view(id)
    }

    /// Changes to what sessions know, since the last call.
    pub fn take_known(&mut self) -> Option<Changes> {
        self.probes.has_changes().then(|| self.probes.take_changes())
    }

    /// The open watches, in id order.
    pub fn watches(&self) -> impl Iterator<Item = &Arc<Watch>> {
        self.watches.open()
    }

    /// The open watches, if they changed since the last call.
    pub fn take_watches(&mut self) -> Option<Arc<[Arc<Watch>]>> {
        self.watches.take_changes()
    }

    /// What is due at the sinks, if it may have changed since the last call.
    pub fn take_outbound(&mut self) -> Option<Outbound> {
        let jobs = self.for_user.take_due()?;
        Some(Outbound { settings: Arc::clone(&self.rules.sinks), jobs })
    }

    /// The outcome of a notice at the sinks, if it is one of the newest.
    pub fn sink_verdict(&self, notice: &str) -> Option<&SinkVerdict> {
        self.for_user.verdict(notice)
    }

    /// The open questions, if they changed since the last call.
    pub fn take_questions(&mut self) -> Option<Arc<[Arc<Question>]>> {
        self.questions.take_changes()
    }

    /// The state of a question that is open or ended recently.
    pub fn question(&self, id: &str) -> Option<QuestionState> {
        self.questions.state(id)
    }

    /// Ends the deliveries of questions that have ended.
    fn close_questions(&mut self) {
        for id in self.questions.take_closed() {
            let entries = self.for_user.end_question(&id);
            self.record_all(entries);
        }
    }

    /// The next CI requests, if they may have changed since the last call.
    pub fn take_ci_plan(&mut self) -> Option<Plan> {
        self.ci.take_plan()
    }

    /// The folders of open sessions, if they changed since the last call.
    pub fn take_folders(&mut self) -> Option<Arc<[Arc<str>]>> {
        self.sessions.take_folders()
    }

    /// The current session of the process that was in `id`; `id` itself when no other is known.
    pub fn session_now(&self, id: &SessionId) -> SessionId {
        self.sessions.now_in(id).clone()
    }

    fn fire_deadlines(&mut self, now: Timestamp) {
        while let Some((at, reason)) = self.next_deadline().filter(|(at, _)| *at <= now) {
            match reason {
                WakeReason::Pipeline => self.fire_pipelines(at),
                WakeReason::Session => self.fire_sessions(at),
                WakeReason::Unclaimed => self.expire_unclaimed(at),
                WakeReason::Fanout => unreachable!("it is no deadline of the engine's"),
                WakeReason::Throttle => {
                    let events = self.throttle.take_due(at);
                    self.outputs.extend(events.into_iter().map(Output::Publish));
                }
                WakeReason::Watch => {
                    let events = self.watches.take_due(at);
                    self.outputs.extend(events.into_iter().map(Output::Publish));
                }
                WakeReason::Sink => {
                    let entries = self.for_user.handle_timeout(at);
                    self.record_all(entries);
                }
                WakeReason::Question => {
                    let events = self.questions.take_due(at);
                    self.close_questions();
                    self.outputs.extend(events.into_iter().map(Output::Publish));
                }
            }
        }
    }

    /// Ends the watches that wait for a session that is idle now.
    fn note_idle_sessions(&mut self, now: Timestamp) {
        if !self.watches.waits_for_idle() {
            return;
        }
        let sessions = &self.sessions;
        let is_idle = |id: &SessionId| {
            sessions.get(sessions.now_in(id)).is_none_or(|session| !session.state.is_in_turn())
        };
        let events = self.watches.note_idle(is_idle, now);
        self.outputs.extend(events.into_iter().map(Output::Publish));
    }

    fn fire_pipelines(&mut self, at: Timestamp) {
        for index in self.pipeline_deadlines.take_due(at) {
            let Some(pipeline) = usize::try_from(index).ok().and_then(|index| self.pipelines.get_mut(index))
            else {
                continue;
            };
            pipeline.handle_timeout(&self.rules.templates, at);
            self.drain_pipeline(index, at);
        }
    }

    fn expire_unclaimed(&mut self, at: Timestamp) {
        for notification in self.unclaimed.take_expired(at) {
            self.record(LedgerEntry::NotificationEnded {
                notification: notification.id.clone(),
                session: None,
                reason: Reason::Expired,
            });
        }
    }

    /// Closes the open batches of the pipelines that `is_wanted` selects, in the scopes that
    /// `concerns` selects.
    fn close_batches(
        &mut self,
        is_wanted: impl Fn(&Pipeline) -> bool,
        concerns: &dyn Fn(&Scope) -> bool,
        now: Timestamp,
    ) {
        for index in self.pipeline_deadlines.keys() {
            let Some(pipeline) = usize::try_from(index).ok().and_then(|index| self.pipelines.get_mut(index))
            else {
                continue;
            };
            if is_wanted(pipeline) {
                pipeline.close(concerns, &self.rules.templates, now);
                self.drain_pipeline(index, now);
            }
        }
    }

    /// Switches to other rules. A subscriber that stays keeps its state; one that is removed closes
    /// its batches first. Notifications of one that is switched off are not delivered.
    fn replace_rules(&mut self, rules: Arc<CompiledRules>, now: Timestamp) {
        let switched_off = switched_off(&rules);
        let stays = |pipeline: &Pipeline| {
            let id = &pipeline.rule().id;
            !switched_off.contains(id) && rules.subscribers.binary_search_by(|rule| rule.id.cmp(id)).is_ok()
        };
        self.close_batches(|pipeline| !stays(pipeline), &|_| true, now);
        for notification in self.unclaimed.take_of(&switched_off) {
            self.record(LedgerEntry::NotificationEnded {
                notification: notification.id.clone(),
                session: None,
                reason: Reason::SubscriberOff,
            });
        }
        let mut old: std::collections::BTreeMap<_, _> = std::mem::take(&mut self.pipelines)
            .into_iter()
            .map(|pipeline| (pipeline.rule().id.clone(), pipeline))
            .collect();
        self.pipelines = rules
            .subscribers
            .iter()
            .map(|rule| match old.remove(&rule.id) {
                Some(mut pipeline) => {
                    pipeline.replace_rule(rule.clone());
                    pipeline
                }
                None => Pipeline::new(rule.clone()),
            })
            .collect();
        self.matcher = matcher_of(&rules);
        self.resolvers = resolvers_of(&rules);
        if self.rules.sources != rules.sources {
            self.throttle.forget_rates();
        }
        self.pipeline_deadlines = Deadlines::default();
        for (index, pipeline) in (0_u32..).zip(&self.pipelines) {
            self.pipeline_deadlines.set(index, pipeline.poll_timeout());
        }
        self.ci.apply(&rules.outside.ci);
        if self.rules.sinks.quiet != rules.sinks.quiet {
            self.for_user.forget_quiet();
        }
        self.rules = rules;
        // The new settings decide what is due.
        self.for_user.note_change();
        for session in self.sessions.apply(&self.rules.sessions, &switched_off) {
            self.settle_session(&session);
        }
    }

    fn with_injector(&mut self, session: &SessionId, act: impl FnOnce(&mut Injector)) {
        if let Some(known) = self.sessions.known_mut(session) {
            act(&mut known.injector);
            self.settle_session(session);
        }
    }

    /// Confirms an injection, also one of an ended session whose notifications others have now.
    fn ack(&mut self, session: &SessionId, injection: &InjectionId, by: ConfirmedBy) {
        self.with_injector(session, |injector| injector.ack(injection, by));
        if self.sessions.get(session).is_none() {
            self.confirm_left(session, injection, by);
        }
    }

    /// Records that an event has no effect.
    fn skip(&mut self, event: Option<Seq>) {
        if let Some(seq) = event {
            self.record(LedgerEntry::HeldBack { seq, by: HeldBackBy::Unreadable });
        }
    }

    fn undelivered(&mut self, session: &SessionId, injection: &InjectionId) {
        self.unclaimed.note_undelivered(session, injection);
        let Some(known) = self.sessions.known_mut(session) else { return };
        if known.injector.undelivered(injection) == Some(InjectionPoint::TurnStart) {
            // The turn that a wake should have started has not started, as far as is known.
            known.state = SessionState::Idle;
        }
        self.settle_session(session);
    }

    fn record_all(&mut self, entries: Vec<LedgerEntry>) {
        for entry in entries {
            self.record(entry);
        }
    }

    fn record(&mut self, entry: LedgerEntry) {
        self.tally.count(&entry);
        if let LedgerEntry::Confirmed { notification, .. } = &entry {
            self.unclaimed.note_confirmed(notification);
        }
        self.outputs.push_back(Output::Record(entry));
    }
}

fn switched_off(rules: &CompiledRules) -> BTreeSet<SubscriberId> {
    let off = rules.subscribers.iter().filter(|rule| rule.activity == Activity::Disabled);
    off.map(|rule| rule.id.clone()).collect()
}

fn matcher_of(rules: &CompiledRules) -> Matcher {
    Matcher::new((0_u32..).zip(&rules.subscribers).map(|(index, rule)| (index, rule.types.as_slice())))
}

fn resolvers_of(rules: &CompiledRules) -> Matcher {
    let indexed = (0_u32..).zip(&rules.subscribers);
    Matcher::new(indexed.filter_map(|(index, rule)| Some((index, rule.resolve.as_ref()?.by.as_slice()))))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::exchange::Harness;

    #[test]
    fn new_limits_hold_for_open_sessions_at_once() {
        let mut engine = Engine::new(Arc::new(CompiledRules::none()));
        let opened = Input::SessionOpened { session: SessionId::new("s1"), harness: Harness::default() };
        engine.handle(opened, Timestamp::from_millis(0));
        let mut rules = CompiledRules::none();
        rules.sessions.idle_close = Duration::from_millis(500);
        engine.handle(Input::RulesReplaced(Arc::new(rules)), Timestamp::from_millis(100));
        assert_eq!(engine.poll_timeout(), Some((Timestamp::from_millis(500), WakeReason::Session)));
    }
}
