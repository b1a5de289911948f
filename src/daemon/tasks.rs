//! Tasks of the runtime, work that may block, and streams of what a future makes.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, resume_unwind},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::FutureExt;
use tokio::{
    sync::mpsc::{Sender, channel},
    task::{JoinError, spawn_blocking},
};
use tokio_stream::{Stream, StreamExt, once, wrappers::ReceiverStream};

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

/// A stream of what `work` sends, and of its result.
///
/// Shape: `work` runs while the stream is read, in the reader's task, and is dropped with the stream.
/// It waits while `room` items are unread. The result is the last item, as an error.
///
/// Panics: with `work`, after its items have been read.
pub(crate) fn produced<T, W: Future>(
    room: usize,
    work: impl FnOnce(Sender<T>) -> W,
) -> impl Stream<Item = Result<T, W::Output>> {
    let (sender, items) = channel(room);
    let last = sender.clone();
    let work = once((work(sender), last)).then(move |(work, last)| async move {
        // After a panic nothing of it is used any more.
        let result = AssertUnwindSafe(work).catch_unwind().await;
        // All of it is free once every item has been read.
        drop(last.reserve_many(room).await);
        Err(result.unwrap_or_else(|panic| resume_unwind(panic)))
    });
    ReceiverStream::new(items).map(Ok).merge(work)
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use super::*;

    #[tokio::test]
    async fn an_item_is_made_when_there_is_room() {
        let made = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&made);
        let mut stream = pin!(produced(1, |items| async move {
            for number in 0..5 {
                counted.fetch_add(1, Ordering::Relaxed);
                items.send(number).await.expect("it is read");
            }
            "done"
        }));
        assert_eq!(made.load(Ordering::Relaxed), 0, "nobody reads");
        assert_eq!(stream.next().await, Some(Ok(0)));
        assert!(made.load(Ordering::Relaxed) <= 3, "one is unread, and one waits");
        assert_eq!(stream.collect::<Vec<_>>().await, [Ok(1), Ok(2), Ok(3), Ok(4), Err("done")]);
    }

    #[tokio::test]
    async fn the_work_is_dropped_with_the_stream() {
        let held = Arc::new(());
        let inside = Arc::clone(&held);
        let mut stream = Box::pin(produced(1, |items| async move {
            items.send(()).await.expect("it is read");
            std::future::pending::<()>().await;
            drop(inside);
        }));
        stream.next().await.expect("one").expect("an item");
        assert_eq!(Arc::strong_count(&held), 2);
        drop(stream);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
