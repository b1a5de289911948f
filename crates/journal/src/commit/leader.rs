//! Group commit: a caller that appends while nobody writes becomes the leader, so a lone append
//! needs no other thread.
//!
//! Commands submitted while a leader writes wait for it; their callers are followers. A leading
//! caller writes a few groups. It stops as soon as it has to sync, and does not wait for the next
//! file. The writer thread does the rest: what a leader leaves, pipelined appends, and closing.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::{
    commit::{
        sync::{Role, SyncDuty},
        writer::{Command, Writer},
    },
    log::reader::Closed,
};

/// Most groups that a caller writes as leader. An occasional caller leaves nothing to the thread,
/// and a busy one is not kept from its own work.
const CALLER_GROUPS_MAX: usize = 4;

/// Waiting commands, and the writer while nobody leads.
pub(crate) struct GroupCommit {
    state: Mutex<State>,
    /// Wakes the writer thread.
    wake: Condvar,
}

struct State {
    waiting: VecDeque<Command>,
    /// `None` while somebody leads, and at the end.
    writer: Option<Box<Writer>>,
    /// The writer thread has work.
    is_left_to_thread: bool,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// New commands are refused; waiting ones are written.
    Closing,
    /// A leader panicked, so a group may be half done: nothing more is accepted or written.
    Broken,
}

/// Leadership of one thread, which has the writer. If it is dropped with the writer, the thread
/// panicked.
struct Leader<'a> {
    group: &'a GroupCommit,
    role: Role,
    writer: Option<Box<Writer>>,
}

