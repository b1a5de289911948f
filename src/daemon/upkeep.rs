//! Offline maintenance of a state folder: verifying and repairing its journal.

use std::{io, path::Path};

use super::{
    limits,
    lock::{LockError, StateLock},
    rules::RulesStore,
};
use crate::{
    journal::{
        self, Filler, RepairError, Repaired, Verified, VerifyError, files::DirFiles, record::RecordKind,
    },
    records,
};

/// Why a state folder cannot be verified or repaired.
#[derive(Debug, thiserror::Error)]
pub enum UpkeepError {
    /// There is no journal.
    #[error("find a journal in {}", .0.display())]
    Missing(std::path::PathBuf),
    /// The folder of the journal cannot be used.
    #[error("open the journal's folder")]
    Folder(#[source] io::Error),
    /// The folder of the rules cannot be used.
    #[error("list the rules that are kept")]
    Rules(#[source] io::Error),
    /// A daemon has the folder.
    #[error("take the state folder; stop the daemon before")]
    Lock(#[from] LockError),
    /// The journal cannot be read.
    #[error("look at the journal")]
    Verify(#[from] VerifyError),
    /// The journal cannot be repaired.
    #[error("repair the journal")]
    Repair(#[from] RepairError),
}

/// Reads the whole journal in `state`, which a daemon may be writing; changes nothing.
pub fn verify(state: &Path) -> Result<Verified, UpkeepError> {
    Ok(journal::verify(&files(state)?, RecordKind(records::LOST))?)
}

/// The problems of the rules stored in `state`, one sentence each; changes nothing.
///
/// Errors: their folder cannot be listed.
pub fn verify_rules(state: &Path) -> Result<Vec<String>, UpkeepError> {
    RulesStore::new(state).verify().map_err(UpkeepError::Rules)
}

/// Rewrites damaged segments of the journal in `state`; changes nothing when `is_rehearsal`.
///
/// Errors: a daemon has the folder, a newer version wrote the journal, or a file operation failed.
pub fn repair(state: &Path, is_rehearsal: bool) -> Result<(Verified, Vec<Repaired>), UpkeepError> {
    let files = files(state)?;
    let _lock = StateLock::take(state)?;
    let mut body = Vec::new();
    records::encode_bare(&mut body);
    let filler = Filler { kind: RecordKind(records::LOST), body: &body };
    Ok(journal::repair(&files, filler, is_rehearsal)?)
}

pub(super) fn files(state: &Path) -> Result<DirFiles, UpkeepError> {
    let folder = state.join("journal");
    // A check must not create the folder.
    if !folder.is_dir() {
        return Err(UpkeepError::Missing(state.to_owned()));
    }
    // Every segment is held open while it is read or copied.
    limits::raise_open_files();
    DirFiles::new(&folder).map_err(UpkeepError::Folder)
}
