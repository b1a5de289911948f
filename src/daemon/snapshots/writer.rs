//! When a snapshot is taken, and the task that writes it.
//!
//! The event loop captures its state between two slices, the only time when the engine does not
//! change. A capture costs the encoding of the state in memory. The rest is not done in the loop:
//! the journal's writer copies the idempotency keys; the task waits until the journal is durable
//! far enough and writes the file. At most one snapshot is in progress; except at shutdown, no
//! other is captured meanwhile. A failed write is reported and harmless.

use std::{convert::Infallible, error::Error, io, sync::Arc};

use tokio::sync::{
    mpsc,
    oneshot::{self, error::TryRecvError},
};

use super::{Capture, Snapshots, WriteError};
use engine::event::Seq;
use journal::{IdempotencyKey, Journal};

use crate::{daemon::tasks::run_blocking, history::Projection};

/// Bytes of records after which a snapshot is taken, even if the records are few: half a segment.
const RECORD_BYTES_MAX: u64 = 32 << 20;

/// A snapshot to write, and the record up to which the journal must be durable before.
#[derive(Debug)]
pub(crate) struct Order {
    capture: Capture,
    durable: Seq,
    keys: oneshot::Receiver<Vec<IdempotencyKey>>,
    /// Receives the number of bytes written; dropped if it could not be written.
    written: oneshot::Sender<u64>,
}

/// When the event loop takes snapshots, and where it sends them.
#[derive(Debug)]
pub(crate) struct Schedule {
    orders: mpsc::Sender<Order>,
    /// Number of records after which a snapshot is taken.
    records_max: u64,
    last: Seq,
    bytes_since: u64,
    /// The size of the last snapshot of this process, in bytes; 0 before it. The next one is due
    /// after as many bytes of records, so a large state is written less often.
    last_bytes: u64,
    under_way: Option<oneshot::Receiver<u64>>,
}

impl Schedule {
    /// Creates a schedule that sends to `orders`. The first snapshot is due when `records_max`
    /// records follow `last`, the last record of a snapshot. Records read by a start count too:
    /// otherwise the number of unread records would grow if each daemon is killed early.
    pub(crate) fn new(orders: mpsc::Sender<Order>, records_max: u32, last: Seq) -> Self {
        let records_max = u64::from(records_max);
        Self { orders, records_max, last, bytes_since: 0, last_bytes: 0, under_way: None }
    }

    /// Counts applied records, by the bytes of their bodies.
    pub(crate) fn note_applied(&mut self, bytes: u64) {
        self.bytes_since += bytes;
    }

    /// Whether a snapshot is due after applying everything up to `applied`.
    pub(crate) fn is_due(&mut self, applied: Seq) -> bool {
        match self.under_way.as_mut().map(oneshot::Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => return false,
            Some(Ok(bytes)) => self.last_bytes = bytes,
            Some(Err(TryRecvError::Closed)) | None => {}
        }
        self.under_way = None;
        let records = applied.0.saturating_sub(self.last.0);
        let is_much = records >= self.records_max || self.bytes_since >= RECORD_BYTES_MAX;
        is_much && self.bytes_since >= self.last_bytes
    }

    /// Sends a capture, which is written when `journal` is durable up to its record. Waits while an
    /// earlier order is still in the channel.
    ///
    /// Pending events were appended before, so a journal that is durable up to its end includes
    /// them.
    pub(crate) async fn hand_over(&mut self, capture: Capture, journal: &Journal) {
        let durable = *journal.written().borrow();
        // Requested here, because the journal may be closed when the task needs the keys.
        let keys = journal.begin_idempotency_keys();
        let (written, under_way) = oneshot::channel();
        (self.last, self.bytes_since, self.under_way) = (capture.seq, 0, Some(under_way));
        // The task that receives it ends after all senders.
        let _ = self.orders.send(Order { capture, durable, keys, written }).await;
    }
}

/// A channel of capacity 1: one order waits while another is written. Only the last order, at
/// shutdown, may block.
pub(crate) fn orders() -> (mpsc::Sender<Order>, mpsc::Receiver<Order>) {
    mpsc::channel(1)
}

