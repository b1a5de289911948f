//! Tests which snapshots and idempotency keys are kept, also after a crash.

use super::*;
use journal::{
    AppendBatch, IDEMPOTENCY_KEYS_MAX, JournalSettings, Level, RecordKind,
    memory::{Faults, MemoryFiles, Operation},
};

const CHECKSUM: u32 = 7;

fn open(files: &MemoryFiles) -> Snapshots {
    Snapshots::open(Arc::new(files.clone())).expect("opened")
}

fn rules() -> RulesStore {
    RulesStore::new(std::path::Path::new("none are asked for"))
}

/// An engine that has only advanced to `seq`.
fn capture(seq: u64) -> Capture {
    let mut fold = Fold::new(rules());
    fold.applied = Seq(seq);
    Capture::new(&fold).expect("it can be written")
}

/// A key for each of these records.
fn keys(seqs: impl IntoIterator<Item = u64>) -> Vec<IdempotencyKey> {
    let key = |seq: u64| u128::from(seq.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 50 | u128::from(seq);
    seqs.into_iter().map(|seq| IdempotencyKey::new(key(seq), Seq(seq))).collect()
}

fn write(snapshots: &Snapshots, seq: u64, keys: &[IdempotencyKey]) -> Result<u64, WriteError> {
    snapshots.write(&capture(seq), CHECKSUM, keys)
}

fn loaded(files: &MemoryFiles) -> Option<(u64, Vec<IdempotencyKey>)> {
    let loaded = open(files).load(&rules())?;
    let keys = loaded.keys.expect("they are in it");
    Some((loaded.fold.applied.0, keys.to_vec()))
}

fn names(files: &MemoryFiles) -> Vec<String> {
    let mut names = files.list().expect("listed");
    names.sort();
    names
}

#[test]
fn snapshot_keeps_newest_keys_up_to_its_record() {
    let files = MemoryFiles::new();
    let snapshots = open(&files);
    let newest = 2 * IDEMPOTENCY_KEYS_MAX as u64;
    // Keys of later records may be lost with those records.
    let remembered = keys(newest - IDEMPOTENCY_KEYS_MAX as u64 + 8..=newest + 7);
    let bytes = write(&snapshots, newest, &remembered).expect("written");
    assert_eq!(bytes, files.open(&name_of(Seq(newest))).and_then(|file| file.size()).expect("sized"));
    let expected = keys(newest - IDEMPOTENCY_KEYS_MAX as u64 + 8..=newest);
    assert!(loaded(&files) == Some((newest, expected)));
}

#[test]
fn the_newest_two_are_kept_with_foreign_files() {
    let files = MemoryFiles::new();
    for name in ["unfinished", "notes"] {
        files.create(name).expect("created").write_at(&[7; 9_000], 0).expect("written");
    }
    let snapshots = open(&files);
    for seq in [5, 9, 12, 20] {
        write(&snapshots, seq, &keys([2, 4])).expect("written");
    }
    assert_eq!(names(&files), [&name_of(Seq(12)), &name_of(Seq(20)), "notes"]);
    assert_eq!(loaded(&files), Some((20, keys([2, 4]))));
}

#[test]
fn failed_snapshot_write_leaves_previous_one_usable() {
    let files = MemoryFiles::new();
    let snapshots = open(&files);
    write(&snapshots, 5, &keys(1..=5)).expect("written");
    let full = |snapshots: &Snapshots| {
        files.set_space(Some(200));
        let error = write(snapshots, 9, &keys(1..=9)).expect_err("full");
        files.set_space(None);
        assert_eq!(error.source.kind(), io::ErrorKind::StorageFull);
    };
    full(&snapshots);
    assert_eq!(names(&files), [name_of(Seq(5))]);

    // The process was killed before it could remove the file.
    files.fail(Operation::Remove, UNFINISHED, 1, io::ErrorKind::Other);
    full(&snapshots);
    assert_eq!(names(&files), [&name_of(Seq(5)), UNFINISHED]);
    let again = open(&files);
    assert_eq!(again.load(&rules()).map(|loaded| loaded.fold.applied), Some(Seq(5)));
    write(&again, 10, &keys(1..=10)).expect("written");
    assert_eq!(names(&files), [5, 10].map(|seq| name_of(Seq(seq))));
    assert_eq!(loaded(&files), Some((10, keys(1..=10))));
}

#[test]
fn few_snapshots_of_other_journals_are_kept() {
    let files = MemoryFiles::new();
    for seq in (10..100).step_by(10) {
        let snapshots = open(&files);
        write(&snapshots, seq, &[]).expect("written");
        snapshots.pass_over(Seq(seq), &Unusable::OtherRecord { seq: Seq(seq) });
        assert!(snapshots.is_empty() && open(&files).is_empty(), "no later start may take it for one");
    }
    let kept: Vec<String> = [60, 70, 80, 90].map(|seq| format!("{:020}.snap.unmatched", seq)).into();
    assert_eq!(names(&files), kept);
}

#[test]
fn unrenamable_snapshot_of_another_journal_is_unused() {
    let files = MemoryFiles::new();
    let snapshots = open(&files);
    write(&snapshots, 5, &[]).expect("written");
    files.fail(Operation::Rename, &name_of(Seq(5)), 1, io::ErrorKind::ReadOnlyFilesystem);
    snapshots.pass_over(Seq(5), &Unusable::OtherRecord { seq: Seq(5) });
    assert!(snapshots.is_empty() && !open(&files).is_empty());
    assert_eq!(snapshots.unmatched(), [files.path(&name_of(Seq(5)))]);
}

#[test]
fn history_starts_from_snapshot_of_own_journal() {
    let (files, clock) = (Arc::new(MemoryFiles::new()), Arc::new(|| Timestamp::ZERO));
    let journal = Journal::open(files, JournalSettings::default(), clock, &|_| None);
    let journal = journal.expect("opened").journal;
    let mut batch = AppendBatch::new();
    (0..9).for_each(|_| batch.push(RecordKind(1), b"body", None).expect("small"));
    journal.append_blocking(batch, Level::Synced).expect("appended");
    let checksum = |seq| journal.read_at(Seq(seq)).expect("readable").expect("there").as_record().checksum();
    for (older, newer, before_8, oldest) in [
        ((5, checksum(5)), (7, checksum(7)), Some(7), Some(5)),
        ((5, checksum(5)), (7, checksum(6)), Some(5), Some(5)),
        ((5, checksum(4)), (7, checksum(7)), Some(7), Some(7)),
        ((5, checksum(5)), (12, checksum(9)), Some(5), Some(5)),
        ((11, checksum(9)), (12, checksum(9)), None, None),
    ] {
        let snapshots = open(&MemoryFiles::new());
        for (seq, checksum) in [older, newer] {
            snapshots.write(&capture(seq), checksum, &[]).expect("written");
        }
        let found =
            [snapshots.load_before(Seq(8), &journal, &rules()), snapshots.load_oldest(&journal, &rules())];
        let found = found.map(|fold| fold.map(|fold| fold.applied.0));
        assert_eq!(found, [before_8, oldest], "{older:?} {newer:?}");
    }
}

const ENDS: [u64; 4] = [100, 4_000, 6_000, 6_100];

/// Writes four snapshots; returns how many were written without an error.
fn write_four(snapshots: &Snapshots) -> usize {
    let wrote = ENDS.map(|end| write(snapshots, end, &keys(1..=end)).is_ok());
    wrote.iter().rposition(|wrote| *wrote).map_or(0, |last| last + 1)
}

#[test]
fn crash_at_any_write_keeps_the_newest_snapshot() {
    let whole = MemoryFiles::new();
    write_four(&open(&whole));
    let all = whole.operations();
    assert_eq!((all.writes, all.syncs), (8, 8));
    let cut = |write, sync| Faults { cut_after_write: write, cut_after_sync: sync, ..Faults::default() };
    let fail = |write, sync| Faults { fail_write: write, fail_sync: sync, ..Faults::default() };
    let writes = (1..=all.writes).map(Some).flat_map(|write| [cut(write, None), fail(write, None)]);
    let syncs = (1..=all.syncs).map(Some).flat_map(|sync| [cut(None, sync), fail(None, sync)]);
    for faults in writes.chain(syncs) {
        let files = MemoryFiles::new();
        files.set_faults(faults);
        let least = write_four(&open(&files));
        for left in (0..3).map(|seed| files.after_power_loss(seed)).chain([files.after_kill()]) {
            let found = loaded(&left);
            let seq = found.as_ref().map_or(0, |(seq, _)| *seq);
            assert!(least == 0 || seq >= ENDS[least - 1], "{faults:?}: {seq} of {least}");
            let is_whole = found.is_none_or(|(seq, found)| found == keys(1..=seq));
            assert!(is_whole, "{faults:?}: the keys are others");
            // The next start can use the remaining files, and the next snapshot is complete.
            let again = open(&left);
            again.load(&rules());
            write(&again, 7_000, &keys(1..=7_000)).expect("written");
            assert!(loaded(&left).is_some_and(|found| found == (7_000, keys(1..=7_000))), "{faults:?}");
            let names = names(&left);
            assert!(names.len() <= KEPT && names.iter().all(|name| seq_of(name).is_some()), "{names:?}");
        }
    }
}
