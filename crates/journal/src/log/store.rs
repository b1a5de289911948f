//! The files of a journal, shared by its threads and readers: all segments in order, with lookup by
//! position, adding, replacing and deleting; and the state that stops or degrades the journal.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, atomic::AtomicU64,
    },
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    Seq,
    log::{
        files::Files,
        names::{self, NOTED_SEGMENTS_MAX, NameHasher},
        sealed::SealedFile,
        segment::Segment,
        segment_file::{UNFINISHED_NAME, name_of},
    },
    meter::Meters,
    time::Timestamp,
};

/// A segment that could not be deleted.
#[derive(Debug, thiserror::Error)]
#[error("delete {}", path.display())]
pub struct ForgetError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

/// The size of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stored {
    /// The first stored record, which may not be written yet.
    pub first: Seq,
    /// How many segments there are.
    pub segments: usize,
    /// How many of them are sealed.
    pub sealed: usize,
    /// Their size on the disk, in bytes, including preallocated space.
    pub bytes: u64,
    /// The size of the sealed ones on the disk, in bytes.
    pub sealed_bytes: u64,
    /// The size of the sealed ones before sealing, in bytes.
    pub unsealed_bytes: u64,
}

/// The state shared by threads and readers.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) files: Arc<dyn Files>,
    /// In order, without gaps, never empty. Held only for a lookup or an insertion.
    pub(crate) segments: RwLock<Vec<Arc<Segment>>>,
    /// Held while a segment's file is replaced or removed, so that a removed file is not created
    /// again.
    pub(crate) changing_files: Mutex<()>,
    /// The first record that must not be forgotten.
    pub(crate) needed_from: AtomicU64,
    pub(crate) maintenance: MaintenanceSignal,
    pub(crate) full: Mutex<Option<DiskFull>>,
    pub(crate) poison: watch::Sender<Option<Poisoned>>,
    /// The meters of sync durations, once set.
    pub(crate) meters: OnceLock<Arc<Meters>>,
    /// Hashes the names of records, if records are found by names.
    pub(crate) names: OnceLock<NameHasher>,
    pub(crate) health: Health,
}

impl Store {
    /// A store of these segments: in order, without gaps, at least one.
    pub(crate) fn new(files: Arc<dyn Files>, segments: Vec<Arc<Segment>>, clock: &Clock) -> Self {
        Self {
            files,
            segments: RwLock::new(segments),
            changing_files: Mutex::default(),
            needed_from: AtomicU64::new(0),
            maintenance: MaintenanceSignal::default(),
            full: Mutex::default(),
            poison: watch::Sender::new(None),
            meters: OnceLock::new(),
            names: OnceLock::new(),
            health: Health::new(Arc::clone(clock)),
        }
    }

    pub(crate) fn poisoned(&self) -> Option<Poisoned> {
        self.poison.borrow().clone()
    }

