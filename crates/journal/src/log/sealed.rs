//! A sealed segment: compressed blocks of whole records, an index of the blocks, and a seal that
//! covers both.
//!
//! ```text
//! header | block ... | index | seal
//! block: crc-32c u32 | stored length u32 | raw length u32 | zstd frame of framed records
//! index: (first seq u64 | raw offset u64 | stored offset u64) for each block
//! seal:  magic | first seq, last seq, last time, raw end, stored offset of the index u64
//!        | blocks u32 | index crc u32 | 0 u32 | crc u32
//! ```
//!
//! Numbers are little-endian. A checksum covers the bytes after it in a block, and the bytes before
//! it in the seal. A raw offset is the offset before sealing: a reader of [`SealedFile`] sees the
//! unsealed segment. A start reads only the seal.

use std::{
    cell::RefCell,
    io,
    sync::{Arc, OnceLock},
};

use zstd::bulk::{Compressor, Decompressor};

use crate::{
    Seq,
    log::{
        files::File,
        record::{self, BODY_BYTES_MAX, Record},
        segment_file::{self, HEADER_BYTES, JournalId, SEALED_VERSION},
    },
    time::Timestamp,
};

/// The size of a block before compression, in bytes.
///
/// Source: measured on events of 400 bytes. Twice the size saves a few percent, and the read of a
/// single record costs the whole block.
const BLOCK_BYTES: usize = 64 << 10;

/// The largest block: a block that is one byte short of full, plus the largest record.
const RAW_BYTES_MAX: usize = BLOCK_BYTES + record::size_of(BODY_BYTES_MAX);

/// The compression level; a higher one doubles the time for a few percent.
const ZSTD_LEVEL: i32 = 1;

/// Checksum and the two lengths.
pub(crate) const BLOCK_HEAD_BYTES: usize = 12;

const ENTRY_BYTES: usize = 24;
const SEAL_BYTES: usize = 64;
const SEAL_MAGIC: [u8; 8] = *b"aslgseal";

/// The damage of a sealed segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealDamage {
    /// The file ends without a seal, or with one whose checksum does not match.
    #[error("its seal is missing or damaged")]
    Seal,
    /// The index does not match the seal.
    #[error("its index is damaged")]
    Index,
    /// A block does not match its checksum.
    #[error("the block at byte {0} is damaged")]
    Block(u64),
    /// A sealed segment cannot be written.
    #[error("it is sealed")]
    Sealed,
}

/// The content of the seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seal {
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    /// The time of the last record.
    pub(crate) time: Timestamp,
    /// The end of the last record before sealing, in bytes.
    pub(crate) end: u64,
    index_at: u64,
    blocks: u32,
    index_crc: u32,
}

/// The offset of a block, and of its first record before sealing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    seq: Seq,
    raw: u64,
    stored: u64,
}

impl From<SealDamage> for io::Error {
    fn from(damage: SealDamage) -> Self {
        Self::new(io::ErrorKind::InvalidData, damage)
    }
}

/// Writes a sealed segment, record by record.
pub(crate) struct SealWriter {
    file: Arc<dyn File>,
    compressor: Compressor<'static>,
    /// The block that is being filled.
    raw: Vec<u8>,
    block: Vec<u8>,
    index: Vec<Entry>,
    /// The offset of the next block.
    stored: u64,
    /// The offset before sealing of the block that is being filled.
    raw_start: u64,
    begin: Option<Seq>,
    first: Seq,
    last: Seq,
    time: Timestamp,
}

impl SealWriter {
    /// Begins a segment of a journal in an empty file.
    pub(crate) fn new(file: Arc<dyn File>, first: Seq, id: JournalId) -> io::Result<Self> {
        file.write_at(&segment_file::header(SEALED_VERSION, id), 0)?;
        Ok(Self {
            file,
            compressor: Compressor::new(ZSTD_LEVEL)?,
            raw: Vec::new(),
            block: Vec::new(),
            index: Vec::new(),
            stored: HEADER_BYTES,
            raw_start: HEADER_BYTES,
            begin: None,
            first,
            last: first.previous(),
            time: Timestamp::ZERO,
        })
    }

