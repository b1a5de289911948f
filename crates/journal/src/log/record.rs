//! The format of one record in a segment: position, framing and checksum.
//!
//! ```text
//! length u32 | crc-32c u32 | kind u8 | version u8 | seq u64 | time u64 | unsynced u32 | body
//! ```
//!
//! Numbers are little-endian. `length` counts the bytes after the checksum. The checksum covers the
//! length and all bytes after the checksum. `unsynced` is the number of records directly before
//! this one that were not known to be durable when it was written, so each record states how far
//! the journal was durable. A length of zero is the preallocated rest of a segment. The module reads
//! and writes bytes in memory. It does not depend on their storage or on the meaning of a body.
//!
//! ```
//! use aside_journal::{Seq, record::{self, Decoded, Record, RecordKind}, time::Timestamp};
//!
//! let mut bytes = Vec::new();
//! let written = Record { kind: RecordKind(1), seq: Seq(7), time: Timestamp::from_millis(5), body: b"body" };
//! record::encode(written, Seq(4), &mut bytes);
//! let Decoded::Record { record, durable, size } = record::decode(&bytes) else { panic!("a whole record") };
//! assert_eq!((record, durable, size), (written, Seq(4), bytes.len()));
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The largest body, in bytes.
///
/// Source: an event is at most 64 KiB; an exchange with a batch of observed events, or a set of
/// rules, is larger.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// The version of the framing that this program writes, and the newest that it reads.
pub const RECORD_VERSION: u8 = 1;

/// The size of a record without its body, in bytes.
pub const OVERHEAD_BYTES: usize = PREFIX_BYTES + HEAD_BYTES + UNSYNCED_BYTES;

/// Length and checksum.
const PREFIX_BYTES: usize = 8;

/// Kind, version, seq and time: every version has these after the checksum.
const HEAD_BYTES: usize = 18;

/// How many records before this one were not known to be durable.
const UNSYNCED_BYTES: usize = 4;

/// The type of a body; the journal does not interpret it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKind(pub u8);

/// The name under which a record is found, a part of its body; `None` for a record without one.
/// Several records can have one name.
pub type NameOf = for<'a> fn(Record<'a>) -> Option<&'a [u8]>;

/// One record, borrowed from the bytes it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The type of the body.
    pub kind: RecordKind,
    /// Its position.
    pub seq: Seq,
    /// When it was appended, never before the record that precedes it.
    pub time: Timestamp,
    /// The appended bytes.
    pub body: &'a [u8],
}

/// The item at the beginning of a byte slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A whole record with a valid checksum.
    Record {
        /// The record.
        record: Record<'a>,
        /// The last record known to be durable when this one was written; [`Seq::ZERO`] if unknown.
        durable: Seq,
        /// How many bytes it takes up.
        size: usize,
    },
    /// The beginning of a record; more bytes are needed.
    Incomplete,
    /// Preallocated space.
    End,
    /// Not a record.
    Damaged(Damage),
}

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// No record has this length.
    #[error("its length of {0} bytes is impossible")]
    Length(u32),
    /// The bytes differ from the written ones.
    #[error("its checksum does not match")]
    Checksum,
    /// It is complete, but a newer program wrote it.
    #[error("its version {0} is newer than {RECORD_VERSION}, the newest this program reads")]
    Version(u8),
    /// It is complete, but not the expected record.
    #[error("it has number {found}, expected {expected}")]
    Order {
        /// The expected record.
        expected: Seq,
        /// The record found.
        found: Seq,
    },
    /// The file ends, or is empty from here on, before the expected record.
    #[error("record {expected} is missing")]
    Missing {
        /// The expected record.
        expected: Seq,
    },
}

impl Record<'_> {
    /// Distinguishes records of the same position in any framing: the CRC-32C of kind, position,
    /// time and body.
    pub fn checksum(&self) -> u32 {
        let Self { kind, seq, time, body } = self;
        let head = crc32c::crc32c(&[kind.0]);
        let head = crc32c::crc32c_append(head, &seq.0.to_le_bytes());
        let head = crc32c::crc32c_append(head, &time.as_millis().to_le_bytes());
        crc32c::crc32c_append(head, body)
    }
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The size of a record with a body of `body_bytes`, in bytes.
pub const fn size_of(body_bytes: usize) -> usize {
    OVERHEAD_BYTES + body_bytes
}

