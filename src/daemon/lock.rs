//! One daemon for one state folder.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io,
    io::{Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// The file in the state folder that its daemon holds locked, with the number of its process.
pub const LOCK_FILE: &str = "daemon.lock";

/// The folder in the state folder that is locked too: without it there is no journal, so nobody deletes it to get in.
pub const JOURNAL_FOLDER: &str = "journal";

/// How long a look at whether a daemon runs may have the lock, and how many such times are waited for.
const LOOK: Duration = Duration::from_millis(1);
const LOOKERS_MAX: u32 = 10_000;

/// Holds the state folder until it is dropped, also by a crash.
#[derive(Debug)]
pub(super) struct StateLock {
    _file: File,
    _journal: File,
}

/// Why the state folder cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another daemon has it.
    #[error("the state folder {} is in use by another daemon{}", folder.display(), by(pid))]
    Held {
        /// The folder.
        folder: PathBuf,
        /// The other daemon's process, if it could be read.
        pid: String,
    },
    /// Nothing can be written there.
    #[error("the state folder {} is on a file system that is read-only; mount it for writing, or set ASIDE_STATE", folder.display())]
    ReadOnly {
        /// The folder.
        folder: PathBuf,
    },
    /// The lock file cannot be used.
    #[error("the lock file {} cannot be used", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn by(pid: &str) -> String {
    if pid.is_empty() { String::new() } else { format!(" (process {pid})") }
}

impl StateLock {
    /// Takes `folder` for this process: a file in it, and the folder of its journal, as a file can be deleted by mistake.
    ///
    /// Errors: another daemon has it, or nothing can be made in it.
    pub(super) fn take(folder: &Path) -> Result<Self, LockError> {
        let path = folder.join(LOCK_FILE);
        let io_error = |source: io::Error| {
            if source.kind() == io::ErrorKind::ReadOnlyFilesystem {
                return LockError::ReadOnly { folder: folder.into() };
            }
            LockError::Io { path: path.clone(), source }
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(io_error)?;
        lock(&file, folder, &file)?.map_err(io_error)?;
        if let Err(error) = note_pid(&file) {
            tracing::debug!(%error, "the number of the process is not in the lock file");
        }
        let journal = folder.join(JOURNAL_FOLDER);
        DirBuilder::new().recursive(true).mode(0o700).create(&journal).map_err(io_error)?;
        let journal = File::open(&journal).map_err(io_error)?;
        if let Err(error) = lock(&journal, folder, &file)? {
            // Some network file systems lock no folders; the file is locked.
            tracing::warn!(%error, "the folder of the journal cannot be locked");
        }
        Ok(Self { _file: file, _journal: journal })
    }
}

/// Locks `file`; the process of another daemon that has it is in `pid_file`.
///
/// Shape: a command that looks whether a daemon runs has it for a moment, as a reader; that is waited for.
fn lock(file: &File, folder: &Path, mut pid_file: &File) -> Result<io::Result<()>, LockError> {
    for _ in 0..LOOKERS_MAX {
        match file.try_lock() {
            Ok(()) => return Ok(Ok(())),
            Err(TryLockError::WouldBlock) if has_lookers_only(file) => thread::park_timeout(LOOK),
            Err(TryLockError::WouldBlock) => break,
            Err(TryLockError::Error(source)) => return Ok(Err(source)),
        }
    }
    let mut pid = String::new();
    // The number is a courtesy; without it the message still stands.
    pid_file.read_to_string(&mut pid).ok();
    Err(LockError::Held { folder: folder.into(), pid: pid.trim().into() })
}

/// Whether nobody has `file` but readers.
fn has_lookers_only(file: &File) -> bool {
    // An error means that it is not known, as good as that a daemon has it.
    file.try_lock_shared().and_then(|()| file.unlock().map_err(TryLockError::Error)).is_ok()
}

/// Writes the number of this process, which is a courtesy: a full disk must not stop a start here.
fn note_pid(mut file: &File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_its_lock_file_the_folder_is_still_held() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let held = StateLock::take(folder.path()).expect("the first one gets it");
        std::fs::remove_file(folder.path().join(LOCK_FILE)).expect("there");
        let error = StateLock::take(folder.path()).expect_err("the second one does not");
        assert!(matches!(error, LockError::Held { .. }), "{error}");
        drop(held);
        StateLock::take(folder.path()).expect("it is free again");
    }

    #[test]
    fn who_only_looks_whether_a_daemon_runs_keeps_none_from_starting() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let looker = File::create(folder.path().join(LOCK_FILE)).expect("made");
        looker.lock_shared().expect("nobody has it");
        let looking = thread::spawn(move || {
            thread::park_timeout(10 * LOOK);
            drop(looker);
        });
        let held = StateLock::take(folder.path()).expect("it waits for the look");
        looking.join().expect("it ends");
        let other = File::open(folder.path().join(LOCK_FILE)).expect("there");
        assert!(!has_lookers_only(&other), "{held:?}");
    }

    #[test]
    fn a_second_daemon_is_refused_and_told_who_has_the_folder() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let held = StateLock::take(folder.path()).expect("the first one gets it");
        let error = StateLock::take(folder.path()).expect_err("the second one does not");
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        drop(held);
        StateLock::take(folder.path()).expect("it is free again");
    }
}
