//! The format of a snapshot's file: a header, the idempotency keys, the state.
//!
//! The header, little-endian: `asidshot`, the format version (4 bytes), the checksum of the last
//! record that is in it (4, see [`Record::checksum`]), the number of that record (8), its time (8),
//! the lengths of keys and state in bytes (8 each), their CRC-32C (4 each), and the CRC-32C of the
//! preceding header (4). A key is 16 bytes and the record of its event 8, oldest first. `Fold`
//! defines the state. Nothing in a file is used before its checksum is verified.

use bytes::{Buf, TryGetError};
use engine::{event::Seq, records::LOST, snapshot::Damaged};
use journal::{IdempotencyKey, OpenError, Record, time::Timestamp};

/// The version of the format, and of the state in it. Raise it when a change would make an earlier
/// program misread either. A change of the state's fields does not change the format.
pub const FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"asidshot";
/// The first bytes of snapshots that builds before the first release wrote.
const UNRELEASED_MAGIC: [u8; 8] = *b"asidesnp";
/// The header's length.
pub(super) const HEADER_BYTES: usize = 60;
/// The length of a key with its record.
const KEY_BYTES: usize = 24;

/// The header of a snapshot's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) last: LastRecord,
    pub(super) keys: Section,
    pub(super) state: Section,
}

/// The last record of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastRecord {
    pub(super) seq: Seq,
    pub(super) time: Timestamp,
    /// See [`Record::checksum`].
    pub(super) checksum: u32,
}

/// A part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) length: usize,
    checksum: u32,
}

