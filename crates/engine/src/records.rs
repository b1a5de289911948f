//! The bodies of journal records: content, encoding and decoding of each kind.
//!
//! An event's body is `event::codec`'s; every other one is a JSON object whose `v` is its version,
//! so that later programs can read today's records. A decoded record is an input of the engine, so
//! a replay gets the same inputs as live traffic.

mod batch;
mod body;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};

pub use self::batch::Records;
use self::body::{
    Answered, Asked, Bare, Carried, Cause, Closed, Decided, Head, Local, Made, Moved, MovedTo, OfUser,
    Opened, Rules, Seen, Skipped, Unmade, VERSION, Versioned,
};
use journal::time::{Timestamp, zone::Zone};

use crate::{
    engine::io::{Input, RequestId},
    event::{
        EventRef, Seq, SessionId,
        codec::{self, IdOrigin},
    },
    exchange::{Decision, Exchange, Harness, InjectionId, Process, Release, ReleaseRecord},
    hold::SilenceId,
    ledger::ConfirmedBy,
    notification::{NotificationId, repeat::Response},
    pipeline::silence::Silence,
    user::UserSettings,
};

/// An event.
pub const EVENT: u8 = 1;
/// An exchange.
pub const EXCHANGE: u8 = 2;
/// An injection is known to have arrived.
pub const ACK: u8 = 3;
/// An injection is known not to have arrived.
pub const UNDELIVERED: u8 = 4;
/// A conversation began, or reported its state.
pub const SESSION_OPENED: u8 = 5;
/// A conversation ended.
pub const SESSION_CLOSED: u8 = 6;
/// New rules apply from here on.
pub const RULES: u8 = 7;
/// An otherwise silent session has a client attached.
pub const SESSION_SEEN: u8 = 12;
/// The state of a session according to its client's own files.
pub const SESSION_STATE: u8 = 13;
/// The daemon stops.
pub const SHUTTING_DOWN: u8 = 8;
/// Only time has passed.
pub const TICK: u8 = 9;
/// The injection released by an exchange; written before the answer.
pub const RELEASED: u8 = 10;
/// An earlier record is not replayed: it crashed the process, or is unreadable.
pub const SKIPPED: u8 = 11;
/// The user decided about a pending notification.
pub const DECIDED: u8 = 16;
/// The local clock of the machine.
pub const ZONE: u8 = 17;
/// A person suppresses something, or changes until when.
pub const SILENCE: u8 = 18;
/// A person ends silences.
pub const SILENCE_END: u8 = 19;
/// A user's settings are replaced.
pub const SETTINGS: u8 = 20;
/// An agent or a user answers a notification.
pub const RESPONSE: u8 = 21;
/// A record was lost, as found by a repair of the journal; the highest number, so that kinds of
/// inputs can be added below.
pub const LOST: u8 = 255;

/// The content of a record.
#[derive(Debug)]
pub enum RecordInput<'a> {
    /// An input of the engine. An exchange whose release is a separate record counts as one that
    /// released nothing; the reader has to read the following records.
    Input(Input<'a>),
    /// The rules with this content hash; the reader loads and compiles them.
    Rules {
        /// Lower-case hex of the SHA-256 of their sources.
        hash: Arc<str>,
    },
    /// The release of an earlier exchange.
    Released(ReleaseRecord),
    /// Another record is not replayed, or again.
    Skipped(Skip),
}

/// What a start decided about a record that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    /// The record.
    pub record: Seq,
    /// The build of the program that decided; empty when unknown.
    pub by: Box<str>,
    /// The decision.
    pub decision: SkipDecision,
}

/// Whether a record is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipDecision {
    /// It is left out.
    Skipped,
    /// It was left out, and is applied again.
    TakenBack,
}

/// A record body that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// An unknown kind.
    #[error("record {seq} is of kind {kind}, which this version does not know")]
    Kind {
        /// Its position.
        seq: Seq,
        /// The kind.
        kind: u8,
    },
    /// The body is of a later version.
    #[error("record {seq} ({kind}) is of version {version}, this program reads up to {VERSION}")]
    Version {
        /// Its position.
        seq: Seq,
        /// Its kind.
        kind: &'static str,
        /// Its version.
        version: u32,
    },
    /// An event's body is corrupt.
    #[error("record {seq} (event) cannot be read")]
    Event {
        /// Its position.
        seq: Seq,
        /// The error.
        source: codec::EventCodecError,
    },
    /// The body does not match its kind.
    #[error("record {seq} ({kind}) cannot be read")]
    Body {
        /// Its position.
        seq: Seq,
        /// Its kind.
        kind: &'static str,
        /// The error.
        source: BodyError,
    },
}

