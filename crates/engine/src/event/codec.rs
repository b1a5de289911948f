//! The encoding of an event in a journal record: length-prefixed fields, so decoding only slices; and
//! its idempotency key, which detects that it was already published.
//!
//! Shape: a version byte, a byte with the severity's rank, the provenance, the origin of the id and
//! whether the event delays itself, the timestamp as 8 bytes little-endian, then `id`, `type`,
//! `source`, `dedupe_key`, `session`, `workspace`, `cause`, `payload` and, of one that delays itself,
//! `deliver_after`, each as a 4-byte little-endian length and its UTF-8 bytes.
//! An absent optional field has the length `u32::MAX`. The payload stays JSON text. A JSON envelope
//! would need a parse per event and reader; this encoding needs none. A snapshot holds an event in
//! the same encoding.

use journal::time::Timestamp;
use sha2::{Digest, Sha256};
use strum::VariantArray;

use super::Event;
use crate::{
    event::{EventRef, EventType, Provenance, Severity},
    snapshot::{Damaged, Shared},
};

/// The version that this program writes, and the newest that it reads.
const VERSION: u8 = 1;
const ABSENT: u32 = u32::MAX;
/// Where the id is, in bytes: after the version, the severity and the timestamp.
const ID_AT: usize = 10;
/// Added to the severity's rank when the daemon made the id.
const GENERATED_ID: u8 = 0x80;
/// Added to the severity's rank when the event delays itself.
const DELAYED: u8 = 0x08;
/// The bits next to the severity's rank that hold the provenance's number, and their position.
const PROVENANCE: u8 = 0x70;
const PROVENANCE_SHIFT: u32 = PROVENANCE.trailing_zeros();

/// The origin of an event's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdOrigin {
    /// From the producer, which may publish the event again.
    Producer,
    /// From the daemon, as the event had none. The event occurs once, so no key is remembered.
    Daemon,
}

/// Error: a record body is not an event of a known version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("event record is damaged at byte {at}")]
pub struct EventCodecError {
    /// Byte offset in the body.
    pub at: usize,
}

/// Reads the origin of the event's id from a record body, without decoding it.
pub fn id_origin(body: &[u8]) -> IdOrigin {
    match body.get(1) {
        Some(rank) if rank & GENERATED_ID != 0 => IdOrigin::Daemon,
        Some(_) | None => IdOrigin::Producer,
    }
}

/// The bytes of the event's id in a record body, without the rest; `None` if the body is damaged
/// there.
pub fn id_bytes(body: &[u8]) -> Option<&[u8]> {
    let mut fields = Fields { body, at: ID_AT };
    fields.bytes().ok().flatten()
}

/// Appends `event` to `body`.
pub fn encode(event: &EventRef<'_>, id: IdOrigin, body: &mut Vec<u8>) {
    body.push(VERSION);
    let generated = match id {
        IdOrigin::Producer => 0,
        IdOrigin::Daemon => GENERATED_ID,
    };
    let delayed = if event.deliver_after.is_some() { DELAYED } else { 0 };
    body.push(event.severity as u8 | (event.provenance as u8) << PROVENANCE_SHIFT | generated | delayed);
    body.extend_from_slice(&event.timestamp.as_millis().to_le_bytes());
    let fields = [
        Some(event.id),
        Some(event.event_type),
        Some(event.source),
        event.dedupe_key,
        event.session,
        event.workspace,
        event.cause,
        Some(event.payload),
    ];
    for field in fields.into_iter().chain(event.deliver_after.map(Some)) {
        let length = field.map_or(ABSENT, |text| u32::try_from(text.len()).unwrap_or(ABSENT));
        body.extend_from_slice(&length.to_le_bytes());
        body.extend_from_slice(field.unwrap_or_default().as_bytes());
    }
}

/// Reads the event of a record body.
///
/// Errors: the offset of the damage, if the body was not written by [`encode`].
pub fn decode(body: &[u8]) -> Result<EventRef<'_>, EventCodecError> {
    let mut fields = Fields { body, at: 0 };
    let [version] = fields.array()?;
    if version != VERSION {
        return Err(EventCodecError { at: 0 });
    }
    let [bits] = fields.array()?;
    let severity = Severity::VARIANTS.get(usize::from(bits & !(GENERATED_ID | PROVENANCE | DELAYED)));
    let provenance = Provenance::VARIANTS.get(usize::from((bits & PROVENANCE) >> PROVENANCE_SHIFT));
    let (Some(severity), Some(provenance)) = (severity.copied(), provenance.copied()) else {
        return Err(EventCodecError { at: 1 });
    };
    let timestamp = Timestamp::from_millis(u64::from_le_bytes(fields.array()?));
    let id = fields.required()?;
    let event_type = fields.required()?;
    EventType::check(event_type).map_err(|_| EventCodecError { at: fields.at })?;
    let source = fields.required()?;
    Ok(EventRef {
        id,
        event_type,
        source,
        provenance,
        severity,
        timestamp,
        dedupe_key: fields.optional()?,
        session: fields.optional()?,
        workspace: fields.optional()?,
        cause: fields.optional()?,
        payload: fields.required()?,
        deliver_after: if bits & DELAYED == 0 { None } else { Some(fields.required()?) },
    })
}

