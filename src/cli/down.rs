//! `aside down`: stops the daemon of the state folder, and waits for its end.

use std::{fs::File, io, path::Path};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use super::{
    CliError, Context,
    error::{DownError, STOP_SECONDS},
    running::running,
};
use crate::daemon::{JOURNAL_FOLDER, LOCK_FILE};

pub(super) fn run(context: &mut Context<'_>) -> Result<(), CliError> {
    let state = context.state()?;
    let lock = state.join(LOCK_FILE);
    let stopped = match stop(|| holder(&lock)).map_err(CliError::Down)? {
        None => stop_without_lock_file(&state, context).map_err(CliError::Down)?,
        stopped => stopped,
    };
    let text = match stopped {
        Some(pid) => format!("aside has stopped; it was process {pid}\n"),
        None => format!("no daemon runs for {}\n", state.display()),
    };
    context.print(&text)
}

/// Stops the daemon if its lock file was deleted: the journal's folder is locked too, and the
/// daemon reports its process.
fn stop_without_lock_file(state: &Path, context: &Context<'_>) -> Result<Option<i32>, DownError> {
    let journal = state.join(JOURNAL_FOLDER);
    if !is_locked(&journal)? {
        return Ok(None);
    }
    let pid = running(&context.client).and_then(|daemon| Pid::from_raw(i32::try_from(daemon.pid).ok()?));
    let pid = pid.ok_or_else(|| DownError::Unknown { state: state.to_owned() })?;
    stop(|| Ok(is_locked(&journal)?.then_some(pid)))
}

/// Stops the daemon identified by `holder`, and waits for its end; `None` if there is none.
fn stop(holder: impl Fn() -> Result<Option<Pid>, DownError>) -> Result<Option<i32>, DownError> {
    let Some(pid) = holder()? else { return Ok(None) };
    let number = pid.as_raw_pid();
    let failed = |error: rustix::io::Errno| DownError::Signal { pid: number, source: error.into() };
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    // The process id may have been reused between reading and opening; the lock is still held only
    // by a living daemon.
    if holder()? != Some(pid) {
        return Ok(None);
    }
    pidfd_send_signal(&process, Signal::TERM).map_err(failed)?;
    let limit = Timespec { tv_sec: STOP_SECONDS, tv_nsec: 0 };
    match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).map_err(failed)? {
        0 => Err(DownError::Stays { pid: number }),
        _ => Ok(Some(number)),
    }
}

/// The process that holds the lock, if any.
fn holder(path: &Path) -> Result<Option<Pid>, DownError> {
    let failed = |source| DownError::Lock { path: path.to_owned(), source };
    let Some(file) = locked(path)? else { return Ok(None) };
    let text = io::read_to_string(file).map_err(failed)?;
    let pid = text.split_whitespace().next().and_then(|word| word.parse().ok()).and_then(Pid::from_raw);
    let unknown = || io::Error::new(io::ErrorKind::InvalidData, "it is locked, but names no process");
    pid.map(Some).ok_or_else(|| failed(unknown()))
}

/// Whether the lock is held.
pub(super) fn is_locked(path: &Path) -> Result<bool, DownError> {
    locked(path).map(|file| file.is_some())
}

/// The file or folder at `path`, if it is locked.
fn locked(path: &Path) -> Result<Option<File>, DownError> {
    let failed = |source| DownError::Lock { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(failed(error)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(Some(file)),
    }
}