/// Appends one framed record to `out`, which records that everything up to `durable` is durable.
///
/// # Panics
///
/// When the body is larger than 4 GiB. A body over [`BODY_BYTES_MAX`] is written but cannot be
/// decoded, so callers check first.
pub fn encode(record: Record<'_>, durable: Seq, out: &mut Vec<u8>) {
    let Record { kind, seq, time, body } = record;
    debug_assert!(body.len() <= BODY_BYTES_MAX, "a body over the limit does not decode");
    debug_assert!(durable < seq, "a record is not durable before it is written");
    let counted = HEAD_BYTES + UNSYNCED_BYTES + body.len();
    let length = u32::try_from(counted).expect("a body is smaller than 4 GiB").to_le_bytes();
    let unsynced = seq.0.saturating_sub(durable.0).saturating_sub(1);
    // In-flight records are bounded far below this; on overflow the record states that no durable
    // position is known.
    let unsynced = u32::try_from(unsynced).unwrap_or(u32::MAX).to_le_bytes();
    let mut head = [0; HEAD_BYTES + UNSYNCED_BYTES];
    head[0] = kind.0;
    head[1] = RECORD_VERSION;
    head[2..10].copy_from_slice(&seq.0.to_le_bytes());
    head[10..18].copy_from_slice(&time.as_millis().to_le_bytes());
    head[18..].copy_from_slice(&unsynced);
    out.reserve(size_of(body.len()));
    out.extend_from_slice(&length);
    let checksum_at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&head);
    out.extend_from_slice(body);
    // Head and body are next to each other here, which saves a call.
    let rest = out.get_mut(checksum_at..).and_then(|rest| rest.split_first_chunk_mut::<4>());
    let (place, counted) = rest.expect("four bytes were reserved above");
    *place = checksum(length, counted).to_le_bytes();
}

/// Reads the record at the beginning of `bytes`.
pub fn decode(bytes: &[u8]) -> Decoded<'_> {
    let Some((length_bytes, rest)) = bytes.split_first_chunk::<4>() else { return Decoded::Incomplete };
    let length = u32::from_le_bytes(*length_bytes);
    if length == 0 {
        return Decoded::End;
    }
    let rest_bytes =
        (length as usize).checked_sub(HEAD_BYTES).filter(|size| *size <= UNSYNCED_BYTES + BODY_BYTES_MAX);
    let Some(rest_bytes) = rest_bytes else { return Decoded::Damaged(Damage::Length(length)) };
    let Some((crc, rest)) = rest.split_first_chunk::<4>() else { return Decoded::Incomplete };
    let Some(counted) = rest.get(..HEAD_BYTES + rest_bytes) else { return Decoded::Incomplete };
    if u32::from_le_bytes(*crc) != checksum(*length_bytes, counted) {
        return Decoded::Damaged(Damage::Checksum);
    }
    let Some((head, rest)) = counted.split_first_chunk::<HEAD_BYTES>() else { return Decoded::Incomplete };
    let [kind, version, numbers @ ..] = *head;
    let seq = Seq(number(numbers.first_chunk()));
    if version != RECORD_VERSION {
        return Decoded::Damaged(Damage::Version(version));
    }
    let Some((unsynced, body)) = rest.split_first_chunk::<UNSYNCED_BYTES>() else {
        return Decoded::Damaged(Damage::Length(length));
    };
    let durable = durable_before(seq, u32::from_le_bytes(*unsynced));
    let time = Timestamp::from_millis(number(numbers.last_chunk()));
    let record = Record { kind: RecordKind(kind), seq, time, body };
    Decoded::Record { record, durable, size: PREFIX_BYTES + HEAD_BYTES + rest_bytes }
}

fn durable_before(seq: Seq, unsynced: u32) -> Seq {
    if unsynced == u32::MAX {
        return Seq::ZERO;
    }
    Seq(seq.0.saturating_sub(1).saturating_sub(unsynced.into()))
}

fn checksum(length: [u8; 4], counted: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&length), counted)
}

