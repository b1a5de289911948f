//! How a batch reaches the disk: admission, writing by a group's leader, and one sync for the
//! group. This file has the input and the answers of an append, and its admission.
//!
//! `leader` decides which thread writes, `writer` puts records into segments, and `sync` makes them
//! durable. `sync` may give a leader the duty to sync for its group. If the duty is dropped before
//! it is done, the flusher thread takes it.
//!
//! Publishing waits while the consumer of the journal is far behind. An exchange never waits here, so it
//! is handled soon after its append even during a burst. The journal is the buffer; there is no queue.

pub(crate) mod leader;
pub(crate) mod next_file;
pub(crate) mod sync;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Mutex, OwnedMutexGuard, watch};

use crate::{
    Seq,
    log::{
        record::{BODY_BYTES_MAX, OVERHEAD_BYTES, RecordKind},
        store::{DiskFull, Poisoned},
    },
    time::Timestamp,
};

/// The durability of a batch when it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The operating system has it: it survives the death of the process, not a power loss.
    Written,
    /// The disk has it: it survives a power loss.
    Synced,
}

/// Records that get consecutive positions and one time.
///
/// Shape: one buffer of bodies, in order; a push allocates nothing once the buffers are large
/// enough.
#[derive(Debug, Default)]
pub struct AppendBatch {
    bodies: Vec<u8>,
    drafts: Vec<Draft>,
    uses_reserve: bool,
    /// Released when the batch is written or refused.
    held: Option<OwnedMutexGuard<()>>,
}

/// A record that has no position yet.
#[derive(Debug, Clone, Copy)]
struct Draft {
    kind: RecordKind,
    end: usize,
    key: Option<u128>,
    /// The key of the opposite state, if the record reports a state.
    opposite: Option<u128>,
}

/// Why a body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("record body has {bytes} bytes, at most {BODY_BYTES_MAX} are allowed")]
pub struct BodyTooLarge {
    /// Its size.
    pub bytes: usize,
}

/// The outcome of one record of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is at this position.
    Appended(Seq),
    /// Its idempotency key was seen before, at this position; it was not written again.
    Duplicate(Seq),
}

/// The outcome of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The time of its records.
    pub time: Timestamp,
    /// The level it reached; `Durability::Interval` may make it lower than requested.
    pub level: Level,
    pub(crate) records: usize,
    /// The position of the first record that was written.
    pub(crate) begin: Seq,
    /// Indexes of the records that were duplicates, in order, and the position of each original.
    pub(crate) duplicates: Vec<(usize, Seq)>,
    /// Indexes of the records after the first written one that began a segment, in order: the
    /// position before each is that of the segment's preface.
    pub(crate) prefaced: Vec<usize>,
}

/// Why a batch was refused.
///
/// A batch refused because of [`Poisoned`] may be in the journal after a restart, as may one whose
/// caller stopped waiting. A record with an idempotency key can safely be published again.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// An earlier write or sync failed.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
    /// The next segment has no space, and the free part of this one is reserved.
    #[error(transparent)]
    Full(#[from] DiskFull),
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
}

