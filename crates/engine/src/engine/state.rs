//! The engine's state in a snapshot; an engine restored from it continues as if it had not stopped.
//!
//! Encoding and decoding are here and not with their caller: code of a generic type is compiled in
//! the crate that uses it, and a snapshot has every type of the state. New rules keep that state,
//! but for what ends with a removed subscriber.

use std::{borrow::Cow, sync::Arc};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::parts::{Closes, Engine, EngineState, Folds, pipeline, resources};
use crate::{
    conversation::Sessions,
    event::Seq,
    ledger::{LedgerEntry, Reason},
    notification::SubscriberId,
    pipeline::{
        Pipeline,
        memory::Memory,
        rule::{Activity, Subscriber},
    },
    rules::CompiledRules,
    snapshot::{self, Damaged, Held},
    sorted::{SortedMap, SortedSet},
};

/// The state of an engine after one record.
#[derive(Debug, Serialize, Deserialize)]
pub struct Saved<'a> {
    /// The hash of the engine's rules; empty when it has none.
    pub rules: Cow<'a, str>,
    /// The position of the record.
    pub applied: Seq,
    /// The time of the record.
    pub applied_at: Timestamp,
    engine: EngineState<'a>,
}

impl Saved<'static> {
    /// Decodes the output of [`Engine::save`].
    ///
    /// Errors: the bytes are not a valid state.
    pub fn read(bytes: &[u8]) -> Result<Self, Damaged> {
        snapshot::read(bytes)
    }
}

impl Engine {
    /// Encodes the state after the record `applied` of the time `applied_at`. The outputs must have
    /// been drained.
    ///
    /// Errors: a part of the state cannot be written.
    pub fn save(&self, applied: Seq, applied_at: Timestamp) -> Result<Vec<u8>, Damaged> {
        let rules = Cow::Borrowed(&*self.rules.hash);
        snapshot::write(&Saved { rules, applied, applied_at, engine: self.state() })
    }

    fn state(&self) -> EngineState<'_> {
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
            zone,
            now: _,
            silences,
            recent,
            users,
            inhibitors: _,
            region_changes: _,
            outputs,
        } = self;
        let (table, fanout, unclaimed, standing) = sessions.parts();
        debug_assert!(outputs.is_empty(), "outputs are taken before a snapshot is");
        EngineState {
            pipelines: pipelines.iter().map(|own| (own.rule().id.clone(), own.memory())).collect(),
            sessions: Held::Borrowed(table),
            fanout: Held::Borrowed(fanout),
            unclaimed: Held::Borrowed(unclaimed),
            tally: Held::Borrowed(tally),
            standing: Held::Borrowed(standing),
            zone: Held::Borrowed(zone),
            silences: Held::Borrowed(silences),
            recent: Held::Borrowed(recent),
            users: Held::Borrowed(users),
            ..folds.state()
        }
    }

    /// Continues from a state with `rules`: the rules of the state, compiled by this version.
    ///
    /// A subscriber that is not in the state starts empty. An open batch of a subscriber that is
    /// not in the rules ends as if the subscriber were disabled; those entries are the engine's
    /// first outputs.
    pub fn restored(rules: Arc<CompiledRules>, saved: Saved<'_>) -> Self {
        let (mut state, now) = (saved.engine, saved.applied_at);
        let mut folds = Folds::take_from(&mut state);
        folds.apply(&rules, None);
        let EngineState { pipelines: mut memories, sessions, fanout, unclaimed, standing, .. } = state;
        let (tally, zone) = (state.tally.into_owned(), state.zone.into_owned());
        let (silences, recent) = (state.silences.into_owned(), state.recent.into_owned());
        let users = state.users.into_owned();
        let recall = |rule: &Arc<_>, memory| Pipeline::remembering(Arc::clone(rule), memory);
        let pipelines: Vec<Pipeline> = rules
            .subscribers
            .iter()
            .map(|rule| recall(rule, memories.remove(&rule.id).unwrap_or_default()))
            .collect();
        let parts =
            (sessions.into_owned(), fanout.into_owned(), unclaimed.into_owned(), standing.into_owned());
        let sessions = Sessions::restored(parts, rules.conversation());
        let own = Self::new(rules);
        let mut engine =
            Self { now, pipelines, sessions, folds, tally, zone, silences, recent, users, ..own };
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

impl Engine {
    /// Replaces the rules. A subscriber that is also in the new rules keeps its state. A removed
    /// one closes its batches first. Notifications of a disabled one are not delivered.
    pub(super) fn replace_rules(&mut self, rules: Arc<CompiledRules>, now: Timestamp) {
        self.sessions.catch_up_all();
        self.drain_sessions();
        let switched_off = switched_off(&rules);
        let stays = |pipeline: &Pipeline| {
            let id = &pipeline.rule().id;
            !switched_off.contains(id) && rules.position(id).is_some()
        };
        self.close_batches(|pipeline| !stays(pipeline), Closes::Removed, now);
        let old = std::mem::take(&mut self.pipelines).into_iter();
        let mut old: SortedMap<_, _> = old.map(|pipeline| (pipeline.rule().id.clone(), pipeline)).collect();
        let carried = |rule: &Arc<Subscriber>| match old.remove(&rule.id) {
            Some(mut pipeline) => {
                pipeline.replace_rule(Arc::clone(rule));
                pipeline
            }
            None => Pipeline::new(Arc::clone(rule)),
        };
        self.pipelines = rules.subscribers.iter().map(carried).collect();
        self.matcher = rules.matcher();
        self.resolvers = rules.resolvers();
        self.inhibitors = rules.inhibitors();
        self.folds.apply(&rules, Some(&self.rules));
        let has_other_mutes = rules.mutes != self.rules.mutes;
        self.rules = rules;
        self.restore_pipeline_deadlines();
        for index in (0_u32..).take(self.pipelines.len()) {
            let resources = resources(&self.rules, &self.zone, &self.silences);
            pipeline(&mut self.pipelines, index).handle_timeout(resources, now);
            self.drain_pipeline(index, now);
        }
        self.sessions.replace_settings(self.rules.conversation(), &switched_off);
        let rules = &self.rules;
        self.sessions.forget_conditions(|one| {
            switched_off.contains(&one.subscriber) || rules.position(&one.subscriber).is_none()
        });
        if has_other_mutes {
            self.apply_settings(None, now);
        }
    }
}

fn switched_off(rules: &CompiledRules) -> SortedSet<SubscriberId> {
    let off = rules.subscribers.iter().filter(|rule| rule.activity == Activity::Disabled);
    off.map(|rule| rule.id.clone()).collect()
}