/// Why a snapshot is not used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It cannot be read.
    #[error("it cannot be read")]
    Io(#[from] std::io::Error),
    /// It has no snapshot header.
    #[error("it is not a snapshot")]
    NotASnapshot,
    /// A build before the first release wrote it.
    #[error("it was written by an unreleased build of aside, whose formats are not read")]
    Unreleased,
    /// A later version of the program wrote it.
    #[error("it has format {found}, this program reads {FORMAT_VERSION}")]
    Format {
        /// Its format.
        found: u32,
    },
    /// Its name refers to another record.
    #[error("it is named {named} and has the state at record {seq}")]
    Name {
        /// According to its name.
        named: Seq,
        /// According to its header.
        seq: Seq,
    },
    /// Its length does not match its header.
    #[error("it has {found} bytes instead of {expected}")]
    Length {
        /// Its length.
        found: usize,
        /// Its length according to the header.
        expected: usize,
    },
    /// Its content does not match the checksum.
    #[error("its checksum is wrong")]
    Checksum,
    /// Its content is not a valid state.
    #[error("its state cannot be used")]
    State(#[from] Damaged),
    /// The journal ends before its record.
    #[error("it is ahead of the journal")]
    Ahead(#[source] OpenError),
    /// The journal has another record at its position.
    #[error("the journal's record {seq} differs from the one in it")]
    OtherRecord {
        /// Its last record.
        seq: Seq,
    },
    /// Records that follow it were deleted.
    #[error("it ends before the journal's first record {first}")]
    BeforeJournal {
        /// The journal's first record.
        first: Seq,
    },
}

impl Unusable {
    /// Whether the snapshot belongs to another journal.
    pub(super) fn is_of_another_journal(&self) -> bool {
        matches!(self, Self::Ahead(_) | Self::OtherRecord { .. })
    }
}

impl LastRecord {
    /// Compares it with the record at its position, if the journal has one.
    ///
    /// Shape: a repair's tombstone matches, because it replaced an unknown record.
    ///
    /// Errors: it is another record.
    pub(super) fn check(&self, found: Option<Record<'_>>) -> Result<(), Unusable> {
        let Some(found) = found.filter(|found| found.kind.0 != LOST) else { return Ok(()) };
        let is_same = found.time == self.time && found.checksum() == self.checksum;
        if is_same { Ok(()) } else { Err(Unusable::OtherRecord { seq: self.seq }) }
    }
}

impl Section {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self { length: bytes.len(), checksum: crc32c::crc32c(bytes) }
    }

    /// Checks the length and the checksum of `bytes`.
    ///
    /// Errors: `bytes` are not this section.
    pub(super) fn check(&self, bytes: &[u8]) -> Result<(), Unusable> {
        if Self::new(bytes) == *self { Ok(()) } else { Err(Unusable::Checksum) }
    }
}

impl Header {
    /// Encodes a header.
    pub(super) fn encode(record: LastRecord, keys: Section, state: Section) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&record.checksum.to_le_bytes());
        bytes.extend_from_slice(&record.seq.0.to_le_bytes());
        bytes.extend_from_slice(&record.time.as_millis().to_le_bytes());
        bytes.extend_from_slice(&(keys.length as u64).to_le_bytes());
        bytes.extend_from_slice(&(state.length as u64).to_le_bytes());
        bytes.extend_from_slice(&keys.checksum.to_le_bytes());
        bytes.extend_from_slice(&state.checksum.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Reads the header of a file of `size` bytes.
    ///
    /// Errors: this program cannot use it.
    pub(super) fn decode(bytes: &[u8], size: usize) -> Result<Self, Unusable> {
        if bytes.starts_with(&UNRELEASED_MAGIC) {
            return Err(Unusable::Unreleased);
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(Unusable::NotASnapshot);
        }
        let short = || Unusable::Length { found: size, expected: HEADER_BYTES };
        let mut fields = bytes.get(MAGIC.len()..).unwrap_or_default();
        // The version comes first: a later one may have another header.
        let version = fields.try_get_u32_le().map_err(|_| short())?;
        if version != FORMAT_VERSION {
            return Err(Unusable::Format { found: version });
        }
        let header = Self::read(&mut fields).map_err(|_| short())?;
        let summed = bytes.get(..HEADER_BYTES - 4).map(crc32c::crc32c);
        if fields.try_get_u32_le().ok() != summed {
            return Err(Unusable::Checksum);
        }
        let expected = HEADER_BYTES.saturating_add(header.keys.length).saturating_add(header.state.length);
        if expected != size {
            return Err(Unusable::Length { found: size, expected });
        }
        Ok(header)
    }

    fn read(fields: &mut &[u8]) -> Result<Self, TryGetError> {
        let length = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let checksum = fields.try_get_u32_le()?;
        let (seq, time) = (Seq(fields.try_get_u64_le()?), Timestamp::from_millis(fields.try_get_u64_le()?));
        let [keys, state] = [length(fields.try_get_u64_le()?), length(fields.try_get_u64_le()?)];
        let keys = Section { length: keys, checksum: fields.try_get_u32_le()? };
        let state = Section { length: state, checksum: fields.try_get_u32_le()? };
        Ok(Self { last: LastRecord { seq, time, checksum }, keys, state })
    }
}

/// Encodes keys in the file format.
pub(super) fn encode_keys(keys: &[IdempotencyKey]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(keys.len() * KEY_BYTES);
    for key in keys {
        bytes.extend_from_slice(&key.key().to_le_bytes());
        bytes.extend_from_slice(&key.seq.0.to_le_bytes());
    }
    bytes
}

/// Decodes the output of [`encode_keys`].
pub(super) fn decode_keys(bytes: &[u8]) -> impl Iterator<Item = IdempotencyKey> {
    bytes.as_chunks::<KEY_BYTES>().0.iter().map(|bytes| {
        let mut numbers = bytes.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number));
        let [low, high, seq] = std::array::from_fn(|_| numbers.next().expect("a key has three numbers"));
        IdempotencyKey::new(u128::from(high) << 64 | u128::from(low), Seq(seq))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::RecordKind;

    const LAST: LastRecord = LastRecord { seq: Seq(7), time: Timestamp::from_millis(9), checksum: 0xabcd };

    #[test]
    fn any_changed_header_byte_is_detected() {
        let [keys, state] = [Section::new(&[1; 48]), Section::new(b"state")];
        let bytes = Header::encode(LAST, keys, state);
        assert_eq!(bytes.len(), HEADER_BYTES);
        let size = HEADER_BYTES + 48 + 5;
        let header = Header { last: LAST, keys, state };
        assert_eq!(Header::decode(&bytes, size).expect("just written"), header);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 8;
            let error = Header::decode(&changed, size).expect_err("changed");
            let is_named = match at {
                0..8 => matches!(error, Unusable::NotASnapshot),
                8..12 => matches!(error, Unusable::Format { .. }),
                _ => matches!(error, Unusable::Checksum),
            };
            assert!(is_named, "byte {at}: {error}");
            assert!(Header::decode(&bytes[..at], size).is_err(), "cut at {at}");
        }
        assert!(matches!(Header::decode(&bytes, size - 1), Err(Unusable::Length { .. })));
    }

    #[test]
    fn a_snapshot_of_an_unreleased_build_is_named() {
        let mut bytes = Header::encode(LAST, Section::new(&[]), Section::new(b"state"));
        bytes[..UNRELEASED_MAGIC.len()].copy_from_slice(&UNRELEASED_MAGIC);
        let size = HEADER_BYTES + 5;
        let error = Header::decode(&bytes, size).expect_err("refused").to_string();
        assert!(error.contains("an unreleased build of aside"), "{error}");
    }

    #[test]
    fn snapshot_detects_another_record_at_its_position() {
        let record =
            Record { kind: RecordKind(1), seq: Seq(7), time: Timestamp::from_millis(9), body: b"one" };
        let last = LastRecord { checksum: record.checksum(), ..LAST };
        let later = Record { time: Timestamp::from_millis(10), ..record };
        let other = Record { body: b"two", ..record };
        let lost = Record { kind: RecordKind(LOST), ..later };
        for (found, is_same) in [
            (Some(record), true),
            (Some(later), false),
            (Some(other), false),
            (Some(Record { kind: RecordKind(2), ..record }), false),
            (Some(lost), true),
            (None, true),
        ] {
            assert_eq!(last.check(found).is_ok(), is_same, "{found:?}");
        }
    }
}
