//! What the calls of sessions did to files, on its way from the hooks to the source.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

use crate::lsp::Writer;

/// Most calls that wait. The oldest is evicted for another one; what it changed in an open file is
/// found by the next look at that.
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
    /// Whose.
    pub writer: Writer,
    /// The files that they say they wrote. They may have changed others as well.
    pub paths: Vec<Arc<str>>,
}

impl Writes {
    /// Says whether somebody takes from it.
    pub fn set_open(&self, is_open: IsOpen) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.is_open = is_open == IsOpen::Yes;
        if !queue.is_open {
            queue.calls = VecDeque::new();
        }
    }

    /// Adds what `wrote` gives, which is not asked if nobody takes from the queue.
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

    /// Takes the oldest, or waits for one. Nothing is lost when this is given up.
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

/// Whether somebody takes from the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsOpen {
    /// The source is on.
    Yes,
    /// It is off.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SessionId;

    fn wrote(number: usize) -> Wrote {
        let writer = Writer { session: SessionId::new("s"), workspace: None };
        Wrote { writer, paths: vec![number.to_string().into()] }
    }

    #[tokio::test]
    async fn the_newest_are_kept_and_none_while_it_is_closed() {
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
