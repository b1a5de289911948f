//! The byte stream of a connection: bounds unread writes, and notes what the connection waits for.
#![expect(clippy::disallowed_methods, reason = "a connection whose client does not read is closed in time")]

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::{Sleep, sleep, timeout},
};

use super::places::{For, Waits};

/// How long a client may leave written bytes unread before its connection is closed.
pub(super) const READ_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long an answered connection stays open for further bytes of the client.
const LINGER_WAIT_MAX: Duration = Duration::from_secs(5);
/// Most bytes that are read in that time: four times the largest accepted body.
const LINGER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A connection that notes in [`Waits`] what it waits for.
#[derive(Debug)]
pub(super) struct Guarded<T> {
    io: T,
    waits: Arc<Waits>,
    /// Runs while the client does not read.
    limit: Option<Pin<Box<Sleep>>>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Guarded<T> {
    pub(super) fn new(io: T, waits: Arc<Waits>) -> Self {
        Self { io, waits, limit: None }
    }

    /// Ends an answered connection so that the client can read the answer.
    ///
    /// Closing a socket while the client still writes makes its next write fail, and the client
    /// then loses the answer. So this stops writing, and reads and discards further input.
    pub(super) async fn close(mut self) {
        if self.io.shutdown().await.is_err() {
            return;
        }
        let mut rest = (&mut self).take(LINGER_BYTES_MAX);
        let mut nothing = tokio::io::sink();
        timeout(LINGER_WAIT_MAX, tokio::io::copy(&mut rest, &mut nothing)).await.ok();
    }

    /// Notes the result of a write; an error if the client has not read for too long.
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