impl GroupCommit {
    pub(crate) fn new(writer: Writer) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            writer: Some(Box::new(writer)),
            is_left_to_thread: false,
            phase: Phase::Open,
        };
        Self { state: Mutex::new(state), wake: Condvar::new() }
    }

    /// Queues a command, and leads if nobody does. Returns the sync that the caller then has to do
    /// for all that wait for it.
    ///
    /// Errors: the journal was closed.
    pub(crate) fn submit(&self, command: Command, role: Role) -> Result<Option<SyncDuty>, Closed> {
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Err(Closed);
        }
        state.waiting.push_back(command);
        if role == Role::Pipelined && state.writer.is_some() {
            state.is_left_to_thread = true;
            drop(state);
            self.wake.notify_one();
            return Ok(None);
        }
        let Some(writer) = state.writer.take() else { return Ok(None) };
        drop(state);
        Ok(Leader { group: self, role, writer: Some(writer) }.lead())
    }

    /// Refuses new commands; the thread writes what was submitted and ends.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Closing;
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Writes what others leave, and syncs it if nobody does, until the journal is closed. Returns
    /// the writer, unless a panic took it.
    pub(crate) fn run(&self) -> Option<Box<Writer>> {
        loop {
            let state = self.wake.wait_while(self.lock(), State::is_idle);
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            let is_last = state.phase != Phase::Open && state.waiting.is_empty() && !state.is_left_to_thread;
            state.is_left_to_thread = false;
            let writer = state.writer.take()?;
            drop(state);
            if is_last {
                return Some(writer);
            }
            let leader = Leader { group: self, role: Role::Background, writer: Some(writer) };
            if let Some(duty) = leader.lead() {
                duty.sync();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether there is nothing for the thread.
    fn is_idle(&mut self) -> bool {
        match self.phase {
            Phase::Broken => false,
            Phase::Closing => self.writer.is_none(),
            Phase::Open => !self.is_left_to_thread || self.writer.is_none(),
        }
    }
}

impl Leader<'_> {
    /// Writes waiting groups until there are none, the role's share is done, or a sync is due; then
    /// steps down.
    fn lead(mut self) -> Option<SyncDuty> {
        let groups_max = if self.role == Role::Background { usize::MAX } else { CALLER_GROUPS_MAX };
        let mut duty = None;
        for groups in 0.. {
            let mut state = self.group.lock();
            let writer = self.writer.as_mut().expect("a leader has the writer until it steps down");
            writer.waiting.append(&mut state.waiting);
            if writer.waiting.is_empty() || groups == groups_max || duty.is_some() {
                self.step_down(state);
                break;
            }
            drop(state);
            duty = writer.write_group(self.role);
        }
        duty
    }

    /// Returns the writer to the group, with what still waits.
    fn step_down(&mut self, mut state: MutexGuard<'_, State>) {
        state.writer = self.writer.take();
        state.is_left_to_thread |= state.writer.as_ref().is_some_and(|writer| !writer.waiting.is_empty());
        let is_for_thread = state.is_left_to_thread || state.phase != Phase::Open;
        drop(state);
        if is_for_thread {
            self.group.wake.notify_one();
        }
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if self.writer.is_some() {
            let mut state = self.group.lock();
            state.phase = Phase::Broken;
            state.waiting.clear();
            drop(state);
            self.group.wake.notify_one();
        }
    }
}

impl fmt::Debug for GroupCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommit").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::{
            Arc, Mutex,
            atomic::{AtomicBool, Ordering},
            mpsc,
        },
        task::{Context, Poll, Waker},
        thread,
        time::Duration,
    };

    use tokio::runtime::Handle;

    use crate::testing::*;
    use crate::{
        AppendBatch, AppendError, Closed, Level, Seq, block_on,
        log::{files::Files, memory::MemoryFiles, record::RecordKind},
        settings::Durability,
        time::Timestamp,
    };

    #[test]
    fn concurrent_appends_are_all_written() {
        let files = MemoryFiles::new();
        let journal = open_prepared(&files, 4_096);
        thread::scope(|scope| {
            for thread in 0..8 {
                let journal = &journal;
                scope.spawn(move || {
                    for number in 1..=50 {
                        let level = if number % 2 == 0 { Level::Synced } else { Level::Written };
                        journal.append_blocking(batch(thread * 50 + number), level).expect("appended");
                    }
                });
            }
        });
        let mut found = numbers(&journal);
        found.sort_unstable();
        assert_eq!(found, (1..=400).collect::<Vec<_>>());
        journal.close_blocking().expect("closed");
        assert_eq!(numbers(&open(&files).journal).len(), 400);
    }

    #[test]
    fn leaders_do_not_wait_for_the_next_file() {
        let files = MemoryFiles::new();
        let journal = open_prepared(&files, SEGMENT_BYTES);
        // The file after next is prepared when the full segment is durable, and it cannot be.
        files.close_gate();
        let append = |number| Box::pin(journal.append(batch(number), Level::Written));
        let mut context = Context::from_waker(Waker::noop());
        let mut appends: Vec<_> = (1..=40).map(append).collect();
        let mut done =
            appends.iter_mut().map(|append| append.as_mut().poll(&mut context)).collect::<Vec<_>>();
        assert!(done.iter().any(Poll::is_pending), "some need a file that is not there");
        files.open_gate();
        for (append, done) in appends.iter_mut().zip(&mut done).filter(|(_, done)| done.is_pending()) {
            *done = Poll::Ready(block_on(append));
        }
        let firsts = done.into_iter().map(|done| match done {
            Poll::Ready(appended) => appended.expect("appended").first(),
            Poll::Pending => None,
        });
        assert_eq!(firsts.collect::<Vec<_>>(), (1..=40).map(|seq| Some(Seq(seq))).collect::<Vec<_>>());
        assert!(files.list().expect("listed").len() > 4);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn appends_during_a_sync_join_the_next_sync() {
        let files = MemoryFiles::new();
        let journal = open_prepared(&files, 1 << 20);
        let before = files.operations().syncs;
        files.close_gate();
        let append = |number| {
            let journal = journal.clone();
            tokio::task::spawn_blocking(move || {
                Handle::current().block_on(journal.append(batch(number), Level::Synced))
            })
        };
        let first = append(1);
        let gate = files.clone();
        tokio::task::spawn_blocking(move || gate.wait_for_sync_at_gate()).await.expect("no panic");
        let later = [append(2), append(3)];
        let mut written = journal.written();
        written.wait_for(|written| *written == Seq(3)).await.expect("open");
        assert_eq!(*journal.synced().borrow(), Seq::ZERO);
        files.open_gate();
        for append in later.into_iter().chain([first]) {
            append.await.expect("no panic").expect("appended");
        }
        assert_eq!(*journal.synced().borrow(), Seq(3));
        let syncs = files.operations().syncs - before;
        // The last two may reach the flusher one after the other.
        assert!((2..=3).contains(&syncs), "{syncs} syncs");
    }

    /// A batch larger than a segment needs two files, and the second is prepared only after a sync.
    /// It is submitted while the current leader will have to sync.
    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn a_multi_segment_batch_cannot_deadlock_its_leader() {
        let (entered, has_entered) = mpsc::sync_channel(1);
        let (go_on, may_go_on) = mpsc::sync_channel(1);
        let first = Mutex::new(Some((entered, may_go_on)));
        let clock = move || {
            if let Some((entered, may_go_on)) = first.lock().expect("no panic").take() {
                entered.send(()).expect("the test waits");
                may_go_on.recv().expect("the test goes on");
            }
            Timestamp::from_millis(5)
        };
        let files = MemoryFiles::new();
        open_prepared(&files, 4_096).close_blocking().expect("closed");
        let journal = open_with(&files, 4_096, Durability::Sync, Arc::new(clock)).expect("opened").journal;
        let append = |batch: AppendBatch| {
            let journal = journal.clone();
            tokio::task::spawn_blocking(move || {
                Handle::current().block_on(journal.append(batch, Level::Synced))
            })
        };
        let single = append(batch(1));
        tokio::task::spawn_blocking(move || has_entered.recv()).await.expect("no panic").expect("entered");
        let mut large = AppendBatch::new();
        for number in 2..14 {
            large.push(RecordKind(1), &[b'x'; 1_000], Some(number)).expect("small");
        }
        let large = append(large);
        while journal.inner.group.lock().waiting.is_empty() {
            tokio::task::yield_now().await;
        }
        go_on.send(()).expect("the clock waits");
        for (append, last) in [(single, 1), (large, 13)] {
            let appended = tokio::time::timeout(Duration::from_secs(10), append).await;
            let appended = appended.expect("nobody waits for ever").expect("no panic").expect("appended");
            assert_eq!(appended.last(), Some(Seq(last)));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_pipelined_and_a_waited_append_both_finish() {
        let files = MemoryFiles::new();
        let journal = open_prepared(&files, 1 << 20);
        for number in 0..200 {
            let begun = journal.begin_append(batch(2 * number + 1), Level::Synced).await.expect("begun");
            journal.append(batch(2 * number + 2), Level::Synced).await.expect("appended");
            begun.done().await.expect("appended");
        }
        assert_eq!(*journal.synced().borrow(), Seq(400));
    }

    #[test]
    fn a_panic_while_leading_closes_the_journal() {
        let (files, has_fault) = (MemoryFiles::new(), Arc::new(AtomicBool::new(false)));
        let fault = Arc::clone(&has_fault);
        let clock = move || {
            assert!(!fault.load(Ordering::SeqCst), "the clock is set to fail");
            Timestamp::from_millis(5)
        };
        let journal = open_with(&files, 1 << 20, Durability::Sync, Arc::new(clock)).expect("opened").journal;
        journal.append_blocking(batch(1), Level::Synced).expect("appended");
        has_fault.store(true, Ordering::SeqCst);
        let append = || journal.append_blocking(batch(2), Level::Written);
        assert!(catch_unwind(AssertUnwindSafe(append)).is_err());
        has_fault.store(false, Ordering::SeqCst);
        let refused = append();
        assert!(matches!(refused, Err(AppendError::Closed)), "{refused:?}");
        assert_eq!(block_on(journal.read_from(Seq(2)).wait()), Err(Closed));
        journal.close_blocking().expect("there is nothing to wait for");
    }
}