    pub(crate) fn disk_full(&self) -> Option<DiskFull> {
        self.full.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that the disk has no space for a segment of `bytes`; logged once.
    pub(crate) fn set_full(&self, bytes: u64, error: &io::Error) {
        let full = DiskFull { folder: self.files.path(""), bytes };
        let before = self.full.lock().unwrap_or_else(PoisonError::into_inner).replace(full.clone());
        if before.is_none() {
            tracing::error!(path = %full.folder.display(), bytes, %error, "the disk is full; events are refused once only the reserve of the present file is left");
            // Retention may free space.
            self.maintenance.ask();
        }
    }

    /// Records that the disk has space again.
    pub(crate) fn set_room(&self) {
        let before = self.full.lock().unwrap_or_else(PoisonError::into_inner).take();
        if before.is_some() {
            tracing::info!("the journal has space again and accepts events");
            // Sealing that failed for lack of space can work now.
            self.maintenance.ask();
        }
    }

    /// Records a failure, unless there was one before; returns the first.
    pub(crate) fn poison(&self, operation: &'static str, name: &str, error: io::Error) -> Poisoned {
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

    pub(crate) fn read_segments(&self) -> RwLockReadGuard<'_, Vec<Arc<Segment>>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the next segment, and frees the memory of the names of one that was not named in time.
    pub(crate) fn add_segment(&self, segment: Arc<Segment>) {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        segments.push(segment);
        if let Some(old) = segments.iter().nth_back(NOTED_SEGMENTS_MAX) {
            old.noted.forget();
        }
    }

    /// The segments that are full and durable, each with the first record of the following one.
    pub(crate) fn full_segments(&self) -> Vec<(Arc<Segment>, Seq)> {
        let segments = self.read_segments();
        let pairs = segments.iter().zip(segments.iter().skip(1));
        let full = pairs.filter(|(_, following)| following.is_named());
        full.map(|(segment, following)| (Arc::clone(segment), following.first)).collect()
    }

    pub(crate) fn firsts(&self) -> Vec<Seq> {
        self.read_segments().iter().map(|segment| segment.first).collect()
    }

    /// The segment that contains `seq`, and the first record of the following one; else the oldest
    /// record.
    pub(crate) fn segment_of(&self, seq: Seq) -> Result<(Arc<Segment>, Option<Seq>), Seq> {
        let segments = self.read_segments();
        let after = segments.partition_point(|segment| segment.first <= seq);
        let segment = after.checked_sub(1).and_then(|at| segments.get(at));
        let following = segments.get(after).map(|segment| segment.first);
        segment.map(|segment| (Arc::clone(segment), following)).ok_or(following.unwrap_or_default())
    }

    pub(crate) fn stored(&self) -> io::Result<Stored> {
        let segments = self.read_segments().clone();
        let first = segments.first().map(|segment| segment.first).unwrap_or_default();
        let mut stored = Stored { first, segments: segments.len(), ..Stored::default() };
        for segment in &segments {
            let bytes = segment.stored_bytes()?;
            stored.bytes += bytes;
            if let Some(seal) = segment.seal() {
                stored.sealed += 1;
                stored.sealed_bytes += bytes;
                stored.unsealed_bytes += seal.end;
            }
        }
        Ok(stored)
    }

    /// Renames the sealed copy to the segment that begins with `first`, unless that segment was
    /// deleted meanwhile.
    pub(crate) fn replace(&self, first: Seq, sealed: SealedFile) -> io::Result<()> {
        let _changing = self.changing_files.lock().unwrap_or_else(PoisonError::into_inner);
        if self.read_segments().iter().all(|segment| segment.first != first) {
            return self.files.remove(UNFINISHED_NAME);
        }
        self.files.rename(UNFINISHED_NAME, &name_of(first))?;
        let sealed = Segment::sealed(sealed);
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = segments.iter_mut().find(|segment| segment.first == first) {
            *place = Arc::new(sealed.with_names_of(place));
        }
        drop(segments);
        self.files.sync_dir()
    }

    /// Deletes the segments whose records are all before `seq`, oldest first; returns how many.
    ///
    /// Errors: the oldest remaining one cannot be deleted. The next call retries it before any
    /// later one.
    pub(crate) fn forget_before(&self, seq: Seq) -> Result<usize, ForgetError> {
        let _changing = self.changing_files.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = 0;
        while let Some(oldest) = self.oldest_before(seq) {
            // One by one, so that no crash leaves a gap. A segment is removed from the list only
            // after its file, so a failure leaves no gap either.
            let removed = match self.files.remove(&oldest.name()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                Ok(()) | Err(_) => {
                    self.take_out(&oldest);
                    count += 1;
                    // One that stays is removed at the next start.
                    self.files.remove(&names::name_of(oldest.first)).ok();
                    self.files.sync_dir()
                }
            };
            if let Err(source) = removed {
                let path = self.files.path(&oldest.name());
                self.health.block_retention(&path, source.to_string());
                return Err(ForgetError { path, source });
            }
        }
        self.health.unblock_retention();
        Ok(count)
    }

    /// The oldest segment, if another one follows that begins at or before `seq`.
    fn oldest_before(&self, seq: Seq) -> Option<Arc<Segment>> {
        let segments = self.read_segments();
        let is_before = segments.get(1).is_some_and(|following| following.first <= seq);
        segments.first().filter(|_| is_before).map(Arc::clone)
    }

    fn take_out(&self, segment: &Segment) {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        segments.retain(|kept| kept.first != segment.first);
    }
}

/// There is no space for the next segment. The journal retries automatically; no appended record is
/// lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the disk is full: the journal needs {bytes} bytes in {} for its next file; until there is space, the remaining room is \
     for exchanges",
    folder.display()
)]
pub struct DiskFull {
    /// The folder of the journal.
    pub folder: PathBuf,
    /// The space that a segment needs, in bytes.
    pub bytes: u64,
}

