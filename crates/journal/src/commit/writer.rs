//! Puts records into segments: one writer at a time, one buffer, one write for all waiting
//! commands.
//!
//! The writer assigns every record its position and time, drops duplicates, writes the group,
//! publishes the written position, and answers callers that asked for [`Level::Written`]. `leader`
//! decides which thread has the writer. Writing does not wait for a sync, with one exception: the
//! file after next is prepared only when the segment before is durable. So writing is at most one
//! segment ahead of the disk.

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, sync::Arc, thread::JoinHandle};

use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, oneshot, watch};

use crate::{
    Seq, background,
    commit::{
        AppendBatch, AppendError, Appended, Level,
        next_file::{Next, NextFile, Wait},
        sync::{self, Commits, Reply, Role, SyncDuty, Waiter},
    },
    log::{
        idempotency::{IdempotencyKey, IdempotencyKeys},
        names::NO_NAME,
        record::{self, Record, RecordKind},
        segment::Segment,
        segment_file::HEADER_BYTES,
        store::{Clock, Poisoned, Store},
    },
    settings::Durability,
    time::Timestamp,
};

/// Bytes of a group after which it is written.
///
/// Copying this much into the page cache takes about a millisecond, which bounds the next group's
/// wait.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// The reserve of a segment when the disk is full: one part in this many.
const RESERVE_PART: u64 = 4;

/// A command to the writer.
#[derive(Debug)]
pub(crate) enum Command {
    Append(Append),
    IdempotencyKeys {
        reply: oneshot::Sender<Vec<IdempotencyKey>>,
    },
    /// Orders the next file, once.
    OrderNext,
}

/// A batch and the caller that waits for it.
#[derive(Debug)]
pub(crate) struct Append {
    pub(crate) batch: AppendBatch,
    pub(crate) level: Level,
    pub(crate) reply: Reply,
    pub(crate) permit: OwnedSemaphorePermit,
}

/// The state that a leader passes to the next one.
pub(crate) struct Writer {
    pub(crate) store: Arc<Store>,
    /// Submitted commands that are not written, in order.
    pub(crate) waiting: VecDeque<Command>,
    pub(crate) clock: Clock,
    pub(crate) durability: Durability,
    pub(crate) keys: IdempotencyKeys,
    pub(crate) written: watch::Sender<Seq>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) next: NextFile,
    pub(crate) place: WritePosition,
    pub(crate) group: Group,
    pub(crate) preface: Preface,
    /// Joined when the writer ends.
    pub(crate) threads: Vec<JoinHandle<()>>,
}

/// The position of the next record, and the state before it.
#[derive(Debug)]
pub(crate) struct WritePosition {
    pub(crate) segment: Arc<Segment>,
    /// The offset in the segment where the group's buffer goes.
    pub(crate) offset: u64,
    /// The size of the segment.
    pub(crate) capacity: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) last: Seq,
    /// The last record known to be durable when the group began.
    pub(crate) durable: Seq,
    pub(crate) time: Timestamp,
}

/// The records to write, and the callers to answer afterwards.
#[derive(Debug, Default)]
pub(crate) struct Group {
    buffer: Vec<u8>,
    /// The hashes of the names of its records, if records are found by names.
    hashes: Vec<u64>,
    on_write: Vec<Waiter>,
    on_sync: Vec<Waiter>,
    /// Released when the group is written.
    held: Vec<OwnedMutexGuard<()>>,
}

impl Writer {
    /// Writes the next group of waiting commands, and answers them; later commands are for the next
    /// group. Returns the sync that this role then has to do.
    ///
    /// Shape: only the writer thread waits for the next file; other threads leave a batch whose
    /// file does not exist yet.
    pub(crate) fn write_group(&mut self, role: Role) -> Option<SyncDuty> {
        self.place.durable = self.commits.durable();
        while self.group.buffer.len() < GROUP_BYTES_MAX
            && let Some(command) = self.waiting.pop_front()
        {
            match command {
                Command::Append(append) => {
                    if let Some(append) = self.take(append, role) {
                        self.waiting.push_front(Command::Append(append));
                        break;
                    }
                }
                Command::IdempotencyKeys { reply } => {
                    // A caller that stopped waiting does not need the keys.
                    let _ = reply.send(self.keys.to_vec());
                }
                Command::OrderNext => self.next.order(),
            }
        }
        self.commit(role)
    }

    /// Syncs everything and ends the other threads.
    pub(crate) fn end(self) {
        let Self { store, commits, next, threads, written, .. } = self;
        commits.close();
        store.maintenance.close();
        // The preparer waits for orders, or is about to send a file that will not be taken.
        drop(next);
        for thread in threads {
            background::join(thread);
        }
        commits.mark();
        drop(written);
    }

