//! How one record lies in a segment: framing and checksum, nothing else.
//!
//! ```text
//! length u32 | crc-32c u32 | kind u8 | version u8 | seq u64 | time u64 | body
//! ```
//!
//! Numbers are little-endian. `length` counts what follows the checksum; the checksum covers the length and all that follows
//! it. A length of zero is the preallocated rest of a segment. The module reads and writes bytes in memory and does not
//! know where they are kept or what a body means.
//!
//! ```
//! use aside::{event::Seq, journal::record::{self, Decoded, RecordKind}, time::Timestamp};
//!
//! let mut bytes = Vec::new();
//! record::encode(RecordKind(1), Seq(7), Timestamp::from_millis(5), b"body", &mut bytes);
//! let Decoded::Record { record, size } = record::decode(&bytes) else { panic!("a whole record") };
//! assert_eq!((record.seq, record.body, size), (Seq(7), b"body".as_slice(), bytes.len()));
//! ```

use std::fmt;

use crate::{event::Seq, time::Timestamp};

/// The largest body, in bytes.
///
/// Source: an event is at most 64 KiB; an exchange that observes a batch of them, or a set of rules, is larger.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// The version of the framing that this program writes, and the newest that it reads.
pub const RECORD_VERSION: u8 = 1;

/// What a record costs beside its body, in bytes.
pub const OVERHEAD_BYTES: usize = PREFIX_BYTES + HEAD_BYTES;

/// Length and checksum.
const PREFIX_BYTES: usize = 8;

/// Kind, version, seq and time: what the length counts before the body.
const HEAD_BYTES: usize = 18;

/// What a body is; the journal carries it and does not interpret it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKind(pub u8);

/// One record, borrowed from the bytes it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// What the body is.
    pub kind: RecordKind,
    /// Its position.
    pub seq: Seq,
    /// When it was appended, never before the record that precedes it.
    pub time: Timestamp,
    /// What the caller appended.
    pub body: &'a [u8],
}

/// What the beginning of some bytes is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A whole record whose checksum holds.
    Record {
        /// The record.
        record: Record<'a>,
        /// How many bytes it takes up.
        size: usize,
    },
    /// The beginning of a record; more bytes decide.
    Incomplete,
    /// Preallocated space.
    End,
    /// No record.
    Damaged(Damage),
}

/// Why bytes are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The length is one that no record has.
    #[error("its length of {0} bytes is impossible")]
    Length(u32),
    /// The bytes are not those that were written.
    #[error("its checksum does not match")]
    Checksum,
    /// It is whole, and written by a newer program.
    #[error("its version {0} is newer than {RECORD_VERSION}, the newest this program reads")]
    Version(u8),
    /// It is whole, and not the record that belongs here.
    #[error("it has number {found} where {expected} belongs")]
    Order {
        /// What belongs here.
        expected: Seq,
        /// What is here.
        found: Seq,
    },
    /// The file ends, or is empty from here on, before the record that belongs here.
    #[error("record {expected} is missing")]
    Missing {
        /// What belongs here.
        expected: Seq,
    },
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many bytes a record with such a body takes up.
pub const fn size_of(body_bytes: usize) -> usize {
    OVERHEAD_BYTES + body_bytes
}

