//! For any damage of a snapshot, the start uses the previous one or the beginning of the journal,
//! and recovers the same state.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use aside::daemon::{
    fold::Fold,
    rules::RulesStore,
    snapshots::{Capture, FORMAT_VERSION, Snapshots},
};
use engine::{
    event::{Event, Payload, Seq, SessionId, Severity},
    exchange::Harness,
    records,
};
use journal::{Level, Outcome, RecordBuf, files::Files, memory::MemoryFiles, time::Timestamp};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    daemon::Home,
    event_loop::{Append, Daemon, Disk, apply},
    generations,
    restored::written,
};

const SEGMENT_BYTES: u64 = 4_096;
/// Offsets of the format and of the last record's checksum in a snapshot, and the length of its
/// header.
const FORMAT_AT: u64 = 8;
const RECORD_CHECKSUM_AT: u64 = 12;
const HEADER_BYTES: u64 = 60;

/// A disk with the snapshots of a daemon that ran for a while, and their positions.
struct Lived {
    folder: TempDir,
    files: MemoryFiles,
    taken: Vec<Seq>,
}

impl Lived {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for generation in 0..generations::GENERATIONS {
            RulesStore::new(folder.path()).keep(&generations::sources(generation)).expect("kept");
        }
        let files = MemoryFiles::new();
        let (disk, fold) = Disk::open(&files, SEGMENT_BYTES, folder.path()).expect("opened");
        let mut daemon = Daemon::start(disk, fold, at(0)).expect("started");
        let mut taken = Vec::new();
        for round in 0..4 {
            live(&mut daemon, round);
            daemon.take_snapshot(at(round * 1_000 + 900), |_, _| {}).expect("appended");
            taken.push(daemon.fold.applied);
        }
        live(&mut daemon, 4);
        daemon.disk().journal.close_blocking().expect("closed");
        Self { folder, files, taken }
    }

    /// The positions of the second newest and the newest snapshot.
    fn kept(&self) -> [Seq; 2] {
        self.taken.last_chunk().copied().expect("several were taken")
    }

    fn rules(&self) -> &Path {
        self.folder.path()
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + ms)
}

/// Some events of every round are delivered, stay pending, repeat, or fail; the rules change in
/// between.
fn live(daemon: &mut Daemon, round: u64) {
    let now = at(round * 1_000);
    daemon.pass(now, |_, _| {}).expect("appended");
    if round.is_multiple_of(2) {
        let hash = generations::sources(usize::try_from(round / 2).expect("small")).hash();
        let rules = Append::of(records::RULES, Level::Synced, now, |body| records::encode_rules(&hash, body));
        daemon.append(rules).expect("appended");
        let session = SessionId::new(&format!("s{round}"));
        let harness = Harness::default();
        let opened = Append::of(records::SESSION_OPENED, Level::Synced, now, |body| {
            records::encode_session_opened(&session, &harness, body);
        });
        daemon.append(opened).expect("appended");
    }
    let events: Vec<Event> = (0..20).map(|number| event(round, number)).collect();
    daemon.append(Append::events(&events, Level::Synced, now)).expect("appended");
    daemon.catch_up(now, |_, _| {}).expect("appended");
}

fn event(round: u64, number: u64) -> Event {
    const TYPES: [&str; 4] = ["tool.call.failure", "fs.file.modified", "budget.cost.exceeded", "nobody.asks"];
    Event {
        id: format!("e{round}-{number}").into(),
        event_type: TYPES[usize::try_from(number % 4).expect("small")].parse().expect("a type"),
        source: "tools".into(),
        provenance: engine::event::Provenance::Harness,
        severity: Severity::Error,
        timestamp: at(round * 1_000),
        payload: Payload::from(json!({ "tool": format!("t{}", number % 3), "n": number })),
        dedupe_key: None,
        session: number.is_multiple_of(5).then(|| SessionId::new("later")),
        workspace: None,
        cause: None,
        deliver_after: None,
    }
}

fn name(seq: Seq) -> String {
    format!("{:020}.snap", seq.0)
}

fn content(files: &MemoryFiles, name: &str) -> Vec<u8> {
    let file = files.open(name).expect("it is there");
    let mut bytes = vec![0; usize::try_from(file.size().expect("sized")).expect("small")];
    file.read_at(&mut bytes, 0).expect("read");
    bytes
}

fn replace(files: &MemoryFiles, name: &str, bytes: &[u8]) {
    files.create(name).expect("created").write_at(bytes, 0).expect("written");
}

