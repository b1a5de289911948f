//! The format of a snapshot's file: a header, the idempotency keys, the state.
//!
//! The header, little-endian: `asidesnp`, the format version (4 bytes), the checksum of the last
//! record that is in it (4, see [`Record::checksum`]), the number of that record (8), its time (8),
//! the lengths of keys and state in bytes (8 each), their CRC-32C (4 each), and the CRC-32C of the
//! preceding header (4). A key is 16 bytes and the record of its event 8, oldest first. `Fold`
//! defines the state. Nothing in a file is used before its checksum is verified.
//!
//! Formats 3 and 4 have no checksum of the record. After its time they have its place in the
//! journal (16 bytes), which is ignored now. Instead of the keys they have the names of key files.

use crate::{
    event::Seq,
    journal::{IdempotencyKey, OpenError, Record},
    records::LOST,
    snapshot::Damaged,
    time::Timestamp,
};

/// The version of the format, and of the state in it. Raise it when a change would make an earlier
/// program misread either. A change of the state's fields does not change the format.
pub const FORMAT_VERSION: u32 = 6;

/// The previous version, still readable: some fields of its state have earlier names, which are
/// aliases, and its sessions have no keys.
const RENAMED_VERSION: u32 = 5;

/// An earlier version, still readable: its idempotency keys are in files of their own.
const KEYLESS_VERSION: u32 = 4;

/// The version before that one, still readable: its state has no names.
const NAMELESS_VERSION: u32 = 3;

/// The longest header.
pub(super) const HEADER_BYTES_MAX: usize = 76;

const MAGIC: [u8; 8] = *b"asidesnp";
/// The header's length.
const HEADER_BYTES: usize = 60;
/// The length of a key with its record.
const KEY_BYTES: usize = 24;

/// The header of a snapshot's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The format of the rest; new files have the present format.
    pub(super) form: Form,
    pub(super) last: LastRecord,
    pub(super) keys: Section,
    pub(super) state: Section,
}

/// The last record of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastRecord {
    pub(super) seq: Seq,
    pub(super) time: Timestamp,
    /// See [`Record::checksum`]; earlier formats lack it.
    pub(super) checksum: Option<u32>,
}

/// The format of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// With keys.
    Present,
    /// With the names of key files.
    Keyless,
    /// As [`Form::Keyless`], and the state has its fields in order, without names.
    Nameless,
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
    /// A later version of the program wrote it, or one that is too old.
    #[error("it has format {found}, this program reads {NAMELESS_VERSION} to {FORMAT_VERSION}")]
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
        let is_same = found.time == self.time && self.checksum.is_none_or(|sum| sum == found.checksum());
        if is_same { Ok(()) } else { Err(Unusable::OtherRecord { seq: self.seq }) }
    }
}

impl Form {
    fn of_version(version: u32) -> Option<Self> {
        match version {
            FORMAT_VERSION | RENAMED_VERSION => Some(Self::Present),
            KEYLESS_VERSION => Some(Self::Keyless),
            NAMELESS_VERSION => Some(Self::Nameless),
            _ => None,
        }
    }

    /// The length of the header in this format.
    pub(super) fn header_bytes(self) -> usize {
        match self {
            Self::Present => HEADER_BYTES,
            Self::Keyless | Self::Nameless => HEADER_BYTES_MAX,
        }
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
    /// Encodes a header of the present format.
    pub(super) fn encode(record: LastRecord, keys: Section, state: Section) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&record.checksum.unwrap_or_default().to_le_bytes());
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
        if !bytes.starts_with(&MAGIC) {
            return Err(Unusable::NotASnapshot);
        }
        let length = Unusable::Length { found: size, expected: HEADER_BYTES };
        let mut fields = Fields { bytes, at: MAGIC.len() };
        // The version comes first: a later one may have another header.
        let Some(version) = fields.u32() else { return Err(length) };
        let Some(form) = Form::of_version(version) else { return Err(Unusable::Format { found: version }) };
        let Some(header) = Self::read(form, &mut fields) else { return Err(length) };
        let summed = bytes.get(..fields.at).map(crc32c::crc32c);
        if fields.u32() != summed {
            return Err(Unusable::Checksum);
        }
        let expected =
            form.header_bytes().saturating_add(header.keys.length).saturating_add(header.state.length);
        if expected != size {
            return Err(Unusable::Length { found: size, expected });
        }
        Ok(header)
    }

    fn read(form: Form, fields: &mut Fields<'_>) -> Option<Self> {
        // Earlier formats had the engine's behavior here.
        let checksum = Some(fields.u32()?).filter(|_| form == Form::Present);
        let seq = Seq(fields.u64()?);
        let time = Timestamp::from_millis(fields.u64()?);
        if form != Form::Present {
            fields.array::<16>()?;
        }
        let [keys, state] = [fields.length()?, fields.length()?];
        let keys = Section { length: keys, checksum: fields.u32()? };
        let state = Section { length: state, checksum: fields.u32()? };
        Some(Self { form, last: LastRecord { seq, time, checksum }, keys, state })
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
        let [low, high, seq] = std::array::from_fn(|_| numbers.next().unwrap_or_default());
        IdempotencyKey::new(u128::from(high) << 64 | u128::from(low), Seq(seq))
    })
}

struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = *self.bytes.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(array)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn length(&mut self) -> Option<usize> {
        self.u64().map(|length| usize::try_from(length).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::RecordKind;

    const LAST: LastRecord =
        LastRecord { seq: Seq(7), time: Timestamp::from_millis(9), checksum: Some(0xabcd) };

    #[test]
    fn a_header_is_read_as_it_was_written_and_any_change_of_it_is_noticed() {
        let [keys, state] = [Section::new(&[1; 48]), Section::new(b"state")];
        let bytes = Header::encode(LAST, keys, state);
        assert_eq!(bytes.len(), HEADER_BYTES);
        let size = HEADER_BYTES + 48 + 5;
        let header = Header { form: Form::Present, last: LAST, keys, state };
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
    fn a_record_is_distinguished_from_another_one_of_its_number() {
        let record =
            Record { kind: RecordKind(1), seq: Seq(7), time: Timestamp::from_millis(9), body: b"one" };
        let last = LastRecord { checksum: Some(record.checksum()), ..LAST };
        let older = LastRecord { checksum: None, ..LAST };
        let later = Record { time: Timestamp::from_millis(10), ..record };
        let other = Record { body: b"two", ..record };
        let lost = Record { kind: RecordKind(LOST), ..later };
        for (found, by_all, by_time) in [
            (Some(record), true, true),
            (Some(later), false, false),
            (Some(other), false, true),
            (Some(Record { kind: RecordKind(2), ..record }), false, true),
            (Some(lost), true, true),
            (None, true, true),
        ] {
            assert_eq!(
                (last.check(found).is_ok(), older.check(found).is_ok()),
                (by_all, by_time),
                "{found:?}"
            );
        }
    }
}
