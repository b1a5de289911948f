//! The form of a snapshot's file: a header, the list of its publish keys, the state.
//!
//! The header, little-endian: `asidesnp`, the form's version (4 bytes), 4 bytes that mean nothing any more, the record up to which it
//! holds (8), the time of that record (8), the first record of the journal's segment that it is in and where in that it begins (8 each; 0 when
//! it is not known), the lengths of list and state in bytes (8 each), their CRC-32C (4 each), and the
//! CRC-32C of the header before (4). What the list says is the business of `keys`, what the state is that of `Fold`. Nothing in a
//! file is believed before its checksum was.

use crate::{
    event::Seq,
    journal::{OpenError, RecordPlace},
    snapshot::Damaged,
    time::Timestamp,
};

/// The version of the form, of the files of keys, and of the state in it; to be raised when one of them changes so that an earlier program
/// would misread it. A state with other fields is of the same form.
pub const FORMAT_VERSION: u32 = 4;

/// The version of the form before, which is read too: its state has no names.
const NAMELESS_VERSION: u32 = 3;

/// How long the header is.
pub(super) const HEADER_BYTES: usize = 76;

const MAGIC: [u8; 8] = *b"asidesnp";
/// Where the checksum of the header is.
const HEADER_CHECKSUM_AT: usize = HEADER_BYTES - 4;

/// What a snapshot's file begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// How its state is to be read; what is written has the present form.
    pub(super) form: Form,
    /// The last record that is in it.
    pub(super) seq: Seq,
    /// The time of that record.
    pub(super) time: Timestamp,
    /// Where in the journal it is.
    pub(super) place: Option<RecordPlace>,
    pub(super) keys: Section,
    pub(super) state: Section,
}

/// How state is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// With the names of its fields.
    Named,
    /// By the order of its fields.
    Nameless,
}

/// A part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) length: usize,
    checksum: u32,
}

/// Why a snapshot is passed over.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It cannot be read.
    #[error("it cannot be read")]
    Io(#[from] std::io::Error),
    /// It does not begin as a snapshot does.
    #[error("it is not a snapshot")]
    NotASnapshot,
    /// A later program wrote it, or one that is too old.
    #[error("it has format {found}, this program reads {FORMAT_VERSION} and {NAMELESS_VERSION}")]
    Format {
        /// Its format.
        found: u32,
    },
    /// Its name says another record.
    #[error("it is named {named} and holds what was up to record {seq}")]
    Name {
        /// As its name says.
        named: Seq,
        /// As it says itself.
        seq: Seq,
    },
    /// It is shorter or longer than it says.
    #[error("it has {found} bytes instead of {expected}")]
    Length {
        /// How long it is.
        found: usize,
        /// How long it says that it is.
        expected: usize,
    },
    /// Its content was changed.
    #[error("its checksum is wrong")]
    Checksum,
    /// The list of its publish keys is none.
    #[error("the list of its publish keys cannot be read")]
    KeyList,
    /// Publish keys of it cannot be read.
    #[error("its publish keys in {name} cannot be read")]
    KeysUnread {
        /// Where they are.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// Publish keys of it were lost or changed.
    #[error("its publish keys in {name} are not whole")]
    Keys {
        /// Where they are.
        name: String,
    },
    /// Its content is not state.
    #[error("its state cannot be gone on from")]
    State(#[from] Damaged),
    /// The journal is shorter.
    #[error("it is ahead of the journal")]
    Ahead(#[source] OpenError),
}

impl Section {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { length: bytes.len(), checksum: crc32c::crc32c(bytes) }
    }

    /// Errors: `bytes` are not this section.
    pub(super) fn check(&self, bytes: &[u8]) -> Result<(), Unusable> {
        if Self::of(bytes) == *self { Ok(()) } else { Err(Unusable::Checksum) }
    }
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&0_u32.to_le_bytes());
        bytes.extend_from_slice(&self.seq.0.to_le_bytes());
        bytes.extend_from_slice(&self.time.as_millis().to_le_bytes());
        let (segment, offset) = self.place.map_or((0, 0), |place| (place.segment.0, place.offset));
        bytes.extend_from_slice(&segment.to_le_bytes());
        bytes.extend_from_slice(&offset.to_le_bytes());
        bytes.extend_from_slice(&(self.keys.length as u64).to_le_bytes());
        bytes.extend_from_slice(&(self.state.length as u64).to_le_bytes());
        bytes.extend_from_slice(&self.keys.checksum.to_le_bytes());
        bytes.extend_from_slice(&self.state.checksum.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Reads the header of a file of `size` bytes.
    ///
    /// Errors: it is not one that this program can go on from.
    pub(super) fn decode(bytes: &[u8], size: usize) -> Result<Self, Unusable> {
        if !bytes.starts_with(&MAGIC) {
            return Err(Unusable::NotASnapshot);
        }
        let length = Unusable::Length { found: size, expected: HEADER_BYTES };
        let mut fields = Fields { bytes, at: MAGIC.len() };
        // The version comes first: a later one may have another header.
        let Some(format) = fields.u32() else { return Err(length) };
        let form = match format {
            FORMAT_VERSION => Form::Named,
            NAMELESS_VERSION => Form::Nameless,
            found => return Err(Unusable::Format { found }),
        };
        let Some(header) = Self::read(form, &mut fields) else { return Err(length) };
        let summed = bytes.get(..HEADER_CHECKSUM_AT).map(crc32c::crc32c);
        if fields.u32() != summed {
            return Err(Unusable::Checksum);
        }
        let expected = HEADER_BYTES.saturating_add(header.keys.length).saturating_add(header.state.length);
        if expected != size {
            return Err(Unusable::Length { found: size, expected });
        }
        Ok(header)
    }

    fn read(form: Form, fields: &mut Fields<'_>) -> Option<Self> {
        // The program before said here how its engine behaves.
        fields.u32()?;
        let seq = Seq(fields.u64()?);
        let time = Timestamp::from_millis(fields.u64()?);
        let (segment, offset) = (Seq(fields.u64()?), fields.u64()?);
        let place = (segment > Seq::ZERO).then_some(RecordPlace { segment, offset });
        let [keys, state] = [fields.length()?, fields.length()?];
        let keys = Section { length: keys, checksum: fields.u32()? };
        let state = Section { length: state, checksum: fields.u32()? };
        Some(Self { form, seq, time, place, keys, state })
    }
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

    #[test]
    fn a_header_is_read_as_it_was_written_and_any_change_of_it_is_noticed() {
        let [keys, state] = [Section::of(&[1; 48]), Section::of(b"state")];
        let place = Some(RecordPlace { segment: Seq(5), offset: 99 });
        let header =
            Header { form: Form::Named, seq: Seq(7), time: Timestamp::from_millis(9), place, keys, state };
        let elsewhere = Header { place: None, ..header };
        assert_eq!(Header::decode(&elsewhere.encode(), HEADER_BYTES + 53).expect("just written"), elsewhere);
        let bytes = header.encode();
        assert_eq!(bytes.len(), HEADER_BYTES);
        let size = HEADER_BYTES + 48 + 5;
        assert_eq!(Header::decode(&bytes, size).expect("just written"), header);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
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
}