    /// Encodes a batch into the group; returns it if the next file is needed and does not exist
    /// yet.
    fn take(&mut self, append: Append, role: Role) -> Option<Append> {
        match self.has_room(&append.batch, role) {
            Ok(true) => {}
            Ok(false) => return Some(append),
            Err(refused) => {
                // A caller that stopped waiting does not need the answer.
                let _ = append.reply.send(Err(refused));
                return None;
            }
        }
        let Append { mut batch, level, reply, permit } = append;
        self.group.held.extend(batch.take_held());
        self.place.time = self.place.time.max((self.clock)());
        let mut begin = self.place.last.next();
        let (mut duplicates, mut prefaced) = (Vec::new(), Vec::new());
        for (at, (kind, body, key, opposite)) in batch.records().enumerate() {
            // A failed write poisons the journal, and then the whole group is refused.
            let Ok(has_preface) = self.make_room(body.len()) else { break };
            if has_preface && at == duplicates.len() {
                begin = begin.next();
            } else if has_preface {
                prefaced.push(at);
            }
            let seq = self.place.last.next();
            let known = key.and_then(|key| match opposite {
                Some(opposite) => self.keys.remember_change(key, opposite, seq),
                None => self.keys.remember(key, seq),
            });
            match known {
                Some(first) => duplicates.push((at, first)),
                None => self.encode(kind, seq, body),
            }
        }
        let level = match self.durability {
            Durability::Sync => level,
            Durability::Interval => Level::Written,
        };
        let appended =
            Appended { time: self.place.time, level, records: batch.len(), begin, duplicates, prefaced };
        let waiter = Waiter { appended, reply, permit };
        match level {
            Level::Written => self.group.on_write.push(waiter),
            Level::Synced => self.group.on_sync.push(waiter),
        }
        None
    }

    /// Ensures that the next file exists if a batch needs it, before any of the batch is written;
    /// returns whether there is room.
    ///
    /// Errors: the disk is full and the batch does not fit outside the reserve, or the journal is
    /// poisoned.
    fn has_room(&mut self, batch: &AppendBatch, role: Role) -> Result<bool, AppendError> {
        let used = self.place.offset + self.group.buffer.len() as u64;
        let (left, bytes) = (self.place.capacity.saturating_sub(used), batch.framed_bytes());
        let reserve = if batch.uses_reserve() { 0 } else { self.place.capacity / RESERVE_PART };
        let is_needed = bytes > left;
        if bytes + reserve <= left || batch.is_empty() {
            return Ok(true);
        }
        // The file after next is prepared only after a sync, which this thread may have to do.
        if is_needed && !role.may_wait_for_file() && self.needs_two_files(batch, left) {
            return Ok(false);
        }
        let wait = if is_needed && role.may_wait_for_file() { Wait::UntilKnown } else { Wait::No };
        match self.next.look_for(&self.store, wait)? {
            Next::There => Ok(true),
            Next::NotYet => Ok(!is_needed),
            Next::Full(full) => Err(full.into()),
        }
    }

    /// Whether a batch goes beyond the next segment; `left` bytes of this one are free.
    fn needs_two_files(&self, batch: &AppendBatch, left: u64) -> bool {
        let is_first = self.place.offset + self.group.buffer.len() as u64 == HEADER_BYTES;
        let (mut left, mut is_empty, mut files) = (left, is_first, 0);
        for (_, body, ..) in batch.records() {
            let bytes = record::size_of(body.len()) as u64;
            if bytes > left && !is_empty {
                files += 1;
                left = self.place.segment_bytes.saturating_sub(HEADER_BYTES + self.preface.bytes());
            }
            (left, is_empty) = (left.saturating_sub(bytes), false);
        }
        files > 1
    }

    /// Makes room for the next record, with a body of `bytes`; returns whether a new segment's
    /// preface precedes it.
    fn make_room(&mut self, bytes: usize) -> Result<bool, Poisoned> {
        let used = self.place.offset + self.group.buffer.len() as u64;
        if used > HEADER_BYTES && used + record::size_of(bytes) as u64 > self.place.capacity {
            self.write()?;
            return Ok(self.rotate()? && self.write_preface());
        }
        if self.group.buffer.len() >= GROUP_BYTES_MAX {
            self.write()?;
        }
        Ok(false)
    }

    /// Writes the preface of a new segment, if there is one.
    fn write_preface(&mut self) -> bool {
        let Some((kind, body)) = self.preface.take() else { return false };
        self.encode(kind, self.place.last.next(), &body);
        true
    }