/// Changes a byte of a header, and corrects its checksum.
fn rewrite_header(files: &MemoryFiles, name: &str, at: u64, to: u32) {
    let mut bytes = content(files, name);
    let [at, end] = [at, HEADER_BYTES - 4].map(|at| usize::try_from(at).expect("small"));
    bytes[at..at + 4].copy_from_slice(&to.to_le_bytes());
    let sum = crc32c::crc32c(&bytes[..end]);
    bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
    replace(files, name, &bytes);
}

fn flip(files: &MemoryFiles, name: &str, at: usize) {
    let mut bytes = content(files, name);
    bytes[at] ^= 0x40;
    replace(files, name, &bytes);
}

/// The state after these records.
fn folded(records: &[RecordBuf], rules: &Path) -> Fold {
    let mut fold = Fold::new(RulesStore::new(rules));
    for found in records {
        apply(&mut fold, &found.as_record(), |_, _| {});
    }
    fold
}

/// The state after all records, as bytes.
fn by_all_records(records: &[RecordBuf], rules: &Path) -> Vec<u8> {
    written(&folded(records, rules).engine)
}

/// Starts on `files`; returns the position of the snapshot used. Checks that the state is that of
/// all records and that published events are known.
fn start(files: &MemoryFiles, rules: &Path) -> Seq {
    let (disk, fold) = Disk::open(files, SEGMENT_BYTES, rules).expect("the start goes on");
    let used = fold.applied;
    let records = disk.records();
    let daemon = Daemon::start(disk, fold, at(9_000)).expect("started");
    assert!(written(&daemon.fold.engine) == by_all_records(&records, rules), "the state is another one");
    let again: Vec<Event> = (0..5).flat_map(|round| (0..20).map(move |n| event(round, n))).collect();
    let appended =
        daemon.disk().append(&Append::events(&again, Level::Written, at(9_000))).expect("appended");
    let is_known = |outcome: &Outcome| matches!(outcome, Outcome::Duplicate(_));
    assert!(appended.outcomes().all(|outcome| is_known(&outcome)), "{appended:?}");
    used
}

