//! The engine's state in a snapshot; an engine restored from it continues as if it had not stopped.
//!
//! Encoding and decoding are here and not with their caller: code of a generic type is compiled in
//! the crate that uses it, and a snapshot has every type of the state.

use std::{borrow::Cow, sync::Arc};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::parts::{Engine, EngineState, Folds};
use crate::{
    conversation::Sessions,
    event::Seq,
    ledger::{LedgerEntry, Reason},
    notification::SubscriberId,
    pipeline::{Pipeline, memory::Memory},
    rules::CompiledRules,
    snapshot::{self, Damaged, Held},
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
            inhibiting_in_part: _,
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
        engine.note_pipelines();
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
