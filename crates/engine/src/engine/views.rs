//! Read access to the engine's state, and the outcome that an event would have now.
//!
//! The outcome follows from the rules and the open sessions. Only types and filters are checked,
//! not deduplication, rates or open batches.

use std::sync::Arc;

use super::parts::Engine;
use super::suppression::concerns;
use journal::time::{Timestamp, zone::Zone};

use crate::{
    ci::Plan,
    conversation::Sessions,
    event::{Event, Pattern, Scope, SessionId},
    hold::SilenceId,
    ledger::{FilteredBy, Tally},
    notification::SubscriberId,
    pipeline::{
        Failing, Pipeline,
        inhibition::Inhibiting,
        remainder,
        rule::{Activity, Subscriber},
        silence::Matchers,
        territory,
    },
    probe::memory::Changes,
    rules::CompiledRules,
    sink::{Outbound, Question, QuestionState, Verdict as SinkVerdict},
    watch::Watch,
};

impl Engine {
    /// The rules in force.
    pub fn rules(&self) -> &Arc<CompiledRules> {
        &self.rules
    }

    /// The local clock of the daemon's machine.
    pub fn zone(&self) -> &Zone {
        &self.zone
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

    /// The number of open batches of all subscribers.
    pub fn batches_open(&self) -> usize {
        self.pipelines.iter().map(Pipeline::batches_open).sum()
    }

    /// Each subscriber with the number of its open batches, that of their rows, and when the next one
    /// closes.
    pub fn open_batches(&self) -> impl Iterator<Item = (&Arc<Subscriber>, usize, usize, Option<Timestamp>)> {
        self.pipelines.iter().map(|pipeline| {
            let (rows, closes_at) = pipeline.rows_open();
            (pipeline.rule(), pipeline.batches_open(), rows, closes_at)
        })
    }

    /// The open and suspended sessions, and the notifications that wait for the next one.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Changes of the sessions' known states since the last call.
    pub fn take_known(&mut self) -> Option<Changes> {
        self.folds.probes.has_changes().then(|| self.folds.probes.take_changes())
    }

    /// The open watches, in id order.
    pub fn watches(&self) -> impl Iterator<Item = &Arc<Watch>> {
        self.folds.watches.open()
    }

    /// The open watches, if they changed since the last call.
    pub fn take_watches(&mut self) -> Option<Arc<[Arc<Watch>]>> {
        self.folds.watches.take_changes()
    }

    /// Due deliveries to the sinks, if they may have changed since the last call.
    pub fn take_outbound(&mut self) -> Option<Outbound> {
        let jobs = self.folds.for_user.take_due()?;
        Some(Outbound { settings: Arc::clone(&self.rules.sinks), jobs })
    }

    /// The outcome of a notice at the sinks, if it is one of the newest.
    pub fn sink_verdict(&self, notice: &str) -> Option<&SinkVerdict> {
        self.folds.for_user.verdict(notice)
    }

    /// The open questions, if they changed since the last call.
    pub fn take_questions(&mut self) -> Option<Arc<[Arc<Question>]>> {
        self.folds.questions.take_changes()
    }

    /// The state of a question that is open or ended recently.
    pub fn question(&self, id: &str) -> Option<QuestionState> {
        self.folds.questions.state(id)
    }

    /// The next CI requests, if they may have changed since the last call.
    pub fn take_ci_plan(&mut self) -> Option<Plan> {
        self.folds.ci.take_plan()
    }

    /// The folders of open sessions, if they changed since the last call.
    pub fn take_folders(&mut self) -> Option<Arc<[Arc<str>]>> {
        self.sessions.take_folders()
    }
}

/// The subscribers and sessions that an event would reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The subscribers that take its type, or whose conditions it resolves, by id.
    pub subscribers: Vec<Taker>,
    /// The open sessions in its scope, by id.
    pub sessions: Vec<SessionId>,
}

/// A subscriber that selects an event's type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taker {
    /// Its id.
    pub subscriber: SubscriberId,
    /// How it handles the event.
    pub verdict: Verdict,
    /// The open sessions that get it, or for which it holds; `None` for all of them.
    pub sessions: Option<Vec<SessionId>>,
}

/// How a subscriber that selects an event's type handles it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It takes the event.
    Takes,
    /// It withdraws the conditions that the event resolves, but does not take the event.
    Resolves,
    /// It does not take the event, which inhibits others of it, or ends that.
    Inhibits(Inhibiting),
    /// Its filter rejects the event.
    Filtered(FilteredBy),
    /// It would take the event, but a silence suppresses that.
    Silenced(SilenceId),
    /// It would take the event, but no session in its scope gets that, for this reason, in words.
    Muted(Arc<str>),
    /// It is disabled.
    Off,
}

