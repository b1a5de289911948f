//! Reads a ref of a repository with `extensions.refStorage=reftable`.
//!
//! Only ref blocks are read. Log blocks are compressed, so the cause of a move is unknown.
//!
//! Source: `Documentation/technical/reftable.adoc` of git.

use std::path::Path;

use super::reflog::Id;
use crate::{hex::hex, probe::facts::Facts};

/// The list of tables, oldest first.
pub(super) const LIST: &str = "reftable/tables.list";
/// Most bytes of the list; git merges tables, so there are few.
const LIST_BYTES_MAX: u64 = 16 * 1024;
/// Most bytes of one table: some 5,000 refs. Further refs count as unreadable.
const TABLE_BYTES_MAX: u64 = 256 * 1024;

/// The value of a ref in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ref {
    /// A commit.
    Commit(Id),
    /// Another ref.
    Symbolic(String),
    /// Deleted.
    Deleted,
}

/// The value of `name` in the newest table of a repository's `folder` that has it.
pub(super) fn find(folder: &Path, name: &str, facts: &dyn Facts) -> Option<Ref> {
    let list = facts.read(&folder.join(LIST), 0, LIST_BYTES_MAX)?;
    let list = String::from_utf8_lossy(&list);
    list.lines().rev().filter(|table| !table.is_empty() && !table.contains('/')).find_map(|table| {
        let bytes = facts.read(&folder.join("reftable").join(table), 0, TABLE_BYTES_MAX)?;
        find_in_table(&bytes, name)
    })
}

fn find_in_table(table: &[u8], name: &str) -> Option<Ref> {
    let (header_bytes, id_bytes) = match (table.get(..4)?, table.get(4)?, table.get(24..28)) {
        (b"REFT", 1, _) => (24, 20),
        (b"REFT", 2, Some(b"s256")) => (28, 32),
        (b"REFT", 2, Some(_)) => (28, 20),
        _ => return None,
    };
    let block_bytes = read_u24(table, 5)?;
    let mut begin = 0;
    let mut first = header_bytes;
    while table.get(begin + first) == Some(&b'r') {
        // The length counts from the start of the block; the first block starts with the file
        // header.
        let length = read_u24(table, begin + first + 1)?;
        if length == 0 {
            // A damaged block: nothing would be skipped.
            return None;
        }
        let block = table.get(begin..begin + length)?;
        if let Some(found) = find_in_block(block, first + 4, id_bytes, name) {
            return Some(found);
        }
        begin += if block_bytes == 0 { length } else { block_bytes.max(length) };
        first = 0;
    }
    None
}

/// Reads the records of a block from `first` on.
fn find_in_block(block: &[u8], first: usize, id_bytes: usize, name: &str) -> Option<Ref> {
    let restarts = usize::from(u16::from_be_bytes(*block.last_chunk()?));
    let end = block.len().checked_sub(2 + 3 * restarts)?;
    let mut rest = block.get(first..end)?;
    let mut key: Vec<u8> = Vec::new();
    while !rest.is_empty() {
        let shared = read_varint(&mut rest)?;
        let suffix_and_kind = read_varint(&mut rest)?;
        let suffix = rest.split_off(..suffix_and_kind >> 3)?;
        key.truncate(shared);
        key.extend_from_slice(suffix);
        // The update index.
        read_varint(&mut rest)?;
        let value = match suffix_and_kind & 7 {
            0 => Ref::Deleted,
            1 => Ref::Commit(read_id(&mut rest, id_bytes)?),
            2 => {
                // A tag and its target.
                read_id(&mut rest, id_bytes)?;
                Ref::Commit(read_id(&mut rest, id_bytes)?)
            }
            3 => {
                let length = read_varint(&mut rest)?;
                Ref::Symbolic(String::from_utf8_lossy(rest.split_off(..length)?).into_owned())
            }
            _ => return None,
        };
        if key == name.as_bytes() {
            return Some(value);
        }
    }
    None
}

fn read_id(rest: &mut &[u8], bytes: usize) -> Option<Id> {
    Id::parse(&hex(rest.split_off(..bytes)?))
}

/// Seven bits per byte, most significant first; each byte except the last adds one, so that every
/// number has only one form.
fn read_varint(rest: &mut &[u8]) -> Option<usize> {
    let mut byte = *rest.split_off_first()?;
    let mut number = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = *rest.split_off_first()?;
        number = number.checked_add(1)?.checked_mul(128)? | usize::from(byte & 0x7f);
    }
    Some(number)
}

fn read_u24(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at..at + 3)? {
        [high, middle, low] => Some(usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by git 2.47 for a commit on `master`, up to the log block.
    const TABLE: &str = "52454654010010000000000000000001000000000000000272000066002348454144001172656673\
        2f68656164732f6d6173746572008009726566732f68656164732f6d617374657201b8c47a2a5b75ed58b4bcacc82380d93f\
        2b1bc9dc00001c000035000267";

    fn table() -> Vec<u8> {
        let digits: Vec<u8> = TABLE.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16);
        digits.chunks(2).map(|pair| byte(pair).expect("two digits")).collect()
    }

    #[test]
    fn a_table_of_git_says_where_head_is() {
        let table = table();
        assert_eq!(find_in_table(&table, "HEAD"), Some(Ref::Symbolic("refs/heads/master".to_owned())));
        let id = Id::parse("b8c47a2a5b75ed58b4bcacc82380d93f2b1bc9dc").expect("an id");
        assert_eq!(find_in_table(&table, "refs/heads/master"), Some(Ref::Commit(id)));
        assert_eq!(find_in_table(&table, "refs/heads/other"), None);
    }

    #[test]
    fn a_damaged_table_says_nothing_and_ends() {
        let whole = table();
        for length in 0..whole.len() {
            find_in_table(&whole[..length], "refs/heads/other");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                find_in_table(&damaged, "refs/heads/other");
            }
        }
        assert_eq!(find_in_table(b"", "HEAD"), None);
        assert_eq!(find_in_table(b"REFT\x03\0\0\0", "HEAD"), None);
        // Blocks without alignment, the second of length 0.
        let mut empty = vec![0; 48];
        empty[..5].copy_from_slice(b"REFT\x01");
        empty[24..28].copy_from_slice(b"r\0\0\x28");
        empty[40] = b'r';
        assert_eq!(find_in_table(&empty, "HEAD"), None);
    }
}
