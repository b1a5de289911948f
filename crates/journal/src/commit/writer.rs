//! Puts records into segments: one writer at a time, one buffer, one write for all waiting
//! commands.
//!
//! The writer assigns every record its position and time, drops duplicates, writes the group,
//! publishes the written position, and answers callers that asked for [`Level::Written`]. `leader`
//! decides which thread has the writer. Writing does not wait for a sync, with one exception: the
//! file after next is prepared only when the segment before is durable. So writing is at most one
//! segment ahead of the disk.

use std::{collections::VecDeque, sync::Arc, thread::JoinHandle};

use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, oneshot, watch};

use crate::{
    Seq, background,
    commit::{
        append::{AppendBatch, AppendError, Appended, Level},
        next_file::{Next, NextFile, Wait},
        preface::Preface,
        role::Role,
        sync::{self, Commits, Reply, SyncDuty, Waiter},
    },
    log::{
        clock::Clock,
        failure::Poisoned,
        idempotency::{IdempotencyKey, IdempotencyKeys},
        names::NO_NAME,
        record::{self, Record, RecordKind},
        segment::Segment,
        segment_file::HEADER_BYTES,
        store::Store,
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
    pub(crate) place: Place,
    pub(crate) group: Group,
    pub(crate) preface: Preface,
    /// Joined when the writer ends.
    pub(crate) threads: Vec<JoinHandle<()>>,
}

/// The position of the next record, and the state before it.
#[derive(Debug)]
pub(crate) struct Place {
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
        let Place { segment, offset, time, last, .. } = &mut self.place;
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::testing::*;
    use crate::{
        Journal, Outcome,
        log::{
            files::Files,
            memory::{Faults, MemoryFiles},
        },
    };

    #[test]
    fn rotated_segments_are_named_by_their_first_record() {
        let files = MemoryFiles::new();
        let journal = open(&files).journal;
        for number in 1..=40 {
            journal.append_blocking(batch(number), Level::Synced).expect("appended");
        }
        journal.close_blocking().expect("closed");
        let firsts: Vec<u64> =
            files.list().expect("listed").iter().filter_map(|name| first_of(name)).collect();
        assert!(firsts.len() > 4, "{firsts:?}");
        for first in firsts {
            let file = files.open(&format!("{first:020}.seg")).expect("there");
            let mut head = [0; 26];
            file.read_at(&mut head, HEADER_BYTES).expect("read");
            assert_eq!(u64::from_le_bytes(head[10..18].try_into().expect("eight bytes")), first);
            assert_eq!(file.size().expect("sized"), SEGMENT_BYTES);
        }
        assert_eq!(numbers(&open(&files).journal), (1..=40).collect::<Vec<_>>());
    }

    #[test]
    fn oversized_record_gets_its_own_segment() {
        let files = MemoryFiles::new();
        let journal = open(&files).journal;
        let large = vec![b'x'; 2 * usize::try_from(SEGMENT_BYTES).expect("small")];
        let batch_with = |body: &[u8]| AppendBatch::of(RecordKind(2), body, None).expect("small");
        for body in [b"a".as_slice(), &large, b"b", &large, &large, b"c"] {
            journal.append_blocking(batch_with(body), Level::Synced).expect("appended");
        }
        let lengths = |journal: &Journal| {
            read_all(journal, Seq(1)).iter().map(|record| record.body.len()).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&journal), [1, 800, 1, 800, 800, 1]);
        journal.close_blocking().expect("closed");
        let settings = crate::JournalSettings { segment_bytes: SEGMENT_BYTES, ..Default::default() };
        let again = Journal::open(Arc::new(files), settings, Arc::new(|| Timestamp::ZERO), &|_| None)
            .expect("opened");
        assert_eq!(lengths(&again.journal), [1, 800, 1, 800, 800, 1]);
    }

    #[test]
    fn batch_larger_than_a_group_keeps_record_order() {
        let files = MemoryFiles::new();
        let journal = open_prepared(&files, 16 << 20);
        let mut batch = AppendBatch::new();
        for at in 0..9 {
            batch.push(RecordKind(at), &vec![at; record::BODY_BYTES_MAX], None).expect("fits");
        }
        let appended = journal.append_blocking(batch, Level::Written).expect("appended");
        assert_eq!((appended.first(), appended.last()), (Some(Seq(1)), Some(Seq(9))));
        let kinds: Vec<u8> = read_all(&journal, Seq(1)).iter().map(|record| record.kind.0).collect();
        assert_eq!(kinds, (0..9).collect::<Vec<_>>());
    }

    #[test]
    fn time_never_steps_back_also_over_a_restart() {
        let files = MemoryFiles::new();
        let (millis, clock) = set_clock();
        let times_at = |readings: &[u64]| {
            let opened =
                open_with(&files, SEGMENT_BYTES, Durability::Sync, Arc::clone(&clock)).expect("opened");
            for reading in readings {
                millis.store(*reading, Ordering::SeqCst);
                let number = opened.journal.written().borrow().0 + 1;
                opened.journal.append_blocking(batch(number), Level::Written).expect("appended");
            }
            opened.journal.close_blocking().expect("closed");
            let records = read_all(&opened.journal, Seq(1));
            (
                opened.last_time.as_millis(),
                records.iter().map(|record| record.time.as_millis()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(times_at(&[100, 50, 200]), (0, vec![100, 100, 200]));
        assert_eq!(times_at(&[10, 201]), (200, vec![100, 100, 200, 200, 201]));
    }

    #[test]
    fn duplicate_publish_returns_first_position_after_a_restart() {
        use Outcome::{Appended, Duplicate};

        let files = MemoryFiles::new();
        let outcomes = |journal: &Journal, numbers: &[u64]| {
            let batch = batch_of(numbers.iter().copied());
            journal.append_blocking(batch, Level::Synced).expect("appended").outcomes().collect::<Vec<_>>()
        };
        let journal = open(&files).journal;
        assert_eq!(outcomes(&journal, &[7, 8, 7]), [Appended(Seq(1)), Appended(Seq(2)), Duplicate(Seq(1))]);
        assert_eq!(outcomes(&journal, &[8, 9]), [Duplicate(Seq(2)), Appended(Seq(3))]);
        assert_eq!(outcomes(&journal, &(10..40).collect::<Vec<_>>()).len(), 30);
        journal.close_blocking().expect("closed");
        let again = open(&files).journal;
        assert_eq!(
            outcomes(&again, &[9, 41, 39]),
            [Duplicate(Seq(3)), Appended(Seq(34)), Duplicate(Seq(33))]
        );
        assert_eq!(outcomes(&again, &[]), []);
    }

    #[test]
    fn failed_write_stops_appends_but_not_reads() {
        let files = MemoryFiles::new();
        let journal = open_prepared(&files, SEGMENT_BYTES);
        journal.append_blocking(batch(1), Level::Synced).expect("appended");
        files.set_faults(Faults { fail_write: Some(files.operations().writes + 1), ..Faults::default() });
        for _ in 0..2 {
            let error = journal.append_blocking(batch(2), Level::Written).expect_err("refused");
            let said =
                "the journal accepts no records since it failed to write memory/00000000000000000001.seg";
            assert_eq!(error.to_string(), said);
        }
        assert_eq!(numbers(&journal), [1]);
        assert!(journal.close_blocking().is_err());
        let again = open(&files.after_kill()).journal;
        again.append_blocking(batch(2), Level::Synced).expect("appended");
        assert_eq!(numbers(&again), [1, 2]);
    }

    #[test]
    fn full_disk_refuses_publishing_first_and_later_recovers() {
        let files = MemoryFiles::new();
        let journal = open_prepared(&files, 4_096);
        files.set_space(Some(100));
        let fill = |from: u64, uses_reserve: bool| {
            (from..)
                .find_map(|number| {
                    let batch = if uses_reserve { batch(number).with_reserve() } else { batch(number) };
                    journal.append_blocking(batch, Level::Synced).err().map(|error| (number, error))
                })
                .expect("refused at last")
        };
        // Enough for the prepared segment; there is no space for the one after it.
        journal.append_blocking(batch_of(1..=100), Level::Synced).expect("appended");
        while journal.disk_full().is_none() {
            std::thread::yield_now();
        }
        let (refused, error) = fill(101, false);
        let said = "the disk is full: the journal needs 4096 bytes in memory/ for its next file; until there is space, the remaining room is for exchanges";
        assert_eq!((error.to_string().as_str(), journal.disk_full().is_some()), (said, true));
        let (refused_at_last, _) = fill(refused, true);
        assert!(refused_at_last > refused + 10, "{refused} {refused_at_last}");
        assert!(journal.poisoned().is_none());
        assert_eq!(numbers(&journal), (1..refused_at_last).collect::<Vec<_>>());
        for seed in 0..4 {
            let opened = open_with(&files.after_power_loss(seed), 4_096, Durability::Sync, set_clock().1);
            assert_eq!(opened.expect("opened").last_seq, Seq(refused_at_last - 1));
        }
        files.set_space(None);
        while journal.disk_full().is_some() {
            std::thread::yield_now();
        }
        journal.append_blocking(batch_of(refused_at_last..=500), Level::Synced).expect("appended");
        journal.close_blocking().expect("closed");
        assert_eq!(numbers(&open(&files).journal), (1..=500).collect::<Vec<_>>());
    }

    #[test]
    fn full_disk_is_detected_early_and_allows_closing() {
        let files = MemoryFiles::new();
        open(&files).journal.close_blocking().expect("closed");
        files.set_space(Some(0));
        let journal = open(&files).journal;
        journal.append_blocking(batch_of(1..=5), Level::Synced).expect("there is room in the first segment");
        let left = files.after_kill();
        left.set_space(Some(0));
        for journal in [journal, open(&left).journal] {
            journal.prepare_next_file();
            while journal.disk_full().is_none() {
                std::thread::yield_now();
            }
            journal.close_blocking().expect("closed");
        }
        assert_eq!(files.list().expect("listed"), ["00000000000000000001.seg"]);
    }

    #[test]
    fn closing_refuses_new_appends_and_syncs_earlier_ones() {
        let files = MemoryFiles::new();
        let journal = open(&files).journal;
        journal.append_blocking(batch(1), Level::Written).expect("appended");
        journal.close_blocking().expect("closed");
        journal.close_blocking().expect("closed already");
        let refused = journal.append_blocking(batch(2), Level::Written);
        assert!(matches!(refused, Err(AppendError::Closed)), "{refused:?}");
        assert_eq!(*journal.synced().borrow(), Seq(1));
        assert!((0..20).all(|seed| numbers(&open(&files.after_power_loss(seed)).journal) == [1]));
    }

    #[test]
    fn the_last_handle_takes_the_threads_with_it() {
        let files = MemoryFiles::new();
        let journal = open(&files).journal;
        let mut reader = journal.read_from(Seq(1));
        drop(journal);
        let closed = crate::blocking::block_on(reader.wait());
        assert_eq!(closed, Err(crate::Closed));
    }

    fn first_of(name: &str) -> Option<u64> {
        crate::log::segment_file::first_of(name).map(|seq| seq.0)
    }
}
