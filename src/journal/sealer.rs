//! Packs full segments in the background and deletes those that nobody needs, on a thread of its own.
//!
//! It works a little at a time and pauses, so that a burst of appends has the processor; nobody ever waits for it. A packed segment
//! takes the name of the one it was made of in one rename, so that whatever a crash leaves is one of the two. A reader that is in
//! the old file reads it to its end. What cannot be packed stays as it is, and is said.

use std::{
    collections::BTreeSet,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    background,
    event::Seq,
    journal::{
        Clock, Shared,
        append::DiskFull,
        cursor::{Cursor, Step},
        files::Files,
        packed::{PackedFile, Packer},
        retention::{Forgettable, Full, Retention},
        segment::{HEADER_BYTES, Segment, UNFINISHED_NAME},
    },
    time::Timestamp,
};

/// How many blocks are packed before a pause: about a millisecond of work.
const BLOCKS_AT_ONCE: u32 = 8;

/// How long a pause is: so the thread takes about a third of a processor, and packs more than 100 MB a second.
const PAUSE: Duration = Duration::from_millis(2);

/// How the other threads ask for something to be done.
#[derive(Debug, Default)]
pub(super) struct Sealing {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_asked: bool,
    is_idle: bool,
    is_closing: bool,
}

/// The thread that packs and deletes.
pub(super) struct Sealer {
    pub(super) shared: Arc<Shared>,
    pub(super) clock: Clock,
    pub(super) synced: watch::Receiver<Seq>,
    pub(super) compress: bool,
    pub(super) retention: Retention,
    /// Segments that cannot be packed, by their first record.
    pub(super) given_up: BTreeSet<Seq>,
    /// When a segment was last deleted for its age.
    pub(super) aged_at: Option<Timestamp>,
}

impl Sealing {
    /// Says that there may be something to do.
    pub(super) fn ask(&self) {
        self.lock().is_asked = true;
        self.wake.notify_all();
    }

    /// Has the thread end.
    pub(super) fn close(&self) {
        self.lock().is_closing = true;
        self.wake.notify_all();
    }

    /// Waits until there is something to do; returns whether there is, or the journal is closed.
    fn wait(&self) -> bool {
        let mut state = self.lock();
        state.is_idle = true;
        self.wake.notify_all();
        let is_calm = |state: &mut State| !state.is_asked && !state.is_closing;
        let mut state = self.wake.wait_while(state, is_calm).unwrap_or_else(PoisonError::into_inner);
        (state.is_asked, state.is_idle) = (false, false);
        !state.is_closing
    }

    /// Pauses; returns whether to go on.
    fn pause(&self) -> bool {
        let is_open = |state: &mut State| !state.is_closing;
        let waited = self.wake.wait_timeout_while(self.lock(), PAUSE, is_open);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_closing
    }

    /// Waits until nothing is left to do.
    #[cfg(test)]
    pub(super) fn wait_until_idle(&self) {
        let is_busy = |state: &mut State| (state.is_asked || !state.is_idle) && !state.is_closing;
        drop(self.wake.wait_while(self.lock(), is_busy).unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sealer {
    /// Runs until the journal is closed.
    pub(super) fn run(mut self) {
        background::lower_priority(background::LOWEST);
        while self.shared.sealing.wait() {
            // A lack of memory shows as a panic in places; what is left undone is tried again when something is asked next.
            if catch_unwind(AssertUnwindSafe(|| self.work())).is_err() {
                tracing::error!("sealing the journal failed for now");
                self.shared.files.remove(UNFINISHED_NAME).ok();
            }
        }
    }

    /// Deletes and packs until there is nothing to do, or the journal closes.
    fn work(&mut self) {
        self.forget();
        while let Some((segment, following)) = self.next_full() {
            match self.seal(&segment, following) {
                Ok(true) => self.forget(),
                Ok(false) => return,
                // It is tried again after the next segment, or when there was no space for that and is again.
                Err(error)
                    if DiskFull::is_reason_of(&error) || error.kind() == io::ErrorKind::OutOfMemory =>
                {
                    return;
                }
                Err(error) => {
                    let path = self.shared.files.path(&segment.name());
                    tracing::warn!(
                        path = %path.display(), %error,
                        "a segment of the journal could not be packed; it stays as it is"
                    );
                    self.shared.health.note_damage(&path, None, format!("it cannot be sealed: {error}"));
                    self.given_up.insert(segment.first);
                }
            }
        }
    }

    /// The oldest segment that is to be packed, and the first record of the one after it.
    fn next_full(&self) -> Option<(Arc<Segment>, Seq)> {
        if !self.compress {
            return None;
        }
        let is_wanted = |segment: &Segment, following: &Segment| {
            segment.seal().is_none() && following.is_named() && !self.given_up.contains(&segment.first)
        };
        let segments = self.shared.read_segments();
        let mut pairs = segments.iter().zip(segments.iter().skip(1));
        let (segment, following) = pairs.find(|(segment, following)| is_wanted(segment, following))?;
        Some((Arc::clone(segment), following.first))
    }

    /// Packs a segment and puts it in the place of the one that it was made of; returns whether it is done, or the journal closes.
    fn seal(&self, segment: &Segment, following: Seq) -> io::Result<bool> {
        let mut blocks = 0;
        let go_on = || {
            blocks += 1;
            blocks % BLOCKS_AT_ONCE != 0 || self.shared.sealing.pause()
        };
        let files = self.shared.files.as_ref();
        let packed = pack(files, segment, following, go_on);
        if !matches!(packed, Ok(Some(_))) {
            // Left over, it takes space until the next start; the failure is told anyway.
            files.remove(UNFINISHED_NAME).ok();
        }
        packed?.map_or(Ok(false), |packed| self.shared.replace(segment.first, packed).map(|()| true))
    }

    /// Deletes what is too old or too much.
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
        match self.shared.forget_before(before.min(*self.synced.borrow())) {
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
        let segments = self.shared.read_segments();
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
        let needed = Seq(self.shared.needed_from.load(Ordering::Acquire));
        Ok(self.retention.forgettable(&full, sizes.iter().sum(), needed, now, self.aged_at))
    }
}

/// Writes a packed copy of a full segment, durably, and reads it back; `None` when `go_on`, asked after each block, says so.
pub(super) fn pack(
    files: &dyn Files,
    segment: &Segment,
    following: Seq,
    mut go_on: impl FnMut() -> bool,
) -> io::Result<Option<PackedFile>> {
    let file = files.create(UNFINISHED_NAME)?;
    let mut packer = Packer::new(Arc::clone(&file), segment.first)?;
    let mut cursor = Cursor::new(Arc::clone(&segment.file), HEADER_BYTES);
    let mut expected = segment.first;
    while expected < following {
        match cursor.step() {
            Step::Record(entry) if entry.seq == expected => {
                expected = expected.next();
                if packer.push(cursor.record(&entry))? && !go_on() {
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
    packer.finish()?;
    let copy = Arc::new(PackedFile::open(Arc::clone(&file))?);
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
    PackedFile::open(file).map(Some)
}

#[cfg(test)]
mod tests;
