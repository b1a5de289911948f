//! Request and response bodies, and their effect on the connection.
//!
//! An incoming body is noted in the connection's [`Waits`] while its client does not send. A body
//! that was not read to its end, and any body of a refused request, closes the connection after the
//! answer: the next bytes may be the rest of that body and not a request.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use axum::{
    body::Body,
    http::{HeaderValue, Request, header},
    response::Response,
};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};

use super::places::{For, Unanswered, Waits};

/// An incoming body of a connection.
#[derive(Debug)]
struct Received {
    body: Incoming,
    waits: Arc<Waits>,
    outcome: BodyOutcome,
}

/// The outcome of a request's body.
#[derive(Debug, Clone)]
pub(super) struct BodyOutcome {
    /// Whether the request has a body.
    is_there: bool,
    /// Whether it was dropped before its end.
    was_given_up: Arc<AtomicBool>,
}

/// The body of an answer; until it is dropped, the connection counts as working.
#[derive(Debug)]
pub(super) struct Answer {
    body: Body,
    _unanswered: Unanswered,
}

/// Wraps the body of a request, so that it is noted in `waits`.
pub(super) fn receive(request: Request<Incoming>, waits: &Arc<Waits>) -> (Request<Body>, BodyOutcome) {
    let is_there = !request.body().is_end_stream();
    let outcome = BodyOutcome { is_there, was_given_up: Arc::default() };
    let request =
        request.map(|body| Body::new(Received { body, waits: Arc::clone(waits), outcome: outcome.clone() }));
    (request, outcome)
}

impl BodyOutcome {
    /// Sends `Connection: close` if the body requires it.
    pub(super) fn close_connection_if_unread(&self, response: &mut Response) {
        let status = response.status();
        let is_refused = status.is_client_error() || status.is_server_error();
        if self.is_there && (is_refused || self.was_given_up.load(Ordering::Relaxed)) {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match polled {
            Poll::Pending => self.waits.wait(For::Body),
            Poll::Ready(_) => self.waits.came(For::Body),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.waits.came(For::Body);
        self.outcome.was_given_up.store(!self.body.is_end_stream(), Ordering::Relaxed);
    }
}

impl Answer {
    /// The answer `body` of a request that stays `unanswered` until the body ends.
    pub(super) fn new(body: Body, unanswered: Unanswered) -> Self {
        Self { body, _unanswered: unanswered }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
