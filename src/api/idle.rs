//! Finds sessions that count as in a turn although their client has stopped.
//!
//! An interrupt by the user runs no hook. Therefore the state file of a session's client is polled,
//! but only while the session is in a turn, and has something pending that would wake it if the user
//! had stopped that turn.

use std::{convert::Infallible, time::Duration};

use engine::{event::SessionId, records::Records};
use journal::time::{Timestamp, duration_millis};
use tokio::time::timeout;

use crate::{
    api::{App, client_folder::read_session_file, error::ApiError},
    daemon::tasks::run_blocking,
};

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
