//! The parts of the engine, the steps that produce its outputs, and the table of folds: in which order
//! they take events, and with which settings.

use std::{collections::VecDeque, sync::Arc};

use journal::time::{Timestamp, deadlines::Deadlines};
use serde::{Deserialize, Serialize};

use super::{echoes::Echoes, io::Output};
use crate::{
    ci::Follows,
    conversation::{Fanout, SessionKey, SessionOutput, Sessions, Table, Unclaimed},
    detector::Detectors,
    event::{Scope, Seq, SessionId},
    fold::{Dispatched, Effect, Effects, Fold},
    ledger::{LedgerEntry, Reason, Tally},
    matcher::Matcher,
    notification::SubscriberId,
    pipeline::{Memory, Pipeline},
    probe,
    rules::CompiledRules,
    session::Succession,
    sink::{Deliveries, Questions},
    snapshot::Held,
    sorted::SortedMap,
    throttle::{Lineage, Throttle},
    watch::Watches,
};

/// The decision logic of the program.
#[derive(Debug)]
pub struct Engine {
    pub(super) rules: Arc<CompiledRules>,
    pub(super) matcher: Matcher,
    /// Finds the pipelines whose conditions an event resolves.
    pub(super) resolvers: Matcher,
    /// One for each of `rules.subscribers`, in the same order.
    pub(super) pipelines: Vec<Pipeline>,
    /// The time of each pipeline's next wake-up, by its index.
    pub(super) pipeline_deadlines: Deadlines<u32>,
    pub(super) sessions: Sessions,
    pub(super) folds: Folds,
    /// Those of the folds that were not handled yet.
    pub(super) effects: Effects,
    pub(super) tally: Tally,
    pub(super) outputs: VecDeque<Output>,
}

impl Engine {
    /// Creates an engine with `rules` and no state.
    pub fn new(rules: Arc<CompiledRules>) -> Self {
        let pipelines = rules.subscribers.iter().cloned().map(Pipeline::new).collect();
        let mut folds = Folds::default();
        folds.apply(&rules, None);
        Self {
            matcher: rules.matcher(),
            resolvers: rules.resolvers(),
            pipelines,
            pipeline_deadlines: Deadlines::default(),
            sessions: Sessions::new(rules.conversation()),
            folds,
            effects: Effects::default(),
            tally: Tally::default(),
            outputs: VecDeque::new(),
            rules,
        }
    }

    /// See [`pipeline`].
    pub(super) fn pipeline_mut(&mut self, index: u32) -> &mut Pipeline {
        pipeline(&mut self.pipelines, index)
    }

    pub(super) fn record(&mut self, entry: LedgerEntry) {
        self.tally.count(&entry);
        self.outputs.push_back(Output::Record(entry));
    }

    /// Handles the reports of the sessions. Call it after each of their steps, before any other
    /// output.
    pub(super) fn drain_sessions(&mut self) {
        while let Some(output) = self.sessions.poll_output() {
            match output {
                SessionOutput::Record(entry) => self.record(entry),
                SessionOutput::Changed(session, change) => {
                    self.outputs.push_back(Output::Session(session, change));
                }
                SessionOutput::Wake(pending) => self.outputs.push_back(Output::Wake(pending)),
                SessionOutput::Publish(event) => self.outputs.push_back(Output::Publish(event)),
                SessionOutput::Succession(change) => {
                    self.folds.follow(&change, &mut self.effects);
                    self.drain_folds();
                }
            }
        }
    }

    /// Handles the effects of the folds. Call it after each of their steps, before any other output.
    pub(super) fn drain_folds(&mut self) {
        for question in self.folds.questions.take_closed() {
            self.folds.for_user.end_question(&question, &mut self.effects);
        }
        for effect in self.effects.take() {
            match effect {
                Effect::Publish(event) => self.outputs.push_back(Output::Publish(event)),
                Effect::Record(entry) => self.record(entry),
            }
        }
    }

    /// Sets the wake-up time of each pipeline, after they were replaced.
    pub(super) fn restore_pipeline_deadlines(&mut self) {
        self.pipeline_deadlines = Deadlines::default();
        for (index, pipeline) in (0_u32..).zip(&self.pipelines) {
            self.pipeline_deadlines.set(index, pipeline.poll_timeout());
        }
    }

    /// Runs the pipelines that are due.
    pub(super) fn fire_pipelines(&mut self, at: Timestamp) {
        for index in self.pipeline_deadlines.take_due(at) {
            pipeline(&mut self.pipelines, index).handle_timeout(&self.rules.templates, at);
            self.drain_pipeline(index, at);
        }
    }

