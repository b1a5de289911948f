//! Back-pressure: publishing waits while the consumer of the journal is far behind. An exchange
//! never waits here, so it is handled soon after its append even during a burst. The journal is the
//! buffer; there is no queue.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Mutex, watch};

use crate::{Seq, commit::append::AppendBatch};

/// Pending work of the consumer above which publishing waits: the longest wait of an exchange
/// behind events. It is a tenth of the 20 ms that an exchange may take, because a larger batch is
/// admitted once the lag is half of this, and publishers compete with the consumer for the
/// processor. In a burst of events that all match, 5 ms doubled the p99 of an exchange and added a
/// tenth more events a second.
const LAG: Duration = Duration::from_millis(2);
/// Bounds of the lag in records, for a slow and a fast consumer. An event for four templates that
/// all reach their bounds takes 1 ms (`scripts/hostile-templates`), and a lag of 64 such events
/// kept exchanges waiting for up to 148 ms.
const LAG_RECORDS: (u64, u64) = (4, 16_384);
/// The lag until the consumer's pace is known (`PACE_AFTER`); small, because the consumer may be
/// slow.
const LAG_RECORDS_AT_FIRST: u64 = 8;
/// Number of untaken notifications of all sessions above which publishing waits. Sessions take some
/// 700,000 a second, and one session takes its share (untaken divided by sessions) at once.
const UNTAKEN_MAX: u64 = 262_144;
/// How long the consumer has to work before its pace counts: one slice of the event loop. When
/// records become expensive, publishers wait before many of them are written.
const PACE_AFTER: Duration = Duration::from_millis(2);

/// How fast the consumer handles records.
#[derive(Debug, Default)]
pub struct Pace {
    records: u64,
    took: Duration,
}

impl Pace {
    /// Counts records and the time they took; returns at intervals how many records take `LAG`.
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

/// Whether a batch of `records` may follow `lag` pending records. A batch that never fits is
/// admitted once at most half of `lag_max` is pending.
fn has_room(records: u64, lag: u64, lag_max: u64) -> bool {
    lag + records <= lag_max || lag <= lag_max / 2
}

/// The consumer's position, and how far behind it may be.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Only the newest value matters to a waiter.
    consumed: watch::Sender<Seq>,
    /// How many records the consumer may be behind before publishing waits.
    lag_max: AtomicU64,
    /// Notifications that the consumer handled and sessions have not taken.
    untaken: AtomicU64,
    /// Held by the next publisher, so that two waiters do not take the same room.
    next: Arc<Mutex<()>>,
}

impl Admission {
    /// Creates the state for a consumer that has handled everything up to `consumed`.
    pub(crate) fn new(consumed: Seq) -> Self {
        Self {
            consumed: watch::Sender::new(consumed),
            lag_max: AtomicU64::new(LAG_RECORDS_AT_FIRST),
            untaken: AtomicU64::new(0),
            next: Arc::default(),
        }
    }

    /// Waits until the consumer's lag has room for a batch. The next publisher is admitted when
    /// this batch is written.
    pub(crate) async fn admit(&self, batch: AppendBatch, written: &watch::Receiver<Seq>) -> AppendBatch {
        let records = batch.len() as u64;
        let is_near = |consumed: &Seq| {
            let lag = written.borrow().0.saturating_sub(consumed.0);
            has_room(records, lag, self.lag_max.load(Ordering::Relaxed))
                && self.untaken.load(Ordering::Relaxed) <= UNTAKEN_MAX
        };
        let next = Arc::clone(&self.next).lock_owned().await;
        // `self` owns the sender, so waiting cannot fail.
        let _ = self.consumed.subscribe().wait_for(is_near).await;
        batch.holding(next)
    }

    /// Notes that the consumer has handled everything up to `seq`.
    pub(crate) fn consumed(&self, seq: Seq) {
        self.consumed.send_if_modified(|consumed| {
            let has_moved = seq > *consumed;
            *consumed = seq.max(*consumed);
            has_moved
        });
    }

    pub(crate) fn set_lag_max(&self, records: u64) {
        self.lag_max.store(records, Ordering::Relaxed);
    }

    pub(crate) fn set_untaken(&self, notifications: u64) {
        self.untaken.store(notifications, Ordering::Relaxed);
    }

    /// Waits until the consumer has handled everything up to `seq`.
    pub(crate) async fn handled(&self, seq: Seq) {
        // `self` owns the sender, so waiting cannot fail.
        let _ = self.consumed.subscribe().wait_for(|consumed| *consumed >= seq).await;
    }

    /// Number of records up to `written` that the consumer has not handled yet.
    pub(crate) fn lag(&self, written: Seq) -> u64 {
        written.0.saturating_sub(self.consumed.borrow().0)
    }

    /// Admits all waiters; a closed journal then refuses them.
    pub(crate) fn release(&self) {
        self.untaken.store(0, Ordering::Relaxed);
        self.consumed(Seq(u64::MAX));
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
        AppendError, Journal, Level,
        log::{memory::MemoryFiles, record::RecordKind},
        settings::JournalSettings,
        time::Timestamp,
    };