/// An error in a JSON body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BodyError(String);

impl RecordError {
    /// Whether the record is corrupt, and not just of a later version.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Kind { .. } | Self::Version { .. } => false,
            // The first byte is the version.
            Self::Event { source, .. } => source.at > 0,
            Self::Body { .. } => true,
        }
    }
}

/// The name of a kind of record; `None` for an unknown one.
pub const fn kind_name(kind: u8) -> Option<&'static str> {
    Some(match kind {
        EVENT => "event",
        EXCHANGE => "exchange",
        ACK => "ack",
        UNDELIVERED => "undelivered",
        SESSION_OPENED => "session_opened",
        SESSION_CLOSED => "session_closed",
        SESSION_SEEN => "session_seen",
        SESSION_STATE => "session_state",
        RULES => "rules",
        SHUTTING_DOWN => "shutting_down",
        TICK => "tick",
        ZONE => "zone",
        SILENCE => "silence",
        SILENCE_END => "silence_end",
        SETTINGS => "settings",
        RESPONSE => "response",
        RELEASED => "released",
        SKIPPED => "skipped",
        DECIDED => "decided",
        LOST => "lost",
        _ => return None,
    })
}

/// The name by which the journal finds a record: its event's id, whatever the source; `None` if it
/// has no event.
pub fn name_of_record(kind: u8, body: &[u8]) -> Option<&[u8]> {
    (kind == EVENT).then(|| codec::id_bytes(body)).flatten()
}

/// The idempotency key of a record, so that duplicates are detected after a restart.
pub fn idempotency_key(kind: u8, body: &[u8]) -> Option<u128> {
    // An id made by the daemon cannot repeat, so its event needs no key.
    let is_producers = kind == EVENT && codec::id_origin(body) == IdOrigin::Producer;
    let event = is_producers.then(|| codec::decode(body).ok()).flatten()?;
    Some(event.idempotency_key())
}

/// Whether a record of this kind may be left out when it cannot be applied. Without one of rules,
/// of a session or of an exchange, all that follows means something else.
pub const fn may_be_skipped(kind: u8) -> bool {
    !matches!(
        kind,
        RULES
            | SESSION_OPENED
            | SESSION_CLOSED
            | SESSION_SEEN
            | SESSION_STATE
            | EXCHANGE
            | RELEASED
            | ACK
            | UNDELIVERED
    )
}

/// Appends the body of an [`EVENT`] that has its producer's id.
pub fn encode_event(event: &EventRef<'_>, body: &mut Vec<u8>) {
    codec::encode(event, IdOrigin::Producer, body);
}

/// Appends the body of an [`EVENT`] whose id the daemon has just created; it needs no idempotency
/// key.
pub fn encode_event_with_new_id(event: &EventRef<'_>, body: &mut Vec<u8>) {
    codec::encode(event, IdOrigin::Daemon, body);
}

/// Appends the body of an [`EXCHANGE`].
pub fn encode_exchange(request: RequestId, exchange: &Exchange, body: &mut Vec<u8>) {
    write(Asked::new(request.0, exchange), body);
}

/// Appends the body of an [`ACK`], with the evidence of arrival.
pub fn encode_ack(session: &SessionId, injection: &InjectionId, by: ConfirmedBy, body: &mut Vec<u8>) {
    write(Carried { session: Cow::Borrowed(session), injection: *injection, by: Some(by) }, body);
}

/// Appends the body of an [`UNDELIVERED`].
pub fn encode_undelivered(session: &SessionId, injection: &InjectionId, body: &mut Vec<u8>) {
    write(Carried { session: Cow::Borrowed(session), injection: *injection, by: None }, body);
}

/// Appends the body of a [`SESSION_OPENED`].
pub fn encode_session_opened(session: &SessionId, harness: &Harness, body: &mut Vec<u8>) {
    write(Opened { session: Cow::Borrowed(session), harness: Cow::Borrowed(harness) }, body);
}

/// Appends the body of a [`SESSION_CLOSED`] of a session that can be resumed.
pub fn encode_session_suspended(session: &SessionId, body: &mut Vec<u8>) {
    let session = Cow::Borrowed(session);
    write(Closed { session, may_return: true, cause: None, pid: None, pid_started: None }, body);
}

