//! The daemon continues with a state folder of an earlier program.
//!
//! `scripts/fixture-state` made each of them with the program of one commit: `state-1` with
//! b332fef, whose snapshots have format 3, `state-2` with abff047, the last one of format 4, and
//! `state-3` with 6480980, the last one of format 5. `state-4` is of the same program as `state-3`,
//! and its full segment is sealed. Each is a month old, its first segment was deleted by age, and
//! its daemon was killed while a batch was open. `answer.json` in each is the last answer to the
//! session `leased`.

use std::{fs, path::Path, sync::Arc, time::Duration};

use aside::{
    daemon::{
        fold::Fold,
        recovery::{self, ClosedJournal},
        rules::RulesStore,
        snapshots::{Capture, Snapshots},
    },
    engine::{Output, RequestId},
    event::{Seq, SessionId},
    exchange::{Exchange, Harness},
    journal::{
        IdempotencyKey, JournalSettings, Level, Opened,
        files::{DirFiles, Files},
        memory::MemoryFiles,
    },
    notification::InjectionPoint,
    records,
    time::Timestamp,
};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    daemon::{Home, at},
    event_loop::{Append, Daemon, Disk, key_of},
};

/// The state folder of an earlier program.
struct Left {
    archive: &'static str,
    /// The last records covered by its snapshots.
    snapshots: [Seq; 2],
    /// The unmatched events in the newer snapshot.
    unmatched: u64,
}

const LEFT: [Left; 4] = [
    Left { archive: "state-1", snapshots: [Seq(2_703), Seq(2_805)], unmatched: 2_793 },
    Left { archive: "state-2", snapshots: [Seq(2_707), Seq(2_809)], unmatched: 2_793 },
    Left { archive: "state-3", snapshots: [Seq(2_707), Seq(2_812)], unmatched: 2_795 },
    Left { archive: "state-4", snapshots: [Seq(2_707), Seq(2_807)], unmatched: 2_790 },
];

impl Left {
    /// A copy of the folder.
    fn state(&self) -> TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let archive = format!("tests/fixtures/{}.tar.zst", self.archive);
        let archive = fs::File::open(archive).expect("it is checked in");
        let archive = zstd::Decoder::new(archive).expect("zstd");
        tar::Archive::new(archive).unpack(folder.path()).expect("unpacked");
        folder
    }

    fn newest(&self) -> Seq {
        self.snapshots[1]
    }
}

fn snapshots(state: &Path) -> Snapshots {
    let files = DirFiles::new(&state.join("snapshots")).expect("a folder");
    Snapshots::open(Arc::new(files)).expect("listed")
}

fn snapshot(state: &Path) -> Fold {
    snapshots(state).load(&RulesStore::new(state)).expect("one is gone on from").fold
}

#[test]
fn a_snapshot_of_an_earlier_form_is_gone_on_from() {
    LEFT.iter().for_each(check_gone_on_from);
}

fn check_gone_on_from(left: &Left) {
    let state = left.state();
    let fold = snapshot(state.path());
    assert_eq!(fold.applied, left.newest());
    let session = |id: &str| fold.engine.sessions().view(&SessionId::new(id)).expect("it is open").injector;
    assert_eq!((session("leased").pending().0, session("leased").unconfirmed()), (0, 1));
    assert_eq!((session("waiting").pending().0, session("waiting").unconfirmed()), (3, 0));
    assert_eq!(fold.engine.sessions().unclaimed_len(), 1);
    let (at, _) = fold.engine.poll_timeout().expect("a batch is open");
    assert!(at.since(fold.applied_at).as_secs() <= 10, "{at}");
    let tally = fold.engine.tally();
    assert_eq!((tally.unmatched, tally.created, tally.injected), (left.unmatched, 5, 1));
    // In the current format it is the same.
    let again = Fold::from_state(fold.rules.clone(), &fold.to_state().expect("written")).expect("read");
    assert!(again.to_state() == fold.to_state());
}

/// Starts a daemon one second after the last record, on a disk in memory with the files of the
/// state.
fn go_on(state: &Path) -> Daemon {
    let files = MemoryFiles::new();
    for folder in ["journal", "snapshots"] {
        for entry in fs::read_dir(state.join(folder)).expect("listed") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8");
            let file = files.create(name).expect("created");
            file.write_at(&fs::read(&path).expect("read"), 0).expect("written");
            file.sync_data().expect("synced");
        }
    }
    files.sync_dir().expect("synced");
    let (disk, fold) = Disk::open(&files, 1 << 20, state).expect("opened");
    let now = fold.applied_at;
    Daemon::start(disk, fold, now).expect("started")
}

