//! The names of the records of a full segment, in a file of its own, so that a record is found by
//! its name without reading the segment.
//!
//! ```text
//! header: magic | first seq, last seq u64 | checksum of the last record u32
//!         | key of the hashes, 16 bytes | entries, crc u32
//! page:   (hash of a name u64 | offset u32) x 341, by hash | crc u32
//! ```
//!
//! Numbers are little-endian; a checksum covers the bytes before it, and the last page is filled
//! with zeros. An offset is the distance from the first record. A producer chooses the name of an
//! event, so the hash has a random key. A producer that knew it could send many names of one hash,
//! and each would cost a look-up of any of them a read. The file is derived: one that is lost,
//! damaged or of another version is made again.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use siphasher::sip::SipHasher13;

use crate::{
    Seq,
    log::{
        files::{File, Files},
        record::{NameOf, Record},
    },
};

/// The file that is being written.
pub(crate) const UNFINISHED_NAME: &str = "unfinished.names";
const SUFFIX: &str = ".names";
const MAGIC: [u8; 8] = *b"asidenm1";
/// In a list of hashes, the entry of a record without a name.
pub(crate) const NO_NAME: u64 = 0;
const KEY_BYTES: usize = 16;
const HEADER_BYTES: usize = 52;
const ENTRY_BYTES: usize = 12;
const PAGE_BYTES: usize = 4_096;
const PAGE_ENTRIES: usize = (PAGE_BYTES - 4) / ENTRY_BYTES;

/// The hash of a record's name, and its distance from the segment's first record.
pub(crate) type Entry = (u64, u32);

/// The key of the hashes of names. It is stored with them and shown nowhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameKey([u8; KEY_BYTES]);

/// Hashes the names of records by one key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameHasher {
    name_of: NameOf,
    pub(crate) key: NameKey,
}

/// What tells a segment from another one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    /// The checksum of the last record.
    pub(crate) sum: u32,
}

/// The content of a file's header.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Header {
    identity: Identity,
    key: NameKey,
    entries: u32,
}

impl NameKey {
    /// A new key.
    pub(crate) fn random() -> Self {
        // The library's own tables rely on these against the same attack.
        let [low, high] = [0, 1].map(|half| RandomState::new().hash_one(half).to_le_bytes());
        let mut key = [0; KEY_BYTES];
        key[..8].copy_from_slice(&low);
        key[8..].copy_from_slice(&high);
        Self(key)
    }

    /// The hash of a name: SipHash-1-3, never [`NO_NAME`].
    pub(crate) fn hash(&self, name: &[u8]) -> u64 {
        SipHasher13::new_with_key(&self.0).hash(name).max(1)
    }
}

impl fmt::Debug for NameKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NameKey")
    }
}

impl NameHasher {
    /// A hasher with a new key.
    pub(crate) fn new(name_of: NameOf) -> Self {
        Self { name_of, key: NameKey::random() }
    }

    /// The hash of the record's name; `None` if it has no name.
    pub(crate) fn hash_of(&self, record: Record<'_>) -> Option<u64> {
        (self.name_of)(record).map(|name| self.key.hash(name))
    }
}

/// The file's name for the segment that begins with `first`.
pub(crate) fn name_of(first: Seq) -> String {
    format!("{:020}{SUFFIX}", first.0)
}

/// The first record of the segment to which a file of names belongs; `None` for other files.
pub(crate) fn first_of(name: &str) -> Option<Seq> {
    let seq = Seq(name.strip_suffix(SUFFIX)?.parse().ok()?);
    (name_of(seq) == name).then_some(seq)
}