    /// Adds the next record; returns whether a block was written.
    pub(crate) fn push(&mut self, record: Record<'_>) -> io::Result<bool> {
        self.begin.get_or_insert(record.seq);
        // Only durable records are sealed.
        record::encode(record, record.seq.previous(), &mut self.raw);
        self.last = record.seq;
        self.time = self.time.max(record.time);
        let is_full = self.raw.len() >= BLOCK_BYTES;
        if is_full {
            self.write_block()?;
        }
        Ok(is_full)
    }

    /// Writes the last block, the index and the seal, and syncs.
    pub(crate) fn finish(mut self) -> io::Result<Seal> {
        self.write_block()?;
        let mut index = Vec::with_capacity(self.index.len() * ENTRY_BYTES);
        for Entry { seq, raw, stored } in &self.index {
            for number in [seq.0, *raw, *stored] {
                index.extend_from_slice(&number.to_le_bytes());
            }
        }
        let seal = Seal {
            first: self.first,
            last: self.last,
            time: self.time,
            end: self.raw_start,
            index_at: self.stored,
            blocks: u32::try_from(self.index.len()).map_err(|_| io::ErrorKind::FileTooLarge)?,
            index_crc: crc32c::crc32c(&index),
        };
        index.extend_from_slice(&seal.encode());
        self.file.write_at(&index, self.stored)?;
        self.file.sync_data()?;
        Ok(seal)
    }

    fn write_block(&mut self) -> io::Result<()> {
        let Some(seq) = self.begin.take() else { return Ok(()) };
        let sealed = self.compressor.compress(&self.raw)?;
        let lengths = [sealed.len(), self.raw.len()]
            .map(|length| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes())
            .concat();
        let crc = crc32c::crc32c_append(crc32c::crc32c(&lengths), &sealed);
        self.block.clear();
        self.block.extend_from_slice(&crc.to_le_bytes());
        self.block.extend_from_slice(&lengths);
        self.block.extend_from_slice(&sealed);
        self.file.write_at(&self.block, self.stored)?;
        self.index.push(Entry { seq, raw: self.raw_start, stored: self.stored });
        self.stored += self.block.len() as u64;
        self.raw_start += self.raw.len() as u64;
        self.raw.clear();
        Ok(())
    }
}

impl Seal {
    fn encode(&self) -> [u8; SEAL_BYTES] {
        let Self { first, last, time, end, index_at, blocks, index_crc } = *self;
        let mut bytes = Vec::with_capacity(SEAL_BYTES);
        bytes.extend_from_slice(&SEAL_MAGIC);
        for number in [first.0, last.0, time.as_millis(), end, index_at] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in [blocks, index_crc, 0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        let mut seal = [0; SEAL_BYTES];
        seal.copy_from_slice(&bytes);
        seal
    }

    /// The end of the blocks, in bytes.
    pub(crate) fn index_at(&self) -> u64 {
        self.index_at
    }

    /// Reads the seal at the end of a file.
    fn read(file: &dyn File) -> io::Result<Self> {
        let size = file.size()?;
        let at = size.checked_sub(SEAL_BYTES as u64).ok_or(SealDamage::Seal)?;
        let mut bytes = [0; SEAL_BYTES];
        file.read_at(&mut bytes, at)?;
        let (covered, crc) = bytes.split_last_chunk::<4>().ok_or(SealDamage::Seal)?;
        if !covered.starts_with(&SEAL_MAGIC) || u32::from_le_bytes(*crc) != crc32c::crc32c(covered) {
            return Err(SealDamage::Seal.into());
        }
        let long = |at: usize| u64::from_le_bytes(*chunk(covered, at));
        let short = |at: usize| u32::from_le_bytes(*chunk(covered, at));
        let seal = Self {
            first: Seq(long(8)),
            last: Seq(long(16)),
            time: Timestamp::from_millis(long(24)),
            end: long(32),
            index_at: long(40),
            blocks: short(48),
            index_crc: short(52),
        };
        let index_end = seal.index_at.checked_add(u64::from(seal.blocks) * ENTRY_BYTES as u64);
        if index_end == Some(at) { Ok(seal) } else { Err(SealDamage::Seal.into()) }
    }
}

/// A sealed segment, read as if it were not sealed.
#[derive(Debug)]
pub(crate) struct SealedFile {
    file: Arc<dyn File>,
    pub(crate) seal: Seal,
    index: OnceLock<Vec<Entry>>,
}

impl SealedFile {
    /// Reads the seal.
    ///
    /// Errors: an error of kind `InvalidData` that wraps [`SealDamage`], or a file operation
    /// failed.
    pub(crate) fn open(file: Arc<dyn File>) -> io::Result<Self> {
        let seal = Seal::read(file.as_ref())?;
        Ok(Self { file, seal, index: OnceLock::new() })
    }