/// Appends one framed record to `out`.
///
/// # Panics
///
/// When the body is larger than 4 GiB; one over [`BODY_BYTES_MAX`] is written and does not decode, so callers check first.
pub fn encode(kind: RecordKind, seq: Seq, time: Timestamp, body: &[u8], out: &mut Vec<u8>) {
    debug_assert!(body.len() <= BODY_BYTES_MAX, "a body over the limit does not decode");
    let length = u32::try_from(HEAD_BYTES + body.len()).expect("a body is smaller than 4 GiB").to_le_bytes();
    let mut head = [0; HEAD_BYTES];
    head[0] = kind.0;
    head[1] = RECORD_VERSION;
    head[2..10].copy_from_slice(&seq.0.to_le_bytes());
    head[10..18].copy_from_slice(&time.as_millis().to_le_bytes());
    out.reserve(size_of(body.len()));
    out.extend_from_slice(&length);
    out.extend_from_slice(&checksum(length, &head, body).to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(body);
}

/// Reads the record that `bytes` begin with.
pub fn decode(bytes: &[u8]) -> Decoded<'_> {
    let Some((length_bytes, rest)) = bytes.split_first_chunk::<4>() else { return Decoded::Incomplete };
    let length = u32::from_le_bytes(*length_bytes);
    if length == 0 {
        return Decoded::End;
    }
    let Some(body_bytes) = (length as usize).checked_sub(HEAD_BYTES).filter(|size| *size <= BODY_BYTES_MAX)
    else {
        return Decoded::Damaged(Damage::Length(length));
    };
    let Some((crc, rest)) = rest.split_first_chunk::<4>() else { return Decoded::Incomplete };
    let Some((head, rest)) = rest.split_first_chunk::<HEAD_BYTES>() else { return Decoded::Incomplete };
    let Some(body) = rest.get(..body_bytes) else { return Decoded::Incomplete };
    if u32::from_le_bytes(*crc) != checksum(*length_bytes, head, body) {
        return Decoded::Damaged(Damage::Checksum);
    }
    let [kind, version, numbers @ ..] = *head;
    if version > RECORD_VERSION {
        return Decoded::Damaged(Damage::Version(version));
    }
    let record = Record {
        kind: RecordKind(kind),
        seq: Seq(number(numbers.first_chunk())),
        time: Timestamp::from_millis(number(numbers.last_chunk())),
        body,
    };
    Decoded::Record { record, size: size_of(body_bytes) }
}

fn checksum(length: [u8; 4], head: &[u8; HEAD_BYTES], body: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&length), head);
    crc32c::crc32c_append(crc, body)
}

fn number(bytes: Option<&[u8; 8]>) -> u64 {
    u64::from_le_bytes(*bytes.expect("the head holds two numbers of eight bytes"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_and_what_follows_is_left(
            kind: u8, seq: u64, time: u64, body in prop::collection::vec(any::<u8>(), 0..300), rest: Vec<u8>
        ) {
            let (kind, seq, time) = (RecordKind(kind), Seq(seq), Timestamp::from_millis(time));
            let mut bytes = encoded(kind, seq, time, &body);
            let size = bytes.len();
            bytes.extend(rest);
            let record = Record { kind, seq, time, body: &body };
            prop_assert_eq!(decode(&bytes), Decoded::Record { record, size });
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
        fn a_cut_record_is_incomplete_wherever_it_is_cut(
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
    fn an_impossible_length_is_damage_before_any_more_is_read() {
        assert_eq!(decode(&17_u32.to_le_bytes()), Decoded::Damaged(Damage::Length(17)));
        assert_eq!(decode(&u32::MAX.to_le_bytes()), Decoded::Damaged(Damage::Length(u32::MAX)));
    }

    #[test]
    fn the_largest_body_round_trips() {
        let body = vec![7; BODY_BYTES_MAX];
        assert!(is_record(&encoded(RecordKind(1), Seq(1), Timestamp::ZERO, &body)));
    }

    #[test]
    fn a_newer_version_is_told_from_damage() {
        let mut bytes = encoded(RecordKind(1), Seq(1), Timestamp::ZERO, b"later");
        bytes[9] = RECORD_VERSION + 1;
        let head: [u8; HEAD_BYTES] = bytes[8..26].try_into().expect("a whole head");
        let crc = checksum(bytes[..4].try_into().expect("four bytes"), &head, b"later");
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(&bytes), Decoded::Damaged(Damage::Version(2)));
    }

    #[test]
    fn the_bytes_of_version_1_do_not_change() {
        let bytes = encoded(RecordKind(3), Seq(2), Timestamp::from_millis(1), b"ab");
        let (framing, rest) = bytes.split_at(8);
        assert_eq!(&framing[..4], [20, 0, 0, 0]);
        assert_eq!(rest, [3, 1, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, b'a', b'b']);
    }

    fn encoded(kind: RecordKind, seq: Seq, time: Timestamp, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(kind, seq, time, body, &mut bytes);
        bytes
    }

    fn is_record(bytes: &[u8]) -> bool {
        matches!(decode(bytes), Decoded::Record { .. })
    }
}
