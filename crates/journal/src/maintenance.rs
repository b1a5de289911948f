//! Maintenance of files: sealing, names and retention on a background thread, in this file; copies,
//! verification and repair at a caller's request.
//!
//! The thread works in short steps and pauses, so that a burst of appends gets the processor; no
//! caller waits for it. A sealed segment takes the name of the original in one rename, so a crash
//! leaves one of the two. A reader of the old file reads it to its end. A segment that cannot be
//! sealed stays unsealed, and is reported. The thread also makes the files of names of full segments.

pub(crate) mod pinned;
pub(crate) mod repair;
#[cfg(test)]
mod tests;
pub(crate) mod verify;

use std::{
    collections::BTreeSet,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    Seq, background,
    log::{
        cursor::{Cursor, Step},
        files::Files,
        names::{self, Identity, NameHasher},
        reader::{ReadError, Reader},
        sealed::{SealWriter, SealedFile},
        segment::Segment,
        segment_file::{self, HEADER_BYTES, UNFINISHED_NAME},
        store::{ADVICE, Clock, DiskFull, Store},
    },
    lookup::read_names,
    settings::{Forgettable, Full, Retention},
    time::Timestamp,
};

/// How many blocks are sealed before a pause: about a millisecond of work.
const BLOCKS_AT_ONCE: u32 = 8;

/// The length of a pause: the thread then takes about a third of a processor, and seals more than
/// 100 MB a second.
const PAUSE: Duration = Duration::from_millis(2);

/// The thread that seals and deletes.
pub(crate) struct Sealer {
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Clock,
    pub(crate) synced: watch::Receiver<Seq>,
    pub(crate) seal: bool,
    pub(crate) retention: Retention,
    /// The first records of segments that cannot be sealed.
    pub(crate) given_up: BTreeSet<Seq>,
    /// When a segment was last deleted for its age.
    pub(crate) aged_at: Option<Timestamp>,
    pub(crate) namer: Namer,
}

impl Sealer {
    /// Runs until the journal is closed.
    pub(crate) fn run(mut self) {
        background::lower_priority(background::LOWEST);
        while self.store.maintenance.wait() {
            // Out of memory can surface as a panic; unfinished work is retried at the next signal.
            if catch_unwind(AssertUnwindSafe(|| self.work())).is_err() {
                tracing::error!("sealing failed; it is retried");
                self.store.files.remove(UNFINISHED_NAME).ok();
            }
        }
    }

    /// Deletes, writes names and seals until there is no work, or the journal closes.
    fn work(&mut self) {
        self.forget();
        // Names first and after each segment: they are in memory until the file has them.
        while self.namer.work(&self.store, PAUSE)
            && let Some((segment, following)) = self.next_full()
        {
            match self.seal(&segment, following) {
                Ok(true) => self.forget(),
                Ok(false) => return,
                // Retried after the next segment, or when there is space again.
                Err(error)
                    if DiskFull::is_reason_of(&error) || error.kind() == io::ErrorKind::OutOfMemory =>
                {
                    return;
                }
                Err(error) => {
                    let path = self.store.files.path(&segment.name());
                    tracing::warn!(path = %path.display(), %error, "sealing a segment of the journal failed");
                    let is_damaged = error.kind() == io::ErrorKind::InvalidData;
                    let advice = if is_damaged { format!("; {ADVICE}") } else { String::new() };
                    self.store.health.note_damage(&path, None, format!("sealing it failed: {error}{advice}"));
                    self.given_up.insert(segment.first);
                }
            }
        }
    }

    /// The oldest segment to seal, and the first record of the one after it.
    fn next_full(&self) -> Option<(Arc<Segment>, Seq)> {
        if !self.seal {
            return None;
        }
        let is_wanted =
            |segment: &Segment| segment.seal().is_none() && !self.given_up.contains(&segment.first);
        self.store.full_segments().into_iter().find(|(segment, _)| is_wanted(segment))
    }