    fn encode(&mut self, kind: RecordKind, seq: Seq, body: &[u8]) {
        let used = self.place.offset + self.group.buffer.len() as u64;
        self.place.segment.note_place(seq, used);
        let record = Record { kind, seq, time: self.place.time, body };
        record::encode(record, self.place.durable, &mut self.group.buffer);
        if let Some(hasher) = self.store.names.get() {
            self.group.hashes.push(hasher.hash_of(record).unwrap_or(NO_NAME));
        }
        self.place.last = seq;
        self.preface.note(kind, body);
    }

    /// Writes the group's buffer.
    fn write(&mut self) -> Result<(), Poisoned> {
        if let Some(poisoned) = self.store.poisoned() {
            return Err(poisoned);
        }
        if self.group.buffer.is_empty() {
            return Ok(());
        }
        let WritePosition { segment, offset, time, last, .. } = &mut self.place;
        segment
            .file
            .write_at(&self.group.buffer, *offset)
            .map_err(|error| self.store.poison("write", &segment.name(), error))?;
        *offset += self.group.buffer.len() as u64;
        let hashes = &mut self.group.hashes;
        if !hashes.is_empty() {
            // Before the records can be read, so that each of them is found.
            segment.noted.note(Seq(last.0 + 1 - hashes.len() as u64), hashes);
            hashes.clear();
        }
        segment.set_end(*offset, *time);
        self.group.buffer.clear();
        self.group.buffer.shrink_to(GROUP_BYTES_MAX);
        Ok(())
    }

    /// Continues in the prepared file. When a batch of several segments fills the disk, continues
    /// in the same file, beyond its size. Returns whether it is another file.
    ///
    /// Shape: only the journal's own thread waits here for the file; `has_room` stops other callers
    /// earlier.
    fn rotate(&mut self) -> Result<bool, Poisoned> {
        self.next.look_for(&self.store, Wait::UntilKnown)?;
        let Some(file) = self.next.take() else { return Ok(false) };
        let segment = Arc::new(Segment::new(self.place.last.next(), file));
        self.store.add_segment(Arc::clone(&segment));
        let full = std::mem::replace(&mut self.place.segment, Arc::clone(&segment));
        self.commits.rotate(full, segment);
        self.place.offset = HEADER_BYTES;
        self.place.capacity = self.place.segment_bytes;
        Ok(true)
    }

    /// Writes the group and answers; returns the sync that this role then has to do.
    fn commit(&mut self, role: Role) -> Option<SyncDuty> {
        if let Err(poisoned) = self.write() {
            self.group.buffer.clear();
            self.group.hashes.clear();
            sync::refuse(&mut self.group.on_write, &poisoned);
            sync::refuse(&mut self.group.on_sync, &poisoned);
            self.group.held.clear();
            return None;
        }
        let last = self.place.last;
        if last > *self.written.borrow() {
            self.written.send_replace(last);
        }
        self.group.held.clear();
        for Waiter { appended, reply, permit } in self.group.on_write.drain(..) {
            // A caller that stopped waiting does not need the answer; the record stays.
            let _ = reply.send(Ok(appended));
            drop(permit);
        }
        self.commits.add(last, &mut self.group.on_sync, role)
    }
}

/// The first record of every segment: a copy of the newest record of one kind.
///
/// With it a reader has that record even if all earlier segments were deleted. The copy has its own
/// position.
#[derive(Debug, Default)]
pub(crate) struct Preface {
    /// `None` when segments begin without a preface.
    kind: Option<RecordKind>,
    /// The body of the newest record of that kind; empty until the first one is appended.
    body: Vec<u8>,
}

impl Preface {
    /// Creates the state without a record.
    pub(crate) fn of_kind(kind: Option<RecordKind>) -> Self {
        Self { kind, body: Vec::new() }
    }

    /// Remembers a record that is written.
    pub(crate) fn note(&mut self, kind: RecordKind, body: &[u8]) {
        if self.kind == Some(kind) {
            self.body.clear();
            self.body.extend_from_slice(body);
        }
    }

    /// Takes the preface to write now; the write notes it again.
    pub(crate) fn take(&mut self) -> Option<(RecordKind, Vec<u8>)> {
        let kind = self.kind.filter(|_| !self.body.is_empty())?;
        Some((kind, std::mem::take(&mut self.body)))
    }

    /// Its size in each segment, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        if self.body.is_empty() { 0 } else { record::size_of(self.body.len()) as u64 }
    }
}
