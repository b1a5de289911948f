//! Watches the processes of open sessions, and closes a session whose process has ended.
//!
//! A killed client runs no hook. Its pending notifications would never be delivered, and events for
//! its folder would go to it alone. So the end of each process is awaited and recorded as if the
//! client had reported it.
//!
//! Also finds sessions that count as in a turn although their client has stopped: an interrupt by the
//! user runs no hook. Therefore the state file of a session's client is polled, but only while the
//! session is in a turn, and has something pending that would wake it if the user had stopped that
//! turn.

use std::{collections::HashSet, convert::Infallible, sync::Arc, time::Duration};

use engine::{event::SessionId, exchange, records::Records};
use futures_util::{future::BoxFuture, stream::FuturesUnordered};
use journal::time::{Timestamp, duration_millis};
use rustix::param::clock_ticks_per_second;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use crate::{
    api::{
        App,
        error::ApiError,
        naming::all_sessions,
        process_table::Processes,
        wake_routes::{ClientFolder, read_session_file},
        wire::views::SessionView,
    },
    capability::source::process::{self, running, stat},
    daemon::tasks::run_blocking,
    harness::{
        kind::Kind,
        process::{Process, ProcessStat},
    },
};

/// Most watched processes, one open file each; the end of others is found when another process is
/// recorded or ends, or a follower ends.
const WATCHED_MAX: usize = 4_096;
/// How many ancestors of a hook are searched for its client: shells and wrappers.
const ABOVE_MAX: usize = 16;
/// Allowed drift between the wall clock and the boot clock; process ids are not reused within it.
const CLOCKS_APART: Duration = Duration::from_secs(2);

/// The process `from` and its ancestors with their status, nearest first; each is read when it is
/// needed.
pub(super) fn with_ancestors(from: u32) -> impl Iterator<Item = (Process, ProcessStat)> {
    let read = |pid: u32| stat(pid).filter(|stat| !stat.has_ended).map(|stat| (pid, stat));
    let above = move |(_, stat): &(u32, ProcessStat)| (stat.parent > 1).then(|| read(stat.parent)).flatten();
    let found = std::iter::successors(read(from), above).take(ABOVE_MAX);
    found.map(|(pid, stat)| (Process { pid, started: stat.started }, stat))
}

/// The process `from` and its ancestors, nearest first.
fn from_upwards(from: u32) -> impl Iterator<Item = Process> {
    with_ancestors(from).map(|(process, _)| process)
}

/// Whether the process `from` is `above` or one of its descendants.
pub(super) fn is_below(from: u32, above: Process) -> bool {
    from_upwards(from).any(|process| process == above)
}

/// How a client's process is identified.
#[derive(Debug, Clone, Copy)]
pub(crate) enum IdentifiedBy<'c> {
    /// By its id. An id from another PID namespace, or an invented one, matches no ancestor of the
    /// caller.
    Pid(u32),
    /// By the client's session file in this folder.
    SessionFile(&'c ClientFolder),
}

/// Finds the process of the session's client: the requesting process `peer`, or an ancestor of it,
/// because a client starts its hooks.
pub(crate) fn find(app: &App, session: &SessionId, peer: u32, by: IdentifiedBy<'_>) -> Option<Process> {
    let processes = app.registry.processes();
    match by {
        IdentifiedBy::Pid(pid) => match processes.running(session, pid) {
            known @ Some(_) => known,
            None => from_upwards(peer).find(|process| process.pid == pid),
        },
        IdentifiedBy::SessionFile(folder) => {
            let known = processes.process_of(session).filter(|known| processes.watched.contains(known));
            // Reading the ancestors of a hook costs a tenth of the hook, and is useless if the
            // client writes no session files.
            let is_worth_it = known.is_some() || folder.has_session_files();
            let is_client = |process: &Process| Some(*process) == known || is_in(session, folder, *process);
            is_worth_it.then(|| from_upwards(peer).find(is_client)).flatten()
        }
    }
}

/// Records the process of the session's client, as found by [`find`].
pub(crate) fn know(app: &App, session: &SessionId, found: Process) -> exchange::Process {
    app.registry.processes().know(session, found);
    exchange::Process { pid: found.pid, started: Some(found.started) }
}

/// Whether the client's session file names `process` as the process of the session.
fn is_in(session: &SessionId, folder: &ClientFolder, process: Process) -> bool {
    read_session_file(folder, process).is_some_and(|file| folder.kind.calls(session, &file.session_id))
}

