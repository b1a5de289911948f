//! Bounds the concurrent calls of a connection: further input is not read until a call is answered.
//!
//! `rmcp` spawns a task for each request without a bound.

use std::{
    collections::HashSet,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use rmcp::{
    model::{ClientNotification, JsonRpcMessage, RequestId},
    service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::sync::Notify;

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
