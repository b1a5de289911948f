//! Writes to the message sockets of clients.

use std::{
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use tokio::{io::AsyncWriteExt, net::UnixStream, time::timeout};

use crate::{
    event::{EventRef, SessionId},
    exchange::{Budget, Exchange, Format, Injection, Trigger},
    harness::message_socket::MessageSocket,
    notification::InjectionPoint,
    publisher::Records,
    server::{App, exchange::perform, wake_routes::KnownSocket},
    source::process::running,
};

/// How long a client may take to accept a connection or a message; a stuck client must not delay
/// the others.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(2);
/// Most concurrent writes to message sockets.
const PUSHES_MAX: usize = 8;
/// Most characters of a pushed injection: it arrives unrequested, and stays in the context.
pub(crate) const PUSH_CHARS_MAX: u32 = 2_000;

/// Writes to message sockets until the daemon stops.
///
/// Errors: none; a client that accepts no message is reached by its next hook.
pub async fn push_wakes(app: App) -> io::Result<()> {
    let routes = Arc::clone(app.registry.wake_routes());
    loop {
        tokio::select! {
            () = routes.ready.notified() => {}
            () = app.stopped() => return Ok(()),
        }
        let due = stream::iter(routes.take_due());
        due.for_each_concurrent(PUSHES_MAX, |session| push(&app, session)).await;
    }
}

async fn push(app: &App, session: SessionId) {
    let routes = app.registry.wake_routes();
    let Some(known) = routes.sockets.get(&session).map(|known| known.clone()) else { return };
    if !routes.is_for_socket(&session) {
        return;
    }
    // Connects first, so that no notification is released without a receiver.
    let outcome = match connect(&known).await {
        Ok(connection) => hand_over(app, &session, &known.socket, connection).await,
        Err(error) => Err(error),
    };
    if let Err(error) = outcome {
        tracing::info!(%session, %error, "a client's message socket accepts nothing; its next hook is used");
        routes.sockets.remove_if(&session, |_, other| *other == known);
    }
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

async fn hand_over(
    app: &App,
    session: &SessionId,
    socket: &MessageSocket,
    mut connection: UnixStream,
) -> io::Result<()> {
    let number = app.registry.wake_routes().next.fetch_add(1, Ordering::Relaxed);
    let carrier = format!("message:{}:{number}", app.now().as_millis());
    let exchange = Exchange {
        budget: Budget { max_chars: Some(PUSH_CHARS_MAX), ..Budget::default() },
        format: Some(Format::Xml),
        trigger: Trigger::Wake,
        ..Exchange::new(session.clone(), InjectionPoint::TurnStart, &carrier)
    };
    let answer = perform(app, std::iter::empty::<EventRef<'_>>(), &exchange).await;
    let answer = answer.map_err(|error| io::Error::other(error.to_string()))?;
    let Some(injection) = answer.injection else { return Ok(()) };
    let lines = socket.message(&injection);
    let write = async {
        connection.write_all(lines.as_bytes()).await?;
        connection.shutdown().await
    };
    let written = timeout(SOCKET_TIMEOUT, write).await.map_err(io::Error::from).flatten();
    if written.is_err() {
        take_back(app, session, &injection).await;
    }
    written
}

async fn take_back(app: &App, session: &SessionId, injection: &Injection) {
    let undelivered = Records::build(|records| records.undelivered(session, &injection.id));
    if let Err(error) = app.publisher.append(undelivered).await {
        tracing::error!(%error, "an injection could not be taken back");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::harness::process::Process;

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
