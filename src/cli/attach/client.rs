//! The client that started this process: its kind, its folder, the contents of its session file, and
//! when it has ended.
//!
//! There are three signs of its end, none of which is always present: the output pipe has no reader; an
//! ancestor process ended; this process got another parent. A client starts its follower through a
//! shell, which outlives a killed client, so ancestors are watched up to the first one that is not
//! a shell.

use std::{
    env,
    io::{self, PipeReader},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use hook::{client::percent_encode, harness::header};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, getppid, pidfd_open},
};

use crate::{
    capability::source::process::stat,
    cli::client_program,
    daemon::regular_file,
    harness::{
        kind::Kind,
        kind::{FILE_BYTES_MAX, SessionFile},
        process::Process,
    },
};

/// Poll interval of the parent where its end cannot be awaited, in seconds.
const LOOK_SECONDS: i64 = 2;
/// Most shells between this process and its client.
const SHELLS_MAX: usize = 4;
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ash", "ksh"];

/// The ancestors, read before any output: the client may end soon after.
pub(super) struct Above {
    parent: Option<Pid>,
    processes: Vec<OwnedFd>,
    client: Option<Process>,
}

impl Above {
    /// Reads the current ancestors.
    pub(super) fn now() -> Self {
        let (processes, client) = parents();
        Self { parent: getppid(), processes, client }
    }

    /// The nearest ancestor that is not a shell.
    pub(super) const fn client(&self) -> Option<Process> {
        self.client
    }

    /// Waits until the client has ended, or the other end of `done` is closed.
    pub(super) fn wait(&self, done: &PipeReader) -> io::Result<()> {
        let stdout = io::stdout();
        loop {
            let mut signs = vec![
                // No events are requested: a pipe without a reader is reported anyway.
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

/// The parent and further ancestors while they are shells; the last one is the first that is not,
/// the client.
fn parents() -> (Vec<OwnedFd>, Option<Process>) {
    let mut found = Vec::new();
    let mut next = getppid();
    for _ in 0..=SHELLS_MAX {
        let Some(process) = next.filter(|process| !process.is_init()) else { break };
        found.extend(pidfd_open(process, PidfdFlags::empty()));
        let Ok(pid) = u32::try_from(process.as_raw_nonzero().get()) else { break };
        let Some(stat) = stat(pid) else { break };
        if !SHELLS.contains(&stat.name.as_str()) {
            return (found, Some(Process { pid, started: stat.started }));
        }
        next = i32::try_from(stat.parent).ok().and_then(Pid::from_raw);
    }
    (found, None)
}

/// A running client.
pub(super) struct StartedBy {
    kind: &'static Kind,
    process: Process,
    /// The folder of its files.
    folder: Option<PathBuf>,
}

impl StartedBy {
    /// The client of this kind with this process.
    pub(super) fn find(kind: &'static Kind, process: Option<Process>) -> Option<Self> {
        process.map(|process| Self { kind, process, folder: kind.client().and_then(client_program::folder) })
    }

    /// The client's current session file: its session may differ from the one in which it started
    /// this process.
    pub(super) fn session_file(&self) -> Option<SessionFile> {
        let files = self.kind.session_files()?;
        let path = (files.path)(self.folder.as_deref()?, self.process.pid);
        (files.parse)(&regular_file::read(&path, FILE_BYTES_MAX).ok()?, self.process)
    }

    /// The client's facts for the daemon, as further query parameters.
    pub(super) fn facts(&self, file: Option<&SessionFile>) -> String {
        let mut facts = format!("&harness={}&pid={}", self.kind.caps.name, self.process.pid);
        let project = self.kind.forwarded_as(header::PROJECT).and_then(|name| env::var(name).ok());
        let project = project.filter(|project| project.starts_with('/'));
        let current = || env::current_dir().ok().and_then(|folder| folder.to_str().map(str::to_owned));
        let works_in = project.or_else(|| file.and_then(|file| file.cwd.clone())).or_else(current);
        let folder = self.folder.as_deref().and_then(Path::to_str).map(str::to_owned);
        for (name, value) in [("workspace", works_in), ("client_folder", folder)] {
            if let Some(value) = value {
                facts.push_str(&format!("&{name}={}", percent_encode(&value)));
            }
        }
        facts
    }
}
