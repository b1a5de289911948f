//! The daemon continues with a state folder of an earlier program, and refuses one of a build before
//! the first release.
//!
//! `scripts/fixture-state` made `state-1`, the first formats of all, with their first program. It is
//! a month old, its first segment was deleted by age, a full one is sealed, and its daemon was
//! killed while a batch was open. `answer.json` in it is the last answer to the session `leased`.

use std::{fs, os::unix::fs::FileExt, path::Path, sync::Arc, time::Duration};

use aside::daemon::{
    fold::Fold,
    recovery::{self, ClosedJournal},
    rules::RulesStore,
    snapshots::Snapshots,
};
use engine::{
    Output, RequestId,
    event::{Seq, SessionId},
    exchange::{Exchange, Harness},
    notification::InjectionPoint,
    records,
};
use journal::{
    IdempotencyKey, JournalSettings, Level,
    files::{DirFiles, Files},
    memory::MemoryFiles,
    time::Timestamp,
};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    daemon::{Home, at, text},
    event_loop::{Append, Daemon, Disk, key_of},
};

/// A state folder of an earlier program.
struct Left {
    archive: &'static str,
    /// The last records covered by its snapshots.
    snapshots: [Seq; 2],
    /// The unmatched events in the newer snapshot.
    unmatched: u64,
    /// The first records of its sealed segment and of the one after it, and the last record of all.
    sealed: [Seq; 3],
}

/// One for each version of the formats that is read, oldest first.
const LEFT: [Left; 1] = [Left {
    archive: "state-1",
    snapshots: [Seq(2_707), Seq(2_812)],
    unmatched: 2_795,
    sealed: [Seq(1_014), Seq(2_029), Seq(2_821)],
}];

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
fn start_continues_from_an_earlier_snapshot_format() {
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
fn pending_notifications_of_an_earlier_program_are_delivered() {
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
fn journal_without_beginning_and_snapshots_recovers_rules() {
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
fn start_survives_damaged_or_missing_rules_without_loss() {
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
fn an_earlier_journal_is_read_whole() {
    LEFT.iter().for_each(check_journal);
}

fn check_journal(left: &Left) {
    let state = left.state();
    let [first, following, last] = left.sealed;
    let journal = state.path().join("journal");
    let size = |first: Seq| fs::metadata(journal.join(format!("{:020}.seg", first.0))).expect("there").len();
    assert!(size(first) < 1 << 18 && size(following) == 1 << 20, "one is sealed, and the next is not");
    let closed = ClosedJournal {
        files: Arc::new(DirFiles::new(&journal).expect("a folder")),
        settings: JournalSettings { seal: false, ..JournalSettings::default() },
        clock: Arc::new(|| Timestamp::ZERO),
        key_of: |found| key_of(found.kind.0, found.body),
    };
    let (fold, opened) =
        recovery::open_after(&snapshots(state.path()), &RulesStore::new(state.path()), &closed)
            .expect("opened");
    assert_eq!(fold.applied, left.newest());

    let (mut reader, mut expected, mut keys) = (opened.journal.read_from(first), first, Vec::new());
    while let Some(batch) =
        Some(reader.next_batch(1_000).expect("readable")).filter(|batch| !batch.is_empty())
    {
        for record in batch.iter() {
            assert_eq!(record.seq, expected);
            expected = expected.next();
            records::decode(record.kind.0, record.seq, record.body).expect("of a known version");
            keys.extend(key_of(record.kind.0, record.body).map(|key| IdempotencyKey::new(key, record.seq)));
        }
    }
    assert_eq!(expected.previous(), last);
    // Those of the deleted segment are in the snapshot alone. An id that the program gave has no key
    // while it runs.
    let mut known = opened.journal.idempotency_keys_blocking().expect("open");
    known.retain(|key| key.seq >= first);
    assert!(known.iter().all(|key| keys.contains(key)), "{known:?}");
    assert!(known.iter().any(|key| key.seq < left.newest()), "the snapshot has those of ids that were sent");
    let later = keys.iter().filter(|key| key.seq > left.newest());
    assert!(later.clone().count() > 0 && later.into_iter().all(|key| known.contains(key)), "{known:?}");
}

/// Gives a file the header of a build before the first release.
fn forge(path: &Path, at: u64, header: &[u8]) {
    let file = fs::File::options().write(true).open(path).expect("there");
    file.write_all_at(header, at).expect("written");
}

#[test]
fn an_unreleased_state_is_refused_until_moved_away() {
    let home = Home::new();
    let daemon = home.serve();
    home.publish(&json!({ "type": "shop.order", "payload": { "number": 1 } }));
    daemon.stop();
    for (folder, extension, header) in [("journal", "seg", &b"asid"[..]), ("snapshots", "snap", b"asidesnp")]
    {
        for entry in fs::read_dir(home.path("state").join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|own| own == extension) {
                forge(&path, 0, header);
            }
        }
    }
    // The place of the application in the header of an SQLite file.
    forge(&home.path("state/projection.db"), 68, &[0; 4]);

    let refused = home.try_serve(&[]).expect_err("refused").log;
    let verified = text(&home.run(&["journal", "verify"]).stderr);
    let repaired = text(&home.run(&["journal", "repair"]).stderr);
    let advice = format!("move the state folder {} away", home.path("state").display());
    for said in [refused, verified, repaired] {
        for part in ["00000000000000000001.seg", "an unreleased build of aside", &advice] {
            assert!(said.contains(part), "{part} in {said}");
        }
        assert_eq!(said.trim().lines().count(), 1, "{said}");
    }

    let checked = text(&home.run(&["doctor"]).stdout);
    assert!(checked.contains("was written by an unreleased build of aside"), "{checked}");

    // What is left of it is not read either.
    fs::rename(home.path("state/journal"), home.path("journal-before")).expect("moved");
    let daemon = home.serve();
    let said = daemon.said("a snapshot is skipped");
    assert!(said.contains("an unreleased build of aside"), "{said}");
    home.publish(&json!({ "type": "shop.order", "payload": { "number": 2 } }));
    daemon.stop();
    let daemon = home.serve();
    assert_eq!(home.get("/healthz")["status"], "ok");
    daemon.stop();
}
