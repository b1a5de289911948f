//! Puts records into segments: one thread, one buffer, one write for all that waits.
//!
//! The writer gives every record its position and time, leaves out what was published before, writes the group, says how far
//! it is written, and answers those who asked for no more; the others it hands to the flusher. It never waits for a sync,
//! with one bound: the file after next is prepared only when the segment before is durable, so it can be at most one
//! segment ahead of the disk.

use std::{
    io,
    sync::{Arc, mpsc::Receiver},
    thread::JoinHandle,
};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};

use crate::{
    event::Seq,
    journal::{
        Clock, Durability, Shared,
        append::{AppendBatch, Appended, Level, Poisoned},
        files::File,
        flusher::{self, Commits, Reply, Waiter},
        published::PublishedKeys,
        record::{self, RecordKind},
        segment::{HEADER_BYTES, NEXT_NAME, Segment},
    },
    time::Timestamp,
};

/// How much is gathered before it is written, in bytes.
///
/// Copying this much into the page cache takes about a millisecond, which is what the next group waits at most.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// What the writer is asked.
#[derive(Debug)]
pub(super) enum Command {
    Append { batch: AppendBatch, level: Level, reply: Reply, permit: Option<OwnedSemaphorePermit> },
    Published { reply: oneshot::Sender<PublishedKeys> },
    Close { done: oneshot::Sender<()> },
}

/// The thread that writes.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) clock: Clock,
    pub(super) durability: Durability,
    pub(super) published: PublishedKeys,
    pub(super) written: watch::Sender<Seq>,
    pub(super) commits: Arc<Commits>,
    /// The next file, as soon as it is there; ends when the flusher has given up.
    pub(super) prepared: Receiver<io::Result<Arc<dyn File>>>,
    pub(super) place: Place,
    pub(super) group: Group,
    /// Joined when the writer ends.
    pub(super) threads: Vec<JoinHandle<()>>,
}

/// Where the next record goes, and what precedes it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) segment: Arc<Segment>,
    /// Where in the segment the group's buffer goes.
    pub(super) offset: u64,
    /// How large the segment is.
    pub(super) capacity: u64,
    pub(super) segment_bytes: u64,
    pub(super) last: Seq,
    pub(super) time: Timestamp,
}

/// What will be written, and who is told when it is.
#[derive(Debug, Default)]
pub(super) struct Group {
    buffer: Vec<u8>,
    on_write: Vec<Waiter>,
    on_sync: Vec<Waiter>,
}

