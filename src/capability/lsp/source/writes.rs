//! The queue of session calls that changed files, from the hooks to the source.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

use crate::capability::lsp::Writer;

/// Most queued calls. The oldest is evicted for a new one; its changes of open files are found by
/// the next look at them.
const CALLS_MAX: usize = 256;

/// A queue, which is empty while nobody takes from it.
#[derive(Debug, Default)]
pub struct Writes {
    queue: Mutex<Queue>,
    has_some: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    is_open: bool,
    calls: VecDeque<Wrote>,
}

/// The calls that ended before one exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrote {
    /// The session.
    pub writer: Writer,
    /// The files that the calls named as written. Other files may have changed too.
    pub paths: Vec<Arc<str>>,
}

impl Writes {
    /// Sets whether the queue has a consumer.
    pub fn set_open(&self, is_open: IsOpen) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.is_open = is_open == IsOpen::Yes;
        if !queue.is_open {
            queue.calls = VecDeque::new();
        }
    }

    /// Adds the result of `wrote`, which is not called if the queue has no consumer.
    pub fn add(&self, wrote: impl FnOnce() -> Wrote) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if !queue.is_open {
            return;
        }
        if queue.calls.len() >= CALLS_MAX {
            queue.calls.pop_front();
        }
        queue.calls.push_back(wrote());
        drop(queue);
        self.has_some.notify_one();
    }

    /// Takes the oldest entry, or waits for one. Cancel safe.
    pub async fn next(&self) -> Wrote {
        loop {
            let next = self.queue.lock().unwrap_or_else(PoisonError::into_inner).calls.pop_front();
            match next {
                Some(next) => return next,
                None => self.has_some.notified().await,
            }
        }
    }
}

/// Whether the queue has a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsOpen {
    /// The source is on.
    Yes,
    /// The source is off.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::event::SessionId;

    fn wrote(number: usize) -> Wrote {
        let writer = Writer { session: SessionId::new("s"), workspace: None };
        Wrote { writer, paths: vec![number.to_string().into()] }
    }

    #[tokio::test]
    async fn write_queue_keeps_newest_calls_only_while_open() {
        let writes = Writes::default();
        writes.add(|| panic!("nobody takes it"));
        writes.set_open(IsOpen::Yes);
        for number in 0..CALLS_MAX + 2 {
            writes.add(|| wrote(number));
        }
        assert_eq!((writes.next().await, writes.next().await), (wrote(2), wrote(3)));
        writes.set_open(IsOpen::No);
        writes.set_open(IsOpen::Yes);
        writes.add(|| wrote(1));
        assert_eq!(writes.next().await, wrote(1));
    }
}
