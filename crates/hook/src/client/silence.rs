//! A mark next to the socket of a daemon that does not answer, so that callers do not wait for it
//! again and again.
//!
//! A hook ends after its deadline and the next one knows nothing of it, so the knowledge is a file.
//! After two waits of hooks in vain without an answer in between, or one of a command, callers skip
//! the daemon for [`SKIPPED_FOR`]; then one of them tries again. An answer, or a daemon that has
//! started since, removes the mark. Without a mark this costs one `lstat`.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::fs::{Mode, OFlags, Timespec, Timestamps, futimens, open};

use super::timed::is_timeout;

/// Size of the mark, in bytes, from which the daemon is skipped.
const SKIPPED_FROM: u64 = 2;
/// How long it is skipped: a daemon that runs again is used within this time.
const SKIPPED_FOR: Duration = Duration::from_secs(10);
/// Appended to the socket's name.
const SUFFIX: &str = ".silent";

/// How long a caller waits for the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// As long as a hook may: a single one in vain may be a busy machine.
    Short,
    /// Seconds.
    Long,
}

impl Wait {
    /// What a wait in vain adds to the mark.
    const fn counted(self) -> &'static [u8] {
        match self {
            Self::Short => b".",
            Self::Long => b"..",
        }
    }
}

/// The mark of one socket.
///
/// Shape: a file with a byte for each short wait in vain, and two for a long one; the time of its last change is that of the
/// last one. Errors: none; where the file cannot be written, every caller waits.
#[derive(Debug)]
pub(super) struct Silence {
    path: PathBuf,
    wait: Wait,
    /// Time since the epoch at which this caller looked.
    now: Duration,
    /// Whether the file was there when this caller looked.
    is_marked: bool,
    /// Whether this caller's wait is counted already.
    is_counted: bool,
}

impl Silence {
    /// Looks whether the daemon at `socket` may be asked; `None` if it is to be skipped.
    pub(super) fn look(socket: &Path, wait: Wait) -> Option<Self> {
        Self::look_at(socket, wait, now())
    }

    fn look_at(socket: &Path, wait: Wait, now: Duration) -> Option<Self> {
        let mut path = OsString::from(socket);
        path.push(SUFFIX);
        let mut own = Self { path: path.into(), wait, now, is_marked: false, is_counted: false };
        let Ok(mark) = fs::symlink_metadata(&own.path) else { return Some(own) };
        own.is_marked = true;
        let is_older_than_socket =
            fs::symlink_metadata(socket).is_ok_and(|socket| modified(&mark) < modified(&socket));
        // A clock that was set back leaves a mark of the future, which says nothing.
        let age = now.checked_sub(modified(&mark)).filter(|_| !is_older_than_socket);
        match age {
            None => own.remove(),
            Some(age) if mark.size() >= SKIPPED_FROM => {
                if age < SKIPPED_FOR {
                    return None;
                }
                // Counted before the attempt, so that the others go on skipping meanwhile.
                own.count();
            }
            Some(age) if age >= SKIPPED_FOR => own.remove(),
            Some(_) => {}
        }
        Some(own)
    }

    /// Notes how a request ended: a wait in vain is counted, all else removes the mark.
    pub(super) fn note(&mut self, error: Option<&io::Error>) {
        if error.is_some_and(is_timeout) { self.count() } else { self.remove() }
    }

    fn count(&mut self) {
        if !std::mem::replace(&mut self.is_counted, true) {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let written = open(&self.path, flags, Mode::RUSR | Mode::WUSR).and_then(|file| {
                rustix::io::write(&file, self.wait.counted())?;
                futimens(&file, &at(self.now))
            });
            self.is_marked |= written.is_ok();
        }
    }

    fn remove(&mut self) {
        if std::mem::take(&mut self.is_marked) {
            // Another caller may have removed it.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Time since the epoch of a file's last change.
fn modified(file: &fs::Metadata) -> Duration {
    let seconds = u64::try_from(file.mtime()).unwrap_or_default();
    Duration::new(seconds, u32::try_from(file.mtime_nsec()).unwrap_or_default())
}

/// Both times of a file; one beyond the kernel's range is the epoch.
fn at(since_epoch: Duration) -> Timestamps {
    let time = Timespec::try_from(since_epoch).unwrap_or_default();
    Timestamps { last_access: time, last_modification: time }
}

#[expect(clippy::disallowed_methods, reason = "it is compared with the time of a file")]
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::client::fake::Scratch;

    /// A caller at `now` that waits in vain; returns whether it waited.
    fn waits(socket: &Path, now: Duration) -> bool {
        let Some(mut silence) = Silence::look_at(socket, Wait::Short, now) else { return false };
        silence.note(Some(&io::ErrorKind::TimedOut.into()));
        true
    }

    #[test]
    fn two_waits_are_followed_by_one_each_period() {
        let folder = Scratch::new();
        let socket = folder.path().join("daemon.sock");
        let _listener = UnixListener::bind(&socket).expect("bound");
        let start = now();
        let waited =
            [0, 0, 0, 5, 11, 11, 15].map(|second| waits(&socket, start + Duration::from_secs(second)));
        assert_eq!(waited, [true, true, false, false, true, false, false]);
    }

    #[test]
    fn an_answer_ends_the_silence() {
        let (folder, start) = (Scratch::new(), now());
        let socket = folder.path().join("daemon.sock");
        for error in [None, Some(io::Error::from(io::ErrorKind::ConnectionRefused))] {
            assert!(waits(&socket, start));
            Silence::look_at(&socket, Wait::Short, start)
                .expect("one wait is no silence")
                .note(error.as_ref());
            assert!(waits(&socket, start) && waits(&socket, start), "{error:?}");
            assert!(!waits(&socket, start));
            let later = start + SKIPPED_FOR + Duration::from_secs(1);
            Silence::look_at(&socket, Wait::Short, later).expect("one tries").note(error.as_ref());
            assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0);
        }
    }

    #[test]
    fn a_new_daemon_is_asked_at_once() {
        let (folder, start) = (Scratch::new(), now() - Duration::from_secs(1));
        let socket = folder.path().join("daemon.sock");
        assert!(waits(&socket, start) && waits(&socket, start) && !waits(&socket, start));
        let _listener = UnixListener::bind(&socket).expect("bound");
        assert!(waits(&socket, start));
    }

    #[test]
    fn a_long_wait_suffices() {
        let (folder, start) = (Scratch::new(), now());
        let socket = folder.path().join("daemon.sock");
        let mut command = Silence::look_at(&socket, Wait::Long, start).expect("no mark");
        command.note(Some(&io::ErrorKind::WouldBlock.into()));
        assert!(!waits(&socket, start));
    }

    #[test]
    fn a_mark_of_the_future_counts_as_none() {
        let (folder, start) = (Scratch::new(), now());
        let socket = folder.path().join("daemon.sock");
        assert!(waits(&socket, start) && waits(&socket, start) && !waits(&socket, start));
        assert!(waits(&socket, start - Duration::from_secs(3_600)));
    }
}
