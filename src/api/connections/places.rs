//! The open connections of one listener: their number, and which one is evicted for the next.
//!
//! A connection either waits for its client or works for it. It waits when no request is complete
//! (idle, or an incomplete head), when the rest of a body is missing, and when the client does not
//! read the answer. Only a waiting connection can be evicted, the one that has waited longest
//! first; so clients that hold connections never block one that sends.

use std::{
    future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use engine::sorted::SortedMap;

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Most open connections of one listener: a few for each of some hundred sessions, and below the
/// usual limit of 1,024 open files.
pub(in crate::api) const CONNECTIONS_MAX: usize = 512;
/// Interval of the search for a waiting connection while every place is taken by a working one.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How many [`HEAD_LOOK`]s a client may take for the head of a request, from the connection's start
/// or its last answer.
pub(super) const HEAD_LOOKS_MAX: u32 = 60;
/// Interval of the check of a client that has to send a head; its time limit is this inexact.
const HEAD_LOOK: Duration = Duration::from_secs(1);
/// How many waiting connections are evicted when every place is taken: more than one, so that a
/// burst of connections does not pay one eviction each.
const EVICTED_AT_ONCE: usize = 16;
/// The value in place of a wait number: the connection does not wait.
const NOT_WAITING: u64 = 0;

#[derive(Debug)]
pub(super) struct Places {
    permits: Arc<Semaphore>,
    open: Arc<Mutex<SortedMap<u64, Arc<Waits>>>>,
    opened: u64,
    /// Number of waits that began on this listener; each wait gets its own number.
    wait_numbers: Arc<AtomicU64>,
}

/// The place of one connection; released on drop.
#[derive(Debug)]
pub(super) struct Place {
    number: u64,
    waits: Arc<Waits>,
    open: Arc<Mutex<SortedMap<u64, Arc<Waits>>>>,
    _permit: OwnedSemaphorePermit,
}

/// The action of the client that a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// The client has to send the rest of a body.
    Body,
    /// The client has to read the written bytes.
    Read,
}

/// The waits of one connection, each with its number.
///
/// Shape: numbers count from 1 over all connections of a listener, so the lowest began first;
/// [`NOT_WAITING`] without a wait.
#[derive(Debug)]
pub(super) struct Waits {
    wait_numbers: Arc<AtomicU64>,
    head: AtomicU64,
    body: AtomicU64,
    read: AtomicU64,
    /// Requests without an answer: while there are any, the connection works and does not wait for
    /// a head.
    unanswered: AtomicU64,
    /// Notified when it begins to wait for a head.
    silent: Notify,
    evicted: Notify,
}

/// A request whose answer is not complete.
#[derive(Debug)]
pub(super) struct Unanswered(Arc<Waits>);

impl Waits {
    fn new(wait_numbers: Arc<AtomicU64>) -> Self {
        let [head, body, read, unanswered] = [const { AtomicU64::new(NOT_WAITING) }; 4];
        Self { wait_numbers, head, body, read, unanswered, silent: Notify::new(), evicted: Notify::new() }
    }

    /// Notes that nothing could be read. A new connection waits for its head from this moment;
    /// after an answer it waits at once.
    pub(super) fn nothing_to_read(&self) {
        if self.unanswered.load(Ordering::Relaxed) == 0 {
            self.wait_for_head();
        }
    }

    fn wait_for_head(&self) {
        if self.begin(&self.head) {
            self.silent.notify_one();
        }
    }

    /// Waits until the client has taken too long for a request's head.
    ///
    /// Shape: a request starts no timer, because that would wake another thread; a running one ends
    /// within [`HEAD_LOOK`] of it.
    pub(super) async fn head_timeout(&self) {
        let (mut seen, mut looks) = (NOT_WAITING, 0);
        loop {
            let head = self.head.load(Ordering::Relaxed);
            if head == NOT_WAITING {
                self.silent.notified().await;
                continue;
            }
            (seen, looks) = if head == seen { (seen, looks + 1) } else { (head, 0) };
            if looks == HEAD_LOOKS_MAX {
                return;
            }
            timeout(HEAD_LOOK, future::pending::<()>()).await.ok();
        }
    }

    /// Notes the start of a wait, unless it waits already.
    pub(super) fn wait(&self, what: For) {
        self.begin(self.wait_of(what));
    }

    /// Notes the end of a wait.
    pub(super) fn came(&self, what: For) {
        self.wait_of(what).store(NOT_WAITING, Ordering::Relaxed);
    }