struct Fields<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], EventCodecError> {
        let end = self.at.checked_add(length).ok_or(EventCodecError { at: self.at })?;
        let taken = self.body.get(self.at..end).ok_or(EventCodecError { at: self.at })?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], EventCodecError> {
        let at = self.at;
        self.take(N)?.try_into().map_err(|_| EventCodecError { at })
    }

    fn bytes(&mut self) -> Result<Option<&'a [u8]>, EventCodecError> {
        let length = u32::from_le_bytes(self.array()?);
        if length == ABSENT {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| EventCodecError { at: self.at })?;
        self.take(length).map(Some)
    }

    fn optional(&mut self) -> Result<Option<&'a str>, EventCodecError> {
        let at = self.at;
        let text = self.bytes()?.map(std::str::from_utf8);
        text.transpose().map_err(|_| EventCodecError { at })
    }

    fn required(&mut self) -> Result<&'a str, EventCodecError> {
        let at = self.at;
        self.optional()?.ok_or(EventCodecError { at })
    }
}

impl Shared for Event {
    const TABLE: &'static str = "events";

    fn append_to(&self, bytes: &mut Vec<u8>) -> Result<(), Damaged> {
        encode(&self.as_ref(), IdOrigin::Producer, bytes);
        Ok(())
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Damaged> {
        decode(bytes).map(|event| event.to_event()).map_err(|error| Damaged::new(error.to_string()))
    }
}

impl EventRef<'_> {
    /// The key of its source and id.
    ///
    /// Shape: the first 128 bits of a SHA-256, so that a producer cannot find an id that collides
    /// with another one's event.
    pub fn idempotency_key(&self) -> u128 {
        let mut hash = Sha256::new();
        // The length distinguishes ("ab", "c") from ("a", "bc").
        hash.update((self.source.len() as u64).to_le_bytes());
        hash.update(self.source);
        hash.update(self.id);
        let digest: [u8; 32] = hash.finalize().into();
        u128::from_le_bytes(*digest.first_chunk().expect("32 bytes begin with 16"))
    }
}

#[cfg(test)]
mod tests {
    use journal::time::Timestamp;

    use super::{
        super::{EventRef, Provenance, Severity},
        *,
    };

    fn example() -> EventRef<'static> {
        EventRef {
            id: "e1",
            event_type: "tool.call.failure",
            source: "tool_executor",
            provenance: crate::event::Provenance::Local,
            severity: Severity::Error,
            timestamp: Timestamp::from_millis(1_700_000_000_000),
            payload: r#"{"tool_name":"grep"}"#,
            dedupe_key: None,
            session: Some("s1"),
            workspace: None,
            cause: Some(""),
            deliver_after: None,
        }
    }

    #[test]
    fn an_encoded_event_decodes_to_itself() {
        let mut body = Vec::new();
        encode(&example(), IdOrigin::Producer, &mut body);
        assert_eq!(decode(&body), Ok(example()));
        assert_eq!(decode(&body).map(|event| event.to_event().as_ref() == example()), Ok(true));
    }

    #[test]
    fn a_delay_is_encoded_after_the_payload() {
        let (mut body, mut plain) = (Vec::new(), Vec::new());
        let delayed = EventRef { deliver_after: Some("3 turns"), ..example() };
        encode(&delayed, IdOrigin::Daemon, &mut body);
        encode(&example(), IdOrigin::Daemon, &mut plain);
        assert_eq!(decode(&body), Ok(delayed));
        assert_eq!(body.len(), plain.len() + 4 + "3 turns".len());
        for end in plain.len()..body.len() {
            assert!(decode(&body[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn the_id_origin_is_encoded_beside_the_event() {
        for origin in [IdOrigin::Producer, IdOrigin::Daemon] {
            let mut body = Vec::new();
            encode(&example(), origin, &mut body);
            assert_eq!((id_origin(&body), decode(&body)), (origin, Ok(example())));
            let id = example().id.as_bytes();
            assert_eq!((id_bytes(&body), id_bytes(&body[..ID_AT + 2])), (Some(id), None));
        }
    }

    #[test]
    fn another_version_fails_at_the_first_byte() {
        let mut body = Vec::new();
        encode(&example(), IdOrigin::Producer, &mut body);
        assert_eq!(body[0], VERSION);
        for version in [0, VERSION + 1, u8::MAX] {
            body[0] = version;
            assert_eq!(decode(&body), Err(EventCodecError { at: 0 }), "{version}");
        }
    }

    #[test]
    fn a_body_cut_anywhere_is_an_error() {
        let mut body = Vec::new();
        encode(&example(), IdOrigin::Producer, &mut body);
        for end in 0..body.len() {
            assert!(decode(&body[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn an_idempotency_key_hashes_source_and_id() {
        let key = |source, id| {
            let event = EventRef {
                id,
                event_type: "ci.check.failed",
                source,
                provenance: Provenance::Local,
                severity: Severity::Error,
                timestamp: Timestamp::ZERO,
                payload: "{}",
                dedupe_key: None,
                session: None,
                workspace: None,
                cause: None,
                deliver_after: None,
            };
            event.idempotency_key()
        };
        // Computed independently: sha256(u64 2, "fs1"), the first 16 bytes, little-endian.
        assert_eq!(key("fs", "1"), 0xdcd7_d900_8321_0523_03b7_9bb7_6259_0db2);
        assert_ne!(key("ab", "c"), key("a", "bc"));
    }
}
