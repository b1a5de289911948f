//! `aside attach`: wakes a session by printing one sentence about what is pending.
//!
//! A client runs this once per process and makes an event of each line, with which an idle session
//! begins a turn. It follows the queue as the session's follower, and continues with the next session
//! when the client does. The daemon decides when it prints. A line claims no notification: the hooks
//! of the new turn deliver them. It reports errors on stderr, because every line of stdout is an
//! event, and waits for an absent daemon.
//!
//! It ends only after its client: when its output pipe has no reader, or an ancestor process has
//! ended. A client also makes an event of its follower's end and starts a turn for it, so an idle
//! follower stays.

use std::{
    env,
    io::{self, PipeReader, Write},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use engine::exchange::LINE_BEGIN;
use hook::{
    client::{Client, percent_encode},
    harness::header,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, getppid, pidfd_open},
};
use serde::de::DeserializeOwned;

use super::{CliError, context::with_query, harness::harness, terminal::one_line};
use crate::{
    api::wire::views::{PendingView, WakeView},
    capability::source::process::stat,
    cli::harness,
    daemon::regular_file,
    harness::{
        kind::{FILE_BYTES_MAX, Kind, SessionFile},
        process::Process,
    },
};

/// Shortest and longest pause before a reconnect to the daemon.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The harness
    #[arg(value_parser = harness(|kind| kind.word))]
    harness: &'static Kind,
    /// The session [default: that of the client that starts this, from its variable]
    session: Option<String>,
}

pub(super) fn run(args: &Args, client: &Client) -> Result<(), CliError> {
    let above = Above::now();
    // An explicit session is used wherever the client runs.
    let started_by =
        if args.session.is_none() { StartedBy::find(args.harness, above.client()) } else { None };
    let variable = args.harness.forwarded_as(header::SESSION);
    let session = args.session.clone().or_else(|| env::var(variable?).ok());
    let Some(session) = session.filter(|session| !session.is_empty()) else {
        let or_set = variable.map(|variable| format!(", or set {variable}")).unwrap_or_default();
        return Err(CliError::Usage(format!("name the session{or_set}")));
    };
    let failed = |source| CliError::System { doing: "follow the queue", source };
    let (done, is_done) = io::pipe().map(|(read, write)| (write, read)).map_err(failed)?;
    let mut follower = Follower { client: client.clone(), session, started_by };
    let follow = move || {
        follower.follow();
        drop(done);
    };
    // The thread may be in any call when the client ends; the process's exit ends it.
    thread::Builder::new().name("follower".to_owned()).spawn(follow).map_err(failed)?;
    above.wait(&is_done).map_err(failed)
}

struct Follower {
    client: Client,
    session: String,
    /// The client, if known.
    started_by: Option<StartedBy>,
}

/// Why following the queue ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The daemon is gone.
    Lost,
    /// Another process is now the follower.
    Replaced,
    /// The output has no reader.
    Unread,
}