    /// Replaces a segment with its sealed copy; returns false if the journal closes first.
    fn seal(&self, segment: &Segment, following: Seq) -> io::Result<bool> {
        let mut blocks = 0;
        let go_on = || {
            blocks += 1;
            blocks % BLOCKS_AT_ONCE != 0 || self.store.maintenance.pause(PAUSE)
        };
        let files = self.store.files.as_ref();
        let sealed = seal(files, segment, following, go_on);
        if !matches!(sealed, Ok(Some(_))) {
            // If this fails, the file takes space until the next start. The first failure is
            // reported in any case.
            files.remove(UNFINISHED_NAME).ok();
        }
        sealed?.map_or(Ok(false), |sealed| self.store.replace(segment.first, sealed).map(|()| true))
    }

    /// Deletes segments that are too old or exceed the size limit.
    fn forget(&mut self) {
        if self.retention == Retention::default() {
            return;
        }
        let now = (self.clock)();
        let Forgettable { before, by_age } = match self.forgettable(now) {
            Ok(forgettable) => forgettable,
            Err(error) => {
                tracing::warn!(%error, "the size of the journal is not known, so none of it is deleted");
                return;
            }
        };
        match self.store.forget_before(before.min(*self.synced.borrow())) {
            Ok(0) => {}
            Ok(segments) => {
                if by_age {
                    self.aged_at = Some(now);
                }
                tracing::info!(segments, %before, "deleted the oldest segments of the journal");
            }
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "a segment of the journal could not be deleted");
            }
        }
    }

    fn forgettable(&self, now: Timestamp) -> io::Result<Forgettable> {
        let segments = self.store.read_segments().clone();
        let sizes = segments.iter().map(|segment| segment.stored_bytes()).collect::<io::Result<Vec<_>>>()?;
        let full: Vec<Full> = segments
            .iter()
            .zip(segments.iter().skip(1))
            .zip(&sizes)
            .map(|((segment, following), bytes)| Full {
                following: following.first,
                time: segment.time(),
                bytes: *bytes,
            })
            .collect();
        let needed = Seq(self.store.needed_from.load(Ordering::Acquire));
        Ok(self.retention.forgettable(&full, sizes.iter().sum(), needed, now, self.aged_at))
    }
}

/// Writes a sealed copy of a full segment, durably, and reads it back; `None` when `go_on`, which
/// is called after each block, returns false.
pub(crate) fn seal(
    files: &dyn Files,
    segment: &Segment,
    following: Seq,
    mut go_on: impl FnMut() -> bool,
) -> io::Result<Option<SealedFile>> {
    let file = files.create(UNFINISHED_NAME)?;
    let id = segment_file::id_of(segment.file.as_ref())?;
    let id = id.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its header is damaged"))?;
    let mut seal_writer = SealWriter::new(Arc::clone(&file), segment.first, id)?;
    let mut cursor = Cursor::new(Arc::clone(&segment.file), HEADER_BYTES);
    let mut expected = segment.first;
    while expected < following {
        match cursor.step() {
            Step::Record(entry) if entry.seq == expected => {
                expected = expected.next();
                if seal_writer.push(cursor.record(&entry))? && !go_on() {
                    return Ok(None);
                }
            }
            Step::Short if cursor.refill(segment.end())? => {}
            Step::Record(_) | Step::Short | Step::End | Step::Damaged(_) => {
                let place = format!("record {expected} at byte {} is damaged", cursor.offset());
                return Err(io::Error::new(io::ErrorKind::InvalidData, place));
            }
        }
    }
    seal_writer.finish()?;
    let copy = Arc::new(SealedFile::open(Arc::clone(&file))?);
    let mut cursor = Cursor::new(copy, HEADER_BYTES);
    let mut expected = segment.first;
    while expected < following {
        match cursor.step() {
            Step::Record(entry) if entry.seq == expected => expected = expected.next(),
            Step::Short if cursor.refill(u64::MAX)? => {
                if !go_on() {
                    return Ok(None);
                }
            }
            Step::Record(_) | Step::Short | Step::End | Step::Damaged(_) => {
                let place = format!("record {expected} is not in the sealed copy as it was written");
                return Err(io::Error::new(io::ErrorKind::InvalidData, place));
            }
        }
    }
    SealedFile::open(file).map(Some)
}

