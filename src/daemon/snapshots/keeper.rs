//! When a snapshot is taken, and the task that writes it.
//!
//! The event loop takes one between two slices, as that is the only moment at which the engine stands still; that costs it the
//! time of writing the state into memory. Everything else happens beside it: waiting until the journal is durable as far as it must be,
//! reading the publish keys, writing the file. There is one under way at most; while it is, none is taken. One that cannot be
//! written is said and does no harm.

use std::{convert::Infallible, error::Error, sync::Arc};

use tokio::{
    sync::{
        mpsc,
        oneshot::{self, error::TryRecvError},
    },
    task::spawn_blocking,
};

use super::{Snapshots, Taken};
use crate::{bus::Bus, daemon::recovery::key_of, event::Seq};

/// How many bytes of records one is taken after, also if they are few: half a segment.
const RECORD_BYTES_MAX: u64 = 32 << 20;

/// A snapshot on its way, and the record up to which the journal must be durable before.
#[derive(Debug)]
pub(crate) struct Order {
    taken: Taken,
    durable: Seq,
    /// Where it is said how many bytes it became; nothing is if it could not be written.
    written: oneshot::Sender<u64>,
}

/// Where the event loop hands its snapshots to, and when it does.
#[derive(Debug)]
pub(crate) struct Pace {
    orders: mpsc::Sender<Order>,
    /// How many records one is taken after.
    records_max: u64,
    last: Seq,
    bytes_since: u64,
    /// How long the last one was. Snapshots together are never more than the journal, so state that is large is written less often.
    last_bytes: u64,
    under_way: Option<oneshot::Receiver<u64>>,
}

impl Pace {
    /// Hands over to `orders`; the first one comes when `records_max` records follow `last`.
    pub(crate) fn new(orders: mpsc::Sender<Order>, records_max: u32, last: Seq) -> Self {
        let records_max = u64::from(records_max);
        Self { orders, records_max, last, bytes_since: 0, last_bytes: 0, under_way: None }
    }

    /// Takes note of records that were applied, by the bytes of their bodies.
    pub(crate) fn note_applied(&mut self, bytes: u64) {
        self.bytes_since += bytes;
    }

    /// Whether a snapshot is due when the engine has applied everything up to `applied`.
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

    /// Hands one over, to be written when the journal is durable up to `durable`. Waits while another one is under way.
    pub(crate) async fn hand_over(&mut self, taken: Taken, durable: Seq) {
        let (written, under_way) = oneshot::channel();
        (self.last, self.bytes_since, self.under_way) = (taken.seq, 0, Some(under_way));
        // The task that takes it ends after everyone who can send.
        let _ = self.orders.send(Order { taken, durable, written }).await;
    }
}

/// Where orders go: one waits while another is written; who comes then waits too, which only the last one at the end may.
pub(crate) fn orders() -> (mpsc::Sender<Order>, mpsc::Receiver<Order>) {
    mpsc::channel(1)
}

/// Writes what is handed over, one after the other, until nothing more can come.
pub(crate) async fn run(
    mut orders: mpsc::Receiver<Order>,
    snapshots: Arc<Snapshots>,
    bus: Bus,
) -> Result<(), Infallible> {
    while let Some(Order { taken, durable, written }) = orders.recv().await {
        if bus.synced().wait_for(|synced| *synced >= durable).await.is_err() {
            // The journal failed before it came that far.
            continue;
        }
        let (snapshots, bus) = (Arc::clone(&snapshots), bus.clone());
        let seq = taken.seq;
        let write = move || snapshots.write(&taken, |seq| bus.read_from(seq), &key_of);
        match spawn_blocking(write).await {
            Ok(Ok(bytes)) => {
                tracing::debug!(%seq, bytes, "a snapshot was written");
                // The loop may have ended.
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
