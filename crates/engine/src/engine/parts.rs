//! The parts of the engine, and the steps that produce its outputs.

use std::{collections::VecDeque, sync::Arc};

use super::{echoes::Echoes, io::Output};
use journal::time::{Timestamp, deadlines::Deadlines};

use crate::{
    ci::Follows,
    conversation::{SessionKey, SessionOutput, Sessions},
    detector::Detectors,
    event::{Event, Scope},
    ledger::{LedgerEntry, Tally},
    matcher::Matcher,
    pipeline::Pipeline,
    probe,
    rules::CompiledRules,
    sink::{Deliveries, Questions},
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
    pub(super) lineage: Lineage,
    pub(super) throttle: Throttle,
    pub(super) detectors: Detectors,
    /// The failures whose sessions know them.
    pub(super) echoes: Echoes,
    /// The sessions' known state of the machine.
    pub(super) probes: probe::Memory,
    pub(super) watches: Watches,
    /// Notices that are being delivered to the user.
    pub(super) for_user: Deliveries,
    pub(super) questions: Questions,
    pub(super) ci: Follows,
    pub(super) tally: Tally,
    pub(super) outputs: VecDeque<Output>,
}

impl Engine {
    /// Creates an engine with `rules` and no state.
    pub fn new(rules: Arc<CompiledRules>) -> Self {
        let pipelines = rules.subscribers.iter().cloned().map(Pipeline::new).collect();
        let mut ci = Follows::default();
        ci.apply(&rules.ci);
        Self {
            matcher: rules.matcher(),
            resolvers: rules.resolvers(),
            pipelines,
            pipeline_deadlines: Deadlines::default(),
            sessions: Sessions::new(rules.conversation()),
            lineage: Lineage::default(),
            throttle: Throttle::default(),
            detectors: Detectors::default(),
            echoes: Echoes::default(),
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

    /// See [`pipeline`].
    pub(super) fn pipeline_mut(&mut self, index: u32) -> &mut Pipeline {
        pipeline(&mut self.pipelines, index)
    }

    pub(super) fn publish(&mut self, events: impl IntoIterator<Item = Event>) {
        self.outputs.extend(events.into_iter().map(Output::Publish));
    }

    pub(super) fn record_all(&mut self, entries: impl IntoIterator<Item = LedgerEntry>) {
        for entry in entries {
            self.record(entry);
        }
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
                SessionOutput::Publish(event) => self.publish([event]),
                SessionOutput::Continued { from, to } => {
                    self.watches.follow(&from, &to);
                    self.for_user.follow(&from, &to);
                    self.questions.follow(&from, &to);
                    self.ci.hand_over(&from, &to);
                }
                SessionOutput::Copied { from, to } => self.probes.copy(&from, &to),
                SessionOutput::Ended { session, parent } => {
                    self.watches.end_of(&session);
                    let not_shown = self.for_user.end_of(&session);
                    self.record_all(not_shown);
                    self.questions.end_of(&session);
                    self.ci.end_of(&session, parent.as_ref());
                }
            }
        }
    }

    /// Ends the deliveries of questions that have ended.
    pub(super) fn close_questions(&mut self) {
        for id in self.questions.take_closed() {
            let entries = self.for_user.end_question(&id);
            self.record_all(entries);
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
