//! Queries of handlers to the event loop, which alone owns the engine, and the loop's pulse.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use engine::{Engine, event::Seq};
use journal::{meter::MonotonicClock, time::Timestamp};
use tokio::sync::{mpsc, oneshot};

use crate::api::error::ApiError;

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

/// The value in place of a start time: the loop is idle.
const WAITS: u64 = 0;

/// In place of the time of a first check: no check has seen waiting records.
const NOT_SEEN: u64 = 0;

/// The event loop's record of its iterations.
#[derive(Debug)]
pub struct Pulse {
    clock: MonotonicClock,
    /// Start of the current iteration, in milliseconds from 1 on, or [`WAITS`].
    begun: AtomicU64,
    /// When a check first saw records that wait for the idle loop, in the same unit, or
    /// [`NOT_SEEN`].
    behind_at: AtomicU64,
}

impl Pulse {
    /// The pulse of a loop before its first iteration.
    pub fn new(clock: MonotonicClock) -> Self {
        Self { clock, begun: AtomicU64::new(WAITS), behind_at: AtomicU64::new(NOT_SEEN) }
    }

    /// Notes the start of an iteration.
    pub fn begin(&self) {
        self.begun.store(self.now(), Ordering::Relaxed);
        self.behind_at.store(NOT_SEEN, Ordering::Relaxed);
    }

    /// Notes that the loop is idle.
    pub fn wait(&self) {
        self.begun.store(WAITS, Ordering::Relaxed);
        self.behind_at.store(NOT_SEEN, Ordering::Relaxed);
    }

    /// How long the current iteration has lasted, or how long the loop has been idle since a check
    /// first saw that records wait for it; `lag` is their present number.
    pub fn held_up(&self, lag: u64) -> Duration {
        let now = self.now();
        let since = match self.begun.load(Ordering::Relaxed) {
            WAITS if lag > 0 => {
                let first =
                    self.behind_at.compare_exchange(NOT_SEEN, now, Ordering::Relaxed, Ordering::Relaxed);
                first.map_or_else(|seen_at| seen_at, |_| now)
            }
            WAITS => {
                self.behind_at.store(NOT_SEEN, Ordering::Relaxed);
                return Duration::ZERO;
            }
            begun => begun,
        };
        Duration::from_millis(now.saturating_sub(since))
    }

    fn now(&self) -> u64 {
        u64::try_from((self.clock)().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static NOW: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn pulse_measures_long_iterations_and_unhandled_records() {
        let pulse = Pulse::new(|| Duration::from_millis(NOW.load(Ordering::Relaxed)));
        let after = |ms: u64, lag| {
            NOW.fetch_add(ms, Ordering::Relaxed);
            u64::try_from(pulse.held_up(lag).as_millis()).expect("small")
        };
        assert_eq!((after(7, 0), after(0, 1)), (0, 0), "it was idle for long, and has new records");
        assert_eq!((after(3, 1), after(4, 2)), (3, 7));
        assert_eq!((after(1, 0), after(9, 1)), (0, 0), "nothing was left unhandled meanwhile");
        pulse.begin();
        assert_eq!((after(0, 1), after(5, 0)), (0, 5));
        pulse.wait();
        assert_eq!((after(2, 1), after(3, 1)), (0, 3));
    }
}
