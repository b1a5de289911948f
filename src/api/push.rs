//! Wakes sessions: hands followers a sentence, and writes it to the message sockets of clients.

use std::{
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    sync::Arc,
    time::Duration,
};

use engine::event::SessionId;
use futures_util::stream::FuturesUnordered;
use journal::time::Timestamp;
use tokio::{io::AsyncWriteExt, net::UnixStream, time::timeout};
use tokio_stream::StreamExt;

use crate::{
    api::{
        App,
        processes::is_below,
        wake_routes::{KnownSocket, read_session_file, read_settings},
    },
    capability::source::process::running,
    daemon::tasks::run_blocking,
    harness::wake::{Inbound, WakeRoute},
};

/// How long a client may take to accept a connection or a message; a stuck client must not delay
/// the others.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(2);
/// Most concurrent wakes.
const WAKES_MAX: usize = 8;

/// The result of a wake by a message socket.
#[derive(Debug, PartialEq, Eq)]
enum Pushed {
    Written,
    /// The client keeps such a message from its model.
    Held,
    /// The client may be about to exit.
    NotYet,
}

/// Wakes sessions until the daemon stops.
///
/// Errors: none; a client that takes no wake is reached by its next hook.
pub async fn push_wakes(app: App) -> io::Result<()> {
    let routes = Arc::clone(app.registry.wake_routes());
    loop {
        let (due, next) = routes.take_due(app.now());
        let is_idle = due.is_empty();
        let mut wakes = FuturesUnordered::new();
        for (session, route) in due {
            if wakes.len() >= WAKES_MAX {
                wakes.next().await;
            }
            wakes.push(wake(&app, session, route));
        }
        while wakes.next().await.is_some() {}
        if !is_idle {
            continue;
        }
        tokio::select! {
            () = routes.ready() => {}
            () = wait_until(next, app.now()) => {}
            () = app.stopped() => return Ok(()),
        }
    }
}

async fn wait_until(at: Option<Timestamp>, now: Timestamp) {
    let never = std::future::pending::<()>();
    match at {
        // An error means that the time has come.
        Some(at) => drop(timeout(at.since(now), never).await),
        None => never.await,
    }
}

async fn wake(app: &App, session: SessionId, route: WakeRoute) {
    let routes = app.registry.wake_routes();
    let woken = session.clone();
    let sentence = app.engine.read(move |view| view.engine.wake_sentence(&woken)).await;
    // Nothing to say: its turn has begun, or the daemon stops.
    let Some(sentence) = sentence.ok().flatten().filter(|_| routes.is_requested(&session)) else { return };
    match route {
        WakeRoute::Follower => routes.print(&session, &sentence.into()),
        WakeRoute::MessageSocket => push(app, &session, &sentence).await,
    }
}

async fn push(app: &App, session: &SessionId, sentence: &str) {
    let routes = app.registry.wake_routes();
    let Some(known) = routes.sockets.get(session).map(|known| known.clone()) else { return };
    match try_push(app, session, &known, sentence).await {
        Ok(Pushed::Written) => {}
        Ok(Pushed::Held) => {
            tracing::info!(%session, "the client holds messages of others; its next hook is used");
            routes.note_held(session);
        }
        Ok(Pushed::NotYet) => routes.note_not_yet(session, app.now()),
        Err(error) => {
            tracing::info!(%session, %error, "a client's message socket accepts nothing; its next hook is used");
            routes.sockets.remove_if(session, |_, other| *other == known);
            routes.note_failed(session);
            // The client may have ended.
            routes.processes().look();
        }
    }
}

async fn try_push(app: &App, session: &SessionId, known: &KnownSocket, sentence: &str) -> io::Result<Pushed> {
    if is_held(app, session, known).await {
        return Ok(Pushed::Held);
    }
    if known.socket.may_exit && !waits_for_prompt(app, session, known).await {
        return Ok(Pushed::NotYet);
    }
    let mut connection = connect(known).await?;
    let lines = known.socket.message(sentence);
    let write = async {
        connection.write_all(lines.as_bytes()).await?;
        connection.shutdown().await
    };
    timeout(SOCKET_TIMEOUT, write).await.map_err(io::Error::from).flatten()?;
    Ok(Pushed::Written)
}

/// Whether the client keeps a message from its model: as its user has set, else in the session's
/// mode, unless the client started this daemon.
pub(super) async fn is_held(app: &App, session: &SessionId, known: &KnownSocket) -> bool {
    let routes = app.registry.wake_routes();
    let folder = routes.client_folder(session);
    let read = run_blocking(move || {
        let folder = folder?;
        let sockets = folder.kind.hooks()?.message_sockets.as_ref()?;
        (sockets.inbound)(&read_settings(&folder)?)
    });
    // An error means that the daemon stops.
    match read.await.ok().flatten() {
        Some(set) => set == Inbound::Holds,
        None => routes.is_holding(session) && !is_below(std::process::id(), known.client),
    }
}

/// Whether the client's own file shows that it waits for a prompt in the session.
async fn waits_for_prompt(app: &App, session: &SessionId, known: &KnownSocket) -> bool {
    let Some(folder) = app.registry.wake_routes().client_folder(session) else { return false };
    let (kind, client) = (folder.kind, known.client);
    let read = run_blocking(move || read_session_file(&folder, client));
    let file = read.await.ok().flatten();
    file.is_some_and(|file| file.is_idle && kind.calls(session, &file.session_id))
}

/// Connects to the client's socket. An API client could name any socket of this user, so the peer
/// must be the client's own process.
async fn connect(known: &KnownSocket) -> io::Result<UnixStream> {
    let socket = known.socket.path.as_path();
    let own = rustix::process::geteuid().as_raw();
    let file = std::fs::symlink_metadata(socket)?;
    if !file.file_type().is_socket() || file.uid() != own {
        return Err(io::Error::other("it is not a socket of this user"));
    }
    let connection = timeout(SOCKET_TIMEOUT, UnixStream::connect(socket)).await??;
    let listener = connection.peer_cred()?;
    let pid = listener.pid().and_then(|pid| u32::try_from(pid).ok());
    if listener.uid() != own || pid.and_then(running) != Some(known.client) {
        return Err(io::Error::other("the process that listens there is not the client"));
    }
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::harness::{process::Process, wake::MessageSocket};

    #[tokio::test]
    async fn only_the_clients_own_process_may_listen() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let own = running(std::process::id()).expect("this one");
        let at = |socket: &Path, client: Process| KnownSocket { socket: MessageSocket::at(socket), client };
        let refused = async |known: KnownSocket| connect(&known).await.err().map(|error| error.to_string());
        let listener = tokio::net::UnixListener::bind(&path).expect("bound");
        assert_eq!(refused(at(&path, own)).await, None);
        let stranger = Some("the process that listens there is not the client".to_owned());
        assert_eq!(refused(at(&path, Process { pid: own.pid + 1, ..own })).await, stranger);
        assert_eq!(refused(at(&path, Process { started: own.started + 1, ..own })).await, stranger);
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("written");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        for no_socket in [file, link] {
            let expected = Some("it is not a socket of this user".to_owned());
            assert_eq!(refused(at(&no_socket, own)).await, expected);
        }
        drop(listener);
        assert!(refused(at(&path, own)).await.is_some());
    }
}
