//! The loop with a clock that a test sets, and a journal in memory.
#![expect(clippy::disallowed_methods, reason = "the test runs the loop's task and lets simulated time pass")]

use std::{
    any::Any,
    sync::atomic::{AtomicU64, Ordering},
};

use serde_json::json;
use tokio::task::{JoinHandle, yield_now};

use super::*;
use engine::{
    event::{Payload, Provenance, Severity},
    exchange::{Exchange, Harness},
    notification::InjectionPoint,
    records,
};
use journal::{JournalSettings, memory::MemoryFiles};

use crate::{
    api::EngineHandle,
    config::layers::{LayerKind, SourceFile, Sources},
    daemon::{
        clock::clock_fn,
        projector::{Projector, ReplaySource},
        rules::RulesStore,
        snapshots::{Snapshots, writer},
    },
    history::{FILE_NAME, Projection},
};

/// Milliseconds of the wall clock and of the monotonic one.
static WALL: AtomicU64 = AtomicU64::new(1_000_000);
static MONOTONIC: AtomicU64 = AtomicU64::new(0);

/// When the wall clock is set back, in monotonic milliseconds, and by how much.
const BACK_AT: u64 = 59_990;
const BACK_BY: u64 = 1_000;

fn read() -> (Timestamp, Duration) {
    (Timestamp::from_millis(WALL.load(Ordering::SeqCst)), monotonic())
}

fn monotonic() -> Duration {
    Duration::from_millis(MONOTONIC.load(Ordering::SeqCst))
}

/// A clock that advances by a millisecond at each read.
fn advance_and_read() -> Duration {
    static READS: AtomicU64 = AtomicU64::new(0);
    Duration::from_millis(READS.fetch_add(1, Ordering::SeqCst))
}

/// Advances both clocks with the runtime's, and sets the wall clock back once.
async fn turn_clocks() {
    let mut every = tokio::time::interval(Duration::from_millis(1));
    every.tick().await;
    loop {
        every.tick().await;
        let monotonic = MONOTONIC.fetch_add(1, Ordering::SeqCst) + 1;
        WALL.fetch_add(1, Ordering::SeqCst);
        if monotonic == BACK_AT {
            WALL.fetch_sub(BACK_BY, Ordering::SeqCst);
        }
    }
}

fn kinds(journal: &Journal) -> Vec<u8> {
    let mut reader = journal.read_from(Seq(1));
    let batch = reader.next_batch(usize::MAX).expect("readable");
    batch.iter().map(|record| record.kind.0).collect()
}

/// A loop that is not running yet, with one session, and the objects that it needs.
struct Prepared {
    event_loop: EventLoop,
    journal: Journal,
    engine: EngineHandle,
    drain: watch::Sender<bool>,
    /// Dropped last: the rules' folder, and the other ends of the loop's channels.
    others: Box<dyn Any + Send>,
}

impl Prepared {
    /// Prepares it with the rules in `files`, each a name and a text.
    async fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Arc::new(Clock::reading(read, Timestamp::ZERO));
        let (settings, memory) = (JournalSettings::default(), Arc::new(MemoryFiles::new()));
        let opened = Journal::open(memory.clone(), settings, clock_fn(&clock), &|_| None);
        let journal = opened.expect("opened").journal;
        let rules = RulesStore::new(folder.path());
        let mut fold = Fold::new(rules.clone());
        let sources = Sources::new(files.iter().map(|(name, text)| SourceFile {
            layer: LayerKind::User,
            name: (*name).into(),
            path: (*name).into(),
            text: (*text).into(),
        }));
        rules.keep(&sources).expect("kept");
        let hash = sources.hash();
        append(&journal, |records| records.rules(&hash)).await;
        open_session(&journal, "s1").await;

        let (projection, commands) = Projection::new(&folder.path().join(FILE_NAME));
        let snapshots = Arc::new(Snapshots::open(memory).expect("listed"));
        let (followed, ended) = (journal.clone(), Seq::ZERO);
        let replay_source =
            ReplaySource { journal: followed, snapshots, rules, ended, skipped: Default::default() };
        let (projector, feed) = Projector::new(projection.clone(), commands, replay_source, None, &mut fold);
        let (engine, queries) = EngineHandle::new(monotonic);
        let (orders, ordered) = writer::orders();
        let (drain, draining) = watch::channel(false);
        let event_loop = EventLoop {
            fold,
            journal: journal.clone(),
            publisher: Publisher::new(journal.clone()),
            reader: journal.read_from(Seq(1)),
            clock,
            monotonic,
            registry: Arc::new(Registry::new(1)),
            queries,
            pulse: Arc::clone(engine.pulse()),
            feed,
            pace: Pace::default(),
            watchdog: Watchdog::new(None, Duration::ZERO),
            drain: draining,
            outbox: VecDeque::new(),
            schedule: Schedule::new(orders, 1_000, Seq::ZERO),
            zone: || TimeZone::UTC,
            zone_read_at: Timestamp::ZERO,
        };
        Self { event_loop, journal, engine, drain, others: Box::new((folder, projector, ordered)) }
    }
}

/// A running loop.
struct Running {
    journal: Journal,
    engine: EngineHandle,
    drain: watch::Sender<bool>,
    ended: JoinHandle<Result<(), LoopError>>,
    registry: Arc<Registry>,
    clocks: JoinHandle<()>,
    _others: Box<dyn Any + Send>,
}

