//! The file of a segment: its name, its header with the identity of the journal, and how the next
//! one is prepared.
//!
//! A preallocated file has a header (magic, identity of the journal, format version, checksum), then
//! records without gaps, then zeros. The next file is prepared ahead under its own name. It gets a
//! segment's name when all records before it are synced, so only the last segment, or the prepared
//! file after it, can have a torn end.

use std::{
    collections::BTreeMap,
    fs,
    hash::{BuildHasher, RandomState},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    Seq,
    log::{
        cursor::READ_BYTES,
        files::{File, Files, fill_with_zeros},
        segment_file,
    },
};

/// The file that is prepared, or is already being filled, and has no segment's name yet.
pub(crate) const NEXT_NAME: &str = "next.seg";

/// The offset of the first record of a segment, in bytes.
pub(crate) const HEADER_BYTES: u64 = 16;

/// The file in which a segment is sealed or repaired before it gets the segment's name.
pub(crate) const UNFINISHED_NAME: &str = "unfinished.seg";

/// The format of a segment that can be appended to.
pub(crate) const PLAIN_VERSION: u32 = 1;

/// The format of a sealed segment, and the newest that this program reads.
pub(crate) const SEALED_VERSION: u32 = 2;

/// The first bytes of every segment; its journal's identity follows.
const MAGIC: [u8; 4] = *b"aslg";

/// The first bytes of the segments of builds before the first release, whose formats nothing reads.
const UNRELEASED_MAGIC: [u8; 4] = *b"asid";

/// The identity of a journal, which each of its segments carries: random, chosen with the first one.
///
/// Segments differ by their first records alone, and two journals have the same numbers. A segment
/// of another journal would be read as if its records were those of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JournalId(pub(crate) [u8; 4]);

#[cfg(test)]
impl JournalId {
    pub(crate) const EXAMPLE: Self = Self(*b"test");
}

/// The result of reading a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    /// A segment of framed records.
    Plain,
    /// A sealed segment.
    Sealed,
    /// A segment of a newer format.
    Newer(u32),
    /// Not a segment.
    Other,
}

/// The file name of the segment that begins with `first`.
pub(crate) fn name_of(first: Seq) -> String {
    format!("{:020}.seg", first.0)
}

/// The first record of the segment with this file name; `None` for other files.
pub(crate) fn first_of(name: &str) -> Option<Seq> {
    let seq = Seq(name.strip_suffix(".seg")?.parse().ok()?);
    (name_of(seq) == name).then_some(seq)
}

/// The oldest segment in `folder`, if a build before the first release wrote it.
///
/// Errors: none; a folder or a segment that cannot be read is refused where the journal is opened.
pub fn unreleased_segment(folder: &Path) -> Option<PathBuf> {
    let paths = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let oldest = paths.filter(|path| path.extension().is_some_and(|extension| extension == "seg")).min()?;
    let mut magic = [0; UNRELEASED_MAGIC.len()];
    fs::File::open(&oldest).and_then(|mut file| file.read_exact(&mut magic)).ok()?;
    (magic == UNRELEASED_MAGIC).then_some(oldest)
}

