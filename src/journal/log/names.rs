//! The names of the records of a full segment, in a file of its own, so that a record is found by
//! its name without reading the segment.
//!
//! ```text
//! header: magic | first seq, last seq u64 | checksum of the last record, entries, crc u32
//! page:   (name u64 | offset u32) x 341, sorted | crc u32
//! ```
//!
//! Numbers are little-endian; a checksum covers the bytes before it, and the last page is filled
//! with zeros. A name is a hash that the caller makes; an offset is the distance from the first
//! record. The file is derived: one that is lost or damaged is made again.

use std::{io, sync::Arc};

use crate::{
    event::Seq,
    journal::log::files::{File, Files},
};

/// The file that is being written.
pub(crate) const UNFINISHED_NAME: &str = "unfinished.names";
const SUFFIX: &str = ".names";
const MAGIC: [u8; 8] = *b"asidesip";
const HEADER_BYTES: usize = 36;
const ENTRY_BYTES: usize = 12;
const PAGE_BYTES: usize = 4_096;
const PAGE_ENTRIES: usize = (PAGE_BYTES - 4) / ENTRY_BYTES;

/// The name of a record, and its distance from the segment's first record.
pub(crate) type Entry = (u64, u32);

/// What tells a segment from another one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    /// The checksum of the last record.
    pub(crate) sum: u32,
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

/// Writes the file of a segment.
pub(crate) fn write(files: &dyn Files, identity: Identity, mut entries: Vec<Entry>) -> io::Result<()> {
    entries.sort_unstable();
    let count = u32::try_from(entries.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = header(identity, count).to_vec();
    for page in entries.chunks(PAGE_ENTRIES) {
        let begin = bytes.len();
        for (name, offset) in page {
            bytes.extend_from_slice(&name.to_le_bytes());
            bytes.extend_from_slice(&offset.to_le_bytes());
        }
        bytes.resize(begin + PAGE_BYTES - 4, 0);
        let crc = crc32c::crc32c(bytes.get(begin..).unwrap_or_default());
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
    let read = || -> io::Result<bool> {
        let (found, count) = read_header(files.open(&name_of(identity.first))?.as_ref())?;
        Ok(found == header(identity, count))
    };
    read().unwrap_or(false)
}

/// The positions of the records called `name` in the segment that begins with `first`.
///
/// Errors: the file is missing or damaged.
pub(crate) fn find(files: &dyn Files, first: Seq, name: u64) -> io::Result<Vec<Seq>> {
    let file = files.open(&name_of(first))?;
    let (_, count) = read_header(file.as_ref())?;
    let (mut from, mut to) = (0, count as usize);
    let mut pages = Pages { file, count: count as usize, at: None, page: Vec::new() };
    while from < to {
        let middle = usize::midpoint(from, to);
        if pages.entry(middle)?.0 < name { from = middle + 1 } else { to = middle }
    }
    let mut found = Vec::new();
    while from < count as usize {
        let (of, offset) = pages.entry(from)?;
        if of != name {
            break;
        }
        found.push(Seq(first.0 + u64::from(offset)));
        from += 1;
    }
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

fn header(identity: Identity, entries: u32) -> [u8; HEADER_BYTES] {
    let Identity { first, last, sum } = identity;
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..16].copy_from_slice(&first.0.to_le_bytes());
    header[16..24].copy_from_slice(&last.0.to_le_bytes());
    header[24..28].copy_from_slice(&sum.to_le_bytes());
    header[28..32].copy_from_slice(&entries.to_le_bytes());
    let crc = crc32c::crc32c(&header[..32]);
    header[32..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// The header, and the number of entries in it.
fn read_header(file: &dyn File) -> io::Result<([u8; HEADER_BYTES], u32)> {
    let mut header = [0; HEADER_BYTES];
    file.read_at(&mut header, 0)?;
    let (covered, crc) = header.split_last_chunk::<4>().ok_or(io::ErrorKind::InvalidData)?;
    let (magic, count) = (covered.first_chunk::<8>(), covered.last_chunk::<4>());
    if magic != Some(&MAGIC) || crc32c::crc32c(covered) != u32::from_le_bytes(*crc) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((header, count.map_or(0, |count| u32::from_le_bytes(*count))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::log::memory::MemoryFiles;

    const IDENTITY: Identity = Identity { first: Seq(50), last: Seq(3_000), sum: 7 };

    fn written(count: u32) -> MemoryFiles {
        let files = MemoryFiles::new();
        // Each name but the last two twice.
        write(&files, IDENTITY, (0..count).rev().map(|n| (u64::from(n / 2) * 10, n)).collect())
            .expect("written");
        files
    }

    #[test]
    fn each_record_is_found_by_its_name() {
        for count in [0, 1, 2, 340, 341, 342, 2_000] {
            let files = written(count);
            assert!(is_there(&files, IDENTITY));
            for n in 0..count {
                let found = find(&files, Seq(50), u64::from(n / 2) * 10).expect("readable");
                assert!(found.contains(&Seq(50 + u64::from(n))) && found.len() <= 2, "{n} of {count}");
            }
            for name in [5, 1 << 60] {
                assert!(find(&files, Seq(50), name).expect("readable").is_empty(), "{count}");
            }
        }
    }

    #[test]
    fn foreign_and_damaged_files_are_not_used() {
        let files = written(700);
        for other in [Identity { sum: 8, ..IDENTITY }, Identity { last: Seq(2_999), ..IDENTITY }] {
            assert!(!is_there(&files, other));
        }
        let file = files.open(&name_of(Seq(50))).expect("there");
        for at in (0..HEADER_BYTES as u64).chain([40, 4_000, 4_131]) {
            let mut byte = [0];
            file.read_at(&mut byte, at).expect("read");
            file.write_at(&[byte[0] ^ 1], at).expect("written");
            assert!(find(&files, Seq(50), 0).is_err(), "byte {at}");
            file.write_at(&byte, at).expect("written");
        }
        assert_eq!(first_of(&name_of(Seq(50))), Some(Seq(50)));
        assert_eq!(first_of("50.names"), None);
    }
}
