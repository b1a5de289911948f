//! Read access to the engine's state.

use std::sync::Arc;

use super::parts::Engine;
use crate::{
    ci::Plan,
    conversation::Sessions,
    ledger::Tally,
    notification::SubscriberId,
    pipeline::{Failing, Pipeline},
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
