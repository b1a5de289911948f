//! The fold: takes one journal record and returns the engine's outputs.
//!
//! Recovery and live operation both use [`Fold::apply`]; they differ only in how they handle the
//! outputs.

use std::sync::Arc;

use super::{look_ahead::LookAhead, rules::RulesStore};
use engine::{
    Engine, Input, Output, Saved,
    event::Seq,
    exchange::Release,
    notes::Notes,
    records::{self, RecordError, RecordInput, Skip, SkipDecision},
    snapshot::Damaged,
    sorted::SortedSet,
};
use journal::{Reader, Record, time::Timestamp};

use crate::capability::outside::{self, Generation};

/// An engine, and the store of the rules of any time.
#[derive(Debug)]
pub struct Fold {
    /// The engine, after the record [`Fold::applied`].
    pub engine: Engine,
    /// The store of the rules that `rules` records name.
    pub rules: RulesStore,
    /// The settings of the sources, of the rules in force.
    pub outside: Arc<outside::Settings>,
    /// Reads later records during a replay.
    ahead: Option<LookAhead>,
    /// Notes for the projection, while it is fed.
    pub notes: Option<Notes>,
    /// The position of the last applied record.
    pub applied: Seq,
    /// The time of that record.
    pub applied_at: Timestamp,
}

/// Why a record cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// The record does not have the form of its kind.
    #[error("record {seq} of the journal cannot be decoded")]
    Record {
        /// The position of the record.
        seq: Seq,
        /// The cause.
        source: RecordError,
    },
}

impl Fold {
    /// The state before the journal's first record: an engine without rules.
    pub fn new(rules: RulesStore) -> Self {
        let Generation { rules: in_force, outside } = Generation::none();
        let engine = Engine::new(in_force);
        let (applied, applied_at) = (Seq::ZERO, Timestamp::ZERO);
        Self { engine, rules, outside, ahead: None, notes: None, applied, applied_at }
    }

    /// Starts the use of later records: an exchange of an earlier process then releases the same
    /// notifications as it did then. `until` is the last record of the earlier processes. `reader`
    /// is at the next record; `skipped` records are not applied.
    pub fn look_ahead(&mut self, reader: Reader, until: Seq, skipped: SortedSet<Seq>) {
        self.ahead = Some(LookAhead::new(reader, until, skipped));
    }

    /// Ends the use of later records: from here on the engine decides.
    pub fn go_live(&mut self) {
        self.ahead = None;
    }

    /// Encodes the state; [`Fold::poll_output`] must have been drained.
    ///
    /// Errors: it cannot be written.
    pub fn to_state(&self) -> Result<Vec<u8>, Damaged> {
        self.engine.save(self.applied, self.applied_at)
    }

    /// Decodes the state that [`Fold::to_state`] encoded.
    ///
    /// Shape: has the rules of that time, or the nearest ones if they are lost.
    ///
    /// Errors: the bytes are not a valid state.
    pub fn from_state(rules: RulesStore, state: &[u8]) -> Result<Self, Damaged> {
        let saved = Saved::read(state)?;
        let hash = &saved.rules;
        let in_force = if hash.is_empty() { Generation::none() } else { rules.load_or_nearest(hash, None) };
        let (applied, applied_at, outside) = (saved.applied, saved.applied_at, in_force.outside);
        let engine = Engine::restored(in_force.rules, saved);
        Ok(Self { engine, rules, outside, ahead: None, notes: None, applied, applied_at })
    }

    /// Applies one record to the engine. Drain [`Fold::poll_output`] afterwards.
    pub fn apply(&mut self, record: &Record<'_>) -> Result<(), FoldError> {
        let seq = record.seq;
        if let Some(notes) = &mut self.notes {
            notes.begin(record);
        }
        let input = if self.ahead.as_mut().is_some_and(|ahead| ahead.is_skipped(seq)) {
            Input::Skipped { event: (record.kind.0 == records::EVENT).then_some(seq) }
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
        let decoded = records::decode(record.kind.0, seq, record.body);
        Ok(match decoded.map_err(|source| FoldError::Record { seq, source })? {
            RecordInput::Input(Input::Exchange { seq, request, exchange, release: _ }) => {
                let release = self.ahead.as_mut().map_or(Release::Decide, |ahead| ahead.release_of(seq));
                Input::Exchange { seq, request, exchange, release }
            }
            RecordInput::Input(input) => input,
            // Both concern earlier records. A replay reads them before: the look-ahead the
            // releases, and `Skipped::open` the skips.
            RecordInput::Released(_) => Input::Tick,
            RecordInput::Skipped(Skip { record, decision, .. }) => {
                if decision == SkipDecision::Skipped
                    && let Some(notes) = &mut self.notes
                {
                    notes.take_skip(record);
                }
                Input::Tick
            }
            // Every start and every segment repeats the current ones.
            RecordInput::Rules { hash } if hash == self.engine.rules().hash => Input::Tick,
            RecordInput::Rules { hash } => {
                let (rules, outside) = (Arc::clone(self.engine.rules()), Arc::clone(&self.outside));
                let nearest = self.rules.load_or_nearest(&hash, Some(Generation { rules, outside }));
                self.outside = nearest.outside;
                Input::RulesReplaced(nearest.rules)
            }
        })
    }

    /// The next output that has to be executed; the notes record the others.
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
