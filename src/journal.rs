//! The one truth: an append-only, checksummed log of every input, and the only order and time there is.
//!
//! A record is a kind, a position without gaps, a time that never steps back, and a body that the journal does not
//! interpret. Records lie in segment files. One write takes all that waits, one sync makes it durable for all who asked for
//! that, and writing goes on meanwhile. Readers own their positions, read files, and follow.
//!
//! What it promises: an append answered at [`Level::Synced`] survives a power loss, one at [`Level::Written`] the death of
//! the process; a reader sees a record as soon as its append is answered. After a failed write or sync nothing more is
//! appended, and reading goes on. It does not know the engine, the protocol, or who reads.

pub mod files;
pub mod memory;
pub mod record;

mod admission;
mod append;
mod cursor;
mod flusher;
mod health;
mod idempotency;
mod mark;
mod next_file;
mod packed;
mod pinned;
mod preface;
mod reader;
mod recover;
mod repair;
mod retention;
mod salvage;
mod sealer;
mod segment;
mod segments;
mod start;
#[cfg(test)]
mod testing;
mod turns;
mod verify;
#[cfg(test)]
mod walk;
mod writer;

use std::{
    io,
    path::PathBuf,
    pin::pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, JoinHandle, Thread},
    time::Duration,
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{Semaphore, oneshot, watch},
    task::block_in_place,
};

use crate::{event::Seq, meter::Meters, time::Timestamp};

use self::{
    admission::Admission,
    files::Files,
    flusher::{Commits, SyncTurn},
    health::Health,
    sealer::Sealing,
    segment::Segment,
    turns::{Turns, Who},
    writer::{Append, Command},
};

pub use self::{
    admission::Pace,
    append::{AppendBatch, AppendError, Appended, BodyTooLarge, DiskFull, Level, Outcome, Poisoned},
    health::{DAMAGED_PLACES_MAX, DamagedPlace, JournalHealth},
    idempotency::{IDEMPOTENCY_KEYS_MAX, IdempotencyKey, IdempotencyKeys},
    packed::SealDamage,
    pinned::{Part, PartReader, Pinned},
    reader::{Closed, ReadError, Reader, RecordBuf, Records},
    record::{Record, RecordKind},
    recover::{Cut, KeyOf, OpenError, RecoveryHint, ScanReport},
    repair::{Filler, RepairError, Repaired, repair},
    retention::Retention,
    salvage::FoundDamage,
    segments::{ForgetError, Stored},
    verify::{Finding, Verified, VerifyError, verify},
};

/// How large a segment is, in bytes, unless set otherwise.
///
/// Source: opening and pruning work by segment; at 400 bytes an event this is about 160,000 of them.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// How long what nobody waits for stays unsynced, unless set otherwise: what a power loss may take of the exchanges.
///
/// Source: a sync takes 0.1 to 5 ms of a thread that nobody waits for, so one a second is no load; Redis' `everysec` is the same.
pub const SYNC_WITHIN: Duration = Duration::from_secs(1);

/// How many appends of one level are under way at once; the one after waits, which those of the other level do not notice.
const IN_FLIGHT_MAX: usize = 4_096;

/// Reads the time; what it says is used only where it does not step back.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// When what is written is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Before an append at [`Level::Synced`] is answered.
    Sync,
    /// Later: every append is answered before, so a power loss can take what is younger than `sync_within`.
    Interval,
}

/// How the journal is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalSettings {
    /// How large a segment is; a record that is larger gets one of its own.
    pub segment_bytes: u64,
    /// When what is written is made durable.
    pub durability: Durability,
    /// How long what is written stays unsynced when nobody waits for a sync.
    pub sync_within: Duration,
    /// Whether full segments are packed in the background; those that are not are read through at every start.
    pub compress: bool,
    /// What is deleted of that which nobody needs, see [`Journal::set_needed_from`].
    pub retention: Retention,
    /// The kind of record that every segment begins with: the newest one is written again in front of each, so that a
    /// reader of any of them knows it. `None` for no such kind.
    pub preface: Option<RecordKind>,
}

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
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    turns: Arc<Turns>,
    commits: Arc<Commits>,
    written_permits: Arc<Semaphore>,
    synced_permits: Arc<Semaphore>,
    admission: Admission,
    written: watch::Receiver<Seq>,
    synced: watch::Receiver<Seq>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the threads and the readers have in common.
