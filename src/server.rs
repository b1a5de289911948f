//! The API: HTTP on a Unix socket, and on loopback TCP when that is configured.
//!
//! Handlers are thin: they read a request with `protocol`, append to the journal through the publisher, and wait for what the daemon's
//! event loop says. They decide nothing about events. What they keep, [`sessions::Registry`] holds, and no restart needs it: who waits for
//! what, how each client can be woken, which contexts are nearly full, what hooks said that could not be used. A handler whose client
//! is gone is dropped at its next wait, and leaves nothing behind that waits.

mod admin;
mod auth;
mod bodies;
mod clients;
mod connections;
mod error;
mod events;
mod exchange;
mod extract;
mod facts;
mod git_diff;
mod history;
mod hooks;
mod idle;
mod inbox;
mod intake;
mod knowledge;
mod lines;
mod matching;
mod mcp;
mod metrics;
mod mounts;
mod naming;
pub(crate) mod notify;
mod probing;
mod processes;
mod pulse;
mod questions;
mod reload;
mod room;
mod router;
mod shell;
mod sources;
mod statusline;
mod stream;
mod transcripts;
mod wake_routes;
mod watches;
mod webhooks;
mod wrote;

pub mod engine_handle;
pub mod sessions;
pub mod tokens;

#[cfg(test)]
mod tests;

use std::{
    fs, io,
    ops::Deref,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::Path,
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::{TcpListener, UnixListener},
    sync::{mpsc, watch},
};

use crate::{
    harness::Transcript,
    journal::{Clock, Journal},
    meter::Meters,
    projection::Projection,
    publisher::{Publisher, Records},
    server::error::ApiError,
    time::Timestamp,
};

pub use engine_handle::{EngineHandle, PageStart, Query, Standing, WaitingPage};
pub use facts::{Contents, Machine};
pub use idle::look_for_idle;
pub use processes::watch_processes;
pub use pulse::Pulse;
pub use reload::{ConfigHandle, ConfigState, RELOADS_MAX, ReloadRefusal, ReloadRequest};
pub use room::Rooms;
pub use router::openapi;
pub use sessions::Registry;
pub use tokens::{Tokens, TokensError};
pub use transcripts::{TRANSCRIPTS_MAX, look_for_injections};
pub use wake_routes::push_wakes;

/// What every handler works with; one pointer, as each request clones it several times.
#[derive(Clone)]
pub struct App(Arc<AppParts>);

/// What an [`App`] holds.
pub struct AppParts {
    /// Where everything is read.
    pub journal: Journal,
    /// Where everything is appended.
    pub publisher: Publisher,
    /// Whom questions about sessions and counts go to.
    pub engine: EngineHandle,
    /// Who reads the configuration again, and how it was read last.
    pub config: ConfigHandle,
    /// Whom questions about the history go to.
    pub projection: Projection,
    /// Who waits for answers and for changes of a queue.
    pub registry: Arc<Registry>,
    /// Where transcripts go in which injections may be found; [`look_for_injections`] takes them from there.
    pub transcripts: mpsc::Sender<Transcript>,
    /// Where it is counted how long requests take.
    pub meters: Arc<Meters>,
    /// How much memory bodies may take.
    pub rooms: Rooms,
    /// The time.
    pub clock: Clock,
    /// What the wall clock here is ahead of UTC at a time, in seconds.
    pub utc_offset: fn(Timestamp) -> i32,
    /// How long ago the machine started, its sleep included.
    pub since_boot: fn() -> Duration,
    /// Becomes true when the daemon stops; streams and long polls then end.
    pub shutdown: watch::Receiver<bool>,
}

impl From<AppParts> for App {
    fn from(parts: AppParts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for App {
    type Target = AppParts;

    fn deref(&self) -> &AppParts {
        &self.0
    }
}

impl App {
    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Appends what waits neither for the event loop nor for the disk, if it is anything.
    ///
    /// Errors: the journal takes nothing.
    async fn append(&self, records: Records) -> Result<(), ApiError> {
        if records.is_empty() {
            return Ok(());
        }
        self.publisher.append(records).await.map(drop).map_err(|error| ApiError::append(&error))
    }

    /// Waits until the daemon stops.
    async fn stopped(&self) {
        let mut shutdown = self.shutdown.clone();
        // An error means that the daemon's side is gone, which is the same.
        drop(shutdown.wait_for(|is_stopping| *is_stopping).await);
    }
}

/// Opens the Unix socket: its folder is made for this user alone, the socket too.
///
/// Between its making and the change of its mode the socket is open by the umask. That does no harm,
/// as every request of another user's process is refused; a umask for the whole process would also
/// hold for what other threads make meanwhile.
///
/// Errors: the folder cannot be made or is not [safe](safe_folder), or something is at `path`; whether
/// that is a living daemon is for the caller to find out.
pub fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let folder = folder_of(path);
    if !folder.exists() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    safe_folder(folder)?;
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// The folder that `path` is in.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether nobody else can put a socket of their own in the place of one in `folder`.
///
/// Errors: it belongs to another user than this one or root, or others may write there and may
/// remove what is not theirs, as it has no sticky bit.
pub fn safe_folder(folder: &Path) -> io::Result<()> {
    let found = fs::metadata(folder)?;
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    let shown = folder.display();
    if found.uid() != 0 && found.uid() != rustix::process::geteuid().as_raw() {
        return refused(format!("{shown} belongs to another user"));
    }
    if found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0 {
        let mode = found.mode() & 0o7777;
        return refused(format!("others may write to {shown} (mode {mode:o}): chmod go-w it"));
    }
    Ok(())
}

/// Serves processes of this user until the daemon stops and open requests are answered.
pub async fn serve_unix(listener: UnixListener, app: App) -> io::Result<()> {
    let stopping = app.shutdown.clone();
    connections::serve(listener, auth::same_user_only(router::router(app)), stopping).await;
    Ok(())
}

/// Serves whoever has one of `tokens` until the daemon stops and open requests are answered.
pub async fn serve_tcp(listener: TcpListener, app: App, tokens: Tokens) -> io::Result<()> {
    app.registry.note_tcp(listener.local_addr()?);
    let stopping = app.shutdown.clone();
    connections::serve(listener, auth::token_only(router::router(app), tokens), stopping).await;
    Ok(())
}
