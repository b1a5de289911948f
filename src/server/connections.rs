//! How many connections are open at once, and what becomes of the next one.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// Most open connections of one listener: a few for each of some hundred sessions, and below the 1,024 files that a process
/// usually may open.
pub(crate) const CONNECTIONS_MAX: usize = 512;

/// A listener that takes no further connection while too many are open; the next one waits in the system's backlog.
pub(crate) struct Limited<L> {
    listener: L,
    permits: Arc<Semaphore>,
}

/// A connection that counts until it is closed.
pub(crate) struct Counted<T> {
    io: T,
    _permit: OwnedSemaphorePermit,
}

impl<L> Limited<L> {
    /// Takes at most `connections_max` connections at once.
    pub(crate) fn new(listener: L, connections_max: usize) -> Self {
        Self { listener, permits: Arc::new(Semaphore::new(connections_max)) }
    }
}

impl<T> Counted<T> {
    /// The connection itself.
    pub(crate) fn io(&self) -> &T {
        &self.io
    }
}

impl<L: Listener> Listener for Limited<L> {
    type Io = Counted<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("the semaphore is never closed");
        let (io, address) = self.listener.accept().await;
        (Counted { io, _permit: permit }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
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
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::net::{UnixListener, UnixStream};

    use super::*;

    #[tokio::test]
    async fn a_connection_over_the_limit_waits_until_another_one_closes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let mut limited = Limited::new(UnixListener::bind(&path).expect("bound"), 1);
        let _clients = [
            UnixStream::connect(&path).await.expect("connected"),
            UnixStream::connect(&path).await.expect("connected"),
        ];
        let (first, _) = limited.accept().await;
        assert!(limited.accept().now_or_never().is_none());
        drop(first);
        let (_second, _) = limited.accept().await;
    }
}