#[derive(Debug)]
struct Shared {
    files: Arc<dyn Files>,
    /// In order, without gaps, never empty. Held only to look something up or to add one.
    segments: RwLock<Vec<Arc<Segment>>>,
    /// Held while a segment's file is replaced or removed, so that none that was removed comes back.
    changing_files: Mutex<()>,
    /// The first record that must not be forgotten.
    needed_from: AtomicU64,
    sealing: Sealing,
    full: Mutex<Option<DiskFull>>,
    poison: watch::Sender<Option<Poisoned>>,
    /// Where it is counted how long syncs take, once somebody wants that.
    meters: OnceLock<Arc<Meters>>,
    health: Health,
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES,
            durability: Durability::Sync,
            sync_within: SYNC_WITHIN,
            compress: true,
            retention: Retention::default(),
            preface: None,
        }
    }
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
        let who = if level == Level::Synced && can_block() { Who::Waiting } else { Who::Passing };
        let (appending, has_to_sync) = self.hand_over(batch, level, who).await?;
        if has_to_sync {
            // Nothing is waited for in between: others may be waiting for this sync.
            let turn = SyncTurn::new(&self.inner.commits);
            block_in_place(|| turn.sync());
        }
        appending.done().await
    }

    /// Gives a batch its place behind all that was begun before, and leaves the waiting to [`Appending::done`]; it is written
    /// and synced while its caller goes on.
    ///
    /// Errors: the journal is poisoned or closed.
    pub async fn begin_append(&self, batch: AppendBatch, level: Level) -> Result<Appending, AppendError> {
        Ok(self.hand_over(batch, level, Who::Reading).await?.0)
    }

    /// Hands a batch over, and writes it with what others appended meanwhile, unless somebody does already; says whether the
    /// caller has to sync.
    async fn hand_over(
        &self,
        batch: AppendBatch,
        level: Level,
        who: Who,
    ) -> Result<(Appending, bool), AppendError> {
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
        let has_to_sync = self.inner.turns.hand_over(append, who).map_err(|_| AppendError::Closed)?;
        Ok((Appending { answer }, has_to_sync))
    }

    /// Asks for the idempotency keys that are remembered after everything that was begun before.
    ///
    /// Shape: oldest first; at most [`IDEMPOTENCY_KEYS_MAX`]. Appends wait while they are copied, some 0.2 ms for all. Nothing comes
    /// if the journal is closed.
    pub fn begin_idempotency_keys(&self) -> oneshot::Receiver<Vec<IdempotencyKey>> {
        let (reply, answer) = oneshot::channel();
        // If it is closed the reply is dropped, which is what the other end is to see.
        let _ = self.inner.turns.hand_over(Command::IdempotencyKeys { reply }, Who::Passing);
        answer
    }

    /// Has the next file prepared in the background; to be called once, when the start is over. Later files are prepared by themselves.
    ///
    /// Filling 64 MiB keeps the disk busy for some 60 ms (measured). Appends that need the file before it is there wait for it.
    pub fn prepare_next_file(&self) {
        // A closed journal needs none.
        let _ = self.inner.turns.hand_over(Command::OrderNext, Who::Passing);
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
        self.inner.shared.sealing.ask();
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
        self.inner.turns.close();
        // An error says that the thread has ended, and joining it says why.
        let _ = self.inner.written.clone().wait_for(|_| false).await;
        let thread = self.inner.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            start::join(thread);
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

impl Drop for Inner {
    fn drop(&mut self) {
        self.turns.close();
    }
}

impl Shared {
    fn poisoned(&self) -> Option<Poisoned> {
        self.poison.borrow().clone()
    }

    fn disk_full(&self) -> Option<DiskFull> {
        self.full.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says that the disk has no space for a segment of `bytes`; told to the log once.
    fn set_full(&self, bytes: u64, error: &io::Error) {
        let full = DiskFull { folder: self.files.path(""), bytes };
        let before = self.full.lock().unwrap_or_else(PoisonError::into_inner).replace(full.clone());
        if before.is_none() {
            tracing::error!(path = %full.folder.display(), bytes, %error, "the disk is full; events are refused until there is space");
            // What is too old may make room.
            self.sealing.ask();
        }
    }

    /// Says that there was space.
    fn set_room(&self) {
        let before = self.full.lock().unwrap_or_else(PoisonError::into_inner).take();
        if before.is_some() {
            tracing::info!("the journal has space again and goes on");
            // What could not be packed for want of space can be now.
            self.sealing.ask();
        }
    }

    /// Remembers a failure, unless there was one before; returns the first.
    fn poison(&self, operation: &'static str, name: &str, error: io::Error) -> Poisoned {
        let poisoned = Poisoned { operation, path: self.files.path(name), source: Arc::new(error) };
        let is_first = self.poison.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert_with(|| poisoned.clone());
            is_first
        });
        if is_first {
            tracing::error!(operation, path = %poisoned.path.display(), error = %poisoned.source, "the journal is poisoned");
        }
        self.poisoned().unwrap_or(poisoned)
    }
}

/// Whether this thread is one of a runtime that has others do its work while it blocks.
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
fn block_on<F: Future>(future: F) -> F::Output {
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
