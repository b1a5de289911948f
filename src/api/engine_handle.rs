//! Queries of handlers to the event loop, which alone owns the engine.

use std::sync::Arc;

use engine::{Engine, event::Seq};
use journal::{meter::MonotonicClock, time::Timestamp};
use tokio::sync::{mpsc, oneshot};

use crate::api::{Pulse, error::ApiError};

/// Most queries that wait for the event loop; it answers each in microseconds, so reaching this
/// means that the loop is stuck.
pub const QUERIES_MAX: usize = 64;

/// A query: reads the engine, and sends its result to the handler itself.
pub type Query = Box<dyn FnOnce(&EngineView<'_>) + Send>;

/// The engine between two records, after every record that was written before the query.
pub struct EngineView<'a> {
    /// The engine.
    pub engine: &'a Engine,
    /// The position of the last applied record.
    pub applied: Seq,
    /// The time of the query.
    pub now: Timestamp,
}

/// Queries the event loop; cheap to clone.
#[derive(Debug, Clone)]
pub struct EngineHandle {
    queries: mpsc::Sender<Query>,
    pulse: Arc<Pulse>,
}

impl EngineHandle {
    /// Creates a handle and the receiver of the event loop.
    ///
    /// Shape: when [`QUERIES_MAX`] queries wait, the next caller waits too, because every query
    /// belongs to one connection.
    pub fn new(clock: MonotonicClock) -> (Self, mpsc::Receiver<Query>) {
        let (queries, receiver) = mpsc::channel(QUERIES_MAX);
        (Self { queries, pulse: Arc::new(Pulse::new(clock)) }, receiver)
    }

    /// The loop's record of its iterations, which can be read without waiting for it.
    pub fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// Reads the engine with `query`.
    ///
    /// Shape: `query` runs on the event loop between two records, so it copies what it needs, in
    /// microseconds, and opens no file. Errors: the daemon is stopping.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&EngineView<'_>) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (reply, answer) = oneshot::channel();
        // The requester may be gone.
        let query: Query = Box::new(move |view| drop(reply.send(query(view))));
        self.queries.send(query).await.map_err(|_| ApiError::stopping())?;
        answer.await.map_err(|_| ApiError::stopping())
    }

    /// Waits until the event loop has applied every record that is written now.
    ///
    /// Errors: the daemon is stopping.
    pub(crate) async fn caught_up(&self) -> Result<(), ApiError> {
        self.read(|_| ()).await
    }
}
