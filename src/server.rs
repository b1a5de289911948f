//! The API: HTTP on a Unix socket, and on loopback TCP when that is configured.
//!
//! Handlers are thin: they read a request with `protocol`, append to the journal through the bus, and wait for what the daemon's
//! event loop says. They decide nothing and hold no state but who waits for what ([`sessions::Registry`]). A handler whose client
//! is gone is dropped at its next wait, and leaves nothing behind that waits.

mod admin;
mod auth;
mod bodies;
mod connections;
mod doors;
mod error;
mod events;
mod exchange;
mod extract;
mod history;
mod hooks;
mod inbox;
mod intake;
mod lines;
mod metrics;
mod room;
mod router;
mod statusline;
mod stream;
mod transcripts;

pub mod engine_handle;
pub mod sessions;

#[cfg(test)]
mod tests;

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
    sync::Arc,
};

use tokio::{
    net::{TcpListener, UnixListener},
    sync::{mpsc, watch},
};

use crate::{
    bus::Bus, harness::Transcript, journal::Clock, meter::Meters, projection::Projection, time::Timestamp,
};

pub use doors::push_wakes;
pub use engine_handle::{EngineHandle, Query, Standing};
pub use room::Rooms;
pub use router::openapi;
pub use sessions::Registry;
pub use transcripts::{TRANSCRIPTS_MAX, look_for_injections};

/// What every handler works with; cloning it is cheap.
#[derive(Clone)]
pub struct App {
    /// Where everything is appended and read.
    pub bus: Bus,
    /// Whom questions about sessions and counts go to.
    pub engine: EngineHandle,
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
    /// Becomes true when the daemon stops; streams and long polls then end.
    pub shutdown: watch::Receiver<bool>,
}

impl App {
    fn now(&self) -> Timestamp {
        (self.clock)()
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
/// Errors: the folder cannot be made, or something is at `path`; whether that is a living daemon is for the caller to find out.
pub fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves processes of this user until the daemon stops and open requests are answered.
pub async fn serve_unix(listener: UnixListener, app: App) -> io::Result<()> {
    let stopping = app.shutdown.clone();
    connections::serve(listener, auth::same_user_only(router::router(app)), stopping).await;
    Ok(())
}

/// Serves whoever has the token until the daemon stops and open requests are answered.
pub async fn serve_tcp(listener: TcpListener, app: App, token: &str) -> io::Result<()> {
    let stopping = app.shutdown.clone();
    connections::serve(listener, auth::token_only(router::router(app), token), stopping).await;
    Ok(())
}