impl Follower {
    /// Follows the queue until the output has no reader.
    fn follow(&mut self) {
        let mut pause = PAUSES.0;
        loop {
            let (end, was_there) = self.follow_once();
            match end {
                End::Lost => {}
                End::Replaced => loop {
                    thread::park();
                },
                End::Unread => return,
            }
            pause = if was_there { PAUSES.0 } else { pause };
            thread::park_timeout(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Follows the queue until the daemon is gone; also returns whether it was reachable.
    fn follow_once(&mut self) -> (End, bool) {
        let file = self.started_by.as_ref().and_then(StartedBy::session_file);
        if let Some(file) = &file {
            self.session.clone_from(&file.session_id);
        }
        // A daemon that does not know the session yet opens it from these facts.
        let facts = self.started_by.as_ref().map(|client| client.facts(file.as_ref()));
        let facts = facts.iter().flatten().map(|(name, value)| (*name, value.as_deref()));
        let parameters: Vec<_> = [("wake_route", Some("follower"))].into_iter().chain(facts).collect();
        let path = format!("/v1/sessions/{}/stream", percent_encode(&self.session));
        let path = with_query(&path, &parameters);
        let Ok(Ok(mut events)) = self.client.stream(&path, &[]) else { return (End::Lost, false) };
        while let Ok(Some(event)) = events.next_event() {
            let end = match event.kind.as_str() {
                "replaced" => Some(End::Replaced),
                "pending" => {
                    self.on_pending(&event.data);
                    None
                }
                "wake" => on_wake(&event.data, &mut io::stdout().lock()),
                _ => None,
            };
            if let Some(end) = end {
                return (end, true);
            }
        }
        (End::Lost, true)
    }

    /// Notes the session that now runs in the client's process.
    fn on_pending(&mut self, data: &str) {
        if let Some(pending) = read::<PendingView>(data) {
            self.session = pending.session;
        }
    }
}

/// Prints what the session is woken for. Returns an end if the output has no reader.
fn on_wake(data: &str, output: &mut impl Write) -> Option<End> {
    let WakeView { sentence } = read(data)?;
    // One write of one line: the client makes one event of lines that arrive together.
    let line = format!("{LINE_BEGIN}{}\n", one_line(&sentence));
    let written = output.write_all(line.as_bytes()).and_then(|()| output.flush());
    written.is_err().then_some(End::Unread)
}

/// Reads the data of an event; reports on stderr what cannot be read.
fn read<T: DeserializeOwned>(data: &str) -> Option<T> {
    let read = serde_json::from_str(data);
    if let Err(error) = &read {
        let error = one_line(&error.to_string());
        // A closed stderr is not an error.
        writeln!(io::stderr(), "aside attach: the daemon's event cannot be read: {error}").ok();
    }
    read.ok()
}

/// Poll interval of the parent where its end cannot be awaited, in seconds.
const LOOK_SECONDS: i64 = 2;
/// Most shells between this process and its client.
const SHELLS_MAX: usize = 4;
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ash", "ksh"];

/// The ancestors, read before any output: the client may end soon after.
struct Above {
    parent: Option<Pid>,
    processes: Vec<OwnedFd>,
    client: Option<Process>,
}

impl Above {
    /// Reads the current ancestors.
    fn now() -> Self {
        let (processes, client) = parents();
        Self { parent: getppid(), processes, client }
    }

    /// The nearest ancestor that is not a shell.
    const fn client(&self) -> Option<Process> {
        self.client
    }

    /// Waits until the client has ended, or the other end of `done` is closed.
    fn wait(&self, done: &PipeReader) -> io::Result<()> {
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

struct StartedBy {
    kind: &'static Kind,
    process: Process,
    /// The folder of its files.
    folder: Option<PathBuf>,
}

impl StartedBy {
    /// The client of this kind with this process.
    fn find(kind: &'static Kind, process: Option<Process>) -> Option<Self> {
        process.map(|process| Self { kind, process, folder: kind.client().and_then(harness::folder) })
    }

    /// The client's current session file: its session may differ from the one in which it started
    /// this process.
    fn session_file(&self) -> Option<SessionFile> {
        let files = self.kind.session_files()?;
        let path = (files.path)(self.folder.as_deref()?, self.process.pid);
        (files.parse)(&regular_file::read(&path, FILE_BYTES_MAX).ok()?, self.process)
    }

    /// The client's facts for the daemon, as query parameters.
    fn facts(&self, file: Option<&SessionFile>) -> [(&'static str, Option<String>); 4] {
        let project = self.kind.forwarded_as(header::PROJECT).and_then(|name| env::var(name).ok());
        let project = project.filter(|project| project.starts_with('/'));
        let current = || env::current_dir().ok().and_then(|folder| folder.to_str().map(str::to_owned));
        let works_in = project.or_else(|| file.and_then(|file| file.cwd.clone())).or_else(current);
        let folder = self.folder.as_deref().and_then(Path::to_str).map(str::to_owned);
        let (harness, pid) = (self.kind.caps.name.to_owned(), self.process.pid.to_string());
        [("harness", Some(harness)), ("pid", Some(pid)), ("workspace", works_in), ("client_folder", folder)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attach_follows_queue_state_of_another_version() {
        let client = Client::new("/nowhere".into(), Duration::from_secs(5));
        let mut follower = Follower { client, session: "s1".to_owned(), started_by: None };
        for (data, session) in [
            (r#"{"session":"s2","new":[1]}"#, "s2"),
            ("{}", "s2"),
            ("[", "s2"),
            (r#"{"session":"s3","pending":"many","wake":"start_turn"}"#, "s2"),
            (r#"{"session":"s3","wake":"start_turn"}"#, "s3"),
        ] {
            follower.on_pending(data);
            assert_eq!(&*follower.session, session, "{data}");
        }
    }

    #[test]
    fn a_wake_is_one_line_whatever_it_says() {
        for (data, printed) in [
            (r#"{"sentence":"unit failed","new":1}"#, "aside: unit failed\n"),
            (r#"{"sentence":"a\nb"}"#, "aside: a b\n"),
            ("{}", ""),
            ("[", ""),
        ] {
            let mut output = Vec::new();
            assert_eq!(on_wake(data, &mut output), None, "{data}");
            assert_eq!(String::from_utf8_lossy(&output), printed, "{data}");
        }
        let mut closed: &mut [u8] = &mut [];
        assert_eq!(on_wake(r#"{"sentence":"a"}"#, &mut closed), Some(End::Unread));
    }
}
