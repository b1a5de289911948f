//! An append-only, checksummed log of every input: the only source of truth, order and time.
//!
//! A record has a kind, a position without gaps, a time that never steps back, and a body that the
//! journal does not interpret. Records are in segment files. One write covers all waiting batches.
//! One sync makes them durable for all callers that asked for it, while writing continues. A reader
//! owns its position, reads files, and follows.
//!
//! Guarantees: an append answered at [`Level::Synced`] survives a power loss; one at
//! [`Level::Written`] survives the death of the process. A record can be read as soon as its append
//! is answered. After a failed write or sync nothing more is appended, and reading continues. The
//! journal does not depend on the engine, the protocol, or its readers.
//!
//! ```
//! use std::sync::Arc;
//!
//! use aside_journal::{
//!     AppendBatch, Journal, JournalSettings, Level, Seq, memory::MemoryFiles, record::RecordKind,
//!     time::Timestamp,
//! };
//!
//! let clock = Arc::new(|| Timestamp::from_millis(1_700_000_000_000));
//! let opened = Journal::open(Arc::new(MemoryFiles::new()), JournalSettings::default(), clock, &|_| None)
//!     .expect("opened");
//! let mut batch = AppendBatch::new();
//! batch.push(RecordKind(1), b"it happened", None).expect("small");
//! opened.journal.append_blocking(batch, Level::Synced).expect("appended");
//!
//! let mut reader = opened.journal.read_from(Seq(1));
//! let records = reader.next_batch(10).expect("read");
//! assert_eq!(records.iter().next().map(|record| record.body), Some(&b"it happened"[..]));
//! opened.journal.close_blocking().expect("closed");
//! ```
//!
//! Waits for a future on a thread that may block.

pub mod background;
mod commit;
mod log;
mod lookup;
mod maintenance;
pub mod meter;
mod settings;
mod start;
#[cfg(test)]
mod testing;
pub mod time;
#[cfg(test)]
mod walk;

use std::{
    io, mem,
    path::PathBuf,
    pin::pin,
    sync::{Arc, PoisonError, atomic::Ordering},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{oneshot, watch},
    task::block_in_place,
};

use self::{
    commit::{
        sync::{Role, SyncDuty},
        writer::{Append, Command},
    },
    log::recover::{self, apply::apply},
    start::Running,
};
use crate::{meter::Meters, time::Timestamp};

pub use self::{
    commit::{AppendBatch, AppendError, Appended, BodyTooLarge, Level, Outcome, Pace},
    log::{
        damaged::FoundDamage,
        files::{self, Files},
        idempotency::{IDEMPOTENCY_KEYS_MAX, IdempotencyKey, IdempotencyKeys},
        memory,
        reader::{Closed, ReadError, Reader, RecordBuf, Records},
        record::{self, NameOf, Record, RecordKind, Seq},
        recover::{Cut, KeyOf, OpenError, RecoveryHint, ScanReport, read_only::ReadOnly},
        sealed::SealDamage,
        segment_file::unreleased_segment,
        store::{
            Clock, DAMAGED_PLACES_MAX, DamagedPlace, DiskFull, ForgetError, JournalHealth, Poisoned, Stored,
        },
    },
    maintenance::{
        pinned::{Part, PartReader, Pinned},
        repair::{RepairError, RepairMode, Repaired, Tombstone, repair},
        verify::{Finding, Verified, VerifyError, verify, verify_reading},
    },
    settings::{Durability, JournalSettings, Retention, SEGMENT_BYTES, SYNC_WITHIN},
    start::NEEDED_THREADS,
};

/// An opened journal, and the results of recovery.
#[derive(Debug)]
pub struct Opened {
    /// The journal.
    pub journal: Journal,
    /// The torn ends that were cut off: of the last segment, and of the prepared file after it.
    pub cuts: Vec<Cut>,
    /// The last record; [`Seq::ZERO`] when there is none.
    pub last_seq: Seq,
    /// The time of the last record.
    pub last_time: Timestamp,
}

/// A submitted batch. Dropping it does not undo the append.
#[derive(Debug)]
pub struct Appending {
    answer: oneshot::Receiver<Result<Appended, AppendError>>,
}

/// A handle of a running journal.
///
/// A clone is another handle. The journal closes when the last handle is dropped, but only
/// [`Journal::close`] reports when that is done.
#[derive(Debug, Clone)]
pub struct Journal {
    inner: Arc<Running>,
}

impl Appending {
    /// Waits until the batch is at the requested level.
    ///
    /// Errors: the journal is poisoned, full or closed.
    pub async fn done(self) -> Result<Appended, AppendError> {
        self.answer.await.map_err(|_| AppendError::Closed)?
    }
}

