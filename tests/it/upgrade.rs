//! A state folder that an earlier program left is gone on from.
//!
//! `tests/fixtures/state-1.tar.zst` was made by `scripts/fixture-state` with the program of commit b332fef, whose snapshots have form 3:
//! a month old, the first segment deleted by age, killed while a batch was open. `answer.json` in it is what the session `leased` was
//! answered last.

use std::{fs, path::Path, sync::Arc};

use aside::{
    daemon::{fold::Fold, rules::RulesStore, snapshots::Snapshots},
    event::{Seq, SessionId},
    journal::files::DirFiles,
};
use tempfile::TempDir;

/// The newest snapshot in the folder.
const SNAPSHOT: Seq = Seq(2_805);

/// A copy of the folder.
fn state() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = fs::File::open("tests/fixtures/state-1.tar.zst").expect("it is checked in");
    let archive = zstd::Decoder::new(archive).expect("zstd");
    tar::Archive::new(archive).unpack(folder.path()).expect("unpacked");
    folder
}

fn snapshot(state: &Path) -> Fold {
    let files = DirFiles::new(&state.join("snapshots")).expect("a folder");
    let snapshots = Snapshots::open(Arc::new(files)).expect("listed");
    snapshots.load(&RulesStore::new(state)).expect("one is gone on from")
}

#[test]
fn a_snapshot_of_the_form_before_is_gone_on_from() {
    let state = state();
    let fold = snapshot(state.path());
    assert_eq!(fold.applied, SNAPSHOT);
    let session = |id: &str| fold.engine.session(&SessionId::new(id)).expect("it is open").injector;
    assert_eq!((session("leased").pending().0, session("leased").unconfirmed()), (0, 1));
    assert_eq!((session("waiting").pending().0, session("waiting").unconfirmed()), (3, 0));
    assert_eq!(fold.engine.unclaimed_len(), 1);
    let (at, _) = fold.engine.poll_timeout().expect("a batch is open");
    assert!(at.since(fold.applied_at).as_secs() <= 10, "{at}");
    let tally = fold.engine.tally();
    assert_eq!((tally.unmatched, tally.created, tally.injected), (2_793, 5, 1));
    // In the present form it is the same.
    let again = Fold::from_state(fold.rules.clone(), &fold.to_state().expect("written")).expect("read");
    assert!(again.to_state() == fold.to_state());
}