impl Writer {
    /// Runs until the journal is closed or nobody has it any more; then has everything synced.
    pub(super) fn run(mut self) {
        let mut done = None;
        while let Some(command) = self.commands.blocking_recv() {
            let mut next = Some(command);
            while let Some(command) = next {
                match command {
                    Command::Append { batch, level, reply, permit } => {
                        self.take(&batch, level, reply, permit)
                    }
                    Command::Published { reply } => {
                        // Who no longer waits does not need them.
                        let _ = reply.send(self.published.clone());
                    }
                    Command::Close { done: closer } => {
                        self.commands.close();
                        done = Some(closer);
                    }
                }
                let has_room = self.group.buffer.len() < GROUP_BYTES_MAX;
                next = if has_room { self.commands.try_recv().ok() } else { None };
            }
            self.commit();
        }
        let Self { commits, prepared, threads, written, .. } = self;
        commits.close();
        // The thread that prepares may be about to hand over a file that nobody will take.
        drop(prepared);
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a journal thread panicked");
            }
        }
        drop(written);
        if let Some(done) = done {
            // Whoever closed the journal may have stopped waiting.
            let _ = done.send(());
        }
    }

    /// Encodes a batch into the group.
    fn take(
        &mut self,
        batch: &AppendBatch,
        level: Level,
        reply: Reply,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        self.place.time = self.place.time.max((self.clock)());
        let begin = self.place.last.next();
        let mut duplicates = Vec::new();
        for (at, (kind, body, key)) in batch.records().enumerate() {
            let seq = self.place.last.next();
            match key.and_then(|key| self.published.remember(key, seq)) {
                Some(first) => duplicates.push((at, first)),
                // What it could not write poisons the journal, and the whole group is refused for it.
                None if self.encode(kind, seq, body).is_err() => break,
                None => {}
            }
        }
        let level = match self.durability {
            Durability::Sync => level,
            Durability::Interval(_) => Level::Written,
        };
        let appended = Appended { time: self.place.time, level, records: batch.len(), begin, duplicates };
        let waiter = Waiter { appended, reply, permit };
        match level {
            Level::Written => self.group.on_write.push(waiter),
            Level::Synced => self.group.on_sync.push(waiter),
        }
    }

    fn encode(&mut self, kind: RecordKind, seq: Seq, body: &[u8]) -> Result<(), Poisoned> {
        let mut used = self.place.offset + self.group.buffer.len() as u64;
        if used > HEADER_BYTES && used + record::size_of(body.len()) as u64 > self.place.capacity {
            self.write()?;
            self.rotate()?;
            used = self.place.offset;
        } else if self.group.buffer.len() >= GROUP_BYTES_MAX {
            self.write()?;
        }
        self.place.segment.note_place(seq, used);
        record::encode(kind, seq, self.place.time, body, &mut self.group.buffer);
        self.place.last = seq;
        Ok(())
    }

    /// Writes what the group has so far.
    fn write(&mut self) -> Result<(), Poisoned> {
        if let Some(poisoned) = self.shared.poisoned() {
            return Err(poisoned);
        }
        if self.group.buffer.is_empty() {
            return Ok(());
        }
        let Place { segment, offset, .. } = &mut self.place;
        segment
            .file
            .write_at(&self.group.buffer, *offset)
            .map_err(|error| self.shared.poison("write", &segment.name(), error))?;
        *offset += self.group.buffer.len() as u64;
        segment.set_end(*offset);
        self.group.buffer.clear();
        self.group.buffer.shrink_to(GROUP_BYTES_MAX);
        Ok(())
    }

    /// Goes on in the prepared file.
    fn rotate(&mut self) -> Result<(), Poisoned> {
        let file = match self.prepared.recv() {
            Ok(Ok(file)) => file,
            Ok(Err(error)) => return Err(self.shared.poison("prepare", NEXT_NAME, error)),
            Err(_) => {
                let error = io::Error::other("the thread that prepares segments has ended");
                return Err(self.shared.poison("prepare", NEXT_NAME, error));
            }
        };
        let segment = Arc::new(Segment::new(self.place.last.next(), file));
        self.shared.add_segment(Arc::clone(&segment));
        let full = std::mem::replace(&mut self.place.segment, Arc::clone(&segment));
        self.commits.rotate(full, segment);
        self.place.offset = HEADER_BYTES;
        self.place.capacity = self.place.segment_bytes;
        Ok(())
    }

    /// Writes the group and answers.
    fn commit(&mut self) {
        if let Err(poisoned) = self.write() {
            self.group.buffer.clear();
            flusher::refuse(&mut self.group.on_write, &poisoned);
            flusher::refuse(&mut self.group.on_sync, &poisoned);
            return;
        }
        let last = self.place.last;
        if last > *self.written.borrow() {
            self.written.send_replace(last);
        }
        for Waiter { appended, reply, permit } in self.group.on_write.drain(..) {
            // A caller that no longer waits has lost interest, not the record.
            let _ = reply.send(Ok(appended));
            drop(permit);
        }
        self.commits.add(last, &mut self.group.on_sync, self.durability);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::{super::testing::*, *};
    use crate::journal::{
        AppendError, Journal, Outcome,
        files::Files,
        memory::{Faults, MemoryFiles},
    };

    #[test]
    fn segments_rotate_and_are_named_by_their_first_record() {
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
    fn a_record_larger_than_a_segment_gets_one_of_its_own() {
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
        let settings = crate::journal::JournalSettings { segment_bytes: SEGMENT_BYTES, ..Default::default() };
        let again = Journal::open(
            Arc::new(files),
            settings,
            Arc::new(|| Timestamp::ZERO),
            &|_| None,
            crate::journal::Known::nothing(),
        )
        .expect("opened");
        assert_eq!(lengths(&again.journal), [1, 800, 1, 800, 800, 1]);
    }

    #[test]
    fn a_batch_larger_than_a_group_stays_in_order() {
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
    fn what_was_published_is_answered_with_its_first_position_also_after_a_restart() {
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
    fn after_a_failed_write_nothing_is_appended_and_reading_goes_on() {
        let files = MemoryFiles::new();
        let journal = open_prepared(&files, SEGMENT_BYTES);
        journal.append_blocking(batch(1), Level::Synced).expect("appended");
        files.set_faults(Faults { fail_write: Some(files.operations().writes + 1), ..Faults::default() });
        for _ in 0..2 {
            let error = journal.append_blocking(batch(2), Level::Written).expect_err("refused");
            let said =
                "the journal takes no more records since it could not write memory/00000000000000000001.seg";
            assert_eq!(error.to_string(), said);
        }
        assert_eq!(numbers(&journal), [1]);
        assert!(journal.close_blocking().is_err());
        let again = open(&files.after_kill()).journal;
        again.append_blocking(batch(2), Level::Synced).expect("appended");
        assert_eq!(numbers(&again), [1, 2]);
    }

    #[test]
    fn appends_after_the_closing_are_refused_and_those_before_are_durable() {
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
        let closed = crate::journal::block_on(reader.wait());
        assert_eq!(closed, Err(crate::journal::Closed));
    }

    fn first_of(name: &str) -> Option<u64> {
        crate::journal::segment::first_of(name).map(|seq| seq.0)
    }
}