/// Appends the body of a [`SESSION_CLOSED`] of a session that cannot be resumed.
pub fn encode_session_ended(session: &SessionId, body: &mut Vec<u8>) {
    let session = Cow::Borrowed(session);
    write(Closed { session, may_return: false, cause: None, pid: None, pid_started: None }, body);
}

/// Appends the body of a [`SESSION_CLOSED`] because the session's process has ended; it can be
/// resumed in another one.
pub fn encode_process_gone(session: &SessionId, process: Process, body: &mut Vec<u8>) {
    let closed = Closed {
        session: Cow::Borrowed(session),
        may_return: true,
        cause: Some(Cause::ProcessGone),
        pid: Some(process.pid),
        pid_started: process.started,
    };
    write(closed, body);
}

/// Appends the body of a [`SESSION_SEEN`].
pub fn encode_session_seen(session: &SessionId, body: &mut Vec<u8>) {
    write(Seen { session: Cow::Borrowed(session) }, body);
}

/// Appends the body of a [`SESSION_STATE`]: the session was idle at `as_of`, according to `source`.
pub fn encode_session_idle(session: &SessionId, source: &str, as_of: Timestamp, body: &mut Vec<u8>) {
    let session = Cow::Borrowed(session);
    write(Moved { session, state: MovedTo::Idle, source: source.into(), as_of }, body);
}

/// Appends the body of a [`DECIDED`]; without a session it applies to every queue with the
/// notification.
pub fn encode_decided(
    session: Option<&SessionId>,
    notification: &NotificationId,
    decision: Decision,
    body: &mut Vec<u8>,
) {
    write(Decided { session: session.map(Cow::Borrowed), notification: *notification, decision }, body);
}

/// Appends the body of a [`ZONE`].
pub fn encode_zone(zone: &Zone, body: &mut Vec<u8>) {
    write(Local { zone: Cow::Borrowed(zone) }, body);
}

/// Appends the body of a [`SILENCE`].
pub fn encode_silence(silence: &Silence, body: &mut Vec<u8>) {
    write(Made { silence: Cow::Borrowed(silence) }, body);
}

/// Appends the body of a [`SILENCE_END`].
pub fn encode_silence_end(silences: &[SilenceId], body: &mut Vec<u8>) {
    write(Unmade { silences: silences.into() }, body);
}

/// Appends the body of a [`RESPONSE`].
pub fn encode_response(notification: &NotificationId, response: &Response, body: &mut Vec<u8>) {
    write(Answered { notification: *notification, response: Cow::Borrowed(response) }, body);
}

/// Appends the body of a [`SETTINGS`].
pub fn encode_settings(user: &str, settings: &UserSettings, body: &mut Vec<u8>) {
    write(OfUser { user: user.into(), settings: Cow::Borrowed(settings) }, body);
}

/// Appends the body of [`RULES`].
pub fn encode_rules(hash: &str, body: &mut Vec<u8>) {
    write(Rules { hash: hash.into() }, body);
}

/// Appends the body of a [`RELEASED`].
pub fn encode_released(release: &ReleaseRecord, body: &mut Vec<u8>) {
    write(release, body);
}

/// Appends the body of a [`SKIPPED`]: the program of build `by` decided about `record`.
pub fn encode_skipped(record: Seq, by: &str, decision: SkipDecision, body: &mut Vec<u8>) {
    let taken_back = decision == SkipDecision::TakenBack;
    write(Skipped { record, by: by.into(), taken_back }, body);
}

/// Appends the body of a [`SHUTTING_DOWN`] or a [`TICK`], which have no content.
pub fn encode_bare(body: &mut Vec<u8>) {
    write(Bare {}, body);
}

/// The beginning of a body with content.
const HEAD: &[u8] = b"{\"v\":1,";

fn write(rest: impl Serialize, body: &mut Vec<u8>) {
    let written = Versioned { v: VERSION, rest };
    serde_json::to_writer(body, &written).expect("text and numbers always serialize into memory");
}

