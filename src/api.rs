//! The API: HTTP on a Unix socket, and on loopback TCP when that is configured.
//!
//! Handlers are thin: they parse a request with `wire`, append to the journal through the
//! publisher, and wait for the answer of the daemon's event loop. They make no decisions about
//! events. Their state is in [`Registry`] and is not needed after a restart: waiting requests, wake
//! routes, context gauges and hook input that could not be used. A handler whose client has
//! disconnected is dropped at its next await and leaves no waiter behind.

mod actor;
mod admin;
mod app;
mod auth;
mod clients;
mod connections;
mod error;
mod events;
mod exchange;
pub(crate) mod explain;
mod extract;
mod facts;
mod formats;
mod history;
mod hook_troubles;
mod hooks;
mod inbox;
mod intake;
mod lines;
mod looks;
mod matching;
mod mcp;
mod metrics;
mod mounts;
mod naming;
pub(crate) mod notify;
mod probing;
mod process_table;
mod processes;
mod push;
mod questions;
mod region;
mod region_texts;
mod registry;
mod reload;
mod requester;
mod respond;
mod room;
mod router;
mod sessions;
mod settings;
mod share;
mod shell;
mod silences;
mod sources;
mod statusline;
mod stream;
mod subscribers;
mod transcripts;
mod trust;
mod wake_routes;
mod watches;
mod webhooks;
pub mod wire;

pub mod engine_handle;
pub mod tokens;

#[cfg(test)]
mod tests;

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::Path,
};

use tokio::net::{TcpListener, UnixListener};

pub use app::{App, AppParts, ConfigHandle, ConfigState, RELOADS_MAX, ReloadRefusal, ReloadRequest};
pub use engine_handle::{EngineHandle, EngineView, Pulse, Query};
pub use facts::{Contents, Machine};
pub use processes::{look_for_idle, watch_processes};
pub use push::push_wakes;
pub use registry::Registry;
pub use room::Rooms;
pub use tokens::{Tokens, TokensError};
pub use transcripts::{TRANSCRIPTS_MAX, look_for_injections};
pub use trust::question_about;

/// Binds the Unix socket, which only this user can access; a missing folder is created likewise.
///
/// Between bind and chmod the umask decides the socket's mode. That is harmless, because every
/// request of another user's process is refused. A process-wide umask would also affect files that
/// other threads create meanwhile.
///
/// Errors: the folder cannot be created or is not [safe](safe_folder), or `path` already exists;
/// the caller has to check whether a running daemon owns it.
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

/// The parent folder of `path`.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Checks that no other user can replace a socket in `folder`.
///
/// Errors: the folder belongs to a user other than this one or root, or others may write there and
/// it has no sticky bit.
pub fn safe_folder(folder: &Path) -> io::Result<()> {
    let found = fs::metadata(folder)?;
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    let shown = folder.display();
    if found.uid() != 0 && found.uid() != rustix::process::geteuid().as_raw() {
        return refused(format!("{shown} belongs to another user"));
    }
    if found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0 {
        let mode = found.mode() & 0o7777;
        return refused(format!("other users can write to {shown} (mode {mode:o}): chmod go-w it"));
    }
    Ok(())
}

/// Serves processes of this user until the daemon stops and open requests are answered.
pub async fn serve_unix(listener: UnixListener, app: App) -> io::Result<()> {
    let stopping = app.shutdown.clone();
    connections::serve(listener, auth::same_user_only(router::router(app)), stopping).await;
    Ok(())
}

/// Serves clients that send one of `tokens`, until the daemon stops and open requests are answered.
pub async fn serve_tcp(listener: TcpListener, app: App, tokens: Tokens) -> io::Result<()> {
    app.registry.note_tcp(listener.local_addr()?);
    let stopping = app.shutdown.clone();
    connections::serve(listener, auth::token_only(router::router(app), tokens), stopping).await;
    Ok(())
}
