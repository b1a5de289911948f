//! What is kept of many snapshots with many publish keys, and what a crash leaves of them.

use super::{keys::FILE_KEYS_MAX, *};
use crate::journal::{
    PUBLISHED_KEYS_MAX,
    memory::{Faults, MemoryFiles},
};

fn open(files: &MemoryFiles) -> Snapshots {
    Snapshots::open(Arc::new(files.clone())).expect("opened")
}

fn rules() -> RulesStore {
    RulesStore::new(std::path::Path::new("none are asked for"))
}

/// An engine that has done nothing but to come to `seq`.
fn taken(seq: u64) -> Taken {
    let mut fold = Fold::new(rules());
    fold.applied = Seq(seq);
    Taken::of(&fold, None).expect("it can be written")
}

/// A key for each of these records.
fn keys(seqs: impl IntoIterator<Item = u64>) -> Vec<PublishedKey> {
    let key = |seq: u64| u128::from(seq.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 50 | u128::from(seq);
    seqs.into_iter().map(|seq| PublishedKey::new(key(seq), Seq(seq))).collect()
}

fn loaded(files: &MemoryFiles) -> Option<(u64, Vec<PublishedKey>)> {
    let loaded = open(files).load_meanwhile(&rules(), |known| known.seq)?;
    assert_eq!(loaded.done, loaded.fold.applied);
    Some((loaded.fold.applied.0, loaded.published.since(Seq::ZERO)))
}

fn names(files: &MemoryFiles, suffix: &str) -> Vec<String> {
    let mut names = files.list().expect("listed");
    names.retain(|name| name.ends_with(suffix));
    names.sort();
    names
}

#[test]
fn a_key_is_written_once_and_the_newest_are_kept_in_a_bounded_number_of_files() {
    const STEP: u64 = 70_000;
    let files = MemoryFiles::new();
    let snapshots = open(&files);
    let state = taken(1).state.len() as u64;
    for end in (STEP..=20 * STEP).step_by(usize::try_from(STEP).expect("small")) {
        // Some were handed over before, and some are of records that the snapshot does not hold.
        let published = keys(end.saturating_sub(STEP + 9)..=end + 7);
        let bytes = snapshots.write(&taken(end), &published).expect("written");
        assert!(bytes - state < STEP * 24 + 5_000, "{bytes}");
        assert_eq!(snapshots.keys_upto(), Seq(end));
        let most = (PUBLISHED_KEYS_MAX + usize::try_from(STEP).expect("small")) / FILE_KEYS_MAX + 2;
        assert!(names(&files, ".keys").len() <= most, "{:?}", names(&files, ".keys"));
    }
    let newest = 20 * STEP;
    assert_eq!(names(&files, ".snap").len(), KEPT);
    assert!(names(&files, ".keys")[0].as_str() > "00000000000000000060.keys");
    let expected = keys(newest - PUBLISHED_KEYS_MAX as u64 + 1..=newest);
    assert!(loaded(&files).is_some_and(|(seq, published)| seq == newest && published == expected));

    // The older one relies on what the newer does not.
    let oldest = names(&files, ".keys")[0].clone();
    files.remove(&names(&files, ".snap")[1]).expect("removed");
    let expected = keys(newest - STEP - PUBLISHED_KEYS_MAX as u64 + 1..=newest - STEP);
    assert!(loaded(&files).is_some_and(|(seq, published)| seq == newest - STEP && published == expected));
    files.remove(&oldest).expect("removed");
    assert_eq!(loaded(&files), None);
}

#[test]
fn a_snapshot_without_new_keys_relies_on_those_of_the_one_before() {
    let files = MemoryFiles::new();
    let snapshots = open(&files);
    for (seq, published) in [(5, keys([2, 4])), (9, keys([])), (12, keys([7, 15])), (20, keys([15, 19]))] {
        snapshots.write(&taken(seq), &published).expect("written");
    }
    assert_eq!(loaded(&files), Some((20, keys([2, 4, 15, 19]))));
    assert_eq!(names(&files, ".keys"), ["00000000000000000000.keys"]);
}

#[test]
fn who_goes_on_from_the_older_one_writes_over_the_keys_of_the_newer() {
    let files = MemoryFiles::new();
    let snapshots = open(&files);
    for seq in [10, 20, 30] {
        snapshots.write(&taken(seq), &keys(seq - 9..=seq)).expect("written");
    }
    files.open("00000000000000000030.snap").expect("there").write_at(b"!", 20).expect("written");
    let again = open(&files);
    assert_eq!(again.load(&rules()).map(|fold| fold.applied), Some(Seq(20)));
    assert_eq!(again.keys_upto(), Seq(20));
    again.write(&taken(40), &keys((21..=40).step_by(3))).expect("written");
    assert_eq!(names(&files, ".snap"), ["00000000000000000020.snap", "00000000000000000040.snap"]);
    let expected: Vec<PublishedKey> = keys((1..=20).chain((21..=40).step_by(3)));
    assert_eq!(loaded(&files), Some((40, expected)));
}

#[test]
fn keys_of_which_nothing_is_known_are_not_written_into_files_that_are_there() {
    let files = MemoryFiles::new();
    let snapshots = open(&files);
    snapshots.write(&taken(10), &keys(1..=10)).expect("written");
    let again = open(&files);
    assert_eq!(again.keys_upto(), Seq::ZERO, "nothing was loaded");
    again.write(&taken(20), &keys(5..=20)).expect("written");
    assert_eq!(names(&files, ".keys").len(), 2);
    assert_eq!(loaded(&files), Some((20, keys(5..=20))));
    files.remove("00000000000000000020.snap").expect("removed");
    assert_eq!(loaded(&files), Some((10, keys(1..=10))));
}

/// Four snapshots of which one fills a file of keys and begins another; returns how many were written without an error.
fn write_four(snapshots: &Snapshots) -> usize {
    let ends = [100, 4_000, 6_000, 6_100];
    let wrote =
        ends.map(|end| snapshots.write(&taken(end), &keys(snapshots.keys_upto().0 + 1..=end)).is_ok());
    wrote.iter().rposition(|wrote| *wrote).map_or(0, |last| last + 1)
}

#[test]
fn a_cut_or_a_failure_at_any_write_or_sync_leaves_the_newest_that_was_written() {
    let whole = MemoryFiles::new();
    write_four(&open(&whole));
    let all = whole.operations();
    assert!(all.writes > 12 && all.syncs > 12, "{all:?}");
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
            assert!(seq >= [0, 100, 4_000, 6_000, 6_100][least], "{faults:?}: {seq} of {least}");
            let is_whole = found.is_none_or(|(seq, published)| published == keys(1..=seq));
            assert!(is_whole, "{faults:?}: the keys are others");
            // Whatever it left, life goes on from there, and one more snapshot is whole.
            let again = open(&left);
            again.load(&rules());
            again.write(&taken(7_000), &keys(again.keys_upto().0 + 1..=7_000)).expect("written");
            assert!(loaded(&left).is_some_and(|found| found == (7_000, keys(1..=7_000))), "{faults:?}");
            assert!(names(&left, ".snap").len() <= KEPT);
        }
    }
}
