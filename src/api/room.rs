//! Bounds the memory of all request bodies together, and the work on them.
//!
//! Bodies of at most [`SMALL_BYTES_MAX`] need no room: the number of connections bounds them. A
//! larger body takes room before it is read: for its length, or for the largest body once a body of
//! unknown length is no longer small; and [`COPIES`] times as much for what is made of it. Its memory
//! is returned to the system when the body is dropped. If there is no room within [`ROOM_WAIT_MAX`],
//! the request is refused with 503 and `Retry-After`. Hooks and exchanges have separate room, so
//! that publishers cannot block them.
//!
//! A large body is parsed outside of the runtime's threads, one at a time in each room, so that
//! exchanges go on.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use memmap2::MmapMut;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::block_in_place,
    time::timeout,
};

use super::error::ApiError;

/// Largest body that needs no room, in bytes.
pub(super) const SMALL_BYTES_MAX: usize = UNIT_BYTES;
/// Unit of room, in bytes.
const UNIT_BYTES: usize = 64 * 1024;
/// Room for the bodies of hooks, exchanges and other requests of clients, in bytes: one of the
/// largest.
const EXCHANGES_BYTES: usize = 32 * 1024 * 1024;
/// Room for published bodies, in bytes: two of the largest bodies, or sixteen NDJSON batches.
const PUBLISHING_BYTES: usize = 32 * 1024 * 1024;
/// The room of a body, as a multiple of its length: its text, a text in it whose escapes are
/// decoded (a buffer that doubles, and the copy made of it), or the records made of it.
const COPIES: usize = 4;
/// Longest wait for room.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(2);

/// The room of the daemon.
#[derive(Debug, Clone)]
pub struct Rooms {
    /// For bodies of hooks, exchanges and other requests of clients.
    pub(super) exchanges: Room,
    /// For published bodies.
    pub(super) publishing: Room,
}

/// Room for bodies of one kind of request; a clone is the same room.
#[derive(Debug, Clone)]
pub(super) struct Room {
    units: Arc<Semaphore>,
    /// Held during the work on a large body.
    work: Arc<Semaphore>,
}

/// A share of a room, released on drop.
#[derive(Debug)]
pub(super) struct Reservation {
    _permit: OwnedSemaphorePermit,
}

/// A body that is being read.
#[derive(Debug)]
pub(super) struct Buffer {
    memory: Memory,
    length: usize,
}

#[derive(Debug)]
enum Memory {
    Small(Vec<u8>),
    /// The mapping has the largest length of the body; only written pages take memory.
    Large {
        mapping: MmapMut,
        _reservation: Reservation,
    },
}

impl Default for Rooms {
    fn default() -> Self {
        Self { exchanges: Room::new(EXCHANGES_BYTES), publishing: Room::new(PUBLISHING_BYTES) }
    }
}

impl Room {
    fn new(bytes: usize) -> Self {
        Self { units: Arc::new(Semaphore::new(bytes / UNIT_BYTES)), work: Arc::new(Semaphore::new(1)) }
    }

    /// Runs `work` on a body of `bytes`: at once if it is small, else outside of the runtime's
    /// threads and after the work on other large bodies.
    pub(super) async fn work<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        if bytes <= SMALL_BYTES_MAX {
            return work();
        }
        let _turn = self.work.acquire().await.expect("the semaphore is never closed");
        // The runtime of a test has one thread.
        let is_alone = Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread;
        if is_alone { work() } else { block_in_place(work) }
    }

    /// Takes room for `bytes`, at most the total.
    ///
    /// Errors: there was no room within [`ROOM_WAIT_MAX`].
    pub(super) async fn take(&self, bytes: usize) -> Result<Reservation, ApiError> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let acquiring = Arc::clone(&self.units).acquire_many_owned(units);
        match timeout(ROOM_WAIT_MAX, acquiring).await {
            Ok(permit) => Ok(Reservation { _permit: permit.expect("the semaphore is never closed") }),
            Err(_) => Err(ApiError::busy("too many large bodies are being read")),
        }
    }
}

