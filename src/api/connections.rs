//! Serves one listener: accepts connections, bounds their number and time, and closes them so that
//! the client can read its answer.
//!
//! Bounds: [`CONNECTIONS_MAX`] connections, where the ones that have waited longest for their
//! clients are evicted for new ones; [`places::HEAD_LOOKS_MAX`] seconds for the head of each
//! request, including the first; [`guarded::READ_WAIT_MAX`] for a client to read. The bounds of
//! bodies are in `bodies`.

mod guarded;
mod places;

use std::{
    convert::Infallible,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Router, extract::ConnectInfo, http::Request, response::Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::watch,
    task::JoinSet,
    time::timeout,
};

use self::{
    guarded::Guarded,
    places::{Place, Places},
};
use super::{
    auth::Peer,
    bodies::{self, Answer},
};

use crate::daemon::tasks::Task;

pub(in crate::api) use places::{CONNECTIONS_MAX, For, Unanswered, Waits};

/// Buffer for bytes read or to be written; a head has to fit into it.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Pause after the system failed to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The origin of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A process of this machine, over the Unix socket.
    Local(Peer),
    /// A program that reaches the port.
    Network,
}

/// A connection after a protocol upgrade.
pub(crate) struct TakenOver {
    /// Bytes after the request that were read with it.
    pub(crate) read: Bytes,
    /// The connection.
    pub(crate) io: Box<dyn Duplex>,
}

/// A bidirectional byte stream.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// Extension of a `101` answer: the handler that takes over the connection.
#[derive(Clone)]
pub(crate) struct Takeover(pub(crate) Arc<dyn Fn(TakenOver) -> BoxFuture<'static, ()> + Send + Sync>);

/// A listener.
pub(crate) trait Accept: Send + Sync {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts the next connection. Cancel-safe.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Io, Origin)>> + Send;
}

impl Accept for UnixListener {
    type Io = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Origin)> {
        let (connection, _) = self.accept().await?;
        let peer = Peer::of(&connection);
        Ok((connection, Origin::Local(peer)))
    }
}

impl Accept for TcpListener {
    type Io = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Origin)> {
        let (connection, _) = self.accept().await?;
        // Answers are small and awaited. A connection without this option works as well.
        drop(connection.set_nodelay(true));
        Ok((connection, Origin::Network))
    }
}

/// Serves the connections of `listener` until `stopping` is true and open requests are answered.
pub(crate) async fn serve<A: Accept>(listener: A, router: Router, stopping: watch::Receiver<bool>) {
    let mut places = Places::new(CONNECTIONS_MAX);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopped(stopping.clone()) => break,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let (io, origin) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_the_client(&error) => continue,
            Err(error) => {
                // Usually too many files are open, so a waiting connection has to be evicted.
                tracing::warn!(%error, "no connection can be accepted");
                places.evict_longest(1);
                timeout(ACCEPT_PAUSE, stopped(stopping.clone())).await.ok();
                continue;
            }
        };
        let place = tokio::select! {
            () = stopped(stopping.clone()) => break,
            place = places.take() => place,
        };
        let connection: Task<()> = Box::pin(serve_one(io, origin, place, router.clone(), stopping.clone()));
        connections.spawn(connection);
    }
    while connections.join_next().await.is_some() {}
}

/// Whether the client closed the connection before it was accepted. Such an error is not a failure
/// of the listener.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Waits until the daemon stops; a closed channel means the same.
async fn stopped(mut stopping: watch::Receiver<bool>) {
    drop(stopping.wait_for(|is_stopping| *is_stopping).await);
}

/// Serves one connection until it ends, is evicted, or its client is silent for too long.
async fn serve_one<T>(io: T, origin: Origin, place: Place, router: Router, stopping: watch::Receiver<bool>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let waits = Arc::clone(place.waits());
    let next = Mutex::new(None);
    let answer = service_fn(|request| answer_one(request, origin, &waits, &router, &next));
    let io = TokioIo::new(Guarded::new(io, Arc::clone(&waits)));
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(io, answer);
    let served = async {
        tokio::select! {
            ended = &mut connection => return ended,
            () = stopped(stopping) => {}
        }
        std::pin::Pin::new(&mut connection).graceful_shutdown();
        (&mut connection).await
    };
    let ended = tokio::select! {
        biased;
        () = place.evicted() => return,
        ended = served => ended,
        () = waits.head_timeout() => return,
    };
    // A client that disconnected or was too slow reads no answer. A client that did not send HTTP
    // does.
    if ended.is_ok() || ended.is_err_and(|error| error.is_parse()) {
        let parts = connection.into_parts();
        let io = parts.io.into_inner();
        let next = next.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Takeover(serve)) = next {
            // An upgraded connection has a separate place.
            drop(place);
            return serve(TakenOver { read: parts.read_buf, io: Box::new(io) }).await;
        }
        tokio::select! {
            () = place.evicted() => {}
            () = io.close() => {}
        }
    }
}

/// Answers one request.
async fn answer_one(
    request: Request<Incoming>,
    origin: Origin,
    waits: &Arc<Waits>,
    router: &TowerToHyperService<Router>,
    next: &Mutex<Option<Takeover>>,
) -> Result<Response<Answer>, Infallible> {
    let unanswered = waits.request();
    let (mut request, outcome) = bodies::receive(request, waits);
    if let Origin::Local(peer) = origin {
        request.extensions_mut().insert(ConnectInfo(peer));
    }
    let mut response = router.call(request).await?;
    outcome.close_connection_if_unread(&mut response);
    if let Some(takeover) = response.extensions_mut().remove::<Takeover>() {
        *next.lock().unwrap_or_else(PoisonError::into_inner) = Some(takeover);
    }
    Ok(response.map(|body| Answer::new(body, unanswered)))
}
