//! The client that started this process: its kind, its folder, and the contents of its session
//! file.

use std::{
    env,
    path::{Path, PathBuf},
};

use hook::{client::percent_encode, harness::header};

use crate::{
    cli::client_program,
    daemon::regular_file,
    harness::{
        kind::{FILE_BYTES_MAX, Kind, SessionFile},
        process::Process,
    },
};

/// A running client.
pub(super) struct StartedBy {
    kind: &'static Kind,
    process: Process,
    /// The folder of its files.
    folder: Option<PathBuf>,
}

impl StartedBy {
    /// The client of this kind with this process.
    pub(super) fn find(kind: &'static Kind, process: Option<Process>) -> Option<Self> {
        process.map(|process| Self { kind, process, folder: client_program::folder(kind) })
    }

    /// The client's current session file: its session may differ from the one in which it started
    /// this process.
    pub(super) fn session_file(&self) -> Option<SessionFile> {
        let files = self.kind.files.sessions.as_ref()?;
        let path = (files.path)(self.folder.as_deref()?, self.process.pid);
        (files.parse)(&regular_file::read(&path, FILE_BYTES_MAX).ok()?, self.process)
    }

    /// The client's facts for the daemon, as further query parameters.
    pub(super) fn facts(&self, file: Option<&SessionFile>) -> String {
        let mut facts = format!("&harness={}&pid={}", self.kind.caps.name, self.process.pid);
        let project = self.kind.variables.forwarded_as(header::PROJECT).and_then(|name| env::var(name).ok());
        let project = project.filter(|project| project.starts_with('/'));
        let current = || env::current_dir().ok().and_then(|folder| folder.to_str().map(str::to_owned));
        let works_in = project.or_else(|| file.and_then(|file| file.cwd.clone())).or_else(current);
        let folder = self.folder.as_deref().and_then(Path::to_str).map(str::to_owned);
        for (name, value) in [("workspace", works_in), ("client_folder", folder)] {
            if let Some(value) = value {
                facts.push_str(&format!("&{name}={}", percent_encode(&value)));
            }
        }
        facts
    }
}
