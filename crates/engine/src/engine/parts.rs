//! The parts of the engine, and the steps that produce its outputs.

use std::{collections::VecDeque, sync::Arc};

use super::{folds::Folds, io::Output};
use journal::time::{Timestamp, deadlines::Deadlines};

use crate::{
    conversation::{SessionKey, SessionOutput, Sessions},
    event::Scope,
    fold::{Effect, Effects},
    ledger::{LedgerEntry, Tally},
    matcher::Matcher,
    pipeline::Pipeline,
    rules::CompiledRules,
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
