//! Makes written records durable. Only callers that ask for durability wait for the disk.
//!
//! One sync covers all records that wait when it begins. While it runs, the next group collects,
//! and one more sync follows for that group. A leader that waits for the sync, or has no other
//! work, syncs itself when no other thread does ([`SyncDuty`]), so a lone append needs no other
//! thread. The flusher does the rest. It renames the prepared file to a segment once the segment
//! before it is synced, and orders the next file. It syncs records that nobody waits for within
//! `sync_within`. Its timer is the only one, and runs only while there are unsynced records.

#[cfg(test)]
mod tests;

use std::{
    io, mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc::SyncSender},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use crate::{
    Seq,
    commit::{AppendError, Appended},
    log::{
        files::File,
        mark,
        segment::Segment,
        segment_file::NEXT_NAME,
        store::{Poisoned, Store},
    },
};

/// The channel for the answer to an append.
pub(crate) type Reply = oneshot::Sender<Result<Appended, AppendError>>;

/// A caller that is answered when its records are durable.
///
/// `IN_FLIGHT_MAX` limits their number.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) appended: Appended,
    pub(crate) reply: Reply,
    pub(crate) permit: OwnedSemaphorePermit,
}

/// Records that are written and not yet durable.
#[derive(Debug)]
pub(crate) struct Commits {
    state: Mutex<State>,
    /// Wakes the flusher.
    wake: Condvar,
    store: Arc<Store>,
    synced: watch::Sender<Seq>,
    /// The durable position in the mark at the start.
    marked: Seq,
}

#[derive(Debug)]
struct State {
    waiters: Vec<Waiter>,
    /// The last record written.
    written: Seq,
    /// The segment of that record.
    segment: Arc<Segment>,
    /// The previous segment, when it is full and `segment` has no name yet.
    full: Option<Arc<Segment>>,
    /// Whether a thread syncs; it checks for more records before it stops.
    is_syncing: bool,
    /// The failure after which nothing is synced.
    failed: Option<Poisoned>,
    is_closing: bool,
    /// Whether the flusher waits without a timer.
    has_no_timer: bool,
}

/// The next step of the flusher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// A round now.
    Round,
    /// A round when the oldest unsynced record is due, unless another thread syncs it.
    Timer,
    /// No step until it is woken.
    Wait,
}

/// The records that one round makes durable.
#[derive(Debug)]
struct Commit {
    target: Seq,
    segment: Arc<Segment>,
    full: Option<Arc<Segment>>,
    failed: Option<Poisoned>,
    is_last: bool,
}

/// The duty of one caller to sync once, immediately; when it is dropped, the flusher syncs the
/// rest.
#[derive(Debug)]
#[must_use = "others wait for this sync"]
pub(crate) struct SyncDuty {
    commits: Arc<Commits>,
}

/// The thread that syncs the records that callers do not sync.
#[derive(Debug)]
pub(crate) struct Flusher {
    pub(crate) commits: Arc<Commits>,
    /// How long a record that nobody waits for stays unsynced.
    pub(crate) sync_within: Duration,
    /// Orders the next prepared file; the channel holds one order and never needs a second.
    pub(crate) orders: Option<SyncSender<()>>,
}

impl Commits {
    /// Creates the state without waiting callers; all records up to `synced` are written and
    /// durable.
    pub(crate) fn new(
        store: Arc<Store>,
        segment: Arc<Segment>,
        synced: watch::Sender<Seq>,
        marked: Seq,
    ) -> Self {
        let state = State {
            waiters: Vec::new(),
            written: *synced.borrow(),
            segment,
            full: None,
            is_syncing: false,
            failed: None,
            is_closing: false,
            has_no_timer: false,
        };
        Self { state: Mutex::new(state), wake: Condvar::new(), store, synced, marked }
    }

    /// The last record that is known to be durable.
    pub(crate) fn durable(&self) -> Seq {
        *self.synced.borrow()
    }

    /// Writes the mark if the journal is durable beyond the mark at the start.
    ///
    /// A failure is only logged: without a mark, a damaged record at the very end counts as torn.
    pub(crate) fn mark(&self) {
        let durable = self.durable();
        if self.store.poisoned().is_some() || durable <= self.marked {
            return;
        }
        if let Err(error) = mark::write(self.store.files.as_ref(), durable) {
            tracing::warn!(%error, "the mark of the durable position could not be written");
        }
    }

