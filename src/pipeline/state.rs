//! How what a subscriber remembers is written in a snapshot, between two inputs: what it has to say was taken before.
//!
//! The rule is not written: it is read again with the rules of the time, and the same subscriber gets its memory back.

use std::{collections::VecDeque, sync::Arc};

use super::{Pipeline, key::KeyWriter, rule::Subscriber};
use crate::snapshot::{Damaged, Reader, State, Writer};

impl Pipeline {
    /// Appends what it remembers. Its outputs must have been drained.
    pub fn write_state(&self, to: &mut Writer) {
        let Self { rule: _, key: _, dedupe, batcher, limiter, carry, failures, outputs } = self;
        debug_assert!(outputs.is_empty(), "outputs are taken before a snapshot is");
        dedupe.write(to);
        batcher.write(to);
        limiter.write(to);
        carry.write(to);
        failures.write(to);
    }

    /// The subscriber of `rule` with what [`Pipeline::write_state`] of the same one appended.
    ///
    /// Errors: the bytes are not that.
    pub fn read_state(rule: Arc<Subscriber>, from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Self {
            rule,
            key: KeyWriter::default(),
            dedupe: State::read(from)?,
            batcher: State::read(from)?,
            limiter: State::read(from)?,
            carry: State::read(from)?,
            failures: State::read(from)?,
            outputs: VecDeque::new(),
        })
    }
}
