//! The loop with a clock that a test moves, and a journal in memory.
#![expect(clippy::disallowed_methods, reason = "the test runs the loop's task and lets simulated time pass")]

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::{
    config::layers::{LayerKind, SourceFile, Sources},
    daemon::{
        clock_fn,
        projector::{Past, Projector},
        rules::RulesStore,
        snapshots::{Snapshots, writer},
    },
    exchange::Harness,
    journal::{Journal, JournalSettings, Known, memory::MemoryFiles},
    projection::{FILE_NAME, Projection},
    server::EngineHandle,
};

/// Milliseconds of the wall clock and of the steady one.
static WALL: AtomicU64 = AtomicU64::new(1_000_000);
static STEADY: AtomicU64 = AtomicU64::new(0);

/// When the wall clock is put back, in steady milliseconds, and by how much.
const BACK_AT: u64 = 59_990;
const BACK_BY: u64 = 1_000;

fn read() -> (Timestamp, Duration) {
    let steady = Duration::from_millis(STEADY.load(Ordering::SeqCst));
    (Timestamp::from_millis(WALL.load(Ordering::SeqCst)), steady)
}

/// Lets both clocks go on with the runtime's, and puts the wall clock back once.
async fn turn_clocks() {
    let mut every = tokio::time::interval(Duration::from_millis(1));
    every.tick().await;
    loop {
        every.tick().await;
        let steady = STEADY.fetch_add(1, Ordering::SeqCst) + 1;
        WALL.fetch_add(1, Ordering::SeqCst);
        if steady == BACK_AT {
            WALL.fetch_sub(BACK_BY, Ordering::SeqCst);
        }
    }
}

fn kinds(bus: &Bus) -> Vec<u8> {
    let mut reader = bus.read_from(Seq(1));
    let batch = reader.next_batch(SLICE_RECORDS_MAX).expect("readable");
    batch.iter().map(|record| record.kind.0).collect()
}

/// Runs a loop with one session for a time, and gives the kinds of the records that this leaves; `is_followed`: by a client.
async fn run_for(time: Duration, idle_close: &str, is_followed: bool) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Arc::new(Clock::reading(read, Timestamp::ZERO));
    let (settings, files) = (JournalSettings::default(), Arc::new(MemoryFiles::new()));
    let opened = Journal::open(files.clone(), settings, clock_fn(&clock), &|_| None, Known::nothing());
    let bus = Bus::new(opened.expect("opened").journal, Seq::ZERO);
    let rules = RulesStore::new(folder.path());
    let mut fold = Fold::new(rules.clone());
    let settings = Sources::new([SourceFile {
        layer: LayerKind::User,
        name: "aside.toml".into(),
        path: "aside.toml".into(),
        text: format!("[sessions]\nidle_close = \"{idle_close}\"\n").into(),
    }]);
    rules.keep(&settings).expect("kept");
    append(&bus, record::RULES, |body| record::encode_rules(&settings.hash(), body)).await.expect("appended");
    let opened = |body: &mut Vec<u8>| {
        record::encode_session_opened(&SessionId::new("s1"), &Harness::default(), body);
    };
    append(&bus, record::SESSION_OPENED, opened).await.expect("appended");

    let (projection, commands) = Projection::new(&folder.path().join(FILE_NAME));
    let snapshots = Arc::new(Snapshots::open(files).expect("listed"));
    let (journal, ended) = (bus.journal().clone(), Seq::ZERO);
    let past = Past { journal, snapshots, rules, ended };
    let (_projector, feed) = Projector::new(projection.clone(), commands, past, None, &mut fold);
    let (_engine, queries) = EngineHandle::new();
    let (orders, _ordered) = writer::orders();
    let (drain, draining) = watch::channel(false);
    let registry = Arc::new(Registry::new(1));
    let follower = is_followed.then(|| registry.watch(&SessionId::new("s1")));
    let event_loop = EventLoop {
        fold,
        bus: bus.clone(),
        reader: bus.read_from(Seq(1)),
        clock,
        registry,
        queries,
        feed,
        about: About { started_at: Timestamp::ZERO, durability: "sync", projection },
        pace: Pace::default(),
        drain: draining,
        owed: VecDeque::new(),
        schedule: Schedule::new(orders, 1_000, Seq::ZERO),
    };
    let clocks = tokio::spawn(turn_clocks());
    let running = tokio::spawn(event_loop.run());
    tokio::time::sleep(time).await;
    drain.send_replace(true);
    running.await.expect("it ends").expect("without an error");
    clocks.abort();
    drop(follower);
    kinds(&bus)
}

#[tokio::test(start_paused = true)]
async fn a_deadline_in_a_small_correction_of_the_clock_is_one_tick() {
    let kinds = run_for(Duration::from_secs(65), "1m", false).await;
    let expected = [record::RULES, record::SESSION_OPENED, record::TICK, record::SHUTTING_DOWN];
    assert_eq!(kinds, expected);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_a_client_follows_is_not_closed_for_silence() {
    let kinds = run_for(Duration::from_secs(500), "6m", true).await;
    let seen = kinds.iter().filter(|kind| **kind == record::SESSION_SEEN).count();
    assert!((1..=2).contains(&seen), "one in three minutes at most: {kinds:?}");
    assert!(!kinds.contains(&record::TICK), "nothing was due: {kinds:?}");
}