/// The damage, its function, and which of the two snapshots is used: 0 for the older, 1 for the
/// newer, none for the beginning of the journal.
type Case = (&'static str, fn(&MemoryFiles, [Seq; 2]), Option<usize>);

const CASES: [Case; 13] = [
    ("nothing", |_, _| {}, Some(1)),
    ("the newer is gone", |files, [_, newer]| files.remove(&name(newer)).expect("removed"), Some(0)),
    ("the newer is empty", |files, [_, newer]| replace(files, &name(newer), &[]), Some(0)),
    (
        "the newer is cut",
        |files, [_, newer]| {
            let bytes = content(files, &name(newer));
            replace(files, &name(newer), &bytes[..bytes.len() / 2]);
        },
        Some(0),
    ),
    (
        "something follows the newer",
        |files, [_, newer]| {
            let mut bytes = content(files, &name(newer));
            bytes.push(0);
            replace(files, &name(newer), &bytes);
        },
        Some(0),
    ),
    // Then the state is used, and the keys are read from the records.
    ("a bit of its keys differs", |files, [_, newer]| flip(files, &name(newer), 84), Some(1)),
    (
        "a bit of the keys of both differs",
        |files, kept| kept.iter().for_each(|seq| flip(files, &name(*seq), 84)),
        Some(1),
    ),
    (
        "a bit of the state differs",
        |files, [_, newer]| flip(files, &name(newer), content(files, &name(newer)).len() - 40),
        Some(0),
    ),
    (
        "the newer has a later form",
        |files, [_, newer]| rewrite_header(files, &name(newer), FORMAT_AT, FORMAT_VERSION + 1),
        Some(0),
    ),
    (
        "the newer names another record",
        |files, [_, newer]| rewrite_header(files, &name(newer), RECORD_CHECKSUM_AT, 6),
        Some(0),
    ),
    (
        "the newer was renamed",
        |files, [_, newer]| files.rename(&name(newer), &name(newer.next())).expect("renamed"),
        Some(0),
    ),
    ("one is unfinished", |files, _| replace(files, "unfinished", b"asidshot"), Some(1)),
    ("both are damaged", |files, kept| kept.iter().for_each(|seq| flip(files, &name(*seq), 40)), None),
];

#[test]
fn unusable_snapshot_is_skipped_at_start() {
    let lived = Lived::new();
    for (what, damage, expected) in CASES {
        let files = lived.files.after_kill();
        damage(&files, lived.kept());
        let expected = expected.map_or(Seq::ZERO, |index| lived.kept()[index]);
        assert_eq!(start(&files, lived.rules()), expected, "{what}");
    }
}

/// A disk on which the journal ends with `last`, with both snapshots.
fn cut_back(lived: &Lived, last: Seq) -> MemoryFiles {
    let (all, _) = Disk::open(&lived.files.after_kill(), SEGMENT_BYTES, lived.rules()).expect("opened");
    let files = MemoryFiles::new();
    let (disk, _) = Disk::open(&files, SEGMENT_BYTES, lived.rules()).expect("opened");
    for found in all.records().iter().take_while(|found| found.seq <= last) {
        let append = Append {
            records: vec![(found.kind.0, found.body.clone())],
            level: Level::Synced,
            at: found.time,
        };
        disk.append(&append).expect("appended");
    }
    disk.journal.close_blocking().expect("closed");
    for name in lived.kept().map(name) {
        replace(&files, &name, &content(&lived.files, &name));
    }
    files
}

#[test]
fn snapshot_ahead_of_the_journal_is_skipped() {
    let lived = Lived::new();
    let [older, newer] = lived.kept();
    for last in [older, Seq(older.0 - 1)] {
        let files = cut_back(&lived, last);
        let (disk, fold) = Disk::open(&files, SEGMENT_BYTES, lived.rules()).expect("opened");
        let expected = if last == older { older } else { Seq::ZERO };
        assert_eq!(fold.applied, expected, "the journal ends with {last}, the newer snapshot with {newer}");
        let mut daemon = Daemon::start(disk, fold, at(5_000)).expect("started");
        for round in 10.. {
            let events: Vec<Event> = (0..20).map(|number| event(round, number)).collect();
            daemon.append(Append::events(&events, Level::Synced, at(5_000))).expect("appended");
            daemon.catch_up(at(5_000), |_, _| {}).expect("appended");
            if daemon.fold.applied > Seq(newer.0 + 20) {
                break;
            }
        }
        daemon.disk().journal.close_blocking().expect("closed");

        let files = files.after_kill();
        let (disk, fold) = Disk::open(&files, SEGMENT_BYTES, lived.rules()).expect("opened");
        assert_eq!(fold.applied, expected, "the journal has grown beyond the newer snapshot");
        let records = disk.records();
        let daemon = Daemon::start(disk, fold, at(6_000)).expect("started");
        assert!(written(&daemon.fold.engine) == by_all_records(&records, lived.rules()));
        let lost = Append::events(&[event(3, 1)], Level::Synced, at(6_000));
        let appended = daemon.disk().append(&lost).expect("appended");
        assert!(matches!(appended.outcomes().next(), Some(Outcome::Appended(_))), "{appended:?}");
    }
}

/// As after a file manager, or a backup of one folder, restores it.
#[test]
fn restored_older_journal_is_used_and_reported() {
    let home = Home::new();
    let journal = home.path("state/journal");
    let publish = |id: &str| home.print(&["publish", "a.b", "--everywhere", "--id", id]);
    let daemon = home.serve();
    publish("kept");
    daemon.stop();
    let copies: Vec<(PathBuf, Vec<u8>)> = fs::read_dir(&journal)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| (path.clone(), fs::read(path).expect("read")))
        .collect();
    let daemon = home.serve();
    publish("lost");
    daemon.stop();
    fs::remove_dir_all(&journal).expect("removed");
    fs::create_dir(&journal).expect("made");
    copies.iter().for_each(|(path, bytes)| fs::write(path, bytes).expect("written"));

    let daemon = home.serve();
    daemon.said("a snapshot is not one of this journal");
    let health = home.get("/healthz");
    assert_eq!(health["status"], "degraded");
    assert!(health["problems"][0].as_str().is_some_and(|said| said.contains(".snap.unmatched")), "{health}");
    assert!(publish("lost").starts_with("published as"), "it is not there");
    assert!(publish("kept").starts_with("already published as"));
    daemon.stop();
    let _daemon = home.serve();
    assert_eq!(home.get("/healthz")["status"], "ok", "it is over with the next start");
}

