//! The mark: a small file next to the segments, with the last durable position of a closed journal.
//!
//! ```text
//! seq u64 | crc-32c u32
//! ```
//!
//! A record only states how far earlier records are durable, so the last ones need the mark. The
//! records up to its position were synced, so a bad record there is damage, not a torn end. Later
//! appends do not invalidate it. A missing or damaged mark has no effect.

use std::io;

use crate::{Seq, log::files::Files};

/// The name of the mark's file.
pub(crate) const MARK_NAME: &str = "durable";

const MARK_BYTES: usize = 12;

/// The last durable record according to the mark; [`Seq::ZERO`] without a valid mark.
///
/// Errors: the file cannot be read.
pub(crate) fn read(files: &dyn Files) -> io::Result<Seq> {
    let file = match files.open(MARK_NAME) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => {
            return Ok(Seq::ZERO);
        }
        file => file?,
    };
    let mut bytes = [0; MARK_BYTES];
    let count = file.read_at(&mut bytes, 0)?;
    let (seq, crc) = bytes.split_first_chunk::<8>().expect("a mark begins with eight bytes");
    let is_whole = count == MARK_BYTES && crc == crc32c::crc32c(seq).to_le_bytes();
    Ok(if is_whole { Seq(u64::from_le_bytes(*seq)) } else { Seq::ZERO })
}

/// Writes the mark durably: everything up to `seq` is durable.
///
/// Errors: a file operation failed; the mark is then invalid.
pub(crate) fn write(files: &dyn Files, seq: Seq) -> io::Result<()> {
    let mut bytes = seq.0.to_le_bytes().to_vec();
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    let (file, is_new) = match files.open(MARK_NAME) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => (files.create(MARK_NAME)?, true),
        file => (file?, false),
    };
    let written = file.write_at(&bytes, 0).and_then(|()| file.sync_data());
    if written.is_err() && is_new {
        // An empty mark is useless, and takes space on a full disk.
        files.remove(MARK_NAME).ok();
    }
    written?;
    if is_new { files.sync_dir() } else { Ok(()) }
}

/// Removes the mark, because a new journal begins.
///
/// Errors: the file cannot be removed.
pub(crate) fn remove(files: &dyn Files) -> io::Result<()> {
    match files.remove(MARK_NAME) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::memory::{MemoryFiles, Operation};

    #[test]
    fn mark_returns_last_position_or_zero_if_damaged() {
        let files = MemoryFiles::new();
        assert_eq!(read(&files).expect("nothing there"), Seq::ZERO);
        for seq in [7, 300] {
            write(&files, Seq(seq)).expect("written");
            assert_eq!(read(&files.after_power_loss(seq)).expect("read"), Seq(seq));
        }
        let file = files.open(MARK_NAME).expect("there");
        file.write_at(&[9], 0).expect("written");
        assert_eq!(read(&files).expect("read"), Seq::ZERO);
        remove(&files).and_then(|()| remove(&files)).expect("removed");
        files.fail(Operation::Sync, MARK_NAME, 1, io::ErrorKind::Other);
        assert!(write(&files, Seq(1)).is_err());
        assert_eq!(files.list().expect("listed"), Vec::<String>::new());
    }
}
