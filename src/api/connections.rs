//! Serves one listener: accepts connections, bounds their number and time, and closes them so that
//! the client can read its answer.
//!
//! Bounds: [`CONNECTIONS_MAX`] connections, where the ones that have waited longest for their
//! clients are evicted for new ones; [`places::HEAD_LOOKS_MAX`] seconds for the head of each
//! request, including the first; [`READ_WAIT_MAX`] for a client to read. The bounds of
//! bodies are in `bodies`.

mod bodies;
mod places;

use std::{
    convert::Infallible,
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
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
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::watch,
    task::JoinSet,
    time::{Sleep, sleep, timeout},
};

use self::{
    bodies::Answer,
    places::{For, Place, Places, Waits},
};
use super::auth::Peer;
use crate::daemon::tasks::Task;

pub(in crate::api) use places::CONNECTIONS_MAX;

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

/// How long a client may leave written bytes unread before its connection is closed.
const READ_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long an answered connection stays open for further bytes of the client.
const LINGER_WAIT_MAX: Duration = Duration::from_secs(5);
/// Most bytes that are read in that time: four times the largest accepted body.
const LINGER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A connection that notes in [`Waits`] what it waits for.
#[derive(Debug)]
struct Guarded<T> {
    io: T,
    waits: Arc<Waits>,
    /// Runs while the client does not read.
    limit: Option<Pin<Box<Sleep>>>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Guarded<T> {
    fn new(io: T, waits: Arc<Waits>) -> Self {
        Self { io, waits, limit: None }
    }

    /// Ends an answered connection so that the client can read the answer.
    ///
    /// Closing a socket while the client still writes makes its next write fail, and the client
    /// then loses the answer. So this stops writing, and reads and discards further input.
    async fn close(mut self) {
        if self.io.shutdown().await.is_err() {
            return;
        }
        let mut rest = (&mut self).take(LINGER_BYTES_MAX);
        let mut nothing = tokio::io::sink();
        timeout(LINGER_WAIT_MAX, tokio::io::copy(&mut rest, &mut nothing)).await.ok();
    }

    /// Notes the result of a write; an error if the client has not read for too long.
    #[expect(
        clippy::disallowed_methods,
        reason = "a connection whose client does not read is closed in time"
    )]
    fn note<W>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<W>>) -> Poll<io::Result<W>> {
        if written.is_ready() {
            if self.limit.take().is_some() {
                self.waits.came(For::Read);
            }
            return written;
        }
        self.waits.wait(For::Read);
        let limit = self.limit.get_or_insert_with(|| Box::pin(sleep(READ_WAIT_MAX)));
        match limit.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                tracing::warn!(
                    seconds = READ_WAIT_MAX.as_secs(),
                    "a connection whose client does not read is closed"
                );
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Guarded<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        if polled.is_pending() {
            self.waits.nothing_to_read();
        }
        polled
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guarded<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.note(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, buffers);
        self.note(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
