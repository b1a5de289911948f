//! Tests of the sync duty.

use std::thread;

use super::*;
use crate::testing::*;
use crate::{
    Level, block_on,
    log::{
        files::Files,
        memory::{Faults, MemoryFiles},
    },
    settings::Durability,
    time::Timestamp,
};

#[test]
fn group_commit_shares_a_sync_among_waiting_appends() {
    let files = MemoryFiles::new();
    let journal = open_prepared(&files, 1 << 20);
    let before = files.operations().syncs;
    files.close_gate();
    thread::scope(|scope| {
        for number in 1..=64 {
            let journal = &journal;
            scope.spawn(move || journal.append_blocking(batch(number), Level::Synced).expect("appended"));
        }
        block_on(journal.written().wait_for(|written| *written == Seq(64))).expect("open");
        assert_eq!(files.operations().syncs, before);
        files.open_gate();
    });
    // A first sync may begin before all batches were written, and a second one before the last
    // were submitted.
    let syncs = files.operations().syncs - before;
    assert!((1..=3).contains(&syncs), "{syncs} syncs");
    assert_eq!(*journal.synced().borrow(), Seq(64));
}

#[test]
fn written_level_append_does_not_wait_for_sync() {
    let files = MemoryFiles::new();
    let journal = open_prepared(&files, 1 << 20);
    files.close_gate();
    thread::scope(|scope| {
        let waits = scope.spawn(|| journal.append_blocking(batch(1), Level::Synced).expect("appended"));
        files.wait_for_sync_at_gate();
        let written = journal.append_blocking(batch(2), Level::Written).expect("appended");
        assert_eq!((written.first(), written.level), (Some(Seq(2)), Level::Written));
        assert_eq!(*journal.synced().borrow(), Seq::ZERO);
        files.open_gate();
        assert_eq!(waits.join().expect("no panic").level, Level::Synced);
    });
    assert!(*journal.synced().borrow() >= Seq(1));
}

#[test]
fn writing_continues_in_next_segment_during_pending_sync() {
    let files = MemoryFiles::new();
    let journal = open_prepared(&files, SEGMENT_BYTES);
    files.close_gate();
    // The first segment takes seven batches, the second one the rest.
    for number in 1..=12 {
        journal.append_blocking(batch(number), Level::Written).expect("appended");
    }
    assert_eq!(numbers(&journal), (1..=12).collect::<Vec<_>>());
    let killed = files.after_kill();
    files.open_gate();
    let next = killed.open(NEXT_NAME).expect("there");
    assert!(
        crate::log::segment_file::used_end(next.as_ref(), crate::log::segment_file::HEADER_BYTES)
            .expect("read")
            .is_some()
    );
    assert_eq!(Files::list(&killed).expect("listed"), ["00000000000000000001.seg", NEXT_NAME]);
    let again = open(&killed);
    assert_eq!(again.cuts, []);
    assert_eq!(numbers(&again.journal), (1..=12).collect::<Vec<_>>());
}

#[test]
fn failed_sync_poisons_the_journal_without_a_retry() {
    let files = MemoryFiles::new();
    let journal = open_prepared(&files, SEGMENT_BYTES);
    journal.append_blocking(batch(1), Level::Synced).expect("appended");
    let failing = files.operations().syncs + 1;
    files.set_faults(Faults { fail_sync: Some(failing), ..Faults::default() });
    let error = journal.append_blocking(batch(2), Level::Synced).expect_err("refused").to_string();
    assert!(error.contains("failed to sync memory/00000000000000000001.seg"), "{error}");
    for level in [Level::Written, Level::Synced] {
        assert!(journal.append_blocking(batch(3), level).is_err());
    }
    assert!(block_on(journal.wait_for_poison()).source.to_string().contains("set to fail"));
    assert!(journal.close_blocking().is_err());
    assert_eq!(files.operations().syncs, failing);
    assert_eq!(*journal.synced().borrow(), Seq(1));
    assert_eq!(numbers(&journal), [1, 2]);
}

