//! The engine and what it is fed with: one journal record in, the engine's outputs out.
//!
//! Recovery and live operation both go through [`Fold::apply`]; they differ only in what they do with the outputs.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};

use super::rules::RulesStore;
use crate::{
    engine::{CompiledRules, Engine, EngineState, Input, Output},
    event::Seq,
    journal::Record,
    projection::Notes,
    protocol::record::{self, RecordError, RecordInput},
    snapshot::{self, Damaged},
    time::Timestamp,
};

/// An engine, and the rules of every time.
#[derive(Debug)]
pub struct Fold {
    /// The engine as it is after [`Fold::applied`].
    pub engine: Engine,
    /// Where `rules` records find what they name.
    pub rules: RulesStore,
    /// What the projection is to be told, while somebody takes it.
    pub notes: Option<Notes>,
    /// The record that was applied last.
    pub applied: Seq,
    /// Its time.
    pub applied_at: Timestamp,
}

/// Why a record cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// The record is not what its kind says.
    #[error("record {seq} of the journal cannot be understood")]
    Record {
        /// Which one.
        seq: Seq,
        /// Why.
        source: RecordError,
    },
}

/// What stands of it in a snapshot.
#[derive(Serialize, Deserialize)]
struct FoldState<'a> {
    /// The hash of the rules that the engine runs by; empty when it has none.
    rules: Cow<'a, str>,
    applied: Seq,
    applied_at: Timestamp,
    engine: EngineState<'a>,
}

impl Fold {
    /// What is before the journal's first record: an engine without rules.
    pub fn new(rules: RulesStore) -> Self {
        let engine = Engine::new(Arc::new(CompiledRules::none()));
        Self { engine, rules, notes: None, applied: Seq::ZERO, applied_at: Timestamp::ZERO }
    }

    /// Writes down everything that the records left; [`Fold::poll_output`] must have been drained.
    ///
    /// Errors: it cannot be written.
    pub fn to_state(&self) -> Result<Vec<u8>, Damaged> {
        let Self { engine, rules: _, notes: _, applied, applied_at } = self;
        snapshot::write(&FoldState {
            rules: Cow::Borrowed(&engine.rules().hash),
            applied: *applied,
            applied_at: *applied_at,
            engine: engine.state(),
        })
    }

    /// Goes on from what [`Fold::to_state`] wrote down.
    ///
    /// Shape: by the rules of its time; where they are lost, by the nearest ones.
    /// Errors: the bytes are not that.
    pub fn from_state(rules: RulesStore, state: &[u8]) -> Result<Self, Damaged> {
        let FoldState { rules: hash, applied, applied_at, engine } = snapshot::read(state)?;
        let compiled = if hash.is_empty() {
            Arc::new(CompiledRules::none())
        } else {
            rules.load_or_nearest(&hash, None)
        };
        let engine = Engine::from_state(compiled, engine);
        Ok(Self { engine, rules, notes: None, applied, applied_at })
    }

    /// Feeds one record to the engine. Afterwards drain [`Fold::poll_output`].
    pub fn apply(&mut self, record: &Record<'_>) -> Result<(), FoldError> {
        let seq = record.seq;
        if let Some(notes) = &mut self.notes {
            notes.begin(record);
        }
        let decoded = record::decode(record.kind.0, seq, record.body);
        let input = match decoded.map_err(|source| FoldError::Record { seq, source })? {
            RecordInput::Input(input) => input,
            // Every start and every segment repeats those in force.
            RecordInput::Rules { hash } if hash == self.engine.rules().hash => Input::Tick,
            RecordInput::Rules { hash } => {
                let nearest = self.rules.load_or_nearest(&hash, Some(self.engine.rules()));
                Input::RulesReplaced(nearest)
            }
        };
        self.engine.handle(input, record.time);
        self.applied = seq;
        self.applied_at = record.time;
        Ok(())
    }

    /// The next output that somebody has to act upon; the notes take the others on the way.
    pub fn poll_output(&mut self) -> Option<Output> {
        loop {
            let output = self.engine.poll_output()?;
            if let Some(notes) = &mut self.notes {
                notes.take(&output);
            }
            match output {
                Output::Record(_) | Output::Made(_) | Output::Session(..) => {}
                wanted @ (Output::Answer { .. }
                | Output::Refuse { .. }
                | Output::Publish(_)
                | Output::Wake(_)) => {
                    return Some(wanted);
                }
            }
        }
    }
}