#[test]
fn snapshot_of_another_journal_is_renamed_as_unmatched() {
    let lived = Lived::new();
    let [older, newer] = lived.kept();
    let files = lived.files.after_kill();
    rewrite_header(&files, &name(older), RECORD_CHECKSUM_AT, 6);
    let (disk, fold) = Disk::open(&files, SEGMENT_BYTES, lived.rules()).expect("opened");
    assert_eq!((fold.applied, disk.snapshots.oldest_needed()), (newer, None));
    let names = files.list().expect("listed");
    assert!(
        names.contains(&format!("{}.unmatched", name(older))) && !names.contains(&name(older)),
        "{names:?}"
    );
}

/// A third snapshot is left if it could not be removed, or after an earlier crash.
#[test]
fn snapshot_ending_before_journal_start_is_skipped() {
    let lived = Lived::new();
    let [_, newer] = lived.kept();
    let files = lived.files.after_kill();
    let (disk, _) = Disk::open(&files, SEGMENT_BYTES, lived.rules()).expect("opened");
    let all = disk.records();
    assert!(disk.journal.forget_before(newer).expect("forgotten") > 0, "there are segments before it");
    let first = disk.journal.stored().expect("listed").first;
    disk.journal.close_blocking().expect("closed");
    lived.kept().iter().for_each(|seq| flip(&files, &name(*seq), 40));
    for (missing, is_used) in [(1, false), (0, true)] {
        let (last, files) = (Seq(first.0 - 1 - missing), files.after_kill());
        let before: Vec<RecordBuf> = all.iter().take_while(|found| found.seq <= last).cloned().collect();
        let left_over = MemoryFiles::new();
        let capture = Capture::new(&folded(&before, lived.rules())).expect("it can be written");
        let checksum = before.last().expect("some").as_record().checksum();
        let snapshots = Snapshots::open(std::sync::Arc::new(left_over.clone())).expect("opened");
        snapshots.write(&capture, checksum, &[]).expect("written");
        replace(&files, &name(last), &content(&left_over, &name(last)));

        let (disk, fold) = Disk::open(&files, SEGMENT_BYTES, lived.rules()).expect("the start goes on");
        assert_eq!(fold.applied, if is_used { last } else { Seq::ZERO });
        if is_used {
            let daemon = Daemon::start(disk, fold, at(9_000)).expect("started");
            assert!(written(&daemon.fold.engine) == by_all_records(&all, lived.rules()));
        }
    }
}

#[test]
fn snapshot_with_lost_rules_uses_the_nearest_rules() {
    let lived = Lived::new();
    let [_, newer] = lived.kept();
    let store = tempfile::tempdir().expect("a folder");
    let rules = RulesStore::new(store.path());
    let current = rules.keep(&generations::sources(0)).expect("kept");
    let snapshots = Snapshots::open(std::sync::Arc::new(lived.files.after_kill())).expect("opened");
    let fold = snapshots.load(&rules.with_current(&current)).expect("the newer one").fold;
    assert_eq!((fold.applied, &*fold.engine.rules().hash), (newer, current.as_str()));
}

#[test]
fn two_newest_snapshots_stay_and_limit_journal_deletion() {
    let lived = Lived::new();
    let [older, newer] = lived.kept();
    let names = |files: &MemoryFiles| {
        let names = files.list().expect("listed").into_iter().filter(|name| name.ends_with(".snap"));
        names.collect::<BTreeSet<String>>()
    };
    assert_eq!(names(&lived.files), [older, newer].map(name).into());

    let files = lived.files.after_kill();
    let (disk, fold) = Disk::open(&files, SEGMENT_BYTES, lived.rules()).expect("opened");
    assert_eq!(disk.snapshots.oldest_needed(), Some(older));
    let needed = older.next();
    assert!(disk.journal.forget_before(needed).expect("forgotten") > 0, "there are segments before it");
    assert!(disk.journal.read_at(needed).is_ok_and(|found| found.is_some()), "{needed} is needed");
    drop((disk, fold));
    flip(&files, &name(newer), 40);

    let (disk, fold) = Disk::open(&files, SEGMENT_BYTES, lived.rules()).expect("opened");
    assert_eq!(fold.applied, older);
    assert_eq!(disk.snapshots.oldest_needed(), None, "nothing could replace the one that is left");
    let mut daemon = Daemon::start(disk, fold, at(9_000)).expect("started");
    daemon.take_snapshot(at(9_000), |_, _| {}).expect("appended");
    assert_eq!(daemon.disk().snapshots.oldest_needed(), Some(older));
    assert_eq!(names(&files), [older, daemon.fold.applied].map(name).into(), "the damaged one is removed");
}