impl DiskFull {
    /// Whether a file operation failed for lack of space.
    pub(crate) fn is_reason_of(error: &io::Error) -> bool {
        matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

/// A write or sync that failed, after which nothing more is appended.
///
/// After a failed sync the state of the disk is unknown, and a retry may succeed although the bytes
/// were not written.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the journal accepts no records since it failed to {operation} {}", path.display())]
pub struct Poisoned {
    /// The failed operation.
    pub operation: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub source: Arc<io::Error>,
}

/// Most damaged places that are stored; further ones are only counted.
pub const DAMAGED_PLACES_MAX: usize = 16;

/// What to do about damaged records.
pub(crate) const ADVICE: &str =
    "`aside journal verify` lists the damage, `aside journal repair` keeps the valid records";

/// The problems of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournalHealth {
    /// Places that could not be read or sealed, in the order in which they were found; at most
    /// [`DAMAGED_PLACES_MAX`].
    pub damaged: Vec<DamagedPlace>,
    /// Number of further damaged places.
    pub more: u64,
    /// The segment that retention could not delete; nothing is deleted while it is set.
    pub retention_blocked: Option<DamagedPlace>,
    /// The records that the start skipped, and the reasons.
    pub skipped: Vec<(Seq, String)>,
    /// The paths of snapshots that belong to another journal.
    pub unmatched_snapshots: Vec<PathBuf>,
}

/// A problem of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedPlace {
    /// The file.
    pub path: PathBuf,
    /// The offset in it, in bytes, if known.
    pub offset: Option<u64>,
    /// The problem.
    pub what: String,
    /// When it was found.
    pub since: Timestamp,
}

impl JournalHealth {
    /// One sentence per problem, for the user.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences: Vec<String> = self
            .damaged
            .iter()
            .map(|place| match place.offset {
                Some(offset) => {
                    format!("{} is damaged at byte {offset}: {}; {ADVICE}", place.path.display(), place.what)
                }
                None => format!("{}: {}", place.path.display(), place.what),
            })
            .collect();
        if self.more > 0 {
            sentences.push(format!("{} more damaged places of the journal; {ADVICE}", self.more));
        }
        sentences.extend(self.retention_blocked.iter().map(|place| {
            format!(
                "retention deletes nothing, because {} cannot be deleted: {}; retried with the next segment",
                place.path.display(),
                place.what
            )
        }));
        sentences.extend(self.skipped.iter().map(|(seq, why)| {
            format!("the start skipped record {seq}: {why}; it had no effect, and `aside why` of its event says so")
        }));
        sentences.extend(self.unmatched_snapshots.iter().map(|path| {
            format!(
                "the journal lost its end or is an older copy: the snapshot {} is ahead of it and is not used",
                path.display()
            )
        }));
        sentences
    }
}

/// Collects the problems of a running journal that do not stop it, until they are solved or the
/// process ends. Code that finds damage (the sealer thread, a reader) notes it here, so that it is
/// shown and not only logged.
pub(crate) struct Health {
    clock: Clock,
    state: Mutex<JournalHealth>,
}

impl Health {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default() }
    }

    pub(crate) fn get(&self) -> JournalHealth {
        self.lock().clone()
    }

    /// Adds a damaged place, unless it is known; returns whether it is new.
    pub(crate) fn note_damage(&self, path: &Path, offset: Option<u64>, what: String) -> bool {
        let since = (self.clock)();
        let mut state = self.lock();
        if state.damaged.iter().any(|place| place.path == path && place.offset == offset) {
            return false;
        }
        if state.damaged.len() == DAMAGED_PLACES_MAX {
            state.more += 1;
        } else {
            state.damaged.push(DamagedPlace { path: path.to_owned(), offset, what, since });
        }
        true
    }

    /// Notes that a segment cannot be deleted.
    fn block_retention(&self, path: &Path, what: String) {
        let since = (self.clock)();
        let mut state = self.lock();
        let place = DamagedPlace { path: path.to_owned(), offset: None, what, since };
        state.retention_blocked.get_or_insert(place);
    }

    /// Notes that a start skipped a record.
    pub(crate) fn note_skipped(&self, seq: Seq, why: String) {
        self.lock().skipped.push((seq, why));
    }

    /// Notes that a start found a snapshot of another journal.
    pub(crate) fn note_unmatched_snapshot(&self, path: PathBuf) {
        self.lock().unmatched_snapshots.push(path);
    }

    /// Notes that deleting works again.
    fn unblock_retention(&self) {
        self.lock().retention_blocked = None;
    }

    fn lock(&self) -> MutexGuard<'_, JournalHealth> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("state", &self.state).finish_non_exhaustive()
    }
}

/// Wakes the sealer thread, for the journal's other threads.
#[derive(Debug, Default)]
pub(crate) struct MaintenanceSignal {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_asked: bool,
    is_idle: bool,
    is_closing: bool,
}

