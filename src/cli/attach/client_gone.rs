//! Notices that the client which started this process has gone, however it went.
//!
//! Three signs, as none is always there: the pipe that is written to has no reader any more; a process above this one ended;
//! this process was given another parent. A client starts its monitor through a shell, which outlives it when it is killed, so
//! the processes looked at go up to the first one that is no shell.

use std::{
    fs,
    io::{self, PipeReader},
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, getppid, pidfd_open},
};

use crate::harness::process::{Process, ProcessStat};

/// How often the parent is looked at, where its end cannot be waited for, in seconds.
const LOOK_SECONDS: i64 = 2;
/// Most shells between this process and its client.
const SHELLS_MAX: usize = 4;
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ash", "ksh"];

/// The processes above this one, as they are before there is anything for the client to read: it may be gone soon after.
pub(super) struct Above {
    parent: Option<Pid>,
    processes: Vec<OwnedFd>,
    client: Option<Process>,
}

impl Above {
    /// Those that there are now.
    pub(super) fn now() -> Self {
        let (processes, client) = parents();
        Self { parent: getppid(), processes, client }
    }

    /// The first process above this one that is no shell.
    pub(super) const fn client(&self) -> Option<Process> {
        self.client
    }

    /// Waits until the client has gone, or nobody holds the other end of `done`.
    pub(super) fn wait(&self, done: &PipeReader) -> io::Result<()> {
        let stdout = io::stdout();
        loop {
            let mut signs = vec![
                // Asked for nothing: a pipe without a reader is told all the same.
                PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::empty()),
                PollFd::from_borrowed_fd(done.as_fd(), PollFlags::IN),
            ];
            signs.extend(self.processes.iter().map(|process| PollFd::new(process, PollFlags::IN)));
            match poll(&mut signs, Some(&Timespec { tv_sec: LOOK_SECONDS, tv_nsec: 0 })) {
                Ok(0) | Err(rustix::io::Errno::INTR) if getppid() == self.parent => {}
                Ok(_) | Err(rustix::io::Errno::INTR) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The parent, and those above it as long as they are shells; the first one that is none is the last, and the client.
fn parents() -> (Vec<OwnedFd>, Option<Process>) {
    let mut found = Vec::new();
    let mut next = getppid();
    for _ in 0..=SHELLS_MAX {
        let Some(process) = next.filter(|process| !process.is_init()) else { break };
        found.extend(pidfd_open(process, PidfdFlags::empty()));
        let Some(stat) = stat_of(process) else { break };
        if !SHELLS.contains(&stat.name.as_str()) {
            let pid = u32::try_from(process.as_raw_nonzero().get()).ok();
            return (found, pid.map(|pid| Process { pid, started: stat.started }));
        }
        next = i32::try_from(stat.parent).ok().and_then(Pid::from_raw);
    }
    (found, None)
}

/// What the system tells of a process.
fn stat_of(process: Pid) -> Option<ProcessStat> {
    let text = fs::read(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    ProcessStat::parse(&String::from_utf8_lossy(&text))
}