    #[tokio::test]
    async fn a_lagging_consumer_delays_publishing_but_not_exchanges() {
        let journal = journal();
        journal.publish(batch(LAG_RECORDS_AT_FIRST + 1)).await.expect("the consumer was near before it");
        let mut waiting = pin!(journal.publish(batch(1)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        journal.append(batch(1), Level::Written).await.expect("appended");
        assert_eq!(journal.lag(), LAG_RECORDS_AT_FIRST + 2);
        journal.consumed(Seq(2));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        journal.consumed(Seq(3));
        let published = waiting.await.expect("appended");
        assert_eq!(published.first(), Some(Seq(LAG_RECORDS_AT_FIRST + 3)));
    }

    #[test]
    fn the_lag_limit_is_two_milliseconds_of_consumption() {
        let mut pace = Pace::default();
        assert_eq!(pace.note(700, Duration::from_micros(1_900)), None);
        assert_eq!(pace.note(300, Duration::from_micros(100)), Some(1_000));
        assert_eq!(pace.note(0, Duration::ZERO), None);
        assert_eq!(pace.note(2_000, Duration::from_millis(100)), Some(40));
        assert_eq!(pace.note(2, Duration::from_millis(2)), Some(4), "hostile templates, at the least");
        assert_eq!(pace.note(1, Duration::from_secs(1)), Some(4));
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
    async fn a_slower_consumer_may_be_less_behind() {
        let journal = journal();
        journal.publish(batch(100)).await.expect("the consumer was near before it");
        journal.set_lag_max(99);
        let mut waiting = pin!(journal.publish(batch(1)));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        journal.consumed(Seq(2));
        waiting.await.expect("appended");
    }

    #[tokio::test]
    async fn untaken_notifications_delay_publishing_but_not_exchanges() {
        let journal = journal();
        journal.publish(batch(1)).await.expect("nothing is before it");
        journal.set_untaken(UNTAKEN_MAX + 1);
        journal.consumed(Seq(1));
        let mut waiting = pin!(journal.publish(batch(1)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        journal.append(batch(1), Level::Written).await.expect("appended");
        journal.set_untaken(UNTAKEN_MAX);
        journal.consumed(Seq(2));
        waiting.await.expect("appended");
    }

    #[tokio::test]
    async fn two_publishers_do_not_take_the_same_room() {
        let journal = journal();
        journal.publish(batch(LAG_RECORDS_AT_FIRST)).await.expect("the consumer was near before it");
        let mut publishing = [600, 600].map(|records| Box::pin(journal.publish(batch(records))));
        let mut context = Context::from_waker(Waker::noop());
        assert!(publishing.iter_mut().all(|publish| publish.as_mut().poll(&mut context).is_pending()));
        journal.consumed(Seq(LAG_RECORDS_AT_FIRST));
        let [first, mut second] = publishing;
        first.await.expect("appended");
        assert!(second.as_mut().poll(&mut context).is_pending(), "it waits for more room");
        assert_eq!(journal.lag(), 600);
        journal.consumed(Seq(LAG_RECORDS_AT_FIRST + 600));
        second.await.expect("appended");
    }

    #[tokio::test]
    async fn refused_or_duplicate_batch_admits_the_next_publisher() {
        let journal = journal();
        for _ in 0..2 {
            let known = AppendBatch::of(RecordKind(1), b"event", Some(7)).expect("small");
            journal.begin_publish(known).await.expect("begun").done().await.expect("appended");
        }
        journal.publish(batch(1)).await.expect("appended");
        journal.close().await.expect("closed");
        for _ in 0..2 {
            assert!(matches!(journal.publish(batch(1)).await, Err(AppendError::Closed)));
        }
    }

    #[tokio::test]
    async fn the_consumer_does_not_step_back() {
        let journal = journal();
        journal.publish(batch(5)).await.expect("appended");
        journal.consumed(Seq(4));
        journal.consumed(Seq(2));
        assert_eq!(journal.lag(), 1);
    }

    #[tokio::test]
    async fn closing_refuses_who_waits_for_the_consumer() {
        let journal = journal();
        journal.publish(batch(LAG_RECORDS_AT_FIRST + 1)).await.expect("the consumer was near before it");
        journal.set_untaken(UNTAKEN_MAX + 1);
        let mut waiting = pin!(journal.publish(batch(1)));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        journal.close().await.expect("closed");
        let refused = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(refused, Poll::Ready(Err(AppendError::Closed))), "{refused:?}");
        assert_eq!(*journal.synced().borrow(), Seq(LAG_RECORDS_AT_FIRST + 1));
    }

    fn journal() -> Journal {
        let settings = JournalSettings { segment_bytes: 1 << 16, ..JournalSettings::default() };
        let files = Arc::new(MemoryFiles::new());
        Journal::open(files, settings, Arc::new(|| Timestamp::ZERO), &|_| None).expect("opened").journal
    }

    fn batch(records: u64) -> AppendBatch {
        let mut batch = AppendBatch::new();
        for _ in 0..records {
            batch.push(RecordKind(1), b"event", None).expect("small");
        }
        batch
    }
}
