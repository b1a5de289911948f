//! What a subscriber remembers between two inputs, as a snapshot has it. Its outputs were taken
//! before.
//!
//! The rule is not written: it is read again with the rules of that time, and the subscriber of the
//! same id gets its memory back.

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Pipeline, batch::Batcher, dedupe::Dedupe, deferred_counts::DeferredByScope, failure::Failures,
    key::KeyWriter, limit::Limiter, rule::Subscriber,
};
use crate::{event::Seq, snapshot::Held};

/// What a subscriber remembers.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory<'a> {
    dedupe: Held<'a, Dedupe>,
    batcher: Held<'a, Batcher>,
    limiter: Held<'a, Limiter>,
    #[serde(alias = "carry")]
    deferred: Held<'a, DeferredByScope>,
    failures: Held<'a, Failures>,
}

impl Memory<'_> {
    /// The events that wait in open batches, in the order of the batches.
    pub fn into_waiting(self) -> Vec<Seq> {
        self.batcher.into_owned().rows().map(|row| row.seq).collect()
    }
}

impl Pipeline {
    /// What it remembers. Its outputs must have been drained.
    pub fn memory(&self) -> Memory<'_> {
        let Self { rule: _, key: _, dedupe, batcher, limiter, deferred, failures, outputs } = self;
        debug_assert!(outputs.is_empty(), "outputs are taken before a snapshot is");
        Memory {
            dedupe: Held::Borrowed(dedupe),
            batcher: Held::Borrowed(batcher),
            limiter: Held::Borrowed(limiter),
            deferred: Held::Borrowed(deferred),
            failures: Held::Borrowed(failures),
        }
    }

    /// The subscriber of `rule` with what it remembered.
    pub fn remembering(rule: Arc<Subscriber>, memory: Memory<'_>) -> Self {
        Self {
            rule,
            key: KeyWriter::default(),
            dedupe: memory.dedupe.into_owned(),
            batcher: memory.batcher.into_owned(),
            limiter: memory.limiter.into_owned(),
            deferred: memory.deferred.into_owned(),
            failures: memory.failures.into_owned(),
            outputs: VecDeque::new(),
        }
    }
}
