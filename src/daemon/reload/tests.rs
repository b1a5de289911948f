//! Reloads over a journal in memory, followed by a fold that the test drives.

use std::fs;

use super::*;
use engine::{
    event::Seq,
    records::{self, RecordInput},
};
use journal::{JournalSettings, memory::MemoryFiles};

use crate::{
    config::daemon::DaemonConfig,
    daemon::{clock::clock_fn, fold::Fold},
};

const SUBSCRIBER: &str = "[subscriber]\nid = \"own\"\n[events]\ntypes = [\"ci.check.failed\"]\n";

/// A configuration, a state folder, and the reloader.
struct Bench {
    folder: tempfile::TempDir,
    reloader: Reloader,
    fold: Fold,
    files: MemoryFiles,
    asking: mpsc::Sender<ReloadRequest>,
}

fn bench() -> Bench {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Arc::new(Clock::starting_at(Timestamp::ZERO));
    let files = MemoryFiles::new();
    let settings = JournalSettings { segment_bytes: 4_096, ..JournalSettings::default() };
    let opened = Journal::open(Arc::new(files.clone()), settings, clock_fn(&clock), &|_| None);
    let journal = opened.expect("opened").journal;
    let publisher = Publisher::new(journal.clone());
    let store = RulesStore::new(&folder.path().join("state"));
    let user_folder = folder.path().join("config");
    fs::create_dir_all(user_folder.join("subscribers")).expect("made");
    fs::write(user_folder.join("subscribers/own.toml"), SUBSCRIBER).expect("written");
    let (asking, requests) = mpsc::channel(1);
    let state = watch::Sender::new(Arc::new(ConfigState::default()));
    let at_start: DaemonConfig = read_at_start(&user_folder, &store).0.compiled.daemon;
    let fold = Fold::new(store.clone());
    let in_force = InForce { hash: String::new(), waits: false };
    let (named, folders) = (0, watch::channel(Arc::default()).1);
    let reloader = Reloader {
        journal,
        publisher,
        store,
        user_folder,
        clock,
        in_force,
        named,
        at_start,
        requests,
        state,
        folders,
        looked_at: Arc::default(),
    };
    Bench { folder, reloader, fold, files, asking }
}

#[tokio::test]
async fn event_loop_receives_compiled_rules() {
    let Bench { folder, mut reloader, mut fold, .. } = bench();
    let journal = reloader.journal.clone();
    let mut reader = journal.read_from(Seq(1));
    let event_loop = async {
        reader.wait().await.expect("open");
        // Without its bundle the rules of the record cannot be compiled.
        for entry in
            fs::read_dir(folder.path().join("state/rules")).expect("kept before the record was appended")
        {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "json" || extension == "text") {
                fs::remove_file(path).expect("removed");
            }
        }
        for record in reader.next_batch(1).expect("readable").iter() {
            fold.apply(&record).expect("the rules are there");
        }
        journal.consumed(fold.applied);
    };
    let (reloaded, ()) = tokio::join!(reloader.reload(), event_loop);
    let reloaded = reloaded.expect("without an error");
    assert_eq!((reloaded.changed, &*fold.engine.rules().hash), (true, &*reloaded.rules));
    assert!(fold.engine.rules().subscribers.iter().any(|rule| rule.id.as_str() == "own"));
}

#[tokio::test]
async fn unstorable_rules_leave_current_ones_in_force() {
    let Bench { folder, reloader, .. } = bench();
    let sources = crate::config::layers::Sources::shipped();
    // A file with the folder's name makes all writes fail.
    fs::write(folder.path().join("file"), b"").expect("written");
    let kept = || keep(RulesStore::new(&folder.path().join("file")), &sources).1;
    let before = reloader.store.keep(&sources).expect("kept");
    let in_force = adopt(&reloader.publisher, kept(), &before).await.expect("adopted");
    assert_eq!(in_force, InForce { hash: before, waits: false });
    let mut reader = reloader.journal.read_from(Seq(1));
    let batch = reader.next_batch(1).expect("readable");
    let kinds: Vec<u8> = batch.iter().map(|found| found.kind.0).collect();
    assert_eq!(kinds, [records::RULES], "every start says which rules hold");
    let refused = adopt(&reloader.publisher, kept(), "").await.expect_err("there are none");
    let said = with_causes(&refused);
    assert!(said.contains("/file/rules/") && said.ends_with("(os error 20)"), "{said}");
}