fn number(bytes: Option<&[u8; 8]>) -> u64 {
    u64::from_le_bytes(*bytes.expect("the head holds two numbers of eight bytes"))
}

/// The position of a record in the journal; the first record has 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Seq(pub u64);

impl Seq {
    /// The position before the first record.
    pub const ZERO: Self = Self(0);

    /// The next position; saturates, because clients send positions too.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The previous position; the first one and [`Seq::ZERO`] return [`Seq::ZERO`].
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn encoded_record_decodes_and_leaves_following_bytes(
            kind: u8, seq in 1_u64.., unsynced: u32, time: u64, body in prop::collection::vec(any::<u8>(), 0..300),
            rest: Vec<u8>
        ) {
            let (kind, seq, time) = (RecordKind(kind), Seq(seq), Timestamp::from_millis(time));
            let durable = durable_before(seq, unsynced);
            let record = Record { kind, seq, time, body: &body };
            let mut bytes = Vec::new();
            encode(record, durable, &mut bytes);
            let size = bytes.len();
            bytes.extend(rest);
            prop_assert_eq!(decode(&bytes), Decoded::Record { record, durable, size });
        }

        #[test]
        fn random_bytes_are_no_record(bytes: Vec<u8>) {
            prop_assert!(!is_record(&bytes));
        }

        #[test]
        fn a_flipped_bit_is_found(body in prop::collection::vec(any::<u8>(), 0..64), bit: prop::sample::Index) {
            let mut bytes = encoded(RecordKind(1), Seq(9), Timestamp::from_millis(4), &body);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!is_record(&bytes));
        }

        #[test]
        fn truncated_record_decodes_as_incomplete(
            body in prop::collection::vec(any::<u8>(), 0..64), cut: prop::sample::Index
        ) {
            let bytes = encoded(RecordKind(1), Seq(9), Timestamp::from_millis(4), &body);
            prop_assert_eq!(decode(&bytes[..cut.index(bytes.len())]), Decoded::Incomplete);
        }
    }

    #[test]
    fn a_length_of_zero_is_the_end() {
        assert_eq!(decode(&[0; 64]), Decoded::End);
    }

    #[test]
    fn impossible_length_is_damage_without_reading_further() {
        assert_eq!(decode(&17_u32.to_le_bytes()), Decoded::Damaged(Damage::Length(17)));
        assert_eq!(decode(&u32::MAX.to_le_bytes()), Decoded::Damaged(Damage::Length(u32::MAX)));
    }

    #[test]
    fn the_largest_body_round_trips() {
        let body = vec![7; BODY_BYTES_MAX];
        assert!(is_record(&encoded(RecordKind(1), Seq(1), Timestamp::ZERO, &body)));
    }

    #[test]
    fn a_newer_version_is_distinguished_from_damage() {
        let mut bytes = encoded(RecordKind(1), Seq(1), Timestamp::ZERO, b"later");
        bytes[9] = RECORD_VERSION + 1;
        let crc = checksum(bytes[..4].try_into().expect("four bytes"), &bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(&bytes), Decoded::Damaged(Damage::Version(RECORD_VERSION + 1)));
    }

    #[test]
    fn the_bytes_of_version_1_do_not_change() {
        let record =
            Record { kind: RecordKind(3), seq: Seq(9), time: Timestamp::from_millis(1), body: b"ab" };
        let mut bytes = Vec::new();
        encode(record, Seq(5), &mut bytes);
        let (framing, rest) = bytes.split_at(8);
        assert_eq!(&framing[..4], [24, 0, 0, 0]);
        assert_eq!(rest, [3, 1, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, b'a', b'b']);
    }

    fn encoded(kind: RecordKind, seq: Seq, time: Timestamp, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(Record { kind, seq, time, body }, seq.previous(), &mut bytes);
        bytes
    }

    fn is_record(bytes: &[u8]) -> bool {
        matches!(decode(bytes), Decoded::Record { .. })
    }

    #[test]
    fn last_position_is_its_own_next() {
        assert_eq!(Seq(6).next(), Seq(7));
        assert_eq!(Seq(u64::MAX).next(), Seq(u64::MAX));
    }
}