/// Writes the file of a segment. The hashes of `entries` are by `key`.
pub(crate) fn write(
    files: &dyn Files,
    identity: Identity,
    key: NameKey,
    mut entries: Vec<Entry>,
) -> io::Result<()> {
    entries.sort_unstable_by_key(|(hash, _)| *hash);
    let count = u32::try_from(entries.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = Header { identity, key, entries: count }.to_bytes().to_vec();
    for page in entries.chunks(PAGE_ENTRIES) {
        let begin = bytes.len();
        for (hash, offset) in page {
            bytes.extend_from_slice(&hash.to_le_bytes());
            bytes.extend_from_slice(&offset.to_le_bytes());
        }
        bytes.resize(begin + PAGE_BYTES - 4, 0);
        let crc = crc32c::crc32c(bytes.get(begin..).expect("the page begins there"));
        bytes.extend_from_slice(&crc.to_le_bytes());
    }
    let written = || -> io::Result<()> {
        let file = files.create(UNFINISHED_NAME)?;
        file.write_at(&bytes, 0)?;
        file.sync_data()?;
        files.rename(UNFINISHED_NAME, &name_of(identity.first))
    };
    written().inspect_err(|_| {
        // The first error matters more.
        files.remove(UNFINISHED_NAME).ok();
    })
}

/// Whether the segment has its file.
pub(crate) fn is_there(files: &dyn Files, identity: Identity) -> bool {
    let read = || Header::read(files.open(&name_of(identity.first))?.as_ref());
    read().is_ok_and(|header| header.identity == identity)
}

/// The positions of the records whose names have the hash of `name`, in order, in the segment that
/// begins with `first`.
///
/// Errors: the file is missing or damaged.
pub(crate) fn find(files: &dyn Files, first: Seq, name: &[u8]) -> io::Result<Vec<Seq>> {
    let file = files.open(&name_of(first))?;
    let Header { key, entries, .. } = Header::read(file.as_ref())?;
    let (hash, count) = (key.hash(name), entries as usize);
    let (mut from, mut to) = (0, count);
    let mut pages = Pages { file, count, at: None, page: Vec::new() };
    while from < to {
        let middle = usize::midpoint(from, to);
        if pages.entry(middle)?.0 < hash { from = middle + 1 } else { to = middle }
    }
    let mut found = Vec::new();
    while from < count {
        let (known, offset) = pages.entry(from)?;
        if known != hash {
            break;
        }
        found.push(Seq(first.0 + u64::from(offset)));
        from += 1;
    }
    // Entries of one hash are in no order.
    found.sort_unstable();
    Ok(found)
}

/// Reads entries by pages.
struct Pages {
    file: Arc<dyn File>,
    count: usize,
    at: Option<usize>,
    page: Vec<u8>,
}

impl Pages {
    fn entry(&mut self, number: usize) -> io::Result<Entry> {
        let page = number / PAGE_ENTRIES;
        if self.at != Some(page) {
            self.at = None;
            self.page.resize(PAGE_BYTES, 0);
            let read = self.file.read_at(&mut self.page, (HEADER_BYTES + page * PAGE_BYTES) as u64)?;
            let (covered, crc) = self.page.split_last_chunk::<4>().ok_or(io::ErrorKind::InvalidData)?;
            if read != PAGE_BYTES || crc32c::crc32c(covered) != u32::from_le_bytes(*crc) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.at = Some(page);
        }
        let at = number % PAGE_ENTRIES * ENTRY_BYTES;
        let entry = self.page.get(at..).and_then(|rest| {
            let (name, rest) = rest.split_first_chunk::<8>()?;
            Some((u64::from_le_bytes(*name), u32::from_le_bytes(*rest.first_chunk()?)))
        });
        entry.filter(|_| number < self.count).ok_or(io::ErrorKind::InvalidData.into())
    }
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let Identity { first, last, sum } = self.identity;
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..16].copy_from_slice(&first.0.to_le_bytes());
        header[16..24].copy_from_slice(&last.0.to_le_bytes());
        header[24..28].copy_from_slice(&sum.to_le_bytes());
        header[28..44].copy_from_slice(&self.key.0);
        header[44..48].copy_from_slice(&self.entries.to_le_bytes());
        let crc = crc32c::crc32c(&header[..48]);
        header[48..].copy_from_slice(&crc.to_le_bytes());
        header
    }

    fn read(file: &dyn File) -> io::Result<Self> {
        let mut bytes = [0; HEADER_BYTES];
        file.read_at(&mut bytes, 0)?;
        Self::of_bytes(&bytes).ok_or(io::ErrorKind::InvalidData.into())
    }

    fn of_bytes(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let (covered, crc) = bytes.split_last_chunk()?;
        let (magic, rest) = covered.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (last, rest) = rest.split_first_chunk()?;
        let (sum, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (first, last) = (Seq(u64::from_le_bytes(*first)), Seq(u64::from_le_bytes(*last)));
        let identity = Identity { first, last, sum: u32::from_le_bytes(*sum) };
        let entries = u32::from_le_bytes(*rest.first_chunk()?);
        let is_good = *magic == MAGIC && crc32c::crc32c(covered) == u32::from_le_bytes(*crc);
        is_good.then_some(Self { identity, key: NameKey(*key), entries })
    }
}

/// The hashes in the bytes of a file of one page.
#[cfg(test)]
pub(crate) fn hashes_in(file: &[u8]) -> std::collections::BTreeSet<u64> {
    let entries = file[HEADER_BYTES..].chunks_exact(ENTRY_BYTES);
    let hashes = entries.map(|entry| u64::from_le_bytes(*entry.first_chunk().expect("a hash")));
    hashes.take_while(|hash| *hash != 0).collect()
}

/// Most segments whose names are held in memory: the one that is written, and full ones whose file
/// of names cannot be made as fast. The names of older ones are read again.
pub(crate) const NOTED_SEGMENTS_MAX: usize = 4;

/// The hashes of the names of the newest records of one segment, noted when the records are written,
/// so that the segment is not read again to make its file of names.
///
/// Held until that file is made, for the newest [`NOTED_SEGMENTS_MAX`] segments at most: 8 bytes a
/// record, which is 1.3 MB for a segment of 64 MiB with records of 400 bytes, and 13 MB if it is
/// full of the smallest records. Records from before a start are not noted; they are read.
#[derive(Debug, Default)]
pub(crate) struct NotedNames(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// The record of the first hash.
    from: Seq,
    /// One for each record, in order; [`NO_NAME`] for one without a name.
    hashes: Vec<u64>,
}

