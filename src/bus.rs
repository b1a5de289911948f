//! How records are appended and followed while the daemon runs: append, then wake the readers. What opens, reads, seals, repairs
//! and copies the journal's files uses `journal` itself.
//!
//! The journal is the buffer, so the bus has no queue of its own. What it adds is the key that makes publishing idempotent,
//! and back-pressure: publishing waits while the engine is far behind, so that an exchange, which never waits here, is
//! handled soon after it is appended also in the midst of a burst.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio::sync::{Mutex, watch};

use crate::{
    event::Seq,
    journal::{AppendBatch, AppendError, Appended, Appending, DiskFull, Journal, Level, Poisoned, Reader},
};

/// How much work the engine may have before it when publishing waits: what an exchange waits at most behind events. A batch that
/// is more than that by itself comes on top of half of it, and whoever publishes takes the processor from the engine meanwhile: so a
/// quarter of the 20 ms that an exchange may take.
const LAG: Duration = Duration::from_millis(5);
/// Fewest and most records that this can be, however slow or fast the engine is.
const LAG_RECORDS: (u64, u64) = (64, 16_384);
/// The same until the engine's pace is known.
const LAG_RECORDS_AT_FIRST: u64 = 1_024;
/// How many notifications for many sessions may be untaken, over all sessions, when publishing waits: sessions take some 700,000 a second,
/// and one that asks takes its own at once, as many as there are divided by the sessions.
const UNTAKEN_MAX: u64 = 262_144;
/// How long the engine has to have worked before its pace counts, so that a reading in whole milliseconds is near enough.
const PACE_AFTER: Duration = Duration::from_millis(20);

/// How fast the engine handles records.
#[derive(Debug, Default)]
pub struct Pace {
    records: u64,
    took: Duration,
}

impl Pace {
    /// Takes note of some records and how long they took; from time to time tells how many records are worth `LAG`.
    pub fn note(&mut self, records: u64, took: Duration) -> Option<u64> {
        self.records += records;
        self.took += took;
        if self.took < PACE_AFTER {
            return None;
        }
        let Self { records, took } = std::mem::take(self);
        let (least, most) = LAG_RECORDS;
        let worth = u128::from(records) * LAG.as_micros() / took.as_micros().max(1);
        Some(u64::try_from(worth).unwrap_or(most).clamp(least, most))
    }
}

/// Whether a batch of so many records may follow `lag` others that the engine has before it; one that would never fit, once
/// half of what may be is handled.
fn has_room(records: u64, lag: u64, lag_max: u64) -> bool {
    lag + records <= lag_max || lag <= lag_max / 2
}

/// A handle of the bus; cloning gives another one.
#[derive(Debug, Clone)]
pub struct Bus {
    journal: Journal,
    /// How far the engine is. Each value replaces the one before; who waits looks at the newest.
    consumed: Arc<watch::Sender<Seq>>,
    /// How many records the engine may be behind before publishing waits.
    lag_max: Arc<AtomicU64>,
    /// What sessions have yet to take of what the engine has handled.
    untaken: Arc<AtomicU64>,
    /// Held by the one publisher that is next, so that two that wait do not take the same room.
    next: Arc<Mutex<()>>,
}

/// The key by which an event is known to be published already.
///
/// Shape: the first 128 bits of a SHA-256, so that no producer can find an id that collides with another one's event.
pub fn idempotency_key(source: &str, id: &str) -> u128 {
    let mut hash = Sha256::new();
    // The length keeps ("ab", "c") and ("a", "bc") apart.
    hash.update((source.len() as u64).to_le_bytes());
    hash.update(source);
    hash.update(id);
    let digest: [u8; 32] = hash.finalize().into();
    u128::from_le_bytes(*digest.first_chunk().expect("32 bytes begin with 16"))
}

impl Bus {
    /// A bus on a journal of which the engine has consumed everything up to `consumed`.
    pub fn new(journal: Journal, consumed: Seq) -> Self {
        let consumed = Arc::new(watch::Sender::new(consumed));
        let lag_max = Arc::new(AtomicU64::new(LAG_RECORDS_AT_FIRST));
        Self { journal, consumed, lag_max, untaken: Arc::default(), next: Arc::default() }
    }

    /// Publishes events: waits until the engine is near, appends, and answers when they are as durable as is set.
    ///
    /// A caller that waits holds one batch, so what waits is bounded by the number of callers.
    ///
    /// Errors: the journal is poisoned, full or closed.
    pub async fn publish(&self, batch: AppendBatch) -> Result<Appended, AppendError> {
        let batch = self.admit(batch).await;
        self.journal.append(batch, Level::Synced).await
    }

    /// Waits until the engine is near and gives the events their place; whoever has more to read meanwhile waits for the disk
    /// later.
    ///
    /// Errors: the journal is poisoned or closed; that it is full is said when the batch is waited for.
    pub async fn begin_publish(&self, batch: AppendBatch) -> Result<Appending, AppendError> {
        let batch = self.admit(batch).await;
        self.journal.begin_append(batch, Level::Synced).await
    }