/// The texts of the notifications in the answer to an exchange of `session`.
fn delivered(daemon: &mut Daemon, session: &str, point: InjectionPoint, carrier: &str) -> String {
    let now = daemon.fold.applied_at + Duration::from_secs(1);
    let harness = Harness { name: Some("loop".into()), workspace: Some("/w".into()), ..Harness::default() };
    let exchange = Exchange { harness, ..Exchange::new(SessionId::new(session), point, carrier) };
    let body = |body: &mut Vec<u8>| records::encode_exchange(RequestId(1), &exchange, body);
    daemon.append(Append::of(records::EXCHANGE, Level::Written, now, body)).expect("appended");
    let mut texts = String::new();
    let seen = |_, output| {
        if let Output::Answer { answer, .. } = output {
            texts.extend(answer.injection.map(|injection| injection.text.to_string()));
        }
    };
    daemon.catch_up(now, seen).expect("followed");
    texts
}

#[test]
fn all_that_was_pending_in_an_earlier_program_is_delivered() {
    LEFT.iter().for_each(check_delivered);
}

fn check_delivered(left: &Left) {
    let state = left.state();
    let mut daemon = go_on(state.path());
    let confirmed = delivered(&mut daemon, "leased", InjectionPoint::TurnEnd, "carrier-2");
    assert_eq!(confirmed, "", "it was answered before");
    let waiting = delivered(&mut daemon, "waiting", InjectionPoint::TurnEnd, "carrier-1");
    for tool in ["tool1", "tool2", "tool3", "tool4"] {
        assert_eq!(waiting.matches(tool).count(), 1, "{tool} in {waiting}");
    }
    assert!(waiting.contains("shop.order"), "the open batch too: {waiting}");
    let later = delivered(&mut daemon, "later", InjectionPoint::TurnStart, "carrier-1");
    assert_eq!(later.matches("fetch").count(), 1, "{later}");
    for session in ["leased", "waiting", "later"] {
        let again = delivered(&mut daemon, session, InjectionPoint::TurnStart, "carrier-9");
        assert_eq!(again, "", "{session} has had it");
    }
}

/// A journal of a few segments whose beginning was deleted, as by retention, and whose snapshots
/// are unusable.
#[test]
fn a_journal_without_its_beginning_and_without_snapshots_still_has_its_rules() {
    let each = "[subscriber]\nid = \"each\"\n[events]\ntypes = [\"test.each\"]\n[batching]\nwindow_ms = 0\n[output]\npriority = \"high\"\n";
    let settings = "[journal]\nsegment_bytes = 1048576\nseal = false\n";
    let home = Home::with(&[("aside.toml", settings), ("subscribers/each.toml", each)]);
    let daemon = home.serve();
    let pad = "x".repeat(60_000);
    for n in 0..40 {
        home.publish(&json!({ "type": "nobody.asks", "payload": { "n": n, "pad": pad } }));
    }
    home.publish(&json!({ "type": "test.each", "payload": { "n": 41 } }));
    daemon.kill();
    let segments = || -> Vec<_> {
        let mut paths: Vec<_> = fs::read_dir(home.path("state/journal"))
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| {
                path.extension().is_some_and(|extension| extension == "seg") && !path.ends_with("next.seg")
            })
            .collect();
        paths.sort();
        paths
    };
    let first = segments().into_iter().next().expect("one");
    fs::remove_file(&first).expect("removed");
    fs::remove_dir_all(home.path("state/snapshots")).expect("removed");
    fs::remove_file(home.path("state/projection.db")).ok();

    let daemon = home.serve();
    daemon.said("the beginning of the journal was deleted");
    let answer = home.exchange("s", &json!({ "point": "after_tool", "carrier": "c" })).json();
    assert_eq!(*at(&answer, "/notifications/0/subscriber"), json!("each"), "{answer}");
}

