//! Bounds a connection before `rmcp` sees its input: the concurrent calls, and the values of a
//! message.
//!
//! `rmcp` spawns a task for each request without a bound; here further input is not read until a call
//! is answered. A message of empty objects takes some fifty times its length as a tree, and `rmcp`
//! builds it for each kind of request that it could be; here a message with too many values for any
//! call is cut before it is parsed.

use std::{
    collections::HashSet,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use rmcp::{
    model::{ClientNotification, JsonRpcMessage, RequestId},
    service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::{
    io::{AsyncRead, ReadBuf},
    sync::Notify,
};

/// Most unanswered calls of a connection; an agent makes a few in parallel.
pub(super) const CALLS_MAX: usize = 16;

/// The messages of `T`, with a bound on unanswered requests.
pub(super) struct Bounded<T> {
    messages: T,
    open: Arc<Open>,
}

/// The unanswered requests.
#[derive(Default)]
struct Open {
    ids: Mutex<HashSet<RequestId>>,
    ended: Notify,
}

impl<T> Bounded<T> {
    pub(super) fn new(messages: T) -> Self {
        Self { messages, open: Arc::default() }
    }
}

impl Open {
    fn with_ids<R>(&self, then: impl FnOnce(&mut HashSet<RequestId>) -> R) -> R {
        then(&mut self.ids.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn room(&self) {
        while self.with_ids(|ids| ids.len() >= CALLS_MAX) {
            self.ended.notified().await;
        }
    }

    fn end(&self, id: &RequestId) {
        if self.with_ids(|ids| ids.remove(id)) {
            self.ended.notify_one();
        }
    }

    /// Updates the open requests: a request needs an answer, a cancellation ends one.
    fn note(&self, message: &RxJsonRpcMessage<RoleServer>) {
        match message {
            JsonRpcMessage::Request(request) => {
                self.with_ids(|ids| ids.insert(request.id.clone()));
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification {
                    cancelled.params.request_id.iter().for_each(|id| self.end(id));
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
    }
}

impl<T: Transport<RoleServer, Error = io::Error>> Transport<RoleServer> for Bounded<T> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let (sent, open) = (self.messages.send(message), Arc::clone(&self.open));
        async move {
            let sent = sent.await;
            answered.iter().for_each(|id| open.end(id));
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.open.room().await;
        let message = self.messages.receive().await?;
        self.open.note(&message);
        Some(message)
    }

    fn close(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        self.messages.close()
    }
}

/// Most values, keys and levels of a message together; a call has some ten.
pub(super) const VALUES_MAX: usize = 1_000;

/// The bytes of `R`; a line with too many values ends at the first one too many, where it is no
/// JSON.
#[derive(Debug)]
pub(super) struct Screened<R> {
    from: R,
    line: Line,
}

/// The state of the current line.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    values: usize,
    is_in_string: bool,
    is_escaped: bool,
    /// Whether its end was sent already, and the rest is dropped.
    is_cut: bool,
}

impl<R> Screened<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, line: Line::default() }
    }
}

impl Line {
    /// Removes what is to be dropped from the next bytes; returns how many are left.
    fn screen(&mut self, bytes: &mut [u8]) -> usize {
        let mut kept = 0;
        for at in 0..bytes.len() {
            let Some(byte) = bytes.get(at).copied() else { break };
            let shown = self.take(byte);
            if let (Some(shown), Some(place)) = (shown, bytes.get_mut(kept)) {
                *place = shown;
                kept += 1;
            }
        }
        kept
    }

    fn take(&mut self, byte: u8) -> Option<u8> {
        if byte == b'\n' {
            let is_cut = self.is_cut;
            *self = Self::default();
            return (!is_cut).then_some(byte);
        }
        if self.is_cut {
            return None;
        }
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' if self.is_in_string => self.is_escaped = true,
            b'"' => self.is_in_string = !self.is_in_string,
            b'{' | b'[' | b',' | b':' if !self.is_in_string => self.values += 1,
            _ => {}
        }
        self.is_cut = self.values > VALUES_MAX;
        Some(if self.is_cut { b'\n' } else { byte })
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Screened<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        loop {
            ready!(Pin::new(&mut self.from).poll_read(cx, into))?;
            let read = into.filled_mut().get_mut(before..).expect("what was filled stays");
            if read.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let kept = self.line.screen(read);
            into.set_filled(before + kept);
            // No byte would mean the end.
            if kept > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn screened(text: &str) -> String {
        let mut read = String::new();
        Screened::new(text.as_bytes()).read_to_string(&mut read).await.expect("read");
        read
    }

    #[tokio::test]
    async fn a_line_of_too_many_values_is_cut() {
        let text = format!("{{\"a\":\"{}\\\"{{\"}}\n", "{[,:".repeat(VALUES_MAX));
        assert_eq!(screened(&text).await, text, "text is no value");
        let most = format!("[{}1]\n", "1,".repeat(VALUES_MAX - 1));
        assert_eq!(screened(&most).await, most);
        let many = format!("[{}]\n{{}}\nlast", "{},".repeat(VALUES_MAX * 100));
        let read = screened(&many).await;
        assert!(read.ends_with("\n{}\nlast") && read.len() < 3 * VALUES_MAX, "{} bytes", read.len());
    }
}