#[test]
fn append_to_a_deleted_segment_file_fails() {
    let files = MemoryFiles::new();
    let journal = open_prepared(&files, 1 << 20);
    journal.append_blocking(batch(1), Level::Synced).expect("appended");
    for name in files.list().expect("listed") {
        files.remove(&name).expect("removed");
    }
    let error = journal.append_blocking(batch(2), Level::Synced).expect_err("refused");
    let AppendError::Poisoned(poisoned) = error else { panic!("{error}") };
    assert_eq!(poisoned.source.to_string(), "the file was deleted from its folder");
    assert!(journal.poisoned().is_some());
}

#[test]
fn failed_sync_ends_the_wait_for_next_file() {
    let files = MemoryFiles::new();
    let journal = open_prepared(&files, SEGMENT_BYTES);
    files.set_faults(Faults { fail_sync: Some(files.operations().syncs + 1), ..Faults::default() });
    let refused = (1..100).find_map(|number| journal.append_blocking(batch(number), Level::Written).err());
    let error = refused.expect("refused at last").to_string();
    assert!(error.contains("failed to sync memory/00000000000000000001.seg"), "{error}");
}

#[test]
fn interval_durability_answers_before_the_sync() {
    let files = MemoryFiles::new();
    let clock = || Timestamp::from_millis(5);
    let opened = open_with(&files, 1 << 20, Durability::Interval, Arc::new(clock)).expect("opened");
    let appended = opened.journal.append_blocking(batch(1), Level::Synced).expect("appended");
    assert_eq!(appended.level, Level::Written);
    assert_eq!(*opened.journal.synced().borrow(), Seq::ZERO);
    opened.journal.close_blocking().expect("closed");
    assert_eq!(*opened.journal.synced().borrow(), Seq(1));
}

#[test]
fn timer_syncs_written_records_then_stops() {
    for durability in [Durability::Sync, Durability::Interval] {
        let files = MemoryFiles::new();
        let journal = open_syncing(&files, durability);
        for number in 1..=3 {
            journal.append_blocking(batch(number), Level::Written).expect("appended");
            block_on(journal.synced().wait_for(|synced| *synced == Seq(number))).expect("open");
            while !journal.inner.commits.has_no_timer() {
                thread::yield_now();
            }
        }
    }
}

#[test]
fn sync_timer_runs_only_while_records_are_unsynced() {
    let journal = open_prepared(&MemoryFiles::new(), 1 << 20);
    journal.append_blocking(batch(1), Level::Written).expect("appended");
    let mut state = journal.inner.commits.lock();
    assert_eq!((state.next(Seq::ZERO), state.next(Seq(1))), (Next::Timer, Next::Wait));
    state.is_syncing = true;
    assert_eq!(state.next(Seq::ZERO), Next::Wait, "who syncs looks again");
    state.is_syncing = false;
    let failed = io::Error::other("set to fail");
    state.failed = Some(journal.inner.store.poison("sync", "a.seg", failed));
    assert_eq!(state.next(Seq::ZERO), Next::Wait, "nothing is synced any more");
    state.is_closing = true;
    assert_eq!(state.next(Seq(1)), Next::Round);
}

#[test]
fn closing_a_synced_journal_syncs_only_the_mark() {
    let files = MemoryFiles::new();
    let journal = open_prepared(&files, 1 << 20);
    journal.append_blocking(batch(1), Level::Synced).expect("appended");
    let before = files.operations();
    journal.close_blocking().expect("closed");
    // The mark, and the name of its file.
    let after = files.operations();
    assert_eq!((after.writes - before.writes, after.syncs - before.syncs), (1, 2));
    let again = open_prepared(&files, 1 << 20);
    let before = files.operations();
    again.close_blocking().expect("closed");
    assert_eq!(files.operations(), before);
}
