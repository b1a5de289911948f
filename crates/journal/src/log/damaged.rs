//! Finds every good record of a damaged file. Changes nothing.
//!
//! After damage it tries every byte as the beginning of a record, or of a block of a sealed
//! segment, until a checksum matches. It reports all items in file order; the caller decides which
//! records belong there.

use std::{io, sync::Arc};

use crate::{
    Seq,
    log::{
        cursor::{Cursor, Step},
        files::File,
        record::{self, Damage, Decoded, Record},
        sealed::{BLOCK_HEAD_BYTES, Scratch, SealDamage, SealedFile, block_lengths},
        segment_file::{self, HEADER_BYTES, Header},
    },
};

/// The item at an offset of a file.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    /// A record with a valid checksum, and the last durable record according to it.
    Record(Record<'a>, Seq),
    /// The beginning of damage, which extends to the next record.
    Damage(FoundDamage),
}

/// Why there is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FoundDamage {
    /// A folder has the file's name.
    #[error("it is a folder")]
    Folder,
    /// The file has no segment header.
    #[error("the file does not begin as a segment")]
    Header,
    /// A newer program wrote the file.
    #[error("the file has format {0}, which is newer than {max}, the newest this program reads", max = segment_file::SEALED_VERSION)]
    Newer(u32),
    /// The file has the identity of another journal.
    #[error("the file is a segment of another journal")]
    Foreign,
    /// Bytes that are not a record.
    #[error("the record is damaged: {0}")]
    Record(Damage),
    /// Zeros, followed by other bytes.
    #[error("there are zeros between records")]
    Zeros,
    /// A sealed segment is damaged.
    #[error("the sealed file is damaged: {0}")]
    Sealed(SealDamage),
}

/// Calls `visit` with the offset of every item in `file`; returns whether it is sealed.
///
/// Errors: the file cannot be read, or `visit` failed.
pub(crate) fn walk(
    file: &Arc<dyn File>,
    visit: &mut dyn FnMut(u64, Item<'_>) -> io::Result<()>,
) -> io::Result<bool> {
    let is_sealed = match segment_file::header_of(file.as_ref())? {
        Header::Plain => false,
        Header::Sealed => true,
        Header::Newer(version) => {
            visit(0, Item::Damage(FoundDamage::Newer(version)))?;
            return Ok(false);
        }
        Header::Other => {
            visit(0, Item::Damage(FoundDamage::Header))?;
            SealedFile::open(Arc::clone(file)).is_ok()
        }
    };
    if is_sealed {
        walk_sealed(file, visit)?
    } else {
        walk_plain(file, HEADER_BYTES, visit)?
    }
    Ok(is_sealed)
}

/// Calls `visit` with the offset of every item in a file of framed records, from `offset` on.
///
/// Errors: the file cannot be read, or `visit` failed.
pub(crate) fn walk_plain(
    file: &Arc<dyn File>,
    offset: u64,
    visit: &mut dyn FnMut(u64, Item<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut cursor = Cursor::new(Arc::clone(file), offset);
    // Whether the last reported item is damage, and where zeros began that may be the end.
    let (mut is_damaged, mut zeros_at) = (false, None);
    loop {
        let offset = cursor.offset();
        match cursor.step() {
            Step::Record(entry) => {
                if let Some(zeros_at) = zeros_at.take().filter(|_| !is_damaged) {
                    visit(zeros_at, Item::Damage(FoundDamage::Zeros))?;
                }
                is_damaged = false;
                visit(offset, Item::Record(cursor.record(&entry), entry.durable))?;
            }
            Step::End => {
                zeros_at.get_or_insert(offset);
                cursor.skip_zeros();
            }
            Step::Short if cursor.refill(u64::MAX)? => {}
            Step::Short if cursor.rest_is_zero() => return Ok(()),
            step @ (Step::Short | Step::Damaged(_)) => {
                if !is_damaged && zeros_at.is_none() {
                    let damage = if let Step::Damaged(damage) = step { damage } else { Damage::Checksum };
                    visit(offset, Item::Damage(FoundDamage::Record(damage)))?;
                    is_damaged = true;
                } else if let Some(zeros_at) = zeros_at.take().filter(|_| !is_damaged) {
                    visit(zeros_at, Item::Damage(FoundDamage::Zeros))?;
                    is_damaged = true;
                }
                if !cursor.skip_byte() {
                    return Ok(());
                }
            }
        }
    }
}

fn walk_sealed(
    file: &Arc<dyn File>,
    visit: &mut dyn FnMut(u64, Item<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let size = file.size()?;
    let sealed = SealedFile::open(Arc::clone(file)).and_then(|sealed| sealed.check_index().map(|()| sealed));
    let end = sealed.as_ref().map_or(size, |sealed| sealed.seal.index_at());
    // A sealed file is a fraction of a segment, so it fits in memory.
    let mut bytes = vec![0; usize::try_from(end).map_err(|_| io::ErrorKind::FileTooLarge)?];
    let count = file.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    let (mut at, mut damage_at) = (HEADER_BYTES as usize, None);
    let mut scratch = Scratch::default();
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let block = block_lengths(rest).and_then(|(stored, _)| rest.get(..BLOCK_HEAD_BYTES + stored));
        let Some((block, mut raw)) = block.and_then(|block| Some((block, scratch.decompress(block)?))) else {
            damage_at.get_or_insert(at as u64);
            at += 1;
            continue;
        };
        if let Some(damage_at) = damage_at.take() {
            visit(damage_at, Item::Damage(FoundDamage::Sealed(SealDamage::Block(damage_at))))?;
        }
        while let Decoded::Record { record, durable, size } = record::decode(raw) {
            visit(at as u64, Item::Record(record, durable))?;
            raw = raw.get(size..).expect("a record is within its bytes");
        }
        at += block.len();
    }
    match sealed {
        // Without a seal, the bytes after the blocks are the index.
        Err(error) => {
            let damage = error.get_ref().and_then(|inner| inner.downcast_ref::<SealDamage>()).copied();
            let damage = damage.ok_or(error)?;
            visit(damage_at.unwrap_or(size), Item::Damage(FoundDamage::Sealed(damage)))
        }
        Ok(_) => {
            damage_at.map_or(Ok(()), |at| visit(at, Item::Damage(FoundDamage::Sealed(SealDamage::Block(at)))))
        }
    }
}
