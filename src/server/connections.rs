//! How many connections are open at once, what becomes of the next one, and how long one may stay silent at its beginning.
#![expect(
    clippy::disallowed_methods,
    reason = "a connection that asks for nothing gives its place up in time"
)]

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Sleep, sleep},
};

/// Most open connections of one listener: a few for each of some hundred sessions, and below the 1,024 files that a process
/// usually may open.
pub(crate) const CONNECTIONS_MAX: usize = 512;

/// How long a connection may take to the end of its first request's head. A client sends that in one piece; whoever opens
/// [`CONNECTIONS_MAX`] connections and stays silent shuts others out for no longer.
const FIRST_HEAD_WAIT: Duration = Duration::from_secs(10);
/// What ends the head of a request.
const HEAD_END: &[u8; 4] = b"\r\n\r\n";

/// A listener that takes no further connection while too many are open; the next one waits in the system's backlog.
pub(crate) struct Limited<L> {
    listener: L,
    permits: Arc<Semaphore>,
}

/// A connection that counts until it is closed.
pub(crate) struct Counted<T> {
    io: T,
    first_head: Option<FirstHead>,
    _permit: OwnedSemaphorePermit,
}

/// A first request whose head is not complete.
#[derive(Default)]
struct FirstHead {
    /// Begins when there is something to wait for.
    limit: Option<Pin<Box<Sleep>>>,
    /// How much of [`HEAD_END`] was read last.
    matched: usize,
}

impl FirstHead {
    /// Takes note of what was read; whether the head is complete.
    fn ends_in(&mut self, read: &[u8]) -> bool {
        for byte in read {
            let begins_anew = usize::from(HEAD_END.first() == Some(byte));
            self.matched =
                if HEAD_END.get(self.matched) == Some(byte) { self.matched + 1 } else { begins_anew };
            if self.matched == HEAD_END.len() {
                return true;
            }
        }
        false
    }

    /// Whether it took too long.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let limit = self.limit.get_or_insert_with(|| Box::pin(sleep(FIRST_HEAD_WAIT)));
        limit.as_mut().poll(cx).is_ready()
    }
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
        (Counted { io, first_head: Some(FirstHead::default()), _permit: permit }, address)
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
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        let Some(head) = &mut self.first_head else { return polled };
        if polled.is_ready() {
            if head.ends_in(buf.filled().get(before..).unwrap_or_default()) {
                self.first_head = None;
            }
        } else if head.is_late(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
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
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{UnixListener, UnixStream},
    };

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

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_stays_silent_gives_its_place_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let mut limited = Limited::new(UnixListener::bind(&path).expect("bound"), 8);
        for (sent, is_complete) in
            [("", false), ("GET / HTTP/1.1\r\n", false), ("GET / HTTP/1.1\r\nhost: x\r\n\r\n", true)]
        {
            let mut client = UnixStream::connect(&path).await.expect("connected");
            let (mut served, _) = limited.accept().await;
            client.write_all(sent.as_bytes()).await.expect("sent");
            let mut read = vec![0; sent.len()];
            served.read_exact(&mut read).await.expect("read");
            let waited = tokio::time::timeout(2 * FIRST_HEAD_WAIT, served.read_u8()).await;
            match waited {
                Ok(error) => assert_eq!(error.expect_err("late").kind(), io::ErrorKind::TimedOut, "{sent:?}"),
                Err(_) => assert!(is_complete, "{sent:?}"),
            }
        }
    }

    #[test]
    fn the_end_of_a_head_is_found_in_pieces() {
        for pieces in [&["a\r\n\r\n"][..], &["a\r", "\n\r", "\n"], &["a\r\n\r\r\n", "\r\n"]] {
            let mut head = FirstHead::default();
            let (last, first) = pieces.split_last().expect("pieces");
            assert!(first.iter().all(|piece| !head.ends_in(piece.as_bytes())), "{pieces:?}");
            assert!(head.ends_in(last.as_bytes()), "{pieces:?}");
        }
    }
}
