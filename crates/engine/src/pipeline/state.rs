//! The memory of a subscriber, as a snapshot stores it. Outputs must be drained before.
//!
//! The rule is not stored: it is read again with the current rules, and memory is matched by
//! subscriber id.

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Pipeline, batch::Batcher, dedupe::Dedupe, deferred_counts::DeferredByScope, failure::Failures,
    key::KeyWriter, newest::Newest, rule::Subscriber,
};
use crate::{
    event::{Scope, Seq},
    rate::Buckets,
    snapshot::Held,
};

/// The memory of a subscriber.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Memory<'a> {
    dedupe: Held<'a, Dedupe>,
    batcher: Held<'a, Batcher>,
    limiter: Held<'a, Buckets<Scope>>,
    deferred: Held<'a, DeferredByScope>,
    failures: Held<'a, Failures>,
    newest: Held<'a, Newest>,
}

impl Memory<'_> {
    /// The events in open batches, in batch order.
    pub fn into_waiting(self) -> Vec<Seq> {
        self.batcher.into_owned().rows().map(|row| row.seq).collect()
    }
}

impl Pipeline {
    /// Its memory. Its outputs must have been drained.
    pub fn memory(&self) -> Memory<'_> {
        let Self { rule: _, key: _, dedupe, batcher, limiter, deferred, failures, newest, outputs } = self;
        debug_assert!(outputs.is_empty(), "outputs are drained before a snapshot");
        Memory {
            dedupe: Held::Borrowed(dedupe),
            batcher: Held::Borrowed(batcher),
            limiter: Held::Borrowed(limiter),
            deferred: Held::Borrowed(deferred),
            failures: Held::Borrowed(failures),
            newest: Held::Borrowed(newest),
        }
    }

    /// Starts a pipeline for `rule` with restored memory.
    pub fn remembering(rule: Arc<Subscriber>, memory: Memory<'_>) -> Self {
        Self {
            rule,
            key: KeyWriter::default(),
            dedupe: memory.dedupe.into_owned(),
            batcher: memory.batcher.into_owned(),
            limiter: memory.limiter.into_owned(),
            deferred: memory.deferred.into_owned(),
            failures: memory.failures.into_owned(),
            newest: memory.newest.into_owned(),
            outputs: VecDeque::new(),
        }
    }
}