impl Running {
    /// Starts it with the rules in `files`.
    async fn start(files: &[(&str, &str)]) -> Self {
        let Prepared { event_loop, journal, engine, drain, others: _others } = Prepared::new(files).await;
        let registry = Arc::clone(&event_loop.registry);
        let clocks = tokio::spawn(turn_clocks());
        let ended = tokio::spawn(event_loop.run());
        Self { journal, engine, drain, ended, registry, clocks, _others }
    }

    /// Stops it; returns the kinds of the records.
    async fn stop(self) -> Vec<u8> {
        self.drain.send_replace(true);
        self.ended.await.expect("it ends").expect("without an error");
        self.clocks.abort();
        kinds(&self.journal)
    }
}

async fn append(journal: &Journal, add: impl FnOnce(&mut Records)) {
    Publisher::new(journal.clone()).append(Records::build(add)).await.expect("appended");
}

async fn open_session(journal: &Journal, id: &str) {
    append(journal, |records| records.session_opened(&SessionId::new(id), &Harness::default())).await;
}

/// Runs a loop with one session for a time, and returns the kinds of the records; `is_followed`
/// states whether a client follows the session.
async fn run_for(time: Duration, idle_close: &str, is_followed: bool) -> Vec<u8> {
    let settings = format!("[sessions]\nidle_close = \"{idle_close}\"\n");
    let running = Running::start(&[("aside.toml", &settings)]).await;
    let _follower = is_followed.then(|| running.registry.watch(&SessionId::new("s1")));
    tokio::time::sleep(time).await;
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn deadline_in_small_clock_correction_ticks_once() {
    let kinds = run_for(Duration::from_secs(65), "1m", false).await;
    let expected = [records::RULES, records::SESSION_OPENED, records::TICK, records::SHUTTING_DOWN];
    assert_eq!(kinds, expected);
}

#[tokio::test(start_paused = true)]
async fn followed_session_is_not_closed_for_silence() {
    let kinds = run_for(Duration::from_secs(500), "6m", true).await;
    let seen = kinds.iter().filter(|kind| **kind == records::SESSION_SEEN).count();
    assert!((1..=2).contains(&seen), "one in three minutes at most: {kinds:?}");
    assert!(!kinds.contains(&records::TICK), "nothing was due: {kinds:?}");
}

#[tokio::test(start_paused = true)]
async fn due_work_runs_while_records_keep_coming() {
    let subscriber = r#"
        [subscriber]
        id = "hot"
        [events]
        types = ["test.made"]
        severity_filter = "debug"
        [batching]
        window_ms = 0
    "#;
    let running = Running::start(&[("subscribers/hot.toml", subscriber)]).await;
    for number in 2..=20 {
        open_session(&running.journal, &format!("s{number}")).await;
    }
    let event = Event {
        id: "e1".into(),
        event_type: "test.made".parse().expect("valid"),
        source: "test".into(),
        provenance: Provenance::Local,
        severity: Severity::Info,
        timestamp: Timestamp::ZERO,
        payload: Payload::from(json!({ "n": 1 })),
        dedupe_key: None,
        session: None,
        workspace: None,
        cause: None,
        deliver_after: None,
    };
    append(&running.journal, |records| records.own_event(&event)).await;
    // Timers do not advance while a task is ready; a timer that started between two milliseconds
    // does not end here.
    tokio::time::advance(Duration::from_micros(500)).await;
    for _ in 0..100 {
        for clock in [&WALL, &MONOTONIC] {
            clock.fetch_add(1, Ordering::SeqCst);
        }
        append(&running.journal, |records| records.session_seen(&SessionId::new("s1"))).await;
        yield_now().await;
    }
    let before = kinds(&running.journal);
    running.stop().await;
    assert!(before.contains(&records::TICK), "the sessions get their share meanwhile: {before:?}");
}

#[tokio::test(start_paused = true)]
async fn session_query_reflects_all_earlier_records() {
    let running = Running::start(&[]).await;
    for number in 2..=40 {
        let id = format!("s{number}");
        open_session(&running.journal, &id).await;
        let session = SessionId::new(&id);
        let is_open = running.engine.read(move |view| view.engine.sessions().is_open(&session)).await;
        assert!(is_open.expect("answered"), "{id}");
    }
    running.stop().await;
}

#[tokio::test]
async fn slice_ends_in_time_despite_costly_records() {
    let Prepared { mut event_loop, journal, others: _others, .. } = Prepared::new(&[]).await;
    for _ in 0..50 {
        append(&journal, |records| records.session_seen(&SessionId::new("s1"))).await;
    }
    event_loop.monotonic = advance_and_read;
    event_loop.consume_slice().await.expect("readable");
    assert_eq!(event_loop.fold.applied, Seq(4), "two steps of two records, a millisecond each");
    assert_eq!(journal.lag(), 48, "publishers see the new room after the slice");
}

#[tokio::test]
async fn answered_handler_continues_before_the_slice_ends() {
    let Prepared { mut event_loop, journal, others: _others, .. } = Prepared::new(&[]).await;
    let session = SessionId::new("s1");
    let registry = Arc::clone(&event_loop.registry);
    let mut waiter = registry.register(&session);
    let exchange = Exchange::new(session.clone(), InjectionPoint::AfterTool, "c1");
    append(&journal, |records| records.exchange(waiter.request(), &exchange).expect("small")).await;
    for _ in 0..50 {
        append(&journal, |records| records.session_seen(&session)).await;
    }
    tokio::select! {
        biased;
        answer = waiter.answer() => assert!(answer.is_ok(), "{answer:?}"),
        slice = event_loop.consume_slice() => panic!("the slice ended first: {slice:?}"),
    }
    assert_eq!(event_loop.fold.applied, Seq(3), "what is behind the exchange is not applied yet");
}
