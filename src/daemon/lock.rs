//! One daemon per state folder.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    io::{Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use journal::unreleased_segment;

/// The file in the state folder that its daemon keeps locked. Its first word is the id of the process.
pub const LOCK_FILE: &str = "daemon.lock";

/// The folder in the state folder that is locked too. It contains the journal, so nobody deletes it
/// to bypass the lock.
pub const JOURNAL_FOLDER: &str = "journal";
/// The subfolder in which a backup is unpacked and checked.
pub(super) const RESTORING_FOLDER: &str = "restoring";

/// The second word of the lock file while a child of a start replays the journal.
const REPLAYS: &str = "replays";
/// Longest time that a check for a running daemon holds the lock, and how many such times to wait.
const CHECK: Duration = Duration::from_millis(1);
const CHECKS_MAX: u32 = 10_000;

/// Locks the state folder until it is dropped; a crash releases it too.
#[derive(Debug)]
pub(super) struct StateLock {
    _file: File,
    _journal: File,
}

/// The state folder is of a build before the first release, whose formats no program reads.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} was written by an unreleased build of aside, whose formats are not read; move the state folder {} away, and \
     the next start makes a new one", path.display(), folder.display()
)]
pub struct UnreleasedError {
    /// The oldest segment of its journal.
    pub path: PathBuf,
    /// The state folder.
    pub folder: PathBuf,
}