/// Closes sessions whose processes have ended, until the daemon stops.
///
/// Errors: none; processes that cannot be watched are checked periodically.
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
                ends.push(Box::pin(end_of(process, Arc::clone(&processes))));
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

/// Finds the processes of the sessions that were open when the daemon stopped, and closes sessions
/// whose process has ended since.
///
/// Shape: a process with the right id that started before its session's last activity cannot be
/// another process with a reused id.
async fn find_again(app: &App) -> Result<(), ApiError> {
    for session in all_sessions(app).await? {
        let Some((pid, seen_at)) = unfound(&session, app.started_at) else { continue };
        let id = SessionId::new(&session.id);
        if app.registry.processes().process_of(&id).is_some() {
            // A hook has reported it meanwhile.
            continue;
        }
        let has_begun =
            |process: &Process| started_at(*process, app.now(), (app.since_boot)()) <= seen_at + CLOCKS_APART;
        match running(pid).filter(has_begun) {
            Some(process) => app.registry.processes().know(&id, process),
            None => {
                let process = exchange::Process { pid, started: session.harness.pid_started };
                close_session(app, &id, process).await;
            }
        }
    }
    Ok(())
}

/// The process id and last activity of an open session that a daemon which started at
/// `daemon_start` took over from the one before.
///
/// Shape: `None` for a session that was active since: its hook has reported its process, and one that
/// is of another PID namespace cannot be looked up. Only ids from a client's hooks are trusted:
/// others may be of another machine.
fn unfound(session: &SessionView, daemon_start: Timestamp) -> Option<(u32, Timestamp)> {
    let harness = &session.harness;
    let is_client = harness.name.as_deref().is_some_and(|name| Kind::of_name(name).is_some());
    if !session.is_open || !is_client || harness.parent.is_some() {
        return None;
    }
    let seen_at = session.seen_at.parse().ok().filter(|seen_at| *seen_at < daemon_start)?;
    Some((harness.pid?, seen_at))
}

/// Wall clock time of the process's start; the machine started `since_boot` ago.
fn started_at(process: Process, now: Timestamp, since_boot: Duration) -> Timestamp {
    let ticks = clock_ticks_per_second().max(1);
    let age_ms = duration_millis(since_boot).saturating_sub(process.started.saturating_mul(1_000) / ticks);
    Timestamp::from_millis(now.as_millis().saturating_sub(age_ms))
}

/// Waits for the end of the process; `processes` holds it as watched if the system reports its end.
async fn end_of(process: Process, processes: Arc<Processes>) -> Process {
    let note = |is_reported| {
        if is_reported {
            processes.watched.insert(process);
        } else {
            processes.watched.remove(&process);
        }
    };
    process::ended(process, note).await;
    process
}

async fn close(app: &App, process: Process) {
    for session in app.registry.processes().sessions_of(process) {
        app.registry.processes().forget(&session);
        close_session(app, &session, exchange::Process { pid: process.pid, started: Some(process.started) })
            .await;
    }
}

/// Closes a session whose process has ended; it can be resumed like any conversation.
async fn close_session(app: &App, session: &SessionId, process: exchange::Process) {
    let gone = Records::build(|records| records.process_gone(session, process));
    tracing::info!(%session, pid = process.pid, "the process of a session has ended");
    if let Err(error) = app.publisher.append(gone).await {
        tracing::error!(%session, %error, "a session whose process has ended could not be closed");
    }
}

/// Interval of polling while an urgent notification is pending.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long after a turn's start the file may still show the state before it.
const WRITTEN_WITHIN: Duration = Duration::from_secs(2);
/// The source of an idle report.
const CLIENT_FILE: &str = "client_file";

/// Reports idle sessions that count as in a turn to the engine, until the daemon stops.
pub async fn look_for_idle(app: App) -> Result<(), Infallible> {
    let routes = app.registry.wake_routes();
    loop {
        let sessions = routes.maybe_stopped();
        if sessions.is_empty() {
            tokio::select! {
                () = routes.may_be_stopped() => {}
                () = app.stopped() => return Ok(()),
            }
        }
        for session in sessions {
            if let Err(error) = look(&app, session).await {
                tracing::debug!(?error, "it could not be determined whether a session is idle");
            }
        }
        if timeout(LOOK_EVERY, app.stopped()).await.is_ok() {
            return Ok(());
        }
    }
}

