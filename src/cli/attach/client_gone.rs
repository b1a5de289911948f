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

/// How often the parent is looked at, where its end cannot be waited for, in seconds.
const LOOK_SECONDS: i64 = 2;
/// Most shells between this process and its client.
const SHELLS_MAX: usize = 4;
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ash", "ksh"];

/// The processes above this one, as they are before there is anything for the client to read: it may be gone soon after.
pub(super) struct Above {
    parent: Option<Pid>,
    processes: Vec<OwnedFd>,
}

impl Above {
    /// Those that there are now.
    pub(super) fn now() -> Self {
        Self { parent: getppid(), processes: parents() }
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

/// The parent, and those above it as long as they are shells; the first one that is none is the last.
fn parents() -> Vec<OwnedFd> {
    let mut found = Vec::new();
    let mut next = getppid();
    for _ in 0..=SHELLS_MAX {
        let Some(process) = next.filter(|process| !process.is_init()) else { break };
        found.extend(pidfd_open(process, PidfdFlags::empty()));
        match Stat::of(process) {
            Some(stat) if SHELLS.contains(&stat.name.as_str()) => next = stat.parent,
            Some(_) | None => break,
        }
    }
    found
}

/// What the system tells of a process.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    parent: Option<Pid>,
}

impl Stat {
    fn of(process: Pid) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
        Self::parse(&text)
    }

    /// Shape: `PID (NAME) STATE PARENT ..`, where the name may hold anything.
    fn parse(text: &str) -> Option<Self> {
        let (front, back) = text.rsplit_once(") ")?;
        let (_, name) = front.split_once('(')?;
        let parent = back.split(' ').nth(1)?.parse().ok()?;
        Some(Self { name: name.to_owned(), parent: Pid::from_raw(parent) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        for (text, name, parent) in
            [("41 (sh) S 7 41 41 0", "sh", 7), ("41 (a) R (b) x) S 9 1", "a) R (b) x", 9)]
        {
            let expected = Stat { name: name.to_owned(), parent: Pid::from_raw(parent) };
            assert_eq!(Stat::parse(text), Some(expected), "{text}");
        }
        assert_eq!(Stat::parse("41 (sh"), None);
        assert!(Stat::of(rustix::process::getpid()).is_some_and(|stat| stat.parent == getppid()));
    }
}
