//! Processes: which one has a number now, and when it ends.

use std::{fs, io::Read, os::fd::OwnedFd, time::Duration};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::{io::unix::AsyncFd, time::timeout};

use super::readiness;
use crate::harness::process::{Process, ProcessStat};

/// How often a process is looked at whose end the system does not tell.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Longest `stat` of a process, in bytes: 50 numbers of 64 bits with a name of 64 bytes.
const STAT_BYTES_MAX: usize = 2_048;

/// What the system tells of a process; `None` when there is none, or none that can be seen from
/// here.
pub fn stat(pid: u32) -> Option<ProcessStat> {
    // One read takes all of it; asking for more and more takes six, and a hook may look at a dozen
    // processes.
    let mut text = [0; STAT_BYTES_MAX];
    let count = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut text).ok()?;
    ProcessStat::parse(&String::from_utf8_lossy(text.get(..count)?))
}

/// The process with this number, if it runs.
pub fn running(pid: u32) -> Option<Process> {
    stat(pid).filter(|stat| !stat.has_ended).map(|stat| Process { pid, started: stat.started })
}

/// Waits until the process has ended; `note` learns when the system begins to report that, and when
/// it does so no more.
pub async fn ended(process: Process, note: impl Fn(bool)) {
    let opened = i32::try_from(process.pid).ok().and_then(Pid::from_raw).map(open);
    if let Some(Ok(end)) = opened
        && running(process.pid) == Some(process)
    {
        note(true);
        // An error means that it is not reported; then it is looked at below.
        drop(end.readable().await);
        note(false);
    }
    while running(process.pid) == Some(process) {
        drop(timeout(LOOK_EVERY, std::future::pending::<()>()).await);
    }
}

fn open(pid: Pid) -> std::io::Result<AsyncFd<OwnedFd>> {
    readiness(pidfd_open(pid, PidfdFlags::NONBLOCK)?)
}