impl Buffer {
    /// Room for a body of `bytes`.
    ///
    /// Errors: there is no room.
    pub(super) async fn new(room: &Room, bytes: usize) -> Result<Self, ApiError> {
        let memory = if bytes <= SMALL_BYTES_MAX {
            Memory::Small(Vec::with_capacity(bytes))
        } else {
            let reservation = room.take(COPIES * bytes).await?;
            let mapping = MmapMut::map_anon(bytes);
            let mapping = mapping.map_err(|error| ApiError::busy(&format!("out of memory: {error}")))?;
            Memory::Large { mapping, _reservation: reservation }
        };
        Ok(Self { memory, length: 0 })
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Appends `chunk`, and takes room for `bytes_max` if the current room is too small.
    ///
    /// Errors: there is no room. The caller ensures that a body never has more than `bytes_max`.
    pub(super) async fn push(&mut self, room: &Room, chunk: &[u8], bytes_max: usize) -> Result<(), ApiError> {
        let end = self.length + chunk.len();
        if let Memory::Small(small) = &mut self.memory {
            if end <= SMALL_BYTES_MAX {
                small.extend_from_slice(chunk);
                self.length = end;
                return Ok(());
            }
            let before = std::mem::take(small);
            let mut large = Self::new(room, bytes_max.max(end)).await?;
            large.put(0, &before);
            *self = large;
        }
        self.put(end - chunk.len(), chunk);
        Ok(())
    }

    fn put(&mut self, at: usize, chunk: &[u8]) {
        let end = at + chunk.len();
        if let Memory::Large { mapping, .. } = &mut self.memory {
            mapping.get_mut(at..end).expect("room for the longest body was taken").copy_from_slice(chunk);
        }
        self.length = end;
    }

    /// The body; its room is released with the last clone.
    pub(super) fn into_bytes(self) -> Bytes {
        match self.memory {
            Memory::Small(small) => small.into(),
            Memory::Large { .. } => Bytes::from_owner(self),
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        match &self.memory {
            Memory::Small(small) => small,
            Memory::Large { mapping, .. } => {
                mapping.get(..self.length).expect("what was read is in the mapping")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn large_body_holds_room_until_last_reference_drops() {
        let room = Room::new(COPIES * 4 * UNIT_BYTES);
        let mut first = Buffer::new(&room, 3 * UNIT_BYTES).await.expect("room");
        for part in [b'a', b'b', b'c'] {
            first.push(&room, &vec![part; UNIT_BYTES], 3 * UNIT_BYTES).await.expect("room");
        }
        let whole = first.into_bytes();
        assert_eq!((whole.len(), whole[0], whole[whole.len() - 1]), (3 * UNIT_BYTES, b'a', b'c'));
        let part = whole.slice(..10);
        drop(whole);
        let refused = Buffer::new(&room, 2 * UNIT_BYTES).await.expect_err("no room").to_string();
        assert_eq!(refused, "too many large bodies are being read");
        Buffer::new(&room, SMALL_BYTES_MAX).await.expect("a small one needs none");
        drop(part);
        Buffer::new(&room, 4 * UNIT_BYTES).await.expect("room again");
    }

    #[tokio::test(start_paused = true)]
    async fn body_of_unknown_length_reserves_room_once_large() {
        let room = Room::new(COPIES * 4 * UNIT_BYTES);
        let mut body = Buffer::new(&room, 0).await.expect("empty");
        let mut expected = Vec::new();
        for part in 0..10 {
            let chunk = vec![part; UNIT_BYTES / 4 + 1];
            body.push(&room, &chunk, 4 * UNIT_BYTES).await.expect("room");
            expected.extend(chunk);
            assert_eq!(room.units.available_permits() == 0, expected.len() > SMALL_BYTES_MAX);
        }
        assert_eq!(body.into_bytes(), expected);
    }
}