    /// Closes the open batches of the pipelines that `is_wanted` selects: all of them, or those
    /// that concern the open session `of`.
    pub(super) fn close_batches(
        &mut self,
        is_wanted: impl Fn(&Pipeline) -> bool,
        of: Option<SessionKey>,
        now: Timestamp,
    ) {
        for index in self.pipeline_deadlines.keys() {
            let pipeline = pipeline(&mut self.pipelines, index);
            if is_wanted(pipeline) {
                let sessions = &self.sessions;
                let concerns = |scope: &Scope| of.is_none_or(|of| sessions.is_concerned(of, scope));
                pipeline.close(&concerns, &self.rules.templates, now);
                self.drain_pipeline(index, now);
            }
        }
    }
}

/// The pipeline of a subscriber, by the subscriber's place in the rules.
pub(super) fn pipeline(pipelines: &mut [Pipeline], index: u32) -> &mut Pipeline {
    let place = usize::try_from(index).expect("an index of a list");
    pipelines.get_mut(place).expect("each subscriber has its pipeline")
}

macro_rules! folds {
    ($($(#[$doc:meta])* $name:ident: $fold:ty, $settings:expr;)+) => {
        #[derive(Debug, Default)]
        pub(super) struct Folds {
            $($(#[$doc])* pub(super) $name: $fold,)+
        }

        /// The state of an engine except its rules; store their hash with it.
        #[derive(Debug, Default, Serialize, Deserialize)]
        pub(super) struct EngineState<'a> {
            pub(super) pipelines: SortedMap<SubscriberId, Memory<'a>>,
            pub(super) sessions: Held<'a, Table>,
            pub(super) fanout: Held<'a, Fanout>,
            pub(super) unclaimed: Held<'a, Unclaimed>,
            pub(super) tally: Held<'a, Tally>,
            $(pub(super) $name: Held<'a, $fold>,)+
        }

        impl Folds {
            /// A state that has the folds' own; the rest is empty.
            pub(super) fn state(&self) -> EngineState<'_> {
                EngineState { $($name: Held::Borrowed(&self.$name),)+ ..EngineState::default() }
            }

            /// Moves the folds out of `state`.
            pub(super) fn take_from(state: &mut EngineState<'_>) -> Self {
                Self { $($name: std::mem::take(&mut state.$name).into_owned(),)+ }
            }

            /// Applies the rules of a start, where `before` is `None`, or changed ones.
            pub(super) fn apply(&mut self, rules: &CompiledRules, before: Option<&CompiledRules>) {
                $({
                    let before = before.map(|before| settings(before, $settings));
                    self.$name.apply(settings(rules, $settings), before);
                })+
            }

            /// Passes an event to each. Returns whether it is addressed to one.
            pub(super) fn observe(
                &mut self,
                dispatched: &Dispatched<'_>,
                rules: &CompiledRules,
                to: &mut Effects,
            ) -> bool {
                let mut is_taken = false;
                $(is_taken |= self.$name.observe(dispatched, settings(rules, $settings), to);)+
                is_taken
            }

            /// The time at which one of them wants to be called.
            pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
                let mut first = None;
                $(first = earlier(first, self.$name.poll_timeout());)+
                first
            }

            /// Calls those that are due at `now`.
            pub(super) fn handle_timeout(&mut self, now: Timestamp, to: &mut Effects) {
                $(if self.$name.poll_timeout().is_some_and(|at| at <= now) {
                    self.$name.handle_timeout(now, to);
                })+
            }

            /// Follows a session whose identity changed.
            pub(super) fn follow(&mut self, change: &Succession, to: &mut Effects) {
                $(self.$name.follow(change, to);)+
            }

            /// Notes the end of a turn that no event reports.
            pub(super) fn end_turn(&mut self, session: &SessionId, now: Timestamp, to: &mut Effects) {
                $(self.$name.end_turn(session, now, to);)+
            }

            /// Notes that the user began another task.
            pub(super) fn begin_task(&mut self, session: &SessionId) {
                $(self.$name.begin_task(session);)+
            }

            /// The first reason why `session` needs no notification of `events`.
            pub(super) fn reason_against(&self, session: &SessionId, events: &[Seq]) -> Option<Reason> {
                None$(.or_else(|| self.$name.reason_against(session, events)))+
            }
        }
    };
}

// In this order they take an event. Name, type, and the part of the rules that it uses.
folds! {
    lineage: Lineage, |_| &();
    throttle: Throttle, |rules| &rules.sources;
    // Before those whose reason against a notification says less.
    watches: Watches, |_| &();
    /// The failures whose sessions know them.
    echoes: Echoes, |_| &();
    /// The sessions' known state of the machine.
    probes: probe::Memory, |_| &();
    detectors: Detectors, |rules| &rules.detectors;
    ci: Follows, |rules| &rules.ci;
    /// Notices that are being delivered to the user.
    for_user: Deliveries, |rules| &*rules.sinks;
    questions: Questions, |_| &();
}

/// The settings of a row.
fn settings<S>(rules: &CompiledRules, select: fn(&CompiledRules) -> &S) -> &S {
    select(rules)
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