/// Creates an empty segment of `size` bytes of the journal `id` under [`NEXT_NAME`], durably.
///
/// A file that an earlier run prepared but did not fill is reused and synced again: that run may
/// have been killed before its sync, or its sync may have failed. On a disk with too little space
/// nothing is written, so that other writers keep the rest.
pub(crate) fn prepare(files: &dyn Files, size: u64, id: JournalId) -> io::Result<Arc<dyn File>> {
    let header = header(PLAIN_VERSION, id);
    let mut there = 0;
    if files.list()?.iter().any(|name| name == NEXT_NAME) {
        let file = files.open(NEXT_NAME)?;
        there = file.size()?;
        if there == size
            && header_of(file.as_ref())? == Header::Plain
            && used_end(file.as_ref(), HEADER_BYTES)?.is_none()
        {
            file.write_at(&header, 0)?;
            file.sync_data()?;
            files.sync_dir()?;
            return Ok(file);
        }
    }
    if files.free_bytes().is_ok_and(|free| free.saturating_add(there) < size) {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let file = files.create(NEXT_NAME)?;
    let prepared = file
        .write_at(&header, 0)
        .and_then(|()| fill_with_zeros(file.as_ref(), HEADER_BYTES, size))
        .and_then(|()| file.sync_data())
        .and_then(|()| files.sync_dir());
    if prepared.is_err() {
        // On a full disk other writers need this space. The first error matters more than a failure
        // here.
        files.remove(NEXT_NAME).ok();
    }
    prepared.map(|()| file)
}

/// The header of a segment.
///
/// Shape: four magic bytes, the journal's identity, the format, and the CRC-32C of all; numbers are
/// little-endian.
pub(crate) fn header(version: u32, id: JournalId) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..4].copy_from_slice(&MAGIC);
    header[4..8].copy_from_slice(&id.0);
    header[8..12].copy_from_slice(&version.to_le_bytes());
    let sum = crc32c::crc32c(&header[..12]);
    header[12..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Reads the type of a file. Every format needs a valid checksum, else the header is damaged.
pub(crate) fn header_of(file: &dyn File) -> io::Result<Header> {
    let mut found = [0; HEADER_BYTES as usize];
    file.read_at(&mut found, 0)?;
    let [_, _, _, _, i0, i1, i2, i3, v0, v1, v2, v3, ..] = found;
    let (id, version) = (JournalId([i0, i1, i2, i3]), u32::from_le_bytes([v0, v1, v2, v3]));
    if found != header(version, id) {
        return Ok(Header::Other);
    }
    Ok(match version {
        0 => Header::Other,
        PLAIN_VERSION => Header::Plain,
        SEALED_VERSION => Header::Sealed,
        newer => Header::Newer(newer),
    })
}

/// The identity in a file's header; `None` if the header is damaged.
pub(crate) fn id_of(file: &dyn File) -> io::Result<Option<JournalId>> {
    if header_of(file)? == Header::Other {
        return Ok(None);
    }
    let mut found = [0; HEADER_BYTES as usize];
    file.read_at(&mut found, 0)?;
    let [_, _, _, _, i0, i1, i2, i3, ..] = found;
    Ok(Some(JournalId([i0, i1, i2, i3])))
}

/// Whether the first read of the record space has a byte that is not zero.
pub(crate) fn begins_used(file: &dyn File) -> io::Result<bool> {
    let mut buffer = vec![0; READ_BYTES];
    let count = file.read_at(&mut buffer, HEADER_BYTES)?;
    Ok(buffer.iter().take(count).any(|byte| *byte != 0))
}

/// The end of the last nonzero byte after `offset`; `None` when all are zero.
pub(crate) fn used_end(file: &dyn File, offset: u64) -> io::Result<Option<u64>> {
    let mut buffer = vec![0; READ_BYTES];
    let (mut offset, mut end) = (offset, None);
    loop {
        let count = file.read_at(&mut buffer, offset)?;
        let there = buffer.get(..count).expect("no more is read than fits");
        if there.is_empty() {
            return Ok(end);
        }
        // Nearly all of it is zero, and the compiler vectorizes a fold without an exit.
        if there.iter().fold(0, |all, byte| all | byte) != 0 {
            end = there.iter().rposition(|byte| *byte != 0).map(|at| offset + at as u64 + 1);
        }
        offset += count as u64;
    }
}

/// A new identity.
fn random_id() -> JournalId {
    let [a, b, c, d, ..] = RandomState::new().hash_one(0).to_le_bytes();
    JournalId([a, b, c, d])
}

/// The identity for a new segment: the journal's, else a new one.
pub(crate) fn for_new_segment(files: &dyn Files) -> io::Result<JournalId> {
    Ok(most_common(&all(files)?).unwrap_or_else(random_id))
}

/// The names of the segments of other journals: those whose identity is not the one that most
/// segments have.
pub(crate) fn foreign(files: &dyn Files) -> io::Result<Vec<String>> {
    let ids = all(files)?;
    let own = most_common(&ids);
    let mut names: Vec<String> =
        ids.into_iter().filter(|(_, id)| Some(*id) != own).map(|(name, _)| name).collect();
    names.sort_unstable();
    Ok(names)
}

/// The segments whose headers are valid, with their identities.
fn all(files: &dyn Files) -> io::Result<Vec<(String, JournalId)>> {
    let mut ids = Vec::new();
    for name in files.list()? {
        let is_segment = segment_file::first_of(&name).is_some() || name == NEXT_NAME;
        if is_segment && let Some(id) = of_file(files, &name)? {
            // A prepared file without records gets a new header.
            if name != NEXT_NAME || segment_file::begins_used(files.open(&name)?.as_ref())? {
                ids.push((name, id));
            }
        }
    }
    Ok(ids)
}

fn most_common(ids: &[(String, JournalId)]) -> Option<JournalId> {
    let mut counts: BTreeMap<JournalId, usize> = BTreeMap::new();
    ids.iter().for_each(|(_, id)| *counts.entry(*id).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(id, _)| id)
}

/// The identity in a file; `None` if its header is damaged, or the file is gone.
fn of_file(files: &dyn Files, name: &str) -> io::Result<Option<JournalId>> {
    match files.open(name) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => {
            Ok(None)
        }
        file => segment_file::id_of(file?.as_ref()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        OpenError, RecordKind, RepairMode, Seq, Tombstone,
        log::memory::MemoryFiles,
        repair,
        testing::{filled, try_open, try_open_plainly},
        verify,
    };

    #[test]
    fn segment_name_parses_to_its_first_record() {
        assert_eq!(name_of(Seq(1)), "00000000000000000001.seg");
        assert_eq!(first_of("00000000000000000042.seg"), Some(Seq(42)));
        for other in ["42.seg", "next.seg", "00000000000000000042.seg.bak", "+0000000000000000042.seg"] {
            assert_eq!(first_of(other), None, "{other}");
        }
    }

    #[test]
    fn only_an_unused_prepared_file_is_reused() {
        let files = MemoryFiles::new();
        let file = prepare(&files, 4_096, JournalId::EXAMPLE).expect("prepared");
        assert_eq!(header_of(file.as_ref()).expect("read"), Header::Plain);
        let writes = files.operations().writes;
        prepare(&files, 4_096, JournalId::EXAMPLE).expect("taken");
        assert_eq!(files.operations().writes, writes + 1, "its header alone");
        file.write_at(&[1], 4_000).expect("written");
        assert_eq!(used_end(file.as_ref(), HEADER_BYTES).expect("read"), Some(4_001));
        let again = prepare(&files, 4_096, JournalId::EXAMPLE).expect("prepared");
        assert_eq!(used_end(again.as_ref(), HEADER_BYTES).expect("read"), None);
    }

    #[test]
    fn reused_prepared_file_survives_a_power_loss() {
        let files = MemoryFiles::new();
        let file = files.create(NEXT_NAME).expect("created");
        let written = file.write_at(&header(PLAIN_VERSION, JournalId::EXAMPLE), 0);
        written.and_then(|()| fill_with_zeros(file.as_ref(), HEADER_BYTES, 4_096)).expect("written");
        let killed = files.after_kill();
        prepare(&killed, 4_096, JournalId::EXAMPLE).expect("taken");
        for seed in 0..20 {
            let left = killed.after_power_loss(seed);
            let file = left.open(NEXT_NAME).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(header_of(file.as_ref()).expect("read"), Header::Plain, "seed {seed}");
        }
    }

    #[test]
    fn prepare_writes_nothing_without_enough_space() {
        let files = MemoryFiles::new();
        files.set_space(Some(4_095));
        let error = prepare(&files, 4_096, JournalId::EXAMPLE).map(|_| ()).expect_err("too little");
        assert_eq!((error.kind(), files.operations().writes), (io::ErrorKind::StorageFull, 0));
        assert_eq!(files.list().expect("listed"), Vec::<String>::new());
        files.set_space(Some(4_096));
        prepare(&files, 4_096, JournalId::EXAMPLE).expect("enough");
    }

    #[test]
    fn newer_headers_are_distinguished_from_damaged_ones() {
        let files = MemoryFiles::new();
        let file = prepare(&files, 64, JournalId::EXAMPLE).expect("prepared");
        let kind_of = |header: &[u8]| {
            file.write_at(header, 0).expect("written");
            header_of(file.as_ref()).expect("read")
        };
        let kinds = [Header::Plain, Header::Sealed, Header::Newer(3)];
        assert_eq!([1, 2, 3].map(|version| kind_of(&header(version, JournalId::EXAMPLE))), kinds);
        for bit in 0..8 * HEADER_BYTES as usize {
            let mut flipped = header(SEALED_VERSION, JournalId(*b"1234"));
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(kind_of(&flipped), Header::Other, "bit {bit}");
        }
        assert_eq!(header_of(files.create("empty").expect("created").as_ref()).expect("read"), Header::Other);
    }

    const TOMBSTONE: Tombstone<'static> = Tombstone { kind: RecordKind(255), body: b"lost" };

    /// Puts the file of `from` in the place of the one of `to`.
    fn put(from: &MemoryFiles, to: &MemoryFiles, name: &str) {
        let file = from.open(name).expect("there");
        let mut bytes = vec![0; usize::try_from(file.size().expect("sized")).expect("small")];
        file.read_at(&mut bytes, 0).expect("read");
        let copy = to.create(name).expect("created");
        copy.write_at(&bytes, 0).and_then(|()| copy.sync_data()).expect("written");
    }

    #[test]
    fn a_foreign_segment_is_refused_and_named() {
        for seals in [false, true] {
            let other = filled(40, seals);
            let mut names = other.list().expect("listed");
            names.retain(|name| segment_file::first_of(name).is_some());
            names.sort();
            assert!(names.len() > 4, "{names:?}");
            for name in &names {
                let files = filled(40, seals);
                put(&other, &files, name);
                let refused = try_open(&files).expect_err("it is of another journal");
                assert!(matches!(&refused, OpenError::Foreign { path } if path.ends_with(name)), "{refused}");
                let verified = verify(&files, TOMBSTONE.kind, Seq::ZERO).expect("readable");
                let found: Vec<&String> = verified
                    .segments
                    .iter()
                    .filter(|segment| !segment.findings.is_empty())
                    .map(|segment| &segment.name)
                    .collect();
                assert_eq!(found, [name]);
                let repaired = repair(&files, TOMBSTONE, Seq::ZERO, RepairMode::Rewrite).expect("repaired").1;
                assert_eq!((repaired.len(), repaired[0].records), (1, 0), "none of its records is kept");
                assert!(files.list().expect("listed").contains(&format!("{name}.damaged-1")));
                assert!(try_open_plainly(&files).is_ok(), "{name}");
            }
        }
    }
}
