//! The processes of the open sessions: a session whose process has ended is closed.
//!
//! A client that is killed runs no hook. What waits for it would wait for nobody, and what is published for its folder would go to
//! it alone. So each process is waited for, and its end becomes a record as if its client had said so.

use std::{collections::HashSet, convert::Infallible, fs, os::fd::OwnedFd, sync::Arc, time::Duration};

use dashmap::DashMap;
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use rustix::{
    param::clock_ticks_per_second,
    process::{Pid, PidfdFlags, pidfd_open},
    time::{ClockId, clock_gettime},
};
use tokio::{io::unix::AsyncFd, sync::Notify, time::timeout};

use crate::{
    event::SessionId,
    harness::{
        caps::CLAUDE_CODE,
        process::{Process, ProcessStat},
    },
    journal::{AppendBatch, Level, record::RecordKind},
    protocol::record,
    server::{App, error::ApiError},
    time::Timestamp,
};

/// Most processes that are waited for, each by an open file; the end of one beyond it is found when another session begins or ends.
const WATCHED_MAX: usize = 4_096;
/// How many processes are looked at between a hook and its client: shells and wrappers.
const ABOVE_MAX: usize = 16;
/// How often a process is looked at whose end the system does not tell.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How far the clock of the wall and that of the system's start may have come apart; nobody is given the number of a process within it.
const CLOCKS_APART: Duration = Duration::from_secs(2);

/// Which process each session runs in, as far as it was seen.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    of: DashMap<SessionId, Process>,
    changed: Notify,
}

impl Processes {
    /// Learns that the session runs in `process`.
    pub(crate) fn know(&self, session: &SessionId, process: Process) {
        if self.of.insert(session.clone(), process) != Some(process) {
            self.changed.notify_one();
        }
    }

    /// The process that the session runs in.
    pub(crate) fn of(&self, session: &SessionId) -> Option<Process> {
        self.of.get(session).map(|process| *process)
    }

    /// The session has ended; its process may go on.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.of.remove(session);
    }

    /// Has every process looked at that is not waited for.
    pub(crate) fn look(&self) {
        self.changed.notify_one();
    }

    fn all(&self) -> HashSet<Process> {
        self.of.iter().map(|entry| *entry.value()).collect()
    }

    fn sessions_of(&self, process: Process) -> Vec<SessionId> {
        let own = self.of.iter().filter(|entry| *entry.value() == process);
        let mut sessions: Vec<SessionId> = own.map(|entry| entry.key().clone()).collect();
        sessions.sort_unstable();
        sessions
    }
}

/// What the system tells of a process; `None` when there is none, or none that can be seen from here.
fn stat(pid: u32) -> Option<ProcessStat> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    ProcessStat::parse(&String::from_utf8_lossy(&text))
}

/// The process with this number, if it runs.
pub(crate) fn running(pid: u32) -> Option<Process> {
    stat(pid).filter(|stat| !stat.has_ended).map(|stat| Process { pid, started: stat.started })
}

/// The process with the number `pid`, if it is the process `from` or stands above it.
///
/// Shape: a hook is started by its client. A number that another namespace of processes gave, or that somebody made up, is that of no
/// process above, and then nothing is known of it here.
fn at_or_above(from: u32, pid: u32) -> Option<Process> {
    let mut at = from;
    for _ in 0..ABOVE_MAX {
        if at == pid {
            return running(pid);
        }
        at = stat(at)?.parent;
        if at <= 1 {
            return None;
        }
    }
    None
}

/// Remembers that the session runs in the process `pid`, if that is the process `peer` which says so, or stands above it.
pub(crate) fn learn(app: &App, session: &SessionId, peer: u32, pid: u32) {
    let processes = app.registry.processes();
    let known = processes.of(session).filter(|known| known.pid == pid);
    if known.is_none_or(|known| running(pid) != Some(known))
        && let Some(process) = at_or_above(peer, pid)
    {
        processes.know(session, process);
    }
}

/// Closes sessions whose processes have ended until the daemon stops.
///
/// Errors: none; what cannot be waited for is looked at now and then.
pub async fn watch_processes(app: App) -> Result<(), Infallible> {
    let processes = Arc::clone(app.registry.processes());
    if let Err(error) = find_again(&app).await {
        tracing::warn!(?error, "the processes of open sessions are not known until their next hooks");
    }
    let mut watched: HashSet<Process> = HashSet::new();
    let mut ends: FuturesUnordered<BoxFuture<'static, Process>> = FuturesUnordered::new();
    loop {
        for process in processes.all() {
            if watched.contains(&process) {
                continue;
            }
            if watched.len() < WATCHED_MAX {
                watched.insert(process);
                ends.push(Box::pin(end_of(process)));
            } else if running(process.pid) != Some(process) {
                close(&app, process).await;
            }
        }
        tokio::select! {
            () = processes.changed.notified() => {}
            Some(process) = ends.next(), if !ends.is_empty() => {
                watched.remove(&process);
                close(&app, process).await;
            }
            () = app.stopped() => return Ok(()),
        }
    }
}