/// Why the state folder cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// An unreleased build wrote it.
    #[error(transparent)]
    Unreleased(#[from] UnreleasedError),
    /// Another daemon has it.
    #[error("the state folder {} is in use by another daemon{}", folder.display(), shown_holder(pid))]
    Held {
        /// The folder.
        folder: PathBuf,
        /// The other daemon's process, if it could be read.
        pid: String,
    },
    /// The file system is read-only.
    #[error("the state folder {} is on a file system that is read-only; mount it for writing, or set ASIDE_STATE", folder.display())]
    ReadOnly {
        /// The folder.
        folder: PathBuf,
    },
    /// The lock file or the journal's folder cannot be used.
    #[error("{} cannot be used", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

fn shown_holder(pid: &str) -> String {
    if pid.is_empty() { String::new() } else { format!(" (process {pid})") }
}

impl StateLock {
    /// Locks `folder` for this process: a file in it, and its journal folder, because the file
    /// might be deleted by mistake.
    ///
    /// Errors: another daemon has the lock, an unreleased build wrote the folder, or nothing can be
    /// created in it.
    pub(super) fn take(folder: &Path) -> Result<Self, LockError> {
        Self::take_as(folder, "")
    }

    /// The same for a child of a start. It ends with the start, but only after it, so the next one
    /// waits for it.
    pub(super) fn take_to_replay(folder: &Path) -> Result<Self, LockError> {
        Self::take_as(folder, REPLAYS)
    }

    fn take_as(folder: &Path, purpose: &str) -> Result<Self, LockError> {
        refuse_unreleased(folder)?;
        let path = folder.join(LOCK_FILE);
        let journal_path = folder.join(JOURNAL_FOLDER);
        let io_error = |path: &Path, source: io::Error| {
            if source.kind() == io::ErrorKind::ReadOnlyFilesystem {
                return LockError::ReadOnly { folder: folder.into() };
            }
            LockError::Io { path: path.to_owned(), source }
        };
        let of_file = |source| io_error(&path, source);
        let of_journal = |source| io_error(&journal_path, source);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(of_file)?;
        lock(&file, folder, &file)?.map_err(of_file)?;
        DirBuilder::new().recursive(true).mode(0o700).create(&journal_path).map_err(of_journal)?;
        let journal = File::open(&journal_path).map_err(of_journal)?;
        if let Err(error) = lock(&journal, folder, &file)? {
            // Some network file systems cannot lock folders. The file is locked.
            tracing::warn!(%error, "the folder of the journal cannot be locked");
        }
        if let Err(error) = note_pid(&file, purpose) {
            tracing::debug!(%error, "the number of the process is not in the lock file");
        }
        Ok(Self { _file: file, _journal: journal })
    }
}

/// Locks `file`; `pid_file` has the process id of a daemon that holds it.
///
/// Shape: waits while a command that checks for a running daemon holds it as a reader, or a child of
/// a start holds it to replay.
fn lock(file: &File, folder: &Path, pid_file: &File) -> Result<io::Result<()>, LockError> {
    let is_short = || has_readers_only(file) || holder(pid_file).1 == REPLAYS;
    for _ in 0..CHECKS_MAX {
        match file.try_lock() {
            Ok(()) => return Ok(Ok(())),
            Err(TryLockError::WouldBlock) if is_short() => thread::park_timeout(CHECK),
            Err(TryLockError::WouldBlock) => break,
            Err(TryLockError::Error(source)) => return Ok(Err(source)),
        }
    }
    Err(LockError::Held { folder: folder.into(), pid: holder(pid_file).0 })
}

/// The process that locked the file last, and for what; empty if unknown.
fn holder(mut file: &File) -> (String, String) {
    let mut text = String::new();
    // The message needs no id.
    file.rewind().and_then(|()| file.read_to_string(&mut text)).ok();
    let mut words = text.split_whitespace().map(str::to_owned);
    (words.next().unwrap_or_default(), words.next().unwrap_or_default())
}

/// Whether only readers hold `file`.
fn has_readers_only(file: &File) -> bool {
    // An error means unknown, which counts as held by a daemon.
    file.try_lock_shared().and_then(|()| file.unlock().map_err(TryLockError::Error)).is_ok()
}

/// Writes this process id. It is optional, so a full disk does not fail the start.
fn note_pid(mut file: &File, purpose: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", format!("{} {purpose}", std::process::id()).trim_end())
}

/// Refuses the state folder of a build before the first release; changes nothing.
///
/// Errors: its oldest segment is of such a build. A segment that cannot be read is left to others.
pub fn refuse_unreleased(folder: &Path) -> Result<(), UnreleasedError> {
    if let Some(path) = unreleased_segment(&folder.join(JOURNAL_FOLDER)) {
        return Err(UnreleasedError { path, folder: folder.to_owned() });
    }
    Ok(())
}

/// Whether a restore into the state folder `folder` was killed before it had a journal.
pub(super) fn is_restore_interrupted(folder: &Path) -> bool {
    let is_empty = |path: &Path| fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none());
    folder.join(RESTORING_FOLDER).is_dir() && is_empty(&folder.join(JOURNAL_FOLDER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_stays_locked_without_its_lock_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let held = StateLock::take(folder.path()).expect("the first one gets it");
        std::fs::remove_file(folder.path().join(LOCK_FILE)).expect("there");
        let error = StateLock::take(folder.path()).expect_err("the second one does not");
        assert!(matches!(error, LockError::Held { .. }), "{error}");
        drop(held);
        StateLock::take(folder.path()).expect("it is free again");
    }

    #[test]
    fn daemon_check_does_not_prevent_a_start() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let reader = File::create(folder.path().join(LOCK_FILE)).expect("made");
        reader.lock_shared().expect("nobody has it");
        let checking = thread::spawn(move || {
            thread::park_timeout(10 * CHECK);
            drop(reader);
        });
        let held = StateLock::take(folder.path()).expect("it waits for the check");
        checking.join().expect("it ends");
        let other = File::open(folder.path().join(LOCK_FILE)).expect("there");
        assert!(!has_readers_only(&other), "{held:?}");
    }

    #[test]
    fn start_waits_for_child_of_a_killed_one() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let child = StateLock::take_to_replay(folder.path()).expect("it is free");
        let ends = thread::spawn(move || {
            thread::park_timeout(10 * CHECK);
            drop(child);
        });
        let held = StateLock::take(folder.path()).expect("it waits for the child");
        ends.join().expect("it ends");
        let error = StateLock::take(folder.path()).expect_err("a daemon has it");
        assert!(error.to_string().contains(&format!("(process {})", std::process::id())), "{error}");
        drop(held);
    }

    #[test]
    fn second_daemon_is_refused_with_the_holders_pid() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let held = StateLock::take(folder.path()).expect("the first one gets it");
        let error = StateLock::take(folder.path()).expect_err("the second one does not");
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        drop(held);
        StateLock::take(folder.path()).expect("it is free again");
    }
}
