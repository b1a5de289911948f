//! Checks that the file has the same content if it is fed live, in pieces, after a crash, or folded
//! again from the journal.

mod phases;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures_util::FutureExt;
use strum::VariantArray;
use tempfile::TempDir;

use super::{
    super::{rules::RulesStore, snapshots::Snapshots},
    feed::KEPT_NOTES_MAX,
    *,
};
use engine::{
    RequestId,
    event::{EventRef, SessionId, Severity},
    exchange::{Exchange, Harness, InjectionId},
    notification::InjectionPoint,
    records,
    session::Readable,
};
use journal::{
    AppendBatch, Journal, JournalSettings, Level, Reader, RecordKind, memory::MemoryFiles, time::Timestamp,
};

use crate::{
    config::layers::{LayerKind, SourceFile, Sources},
    history::{
        BYTES_MAX, FILE_NAME, View,
        dump::{count, dump, execute, number},
        events::EventFilter,
        notifications::NotificationFilter,
    },
};

const SUBSCRIBERS: [(&str, &str); 3] = [
    (
        "failures",
        "[subscriber]\nid = \"failures\"\n[events]\ntypes = [\"tool.call.*\"]\nseverity_filter = \"warning\"\n[batching]\nwindow_ms = 2000\n\
         max_size = 10\ndedupe_key = \"type:payload.tool\"\ndedupe_window_ms = 5000\n[output]\npriority = \"high\"\n",
    ),
    (
        "files",
        "[subscriber]\nid = \"files\"\n[events]\ntypes = [\"fs.**\"]\n[batching]\nwindow_ms = 500\nmode = \"debounce\"\nmax_wait_ms = 3000\n\
         [limits]\nttl = \"20s\"\n",
    ),
    (
        "budget",
        "[subscriber]\nid = \"budget\"\n[events]\ntypes = [\"budget.token.exceeded\"]\n[output]\npriority = \"critical\"\n\
         inject_at = \"immediate\"\n",
    ),
];

const TYPES: [(&str, Severity); 8] = [
    ("tool.call.failure", Severity::Error),
    ("tool.call.timeout", Severity::Warning),
    ("tool.call.success", Severity::Debug),
    ("fs.file.modified", Severity::Info),
    ("budget.token.exceeded", Severity::Critical),
    ("nobody.asks", Severity::Info),
    ("nobody.asks.either", Severity::Info),
    ("nobody.asks.at.all", Severity::Info),
];

/// A small number generator, so that every run has the same records.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).expect("small")]
    }
}

/// Opens the file of a journal.
fn open(path: &Path, journal: &Journal) -> Result<Writer, ProjectionError> {
    catch_up::keep_or_replace(catch_up::open(path)?, journal, path)
}