impl AppendBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// A batch with one record.
    ///
    /// Errors: see [`AppendBatch::push`].
    pub fn of(kind: RecordKind, body: &[u8], key: Option<u128>) -> Result<Self, BodyTooLarge> {
        let mut batch = Self::new();
        batch.push(kind, body, key)?;
        Ok(batch)
    }

    /// Makes room for bodies of `bytes` bytes together.
    pub fn reserve(&mut self, bytes: usize) {
        self.bodies.reserve(bytes);
    }

    /// Adds a record; one with an idempotency key is written only if that key was not seen before.
    ///
    /// Errors: the body is larger than `BODY_BYTES_MAX`; the batch is unchanged.
    pub fn push(&mut self, kind: RecordKind, body: &[u8], key: Option<u128>) -> Result<(), BodyTooLarge> {
        if body.len() > BODY_BYTES_MAX {
            return Err(BodyTooLarge { bytes: body.len() });
        }
        self.push_with(kind, key, |bodies| bodies.extend_from_slice(body))
    }

    /// Adds a record whose body `write` appends to the buffer, which saves a copy.
    ///
    /// Errors: the body is larger than `BODY_BYTES_MAX`; the batch is unchanged.
    pub fn push_with(
        &mut self,
        kind: RecordKind,
        key: Option<u128>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), BodyTooLarge> {
        let start = self.bodies.len();
        write(&mut self.bodies);
        let end = self.bodies.len();
        let bytes = end.saturating_sub(start);
        if bytes > BODY_BYTES_MAX {
            self.bodies.truncate(start);
            return Err(BodyTooLarge { bytes });
        }
        self.drafts.push(Draft { kind, end, key, opposite: None });
        Ok(())
    }

    /// Adds a record about a state, like [`AppendBatch::push_with`]. It is also written if the
    /// opposite state, with the key `opposite`, was reported after the last record with its `key`.
    ///
    /// Errors: the body is larger than `BODY_BYTES_MAX`; the batch is unchanged.
    pub fn push_change(
        &mut self,
        kind: RecordKind,
        key: u128,
        opposite: u128,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), BodyTooLarge> {
        self.push_with(kind, Some(key), write)?;
        if let Some(draft) = self.drafts.last_mut() {
            draft.opposite = Some(opposite);
        }
        Ok(())
    }

    /// Allows the batch to use the whole last segment when the disk is full. Other batches leave a
    /// quarter free.
    pub fn with_reserve(self) -> Self {
        Self { uses_reserve: true, ..self }
    }

    /// Holds `lock` until the batch can be read, so that the next publisher sees the true lag.
    pub fn holding(self, lock: OwnedMutexGuard<()>) -> Self {
        Self { held: Some(lock), ..self }
    }

    /// Takes the lock to release when the batch is written.
    pub(crate) fn take_held(&mut self) -> Option<OwnedMutexGuard<()>> {
        self.held.take()
    }

    /// Whether it may use the reserve.
    pub(crate) fn uses_reserve(&self) -> bool {
        self.uses_reserve
    }

    /// How many bytes its records take up.
    pub(crate) fn framed_bytes(&self) -> u64 {
        (self.bodies.len() + self.drafts.len() * OVERHEAD_BYTES) as u64
    }

    /// How many records it has.
    pub fn len(&self) -> usize {
        self.drafts.len()
    }

    /// Whether it has no record.
    pub fn is_empty(&self) -> bool {
        self.drafts.is_empty()
    }

    /// Its records' kinds, bodies and idempotency keys, in order; of a state also the key of the
    /// opposite one.
    pub(crate) fn records(&self) -> impl Iterator<Item = (RecordKind, &[u8], Option<u128>, Option<u128>)> {
        let mut start = 0;
        self.drafts.iter().map(move |draft| {
            let body = self.bodies.get(start..draft.end).expect("bodies are only appended");
            start = draft.end;
            (draft.kind, body, draft.key, draft.opposite)
        })
    }
}

impl Appended {
    /// The position of the first record that was written; `None` when all were duplicates.
    pub fn first(&self) -> Option<Seq> {
        (self.written() > 0).then_some(self.begin)
    }

    /// The position of the last record that was written; `None` when all were duplicates.
    pub fn last(&self) -> Option<Seq> {
        let written = |outcome| match outcome {
            Outcome::Appended(seq) => Some(seq),
            Outcome::Duplicate(_) => None,
        };
        self.outcomes().filter_map(written).last()
    }

    /// The outcome of each record, in the order of the batch.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome> {
        let (mut next, mut duplicates) = (self.begin, self.duplicates.iter().peekable());
        let mut prefaced = self.prefaced.iter().peekable();
        (0..self.records).map(move |at| {
            if prefaced.next_if(|prefaced| **prefaced == at).is_some() {
                next = next.next();
            }
            if let Some((_, seq)) = duplicates.next_if(|(duplicate, _)| *duplicate == at) {
                return Outcome::Duplicate(*seq);
            }
            let seq = next;
            next = seq.next();
            Outcome::Appended(seq)
        })
    }

    fn written(&self) -> usize {
        self.records - self.duplicates.len()
    }
}

/// Pending work of the consumer above which publishing waits: the longest wait of an exchange
/// behind events. It is a tenth of the 20 ms that an exchange may take, because a larger batch is
/// admitted once the lag is half of this, and publishers compete with the consumer for the
/// processor. In a burst of events that all match, 5 ms doubled the p99 of an exchange and added a
/// tenth more events a second.
const LAG: Duration = Duration::from_millis(2);
/// Bounds of the lag in records, for a slow and a fast consumer. An event for four templates that
/// all reach their bounds takes 1 ms (`scripts/hostile-templates`), and a lag of 64 such events
/// kept exchanges waiting for up to 148 ms.
const LAG_RECORDS: (u64, u64) = (4, 16_384);
/// The lag until the consumer's pace is known (`PACE_AFTER`); small, because the consumer may be
/// slow.
const LAG_RECORDS_AT_FIRST: u64 = 8;
/// Number of untaken notifications of all sessions above which publishing waits. Sessions take some
/// 700,000 a second, and one session takes its share (untaken divided by sessions) at once.
const UNTAKEN_MAX: u64 = 262_144;
/// How long the consumer has to work before its pace counts: one slice of the event loop. When
/// records become expensive, publishers wait before many of them are written.
const PACE_AFTER: Duration = Duration::from_millis(2);

