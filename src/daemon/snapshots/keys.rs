//! The publish keys of snapshots: files that grow, of which each snapshot relies on a part.
//!
//! A snapshot adds the keys of the records since the one before to the newest file, and says in a list how many keys of which files
//! are its own, with their checksum. A key is 16 bytes and the record of its event 8, little-endian, oldest first; a file holds nothing else. What
//! follows a snapshot's part is nobody's until a later snapshot says that it is; so an attempt that did not come to its end is written over.

use std::io;

use super::{WriteError, file::Unusable};
use crate::{
    event::Seq,
    journal::{PUBLISHED_KEYS_MAX, PublishedKey, PublishedKeys, files::Files},
};

/// How long a key with its record is.
const KEY_BYTES: usize = 24;

/// How many keys a file takes: 1.5 MB, so that some 17 files hold all, and few are kept that are needed no more.
pub(super) const FILE_KEYS_MAX: usize = if cfg!(test) { 4_096 } else { 65_536 };

const SUFFIX: &str = ".keys";
/// Digits of a number in a name, so that names sort as numbers do.
const NUMBER_DIGITS: usize = 20;

/// How long a part is in a list.
const PART_BYTES: usize = 16;

/// The first keys of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    file: u64,
    keys: u32,
    checksum: u32,
}

/// The publish keys of the records up to one, as they are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct KeyLog {
    /// The last record whose key is in it, if it has one.
    pub(super) upto: Seq,
    /// Oldest first; all but the last are full.
    parts: Vec<Part>,
}

impl KeyLog {
    /// What a snapshot at `upto` says of its keys; `None` if `list` is nothing that [`KeyLog::encode`] writes.
    pub(super) fn decode(upto: Seq, list: &[u8]) -> Option<Self> {
        let (parts, []) = list.as_chunks::<PART_BYTES>() else { return None };
        let parts = parts.iter().map(Part::decode).collect::<Option<_>>()?;
        Some(Self { upto, parts })
    }

    /// For each file its number (8 bytes), how many of its keys (4), and their CRC-32C (4).
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut list = Vec::with_capacity(self.parts.len() * PART_BYTES);
        for Part { file, keys, checksum } in &self.parts {
            list.extend_from_slice(&file.to_le_bytes());
            list.extend_from_slice(&keys.to_le_bytes());
            list.extend_from_slice(&checksum.to_le_bytes());
        }
        list
    }

    /// Whether the file of this name is relied on.
    pub(super) fn has(&self, name: &str) -> bool {
        number_of(name).is_some_and(|number| self.parts.iter().any(|part| part.file == number))
    }

    fn count(&self) -> usize {
        self.parts.iter().map(|part| part.keys as usize).sum()
    }

    /// Reads the newest keys, as many as are remembered.
    ///
    /// Errors: a file is not there, or its part is not whole.
    pub(super) fn read(&self, files: &dyn Files) -> Result<PublishedKeys, Unusable> {
        let count = self.count();
        let mut published = PublishedKeys::with_room(PUBLISHED_KEYS_MAX, count);
        let mut forgotten = count.saturating_sub(PUBLISHED_KEYS_MAX);
        let mut bytes = Vec::new();
        for part in &self.parts {
            part.read(files, &mut bytes)?;
            let (keys, _) = bytes.as_chunks::<KEY_BYTES>();
            let skipped = forgotten.min(keys.len());
            published.add(keys.iter().skip(skipped).map(decode_key));
            forgotten -= skipped;
        }
        Ok(published)
    }

    /// Writes those of `published` that are of records after [`KeyLog::upto`] and up to `upto`, and has them on the disk; returns what
    /// a snapshot at `upto` relies on, and how many bytes were written.
    ///
    /// Shape: new files are numbered from `next` on; their names are not on the disk yet.
    pub(super) fn extended(
        &self,
        files: &dyn Files,
        published: &[PublishedKey],
        upto: Seq,
        next: &mut u64,
    ) -> Result<(Self, u64), WriteError> {
        let [begin, end] = [self.upto, upto].map(|seq| published.partition_point(|key| key.seq <= seq));
        let mut new = published.get(begin..end).unwrap_or_default();
        let (mut log, mut bytes) = (Self { upto, parts: self.parts.clone() }, 0);
        while !new.is_empty() {
            let last = log.parts.pop_if(|part| (part.keys as usize) < FILE_KEYS_MAX);
            let part = last.unwrap_or_else(|| Part::empty(next));
            let (now, later) = new.split_at(new.len().min(FILE_KEYS_MAX - part.keys as usize));
            let (part, written) = part.extended(files, now)?;
            log.parts.push(part);
            bytes += written;
            new = later;
        }
        log.forget();
        Ok((log, bytes))
    }

    /// Relies no more on files all of whose keys are too old to be remembered.
    fn forget(&mut self) {
        let mut left = self.count();
        let is_needed = |part: &Part| {
            left -= part.keys as usize;
            left < PUBLISHED_KEYS_MAX
        };
        let needless = self.parts.iter().position(is_needed).unwrap_or_default();
        self.parts.drain(..needless);
    }
}

