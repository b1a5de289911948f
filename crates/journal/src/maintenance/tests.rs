//! Tests of sealing and deleting under faults.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use proptest::prelude::*;

use super::*;
use crate::{
    Journal, JournalHealth, Level, OpenError, Outcome, ReadError, RecoveryHint,
    log::{
        memory::{Faults, MemoryFiles, Operation},
        segment_file,
    },
    settings::{Durability, JournalSettings},
    testing::*,
    time::Timestamp,
};

fn is_sealed(files: &MemoryFiles, name: &str) -> bool {
    let file = files.open(name).expect("there");
    segment_file::header_of(file.as_ref()).expect("read") == segment_file::Header::Sealed
}

fn segments(files: &MemoryFiles) -> Vec<String> {
    let names = files.list().expect("listed");
    names.into_iter().filter(|name| segment_file::first_of(name).is_some()).collect()
}

#[test]
fn sealing_full_segments_preserves_every_record() {
    let files = filled(40, false);
    let journal = open_sealing(&files).journal;
    let names = segments(&files);
    let (last, full) = names.split_last().expect("segments");
    assert!(full.len() > 3 && full.iter().all(|name| is_sealed(&files, name)) && !is_sealed(&files, last));
    let stored = journal.stored().expect("sized");
    assert_eq!((stored.first, stored.segments, stored.sealed), (Seq(1), names.len(), full.len()));
    assert_eq!(numbers(&journal), (1..=40).collect::<Vec<_>>());
    journal.append_blocking(batch_of(41..=60), Level::Synced).expect("appended");
    journal.close_blocking().expect("closed");
    let again = open_sealing(&files);
    assert!(!files.list().expect("listed").iter().any(|name| name == UNFINISHED_NAME));
    assert_eq!((again.cuts.len(), again.last_seq), (0, Seq(60)));
    assert_eq!(again.last_time, Timestamp::from_millis(5));
    assert_eq!(numbers(&again.journal), (1..=60).collect::<Vec<_>>());
    for seq in 1..=60 {
        let record = again.journal.read_at(Seq(seq)).expect("readable").expect("there");
        assert_eq!(number_of(&record.body), seq);
    }
    let published = again.journal.append_blocking(batch(3), Level::Written).expect("answered");
    assert_eq!(published.outcomes().collect::<Vec<_>>(), [Outcome::Duplicate(Seq(3))]);
}

#[test]
fn reader_continues_while_its_segment_is_sealed() {
    let files = filled(40, false);
    let journal = open(&files).journal;
    let mut reader = journal.read_from(Seq(2));
    assert_eq!(reader.next_batch(1).expect("readable").len(), 1);
    let store = &journal.inner.store;
    for (first, following) in store.firsts().windows(2).map(|pair| (pair[0], pair[1])) {
        let (segment, _) = store.segment_of(first).expect("there");
        let sealed = seal(&files, &segment, following, || true).expect("sealed").expect("whole");
        store.replace(first, sealed).expect("replaced");
    }
    let mut seen = Vec::new();
    while reader.position() <= Seq(40) {
        let records = reader.next_batch(3).expect("readable");
        seen.extend(records.iter().map(|record| number_of(record.body)));
    }
    assert_eq!(seen, (3..=40).collect::<Vec<_>>());
    assert_eq!(numbers(&journal), (1..=40).collect::<Vec<_>>());
}

#[test]
fn sealing_survives_power_loss_at_every_step() {
    let whole = filled(40, false);
    let count = {
        let files = whole.after_kill();
        drop(open_sealing(&files).journal.close_blocking());
        files.operations()
    };
    let writes = (1..=count.writes).map(|at| Faults { cut_after_write: Some(at), ..Faults::default() });
    let syncs = (1..=count.syncs).map(|at| Faults { cut_after_sync: Some(at), ..Faults::default() });
    let failures = (1..=count.writes).map(|at| Faults { fail_write: Some(at), ..Faults::default() });
    for faults in writes.chain(syncs).chain(failures) {
        let files = whole.after_kill();
        files.set_faults(faults);
        if let Ok(opened) = try_open_sealing(&files, Retention::default(), RecoveryHint::default()) {
            opened.journal.inner.store.maintenance.wait_until_idle();
            // The next start shows whether it could be synced.
            opened.journal.close_blocking().ok();
        }
        for seed in 0..3 {
            let left = files.after_power_loss(seed);
            let again = open_sealing(&left);
            assert_eq!(numbers(&again.journal), (1..=40).collect::<Vec<_>>(), "{faults:?}, seed {seed}");
            let names = segments(&left);
            assert!(names.iter().rev().skip(1).all(|name| is_sealed(&left, name)), "{faults:?}, {seed}");
            assert!(!left.list().expect("listed").iter().any(|name| name == UNFINISHED_NAME));
        }
    }
}

