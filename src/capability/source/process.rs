//! Processes: identifies one by its number, and waits for its end.

use std::{fs, io::Read, os::fd::OwnedFd, time::Duration};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;

use super::{pause, readiness};
use crate::harness::process::{Process, ProcessStat};

/// The poll interval of a process whose end the system does not report.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Longest `stat` of a process, in bytes: 50 numbers of 64 bits and a name of 64 bytes.
const STAT_BYTES_MAX: usize = 2_048;

/// Most bytes of an environment that are read.
const ENVIRON_BYTES_MAX: u64 = 256 * 1024;

/// Reads the `stat` of a process; `None` if it does not exist or is not visible from here.
pub fn stat(pid: u32) -> Option<ProcessStat> {
    // One read is enough. Reading until the end takes six, and a hook may check a dozen processes.
    let mut text = [0; STAT_BYTES_MAX];
    let count = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut text).ok()?;
    ProcessStat::parse(&String::from_utf8_lossy(text.get(..count)?))
}

/// The environment with which a process was started.
#[derive(Debug, Default)]
pub struct Environment(Vec<u8>);

impl Environment {
    /// Reads that of a process, at most `ENVIRON_BYTES_MAX`; empty if it cannot be read.
    pub fn read(pid: u32) -> Self {
        let mut bytes = Vec::new();
        let file = fs::File::open(format!("/proc/{pid}/environ"));
        let read = file.and_then(|file| file.take(ENVIRON_BYTES_MAX).read_to_end(&mut bytes));
        Self(if read.is_ok() { bytes } else { Vec::new() })
    }

    /// The value of a variable; `None` if it is not set or is no text.
    pub fn get(&self, name: &str) -> Option<&str> {
        let entries = self.0.split(|byte| *byte == 0).filter_map(|entry| std::str::from_utf8(entry).ok());
        let mut variables = entries.filter_map(|entry| entry.split_once('='));
        variables.find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

/// The running process with this number, if there is one.
pub fn running(pid: u32) -> Option<Process> {
    stat(pid).filter(|stat| !stat.has_ended).map(|stat| Process { pid, started: stat.started })
}

/// Waits until the process has ended. Calls `note` with `true` when the system begins to report the
/// end, and with `false` when it stops.
pub async fn ended(process: Process, note: impl Fn(bool)) {
    let opened = i32::try_from(process.pid).ok().and_then(Pid::from_raw).map(open);
    if let Some(Ok(end)) = opened
        && running(process.pid) == Some(process)
    {
        note(true);
        // An error means that the end is not reported; then the loop below polls.
        drop(end.readable().await);
        note(false);
    }
    while running(process.pid) == Some(process) {
        pause(LOOK_EVERY).await;
    }
}

fn open(pid: Pid) -> std::io::Result<AsyncFd<OwnedFd>> {
    readiness(pidfd_open(pid, PidfdFlags::NONBLOCK)?)
}