impl NotedNames {
    /// Notes the hashes of the records from `from` on, which follow those noted before.
    pub(crate) fn note(&self, from: Seq, hashes: &[u64]) {
        let mut noted = self.lock();
        if noted.hashes.is_empty() {
            noted.from = from;
        }
        debug_assert_eq!(from.0 - noted.from.0, noted.hashes.len() as u64, "records have no gap");
        noted.hashes.extend_from_slice(hashes);
    }

    /// The first noted record, and the positions of the noted records whose names have this hash,
    /// in order; `None` if none is noted.
    pub(crate) fn find(&self, hash: u64) -> Option<(Seq, Vec<Seq>)> {
        let noted = self.lock();
        let all = (noted.from.0..).map(Seq).zip(&noted.hashes);
        let same = all.filter(|(_, known)| **known == hash).map(|(seq, _)| seq).collect();
        (!noted.hashes.is_empty()).then_some((noted.from, same))
    }

    /// The first noted record, and the entries of all in the file of the segment that begins with
    /// `first`; `None` if none is noted.
    pub(crate) fn entries(&self, first: Seq) -> Option<(Seq, Vec<Entry>)> {
        let noted = self.lock();
        let offset = u32::try_from(noted.from.0.checked_sub(first.0)?).ok()?;
        let all = noted.hashes.iter().copied().zip(offset..);
        let named = all.filter(|(hash, _)| *hash != NO_NAME).collect();
        (!noted.hashes.is_empty()).then_some((noted.from, named))
    }

    /// Frees the memory.
    pub(crate) fn forget(&self) {
        *self.lock() = Noted::default();
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::log::memory::MemoryFiles;

    const IDENTITY: Identity = Identity { first: Seq(50), last: Seq(3_000), sum: 7 };

    const KEY: NameKey = NameKey(*b"0123456789abcdef");

    /// The name of record `n`, which it shares with another one.
    fn name(n: u32) -> [u8; 4] {
        (n / 2).to_le_bytes()
    }

    fn written(count: u32) -> MemoryFiles {
        let files = MemoryFiles::new();
        let entries = (0..count).rev().map(|n| (KEY.hash(&name(n)), n)).collect();
        write(&files, IDENTITY, KEY, entries).expect("written");
        files
    }

    #[test]
    fn each_record_is_found_by_its_name() {
        for count in [0, 1, 2, 340, 341, 342, 2_000] {
            let files = written(count);
            assert!(is_there(&files, IDENTITY));
            for n in 0..count {
                let found = find(&files, Seq(50), &name(n)).expect("readable");
                assert!(found.contains(&Seq(50 + u64::from(n))) && found.len() <= 2, "{n} of {count}");
            }
            for other in [b"other".as_slice(), b""] {
                assert!(find(&files, Seq(50), other).expect("readable").is_empty(), "{count}");
            }
        }
    }

    #[test]
    fn names_with_one_hash_differ_under_another_key() {
        // The first byte is all of the hash, so that names that share it can be found.
        let first_byte = |key: NameKey, name: u32| key.hash(&name.to_le_bytes()).to_le_bytes()[0];
        let (one, other) = (NameKey::random(), NameKey::random());
        let alike: Vec<u32> = (0..100_000).filter(|name| first_byte(one, *name) == 7).collect();
        assert!(alike.len() > 200, "{}", alike.len());
        let kinds: BTreeSet<u8> = alike.iter().map(|name| first_byte(other, *name)).collect();
        assert!(kinds.len() > 100, "{}", kinds.len());
    }

    #[test]
    fn foreign_and_damaged_files_are_not_used() {
        let files = written(700);
        for other in [Identity { sum: 8, ..IDENTITY }, Identity { last: Seq(2_999), ..IDENTITY }] {
            assert!(!is_there(&files, other));
        }
        let file = files.open(&name_of(Seq(50))).expect("there");
        for at in (0..HEADER_BYTES as u64).chain([60, 4_000, 4_147]) {
            let mut byte = [0];
            file.read_at(&mut byte, at).expect("read");
            file.write_at(&[byte[0] ^ 1], at).expect("written");
            let is_found = (0..700).all(|n| find(&files, Seq(50), &name(n)).is_ok());
            assert!(!is_found, "byte {at}");
            file.write_at(&byte, at).expect("written");
        }
        assert_eq!(first_of(&name_of(Seq(50))), Some(Seq(50)));
        assert_eq!(first_of("50.names"), None);
    }

    #[test]
    fn a_file_with_another_magic_is_not_used() {
        let files = written(10);
        let file = files.open(&name_of(Seq(50))).expect("there");
        let mut header = [0; HEADER_BYTES];
        file.read_at(&mut header, 0).expect("read");
        header[..8].copy_from_slice(b"asidesip");
        let crc = crc32c::crc32c(&header[..48]);
        header[48..].copy_from_slice(&crc.to_le_bytes());
        file.write_at(&header, 0).expect("written");
        assert!(!is_there(&files, IDENTITY) && find(&files, Seq(50), &name(1)).is_err());
    }
}
