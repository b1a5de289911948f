//! `aside down`: asks the daemon of the state folder to stop, and waits until it has.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use super::{CliError, Context};
use crate::daemon::LOCK_FILE;

/// How long stopping may take: twice what the daemon gives itself.
const STOP_SECONDS: i64 = 10;

/// Why a daemon was not stopped.
#[derive(Debug, thiserror::Error)]
pub enum DownError {
    /// The lock of the state folder does not tell who runs.
    #[error("read {}", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its process cannot be asked.
    #[error("ask process {pid} to stop")]
    Signal {
        /// The process.
        pid: i32,
        /// Why.
        source: io::Error,
    },
    /// It does not stop.
    #[error("process {pid} was asked to stop and has not after {STOP_SECONDS} s; its log may tell why")]
    Stays {
        /// The process.
        pid: i32,
    },
}

pub(super) fn run(context: &mut Context<'_>) -> Result<(), CliError> {
    let state = context.paths.as_ref().map_err(|error| CliError::Paths(error.clone()))?.state.clone();
    let text = match stop(&state.join(LOCK_FILE)).map_err(CliError::Down)? {
        Some(pid) => format!("aside has stopped; it was process {pid}\n"),
        None => format!("no daemon runs for {}\n", state.display()),
    };
    context.print(&text)
}

/// Stops the daemon that holds the lock at `path`, and waits for its end; `None` if there is none.
fn stop(path: &Path) -> Result<Option<i32>, DownError> {
    let Some(pid) = holder(path)? else { return Ok(None) };
    let number = pid.as_raw_pid();
    let failed = |error: rustix::io::Errno| DownError::Signal { pid: number, source: error.into() };
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    // The number may have gone to another process between reading and opening; the lock is still held only by a daemon that lives.
    if holder(path)? != Some(pid) {
        return Ok(None);
    }
    pidfd_send_signal(&process, Signal::TERM).map_err(failed)?;
    let limit = Timespec { tv_sec: STOP_SECONDS, tv_nsec: 0 };
    match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).map_err(failed)? {
        0 => Err(DownError::Stays { pid: number }),
        _ => Ok(Some(number)),
    }
}

/// The process that holds the lock; `None` if nobody does.
pub(super) fn holder(path: &Path) -> Result<Option<Pid>, DownError> {
    let failed = |source| DownError::Lock { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(failed(error)),
        Err(std::fs::TryLockError::WouldBlock) => {
            let text = io::read_to_string(file).map_err(failed)?;
            let pid = text.trim().parse().ok().and_then(Pid::from_raw);
            let unknown = || io::Error::new(io::ErrorKind::InvalidData, "it is held, but names no process");
            pid.map(Some).ok_or_else(|| failed(unknown()))
        }
    }
}