#[test]
fn start_skips_sealed_segments_covered_by_hint() {
    let files = filled(40, false);
    open_sealing(&files).journal.close_blocking().expect("closed");
    let names = segments(&files);
    files.open(&names[1]).expect("there").write_at(b"!", 30).expect("written");
    let error = try_open_sealing(&files, Retention::default(), RecoveryHint::default()).map(|_| ());
    let error = error.expect_err("its keys are needed").to_string();
    assert!(error.contains(&names[1]) && error.contains("the block at byte 16 is damaged"), "{error}");
    let hint = RecoveryHint { seq: Seq(38), keys_upto: Seq(38) };
    let opened = try_open_sealing(&files, Retention::default(), hint).expect("opened");
    let second = segment_file::first_of(&names[1]).expect("a segment");
    assert!(opened.journal.read_at(Seq(1)).is_ok() && opened.journal.read_at(Seq(40)).is_ok());
    let error = opened.journal.read_at(second).map(|_| ()).expect_err("damaged");
    assert!(matches!(error, ReadError::Io { .. }), "{error}");
}

#[test]
fn damaged_record_prevents_sealing_of_its_segment() {
    let files = filled(40, false);
    let names = segments(&files);
    let opened = open(&files);
    files.open(&names[1]).expect("there").write_at(b"!", 50).expect("written");
    let store = &opened.journal.inner.store;
    let [first, second, third] = [0, 1, 2].map(|at| segment_file::first_of(&names[at]).expect("a segment"));
    let sealed = |first, following| {
        let (segment, _) = store.segment_of(first).expect("there");
        seal(&files, &segment, following, || true).map(|sealed| sealed.is_some())
    };
    assert_eq!(sealed(first, second).ok(), Some(true));
    let error = sealed(second, third).expect_err("damaged").to_string();
    assert_eq!(error, format!("record {second} at byte 16 is damaged"));
}

#[test]
fn lookup_continues_past_a_damaged_block() {
    let files = filled(200, false);
    open_sealing(&files).journal.close_blocking().expect("closed");
    let names = segments(&files);
    let hint = RecoveryHint { seq: Seq(200), keys_upto: Seq(200) };
    files.open(&names[1]).expect("there").write_at(b"!", 30).expect("written");
    let journal = try_open_sealing(&files, Retention::default(), hint).expect("opened").journal;
    assert_eq!(journal.health(), JournalHealth::default());
    let [second, third] = [1, 2].map(|at| segment_file::first_of(&names[at]).expect("a segment"));
    let find = |wanted: Seq| journal.find(|record| number_of(record.body) == wanted.0);
    for wanted in [Seq(1), second.previous(), third, Seq(200)] {
        assert_eq!(find(wanted).expect("readable").expect("there").seq, wanted);
    }
    assert!(find(second).is_err(), "whether it is there is not known");
    let found = journal.health();
    assert_eq!(found.damaged.len(), 1, "{found:?}");
    assert!(found.damaged[0].path.ends_with(&names[1]), "{found:?}");
    assert!(found.damaged[0].what.contains("the block at byte 16 is damaged"), "{found:?}");
}

#[test]
fn a_segment_that_cannot_be_sealed_is_remembered() {
    let files = filled(40, false);
    let names = segments(&files);
    files.fail(Operation::Sync, UNFINISHED_NAME, 1, std::io::ErrorKind::Other);
    let journal = open_sealing(&files).journal;
    let found = journal.health();
    assert_eq!(found.damaged.len(), 1, "{found:?}");
    assert!(found.damaged[0].path.ends_with(&names[0]), "{found:?}");
    assert_eq!(numbers(&journal), (1..=40).collect::<Vec<_>>());
}

/// Out of memory can surface as a panic.
#[test]
fn journal_and_sealer_thread_survive_a_panic() {
    let files = filled(40, false);
    let panics = Arc::new(AtomicU32::new(1));
    let left = Arc::clone(&panics);
    let clock: Clock = Arc::new(move || {
        let is_sealer = std::thread::current().name() == Some("journal-sealer");
        let is_due = is_sealer && left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        assert!(!is_due, "the clock is set to fail");
        Timestamp::from_millis(5)
    });
    let settings =
        JournalSettings { segment_bytes: SEGMENT_BYTES, retention: BYTES, ..JournalSettings::default() };
    let opened = Journal::open(Arc::new(files.clone()), settings, clock, &|_| None);
    let journal = opened.expect("opened").journal;
    let sealing = &journal.inner.store.maintenance;
    sealing.wait_until_idle();
    assert_eq!(panics.load(SeqCst), 0);
    assert!(!is_sealed(&files, &segments(&files)[0]));
    sealing.ask();
    sealing.wait_until_idle();
    assert!(is_sealed(&files, &segments(&files)[0]));
    journal.append_blocking(batch(41), Level::Synced).expect("appended");
}

const BYTES: Retention = Retention { age: None, bytes: Some(1 << 30) };

