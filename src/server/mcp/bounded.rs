//! A connection of which only so many calls run at a time: what follows is not read until one has its answer.
//!
//! `rmcp` makes a task of each request as it comes, without a bound of its own.

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

/// Most calls of a connection that have no answer yet; an agent makes a few side by side.
pub(super) const CALLS_MAX: usize = 16;

/// The messages of `T`, as many as may be answered at a time.
pub(super) struct Bounded<T> {
    messages: T,
    open: Arc<Open>,
}

/// The requests that have no answer yet.
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
    fn with<R>(&self, then: impl FnOnce(&mut HashSet<RequestId>) -> R) -> R {
        then(&mut self.ids.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn room(&self) {
        while self.with(|ids| ids.len() >= CALLS_MAX) {
            self.ended.notified().await;
        }
    }

    fn end(&self, id: &RequestId) {
        if self.with(|ids| ids.remove(id)) {
            self.ended.notify_one();
        }
    }

    /// Notes what came: a request that needs an answer, or that one needs none any more.
    fn note(&self, message: &RxJsonRpcMessage<RoleServer>) {
        match message {
            JsonRpcMessage::Request(request) => {
                self.with(|ids| ids.insert(request.id.clone()));
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
