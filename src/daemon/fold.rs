//! The engine and what it is fed with: one journal record in, the engine's outputs out.
//!
//! Recovery and live operation both go through [`Fold::apply`]; they differ only in what they do with the outputs.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{look_ahead::LookAhead, rules::RulesStore};
use crate::{
    engine::{CompiledRules, Engine, EngineState, Input, Output},
    event::Seq,
    exchange::Release,
    journal::{Reader, Record},
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
    /// Knows what later records say, while earlier ones are replayed.
    ahead: Option<LookAhead>,
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
        let (applied, applied_at) = (Seq::ZERO, Timestamp::ZERO);
        Self { engine, rules, ahead: None, notes: None, applied, applied_at }
    }

    /// Has what later records say decide about those up to `until`, which an earlier process wrote: an exchange releases what it
    /// released then. `reader` is where the next record is; `skipped` records are not followed.
    pub fn look_ahead(&mut self, reader: Reader, until: Seq, skipped: BTreeSet<Seq>) {
        self.ahead = Some(LookAhead::new(reader, until, skipped));
    }

    /// Decides everything from here on.
    pub fn go_live(&mut self) {
        self.ahead = None;
    }

    /// Writes down everything that the records left; [`Fold::poll_output`] must have been drained.
    ///
    /// Errors: it cannot be written.
    pub fn to_state(&self) -> Result<Vec<u8>, Damaged> {
        let Self { engine, rules: _, ahead: _, notes: _, applied, applied_at } = self;
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
        Ok(Self { engine, rules, ahead: None, notes: None, applied, applied_at })
    }

    /// Feeds one record to the engine. Afterwards drain [`Fold::poll_output`].
    pub fn apply(&mut self, record: &Record<'_>) -> Result<(), FoldError> {
        let seq = record.seq;
        if let Some(notes) = &mut self.notes {
            notes.begin(record);
        }
        let input = if self.ahead.as_mut().is_some_and(|ahead| ahead.is_skipped(seq)) {
            Input::Skipped { event: (record.kind.0 == record::EVENT).then_some(seq) }
        } else {
            self.input(record)?
        };
        self.engine.handle(input, record.time);
        self.applied = seq;
        self.applied_at = record.time;
        Ok(())
    }

    fn input<'a>(&mut self, record: &Record<'a>) -> Result<Input<'a>, FoldError> {
        let seq = record.seq;
        let decoded = record::decode(record.kind.0, seq, record.body);
        Ok(match decoded.map_err(|source| FoldError::Record { seq, source })? {
            RecordInput::Input(Input::Exchange { seq, request, exchange, release }) => {
                let release = match (release, &mut self.ahead) {
                    (Release::Recorded(_), Some(ahead)) => ahead.release_of(seq),
                    (Release::Decide, _) | (Release::Recorded(_), None) => Release::Decide,
                };
                Input::Exchange { seq, request, exchange, release }
            }
            RecordInput::Input(input) => input,
            // They say something of earlier records, which is known by now.
            RecordInput::Released(_) | RecordInput::Skipped(_) => Input::Tick,
            // Every start and every segment repeats those in force.
            RecordInput::Rules { hash } if hash == self.engine.rules().hash => Input::Tick,
            RecordInput::Rules { hash } => {
                let nearest = self.rules.load_or_nearest(&hash, Some(self.engine.rules()));
                Input::RulesReplaced(nearest)
            }
        })
    }

    /// The next output that somebody has to act upon; the notes take the others on the way.
    pub fn poll_output(&mut self) -> Option<Output> {
        loop {
            let output = self.engine.poll_output()?;
            if let Some(notes) = &mut self.notes {
                notes.take(&output);
            }
            match output {
                Output::Record(_) | Output::Made(_) | Output::Said(_) => {}
                wanted @ (Output::Session(..)
                | Output::Answer { .. }
                | Output::Refuse { .. }
                | Output::Publish(_)
                | Output::Wake(_)) => {
                    return Some(wanted);
                }
            }
        }
    }
}