    /// How large the file is, in bytes.
    pub(crate) fn stored_bytes(&self) -> io::Result<u64> {
        self.file.size()
    }

    /// The first record of the block that contains `seq`, and its offset before sealing.
    pub(crate) fn place_before(&self, seq: Seq) -> io::Result<(Seq, u64)> {
        let index = self.index()?;
        let after = index.partition_point(|entry| entry.seq <= seq);
        let entry = after.checked_sub(1).and_then(|at| index.get(at));
        Ok(entry.map_or((self.seal.first, HEADER_BYTES), |entry| (entry.seq, entry.raw)))
    }

    /// The first record of the block after the one that contains `seq`.
    pub(crate) fn place_after(&self, seq: Seq) -> io::Result<Option<Seq>> {
        let index = self.index()?;
        let after = index.partition_point(|entry| entry.seq <= seq);
        Ok(index.get(after).map(|entry| entry.seq))
    }

    /// Whether the index is valid; reads it.
    pub(crate) fn check_index(&self) -> io::Result<()> {
        self.index().map(|_| ())
    }

    fn index(&self) -> io::Result<&[Entry]> {
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        let mut bytes = vec![0; self.seal.blocks as usize * ENTRY_BYTES];
        let count = self.file.read_at(&mut bytes, self.seal.index_at)?;
        if count < bytes.len() || crc32c::crc32c(&bytes) != self.seal.index_crc {
            return Err(SealDamage::Index.into());
        }
        let entry = |bytes: &[u8]| {
            let [seq, raw, stored] = [0, 8, 16].map(|at| u64::from_le_bytes(*chunk(bytes, at)));
            Entry { seq: Seq(seq), raw, stored }
        };
        Ok(self.index.get_or_init(|| bytes.chunks_exact(ENTRY_BYTES).map(entry).collect()))
    }
}

impl File for SealedFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.seal.end)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset >= self.seal.end {
            return Ok(0);
        }
        let index = self.index()?;
        let after = index.partition_point(|entry| entry.raw <= offset);
        let entry = after.checked_sub(1).and_then(|at| index.get(at)).ok_or(SealDamage::Index)?;
        let (next_raw, next_stored) =
            index.get(after).map_or((self.seal.end, self.seal.index_at), |next| (next.raw, next.stored));
        // The search ends between two entries around the offset, even in an index out of order.
        let (skipped, raw_bytes) = (offset - entry.raw, next_raw - entry.raw);
        let damaged = || io::Error::from(SealDamage::Block(entry.stored));
        let stored_bytes = next_stored.checked_sub(entry.stored).ok_or_else(damaged)?;
        if raw_bytes > RAW_BYTES_MAX as u64 || stored_bytes > stored_max() as u64 {
            return Err(damaged());
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let mut stored = std::mem::take(&mut scratch.stored);
            stored.resize(usize::try_from(stored_bytes).unwrap_or_default(), 0);
            let count = self.file.read_at(&mut stored, entry.stored)?;
            let raw_block = stored.get(..count).and_then(|stored| scratch.decompress(stored));
            let copied = raw_block.filter(|raw| raw.len() as u64 == raw_bytes).and_then(|raw| {
                let rest = raw.get(usize::try_from(skipped).ok()?..)?;
                let count = rest.len().min(buffer.len());
                buffer.get_mut(..count)?.copy_from_slice(rest.get(..count)?);
                Some(count)
            });
            scratch.stored = stored;
            copied.ok_or_else(damaged)
        })
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(SealDamage::Sealed.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn is_linked(&self) -> io::Result<bool> {
        self.file.is_linked()
    }
}