#[test]
fn retention_deletes_oldest_but_not_needed_segments() {
    let files = filled(200, false);
    let retention = Retention { age: None, bytes: Some(1_500) };
    let opened = try_open_sealing(&files, retention, RecoveryHint::default()).expect("opened");
    let journal = opened.journal;
    let stored = || {
        journal.inner.store.maintenance.wait_until_idle();
        journal.stored().expect("sized")
    };
    assert_eq!(stored().first, Seq(1));
    journal.set_needed_from(Seq(30));
    let kept = stored();
    assert!((Seq(2)..=Seq(30)).contains(&kept.first), "{kept:?}");
    assert_eq!(journal.read_at(Seq(30)).expect("kept").map(|record| record.seq), Some(Seq(30)));
    journal.set_needed_from(Seq(1_000));
    let kept = stored();
    assert!(kept.bytes <= 1_500 && kept.segments > 1, "{kept:?}");
    journal.close_blocking().expect("closed");
    assert_eq!(open(&files).last_seq, Seq(200));
}

#[test]
fn append_after_a_sealed_end_starts_new_segment() {
    let files = filled(40, false);
    let names = segments(&files);
    open_sealing(&files).journal.close_blocking().expect("closed");
    files.remove(names.last().expect("segments")).expect("removed");
    let error = try_open(&files).map(|_| ()).expect_err("the journal was closed with more records");
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    // A repair also leaves no mark.
    crate::log::mark::remove(&files).expect("removed");
    let opened = open(&files);
    let last = opened.last_seq;
    assert!(last < Seq(40) && opened.cuts.is_empty());
    opened.journal.append_blocking(batch(last.0 + 1), Level::Synced).expect("appended");
    opened.journal.close_blocking().expect("closed");
    assert_eq!(numbers(&open(&files).journal), (1..=last.0 + 1).collect::<Vec<_>>());
}

#[test]
fn full_disk_delays_sealing_until_there_is_space() {
    let files = filled(40, false);
    let is_any_sealed = || segments(&files).iter().any(|name| is_sealed(&files, name));
    files.set_space(Some(30));
    let journal =
        try_open_sealing(&files, Retention::default(), RecoveryHint::default()).expect("opened").journal;
    journal.inner.store.maintenance.wait_until_idle();
    assert!(!is_any_sealed());
    assert!(!files.list().expect("listed").iter().any(|name| name == UNFINISHED_NAME));
    files.set_space(None);
    journal.inner.store.maintenance.ask();
    journal.inner.store.maintenance.wait_until_idle();
    assert!(is_any_sealed());
    assert_eq!(numbers(&journal), (1..=40).collect::<Vec<_>>());
}

#[derive(Debug, Clone)]
enum Step {
    Append(u64),
    Seal,
    Forget(u64),
    Read(u64),
    Reopen,
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1_u64..20).prop_map(Step::Append),
        2 => Just(Step::Seal),
        1 => (0_u64..200).prop_map(Step::Forget),
        3 => (1_u64..200).prop_map(Step::Read),
        1 => Just(Step::Reopen),
        1 => Just(Step::Kill),
    ];
    prop::collection::vec(step, 1..30)
}

fn open_either(files: &MemoryFiles, seals: bool) -> Result<Journal, OpenError> {
    let clock: Clock = Arc::new(|| Timestamp::from_millis(5));
    let opened = if seals {
        try_open_sealing(files, Retention::default(), RecoveryHint::default())
    } else {
        open_with(files, SEGMENT_BYTES, Durability::Sync, clock)
    };
    opened.map(|opened| opened.journal)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_operations_read_back_all_appended_records(steps in steps()) {
        let mut files = MemoryFiles::new();
        let mut seals = false;
        let mut journal = open_either(&files, seals).expect("opened");
        let (mut last, mut forgotten) = (0, 1);
        for step in steps {
            match step {
                Step::Append(count) => {
                    let batch = batch_of(last + 1..=last + count);
                    journal.append_blocking(batch, Level::Synced).expect("appended");
                    last += count;
                }
                Step::Seal => {
                    seals = true;
                    journal.close_blocking().expect("closed");
                    journal = open_either(&files, seals).expect("opened");
                    journal.inner.store.maintenance.wait_until_idle();
                }
                Step::Forget(before) => {
                    journal.forget_before(Seq(before)).expect("deleted");
                    forgotten = forgotten.max(before);
                }
                Step::Read(from) => match journal.read_at(Seq(from)) {
                    Ok(found) => {
                        let number = found.map(|record| number_of(&record.body));
                        prop_assert_eq!(number, (from <= last).then_some(from));
                    }
                    Err(ReadError::Gone { oldest, .. }) => {
                        prop_assert!(from < oldest.0 && oldest.0 <= forgotten);
                    }
                    Err(error) => prop_assert!(false, "{}", error),
                },
                Step::Reopen => {
                    journal.close_blocking().expect("closed");
                    seals = !seals;
                    journal = open_either(&files, seals).expect("opened");
                }
                Step::Kill => {
                    let killed = files.after_kill();
                    journal.close_blocking().expect("closed");
                    files = killed;
                    journal = open_either(&files, seals).expect("opened");
                }
            }
        }
        let stored = journal.stored().expect("sized");
        let kept: Vec<u64> = read_all(&journal, stored.first).iter().map(|record| number_of(&record.body)).collect();
        prop_assert_eq!(kept, (stored.first.0..=last).collect::<Vec<_>>());
    }
}