/// The hashes of all rules that the journal names.
fn named(journal: &Journal) -> Vec<String> {
    let mut reader = journal.read_from(Seq(1));
    let mut hashes = Vec::new();
    loop {
        let batch = reader.next_batch(1_000).expect("readable");
        if batch.is_empty() {
            return hashes;
        }
        for found in batch.iter().filter(|found| found.kind.0 == records::RULES) {
            let decoded = records::decode(found.kind.0, found.seq, found.body).expect("readable");
            let RecordInput::Rules { hash } = decoded else { panic!("{decoded:?}") };
            hashes.push(hash.to_string());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rules_waiting_for_space_never_override_a_reload() {
    for has_reload in [false, true] {
        let Bench { folder: _folder, mut reloader, files, asking: _asking, .. } = bench();
        let (journal, publisher) = (reloader.journal.clone(), reloader.publisher.clone());
        journal.consumed(Seq(u64::MAX));
        files.set_space(Some(0));
        while reloader.publisher.append(Records::build(Records::tick)).await.is_ok() {}
        let waiting = "00".repeat(32);
        reloader.in_force = adopt(&reloader.publisher, Ok(waiting.clone()), "").await.expect("adopted");
        assert!(reloader.in_force.waits && named(&journal).is_empty());
        files.set_space(None);
        while journal.disk_full().is_some() {
            std::thread::yield_now();
        }
        let reloaded = if has_reload { reloader.reload().await.expect("reloaded").rules } else { waiting };
        let elapsed = tokio::time::timeout(2 * FULL_RETRY, reloader.run()).await;
        assert!(elapsed.is_err(), "somebody may still ask");
        // Paused time does not wait for the journal's threads; a new append comes after all earlier
        // ones.
        publisher.append(Records::build(Records::tick)).await.expect("appended");
        assert_eq!(named(&journal), [reloaded]);
    }
}

#[tokio::test]
async fn a_reload_reports_texts_and_tests_that_fail() {
    let Bench { folder: _folder, mut reloader, .. } = bench();
    let file = reloader.user_folder.join("subscribers/own.toml");
    let template = reloader.user_folder.join("templates/own.toon.j2");
    fs::create_dir(reloader.user_folder.join("templates")).expect("made");
    fs::write(&template, "check: {{ events[0].payload.chek }}\n").expect("written");
    let test = "[[tests]]\nname = \"t\"\nat = [[\"0ms\", \"ci.check.failed\", { check = \"x\" }]]\nexpect = [{ at = \"3s\", decoded = { no = 1 } }]\n";
    for (seq, (more, failing)) in [("", 1), ("", 0), (test, 1)].into_iter().enumerate() {
        fs::write(&file, format!("{SUBSCRIBER}{more}")).expect("written");
        reloader.journal.consumed(Seq(seq as u64 + 1));
        let reloaded = reloader.reload().await.expect("in force");
        assert_eq!((reloaded.failing, reloaded.found.errors), (failing, 0), "{}", reloaded.found.report);
        assert!(reloaded.found.warnings >= failing, "{}", reloaded.found.report);
        fs::write(&template, "check: {{ events[0].payload.check }}\n").expect("written");
    }
}

#[tokio::test]
async fn reload_reports_settings_that_need_a_restart() {
    let Bench { folder: _folder, mut reloader, .. } = bench();
    fs::write(reloader.user_folder.join("aside.toml"), "[journal]\nretain_age = \"90d\"\n").expect("written");
    reloader.journal.consumed(Seq(1));
    assert!(reloader.reload().await.expect("without an error").restart_needed);
    fs::remove_file(reloader.user_folder.join("aside.toml")).expect("removed");
    reloader.journal.consumed(Seq(2));
    assert!(!reloader.reload().await.expect("without an error").restart_needed);
}

#[test]
fn start_uses_retention_of_last_good_settings() {
    let Bench { folder: _folder, reloader, .. } = bench();
    let (store, settings) = (&reloader.store, reloader.user_folder.join("aside.toml"));
    let start = |text: &str| {
        fs::write(&settings, text).expect("written");
        let (usable, _) = read_at_start(&reloader.user_folder, store);
        let journal = &usable.compiled.daemon.journal;
        let days = journal.retain_age.map(|age| age.as_secs() / (24 * 3_600));
        let seen = (days, journal.retain_bytes.is_some(), usable.has_all_settings);
        keep(store.clone(), &usable.sources).1.expect("kept");
        seen
    };
    let broken = "[journal]\nretain_age = 90d\n";
    assert_eq!(start(broken), (None, false, false), "nobody ever said how long");
    assert_eq!(start("[journal]\nretain_age = \"90d\"\n"), (Some(90), true, true));
    assert_eq!(start(broken), (Some(90), true, true));
    assert_eq!(start(broken), (Some(90), true, true), "also at the next start");
    assert_eq!(start("[journal]\nretain_age = \"60d\"\n"), (Some(60), true, true));
}
