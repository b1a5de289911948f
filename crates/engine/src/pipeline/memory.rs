//! What a pipeline remembers, as a part of a snapshot.

use std::{collections::VecDeque, sync::Arc};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    Pipeline, absence::Absences, batch::Batcher, dedupe::Dedupe, inhibition::Inhibitions, key::KeyWriter,
    newest::Newest, output::Failures, row::DeferredByScope, rule::Subscriber, threshold::Thresholds,
};
use crate::{
    event::{Scope, Seq},
    notification::StateKey,
    rate::Buckets,
    snapshot::Held,
};

/// The memory of a subscriber.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory<'a> {
    dedupe: Held<'a, Dedupe>,
    batcher: Held<'a, Batcher>,
    thresholds: Held<'a, Thresholds>,
    limiter: Held<'a, Buckets<Scope>>,
    limiter_by: Held<'a, Buckets<StateKey>>,
    deferred: Held<'a, DeferredByScope>,
    failures: Held<'a, Failures>,
    newest: Held<'a, Newest>,
    inhibitions: Held<'a, Inhibitions>,
    absences: Held<'a, Absences>,
    quiet_until: Option<Timestamp>,
    next_change: Option<Timestamp>,
}

impl Memory<'_> {
    /// The events in open batches, in batch order, and those that wait for the next one of their key.
    pub fn into_waiting(self) -> Vec<Seq> {
        let (batcher, absences) = (self.batcher.into_owned(), self.absences.into_owned());
        batcher.rows().map(|row| row.seq).chain(absences.waiting()).collect()
    }
}

impl Pipeline {
    /// Its memory. Its outputs must have been drained.
    pub fn memory(&self) -> Memory<'_> {
        let Self {
            rule: _,
            key: _,
            dedupe,
            batcher,
            thresholds,
            limiter,
            limiter_by,
            deferred,
            failures,
            newest,
            inhibitions,
            absences,
            quiet_until,
            next_change,
            outputs,
        } = self;
        debug_assert!(outputs.is_empty(), "outputs are drained before a snapshot");
        Memory {
            dedupe: Held::Borrowed(dedupe),
            batcher: Held::Borrowed(batcher),
            thresholds: Held::Borrowed(thresholds),
            limiter: Held::Borrowed(limiter),
            limiter_by: Held::Borrowed(limiter_by),
            deferred: Held::Borrowed(deferred),
            failures: Held::Borrowed(failures),
            newest: Held::Borrowed(newest),
            inhibitions: Held::Borrowed(inhibitions),
            absences: Held::Borrowed(absences),
            quiet_until: *quiet_until,
            next_change: *next_change,
        }
    }

    /// Starts a pipeline for `rule` with restored memory.
    pub fn remembering(rule: Arc<Subscriber>, memory: Memory<'_>) -> Self {
        Self {
            rule,
            key: KeyWriter::default(),
            dedupe: memory.dedupe.into_owned(),
            batcher: memory.batcher.into_owned(),
            thresholds: memory.thresholds.into_owned(),
            limiter: memory.limiter.into_owned(),
            limiter_by: memory.limiter_by.into_owned(),
            deferred: memory.deferred.into_owned(),
            failures: memory.failures.into_owned(),
            newest: memory.newest.into_owned(),
            inhibitions: memory.inhibitions.into_owned(),
            absences: memory.absences.into_owned(),
            quiet_until: memory.quiet_until,
            next_change: memory.next_change,
            outputs: VecDeque::new(),
        }
    }
}
