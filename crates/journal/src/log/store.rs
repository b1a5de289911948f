//! The files of a journal, shared by its threads and readers: all segments in order, with lookup by
//! position, adding, replacing and deleting; and the state that stops or degrades the journal.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, atomic::AtomicU64},
};

use tokio::sync::watch;

use crate::{
    Seq,
    log::{
        clock::Clock,
        failure::{DiskFull, Poisoned},
        files::Files,
        health::Health,
        maintenance_signal::MaintenanceSignal,
        names::{self, NameHasher},
        noted::NOTED_SEGMENTS_MAX,
        sealed::SealedFile,
        segment::Segment,
        segment_file::{UNFINISHED_NAME, name_of},
    },
    meter::Meters,
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
}

impl Store {
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

#[cfg(test)]
mod tests {
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
}