    /// Registers written records, and the callers that wait until they are durable.
    ///
    /// Returns the duty to sync them if the writer has that duty; never if its role may not sync.
    pub(crate) fn add(
        self: &Arc<Self>,
        written: Seq,
        waiters: &mut Vec<Waiter>,
        role: Role,
    ) -> Option<SyncDuty> {
        let mut state = self.lock();
        state.written = written;
        state.waiters.append(waiters);
        let is_writers =
            role.may_sync() && !state.waiters.is_empty() && !state.is_syncing && state.full.is_none();
        state.is_syncing |= is_writers;
        self.wake_if_needed(state);
        is_writers.then(|| SyncDuty { commits: Arc::clone(self) })
    }

    /// Wakes the flusher if it has work, or a timer to set.
    fn wake_if_needed(&self, mut state: MutexGuard<'_, State>) {
        let needs_flusher = match state.next(self.durable()) {
            Next::Round => true,
            // One signal is enough: the flusher checks the state itself.
            Next::Timer => mem::take(&mut state.has_no_timer),
            Next::Wait => false,
        };
        drop(state);
        if needs_flusher {
            self.wake.notify_one();
        }
    }

    /// Syncs the records that wait now; the flusher syncs later ones.
    fn sync_once(&self) {
        let mut waiters = Vec::new();
        let mut state = self.lock();
        if state.full.is_some() {
            // The segment has changed meanwhile, and the full one has to be synced first.
            return;
        }
        let commit = state.take(&mut waiters);
        drop(state);
        let result = self.sync_written(&commit);
        self.answer(&mut waiters, result.err());
    }

    /// Syncs the current segment.
    fn sync_written(&self, commit: &Commit) -> Result<(), Poisoned> {
        if let Some(poisoned) = &commit.failed {
            return Err(poisoned.clone());
        }
        if commit.target > *self.synced.borrow() {
            self.check("sync", &commit.segment.name(), self.sync_measured(commit.segment.file.as_ref()))?;
            self.synced.send_replace(commit.target);
        }
        Ok(())
    }

    fn sync_measured(&self, file: &dyn File) -> io::Result<()> {
        let Some(meters) = self.store.meters.get() else { return sync_named(file) };
        let stopwatch = meters.begin();
        let synced = sync_named(file);
        meters.commit.observe(meters.since(stopwatch));
        synced
    }

    fn answer(&self, waiters: &mut Vec<Waiter>, failed: Option<Poisoned>) {
        for Waiter { appended, reply, permit } in waiters.drain(..) {
            let answer = failed.clone().map_or(Ok(appended), |poisoned| Err(poisoned.into()));
            // A caller that stopped waiting does not need the answer; the record stays.
            let _ = reply.send(answer);
            drop(permit);
        }
    }

    fn check<T>(&self, operation: &'static str, name: &str, result: io::Result<T>) -> Result<T, Poisoned> {
        result.map_err(|error| {
            let poisoned = self.store.poison(operation, name, error);
            self.lock().failed.get_or_insert(poisoned).clone()
        })
    }

    /// Registers that `full` is full and later records are in `segment`.
    pub(crate) fn rotate(&self, full: Arc<Segment>, segment: Arc<Segment>) {
        let mut state = self.lock();
        debug_assert!(
            state.full.is_none(),
            "a file is prepared only after the segment before it got its name"
        );
        state.full = Some(full);
        state.segment = segment;
        drop(state);
        self.wake.notify_one();
    }

    /// Makes the flusher sync everything and end.
    pub(crate) fn close(&self) {
        self.lock().is_closing = true;
        self.wake.notify_one();
    }