/// A journal in memory, and a folder for the rules and the file.
struct World {
    folder: TempDir,
    journal: Journal,
    snapshots: Arc<Snapshots>,
    rules: RulesStore,
    now: Arc<AtomicU64>,
    numbers: Numbers,
    records: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let sources = Sources::new(SUBSCRIBERS.iter().map(|(id, text)| SourceFile {
            layer: LayerKind::User,
            name: format!("subscribers/{id}.toml").into(),
            path: format!("{id}.toml").into(),
            text: (*text).into(),
        }));
        let rules = RulesStore::new(folder.path());
        rules.keep(&sources).expect("kept");
        let now = Arc::new(AtomicU64::new(1_000_000));
        let read = now.clone();
        let settings = JournalSettings { segment_bytes: 1 << 16, ..JournalSettings::default() };
        let clock = Arc::new(move || Timestamp::from_millis(read.load(Ordering::SeqCst)));
        let files = Arc::new(MemoryFiles::new());
        let opened = Journal::open(files, settings, clock, &|_| None).expect("opened");
        let snapshots = Arc::new(Snapshots::open(Arc::new(MemoryFiles::new())).expect("opened"));
        let journal = opened.journal;
        journal.consumed(Seq(u64::MAX));
        let mut world = Self { folder, journal, snapshots, rules, now, numbers: Numbers(seed), records: 0 };
        world.append(records::RULES, |body| records::encode_rules(&sources.hash(), body));
        world
    }

    fn source(&self) -> ReplaySource {
        let (journal, snapshots) = (self.journal.clone(), self.snapshots.clone());
        let (rules, skipped) = (self.rules.clone(), Default::default());
        ReplaySource { journal, snapshots, rules, ended: Seq::ZERO, skipped }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(FILE_NAME)
    }

    fn append(&mut self, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let mut batch = AppendBatch::new();
        batch.push_with(RecordKind(kind), None, write).expect("small");
        self.journal.append_blocking(batch, Level::Written).expect("appended");
        self.records += 1;
    }

    /// Appends `count` records.
    fn go_on(&mut self, count: u64) {
        // On a separate thread: on a thread of the runtime, a task that never yields would block
        // forever.
        thread::scope(|scope| scope.spawn(|| self.append_any(count)).join().expect("no panic"));
    }

    /// Mostly events, some exchanges, rarely something else.
    fn append_any(&mut self, count: u64) {
        for _ in 0..count {
            let pause = if self.numbers.below(40) == 0 { 30_000 } else { 400 };
            let pause = self.numbers.below(pause);
            self.now.fetch_add(pause, Ordering::SeqCst);
            let session = SessionId::new(self.numbers.one_of(&["s1", "s2", "s3"]));
            match self.numbers.below(20) {
                0..=13 => self.append_event(&session),
                14..=17 => self.append_exchange(session),
                18 => self.append(records::SESSION_CLOSED, |body| {
                    records::encode_session_ended(&session, body);
                }),
                _ => self.append(records::TICK, records::encode_bare),
            }
        }
    }

    fn append_event(&mut self, session: &SessionId) {
        let (event_type, severity) = self.numbers.one_of(&TYPES);
        let tool = self.numbers.one_of(&["grep", "bash", "edit"]);
        let is_addressed = self.numbers.below(3) == 0;
        let (id, payload) = (format!("e{}", self.records + 1), format!(r#"{{"tool":"{tool}"}}"#));
        let event = EventRef {
            id: &id,
            event_type,
            source: "generator",
            provenance: engine::event::Provenance::Local,
            severity,
            timestamp: Timestamp::from_millis(self.now.load(Ordering::SeqCst)),
            payload: &payload,
            dedupe_key: None,
            session: is_addressed.then_some(session.as_str()),
            workspace: None,
            cause: None,
            deliver_after: None,
        };
        self.append(records::EVENT, |body| records::encode_event(&event, body));
    }

    fn append_exchange(&mut self, session: SessionId) {
        let point = self.numbers.one_of(InjectionPoint::VARIANTS);
        // Few enough names that some carriers repeat.
        let carrier = format!("c{}", self.numbers.below(400));
        let workspace = self.numbers.one_of(&["/w", "/w/src", "/elsewhere"]);
        let exchange = Exchange {
            harness: Harness { workspace: Some(workspace.into()), ..Harness::default() },
            acks: (self.numbers.below(5) == 0).then(|| InjectionId::new("unknown")).into_iter().collect(),
            ..Exchange::new(session, point, &carrier)
        };
        self.append(records::EXCHANGE, |body| records::encode_exchange(RequestId(1), &exchange, body));
    }

    /// A second file, made from the journal alone.
    fn made_again(&self) -> PathBuf {
        let path = self.folder.path().join("again.db");
        rebuild(&path, BYTES_MAX, &self.source()).expect("rebuilt");
        path
    }

    fn check_same(&self) {
        let again = self.made_again();
        let (own, other) = (dump(&self.path()), dump(&again));
        assert!(own.len() > 1, "nothing was written");
        for (own, other) in own.iter().zip(&other) {
            assert_eq!(own, other);
        }
        assert_eq!(own.len(), other.len());
        assert_eq!(answers(&self.path()), answers(&again));
    }
}

/// The event loop without the engine's other consumers.
struct Loop {
    fold: Fold,
    reader: Reader,
    feed: Feed,
}

impl Loop {
    fn new(world: &World, feed: Feed) -> Self {
        Self { fold: Fold::new(world.rules.clone()), reader: world.journal.read_from(Seq(1)), feed }
    }

    /// Handles subscription requests and one slice of at most `records_max`; returns whether there
    /// was one.
    fn turn(&mut self, records_max: usize) -> bool {
        while let Some(Some(subscription)) = self.feed.subscription().now_or_never() {
            self.feed.start(subscription, &mut self.fold);
        }
        let before = self.fold.applied;
        for found in self.reader.next_batch(records_max).expect("readable").iter() {
            self.fold.apply(&found).expect("applied");
            while self.fold.poll_output().is_some() {}
        }
        self.feed.hand_over(&mut self.fold);
        self.fold.applied > before
    }

    /// Runs until everything in the journal is projected.
    async fn settle(&mut self, world: &World, projection: &Projection) {
        while self.turn(64) || projection.progress().projected() < *world.journal.written().borrow() {
            tokio::task::yield_now().await;
        }
    }

    fn cut(&mut self) {
        self.feed.cut(&mut self.fold);
    }
}

/// Returns the answers to every kind of query, as JSON.
fn answers(path: &Path) -> Vec<String> {
    let (projection, _commands) = Projection::new(path);
    let ask = |view: &View<'_>| {
        let mut answers = Vec::new();
        let patterns = [None, Some("tool.**"), Some("fs.file.*")];
        for (pattern, session) in
            patterns.into_iter().flat_map(|pattern| [(pattern, None), (pattern, Some("s1"))])
        {
            let filter = EventFilter {
                pattern: pattern.map(|pattern| pattern.parse().expect("a pattern")),
                session: session.map(str::to_owned),
                ..EventFilter::default()
            };
            answers.push(shown(&view.events(&filter, 200)?));
        }
        for state in crate::history::notifications::STATES {
            let filter =
                NotificationFilter { state: Some(state.to_owned()), ..NotificationFilter::default() };
            let (found, _) = view.notifications(&filter, 200)?;
            for (_, notification) in &found {
                answers.push(shown(&view.history_of_notification(&notification.id, &Readable::All)?));
                answers.push(shown(&view.events_at(&notification.events, &Readable::All)?));
            }
            answers.push(shown(&found));
        }
        for session in ["s1", "s2", "s3"] {
            answers.push(shown(&view.messages(session, None, 200)?));
            answers.push(shown(&view.injections(session, None, 200)?));
        }
        for seq in (1..200).map(Seq) {
            answers.push(shown(&view.history_of_event(seq, &Readable::All)?));
        }
        answers.push(shown(&view.closed_sessions(None, 200)?));
        Ok(answers)
    };
    projection.read_blocking(ask).expect("answered")
}