    /// Waits until the engine is near enough for a batch; the next one is let in when this one is written.
    async fn admit(&self, batch: AppendBatch) -> AppendBatch {
        let (written, records) = (self.journal.written(), batch.len() as u64);
        let is_near = |consumed: &Seq| {
            let lag = written.borrow().0.saturating_sub(consumed.0);
            has_room(records, lag, self.lag_max.load(Ordering::Relaxed))
                && self.untaken.load(Ordering::Relaxed) <= UNTAKEN_MAX
        };
        let next = Arc::clone(&self.next).lock_owned().await;
        // The sender is a part of the bus, so waiting does not fail while someone can wait.
        let _ = self.consumed.subscribe().wait_for(is_near).await;
        batch.holding(next)
    }

    /// Appends what must not wait for the engine: exchanges, acks, sessions, rules, ticks. On a full disk it takes what
    /// publishing leaves.
    ///
    /// Errors: the journal is poisoned, full to the last byte, or closed.
    pub async fn append(&self, batch: AppendBatch, level: Level) -> Result<Appended, AppendError> {
        self.journal.append(batch.with_reserve(), level).await
    }

    /// Says how many records the engine may be behind from now on; see [`Pace::note`].
    pub fn set_lag_max(&self, records: u64) {
        self.lag_max.store(records, Ordering::Relaxed);
    }

    /// Says how many notifications sessions have yet to take, of what the engine has handled; before [`Self::consumed`], which lets
    /// those in that wait.
    pub fn set_untaken(&self, notifications: u64) {
        self.untaken.store(notifications, Ordering::Relaxed);
    }

    /// Says that the engine has handled everything up to `seq`.
    pub fn consumed(&self, seq: Seq) {
        self.consumed.send_if_modified(|consumed| {
            let has_moved = seq > *consumed;
            *consumed = seq.max(*consumed);
            has_moved
        });
    }

    /// Waits until the engine has handled everything up to `seq`, or the bus is closed.
    pub async fn handled(&self, seq: Seq) {
        // The sender is a part of the bus, so waiting does not fail while someone can wait.
        let _ = self.consumed.subscribe().wait_for(|consumed| *consumed >= seq).await;
    }

    /// How many records the engine has yet to handle.
    pub fn lag(&self) -> u64 {
        self.written().borrow().0.saturating_sub(self.consumed.borrow().0)
    }

    /// A reader whose first record is the one at `seq`.
    pub fn read_from(&self, seq: Seq) -> Reader {
        self.journal.read_from(seq)
    }

    /// The last record that can be read, as it moves.
    pub fn written(&self) -> watch::Receiver<Seq> {
        self.journal.written()
    }

    /// The last record that survives a power loss, as it moves.
    pub fn synced(&self) -> watch::Receiver<Seq> {
        self.journal.synced()
    }

    /// The failure after which nothing more is appended, if there was one.
    pub fn poisoned(&self) -> Option<Poisoned> {
        self.journal.poisoned()
    }

    /// What is missing for the journal to go on, while the disk is full.
    pub fn disk_full(&self) -> Option<DiskFull> {
        self.journal.disk_full()
    }

