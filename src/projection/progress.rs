//! How far the projection is, without asking its thread.
//!
//! Most records leave nothing to write, and the thread is not woken for them. So what is projected is what was committed, or all
//! that the event loop has applied while nothing that it handed over is still to be committed.

use std::sync::atomic::{AtomicU64, Ordering};

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
}

impl Default for Progress {
    fn default() -> Self {
        Self { applied: AtomicU64::new(0), handed: AtomicU64::new(u64::MAX), committed: AtomicU64::new(0) }
    }
}

impl Progress {
    /// From here on everything is handed over, and up to `applied` there is nothing to hand over.
    pub fn begin_feed(&self, applied: Seq) {
        self.applied.store(applied.0, Ordering::Release);
        self.handed.store(applied.0, Ordering::Release);
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
    }

    /// Everything up to `committed` is in the file.
    pub fn commit(&self, committed: Seq) {
        self.committed.store(committed.0, Ordering::Release);
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
}