fn shown(answer: &impl serde::Serialize) -> String {
    serde_json::to_string(answer).expect("serializes")
}

fn start(world: &World, path: &Path) -> (Projection, Feed, JoinHandle<()>) {
    let (projection, commands) = Projection::new(path);
    let mut fold = Fold::new(world.rules.clone());
    let (projector, feed) = Projector::new(projection.clone(), commands, world.source(), None, &mut fold);
    (projection, feed, projector.start().expect("started"))
}

/// Ends the event loop and waits for the thread.
fn end(mut looped: Loop, thread: JoinHandle<()>) {
    looped.feed.end(&mut looped.fold);
    thread.join().expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_feed_equals_a_rebuild_from_journal() {
    for seed in 1..=3 {
        let mut world = World::new(seed);
        let (projection, feed, thread) = start(&world, &world.path());
        let mut looped = Loop::new(&world, feed);
        for _ in 0..20 {
            let count = world.numbers.below(120);
            world.go_on(count);
            let slice = usize::try_from(1 + world.numbers.below(90)).expect("small");
            while looped.turn(slice) {}
            tokio::task::yield_now().await;
        }
        looped.settle(&world, &projection).await;
        world.check_same();
        for table in [
            "events",
            "ledger",
            "notifications",
            "deliveries",
            "injections",
            "sessions",
            "notification_events",
        ] {
            assert!(count(&world.path(), table) > 3, "{table} is hardly used");
        }
        end(looped, thread);
        assert_eq!(projection.failed(), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_feed_leaves_no_gaps_or_duplicates() {
    let mut world = World::new(4);
    let (projection, feed, thread) = start(&world, &world.path());
    let mut looped = Loop::new(&world, feed);
    for round in 0..12 {
        world.go_on(100);
        if round % 3 == 2 {
            looped.turn(30);
            looped.cut();
        }
        while looped.turn(50) {}
        if round % 4 == 3 {
            looped.settle(&world, &projection).await;
        }
    }
    looped.settle(&world, &projection).await;
    world.check_same();
    end(looped, thread);
}

#[tokio::test]
async fn unread_feed_is_cut_at_a_memory_bound() {
    let mut world = World::new(5);
    let (projection, commands) = Projection::new(&world.path());
    let mut fold = Fold::new(world.rules.clone());
    let (projector, feed) = Projector::new(projection.clone(), commands, world.source(), None, &mut fold);
    let mut looped = Loop::new(&world, feed);
    let (subscription, subscribed) = Subscription::new(Seq::ZERO);
    looped.feed.start(subscription, &mut looped.fold);
    let mut longest = 0;
    for _ in 0..200 {
        world.go_on(100);
        while looped.turn(50) {}
        longest = longest.max(looped.fold.notes.as_ref().map_or(0, |notes| notes.notes().len()));
        if !looped.feed.has_subscriber() {
            break;
        }
    }
    assert!(!looped.feed.has_subscriber() && looped.fold.notes.is_none(), "it was never cut");
    assert!((1_000..=KEPT_NOTES_MAX + 2_000).contains(&longest), "{longest}");
    drop((projector, subscribed));
}

#[test]
fn crash_between_commits_resumes_from_the_cursor() {
    let mut world = World::new(6);
    world.go_on(800);
    let path = world.path();
    let journal = world.journal.clone();
    let mut writer = open(&path, &journal).expect("opened");
    let mut catch_up = CatchUp::start(&world.source(), &mut writer).expect("readable");
    catch_up.advance(&mut writer, Seq(333)).expect("written");
    assert_eq!(writer.cursor(), Seq(333));
    drop((writer, catch_up));
    world.go_on(100);
    let mut writer = open(&path, &journal).expect("opened again");
    assert_eq!(writer.cursor(), Seq(333));
    let mut catch_up = CatchUp::start(&world.source(), &mut writer).expect("readable");
    while catch_up.advance(&mut writer, JOURNAL_END).expect("written") {}
    world.check_same();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebuild_or_deletion_recreates_the_same_file() {
    let mut world = World::new(7);
    world.go_on(500);
    let (projection, feed, thread) = start(&world, &world.path());
    let mut looped = Loop::new(&world, feed);
    looped.settle(&world, &projection).await;
    world.go_on(50);
    let own = projection.clone();
    let mut orders = tokio::task::JoinSet::new();
    orders.spawn(async move { own.rebuild().await });
    looped.settle(&world, &projection).await;
    orders.join_next().await.expect("one").expect("joined").expect("rebuilt");
    looped.settle(&world, &projection).await;
    world.check_same();

    std::fs::remove_file(world.path()).expect("deleted");
    world.go_on(200);
    looped.settle(&world, &projection).await;
    assert!(world.path().exists());
    world.check_same();
    end(looped, thread);
}

#[test]
fn broken_or_foreign_projection_file_is_recreated() {
    let mut world = World::new(8);
    world.go_on(300);
    let (path, journal) = (world.path(), world.journal.clone());
    let broken: [&dyn Fn(&Path); 4] = [
        &|path| execute(path, "PRAGMA user_version = 99"),
        &|path| std::fs::write(path, "no database".repeat(1_000)).expect("written"),
        &|path| execute(path, "UPDATE cursor SET at = at + 1"),
        &|path| execute(path, "UPDATE cursor SET seq = 1000000"),
    ];
    for break_it in broken {
        rebuild(&path, BYTES_MAX, &world.source()).expect("rebuilt");
        assert_eq!(open(&path, &journal).expect("good").cursor(), Seq(301));
        break_it(&path);
        assert_eq!(open(&path, &journal).expect("made again").cursor(), Seq::ZERO);
    }
}

/// Overwrites the page where the table of events begins, bypassing SQLite's cache.
fn break_events(path: &Path) {
    execute(path, "PRAGMA wal_checkpoint(TRUNCATE)");
    let mut bytes = std::fs::read(path).expect("read");
    let [page_bytes, root] = [
        "SELECT page_size FROM pragma_page_size",
        "SELECT rootpage FROM sqlite_schema WHERE name = 'events'",
    ]
    .map(|sql| usize::try_from(number(path, sql)).expect("positive"));
    bytes[(root - 1) * page_bytes..root * page_bytes].fill(0xff);
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("opened");
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).expect("written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_found_by_a_reader_recreates_the_file() {
    let mut world = World::new(12);
    world.go_on(300);
    let (projection, feed, thread) = start(&world, &world.path());
    let mut looped = Loop::new(&world, feed);
    looped.settle(&world, &projection).await;
    break_events(&world.path());
    let ask = || projection.read(|view| view.events(&EventFilter::default(), 200).map(|_| view.projected));
    let error = ask().await.expect_err("broken");
    assert!(error.is_damage(), "{error}");
    // No record is appended: the failed read alone triggers the repair.
    while ask().await.is_err() {
        looped.turn(64);
        tokio::task::yield_now().await;
    }
    looped.settle(&world, &projection).await;
    world.check_same();
    while projection.failed().is_some() {
        looped.turn(64);
        tokio::task::yield_now().await;
    }
    end(looped, thread);
}

#[test]
fn rebuilt_projection_covers_only_records_left_in_journal() {
    let mut world = World::new(10);
    world.go_on(1_500);
    let journal = world.journal.clone();
    let mut batch = AppendBatch::new();
    batch.push_with(RecordKind(records::TICK), None, records::encode_bare).expect("small");
    journal.append_blocking(batch, Level::Synced).expect("appended");
    let known_from = |world: &World| {
        let (projection, _) = Projection::new(&world.made_again());
        let known = |view: &View<'_>| Ok((view.floor, (0..=2_000).map(Seq).find(|seq| view.covers(*seq))));
        projection.read_blocking(known).expect("readable")
    };
    assert_eq!(known_from(&world), (Seq::ZERO, Some(Seq::ZERO)));
    assert!(journal.forget_before(Seq(1_000)).expect("forgotten") > 0, "there are segments before it");
    let first = journal.stored().expect("listed").first;
    assert_eq!(known_from(&world), (first, Some(first)));
}
