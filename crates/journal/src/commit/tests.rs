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

#[test]
fn a_batch_keeps_bodies_apart() {
    let mut batch = AppendBatch::of(RecordKind(1), b"one", None).expect("small");
    batch.push(RecordKind(2), b"", Some(7)).expect("small");
    batch.push_with(RecordKind(3), None, |bodies| bodies.extend(b"three")).expect("small");
    let records: Vec<_> = batch.records().map(|(kind, body, key, _)| (kind.0, body, key)).collect();
    assert_eq!(records, [(1, b"one".as_slice(), None), (2, b"", Some(7)), (3, b"three", None)]);
}

#[test]
fn an_oversized_body_is_refused_without_changing_batch() {
    let mut batch = AppendBatch::of(RecordKind(1), b"one", None).expect("small");
    let large = vec![0; BODY_BYTES_MAX + 1];
    let refused = Err(BodyTooLarge { bytes: BODY_BYTES_MAX + 1 });
    assert_eq!(batch.push(RecordKind(1), &large, None), refused);
    assert_eq!(batch.push_with(RecordKind(1), None, |bodies| bodies.extend(&large)), refused);
    batch.push(RecordKind(1), b"two", None).expect("small");
    let bodies: Vec<_> = batch.records().map(|(_, body, ..)| body).collect();
    assert_eq!(bodies, [b"one", b"two"]);
}

#[test]
fn outcomes_are_in_the_order_of_the_batch() {
    let duplicates = vec![(1, Seq(3)), (3, Seq(10))];
    let time = Timestamp::ZERO;
    let appended =
        Appended { time, level: Level::Synced, records: 4, begin: Seq(10), duplicates, prefaced: Vec::new() };
    let outcomes: Vec<_> = appended.outcomes().collect();
    assert_eq!(
        outcomes,
        [
            Outcome::Appended(Seq(10)),
            Outcome::Duplicate(Seq(3)),
            Outcome::Appended(Seq(11)),
            Outcome::Duplicate(Seq(10)),
        ]
    );
    assert_eq!((appended.first(), appended.last()), (Some(Seq(10)), Some(Seq(11))));
}

#[test]
fn a_segment_preface_takes_its_own_position() {
    let (time, duplicates) = (Timestamp::ZERO, vec![(1, Seq(3))]);
    let appended =
        Appended { time, level: Level::Synced, records: 4, begin: Seq(10), duplicates, prefaced: vec![1, 3] };
    let outcomes: Vec<_> = appended.outcomes().collect();
    assert_eq!(
        outcomes,
        [
            Outcome::Appended(Seq(10)),
            Outcome::Duplicate(Seq(3)),
            Outcome::Appended(Seq(12)),
            Outcome::Appended(Seq(14)),
        ]
    );
    assert_eq!(appended.last(), Some(Seq(14)));
}

#[test]
fn a_preface_before_a_duplicate_is_not_last() {
    let appended = Appended {
        time: Timestamp::ZERO,
        level: Level::Synced,
        records: 2,
        begin: Seq(10),
        duplicates: vec![(1, Seq(3))],
        prefaced: vec![1],
    };
    assert_eq!((appended.first(), appended.last()), (Some(Seq(10)), Some(Seq(10))));
}

#[test]
fn a_batch_of_duplicates_wrote_nothing() {
    let appended = Appended {
        time: Timestamp::ZERO,
        level: Level::Synced,
        records: 1,
        begin: Seq(10),
        duplicates: vec![(0, Seq(4))],
        prefaced: Vec::new(),
    };
    assert_eq!((appended.first(), appended.last()), (None, None));
}

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