impl Part {
    /// Nothing of a new file.
    fn empty(next: &mut u64) -> Self {
        let file = *next;
        *next += 1;
        Self { file, keys: 0, checksum: 0 }
    }

    fn decode(bytes: &[u8; PART_BYTES]) -> Option<Self> {
        let (file, rest) = bytes.split_first_chunk()?;
        let (keys, checksum) = rest.split_first_chunk()?;
        let [keys, checksum] = [keys, checksum.first_chunk()?].map(|number| u32::from_le_bytes(*number));
        Some(Self { file: u64::from_le_bytes(*file), keys, checksum })
    }

    fn name(&self) -> String {
        format!("{:0NUMBER_DIGITS$}{SUFFIX}", self.file)
    }

    fn length(&self) -> usize {
        self.keys as usize * KEY_BYTES
    }

    /// Fills `bytes` with the part.
    fn read(&self, files: &dyn Files, bytes: &mut Vec<u8>) -> Result<(), Unusable> {
        bytes.resize(self.length(), 0);
        let count = files
            .open(&self.name())
            .and_then(|file| file.read_at(bytes, 0))
            .map_err(|source| Unusable::KeysUnread { name: self.name(), source })?;
        bytes.truncate(count);
        let is_whole = count == self.length() && crc32c::crc32c(bytes) == self.checksum;
        if is_whole { Ok(()) } else { Err(Unusable::Keys { name: self.name() }) }
    }

    /// Writes keys behind the part, and has them on the disk; returns the part with them and how many bytes they are.
    fn extended(&self, files: &dyn Files, keys: &[PublishedKey]) -> Result<(Self, u64), WriteError> {
        let name = self.name();
        let failed = |operation| {
            let path = files.path(&name);
            move |source: io::Error| WriteError { operation, path, source }
        };
        let mut bytes = Vec::with_capacity(keys.len() * KEY_BYTES);
        for key in keys {
            bytes.extend_from_slice(&key.key().to_le_bytes());
            bytes.extend_from_slice(&key.seq.0.to_le_bytes());
        }
        let file = if self.keys == 0 {
            files.create(&name).map_err(failed("create"))?
        } else {
            files.open(&name).map_err(failed("open"))?
        };
        file.write_at(&bytes, self.length() as u64).map_err(failed("write"))?;
        file.sync_data().map_err(failed("sync"))?;
        let checksum = crc32c::crc32c_append(self.checksum, &bytes);
        let keys = u32::try_from(self.keys as usize + keys.len()).unwrap_or(u32::MAX);
        Ok((Self { file: self.file, keys, checksum }, bytes.len() as u64))
    }
}

/// The number that no file of keys among `names` has, nor a later one.
pub(super) fn next_number(names: &[String]) -> u64 {
    names.iter().filter_map(|name| number_of(name)).max().map_or(0, |number| number.saturating_add(1))
}

/// Whether a file of this name holds keys.
pub(super) fn is_keys(name: &str) -> bool {
    number_of(name).is_some()
}

fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let is_number = digits.len() == NUMBER_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

fn decode_key(bytes: &[u8; KEY_BYTES]) -> PublishedKey {
    let mut numbers = bytes.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number));
    let [low, high, seq] = std::array::from_fn(|_| numbers.next().unwrap_or_default());
    PublishedKey::new(u128::from(high) << 64 | u128::from(low), Seq(seq))
}