#[test]
fn rules_that_are_damaged_or_gone_stop_no_start_and_lose_nothing() {
    for damage in ["a bit of every file", "the folder"] {
        let each = "[subscriber]\nid = \"each\"\n[events]\ntypes = [\"test.each\"]\n[batching]\nwindow_ms = 0\n[output]\npriority = \"high\"\n";
        let home = Home::with(&[("subscribers/each.toml", each)]);
        let daemon = home.serve();
        home.publish(&json!({ "type": "test.each", "payload": { "n": 1 } }));
        daemon.stop();
        let rules = home.path("state/rules");
        if damage == "the folder" {
            fs::remove_dir_all(&rules).expect("removed");
        } else {
            for entry in fs::read_dir(&rules).expect("a folder") {
                let path = entry.expect("an entry").path();
                let mut bytes = fs::read(&path).expect("read");
                if let Some(byte) = bytes.last_mut() {
                    *byte ^= 1;
                }
                fs::write(&path, bytes).expect("written");
            }
            let verified = home.run(&["journal", "verify"]);
            let said = String::from_utf8_lossy(&verified.stdout).into_owned();
            assert_eq!(verified.status.code(), Some(1), "{said}");
            assert!(
                said.contains("its content has another hash; the next start of the daemon rewrites it"),
                "{said}"
            );
        }
        // One of the files is replaced, so that the rules of the journal's time are lost
        // permanently.
        home.configure("subscribers/other.toml", &each.replace("each", "other"));
        let daemon = home.serve();
        daemon.said("earlier rules are lost; the nearest ones are used");
        let answer = home.exchange("s", &json!({ "point": "after_tool", "carrier": "c" })).json();
        assert_eq!(*at(&answer, "/notifications/0/subscriber"), json!("each"), "{damage}: {answer}");
    }
}

#[test]
fn the_keys_of_an_earlier_form_are_read_from_the_records_and_its_key_files_go() {
    // Format 5 contains its keys itself.
    LEFT.iter().take(2).for_each(check_keys);
}

fn open(state: &Path) -> (Fold, Opened) {
    let journal = ClosedJournal {
        files: Arc::new(DirFiles::new(&state.join("journal")).expect("a folder")),
        settings: JournalSettings { seal: false, ..JournalSettings::default() },
        clock: Arc::new(|| Timestamp::ZERO),
        key_of: |found| key_of(found.kind.0, found.body),
    };
    recovery::open_after(&snapshots(state), &RulesStore::new(state), &journal).expect("opened")
}

#[test]
fn what_an_earlier_program_sealed_is_read_whole() {
    let state = LEFT[3].state();
    let sealed = fs::metadata(state.path().join("journal/00000000000000001014.seg")).expect("it is there");
    assert!(sealed.len() < 1 << 18, "it is not sealed");
    let journal = open(state.path()).1.journal;
    let mut reader = journal.read_from(Seq(1_014));
    let mut fillers = 0;
    let mut next = 1_014;
    while let Some(found) = Some(reader.next_batch(1_000).expect("readable")).filter(|all| !all.is_empty()) {
        for record in found.iter() {
            assert_eq!(record.seq, Seq(next));
            next += 1;
            fillers += u64::from(String::from_utf8_lossy(record.body).contains("nobody.asks"));
        }
    }
    // Of the 2,800, 1,012 were in the deleted segment.
    assert_eq!((next, fillers), (2_822, 1_788));
}

fn check_keys(left: &Left) {
    let state = left.state();
    let snapshots = snapshots(state.path());
    let (fold, opened) = open(state.path());
    assert_eq!(fold.applied, left.newest());
    let (journal, mut expected) = (opened.journal, Vec::new());
    let mut reader = journal.read_from(journal.stored().expect("listed").first);
    while let Some(found) =
        Some(reader.next_batch(1_000).expect("readable")).filter(|found| !found.is_empty())
    {
        for found in found.iter().filter(|found| found.kind.0 == records::EVENT) {
            expected.extend(key_of(found.kind.0, found.body).map(|key| IdempotencyKey::new(key, found.seq)));
        }
    }
    let keys = journal.idempotency_keys_blocking().expect("open");
    assert!(keys == expected && keys.iter().any(|key| key.seq < left.newest()), "{} keys", keys.len());

    let last = journal.read_at(left.newest()).expect("readable").expect("there");
    let capture = Capture::new(&fold).expect("it can be written");
    snapshots.write(&capture, last.as_record().checksum(), &keys).expect("written");
    let names = fs::read_dir(state.path().join("snapshots")).expect("a folder");
    let mut names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    let kept = left.snapshots.map(|seq| std::ffi::OsString::from(format!("{:020}.snap", seq.0)));
    assert_eq!(names, kept);
    let known = snapshots.load(&RulesStore::new(state.path())).expect("whole").keys.expect("in it").to_vec();
    assert!(known.iter().eq(keys.iter().filter(|key| key.seq <= left.newest())));
}