impl MaintenanceSignal {
    /// Signals that there may be work.
    pub(crate) fn ask(&self) {
        self.lock().is_asked = true;
        self.wake.notify_all();
    }

    /// Makes the thread end.
    pub(crate) fn close(&self) {
        self.lock().is_closing = true;
        self.wake.notify_all();
    }

    /// Waits for work; returns false when the journal is closed.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.lock();
        state.is_idle = true;
        self.wake.notify_all();
        let is_calm = |state: &mut State| !state.is_asked && !state.is_closing;
        let mut state = self.wake.wait_while(state, is_calm).unwrap_or_else(PoisonError::into_inner);
        (state.is_asked, state.is_idle) = (false, false);
        !state.is_closing
    }

    /// Pauses for `duration`; returns whether to continue.
    pub(crate) fn pause(&self, duration: Duration) -> bool {
        let is_open = |state: &mut State| !state.is_closing;
        let waited = self.wake.wait_timeout_while(self.lock(), duration, is_open);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_closing
    }

    /// Waits until all work is done.
    #[cfg(test)]
    pub(crate) fn wait_until_idle(&self) {
        let is_busy = |state: &mut State| (state.is_asked || !state.is_idle) && !state.is_closing;
        drop(self.wake.wait_while(self.lock(), is_busy).unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the time; a time before the last one is not used.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        log::{files::Files, memory::Operation},
        testing::*,
    };

    #[test]
    fn undeletable_segment_keeps_later_ones_until_retry() {
        let files = filled(40, false);
        let names = files.list().expect("listed");
        let journal = open(&files).journal;
        files.fail(Operation::Remove, &names[0], 2, io::ErrorKind::PermissionDenied);
        for _ in 0..2 {
            let error = journal.forget_before(Seq(40)).expect_err("it cannot be deleted");
            assert!(error.path.ends_with(&names[0]), "{error}");
            assert_eq!(files.list().expect("listed").first(), names.first());
            let blocked = journal.health().retention_blocked.expect("said");
            assert!(blocked.path.ends_with(&names[0]), "{blocked:?}");
            assert_eq!(read_all(&journal, Seq(1)).len(), 40);
        }
        assert!(journal.forget_before(Seq(40)).expect("deleted") > 2);
        assert_eq!(journal.health().retention_blocked, None);
        journal.close_blocking().expect("closed");
        assert_eq!(open(&files).last_seq, Seq(40));
    }

    #[test]
    fn start_after_a_failed_deletion_finds_no_gap() {
        let files = filled(40, false);
        let names = files.list().expect("listed");
        let journal = open(&files).journal;
        files.fail(Operation::Remove, &names[0], 1, io::ErrorKind::PermissionDenied);
        assert!(journal.forget_before(Seq(40)).is_err());
        journal.close_blocking().expect("closed");
        assert_eq!(numbers(&open(&files).journal), (1..=40).collect::<Vec<_>>());
    }

    #[test]
    fn repair_is_advised_only_for_damage_with_offset() {
        let health = Health::new(Arc::new(|| Timestamp::from_millis(7)));
        health.note_damage(Path::new("a.seg"), Some(30), "bad".to_owned());
        health.note_damage(Path::new("b.seg"), None, "no thread".to_owned());
        let expected = [format!("a.seg is damaged at byte 30: bad; {ADVICE}"), "b.seg: no thread".to_owned()];
        assert_eq!(health.get().sentences(), expected);
    }

    #[test]
    fn damaged_places_are_deduplicated_and_bounded() {
        let health = Health::new(Arc::new(|| Timestamp::from_millis(7)));
        assert_eq!(health.get(), JournalHealth::default());
        let path = Path::new("a.seg");
        for _ in 0..2 {
            health.note_damage(path, Some(30), "bad".to_owned());
        }
        let place = DamagedPlace {
            path: path.to_owned(),
            offset: Some(30),
            what: "bad".to_owned(),
            since: Timestamp::from_millis(7),
        };
        assert_eq!(health.get().damaged, [place]);
        for offset in 0..20 {
            health.note_damage(path, Some(offset), "bad".to_owned());
        }
        health.block_retention(path, "no".to_owned());
        let found = health.get();
        assert_eq!((found.damaged.len(), found.more), (DAMAGED_PLACES_MAX, 5));
        assert_eq!(found.sentences().len(), DAMAGED_PLACES_MAX + 2);
        health.unblock_retention();
        assert_eq!(health.get().retention_blocked, None);
    }
}