/// Finds the processes of the sessions that were open when the daemon stopped, and closes those whose process has ended since.
///
/// Shape: of a process that has the right number and started before its session was last heard of, no other one can have had the
/// number since. Only the numbers that a client's hooks gave are believed: others may be those of another machine.
async fn find_again(app: &App) -> Result<(), ApiError> {
    for session in app.engine.sessions().await? {
        let harness = &session.harness;
        let is_client = harness.name.as_deref() == Some(CLAUDE_CODE.name) && harness.parent.is_none();
        let (true, Some(pid), Ok(seen_at)) =
            (session.is_open && is_client, harness.pid, session.seen_at.parse::<Timestamp>())
        else {
            continue;
        };
        let id = SessionId::new(&session.id);
        if app.registry.processes().of(&id).is_some() {
            // A hook was quicker.
            continue;
        }
        let has_begun = |process: &Process| started_at(*process, app.now()) <= seen_at + CLOCKS_APART;
        match running(pid).filter(has_begun) {
            Some(process) => app.registry.processes().know(&id, process),
            None => close_session(app, &id).await,
        }
    }
    Ok(())
}

/// When the process started, by the clock of the wall.
fn started_at(process: Process, now: Timestamp) -> Timestamp {
    let ticks = clock_ticks_per_second().max(1);
    let up = clock_gettime(ClockId::Boottime);
    let up_ms = u64::try_from(up.tv_sec * 1_000 + up.tv_nsec / 1_000_000).unwrap_or_default();
    let age_ms = up_ms.saturating_sub(process.started.saturating_mul(1_000) / ticks);
    Timestamp::from_millis(now.as_millis().saturating_sub(age_ms))
}

/// Waits until the process has ended.
async fn end_of(process: Process) -> Process {
    let opened = i32::try_from(process.pid).ok().and_then(Pid::from_raw).map(open);
    let ended = async {
        match opened {
            Some(Ok(ended)) if running(process.pid) == Some(process) => {
                // An error means that it is not told; then it is looked at below.
                drop(ended.readable().await);
            }
            Some(Ok(_) | Err(_)) | None => {}
        }
    };
    ended.await;
    while running(process.pid) == Some(process) {
        drop(timeout(LOOK_EVERY, std::future::pending::<()>()).await);
    }
    process
}

#[expect(
    deprecated,
    reason = "the form without unsafe code; the file is owned and not replaced, as the other one asks"
)]
fn open(pid: Pid) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(pidfd_open(pid, PidfdFlags::NONBLOCK)?)
}

async fn close(app: &App, process: Process) {
    for session in app.registry.processes().sessions_of(process) {
        app.registry.processes().forget(&session);
        close_session(app, &session).await;
    }
}

/// Closes a session whose process has ended: it can be taken up again, as any conversation can.
async fn close_session(app: &App, session: &SessionId) {
    let mut batch = AppendBatch::new();
    let body = |body: &mut Vec<u8>| record::encode_session_closed(session, true, body);
    let pushed = batch.push_with(RecordKind(record::SESSION_CLOSED), None, body);
    pushed.expect("the daemon's own records are small");
    tracing::info!(%session, "the process of a session has ended");
    if let Err(error) = app.bus.append(batch, Level::Written).await {
        tracing::error!(%session, %error, "a session whose process has ended could not be closed");
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_process_is_known_by_what_stands_above_it_and_by_its_start() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it runs");
        let own = std::process::id();
        let found = at_or_above(child.id(), own).expect("this process started it");
        assert_eq!(Some(found), running(own));
        assert_eq!(at_or_above(own, own), Some(found));
        assert_eq!(at_or_above(own, child.id()), None);
        assert!(started_at(found, Timestamp::from_millis(u64::MAX)) > Timestamp::from_millis(u64::MAX / 2));
        let process = running(child.id()).expect("it runs");
        child.kill().expect("it runs");
        // It has ended, and stays until it is waited for.
        child.wait().expect("killed");
        assert_ne!(running(process.pid), Some(process));
    }

    #[tokio::test]
    async fn the_end_of_a_process_is_waited_for_and_another_one_of_its_number_counts_as_its_end() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it runs");
        let process = running(child.id()).expect("it runs");
        let mut end = Box::pin(end_of(process));
        assert_eq!((&mut end).now_or_never(), None);
        child.kill().expect("it runs");
        child.wait().expect("killed");
        assert_eq!(end.await, process);
        let other = Process { started: 1, ..running(std::process::id()).expect("this one") };
        assert_eq!(end_of(other).now_or_never(), Some(other));
    }
}
