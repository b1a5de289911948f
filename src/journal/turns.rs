//! Whose turn it is to write: whoever appends while nobody writes, so that a lone append is handed to no other thread.
//!
//! What is handed over while somebody writes is left to them. Who writes in passing writes a few groups, stops as soon as it has
//! to sync, and waits for no file; what is left then, what comes from those who are about to append more, and the journal's end are for a thread of
//! its own.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::journal::{
    flusher::{Commits, SyncTurn},
    reader::Closed,
    writer::{Command, Writer},
};

/// Most groups that are written in passing: so many that who appends now and then leaves nothing, and so few that who does
/// is not kept from its own work while others go on appending.
const GROUPS_IN_PASSING_MAX: usize = 4;

/// Where appends wait, and where the writer is while nobody writes.
pub(super) struct Turns {
    state: Mutex<State>,
    /// Wakes the thread.
    wake: Condvar,
}

struct State {
    waiting: VecDeque<Command>,
    /// Absent while somebody writes, and at the end.
    writer: Option<Box<Writer>>,
    /// The thread has to write.
    is_left: bool,
    is_closed: bool,
    /// Somebody panicked while writing, so a group may be half done and nothing more is written.
    is_broken: bool,
}

/// Says that nothing more is written, unless the writer was given back: then it holds nothing any more.
struct BreaksUnlessOver<'a>(Option<&'a Turns>);

/// Who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// A caller that may sync too, as it waits for that anyway.
    Waiting,
    /// A caller that has other things to do, and comes to them soon.
    Passing,
    /// A caller that has more to append: the thread writes this while it gets that ready.
    Reading,
    /// The thread.
    Thread,
}

impl Turns {
    pub(super) fn new(writer: Writer) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            writer: Some(Box::new(writer)),
            is_left: false,
            is_closed: false,
            is_broken: false,
        };
        Self { state: Mutex::new(state), wake: Condvar::new() }
    }

    /// Gives a command its place behind those before, and writes if nobody does; returns whether the caller has to sync.
    ///
    /// Errors: the journal was closed.
    pub(super) fn hand_over(&self, command: Command, who: Who) -> Result<bool, Closed> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Closed);
        }
        state.waiting.push_back(command);
        if who == Who::Reading && state.writer.is_some() {
            state.is_left = true;
            drop(state);
            self.wake.notify_one();
            return Ok(false);
        }
        let Some(writer) = state.writer.take() else { return Ok(false) };
        drop(state);
        Ok(self.write(writer, who))
    }

    /// Takes nothing more; the thread writes what was handed over and ends.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.wake.notify_one();
    }

    /// Writes what is left by others, and syncs it if nobody does, until the journal is closed; returns the writer, unless a
    /// panic took it.
    pub(super) fn run(&self, commits: &Commits) -> Option<Box<Writer>> {
        loop {
            let is_idle = |state: &mut State| {
                let has_turn = (state.is_left || state.is_closed) && state.writer.is_some();
                !(has_turn || state.is_broken)
            };
            let mut state =
                self.wake.wait_while(self.lock(), is_idle).unwrap_or_else(PoisonError::into_inner);
            let is_last = state.is_closed && state.waiting.is_empty() && !state.is_left;
            state.is_left = false;
            let writer = state.writer.take()?;
            drop(state);
            if is_last {
                return Some(writer);
            }
            if self.write(writer, Who::Thread) {
                SyncTurn::new(commits).sync();
            }
        }
    }

    /// Writes until nothing waits, or as many groups as may be; returns whether `who` has to sync. It then does so at once and
    /// writes no further group; what is handed over meanwhile is the thread's or the next caller's.
    fn write(&self, mut writer: Box<Writer>, who: Who) -> bool {
        let mut guard = BreaksUnlessOver(Some(self));
        let groups_max = if who == Who::Thread { usize::MAX } else { GROUPS_IN_PASSING_MAX };
        let (mut groups, mut has_to_sync) = (0, false);
        loop {
            let mut state = self.lock();
            writer.waiting.append(&mut state.waiting);
            let has_more = !writer.waiting.is_empty();
            // Whoever has to sync does that next: the flusher waits for it, and may have to prepare a file that the next group needs.
            if !has_more || groups == groups_max || has_to_sync {
                state.is_left |= has_more;
                state.writer = Some(writer);
                guard.0 = None;
                let is_for_thread = state.is_left || state.is_closed;
                drop(state);
                if is_for_thread {
                    self.wake.notify_one();
                }
                return has_to_sync;
            }
            drop(state);
            groups += 1;
            has_to_sync |= writer.write_group(who);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BreaksUnlessOver<'_> {
    fn drop(&mut self) {
        if let Some(turns) = self.0 {
            let mut state = turns.lock();
            (state.is_broken, state.is_closed) = (true, true);
            // Who waits is told by this that the journal is closed.
            state.waiting.clear();
            drop(state);
            turns.wake.notify_one();
        }
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
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

    use super::super::testing::*;
    use crate::{
        event::Seq,
        journal::{
            AppendBatch, AppendError, Closed, Durability, Level, block_on, files::Files, memory::MemoryFiles,
            record::RecordKind,
        },
        time::Timestamp,
    };

    #[test]
    fn appends_of_many_threads_are_all_written_whoever_writes_them() {
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
    fn who_writes_in_passing_does_not_wait_for_the_next_file() {
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
    async fn who_waits_alone_syncs_and_what_comes_meanwhile_is_synced_after() {
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
        // The last two may come to the flusher one after the other.
        assert!((2..=3).contains(&syncs), "{syncs} syncs");
    }

    /// A batch larger than a segment needs two files, and the second one is prepared only after a sync. It is handed over while
    /// somebody writes who will have to sync.
    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn a_batch_of_several_segments_waits_for_no_file_on_a_thread_that_has_to_sync() {
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
        while journal.inner.turns.lock().waiting.is_empty() {
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
    async fn who_begins_one_append_and_waits_for_another_gets_both() {
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
    fn after_a_panic_nothing_is_written_and_nobody_waits() {
        let (files, has_fault) = (MemoryFiles::new(), Arc::new(AtomicBool::new(false)));
        let fault = Arc::clone(&has_fault);
        let clock = move || {
            assert!(!fault.load(Ordering::SeqCst), "the clock is told to fail");
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