impl Journal {
    /// Opens the journal in a folder, or creates one there, and starts its threads.
    ///
    /// `key_of` returns the idempotency key of a record, if it has one. It is called for the newest
    /// records until the maximum number of keys is found.
    ///
    /// Errors: see [`OpenError`]; nothing was changed unless a file operation failed.
    pub fn open(
        files: Arc<dyn Files>,
        settings: JournalSettings,
        clock: Clock,
        key_of: &KeyOf<'_>,
    ) -> Result<Opened, OpenError> {
        let report = Self::scan(files.as_ref(), key_of, RecoveryHint::default())?;
        Self::open_scanned(files, settings, clock, report, IdempotencyKeys::default())
    }

    /// Opens a scanned journal. `keys` are the idempotency keys of the records up to the hint's.
    ///
    /// Errors: see [`OpenError`]; nothing was changed unless a file operation failed.
    pub fn open_scanned(
        files: Arc<dyn Files>,
        settings: JournalSettings,
        clock: Clock,
        report: ScanReport,
        keys: IdempotencyKeys,
    ) -> Result<Opened, OpenError> {
        let mut recovered = apply(files.as_ref(), settings.segment_bytes, report, keys)?;
        let (cuts, last_seq, last_time) = (mem::take(&mut recovered.cuts), recovered.last, recovered.time);
        let running = Running::start(files, settings, clock, recovered)?;
        Ok(Opened { journal: Self { inner: Arc::new(running) }, cuts, last_seq, last_time })
    }

    /// Scans the folder of a journal: the first step of [`Journal::open`], so that the caller can
    /// compare the result with its own facts.
    ///
    /// `key_of` is called only for records after [`RecoveryHint::keys_upto`].
    ///
    /// Errors: see [`OpenError`]; nothing is changed in any case.
    pub fn scan(files: &dyn Files, key_of: &KeyOf<'_>, hint: RecoveryHint) -> Result<ScanReport, OpenError> {
        recover::scan(files, key_of, hint)
    }

    /// Appends a batch and waits until it is at `level`. May sync on this runtime thread; the
    /// runtime moves other tasks elsewhere meanwhile.
    ///
    /// Waits while too many appends are in flight. A caller that stops waiting does not undo the
    /// append.
    ///
    /// Errors: the journal is poisoned, full or closed.
    pub async fn append(&self, batch: AppendBatch, level: Level) -> Result<Appended, AppendError> {
        let role = if level == Level::Synced && can_block() { Role::Blocking } else { Role::Inline };
        let (appending, duty) = self.submit(batch, level, role).await?;
        if let Some(duty) = duty {
            // There is no await before this, because other callers may be waiting for this sync.
            block_in_place(|| duty.sync());
        }
        appending.done().await
    }

    /// Queues a batch after all earlier ones and returns; [`Appending::done`] waits. The batch is
    /// written and synced while the caller continues.
    ///
    /// Errors: the journal is poisoned or closed.
    pub async fn begin_append(&self, batch: AppendBatch, level: Level) -> Result<Appending, AppendError> {
        Ok(self.submit(batch, level, Role::Pipelined).await?.0)
    }

    /// Submits a batch to the group commit and leads if there is no leader. Returns the sync that
    /// the caller then has to do.
    async fn submit(
        &self,
        batch: AppendBatch,
        level: Level,
        role: Role,
    ) -> Result<(Appending, Option<SyncDuty>), AppendError> {
        if let Some(poisoned) = self.poisoned() {
            return Err(poisoned.into());
        }
        let permits = match level {
            Level::Written => &self.inner.written_permits,
            Level::Synced => &self.inner.synced_permits,
        };
        let permit = Arc::clone(permits).acquire_owned().await.map_err(|_| AppendError::Closed)?;
        let (reply, answer) = oneshot::channel();
        let append = Command::Append(Append { batch, level, reply, permit });
        let duty = self.inner.group.submit(append, role).map_err(|_| AppendError::Closed)?;
        Ok((Appending { answer }, duty))
    }

    /// Waits until the consumer's lag allows it, appends, and answers at the configured durability.
    ///
    /// A waiting caller holds one batch, so the number of callers bounds the waiting batches.
    ///
    /// Errors: the journal is poisoned, full or closed.
    pub async fn publish(&self, batch: AppendBatch) -> Result<Appended, AppendError> {
        let batch = self.inner.admission.admit(batch, &self.inner.written).await;
        self.append(batch, Level::Synced).await
    }

    /// Waits until the consumer's lag allows it, and queues the batch. The caller can read further
    /// input before it waits for the disk.
    ///
    /// Errors: the journal is poisoned or closed. A full journal is reported by
    /// [`Appending::done`].
    pub async fn begin_publish(&self, batch: AppendBatch) -> Result<Appending, AppendError> {
        let batch = self.inner.admission.admit(batch, &self.inner.written).await;
        self.begin_append(batch, Level::Synced).await
    }

