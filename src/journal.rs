//! The one truth: an append-only, checksummed log of every input, and the only order and time there is.
//!
//! A record is a kind, a position without gaps, a time that never steps back, and a body that the journal does not
//! interpret. Records lie in segment files. One write takes all that waits, one sync makes it durable for all who asked for
//! that, and writing goes on meanwhile. Readers own their positions, read files, and follow.
//!
//! What it promises: an append answered at [`Level::Synced`] survives a power loss, one at [`Level::Written`] the death of
//! the process; a reader sees a record as soon as its append is answered. After a failed write or sync nothing more is
//! appended, and reading goes on. It does not know the engine, the protocol, or who reads.

mod blocking;
mod commit;
mod log;
mod maintenance;
mod settings;
mod start;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod walk;

use std::{
    io,
    path::PathBuf,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use tokio::{
    sync::{oneshot, watch},
    task::block_in_place,
};

use crate::{background, event::Seq, meter::Meters, time::Timestamp};

use self::{
    blocking::{block_on, can_block},
    commit::{
        role::Role,
        sync::SyncDuty,
        writer::{Append, Command},
    },
    log::recover,
    start::Running,
};

pub use self::{
    commit::{
        admission::Pace,
        append::{AppendBatch, AppendError, Appended, BodyTooLarge, Level, Outcome},
    },
    log::{
        clock::Clock,
        failure::{DiskFull, Poisoned},
        files::{self, Files},
        health::{DAMAGED_PLACES_MAX, DamagedPlace, JournalHealth},
        idempotency::{IDEMPOTENCY_KEYS_MAX, IdempotencyKey, IdempotencyKeys},
        memory,
        reader::{Closed, ReadError, Reader, RecordBuf, Records},
        record::{self, Record, RecordKind},
        recover::{Cut, KeyOf, OpenError, RecoveryHint, ScanReport},
        salvage::FoundDamage,
        sealed::SealDamage,
        store::{ForgetError, Stored},
    },
    maintenance::{
        pinned::{Part, PartReader, Pinned},
        repair::{Filler, RepairError, Repaired, repair},
        retention::Retention,
        verify::{Finding, Verified, VerifyError, verify},
    },
    settings::{Durability, JournalSettings, SEGMENT_BYTES, SYNC_WITHIN},
};

/// A journal that was opened, and what was found.
#[derive(Debug)]
pub struct Opened {
    /// The journal.
    pub journal: Journal,
    /// The torn ends that were cut off: of the last segment, and of the file that was to follow it.
    pub cuts: Vec<Cut>,
    /// The last record; [`Seq::ZERO`] when there is none.
    pub last_seq: Seq,
    /// Its time.
    pub last_time: Timestamp,
}

/// A batch on its way into the journal. Dropping it does not undo the append.
#[derive(Debug)]
pub struct Appending {
    answer: oneshot::Receiver<Result<Appended, AppendError>>,
}

/// A handle of a running journal.
///
/// Cloning gives another handle. When the last one is dropped the journal closes by itself, but only [`Journal::close`] says
/// when that is done.
#[derive(Debug, Clone)]
pub struct Journal {
    inner: Arc<Running>,
}

impl Appending {
    /// Waits until the batch is at the level that was asked for.
    ///
    /// Errors: the journal is poisoned or closed.
    pub async fn done(self) -> Result<Appended, AppendError> {
        self.answer.await.map_err(|_| AppendError::Closed)?
    }
}

impl Journal {
    /// Opens the journal in a folder, or begins one there, and starts its threads.
    ///
    /// `key_of` tells the idempotency key of a record, if it has one; it is asked for the newest records, until as many keys
    /// are found as are remembered.
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

    /// Opens a journal that was scanned, with the idempotency keys of the records up to those that were known.
    ///
    /// Errors: see [`OpenError`]; nothing was changed unless a file operation failed.
    pub fn open_scanned(
        files: Arc<dyn Files>,
        settings: JournalSettings,
        clock: Clock,
        report: ScanReport,
        keys: IdempotencyKeys,
    ) -> Result<Opened, OpenError> {
        let (running, found) = Running::start(files, settings, clock, report, keys)?;
        let journal = Self { inner: Arc::new(running) };
        Ok(Opened { journal, cuts: found.cuts, last_seq: found.last, last_time: found.time })
    }

    /// Scans the folder of a journal, the first step of [`Journal::open`], so that what is known can be compared with it.
    ///
    /// `key_of` is asked for records after [`RecoveryHint::keys_upto`] only.
    ///
    /// Errors: see [`OpenError`]; nothing is changed in any case.
    pub fn scan(files: &dyn Files, key_of: &KeyOf<'_>, hint: RecoveryHint) -> Result<ScanReport, OpenError> {
        recover::scan(files, key_of, hint)
    }

    /// Appends a batch and waits until it is at `level`; may sync on this thread of a runtime, which others replace meanwhile.
    ///
    /// Waits while too much is under way. A caller that stops waiting does not undo the append.
    ///
    /// Errors: the journal is poisoned or closed.
    pub async fn append(&self, batch: AppendBatch, level: Level) -> Result<Appended, AppendError> {
        let role = if level == Level::Synced && can_block() { Role::Blocking } else { Role::Inline };
        let (appending, duty) = self.submit(batch, level, role).await?;
        if let Some(duty) = duty {
            // Nothing is waited for in between: others may be waiting for this sync.
            block_in_place(|| duty.sync());
        }
        appending.done().await
    }

    /// Gives a batch its place behind all that was begun before, and leaves the waiting to [`Appending::done`]; it is written
    /// and synced while its caller goes on.
    ///
    /// Errors: the journal is poisoned or closed.
    pub async fn begin_append(&self, batch: AppendBatch, level: Level) -> Result<Appending, AppendError> {
        Ok(self.submit(batch, level, Role::Pipelined).await?.0)
    }

    /// Submits a batch to the group commit, and leads it unless somebody does; returns the sync that the caller then owes.
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

    /// Waits until the consumer is near, appends, and answers when the batch is as durable as is set.
    ///
    /// A caller that waits holds one batch, so what waits is bounded by the number of callers.
    ///
    /// Errors: the journal is poisoned, full or closed.
    pub async fn publish(&self, batch: AppendBatch) -> Result<Appended, AppendError> {
        let batch = self.inner.admission.admit(batch, &self.inner.written).await;
        self.append(batch, Level::Synced).await
    }

    /// Waits until the consumer is near and gives the batch its place; who has more to read meanwhile waits for the disk later.
    ///
    /// Errors: the journal is poisoned or closed; that it is full is said when the batch is waited for.
    pub async fn begin_publish(&self, batch: AppendBatch) -> Result<Appending, AppendError> {
        let batch = self.inner.admission.admit(batch, &self.inner.written).await;
        self.begin_append(batch, Level::Synced).await
    }

    /// Says how many records the consumer may be behind from now on; see [`Pace::note`].
    pub fn set_lag_max(&self, records: u64) {
        self.inner.admission.set_lag_max(records);
    }

    /// Says how many notifications sessions have yet to take, of what the consumer has handled; before [`Self::consumed`], which
    /// admits those that wait.
    pub fn set_untaken(&self, notifications: u64) {
        self.inner.admission.set_untaken(notifications);
    }

    /// Says that the consumer has handled everything up to `seq`.
    ///
    /// Shape: all that was there when the journal was opened counts as handled.
    pub fn consumed(&self, seq: Seq) {
        self.inner.admission.consumed(seq);
    }

    /// Waits until the consumer has handled everything up to `seq`, or the journal is closed.
    pub async fn handled(&self, seq: Seq) {
        self.inner.admission.handled(seq).await;
    }

    /// How many records the consumer has yet to handle.
    pub fn lag(&self) -> u64 {
        self.inner.admission.lag(*self.inner.written.borrow())
    }

    /// Asks for the idempotency keys that are remembered after everything that was begun before.
    ///
    /// Shape: oldest first; at most [`IDEMPOTENCY_KEYS_MAX`]. Appends wait while they are copied, some 0.2 ms for all. Nothing comes
    /// if the journal is closed.
    pub fn begin_idempotency_keys(&self) -> oneshot::Receiver<Vec<IdempotencyKey>> {
        let (reply, answer) = oneshot::channel();
        // If it is closed the reply is dropped, which is what the other end is to see.
        let _ = self.inner.group.submit(Command::IdempotencyKeys { reply }, Role::Inline);
        answer
    }

    /// Has the next file prepared in the background; to be called once, when the start is over. Later files are prepared by themselves.
    ///
    /// Filling 64 MiB keeps the disk busy for some 60 ms (measured). Appends that need the file before it is there wait for it.
    pub fn prepare_next_file(&self) {
        // A closed journal needs none.
        let _ = self.inner.group.submit(Command::OrderNext, Role::Inline);
    }

    /// Does what [`Journal::begin_idempotency_keys`] does and waits, blocking the thread; `None` when the journal is closed.
    pub fn idempotency_keys_blocking(&self) -> Option<Vec<IdempotencyKey>> {
        block_on(async { self.begin_idempotency_keys().await.ok() })
    }

    /// Does what [`Journal::append`] does, blocking the thread.
    ///
    /// Errors: the journal is poisoned or closed.
    pub fn append_blocking(&self, batch: AppendBatch, level: Level) -> Result<Appended, AppendError> {
        block_on(self.append(batch, level))
    }

    /// A reader whose first record is the one at `seq`, or the first of all.
    pub fn read_from(&self, seq: Seq) -> Reader {
        Reader::new(Arc::clone(&self.inner.shared), self.inner.written.clone(), seq)
    }

    /// The record at `seq`; `None` when it is not written yet.
    ///
    /// Errors: it is gone or cannot be read.
    pub fn read_at(&self, seq: Seq) -> Result<Option<RecordBuf>, ReadError> {
        let mut reader = self.read_from(seq);
        let records = reader.next_batch(1)?;
        Ok(records.iter().next().filter(|record| record.seq == seq).map(RecordBuf::from))
    }

    /// The first record that `is_wanted` takes, in the newest segment that has one.
    ///
    /// Reads everything when there is none: about a quarter of a second a gigabyte. Passes over damaged places, which the
    /// journal's health then names.
    ///
    /// Errors: none was found, and a record cannot be read.
    pub fn find(
        &self,
        mut is_wanted: impl FnMut(Record<'_>) -> bool,
    ) -> Result<Option<RecordBuf>, ReadError> {
        let mut end = self.written().borrow().next();
        let mut unread = None;
        for first in self.inner.shared.firsts().into_iter().rev() {
            let mut reader = self.read_from(first);
            while reader.position() < end {
                let left = usize::try_from(end.0 - reader.position().0).unwrap_or(usize::MAX);
                let records = match reader.next_batch(left) {
                    // It was deleted meanwhile, and so was everything before it.
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

    /// Deletes the segments all of whose records are before `seq`, oldest first; returns how many.
    ///
    /// Shape: the segment with the last durable record always stays. A reader that is in a deleted segment reads it to its
    /// end; one that comes later gets `ReadError::Gone`.
    ///
    /// Errors: a file cannot be removed; it and what follows it stay, and the next call tries again.
    pub fn forget_before(&self, seq: Seq) -> Result<usize, ForgetError> {
        // A following segment with a durable record has its name, and so has the one before it.
        self.inner.shared.forget_before(seq.min(*self.inner.synced.borrow()))
    }

    /// Says that no record before `seq` is needed any more, so that retention may delete it; nothing may be until this is called.
    ///
    /// Shape: the last call holds.
    pub fn set_needed_from(&self, seq: Seq) {
        self.inner.shared.needed_from.store(seq.0, Ordering::Release);
        self.inner.shared.maintenance.ask();
    }

    /// Has every commit's sync counted in `meters` from now on; the first call holds.
    pub fn measure_with(&self, meters: Arc<Meters>) {
        self.inner.shared.meters.get_or_init(|| meters);
    }

    /// What there is on the disk.
    ///
    /// Errors: the size of a file cannot be read.
    pub fn stored(&self) -> io::Result<Stored> {
        self.inner.shared.stored()
    }

    /// The last record that can be read, as it moves.
    pub fn written(&self) -> watch::Receiver<Seq> {
        self.inner.written.clone()
    }

    /// The last record that survives a power loss, as it moves.
    pub fn synced(&self) -> watch::Receiver<Seq> {
        self.inner.synced.clone()
    }

    /// The failure after which nothing more is appended, if there was one.
    pub fn poisoned(&self) -> Option<Poisoned> {
        self.inner.shared.poisoned()
    }

    /// What is missing for the next segment, while the disk is full.
    pub fn disk_full(&self) -> Option<DiskFull> {
        self.inner.shared.disk_full()
    }

    /// Remembers for [`Journal::health`] that a start skipped the record at `seq`.
    pub fn note_skipped(&self, seq: Seq, why: String) {
        self.inner.shared.health.note_skipped(seq, why);
    }

    /// Remembers for [`Journal::health`] that a start found a snapshot of another journal, now at `path`.
    pub fn note_unmatched_snapshot(&self, path: PathBuf) {
        self.inner.shared.health.note_unmatched_snapshot(path);
    }

    /// What is wrong and does not stop the journal.
    pub fn health(&self) -> JournalHealth {
        self.inner.shared.health.get()
    }

    /// Waits for such a failure; forever if there is none.
    pub async fn wait_for_poison(&self) -> Poisoned {
        let mut poison = self.inner.shared.poison.subscribe();
        let found = poison.wait_for(Option::is_some).await.map(|poisoned| poisoned.clone());
        match found {
            Ok(Some(poisoned)) => poisoned,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Appends what was handed over, syncs everything, and ends the threads; later appends are refused, as are those that wait for
    /// the consumer.
    ///
    /// Errors: the journal is poisoned, so what was not synced may be lost.
    pub async fn close(&self) -> Result<(), Poisoned> {
        self.inner.group.close();
        // An error says that the thread has ended, and joining it says why.
        let _ = self.inner.written.clone().wait_for(|_| false).await;
        let thread = self.inner.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            background::join(thread);
        }
        self.inner.admission.release();
        self.poisoned().map_or(Ok(()), Err)
    }

    /// Does what [`Journal::close`] does, blocking the thread.
    ///
    /// Errors: the journal is poisoned, so what was not synced may be lost.
    pub fn close_blocking(&self) -> Result<(), Poisoned> {
        block_on(self.close())
    }
}
