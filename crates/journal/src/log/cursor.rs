//! Steps through the records of one file with large reads into one buffer.
//!
//! It has an offset in one file and no access to other segments. The caller passes the end of the
//! readable part.

use std::{io, ops::Range, sync::Arc};

use crate::{
    Seq,
    log::{
        files::File,
        record::{self, Damage, Decoded, Record, RecordKind},
    },
    time::Timestamp,
};

/// The size of one read, in bytes: some hundred events, so the system call costs little per event.
pub(crate) const READ_BYTES: usize = 256 << 10;

/// A record in the cursor's buffer, valid until the next [`Cursor::refill`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: RecordKind,
    pub(crate) seq: Seq,
    pub(crate) time: Timestamp,
    /// The last record that was known to be durable when this one was written.
    pub(crate) durable: Seq,
    body: Range<usize>,
}

/// The next item in the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// A record; the cursor is now after it.
    Record(Entry),
    /// The buffer ends before a whole record.
    Short,
    /// Preallocated space; the cursor does not move.
    End,
    /// Not a record; the cursor does not move.
    Damaged(Damage),
}

/// An offset in a file, and the bytes read from there.
#[derive(Debug)]
pub(crate) struct Cursor {
    file: Arc<dyn File>,
    /// The buffer's offset in the file.
    base: u64,
    buffer: Vec<u8>,
    filled: usize,
    position: usize,
}

impl Cursor {
    /// A cursor at `offset`; a record begins there, unless [`Cursor::find_record`] is called next.
    pub(crate) fn new(file: Arc<dyn File>, offset: u64) -> Self {
        Self { file, base: offset, buffer: Vec::new(), filled: 0, position: 0 }
    }

    /// The offset of the next record in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.position as u64
    }

    /// Goes to `offset` of `file`, keeping the buffer's memory.
    pub(crate) fn seek(&mut self, file: Arc<dyn File>, offset: u64) {
        self.file = file;
        self.base = offset;
        self.filled = 0;
        self.position = 0;
    }

    /// Whether the rest of the buffer is all zero.
    pub(crate) fn rest_is_zero(&self) -> bool {
        self.rest().iter().all(|byte| *byte == 0)
    }

    /// Takes the next record of the buffer.
    pub(crate) fn step(&mut self) -> Step {
        match record::decode(self.rest()) {
            Decoded::Record { record, durable, size } => {
                let Record { kind, seq, time, body } = record;
                let end = self.position + size;
                let body = end - body.len()..end;
                self.position = end;
                Step::Record(Entry { kind, seq, time, durable, body })
            }
            Decoded::Incomplete => Step::Short,
            Decoded::End => Step::End,
            Decoded::Damaged(damage) => Step::Damaged(damage),
        }
    }

    /// The record of `entry`.
    pub(crate) fn record(&self, entry: &Entry) -> Record<'_> {
        let Entry { kind, seq, time, ref body, .. } = *entry;
        let body = self.buffer.get(body.clone()).expect("a place in a buffer that never shrinks");
        Record { kind, seq, time, body }
    }

    /// Reads more, up to `end` of the file; returns whether there was any.
    pub(crate) fn refill(&mut self, end: u64) -> io::Result<bool> {
        self.buffer.copy_within(self.position..self.filled, 0);
        self.base += self.position as u64;
        self.filled -= self.position;
        self.position = 0;
        let from = self.base + self.filled as u64;
        // For a record longer than one read, read as much again as is buffered.
        let wanted = READ_BYTES.max(self.filled) as u64;
        let wanted = usize::try_from(end.saturating_sub(from).min(wanted)).unwrap_or(READ_BYTES);
        if self.buffer.is_empty() {
            // Zeroed pages of the system; only the used ones take memory.
            self.buffer = vec![0; wanted];
        } else if self.buffer.len() < self.filled + wanted {
            self.buffer.resize(self.filled + wanted, 0);
        }
        let space = self.buffer.get_mut(self.filled..self.filled + wanted).expect("the buffer has this room");
        let count = self.file.read_at(space, from)?;
        self.filled += count;
        Ok(count > 0)
    }

    /// Takes the next record before `end` of the file from an offset where none needs to begin, by
    /// trying every byte; returns its offset too, `None` when there is none.
    pub(crate) fn find_record(&mut self, end: u64) -> io::Result<Option<(u64, Entry)>> {
        while self.offset() < end {
            let offset = self.offset();
            match self.step() {
                Step::Record(entry) => return Ok(Some((offset, entry))),
                Step::Short if self.refill(end)? => {}
                Step::End => self.skip_zeros(),
                Step::Short | Step::Damaged(_) if self.skip_byte() => {}
                Step::Short | Step::Damaged(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Skips one byte; returns whether there was one.
    pub(crate) fn skip_byte(&mut self) -> bool {
        let has_byte = self.position < self.filled;
        self.position += usize::from(has_byte);
        has_byte
    }

    /// Skips buffered zeros that no record begins with: at least one after [`Step::End`].
    pub(crate) fn skip_zeros(&mut self) {
        let zeros = self.rest().iter().take_while(|byte| **byte == 0).count();
        // A record's length is little-endian, so its first three bytes can be zero.
        self.position += zeros.saturating_sub(3);
    }

    fn rest(&self) -> &[u8] {
        self.buffer.get(self.position..self.filled).expect("the filled part, from a position in it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{files::Files, memory::MemoryFiles};

    #[test]
    fn cursor_reads_records_of_every_size() {
        let sizes = [0, 1, READ_BYTES - 10, 3 * READ_BYTES, 5, record::BODY_BYTES_MAX, 2];
        let mut bytes = Vec::new();
        for (seq, size) in (1_u8..).zip(sizes) {
            let body = vec![seq; size];
            let seq = Seq(seq.into());
            let record = Record { kind: RecordKind(1), seq, time: Timestamp::ZERO, body: &body };
            record::encode(record, seq.previous(), &mut bytes);
        }
        let written = bytes.len() as u64;
        bytes.extend([0; 100]);
        let file = MemoryFiles::new().create("a").expect("created");
        file.write_at(&bytes, 0).expect("written");

        let mut cursor = Cursor::new(file, 0);
        let mut found = Vec::new();
        loop {
            match cursor.step() {
                Step::Record(entry) => found.push(cursor.record(&entry).body.len()),
                Step::Short if cursor.refill(u64::MAX).expect("read") => {}
                Step::Short | Step::Damaged(_) => panic!("no record at {}", cursor.offset()),
                Step::End => break,
            }
        }
        assert_eq!(found, sizes);
        assert_eq!(cursor.offset(), written);
    }

    #[test]
    fn nothing_beyond_the_end_is_read() {
        let file = MemoryFiles::new().create("a").expect("created");
        file.write_at(&[0; 64], 0).expect("written");
        let mut cursor = Cursor::new(file, 0);
        assert_eq!(cursor.step(), Step::Short);
        assert!(!cursor.refill(0).expect("read"));
        assert!(cursor.refill(3).expect("read"));
        assert_eq!(cursor.step(), Step::Short);
        assert!(cursor.refill(64).expect("read"));
        assert_eq!(cursor.step(), Step::End);
    }
}
