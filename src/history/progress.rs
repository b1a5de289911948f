//! The projection's progress, readable without its thread.
//!
//! Most records need no write, and do not wake the thread. So the progress is the last commit, or,
//! if no handed-over notes wait for a commit, the last record that the event loop has applied.

use std::{
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
};

use tokio::sync::Notify;

use engine::event::Seq;

/// Positions of the event loop and of the projection's thread.
#[derive(Debug)]
pub struct Progress {
    /// The last record applied by the event loop.
    applied: AtomicU64,
    /// The last record of the handed-over notes; `u64::MAX` while there is no feed.
    handed: AtomicU64,
    /// The last committed record.
    committed: AtomicU64,
    /// Wakes waiters: the progress may have advanced.
    changed: Notify,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            applied: AtomicU64::new(0),
            handed: AtomicU64::new(u64::MAX),
            committed: AtomicU64::new(0),
            changed: Notify::new(),
        }
    }
}

impl Progress {
    /// Starts the feed: notes after `applied` are handed over; the thread commits the earlier ones
    /// itself.
    pub fn begin_feed(&self, applied: Seq) {
        self.applied.store(applied.0, Ordering::Release);
        self.handed.store(applied.0, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Ends the feed.
    pub fn end_feed(&self) {
        self.handed.store(u64::MAX, Ordering::Release);
    }

    /// Registers notes up to `upto` for a commit; called before [`Progress::apply`] covers it.
    pub fn hand(&self, upto: Seq) {
        self.handed.store(upto.0, Ordering::Release);
    }

    /// Reports that the event loop has applied everything up to `applied`, and handed over its
    /// notes.
    pub fn apply(&self, applied: Seq) {
        self.applied.store(applied.0, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Reports that everything up to `committed` is in the file.
    pub fn commit(&self, committed: Seq) {
        self.committed.store(committed.0, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// The last record up to which everything is in the file or needed no write.
    pub fn projected(&self) -> Seq {
        // The order matters: notes of all records applied at this read were handed over before.
        let applied = self.applied.load(Ordering::Acquire);
        let handed = self.handed.load(Ordering::Acquire);
        let committed = self.committed.load(Ordering::Acquire);
        Seq(if committed >= handed { committed.max(applied) } else { committed })
    }
}

impl Progress {
    /// Waits until everything up to `seq` is projected; without a projection it never returns.
    /// Cancel-safe.
    pub async fn reach(&self, seq: Seq) {
        loop {
            // Subscribes before the check, so that no change is missed.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.projected() >= seq {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_without_notes_are_projected_at_once() {
        let progress = Progress::default();
        progress.commit(Seq(5));
        assert_eq!(progress.projected(), Seq(5));
        progress.begin_feed(Seq(5));
        progress.apply(Seq(9));
        assert_eq!(progress.projected(), Seq(9));
        progress.hand(Seq(12));
        progress.apply(Seq(14));
        assert_eq!(progress.projected(), Seq(5));
        progress.commit(Seq(12));
        assert_eq!(progress.projected(), Seq(14));
        progress.end_feed();
        assert_eq!(progress.projected(), Seq(12));
    }

    async fn is_pending(waiting: &mut (impl Future<Output = ()> + Unpin)) -> bool {
        tokio::select! {
            biased;
            () = waiting => false,
            () = std::future::ready(()) => true,
        }
    }

    #[tokio::test]
    async fn waiter_continues_when_its_record_is_projected() {
        let progress = Progress::default();
        let steps: [(u64, &dyn Fn()); 3] = [
            (5, &|| progress.commit(Seq(5))),
            (9, &|| progress.begin_feed(Seq(9))),
            (14, &|| progress.apply(Seq(14))),
        ];
        progress.commit(Seq(4));
        progress.reach(Seq(4)).await;
        for (seq, step) in steps {
            let mut reached = std::pin::pin!(progress.reach(Seq(seq)));
            assert!(is_pending(&mut reached).await, "{seq}");
            step();
            if seq == 9 {
                // Notes that are handed over from here on are not committed.
                progress.commit(Seq(9));
            }
            assert!(!is_pending(&mut reached).await, "{seq}");
        }
    }
}