    /// The journal itself, for whoever looks up single records or waits for its failure.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Closes the journal after what was handed over, and lets those who wait for the engine go, to be refused.
    ///
    /// Errors: the journal is poisoned, so what was not synced may be lost.
    pub async fn close(&self) -> Result<(), Poisoned> {
        let closed = self.journal.close().await;
        self.set_untaken(0);
        self.consumed(Seq(u64::MAX));
        closed
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;
    use crate::{
        journal::{JournalSettings, memory::MemoryFiles, record::RecordKind},
        time::Timestamp,
    };

    #[test]
    fn an_idempotency_key_depends_on_source_and_id_and_stays_the_same() {
        // Computed apart from this program: sha256(u64 2, "fs1"), the first 16 bytes, little-endian.
        assert_eq!(idempotency_key("fs", "1"), 0xdcd7_d900_8321_0523_03b7_9bb7_6259_0db2);
        assert_ne!(idempotency_key("ab", "c"), idempotency_key("a", "bc"));
    }

    #[tokio::test]
    async fn publishing_waits_while_the_engine_is_far_behind_and_exchanges_do_not() {
        let bus = bus();
        bus.publish(batch(LAG_RECORDS_AT_FIRST + 1)).await.expect("the engine was near before it");
        let mut waiting = pin!(bus.publish(batch(1)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        bus.append(batch(1), Level::Written).await.expect("appended");
        assert_eq!(bus.lag(), LAG_RECORDS_AT_FIRST + 2);
        bus.consumed(Seq(2));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        bus.consumed(Seq(3));
        let published = waiting.await.expect("appended");
        assert_eq!(published.first(), Some(Seq(LAG_RECORDS_AT_FIRST + 3)));
    }

    #[test]
    fn the_lag_is_what_the_engine_does_in_five_milliseconds() {
        let mut pace = Pace::default();
        assert_eq!(pace.note(5_000, Duration::from_millis(19)), None);
        assert_eq!(pace.note(5_000, Duration::from_millis(1)), Some(2_500));
        assert_eq!(pace.note(0, Duration::ZERO), None);
        assert_eq!(pace.note(2_000, Duration::from_millis(100)), Some(100));
        assert_eq!(pace.note(1, Duration::from_secs(1)), Some(64));
        assert_eq!(pace.note(1_000_000, Duration::from_millis(20)), Some(16_384));
    }

    #[test]
    fn a_batch_fits_or_waits_for_half() {
        for (records, lag, has) in
            [(40, 60, true), (40, 61, false), (41, 60, false), (1_000, 50, true), (1_000, 51, false)]
        {
            assert_eq!(has_room(records, lag, 100), has, "{records} behind {lag}");
        }
    }

    #[tokio::test]
    async fn a_slower_engine_may_be_less_behind() {
        let bus = bus();
        bus.publish(batch(100)).await.expect("the engine was near before it");
        bus.set_lag_max(99);
        let mut waiting = pin!(bus.publish(batch(1)));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        bus.consumed(Seq(2));
        waiting.await.expect("appended");
    }

    #[tokio::test]
    async fn publishing_waits_while_sessions_have_much_to_take_and_exchanges_do_not() {
        let bus = bus();
        bus.publish(batch(1)).await.expect("nothing is before it");
        bus.set_untaken(UNTAKEN_MAX + 1);
        bus.consumed(Seq(1));
        let mut waiting = pin!(bus.publish(batch(1)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        bus.append(batch(1), Level::Written).await.expect("appended");
        bus.set_untaken(UNTAKEN_MAX);
        bus.consumed(Seq(2));
        waiting.await.expect("appended");
    }

    #[tokio::test]
    async fn two_publishers_do_not_take_the_same_room() {
        let bus = bus();
        bus.publish(batch(LAG_RECORDS_AT_FIRST)).await.expect("the engine was near before it");
        let mut publishing = [600, 600].map(|records| Box::pin(bus.publish(batch(records))));
        let mut context = Context::from_waker(Waker::noop());
        assert!(publishing.iter_mut().all(|publish| publish.as_mut().poll(&mut context).is_pending()));
        bus.consumed(Seq(LAG_RECORDS_AT_FIRST));
        let [first, mut second] = publishing;
        first.await.expect("appended");
        assert!(second.as_mut().poll(&mut context).is_pending(), "it waits for more room");
        assert_eq!(bus.lag(), 600);
        bus.consumed(Seq(LAG_RECORDS_AT_FIRST + 600));
        second.await.expect("appended");
    }

    #[tokio::test]
    async fn a_publisher_whose_batch_is_refused_or_known_lets_the_next_one_in() {
        let bus = bus();
        for _ in 0..2 {
            let known = AppendBatch::of(RecordKind(1), b"event", Some(7)).expect("small");
            bus.begin_publish(known).await.expect("begun").done().await.expect("appended");
        }
        bus.publish(batch(1)).await.expect("appended");
        bus.close().await.expect("closed");
        for _ in 0..2 {
            assert!(matches!(bus.publish(batch(1)).await, Err(AppendError::Closed)));
        }
    }

    #[tokio::test]
    async fn the_engine_does_not_step_back() {
        let bus = bus();
        bus.publish(batch(5)).await.expect("appended");
        bus.consumed(Seq(4));
        bus.consumed(Seq(2));
        assert_eq!(bus.lag(), 1);
    }

    #[tokio::test]
    async fn closing_refuses_who_waits_for_the_engine() {
        let bus = bus();
        bus.publish(batch(LAG_RECORDS_AT_FIRST + 1)).await.expect("the engine was near before it");
        bus.set_untaken(UNTAKEN_MAX + 1);
        let mut waiting = pin!(bus.publish(batch(1)));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        bus.close().await.expect("closed");
        let refused = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(refused, Poll::Ready(Err(AppendError::Closed))), "{refused:?}");
        assert_eq!(*bus.synced().borrow(), Seq(LAG_RECORDS_AT_FIRST + 1));
    }

    fn bus() -> Bus {
        let settings = JournalSettings { segment_bytes: 1 << 16, ..JournalSettings::default() };
        let files = Arc::new(MemoryFiles::new());
        let opened = Journal::open(files, settings, Arc::new(|| Timestamp::ZERO), &|_| None).expect("opened");
        Bus::new(opened.journal, opened.last_seq)
    }

    fn batch(records: u64) -> AppendBatch {
        let mut batch = AppendBatch::new();
        for _ in 0..records {
            batch.push(RecordKind(1), b"event", None).expect("small");
        }
        batch
    }
}