    /// Waits for the flusher's work and moves the waiting callers into `waiters`.
    /// [`Commits::end_round`] has to follow.
    fn next_of_flusher(&self, sync_within: Duration, waiters: &mut Vec<Waiter>) -> Commit {
        let mut state = self.lock();
        loop {
            let next = state.next(self.durable());
            state.has_no_timer = next == Next::Wait;
            match next {
                Next::Round => break,
                Next::Timer => {
                    let is_calm = |state: &mut State| state.next(self.durable()) != Next::Round;
                    let (again, waited) = self
                        .wake
                        .wait_timeout_while(state, sync_within, is_calm)
                        .unwrap_or_else(PoisonError::into_inner);
                    state = again;
                    if waited.timed_out() && state.next(self.durable()) == Next::Timer {
                        break;
                    }
                }
                Next::Wait => state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
        state.is_syncing = true;
        state.take(waiters)
    }

    /// Whether nothing is being synced or waits for a sync.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.waiters.is_empty() && state.full.is_none() && !state.is_syncing
    }

    /// Whether only a call can wake the flusher.
    #[cfg(test)]
    fn has_no_timer(&self) -> bool {
        self.lock().has_no_timer
    }

    /// Allows another thread to sync.
    fn end_round(&self) {
        let mut state = self.lock();
        state.is_syncing = false;
        self.wake_if_needed(state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Syncs a file that has a name; data in a file without one is lost with the process.
fn sync_named(file: &dyn File) -> io::Result<()> {
    file.sync_data()?;
    if file.is_linked()? { Ok(()) } else { Err(io::Error::other("the file was deleted from its folder")) }
}

impl SyncDuty {
    /// Syncs, blocking the thread.
    pub(crate) fn sync(self) {
        self.commits.sync_once();
    }
}

impl Drop for SyncDuty {
    fn drop(&mut self) {
        self.commits.end_round();
    }
}

impl State {
    /// The flusher's next step when all records up to `durable` are synced.
    fn next(&self, durable: Seq) -> Next {
        if self.is_syncing {
            return Next::Wait;
        }
        if !self.waiters.is_empty() || self.full.is_some() || self.is_closing {
            return Next::Round;
        }
        if self.written > durable && self.failed.is_none() { Next::Timer } else { Next::Wait }
    }

    fn take(&mut self, waiters: &mut Vec<Waiter>) -> Commit {
        waiters.append(&mut self.waiters);
        Commit {
            target: self.written,
            segment: Arc::clone(&self.segment),
            full: self.full.take(),
            failed: self.failed.clone(),
            is_last: self.is_closing,
        }
    }
}

impl Flusher {
    /// Runs until the journal is closed.
    pub(crate) fn run(mut self) {
        let mut waiters = Vec::new();
        loop {
            let commit = self.commits.next_of_flusher(self.sync_within, &mut waiters);
            let failed = self.begin_segment(&commit).and_then(|()| self.commits.sync_written(&commit)).err();
            if failed.is_some() {
                // Without orders nothing is prepared, so a writer that waits for a file gets an
                // error.
                self.orders = None;
            }
            self.commits.answer(&mut waiters, failed);
            self.commits.end_round();
            if commit.is_last {
                return;
            }
        }
    }

    /// Syncs the full segment and names the one after it.
    fn begin_segment(&self, commit: &Commit) -> Result<(), Poisoned> {
        let Some(full) = &commit.full else { return Ok(()) };
        if let Some(poisoned) = &commit.failed {
            return Err(poisoned.clone());
        }
        let (commits, name) = (&self.commits, commit.segment.name());
        let files = &commits.store.files;
        commits.check("sync", &full.name(), sync_named(full.file.as_ref()))?;
        commits.check("name", &name, files.rename(NEXT_NAME, &name))?;
        commits.check("sync the folder of", &name, files.sync_dir())?;
        commit.segment.set_named();
        commits.store.maintenance.ask();
        if let Some(orders) = &self.orders {
            // The thread that prepares ends only after this one.
            let _ = orders.try_send(());
        }
        Ok(())
    }
}

/// Answers all `waiters` with the failure.
pub(crate) fn refuse(waiters: &mut Vec<Waiter>, poisoned: &Poisoned) {
    for waiter in mem::take(waiters) {
        // A caller that stopped waiting does not need the answer.
        let _ = waiter.reply.send(Err(poisoned.clone().into()));
    }
}

/// The thread that writes a group, which tells for what it may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A caller that waits for the sync anyway, so it may sync itself.
    Blocking,
    /// A caller that must not block.
    Inline,
    /// A caller that has more to append: the thread writes while the caller prepares the next
    /// batch.
    Pipelined,
    /// The writer thread.
    Background,
}

impl Role {
    /// Whether it may sync.
    const fn may_sync(self) -> bool {
        matches!(self, Self::Blocking | Self::Background)
    }

    /// Whether it may wait for the next file.
    pub(crate) const fn may_wait_for_file(self) -> bool {
        matches!(self, Self::Background)
    }
}