/// Writes snapshots one by one until the channel is closed.
pub(crate) async fn run(
    mut orders: mpsc::Receiver<Order>,
    snapshots: Arc<Snapshots>,
    journal: Journal,
    projection: Projection,
) -> Result<(), Infallible> {
    while let Some(Order { capture, durable, keys, written }) = orders.recv().await {
        let Ok(keys) = keys.await else { continue };
        if journal.synced().wait_for(|synced| *synced >= durable).await.is_err() {
            // The journal failed before it was durable that far.
            continue;
        }
        let (kept, seq) = (&snapshots, capture.seq);
        let (snapshots, source) = (Arc::clone(&snapshots), journal.clone());
        match run_blocking(move || write(&snapshots, &source, &capture, &keys)).await {
            Ok(Ok(bytes)) => {
                tracing::debug!(%seq, bytes, "a snapshot was written");
                journal.set_needed_from(kept.journal_needed_from());
                // Forget the records that retention has deleted. If the size cannot be read, the
                // task continues.
                if let Ok(stored) = journal.stored() {
                    projection.forget_before(stored.first).await;
                }
                // The event loop may have ended.
                let _ = written.send(bytes);
            }
            Ok(Err(error)) => {
                let error: &dyn Error = &error;
                tracing::warn!(%seq, error, "a snapshot could not be written; a start reads more of the journal");
            }
            Err(error) => {
                let error: &dyn Error = &error;
                tracing::error!(%seq, error, "writing a snapshot panicked");
            }
        }
    }
    Ok(())
}

fn write(
    snapshots: &Snapshots,
    journal: &Journal,
    capture: &Capture,
    keys: &[IdempotencyKey],
) -> Result<u64, WriteError> {
    let last = journal.read_at(capture.seq).map_err(io::Error::other);
    let last = last.and_then(|last| last.ok_or(io::ErrorKind::NotFound.into()));
    let last = last.map_err(snapshots.failed("read the last record of", &super::name_of(capture.seq)))?;
    snapshots.write(capture, last.as_record().checksum(), keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::{
        AppendBatch, Journal, JournalSettings, Level, RecordKind, memory::MemoryFiles, time::Timestamp,
    };

    fn journal() -> Journal {
        let (files, settings) = (Arc::new(MemoryFiles::new()), JournalSettings::default());
        Journal::open(files, settings, Arc::new(|| Timestamp::ZERO), &|_| None).expect("opened").journal
    }

    fn snapshots(files: &MemoryFiles) -> Arc<Snapshots> {
        Arc::new(Snapshots::open(Arc::new(files.clone())).expect("opened"))
    }

    fn capture(seq: u64) -> Capture {
        Capture { seq: Seq(seq), time: Timestamp::ZERO, state: vec![0; 1_000] }
    }

    #[tokio::test]
    async fn snapshot_is_due_by_records_and_bytes() {
        let (journal, (sender, mut ordered)) = (journal(), orders());
        let mut schedule = Schedule::new(sender, 100, Seq(50));
        assert!(!schedule.is_due(Seq(149)) && schedule.is_due(Seq(150)));
        schedule.hand_over(capture(150), &journal).await;
        assert!(!schedule.is_due(Seq(900)), "one is under way");
        let order = ordered.recv().await.expect("handed over");
        order.written.send(1_500).expect("waited for");
        schedule.note_applied(1_499);
        assert!(!schedule.is_due(Seq(900)));
        schedule.note_applied(1);
        assert!(!schedule.is_due(Seq(249)) && schedule.is_due(Seq(250)));
        schedule.note_applied(RECORD_BYTES_MAX);
        assert!(schedule.is_due(Seq(151)), "few records, but large ones");
    }

    #[tokio::test]
    async fn snapshot_waits_until_journal_is_durable() {
        let (journal, (sender, ordered), files) = (journal(), orders(), MemoryFiles::new());
        let snapshots = snapshots(&files);
        let mut batch = AppendBatch::new();
        batch.push(RecordKind(1), b"outbox", None).expect("small");
        journal.append(batch, Level::Written).await.expect("appended");
        let mut schedule = Schedule::new(sender, 100, Seq::ZERO);
        schedule.hand_over(capture(1), &journal).await;
        assert_eq!(*journal.synced().borrow(), Seq::ZERO);
        let (projection, _) = Projection::new(std::path::Path::new("nobody writes it"));
        let mut writer = std::pin::pin!(run(ordered, Arc::clone(&snapshots), journal.clone(), projection));
        tokio::select! {
            _ = &mut writer => panic!("more can come"),
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(snapshots.oldest_needed(), None);
        assert!(journal::files::Files::list(&files).expect("listed").is_empty());
        journal.close().await.expect("closed");
        drop(schedule);
        writer.await.expect("it cannot fail");
        let names = journal::files::Files::list(&files).expect("listed");
        assert_eq!(names, ["00000000000000000001.snap"]);
    }
}
