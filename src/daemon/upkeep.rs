//! What is done to a state folder apart from serving: looking for damage in its journal, and repairing it.

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
    protocol::record,
};

/// Why a state folder cannot be looked at or repaired.
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
    /// The journal cannot be looked at.
    #[error("look at the journal")]
    Verify(#[from] VerifyError),
    /// The journal cannot be repaired.
    #[error("repair the journal")]
    Repair(#[from] RepairError),
}

/// Reads the whole journal in `state`, also while a daemon writes it; changes nothing.
pub fn verify(state: &Path) -> Result<Verified, UpkeepError> {
    Ok(journal::verify(&files(state)?, RecordKind(record::LOST))?)
}

/// What is wrong with the rules that are kept in `state`, one sentence each; changes nothing.
///
/// Errors: their folder cannot be listed.
pub fn verify_rules(state: &Path) -> Result<Vec<String>, UpkeepError> {
    RulesStore::new(state).verify().map_err(UpkeepError::Rules)
}

/// Writes damaged segments of the journal in `state` anew; changes nothing when `is_rehearsal`.
///
/// Errors: a daemon has the folder, a newer version wrote the journal, or a file operation failed.
pub fn repair(state: &Path, is_rehearsal: bool) -> Result<(Verified, Vec<Repaired>), UpkeepError> {
    let files = files(state)?;
    let _lock = StateLock::take(state)?;
    let mut body = Vec::new();
    record::encode_bare(&mut body);
    let filler = Filler { kind: RecordKind(record::LOST), body: &body };
    Ok(journal::repair(&files, filler, is_rehearsal)?)
}

pub(super) fn files(state: &Path) -> Result<DirFiles, UpkeepError> {
    let folder = state.join("journal");
    // Looking must not make what is not there.
    if !folder.is_dir() {
        return Err(UpkeepError::Missing(state.to_owned()));
    }
    // Every segment is held open while it is read or copied.
    limits::raise_open_files();
    DirFiles::new(&folder).map_err(UpkeepError::Folder)
}