async fn look(app: &App, session: SessionId) -> Result<(), ApiError> {
    let Some(process) = app.registry.processes().process_of(&session) else { return Ok(()) };
    let Some(folder) = app.registry.wake_routes().client_folder(&session) else { return Ok(()) };
    // Taken before the file is read, so that a concurrent hook counts as later.
    let as_of = Timestamp::from_millis(app.now().as_millis().saturating_sub(duration_millis(WRITTEN_WITHIN)));
    let kind = folder.kind;
    let read = run_blocking(move || read_session_file(&folder, process));
    // An error means that the daemon stops.
    let Ok(Some(file)) = read.await else { return Ok(()) };
    let is_in_session = kind.calls(&session, &file.session_id);
    if !is_in_session || !file.is_idle {
        return Ok(());
    }
    app.append(Records::build(|records| records.session_idle(&session, CLIENT_FILE, as_of))).await
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        process::{Command, Stdio},
    };

    use futures_util::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::harness::claude;

    #[test]
    fn process_is_identified_by_ancestry_and_start_time() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it runs");
        let own = std::process::id();
        let at_or_above = |from: u32, pid: u32| from_upwards(from).find(|process| process.pid == pid);
        let found = at_or_above(child.id(), own).expect("this process started it");
        assert_eq!(Some(found), running(own));
        assert_eq!(at_or_above(own, own), Some(found));
        assert_eq!(at_or_above(own, child.id()), None);
        let (now, since_boot) = (Timestamp::from_millis(100_000), Duration::from_secs(50));
        let early = Process { started: 2 * clock_ticks_per_second(), ..found };
        assert_eq!(started_at(early, now, since_boot), Timestamp::from_millis(52_000));
        let process = running(child.id()).expect("it runs");
        child.kill().expect("it runs");
        // It is a zombie until it is waited for.
        child.wait().expect("killed");
        assert_ne!(running(process.pid), Some(process));
    }

    #[test]
    fn only_sessions_of_before_are_looked_up() {
        let start = Timestamp::from_millis(1_000);
        let view = |change: serde_json::Value| {
            let mut harness = json!({ "name": "claude-code", "pid": 7 });
            let mut session = json!({ "id": "s", "is_open": true, "state": "idle" });
            for (key, value) in change.as_object().expect("fields") {
                let is_of_session = matches!(key.as_str(), "seen_at" | "is_open");
                let changed = if is_of_session { &mut session } else { &mut harness };
                changed[key] = value.clone();
            }
            let seen_at = session["seen_at"].as_u64().unwrap_or(999);
            session["seen_at"] = Timestamp::from_millis(seen_at).to_string().into();
            session["opened_at"] = session["seen_at"].clone();
            session["harness"] = harness;
            serde_json::from_value::<SessionView>(session).expect("a session")
        };
        let looked_up =
            |change| unfound(&view(change), start).map(|(pid, seen_at)| (pid, seen_at.as_millis()));
        assert_eq!(looked_up(json!({})), Some((7, 999)));
        for change in [
            json!({ "seen_at": 1_000 }),
            json!({ "is_open": false }),
            json!({ "name": "own-loop" }),
            json!({ "parent": "p" }),
            json!({ "pid": null }),
        ] {
            assert_eq!(looked_up(change.clone()), None, "{change}");
        }
    }

    #[tokio::test]
    async fn awaited_process_ends_on_exit_or_id_reuse() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it runs");
        let process = running(child.id()).expect("it runs");
        let processes = Arc::new(Processes::default());
        let mut end = Box::pin(end_of(process, Arc::clone(&processes)));
        assert_eq!((&mut end).now_or_never(), None);
        assert!(processes.watched.contains(&process));
        child.kill().expect("it runs");
        child.wait().expect("killed");
        assert_eq!(end.await, process);
        let other = Process { started: 1, ..running(std::process::id()).expect("this one") };
        assert_eq!(end_of(other, Arc::clone(&processes)).now_or_never(), Some(other));
        assert!(processes.watched.is_empty());
    }

    #[test]
    fn client_process_is_found_by_its_session_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let process = running(std::process::id()).expect("this one");
        let session = SessionId::new("s1");
        let client = ClientFolder { kind: &claude::KIND, path: folder.path().to_owned() };
        let is_found = || from_upwards(process.pid).any(|process| is_in(&session, &client, process));
        assert!(!is_found());
        fs::create_dir(folder.path().join("sessions")).expect("a folder");
        let write = |session: &str| {
            let file = format!(
                r#"{{"pid":{},"sessionId":"{session}","procStart":"{}"}}"#,
                process.pid, process.started
            );
            let files = client.kind.session_files().expect("it writes them");
            fs::write((files.path)(&client.path, process.pid), file).expect("written");
        };
        write("s1");
        assert!(is_found());
        write("s2");
        assert!(!is_found());
    }
}
