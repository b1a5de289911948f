//! One daemon for one state folder.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
};

/// The file in the state folder that its daemon holds locked, with the number of its process.
pub const LOCK_FILE: &str = "daemon.lock";

/// Holds the state folder until it is dropped, also by a crash.
#[derive(Debug)]
pub(super) struct StateLock {
    _file: File,
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
    /// Takes `folder` for this process.
    ///
    /// Errors: another daemon has it, or the file `daemon.lock` in it cannot be made.
    pub(super) fn take(folder: &Path) -> Result<Self, LockError> {
        let path = folder.join(LOCK_FILE);
        let io_error = |source| LockError::Io { path: path.clone(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io_error)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // The number is a courtesy; without it the message still stands.
                file.read_to_string(&mut pid).ok();
                return Err(LockError::Held { folder: folder.into(), pid: pid.trim().into() });
            }
            Err(TryLockError::Error(source)) => return Err(io_error(source)),
        }
        file.set_len(0).map_err(io_error)?;
        file.rewind().map_err(io_error)?;
        writeln!(file, "{}", std::process::id()).map_err(io_error)?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
