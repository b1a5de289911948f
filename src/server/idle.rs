//! Sessions that count as being in a turn although their client has stopped.
//!
//! A user who stops a turn makes the client run no hook. So while something urgent waits for a session in a turn, the file is
//! looked at in which its client says where it stands, and at no other time.

use std::{convert::Infallible, fs, io::Read, path::PathBuf, time::Duration};

use serde_json::json;
use tokio::time::timeout;

use crate::{
    event::{Event, Provenance, SessionId, Severity},
    harness::{caps::CLAUDE_CODE, claude::session_file::SessionFile, process::Process},
    server::{App, error::ApiError, exchange::batch_of, hooks::append},
    session::WAITING_EVENT,
    time::Timestamp,
};

/// How often the files are looked at while something urgent waits.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long after its last hook a client that says it is idle is believed: it writes the file a moment after a turn has begun.
const SETTLED: Duration = Duration::from_secs(2);
/// Longest file that is read, in bytes; a client writes some hundred.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Tells the engine of sessions that are idle and count as being in a turn, until the daemon stops.
pub async fn look_for_idle(app: App) -> Result<(), Infallible> {
    let doors = app.registry.doors();
    loop {
        let sessions = doors.in_turn_and_asking();
        if sessions.is_empty() {
            tokio::select! {
                () = doors.asks_in_turn() => {}
                () = app.stopped() => return Ok(()),
            }
        }
        for session in sessions {
            if let Err(error) = look(&app, session).await {
                tracing::debug!(?error, "whether a session is idle was not found out");
            }
        }
        if timeout(LOOK_EVERY, app.stopped()).await.is_ok() {
            return Ok(());
        }
    }
}

async fn look(app: &App, session: SessionId) -> Result<(), ApiError> {
    let Some(process) = app.registry.processes().of(&session) else { return Ok(()) };
    let Some(folder) = app.registry.doors().client_folder(&session) else { return Ok(()) };
    let Some(found) = app.engine.session(session.clone()).await? else { return Ok(()) };
    let seen_at: Option<Timestamp> = found.seen_at.parse().ok();
    if seen_at.is_none_or(|seen_at| seen_at + SETTLED > app.now()) {
        return Ok(());
    }
    let path = SessionFile::path(&folder, process.pid);
    let read = tokio::task::spawn_blocking(move || read(path, process));
    // An error means that the daemon stops.
    let Ok(Some(file)) = read.await else { return Ok(()) };
    if file.session_id != session.as_str() || !file.is_idle() {
        return Ok(());
    }
    let event = waiting(&session, app.now());
    append(app, batch_of(std::iter::once(event.as_ref()))?).await
}

fn read(path: PathBuf, process: Process) -> Option<SessionFile> {
    let mut text = Vec::new();
    let found = fs::metadata(&path).ok()?;
    if !found.is_file() {
        return None;
    }
    fs::File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
    SessionFile::parse(&text, process)
}

/// What the client would have said by a hook if there were one.
fn waiting(session: &SessionId, now: Timestamp) -> Event {
    Event {
        id: format!("{session}:idle:{}", now.as_millis()).into(),
        event_type: WAITING_EVENT.parse().expect("a valid literal"),
        source: CLAUDE_CODE.name.into(),
        provenance: Provenance::Harness,
        severity: Severity::Debug,
        timestamp: now,
        payload: json!({ "reason": "idle_prompt", "message": "the client's own file says that it is idle" })
            .into(),
        dedupe_key: None,
        session: Some(session.clone()),
        workspace: None,
        cause: None,
    }
}
