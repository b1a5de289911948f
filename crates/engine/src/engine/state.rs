//! The engine's state in a snapshot; an engine restored from it continues as if it had not stopped.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{echoes::Echoes, parts::Engine};
use journal::time::deadlines::Deadlines;

use crate::{
    ci::Follows,
    conversation::{Fanout, Sessions, Table, Unclaimed},
    detector::Detectors,
    ledger::{LedgerEntry, Reason, Tally},
    notification::SubscriberId,
    pipeline::{Memory, Pipeline},
    probe,
    rules::CompiledRules,
    sink::{Deliveries, Questions},
    snapshot::Held,
    throttle::{Lineage, Throttle},
    watch::Watches,
};

/// The state of an engine except its rules; store their hash with it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct EngineState<'a> {
    pipelines: BTreeMap<SubscriberId, Memory<'a>>,
    sessions: Held<'a, Table>,
    fanout: Held<'a, Fanout>,
    unclaimed: Held<'a, Unclaimed>,
    lineage: Held<'a, Lineage>,
    throttle: Held<'a, Throttle>,
    detectors: Held<'a, Detectors>,
    echoes: Held<'a, Echoes>,
    probes: Held<'a, probe::Memory>,
    watches: Held<'a, Watches>,
    for_user: Held<'a, Deliveries>,
    questions: Held<'a, Questions>,
    ci: Held<'a, Follows>,
    tally: Held<'a, Tally>,
}

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
            lineage,
            throttle,
            detectors,
            echoes,
            probes,
            watches,
            for_user,
            questions,
            ci,
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
            lineage: Held::Borrowed(lineage),
            throttle: Held::Borrowed(throttle),
            detectors: Held::Borrowed(detectors),
            echoes: Held::Borrowed(echoes),
            probes: Held::Borrowed(probes),
            watches: Held::Borrowed(watches),
            for_user: Held::Borrowed(for_user),
            questions: Held::Borrowed(questions),
            ci: Held::Borrowed(ci),
            tally: Held::Borrowed(tally),
        }
    }

    /// Continues from `state` with `rules`: the rules of the state, compiled by this version.
    ///
    /// A subscriber that is not in the state starts empty. An open batch of a subscriber that is
    /// not in the rules ends as if the subscriber were disabled; those entries are the engine's
    /// first outputs.
    pub fn from_state(rules: Arc<CompiledRules>, state: EngineState<'_>) -> Self {
        let EngineState {
            pipelines: mut memories,
            sessions,
            fanout,
            unclaimed,
            lineage,
            throttle,
            detectors,
            echoes,
            probes,
            watches,
            for_user,
            questions,
            ci,
            tally,
        } = state;
        let recall = |rule: &Arc<_>, memory| Pipeline::remembering(Arc::clone(rule), memory);
        let pipelines: Vec<Pipeline> = rules
            .subscribers
            .iter()
            .map(|rule| recall(rule, memories.remove(&rule.id).unwrap_or_default()))
            .collect();
        let parts = (sessions.into_owned(), fanout.into_owned(), unclaimed.into_owned());
        let mut ci = ci.into_owned();
        ci.apply(&rules.ci);
        let mut engine = Self {
            matcher: rules.matcher(),
            resolvers: rules.resolvers(),
            pipelines,
            pipeline_deadlines: Deadlines::default(),
            sessions: Sessions::restored(parts, rules.conversation()),
            lineage: lineage.into_owned(),
            throttle: throttle.into_owned(),
            detectors: detectors.into_owned(),
            echoes: echoes.into_owned(),
            probes: probes.into_owned(),
            watches: watches.into_owned(),
            for_user: for_user.into_owned(),
            questions: questions.into_owned(),
            ci,
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