impl Engine {
    /// How a subscriber handles an event that passes its filter.
    fn takes(&self, rule: &Subscriber, event: &Arc<Event>) -> Verdict {
        let (event, _) = &rule.as_seen(event);
        match self.silenced(rule, event, |matchers| !matchers.is_scoped()) {
            Some(silence) => Verdict::Silenced(silence),
            None => self.muted_for_all(rule, event).map_or(Verdict::Takes, Verdict::Muted),
        }
    }

    fn silenced(
        &self,
        rule: &Subscriber,
        event: &Arc<Event>,
        is_wanted: impl Fn(&Matchers) -> bool,
    ) -> Option<SilenceId> {
        self.silences().find(rule, event, rule.makes_critical(event), is_wanted)
    }

    /// Why a session does not get what a subscriber makes of an event that it takes.
    fn kept_from(&self, session: &SessionId, rule: &Subscriber, event: &Arc<Event>) -> Option<Verdict> {
        let (event, _) = &rule.as_seen(event);
        let view = self.sessions.view(session)?;
        let is_for = |matchers: &Matchers| matchers.is_scoped() && concerns(matchers, &view);
        let silence = self.silenced(rule, event, is_for).map(Verdict::Silenced);
        silence.or_else(|| self.muted_in(session, rule, event).map(Verdict::Muted))
    }

    /// How a subscriber handles an event that it takes, and for which of the open sessions in its scope if
    /// not for all.
    fn taker(&self, rule: &Subscriber, event: &Arc<Event>, all: &[SessionId]) -> Taker {
        let own = territory::scope_for(rule, event);
        let part = matches!(own, Scope::Part(_)).then(|| self.sessions.all_concerned(&own));
        let (mut takers, mut kept_from) = (Vec::new(), None);
        for session in part.as_deref().unwrap_or(all) {
            match self.kept_from(session, rule, event) {
                None => takers.push(session.clone()),
                verdict @ Some(_) => kept_from = kept_from.or(verdict),
            }
        }
        let (verdict, sessions) = match kept_from {
            Some(verdict) if takers.is_empty() => (verdict, part),
            Some(_) => (Verdict::Takes, Some(takers)),
            None => (Verdict::Takes, part),
        };
        Taker { subscriber: rule.id.clone(), verdict, sessions }
    }

    /// The subscribers that would take `event`, and the sessions in its scope. Changes no state.
    pub fn explain(&self, event: &Arc<Event>) -> Explanation {
        let selects = |types: &[Pattern]| types.iter().any(|pattern| pattern.matches(&event.event_type));
        let workspace = event.session.as_ref().and_then(|session| self.folder_of(session));
        let verdict = |rule: &Subscriber| {
            let is_off = rule.activity == Activity::Disabled;
            let is_around = || territory::is_around(rule, event, workspace.as_deref());
            let resolves = rule.resolve.as_ref().is_some_and(|resolve| selects(&resolve.by));
            let found = if selects(&rule.types) {
                if !remainder::is_left(rule, event)
                    || !territory::holds_for(rule, event, workspace.as_deref())
                {
                    return None;
                }
                rule.check_whole(event).map(|()| self.takes(rule, event))
            } else if resolves && is_around() {
                rule.check_source(event).map(|()| Verdict::Resolves)
            } else {
                Ok(Verdict::Inhibits(Inhibiting::find(&rule.inhibit, event).filter(|_| is_around())?))
            };
            Some(if is_off { Verdict::Off } else { found.unwrap_or_else(Verdict::Filtered) })
        };
        let rules = self.rules.subscribers.iter();
        let scope = match event.scope() {
            Scope::Session(name) => Scope::Session(self.sessions.by_full_name(&name).unwrap_or(name)),
            scope @ (Scope::Workspace(_) | Scope::All | Scope::Part(_)) => scope,
        };
        let sessions = self.sessions.all_concerned(&scope);
        let taker = |rule: &Arc<Subscriber>| {
            let verdict = verdict(rule)?;
            Some(if verdict == Verdict::Takes {
                self.taker(rule, event, &sessions)
            } else {
                Taker { subscriber: rule.id.clone(), verdict, sessions: None }
            })
        };
        Explanation { subscribers: rules.filter_map(taker).collect(), sessions }
    }
}
