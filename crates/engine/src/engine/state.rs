//! The engine's state in a snapshot; an engine restored from it continues as if it had not stopped.

use std::{collections::VecDeque, sync::Arc};

use super::{
    folds::{EngineState, Folds},
    parts::Engine,
};
use journal::time::deadlines::Deadlines;

use crate::{
    conversation::Sessions,
    fold::Effects,
    ledger::{LedgerEntry, Reason},
    notification::SubscriberId,
    pipeline::{Memory, Pipeline},
    rules::CompiledRules,
    snapshot::Held,
};

impl Engine {
    /// The state after all inputs. The outputs must have been drained.
    pub fn state(&self) -> EngineState<'_> {
        let Self {
            rules: _,
            matcher: _,
            resolvers: _,
            pipelines,
            pipeline_deadlines: _,
            sessions,
            folds,
            effects: _,
            tally,
            outputs,
        } = self;
        let (table, fanout, unclaimed) = sessions.parts();
        debug_assert!(outputs.is_empty(), "outputs are taken before a snapshot is");
        EngineState {
            pipelines: pipelines.iter().map(|own| (own.rule().id.clone(), own.memory())).collect(),
            sessions: Held::Borrowed(table),
            fanout: Held::Borrowed(fanout),
            unclaimed: Held::Borrowed(unclaimed),
            tally: Held::Borrowed(tally),
            ..folds.state()
        }
    }

    /// Continues from `state` with `rules`: the rules of the state, compiled by this version.
    ///
    /// A subscriber that is not in the state starts empty. An open batch of a subscriber that is
    /// not in the rules ends as if the subscriber were disabled; those entries are the engine's
    /// first outputs.
    pub fn from_state(rules: Arc<CompiledRules>, mut state: EngineState<'_>) -> Self {
        let mut folds = Folds::take_from(&mut state);
        folds.apply(&rules, None);
        let EngineState { pipelines: mut memories, sessions, fanout, unclaimed, tally, .. } = state;
        let recall = |rule: &Arc<_>, memory| Pipeline::remembering(Arc::clone(rule), memory);
        let pipelines: Vec<Pipeline> = rules
            .subscribers
            .iter()
            .map(|rule| recall(rule, memories.remove(&rule.id).unwrap_or_default()))
            .collect();
        let parts = (sessions.into_owned(), fanout.into_owned(), unclaimed.into_owned());
        let mut engine = Self {
            matcher: rules.matcher(),
            resolvers: rules.resolvers(),
            pipelines,
            pipeline_deadlines: Deadlines::default(),
            sessions: Sessions::restored(parts, rules.conversation()),
            folds,
            effects: Effects::default(),
            tally: tally.into_owned(),
            outputs: VecDeque::new(),
            rules,
        };
        engine.restore_pipeline_deadlines();
        for (subscriber, memory) in memories {
            engine.end_waiting(&subscriber, memory);
        }
        engine
    }

    /// Ends the waiting events of a subscriber that no longer exists.
    fn end_waiting(&mut self, subscriber: &SubscriberId, memory: Memory<'_>) {
        for seq in memory.into_waiting() {
            let (subscriber, reason) = (subscriber.clone(), Reason::SubscriberOff);
            self.record(LedgerEntry::EventEnded { seq, subscriber, reason });
        }
    }
}
