//! The engine and what it is fed with: one journal record in, the engine's outputs out.
//!
//! Recovery and live operation both go through [`Fold::apply`]; they differ only in what they do with the outputs.

use std::sync::Arc;

use super::{
    history::History,
    rules::{RulesError, RulesStore},
};
use crate::{
    engine::{CompiledRules, Engine, Input, Output},
    event::Seq,
    journal::Record,
    projection::Notes,
    protocol::record::{self, RecordError, RecordInput},
};

/// An engine, the rules of every time, and the newest entries of its ledger.
#[derive(Debug)]
pub struct Fold {
    /// The engine as it is after [`Fold::applied`].
    pub engine: Engine,
    /// Where `rules` records find what they name.
    pub rules: RulesStore,
    pub(super) history: History,
    /// What the projection is to be told, while somebody takes it.
    pub notes: Option<Notes>,
    /// The record that was applied last.
    pub applied: Seq,
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
    /// The record names rules that cannot be had.
    #[error("the rules of record {seq} of the journal cannot be loaded")]
    Rules {
        /// Which one.
        seq: Seq,
        /// Why.
        source: RulesError,
    },
}

impl Fold {
    /// What is before the journal's first record: an engine without rules.
    pub fn new(rules: RulesStore) -> Self {
        let engine = Engine::new(Arc::new(CompiledRules::none()));
        Self { engine, rules, history: History::default(), notes: None, applied: Seq::ZERO }
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
            RecordInput::Rules { hash } => {
                let rules = self.rules.load(&hash).map_err(|source| FoldError::Rules { seq, source })?;
                Input::RulesReplaced(rules)
            }
        };
        self.engine.handle(input, record.time);
        self.applied = seq;
        Ok(())
    }

    /// The next output that somebody has to act upon; ledger entries are kept on the way.
    pub fn poll_output(&mut self) -> Option<Output> {
        loop {
            let output = self.engine.poll_output()?;
            if let Some(notes) = &mut self.notes {
                notes.take(&output);
            }
            match output {
                Output::Record(entry) => self.history.keep(entry),
                Output::Made(_) | Output::Session(..) => {}
                wanted @ (Output::Answer { .. } | Output::Publish(_) | Output::Wake(_)) => {
                    return Some(wanted);
                }
            }
        }
    }
}