    /// Sets how many records the consumer may be behind; see [`Pace::note`].
    pub fn set_lag_max(&self, records: u64) {
        self.inner.admission.set_lag_max(records);
    }

    /// Sets how many handled notifications sessions have not taken yet. Call it before
    /// [`Self::consumed`], which admits waiting publishers.
    pub fn set_untaken(&self, notifications: u64) {
        self.inner.admission.set_untaken(notifications);
    }

    /// Reports that the consumer has handled everything up to `seq`.
    ///
    /// Shape: all records present when the journal was opened count as handled.
    pub fn consumed(&self, seq: Seq) {
        self.inner.admission.consumed(seq);
    }

    /// Waits until the consumer has handled everything up to `seq`, or the journal is closed.
    pub async fn handled(&self, seq: Seq) {
        self.inner.admission.handled(seq).await;
    }

    /// Number of records that the consumer has not handled yet.
    pub fn lag(&self) -> u64 {
        self.inner.admission.lag(*self.inner.written.borrow())
    }

    /// Requests the remembered idempotency keys, as of all appends before this call.
    ///
    /// Shape: oldest first; at most [`IDEMPOTENCY_KEYS_MAX`]. Appends wait while they are copied,
    /// some 0.2 ms for all. The channel closes without a value if the journal is closed.
    pub fn begin_idempotency_keys(&self) -> oneshot::Receiver<Vec<IdempotencyKey>> {
        let (reply, answer) = oneshot::channel();
        // If the journal is closed the reply is dropped, and the receiver gets an error.
        let _ = self.inner.group.submit(Command::IdempotencyKeys { reply }, Role::Inline);
        answer
    }

    /// Prepares the next file in the background. Call it once, after the start; later files are
    /// prepared automatically.
    ///
    /// Filling 64 MiB keeps the disk busy for some 60 ms (measured). An append that needs the file
    /// earlier waits for it.
    pub fn prepare_next_file(&self) {
        // A closed journal needs no file.
        let _ = self.inner.group.submit(Command::OrderNext, Role::Inline);
    }

    /// Like [`Journal::begin_idempotency_keys`], but blocks the thread; `None` when the journal is
    /// closed.
    pub fn idempotency_keys_blocking(&self) -> Option<Vec<IdempotencyKey>> {
        block_on(async { self.begin_idempotency_keys().await.ok() })
    }

    /// Like [`Journal::append`], but blocks the thread.
    ///
    /// Errors: the journal is poisoned, full or closed.
    pub fn append_blocking(&self, batch: AppendBatch, level: Level) -> Result<Appended, AppendError> {
        block_on(self.append(batch, level))
    }

    /// A reader whose first record is the one at `seq`, or the first of all.
    pub fn read_from(&self, seq: Seq) -> Reader {
        Reader::new(Arc::clone(&self.inner.store), self.inner.written.clone(), seq)
    }

    /// The record at `seq`; `None` when it is not written yet.
    ///
    /// Errors: it was deleted or cannot be read.
    pub fn read_at(&self, seq: Seq) -> Result<Option<RecordBuf>, ReadError> {
        let mut reader = self.read_from(seq);
        let records = reader.next_batch(1)?;
        Ok(records.iter().next().filter(|record| record.seq == seq).map(RecordBuf::from))
    }

    /// The file of the record at `seq` and its offset there, in bytes, before sealing; `None` when
    /// it is not written yet.
    ///
    /// Errors: it was deleted or cannot be read.
    pub fn place_of(&self, seq: Seq) -> Result<Option<(PathBuf, u64)>, ReadError> {
        self.read_from(seq).place_of_next()
    }

