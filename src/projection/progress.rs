//! How far the projection is, without asking its thread.
//!
//! Most records leave nothing to write, and the thread is not woken for them. So what is projected is what was committed, or all
//! that the event loop has applied while nothing that it handed over is still to be committed.

use std::{
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
};

use tokio::sync::Notify;

use crate::event::Seq;

/// Where the event loop and the projection's thread are.
#[derive(Debug)]
pub struct Progress {
    /// What the event loop has applied.
    applied: AtomicU64,
    /// The last record of what was handed over; the greatest number while nothing is handed over.
    handed: AtomicU64,
    /// What is committed.
    committed: AtomicU64,
    /// Tells those who wait that more may be projected.
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
    /// From here on everything is handed over, and up to `applied` there is nothing to hand over.
    pub fn begin_feed(&self, applied: Seq) {
        self.applied.store(applied.0, Ordering::Release);
        self.handed.store(applied.0, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Nothing more is handed over.
    pub fn end_feed(&self) {
        self.handed.store(u64::MAX, Ordering::Release);
    }

    /// What is about to be handed over ends at `upto`; to be said before [`Progress::apply`] covers it.
    pub fn hand(&self, upto: Seq) {
        self.handed.store(upto.0, Ordering::Release);
    }

    /// The event loop has applied everything up to `applied`, and handed over what there was.
    pub fn apply(&self, applied: Seq) {
        self.applied.store(applied.0, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Everything up to `committed` is in the file.
    pub fn commit(&self, committed: Seq) {
        self.committed.store(committed.0, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Everything up to this record is in the file, or left nothing to write there.
    pub fn projected(&self) -> Seq {
        // In this order: what was applied when it is read was handed over before.
        let applied = self.applied.load(Ordering::Acquire);
        let handed = self.handed.load(Ordering::Acquire);
        let committed = self.committed.load(Ordering::Acquire);
        Seq(if committed >= handed { committed.max(applied) } else { committed })
    }
}

impl Progress {
    /// Waits until everything up to `seq` is projected; for ever if nobody projects. Cancel-safe.
    pub async fn reach(&self, seq: Seq) {
        loop {
            // What changes after it was looked is not missed.
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
    fn records_that_leave_nothing_to_write_are_projected_at_once_and_others_when_committed() {
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
    async fn who_waits_goes_on_when_it_is_projected_however_it_came_to_be() {
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
                // What is fed from there on is not committed.
                progress.commit(Seq(9));
            }
            assert!(!is_pending(&mut reached).await, "{seq}");
        }
    }
}
