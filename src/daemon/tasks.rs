//! Tasks of the runtime, and work that may block.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::task::{JoinError, spawn_blocking};

/// A future behind a pointer. Tokio compiles its code for each type of task that is started, twice,
/// so tasks are started in this form.
pub(crate) type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Runs `work` on a thread that may block, from now on; the work goes on when the future is dropped.
///
/// Errors: the work panicked, or the runtime stops.
pub(crate) fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, JoinError>> + Send {
    let result = Arc::new(Mutex::new(None));
    let place = Arc::clone(&result);
    // One type for all work, for the reason that `Task` has.
    let work: Box<dyn FnOnce() + Send> = Box::new(move || {
        let made = work();
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
    });
    let ended = spawn_blocking(work);
    async move {
        ended.await?;
        let made = result.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(made.expect("work that ended has a result"))
    }
}