/// How fast the consumer handles records.
#[derive(Debug, Default)]
pub struct Pace {
    records: u64,
    took: Duration,
}

impl Pace {
    /// Counts records and the time they took; returns at intervals how many records take `LAG`.
    pub fn note(&mut self, records: u64, took: Duration) -> Option<u64> {
        self.records += records;
        self.took += took;
        if self.took < PACE_AFTER {
            return None;
        }
        let Self { records, took } = std::mem::take(self);
        let (least, most) = LAG_RECORDS;
        let worth = u128::from(records) * LAG.as_micros() / took.as_micros().max(1);
        Some(u64::try_from(worth).unwrap_or(most).clamp(least, most))
    }
}

/// Whether a batch of `records` may follow `lag` pending records. A batch that never fits is
/// admitted once at most half of `lag_max` is pending.
fn has_room(records: u64, lag: u64, lag_max: u64) -> bool {
    lag + records <= lag_max || lag <= lag_max / 2
}

/// The consumer's position, and how far behind it may be.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Only the newest value matters to a waiter.
    consumed: watch::Sender<Seq>,
    /// How many records the consumer may be behind before publishing waits.
    lag_max: AtomicU64,
    /// Notifications that the consumer handled and sessions have not taken.
    untaken: AtomicU64,
    /// Held by the next publisher, so that two waiters do not take the same room.
    next: Arc<Mutex<()>>,
}

impl Admission {
    /// Creates the state for a consumer that has handled everything up to `consumed`.
    pub(crate) fn new(consumed: Seq) -> Self {
        Self {
            consumed: watch::Sender::new(consumed),
            lag_max: AtomicU64::new(LAG_RECORDS_AT_FIRST),
            untaken: AtomicU64::new(0),
            next: Arc::default(),
        }
    }

    /// Waits until the consumer's lag has room for a batch. The next publisher is admitted when
    /// this batch is written.
    pub(crate) async fn admit(&self, batch: AppendBatch, written: &watch::Receiver<Seq>) -> AppendBatch {
        let records = batch.len() as u64;
        let is_near = |consumed: &Seq| {
            let lag = written.borrow().0.saturating_sub(consumed.0);
            has_room(records, lag, self.lag_max.load(Ordering::Relaxed))
                && self.untaken.load(Ordering::Relaxed) <= UNTAKEN_MAX
        };
        let next = Arc::clone(&self.next).lock_owned().await;
        // `self` owns the sender, so waiting cannot fail.
        let _ = self.consumed.subscribe().wait_for(is_near).await;
        batch.holding(next)
    }

    /// Notes that the consumer has handled everything up to `seq`.
    pub(crate) fn consumed(&self, seq: Seq) {
        self.consumed.send_if_modified(|consumed| {
            let has_moved = seq > *consumed;
            *consumed = seq.max(*consumed);
            has_moved
        });
    }

    pub(crate) fn set_lag_max(&self, records: u64) {
        self.lag_max.store(records, Ordering::Relaxed);
    }

    pub(crate) fn set_untaken(&self, notifications: u64) {
        self.untaken.store(notifications, Ordering::Relaxed);
    }

    /// Waits until the consumer has handled everything up to `seq`.
    pub(crate) async fn handled(&self, seq: Seq) {
        // `self` owns the sender, so waiting cannot fail.
        let _ = self.consumed.subscribe().wait_for(|consumed| *consumed >= seq).await;
    }

    /// Number of records up to `written` that the consumer has not handled yet.
    pub(crate) fn lag(&self, written: Seq) -> u64 {
        written.0.saturating_sub(self.consumed.borrow().0)
    }

    /// Admits all waiters; a closed journal then refuses them.
    pub(crate) fn release(&self) {
        self.untaken.store(0, Ordering::Relaxed);
        self.consumed(Seq(u64::MAX));
    }
}
