//! The inputs of sources as streams.

use tokio::sync::watch::Receiver;
use tokio_stream::{Stream, StreamExt, wrappers::WatchStream};

/// The newest value of an input, first and after each change. It ends with the event loop.
pub(crate) fn values<T: Clone + Send + Sync + 'static>(input: &Receiver<T>) -> WatchStream<T> {
    WatchStream::new(input.clone())
}

/// One item for each change of an input, until the event loop ends.
pub(crate) fn changes<T: Clone + Send + Sync + 'static>(
    input: &Receiver<T>,
) -> impl Stream<Item = ()> + Send + Unpin + use<T> {
    let mut input = input.clone();
    // The value before the first change is read by the caller.
    input.mark_unchanged();
    WatchStream::from_changes(input).map(drop)
}