    /// Notes that a request's head is complete; the request is unanswered until the returned value
    /// is dropped.
    pub(super) fn request(self: &Arc<Self>) -> Unanswered {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        self.head.store(NOT_WAITING, Ordering::Relaxed);
        Unanswered(Arc::clone(self))
    }

    fn wait_of(&self, what: For) -> &AtomicU64 {
        match what {
            For::Body => &self.body,
            For::Read => &self.read,
        }
    }

    /// Notes the number of a wait that begins; false if it began before.
    fn begin(&self, since: &AtomicU64) -> bool {
        let begins = since.load(Ordering::Relaxed) == NOT_WAITING;
        if begins {
            since.store(self.wait_numbers.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        begins
    }

    /// The number of its oldest wait for its client; `None` if it works.
    fn waiting_since(&self) -> Option<u64> {
        let times = [&self.head, &self.body, &self.read].map(|since| since.load(Ordering::Relaxed));
        times.into_iter().filter(|since| *since != NOT_WAITING).min()
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if self.0.unanswered.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.wait_for_head();
        }
    }
}

impl Places {
    /// Creates `places_max` places.
    pub(super) fn new(places_max: usize) -> Self {
        let permits = Arc::new(Semaphore::new(places_max));
        Self { permits, open: Arc::default(), opened: 0, wait_numbers: Arc::default() }
    }

    /// Takes a place for a connection; when none is free, evicts the ones that have waited longest.
    ///
    /// Waits while every connection works.
    pub(super) async fn take(&mut self) -> Place {
        loop {
            if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
                return self.open(permit);
            }
            self.evict_longest(EVICTED_AT_ONCE);
            let acquired = timeout(LOOK_AGAIN, Arc::clone(&self.permits).acquire_owned()).await;
            if let Ok(permit) = acquired {
                return self.open(permit.expect("the semaphore is never closed"));
            }
        }
    }

    /// Evicts the connections that have waited longest, at most `count` and an eighth of all.
    pub(super) fn evict_longest(&self, count: usize) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = count.min(open.len().div_ceil(8));
        let waiting = open.iter().filter_map(|(number, waits)| Some((waits.waiting_since()?, *number)));
        let mut waiting: Vec<(u64, u64)> = waiting.collect();
        waiting.sort_unstable();
        for (_, number) in waiting.into_iter().take(count) {
            let waits = open.remove(&number).expect("it was in the map");
            waits.evicted.notify_one();
        }
    }

    fn open(&mut self, permit: OwnedSemaphorePermit) -> Place {
        self.opened += 1;
        let (number, waits) = (self.opened, Arc::new(Waits::new(Arc::clone(&self.wait_numbers))));
        let open = Arc::clone(&self.open);
        open.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::clone(&waits));
        Place { number, waits, open, _permit: permit }
    }
}

impl Place {
    pub(super) fn waits(&self) -> &Arc<Waits> {
        &self.waits
    }

    /// Waits until the connection is evicted.
    pub(super) async fn evicted(&self) {
        self.waits.evicted.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn longest_waiting_connection_is_evicted() {
        let mut places = Places::new(4);
        let mut taken = Vec::new();
        for _ in 0..4 {
            taken.push(Some(places.take().await));
        }
        let waits = |index: usize| Arc::clone(taken[index].as_ref().expect("open").waits());
        // The first one works, the others wait: for a reader, for a body, for a head.
        let _working = waits(0).request();
        let _reading = (waits(2).request(), waits(3).request());
        for (index, wait) in [(3, Some(For::Read)), (2, Some(For::Body)), (1, None), (0, None)] {
            match wait {
                Some(what) => waits(index).wait(what),
                None => waits(index).nothing_to_read(),
            }
        }
        for longest in [3, 2, 1] {
            let next = places.take();
            tokio::pin!(next);
            assert!(next.as_mut().now_or_never().is_none());
            let evicted = |place: &Option<Place>| {
                place.as_ref().is_some_and(|place| place.evicted().now_or_never().is_some())
            };
            assert_eq!(taken.iter().position(evicted), Some(longest));
            taken[longest] = None;
            taken.push(next.now_or_never());
        }
        assert!(places.take().now_or_never().is_none(), "all work");
    }

    #[tokio::test(start_paused = true)]
    async fn answered_connection_counts_as_waiting() {
        let mut places = Places::new(1);
        let place = places.take().await;
        let unanswered = place.waits().request();
        place.waits().nothing_to_read();
        assert_eq!(place.waits().waiting_since(), None);
        drop(unanswered);
        let since = place.waits().waiting_since();
        assert!(since.is_some());
        place.waits().nothing_to_read();
        assert_eq!(place.waits().waiting_since(), since);
    }
}