    /// The first record that `is_wanted` accepts, in the newest segment that has one.
    ///
    /// Reads the whole journal when there is none: about a quarter of a second per gigabyte. Skips
    /// damaged places and adds them to the journal's health.
    ///
    /// Errors: none was found, and a record cannot be read.
    pub fn find(
        &self,
        mut is_wanted: impl FnMut(Record<'_>) -> bool,
    ) -> Result<Option<RecordBuf>, ReadError> {
        let mut end = self.written().borrow().next();
        let mut unread = None;
        for first in self.inner.store.firsts().into_iter().rev() {
            let mut reader = self.read_from(first);
            while reader.position() < end {
                let left = usize::try_from(end.0 - reader.position().0).unwrap_or(usize::MAX);
                let records = match reader.next_batch(left) {
                    // The segment was deleted meanwhile, and so was everything before it.
                    Err(ReadError::Gone { .. }) => return unread.map_or(Ok(None), Err),
                    Err(error) => {
                        unread.get_or_insert(error);
                        if reader.skip_damaged() {
                            continue;
                        }
                        break;
                    }
                    Ok(records) => records,
                };
                if let Some(found) = records.iter().find(|record| is_wanted(*record)) {
                    return Ok(Some(found.into()));
                }
                if records.is_empty() {
                    break;
                }
            }
            end = end.min(first);
        }
        unread.map_or(Ok(None), Err)
    }

    /// The records called `name` (see [`JournalSettings::names`]) that `is_wanted` accepts, newest
    /// first, at most `most`.
    ///
    /// Compares the names of the newest segment, in memory, and reads some pages of the files of
    /// the others. Records of the newest segment from before the start are read, once. So is a
    /// segment whose file of names is lost, or could not be made.
    ///
    /// Errors: a record cannot be read.
    pub fn find_named(
        &self,
        name: &[u8],
        most: usize,
        is_wanted: impl FnMut(&RecordBuf) -> bool,
    ) -> Result<Vec<RecordBuf>, ReadError> {
        let Running { store, written, recent, .. } = &*self.inner;
        lookup::find(store, written, recent, name, most, is_wanted)
    }

    /// Deletes the segments whose records are all before `seq`, oldest first; returns how many.
    ///
    /// Shape: the segment with the last durable record always stays. A reader in a deleted segment
    /// can read it to its end; a later one gets `ReadError::Gone`.
    ///
    /// Errors: a file cannot be removed. It and the files after it stay; the next call tries again.
    pub fn forget_before(&self, seq: Seq) -> Result<usize, ForgetError> {
        // A following segment with a durable record has its name on the disk, so the one before it
        // is complete.
        self.inner.store.forget_before(seq.min(*self.inner.synced.borrow()))
    }

    /// Allows retention to delete records before `seq`. Until the first call nothing may be
    /// deleted.
    ///
    /// Shape: the last call wins.
    pub fn set_needed_from(&self, seq: Seq) {
        self.inner.store.needed_from.store(seq.0, Ordering::Release);
        self.inner.store.maintenance.ask();
    }

    /// Counts every commit's sync in `meters` from now on; later calls have no effect.
    pub fn measure_with(&self, meters: Arc<Meters>) {
        self.inner.store.meters.get_or_init(|| meters);
    }

    /// The size of the journal on the disk.
    ///
    /// Errors: the size of a file cannot be read.
    pub fn stored(&self) -> io::Result<Stored> {
        self.inner.store.stored()
    }

    /// The last readable record, with later changes.
    pub fn written(&self) -> watch::Receiver<Seq> {
        self.inner.written.clone()
    }

    /// The last durable record, with later changes.
    pub fn synced(&self) -> watch::Receiver<Seq> {
        self.inner.synced.clone()
    }

    /// The failure after which nothing more is appended, if any.
    pub fn poisoned(&self) -> Option<Poisoned> {
        self.inner.store.poisoned()
    }

    /// The space that the next segment needs; `None` unless the disk is full.
    pub fn disk_full(&self) -> Option<DiskFull> {
        self.inner.store.disk_full()
    }

    /// Reports in [`Journal::health`] that a start skipped the record at `seq`.
    pub fn note_skipped(&self, seq: Seq, why: String) {
        self.inner.store.health.note_skipped(seq, why);
    }

    /// Reports in [`Journal::health`] that a start found a snapshot of another journal, now at
    /// `path`.
    pub fn note_unmatched_snapshot(&self, path: PathBuf) {
        self.inner.store.health.note_unmatched_snapshot(path);
    }

    /// Problems that do not stop the journal.
    pub fn health(&self) -> JournalHealth {
        self.inner.store.health.get()
    }

    /// Waits for the journal to be poisoned; forever if it never is.
    pub async fn wait_for_poison(&self) -> Poisoned {
        let mut poison = self.inner.store.poison.subscribe();
        let found = poison.wait_for(Option::is_some).await.map(|poisoned| poisoned.clone());
        match found {
            Ok(Some(poisoned)) => poisoned,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Appends the submitted batches, syncs everything, and ends the threads. Later appends and
    /// publishers that wait for the consumer are refused.
    ///
    /// Errors: the journal is poisoned, so unsynced records may be lost.
    pub async fn close(&self) -> Result<(), Poisoned> {
        self.inner.group.close();
        // An error means that the thread has dropped its end of the channel; joining it logs a
        // panic.
        let _ = self.inner.written.clone().wait_for(|_| false).await;
        let thread = self.inner.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            background::join(thread);
        }
        self.inner.admission.release();
        self.poisoned().map_or(Ok(()), Err)
    }

    /// Like [`Journal::close`], but blocks the thread.
    ///
    /// Errors: the journal is poisoned, so unsynced records may be lost.
    pub fn close_blocking(&self) -> Result<(), Poisoned> {
        block_on(self.close())
    }
}

/// Whether this thread may block: it belongs to a multi-thread runtime, which then moves other
/// tasks.
fn can_block() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls on this thread until the future is ready.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