/// How many names are read before a pause: about a millisecond of work.
const NAMES_AT_ONCE: usize = 2_048;

/// The files of names, by the thread that seals.
#[derive(Debug, Default)]
pub(crate) struct Namer {
    has_tidied: bool,
    /// The first records of segments whose names cannot be read or written.
    given_up: BTreeSet<Seq>,
}

impl Namer {
    /// Makes the files that are missing; returns false if the journal closes first.
    pub(crate) fn work(&mut self, store: &Arc<Store>, pause: Duration) -> bool {
        if store.names.get().is_none() {
            return true;
        }
        if !self.has_tidied {
            self.has_tidied = true;
            tidy(store);
        }
        while let Some((segment, following)) = self.next(store) {
            match make(store, &segment, following, pause) {
                Ok(true) => {
                    segment.set_has_names(true);
                    segment.noted.forget();
                }
                Ok(false) => return false,
                Err(error) => {
                    // A look-up reads the segment instead.
                    tracing::warn!(first = %segment.first, error, "the names of a segment cannot be made");
                    self.given_up.insert(segment.first);
                }
            }
        }
        true
    }

    /// The newest full segment without names, and the first record of the one after it.
    fn next(&self, store: &Store) -> Option<(Arc<Segment>, Seq)> {
        let is_wanted = |segment: &Segment| !segment.has_names() && !self.given_up.contains(&segment.first);
        store.full_segments().into_iter().rfind(|(segment, _)| is_wanted(segment))
    }
}

/// Makes the file of a segment unless it is there, from the noted names and those of earlier
/// records, which are read; returns false if the journal closes first.
fn make(store: &Arc<Store>, segment: &Segment, following: Seq, pause: Duration) -> Result<bool, String> {
    let Some(NameHasher { key, .. }) = store.names.get().copied() else { return Ok(true) };
    let (first, last) = (segment.first, following.previous());
    let said = |error: ReadError| error.to_string();
    // The segment is full and durable. The journal's own position may not say so yet: a large batch
    // is published after its last segment.
    let written = watch::channel(last).1;
    let mut reader = Reader::new(Arc::clone(store), written.clone(), last);
    let sum = match reader.next_batch(1) {
        // Retention deleted it.
        Err(ReadError::Gone { .. }) => return Ok(true),
        records => records.map_err(said)?.iter().next().map(|record| record.checksum()),
    };
    let Some(sum) = sum else { return Err(format!("record {last} is not there")) };
    let identity = Identity { first, last, sum };
    if names::is_there(store.files.as_ref(), identity) {
        return Ok(true);
    }
    let (noted_from, noted) = segment.noted.entries(first).unwrap_or((following, Vec::new()));
    let mut entries = Vec::new();
    let mut is_open = true;
    let read_to = read_names(store, &written, first, first, noted_from, |entry| {
        entries.push(entry);
        is_open = entries.len() % NAMES_AT_ONCE != 0 || store.maintenance.pause(pause);
        is_open
    })
    .map_err(said)?;
    if !is_open {
        return Ok(false);
    }
    if read_to < noted_from {
        return Err(format!("record {read_to} is not there"));
    }
    entries.extend(noted);
    let _changing = store.changing_files.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if store.firsts().contains(&first) {
        names::write(store.files.as_ref(), identity, key, entries).map_err(|error| error.to_string())?;
    }
    Ok(true)
}

/// Removes files whose segment is gone.
fn tidy(store: &Store) {
    let _changing = store.changing_files.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let firsts: BTreeSet<Seq> = store.firsts().into_iter().collect();
    let is_left = |name: &String| {
        name == names::UNFINISHED_NAME || names::first_of(name).is_some_and(|first| !firsts.contains(&first))
    };
    let remove = || -> io::Result<()> {
        store.files.list()?.iter().filter(|name| is_left(name)).try_for_each(|name| store.files.remove(name))
    };
    if let Err(error) = remove() {
        tracing::debug!(%error, "files of names without a segment stay");
    }
}
