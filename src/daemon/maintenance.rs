//! Offline maintenance of a state folder: verifying and repairing its journal.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use super::lock::{UnreleasedError, refuse_unreleased};
use super::{
    limits,
    lock::{JOURNAL_FOLDER, LockError, StateLock, is_restore_interrupted},
    rules::RulesStore,
    skipped::skip_of,
    snapshots::{FOLDER as SNAPSHOTS, Snapshots},
};
use engine::{
    event::Seq,
    records::{self, Skip, SkipDecision},
    sorted::SortedSet,
};
use journal::{
    self, Record, RepairError, RepairMode, Repaired, Tombstone, Verified, VerifyError, files::DirFiles,
    record::RecordKind,
};

/// Why a state folder cannot be verified or repaired.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    /// There is no journal.
    #[error("find a journal in {}", .0.display())]
    Missing(PathBuf),
    /// A restore was interrupted.
    #[error("use {}: a restore into it did not finish; restore again", .0.display())]
    Unrestored(PathBuf),
    /// An unreleased build wrote it.
    #[error("use the state folder")]
    Unreleased(#[from] UnreleasedError),
    /// The folder of the journal cannot be used.
    #[error("open the journal's folder")]
    Folder(#[source] io::Error),
    /// The folder of the snapshots cannot be used.
    #[error("list the snapshots")]
    Snapshots(#[source] io::Error),
    /// The folder of the rules cannot be used.
    #[error("list the stored rules")]
    Rules(#[source] io::Error),
    /// A daemon has the folder.
    #[error("lock the state folder; stop the daemon first")]
    Lock(#[from] LockError),
    /// The journal cannot be read.
    #[error("read the journal")]
    Verify(#[from] VerifyError),
    /// The journal cannot be repaired.
    #[error("repair the journal")]
    Repair(#[from] RepairError),
}

/// Reads the whole journal in `state`, which a daemon may be writing; changes nothing.
///
/// Shape: what was found, and the valid records that starts leave out.
pub fn verify(state: &Path) -> Result<(Verified, SortedSet<Seq>), MaintenanceError> {
    let mut skipped = SortedSet::new();
    let mut read = |record: &Record<'_>| {
        let Some(Skip { record, decision, .. }) = skip_of(*record) else { return };
        match decision {
            SkipDecision::Skipped => skipped.insert(record),
            SkipDecision::TakenBack => skipped.remove(&record),
        };
    };
    let files = files(state)?;
    let verified = journal::verify_reading(&files, RecordKind(records::LOST), known(state)?, &mut read)?;
    Ok((verified, skipped))
}

/// The problems of the rules stored in `state`, one sentence each; changes nothing.
///
/// Errors: their folder cannot be listed.
pub fn verify_rules(state: &Path) -> Result<Vec<String>, MaintenanceError> {
    RulesStore::new(state).verify().map_err(MaintenanceError::Rules)
}

/// Rewrites damaged segments of the journal in `state`; changes nothing in a dry run.
///
/// Errors: a daemon has the folder, a newer version wrote the journal, or a file operation failed.
pub fn repair(state: &Path, mode: RepairMode) -> Result<(Verified, Vec<Repaired>), MaintenanceError> {
    let files = files(state)?;
    let _lock = StateLock::take(state)?;
    let mut body = Vec::new();
    records::encode_bare(&mut body);
    let tombstone = Tombstone { kind: RecordKind(records::LOST), body: &body };
    Ok(journal::repair(&files, tombstone, known(state)?, mode)?)
}

/// The last record of the newest snapshot, which was durable when the snapshot was written.
fn known(state: &Path) -> Result<Seq, MaintenanceError> {
    let folder = state.join(SNAPSHOTS);
    if !folder.is_dir() {
        return Ok(Seq::ZERO);
    }
    let files = DirFiles::new(&folder).and_then(|files| Snapshots::open(Arc::new(files)));
    Ok(files.map_err(MaintenanceError::Snapshots)?.newest())
}

pub(super) fn files(state: &Path) -> Result<DirFiles, MaintenanceError> {
    DirFiles::new(&folder(state)?).map_err(MaintenanceError::Folder)
}

/// The files of the journal in `state`, for reading only.
pub(super) fn files_for_reading(state: &Path) -> Result<DirFiles, MaintenanceError> {
    DirFiles::for_reading(&folder(state)?).map_err(MaintenanceError::Folder)
}

/// The folder of the journal in `state`, which can be used.
fn folder(state: &Path) -> Result<PathBuf, MaintenanceError> {
    if is_restore_interrupted(state) {
        return Err(MaintenanceError::Unrestored(state.to_owned()));
    }
    refuse_unreleased(state)?;
    let folder = state.join(JOURNAL_FOLDER);
    // A check must not create the folder.
    if !folder.is_dir() {
        return Err(MaintenanceError::Missing(state.to_owned()));
    }
    // Every segment is held open while it is read or copied.
    limits::raise_open_files();
    Ok(folder)
}
