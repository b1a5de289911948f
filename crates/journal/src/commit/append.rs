//! The input and the answers of an append.

use tokio::sync::OwnedMutexGuard;

use crate::{
    Seq,
    log::{
        failure::{DiskFull, Poisoned},
        record::{BODY_BYTES_MAX, OVERHEAD_BYTES, RecordKind},
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_keeps_bodies_apart() {
        let mut batch = AppendBatch::of(RecordKind(1), b"one", None).expect("small");
        batch.push(RecordKind(2), b"", Some(7)).expect("small");
        batch.push_with(RecordKind(3), None, |bodies| bodies.extend(b"three")).expect("small");
        let records: Vec<_> = batch.records().map(|(kind, body, key, _)| (kind.0, body, key)).collect();
        assert_eq!(records, [(1, b"one".as_slice(), None), (2, b"", Some(7)), (3, b"three", None)]);
    }

    #[test]
    fn an_oversized_body_is_refused_without_changing_batch() {
        let mut batch = AppendBatch::of(RecordKind(1), b"one", None).expect("small");
        let large = vec![0; BODY_BYTES_MAX + 1];
        let refused = Err(BodyTooLarge { bytes: BODY_BYTES_MAX + 1 });
        assert_eq!(batch.push(RecordKind(1), &large, None), refused);
        assert_eq!(batch.push_with(RecordKind(1), None, |bodies| bodies.extend(&large)), refused);
        batch.push(RecordKind(1), b"two", None).expect("small");
        let bodies: Vec<_> = batch.records().map(|(_, body, ..)| body).collect();
        assert_eq!(bodies, [b"one", b"two"]);
    }

    #[test]
    fn outcomes_are_in_the_order_of_the_batch() {
        let duplicates = vec![(1, Seq(3)), (3, Seq(10))];
        let time = Timestamp::ZERO;
        let appended = Appended {
            time,
            level: Level::Synced,
            records: 4,
            begin: Seq(10),
            duplicates,
            prefaced: Vec::new(),
        };
        let outcomes: Vec<_> = appended.outcomes().collect();
        assert_eq!(
            outcomes,
            [
                Outcome::Appended(Seq(10)),
                Outcome::Duplicate(Seq(3)),
                Outcome::Appended(Seq(11)),
                Outcome::Duplicate(Seq(10)),
            ]
        );
        assert_eq!((appended.first(), appended.last()), (Some(Seq(10)), Some(Seq(11))));
    }

    #[test]
    fn a_segment_preface_takes_its_own_position() {
        let (time, duplicates) = (Timestamp::ZERO, vec![(1, Seq(3))]);
        let appended = Appended {
            time,
            level: Level::Synced,
            records: 4,
            begin: Seq(10),
            duplicates,
            prefaced: vec![1, 3],
        };
        let outcomes: Vec<_> = appended.outcomes().collect();
        assert_eq!(
            outcomes,
            [
                Outcome::Appended(Seq(10)),
                Outcome::Duplicate(Seq(3)),
                Outcome::Appended(Seq(12)),
                Outcome::Appended(Seq(14)),
            ]
        );
        assert_eq!(appended.last(), Some(Seq(14)));
    }

    #[test]
    fn a_preface_before_a_duplicate_is_not_last() {
        let appended = Appended {
            time: Timestamp::ZERO,
            level: Level::Synced,
            records: 2,
            begin: Seq(10),
            duplicates: vec![(1, Seq(3))],
            prefaced: vec![1],
        };
        assert_eq!((appended.first(), appended.last()), (Some(Seq(10)), Some(Seq(10))));
    }

    #[test]
    fn a_batch_of_duplicates_wrote_nothing() {
        let appended = Appended {
            time: Timestamp::ZERO,
            level: Level::Synced,
            records: 1,
            begin: Seq(10),
            duplicates: vec![(0, Seq(4))],
            prefaced: Vec::new(),
        };
        assert_eq!((appended.first(), appended.last()), (None, None));
    }
}