/// Decodes the body of a record.
///
/// Errors: the kind or its version is unknown, or the body was not written by the functions above.
pub fn decode(kind: u8, seq: Seq, body: &[u8]) -> Result<RecordInput<'_>, RecordError> {
    let name = kind_name(kind).ok_or(RecordError::Kind { seq, kind })?;
    let body = Body { seq, kind: name, bytes: body };
    Ok(RecordInput::Input(match kind {
        EVENT => {
            let event = codec::decode(body.bytes).map_err(|source| RecordError::Event { seq, source })?;
            Input::Event { seq, event }
        }
        EXCHANGE => {
            let asked: Asked<'_> = body.read()?;
            let (request, exchange) = (RequestId(asked.request), asked.into_exchange().into());
            Input::Exchange { seq, request, exchange, release: Release::Recorded(None) }
        }
        ACK => {
            let Carried { session, injection, by } = body.read()?;
            let by = by.ok_or_else(|| body.broken("missing field `by`"))?;
            Input::Ack { session: session.into_owned(), injection, by }
        }
        UNDELIVERED => {
            let Carried { session, injection, by: _ } = body.read()?;
            Input::Undelivered { session: session.into_owned(), injection }
        }
        SESSION_OPENED => {
            let Opened { session, harness } = body.read()?;
            Input::SessionOpened { session: session.into_owned(), harness: harness.into_owned() }
        }
        SESSION_CLOSED => {
            let Closed { session, may_return, cause, pid, pid_started } = body.read()?;
            let session = session.into_owned();
            match cause {
                None if may_return => Input::SessionSuspended { session },
                None => Input::SessionEnded { session },
                Some(Cause::ProcessGone) => {
                    let pid = pid.ok_or_else(|| body.broken("missing field `pid`"))?;
                    Input::ProcessGone { session, process: Process { pid, started: pid_started } }
                }
            }
        }
        SESSION_SEEN => {
            let Seen { session } = body.read()?;
            Input::SessionSeen { session: session.into_owned() }
        }
        SESSION_STATE => {
            let Moved { session, state: MovedTo::Idle, source: _, as_of } = body.read()?;
            Input::SessionIdle { session: session.into_owned(), as_of }
        }
        DECIDED | SILENCE | SILENCE_END | SETTINGS | RESPONSE => body.read_of_person(kind)?,
        ZONE => {
            let Local { zone } = body.read()?;
            Input::ZoneChanged(zone.into_owned())
        }
        RULES => {
            let Rules { hash } = body.read()?;
            return Ok(RecordInput::Rules { hash: hash.into() });
        }
        RELEASED => return Ok(RecordInput::Released(body.read()?)),
        SKIPPED => {
            let Skipped { record, by, taken_back } = body.read()?;
            let decision = if taken_back { SkipDecision::TakenBack } else { SkipDecision::Skipped };
            return Ok(RecordInput::Skipped(Skip { record, by: by.into(), decision }));
        }
        SHUTTING_DOWN => {
            let Bare {} = body.read()?;
            Input::ShuttingDown
        }
        TICK | LOST => {
            let Bare {} = body.read()?;
            Input::Tick
        }
        _ => return Err(RecordError::Kind { seq, kind }),
    }))
}

/// A body to decode, and the context of its errors.
#[derive(Clone, Copy)]
struct Body<'a> {
    seq: Seq,
    kind: &'static str,
    bytes: &'a [u8],
}

impl Body<'_> {
    fn read<T: DeserializeOwned>(self) -> Result<T, RecordError> {
        let Self { seq, kind, bytes } = self;
        // The version is a field that no body has, so it is skipped: a flattened body would be copied.
        let read = serde_json::from_slice(bytes);
        if read.is_ok() && bytes.starts_with(HEAD) {
            return read.map_err(|error| self.broken(&error.to_string()));
        }
        match serde_json::from_slice(bytes) {
            // A later version may have another structure.
            Ok(Head { v: version }) if version > VERSION => Err(RecordError::Version { seq, kind, version }),
            Ok(Head { .. }) => read.map_err(|error| self.broken(&error.to_string())),
            Err(error) => Err(self.broken(&error.to_string())),
        }
    }

    /// An input that a person makes, of this kind.
    fn read_of_person(self, kind: u8) -> Result<Input<'static>, RecordError> {
        Ok(match kind {
            SILENCE => {
                let Made { silence } = self.read()?;
                Input::Silenced(Box::new(silence.into_owned()))
            }
            RESPONSE => {
                let Answered { notification, response } = self.read()?;
                Input::Responded { notification, response: response.into_owned() }
            }
            SETTINGS => {
                let OfUser { user, settings } = self.read()?;
                Input::UserSettings { user: user.into(), settings: Box::new(settings.into_owned()) }
            }
            SILENCE_END => {
                let Unmade { silences } = self.read()?;
                Input::SilencesEnded(silences.into_owned())
            }
            _ => {
                let Decided { session, notification, decision } = self.read()?;
                Input::Decided { session: session.map(Cow::into_owned), notification, decision }
            }
        })
    }

    fn broken(self, what: &str) -> RecordError {
        RecordError::Body { seq: self.seq, kind: self.kind, source: BodyError(what.to_owned()) }
    }
}
