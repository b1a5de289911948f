//! The records that both engines read, and what they make of a batch of them.

use std::{ops::ControlFlow, path::Path, sync::mpsc::SyncSender};

use engine::{event::Seq, records, sorted::SortedSet};
use journal::{ReadOnly, Reader, Record, time::Timestamp};

use super::extent::RerunError;
use crate::{comparison::Fact, daemon::fold::LookAhead};

/// Most records per read.
const BATCH_RECORDS_MAX: usize = 4_096;

/// One batch of records: the facts of one engine.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) facts: Vec<Fact>,
    pub(super) events: u64,
    pub(super) exchanges: u64,
}

/// The exchanges of one batch, up to a record, that an earlier process did not answer.
pub(super) struct Progress {
    pub(super) upto: Seq,
    pub(super) unanswered: Vec<Seq>,
}

/// One of the two engines.
pub(super) trait Player {
    /// Called before the records of a batch, which ends with `last`.
    fn begin_batch(&mut self, last: Seq);
    /// Applies a record.
    fn apply(&mut self, record: &Record<'_>, part: &mut Part) -> Result<(), RerunError>;
    /// Called before the facts of a batch are sent.
    fn end_batch(&mut self, last: Seq);
}

/// What both engines read.
pub(super) struct Span<'a> {
    pub(super) state: &'a Path,
    pub(super) journal: &'a ReadOnly,
    pub(super) skipped: SortedSet<Seq>,
    pub(super) since: Timestamp,
    pub(super) until: Option<Timestamp>,
}

impl Span<'_> {
    /// A reader at the first record after `applied` that the journal has.
    pub(super) fn reader(&self, applied: Seq) -> Reader {
        self.journal.read_from(applied.next().max(self.journal.first()))
    }

    /// Finds the recorded releases of the records after `applied`.
    pub(super) fn look_ahead(&self, applied: Seq) -> LookAhead {
        LookAhead::new(self.reader(applied), self.journal.last(), self.skipped.clone())
    }

    /// Gives each record of the span after `applied` to `player`, and sends what it made of each batch.
    /// Ends early if nobody receives that any more.
    pub(super) fn play(
        &self,
        applied: Seq,
        parts: &SyncSender<Part>,
        player: &mut impl Player,
    ) -> Result<ControlFlow<()>, RerunError> {
        let mut reader = self.reader(applied);
        loop {
            let batch = reader.next_batch(BATCH_RECORDS_MAX)?;
            let (mut part, mut ends) = (Part::default(), batch.is_empty());
            let last = batch.iter().last().map_or(Seq::ZERO, |record| record.seq);
            player.begin_batch(last);
            for record in batch.iter() {
                ends = self.until.is_some_and(|until| record.time > until);
                if ends {
                    break;
                }
                player.apply(&record, &mut part)?;
            }
            player.end_batch(last);
            if parts.send(part).is_err() {
                return Ok(ControlFlow::Break(()));
            }
            if ends {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// Counts a record of the time that is compared.
    pub(super) fn count(since: Timestamp, record: &Record<'_>, part: &mut Part) {
        if record.time >= since {
            part.events += u64::from(record.kind.0 == records::EVENT);
            part.exchanges += u64::from(record.kind.0 == records::EXCHANGE);
        }
    }
}
