//! The folder of a client's files.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{
    daemon::regular_file,
    harness::{
        kind::{FILE_BYTES_MAX, Kind, SessionFile},
        process::Process,
    },
};

/// Largest settings file that is read, in bytes.
const SETTINGS_BYTES_MAX: u64 = 1024 * 1024;

/// The folder of a client's files, and the kind of client.
#[derive(Debug, Clone)]
pub(crate) struct ClientFolder {
    pub(crate) kind: &'static Kind,
    pub(crate) path: PathBuf,
}

impl ClientFolder {
    /// Whether the client writes session files, or did so once.
    pub(super) fn has_session_files(&self) -> bool {
        let files = self.kind.session_files();
        files.is_some_and(|files| (files.path)(&self.path, 0).parent().is_some_and(Path::is_dir))
    }
}

/// Reads the session file of the client with this process and the folder `folder`.
pub(crate) fn read_session_file(folder: &ClientFolder, process: Process) -> Option<SessionFile> {
    let files = folder.kind.session_files()?;
    let text = regular_file::read(&(files.path)(&folder.path, process.pid), FILE_BYTES_MAX).ok()?;
    (files.parse)(&text, process)
}

/// Reads the user's settings of a client with hooks; `None` if there are none that the client could
/// read.
pub(crate) fn read_settings(folder: &ClientFolder) -> Option<Value> {
    let path = folder.path.join(folder.kind.hooks()?.installation.settings.user);
    serde_json::from_slice(&regular_file::read(&path, SETTINGS_BYTES_MAX).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::trial;

    #[test]
    fn client_without_files_has_no_state() {
        let folder = tempfile::tempdir().expect("a folder");
        for kind in [&trial::EXTENSION, &trial::PROXY] {
            let folder = ClientFolder { kind, path: folder.path().to_owned() };
            assert!(!folder.has_session_files());
            assert_eq!(read_session_file(&folder, Process { pid: 1, started: 1 }), None);
            assert_eq!(read_settings(&folder), None);
        }
    }
}