thread_local! {
    /// Buffers for reading a block; one per thread, because a decompressor takes far more memory
    /// than a block.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Buffers for reading blocks.
#[derive(Default)]
pub(crate) struct Scratch {
    decompressor: Option<Decompressor<'static>>,
    stored: Vec<u8>,
    raw: Vec<u8>,
}

impl Scratch {
    /// The records of the block in `stored`; `None` when it is damaged.
    pub(crate) fn decompress(&mut self, stored: &[u8]) -> Option<&[u8]> {
        let (stored_len, raw_len) = block_lengths(stored)?;
        let (crc, covered) = stored.split_first_chunk::<4>()?;
        let sealed = covered.get(8..)?;
        if sealed.len() != stored_len || u32::from_le_bytes(*crc) != crc32c::crc32c(covered) {
            return None;
        }
        if self.raw.len() < raw_len {
            self.raw.resize(raw_len, 0);
        }
        if self.decompressor.is_none() {
            self.decompressor = Decompressor::new().ok();
        }
        let raw = self.raw.get_mut(..raw_len)?;
        let count = self.decompressor.as_mut()?.decompress_to_buffer(sealed, raw).ok()?;
        (count == raw_len).then_some(raw)
    }
}

/// The frame length and the raw length of the block at the beginning of `stored`; `None` when no
/// block has such lengths.
pub(crate) fn block_lengths(stored: &[u8]) -> Option<(usize, usize)> {
    let lengths = stored.get(4..BLOCK_HEAD_BYTES)?;
    let [stored_len, raw_len] = [0, 4].map(|at| u32::from_le_bytes(*chunk(lengths, at)) as usize);
    let is_possible =
        (1..=RAW_BYTES_MAX).contains(&raw_len) && (1..=stored_max() - BLOCK_HEAD_BYTES).contains(&stored_len);
    is_possible.then_some((stored_len, raw_len))
}

/// The largest stored block, in bytes.
pub(crate) fn stored_max() -> usize {
    BLOCK_HEAD_BYTES + zstd::zstd_safe::compress_bound(RAW_BYTES_MAX)
}

/// `N` bytes at `at` of a slice known to have them.
fn chunk<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).expect("the slice has these bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{files::Files, memory::MemoryFiles, record::RecordKind};

    /// Bodies that compress, some larger than a block.
    fn body(number: u64) -> Vec<u8> {
        let size = if number.is_multiple_of(97) { 3 * BLOCK_BYTES } else { 400 };
        number.to_string().into_bytes().into_iter().cycle().take(size).collect()
    }

    fn record(number: u64, body: &[u8]) -> Record<'_> {
        Record { kind: RecordKind(1), seq: Seq(number), time: Timestamp::from_millis(number), body }
    }

    /// A sealed file, and its content before sealing.
    fn sealed(numbers: std::ops::Range<u64>) -> (MemoryFiles, Vec<u8>) {
        let files = MemoryFiles::new();
        let mut raw = segment_file::header(1, JournalId::EXAMPLE).to_vec();
        let mut seal_writer =
            SealWriter::new(files.create("a").expect("created"), Seq(numbers.start), JournalId::EXAMPLE)
                .expect("begun");
        for number in numbers {
            let body = body(number);
            let record = record(number, &body);
            record::encode(record, record.seq.previous(), &mut raw);
            seal_writer.push(record).expect("written");
        }
        let seal = seal_writer.finish().expect("sealed");
        assert_eq!(seal.end, raw.len() as u64);
        (files, raw)
    }

    #[test]
    fn sealed_segment_reads_same_bytes_from_any_offset() {
        let (files, raw) = sealed(5..1_000);
        let file = SealedFile::open(files.open("a").expect("there")).expect("sealed");
        assert_eq!(
            (file.seal.first, file.seal.last, file.seal.time),
            (Seq(5), Seq(999), Timestamp::from_millis(999))
        );
        assert!(file.stored_bytes().expect("sized") < raw.len() as u64 / 4);
        let mut buffer = vec![0; 100_000];
        for start in (HEADER_BYTES as usize..raw.len()).step_by(7_919) {
            let count = file.read_at(&mut buffer, start as u64).expect("read");
            assert!(count > 0);
            assert_eq!(buffer[..count], raw[start..start + count]);
        }
        assert_eq!(file.read_at(&mut buffer, raw.len() as u64).expect("read"), 0);
        for seq in [5, 6, 500, 999, 1_000] {
            let (first, offset) = file.place_before(Seq(seq)).expect("read");
            assert!(first <= Seq(seq), "{first}");
            file.read_at(&mut buffer, offset).expect("read");
            let record::Decoded::Record { record, .. } = record::decode(&buffer) else { panic!("a record") };
            assert_eq!(record.seq, first);
        }
    }

    #[test]
    fn an_unordered_index_is_never_an_early_end() {
        let (files, raw) = sealed(1..400);
        let file = SealedFile::open(files.open("a").expect("there")).expect("sealed");
        let entries = file.index().expect("read").len();
        let mut refused = 0;
        for at in 1..entries {
            let mut index = file.index().expect("read").to_vec();
            index.swap(at - 1, at);
            let other = SealedFile::open(files.open("a").expect("there")).expect("sealed");
            other.index.set(index).expect("not read yet");
            let mut buffer = vec![0; 100];
            for start in (HEADER_BYTES as usize..raw.len()).step_by(1_009) {
                match other.read_at(&mut buffer, start as u64) {
                    Ok(count) => {
                        assert!(count > 0 && buffer[..count] == raw[start..start + count], "{at} {start}")
                    }
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(refused > 0, "{entries}");
    }

    #[test]
    fn any_changed_byte_of_sealed_segment_is_detected() {
        let (files, raw) = sealed(1..400);
        let file = files.open("a").expect("there");
        let size = file.size().expect("sized");
        for at in (HEADER_BYTES..size).step_by(61).chain(size - 200..size) {
            let mut byte = [0];
            file.read_at(&mut byte, at).expect("read");
            file.write_at(&[byte[0] ^ 1], at).expect("written");
            let seen = SealedFile::open(files.open("a").expect("there")).and_then(|sealed| {
                let mut offset = HEADER_BYTES;
                let mut buffer = vec![0; RAW_BYTES_MAX];
                while offset < sealed.seal.end {
                    offset += sealed.read_at(&mut buffer, offset)? as u64;
                }
                Ok(())
            });
            let error = seen.expect_err("damaged");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "byte {at}: {error}");
            file.write_at(&byte, at).expect("written");
        }
        let whole = SealedFile::open(file).expect("sealed");
        assert_eq!(whole.size().expect("sized"), raw.len() as u64);
    }

    #[test]
    fn a_file_that_is_cut_has_no_seal() {
        let (files, _) = sealed(1..400);
        let file = files.open("a").expect("there");
        let mut bytes = vec![0; usize::try_from(file.size().expect("sized")).expect("small")];
        file.read_at(&mut bytes, 0).expect("read");
        for kept in [0, 15, 16, 1_000, bytes.len() - 1] {
            let cut = files.create("cut").expect("created");
            cut.write_at(&bytes[..kept], 0).expect("written");
            assert_eq!(SealedFile::open(cut).expect_err("cut").to_string(), "its seal is missing or damaged");
        }
    }
}
