//! The bodies of journal records: what each kind holds, how it is written and how it is read again.
//!
//! An event's body is `event::codec`'s; every other one is a JSON object whose `v` is its version, so that a record of today can be
//! read by the program of later. What is read is an input of the engine, so a replay feeds it what live traffic fed it.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    engine::io::{Input, RequestId},
    event::{
        EventRef, Seq, SessionId,
        codec::{self, IdOrigin},
    },
    exchange::{Conversations, Decision, Exchange, Harness, InjectionId, Process, Release, ReleaseRecord},
    ledger::ConfirmedBy,
    notification::NotificationId,
    protocol::{
        FieldError,
        event::read_name,
        exchange::{self, ExchangeView},
        fields::{Fields, Unknown},
        views::HarnessView,
    },
    session::SessionState,
    time::Timestamp,
};

/// An event.
pub const EVENT: u8 = 1;
/// An exchange.
pub const EXCHANGE: u8 = 2;
/// An injection is known to have arrived.
pub const ACK: u8 = 3;
/// An injection is known not to have arrived.
pub const UNDELIVERED: u8 = 4;
/// A conversation began, or said where it stands.
pub const SESSION_OPENED: u8 = 5;
/// A conversation ended.
pub const SESSION_CLOSED: u8 = 6;
/// The rules are others from here on.
pub const RULES: u8 = 7;
/// A session that says nothing has a client attached.
pub const SESSION_SEEN: u8 = 12;
/// Where a session stands, as its client's own files tell.
pub const SESSION_STATE: u8 = 13;
/// The daemon stops.
pub const SHUTTING_DOWN: u8 = 8;
/// Nothing but time has passed.
pub const TICK: u8 = 9;
/// What an exchange released; written before it is answered.
pub const RELEASED: u8 = 10;
/// An earlier record is not followed: the process died of it, or nobody can read it.
pub const SKIPPED: u8 = 11;
/// The user decided about a notification that waits.
pub const DECIDED: u8 = 16;
/// What was here was lost, and a repair of the journal said so; at the far end, so that kinds of inputs can go on from above.
pub const LOST: u8 = 255;

/// The version of every JSON body that is written here. Version 1 had neither `begins` and `from` of an exchange, nor `by` of
/// an ack, nor `may_return` of a closed session; without them they mean what they meant then. After an exchange of version 3 comes
/// a [`RELEASED`] if it released something; of earlier ones a replay decides that.
const VERSION: u32 = 3;
/// See [`VERSION`].
const RELEASES_SINCE: u32 = 3;

const EXCHANGE_FIELDS: [&str; 16] = exchange::fields_with!["v", "request", "session"];
const OTHER_FIELDS: [&str; 15] = [
    "v",
    "session",
    "injection",
    "harness",
    "hash",
    "by",
    "may_return",
    "notification",
    "decision",
    "cause",
    "pid",
    "pid_started",
    "state",
    "source",
    "as_of",
];
/// Why a session was closed whose harness did not say so: its process has ended.
const PROCESS_GONE: &str = "process_gone";
/// The only state that a client's own files move a session to.
const IDLE: &str = SessionState::Idle.as_str();
/// Whose records did not say that its processes have one conversation at a time, before that could be said.
const ONE_PER_PROCESS_BEFORE: &str = "claude-code";
/// What can prove an injection's arrival by itself; a later exchange does it without a record.
const PROOFS: [ConfirmedBy; 2] = [ConfirmedBy::Ack, ConfirmedBy::Seen];

/// What a record says.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "lives for one call; a box would cost an allocation for each event"
)]
pub enum RecordInput<'a> {
    /// Something for the engine. An exchange whose version has its release in a record of its own counts as one that released nothing;
    /// who reads on knows better.
    Input(Input<'a>),
    /// The rules are those of this content hash; whoever reads it loads and compiles them.
    Rules {
        /// Lower-case hex of the SHA-256 of what they were compiled from.
        hash: Arc<str>,
    },
    /// An earlier exchange released this.
    Released(ReleaseRecord),
    /// The record at this position is not followed.
    Skipped(Seq),
}

/// A record body that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The kind is not known to this program.
    #[error("record {seq} is of kind {kind}, which this version does not know")]
    Kind {
        /// Where.
        seq: Seq,
        /// Which.
        kind: u8,
    },
    /// The body is of a later version.
    #[error("record {seq} ({kind}) is of version {version}, this program reads up to {VERSION}")]
    Version {
        /// Where.
        seq: Seq,
        /// Which.
        kind: &'static str,
        /// Its version.
        version: u32,
    },
    /// The body is an event's, and broken.
    #[error("record {seq} (event) cannot be read")]
    Event {
        /// Where.
        seq: Seq,
        /// What is broken.
        source: codec::EventCodecError,
    },
    /// The body is not what its kind says.
    #[error("record {seq} ({kind}) cannot be read")]
    Body {
        /// Where.
        seq: Seq,
        /// Which.
        kind: &'static str,
        /// What is broken.
        source: FieldError,
    },
}

impl RecordError {
    /// Whether the record is broken, and not of a later version of the program.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Kind { .. } | Self::Version { .. } => false,
            // Its first byte is its version.
            Self::Event { source, .. } => source.at > 0,
            Self::Body { .. } => true,
        }
    }
}

/// The word for a kind of record; `None` for one that is not known.
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
        RELEASED => "released",
        SKIPPED => "skipped",
        DECIDED => "decided",
        LOST => "lost",
        _ => return None,
    })
}

#[derive(Serialize, Default)]
struct Written<'a> {
    v: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    injection: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    harness: Option<HarnessView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    may_return: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    notification: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid_started: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<u64>,
}

#[derive(Serialize)]
struct WrittenRequest<'a> {
    v: u32,
    request: u64,
    session: &'a str,
    #[serde(flatten)]
    exchange: ExchangeView<'a>,
}

/// A body that is read by its derive.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    v: u32,
    #[serde(flatten)]
    rest: T,
}

#[derive(Serialize, Deserialize)]
struct Skipped {
    record: Seq,
}

/// Appends the body of an [`EVENT`] that has its producer's id.
pub fn encode_event(event: &EventRef<'_>, body: &mut Vec<u8>) {
    codec::encode(event, IdOrigin::Producer, body);
}

/// Appends the body of an [`EVENT`] whose id the daemon just made; it is published without a key.
pub fn encode_event_with_new_id(event: &EventRef<'_>, body: &mut Vec<u8>) {
    codec::encode(event, IdOrigin::Daemon, body);
}

/// Appends the body of an [`EXCHANGE`].
pub fn encode_exchange(request: RequestId, exchange: &Exchange, body: &mut Vec<u8>) {
    let written = WrittenRequest {
        v: VERSION,
        request: request.0,
        session: exchange.session.as_str(),
        exchange: ExchangeView::of(exchange),
    };
    write(&written, body);
}

/// Appends the body of an [`ACK`], which says what proved the arrival.
pub fn encode_ack(session: &SessionId, injection: &InjectionId, by: ConfirmedBy, body: &mut Vec<u8>) {
    let (session, injection) = (Some(session.as_str()), Some(injection.as_str()));
    let by = Some(by.as_str());
    write(&Written { v: VERSION, session, injection, by, ..Written::default() }, body);
}

/// Appends the body of an [`UNDELIVERED`].
pub fn encode_undelivered(session: &SessionId, injection: &InjectionId, body: &mut Vec<u8>) {
    let (session, injection) = (Some(session.as_str()), Some(injection.as_str()));
    write(&Written { v: VERSION, session, injection, ..Written::default() }, body);
}

/// Appends the body of a [`SESSION_OPENED`].
pub fn encode_session_opened(session: &SessionId, harness: &Harness, body: &mut Vec<u8>) {
    let (session, harness) = (Some(session.as_str()), Some(HarnessView::of(harness)));
    write(&Written { v: VERSION, session, harness, ..Written::default() }, body);
}

/// Appends the body of a [`SESSION_CLOSED`], which says whether the session can be taken up again.
pub fn encode_session_closed(session: &SessionId, may_return: bool, body: &mut Vec<u8>) {
    write(&Written { v: VERSION, session: Some(session.as_str()), may_return, ..Written::default() }, body);
}

/// Appends the body of a [`SESSION_CLOSED`] that says that the session's process has ended; it can be resumed in another one.
pub fn encode_process_gone(session: &SessionId, process: Process, body: &mut Vec<u8>) {
    let written = Written {
        v: VERSION,
        session: Some(session.as_str()),
        may_return: true,
        cause: Some(PROCESS_GONE),
        pid: Some(process.pid),
        pid_started: process.started,
        ..Written::default()
    };
    write(&written, body);
}

/// Appends the body of a [`SESSION_SEEN`].
pub fn encode_session_seen(session: &SessionId, body: &mut Vec<u8>) {
    write(&Written { v: VERSION, session: Some(session.as_str()), ..Written::default() }, body);
}

/// Appends the body of a [`SESSION_STATE`] that says that the session was idle at the time `as_of`; `source` names where that stands.
pub fn encode_session_idle(session: &SessionId, source: &str, as_of: Timestamp, body: &mut Vec<u8>) {
    let written = Written {
        v: VERSION,
        session: Some(session.as_str()),
        state: Some(IDLE),
        source: Some(source),
        as_of: Some(as_of.as_millis()),
        ..Written::default()
    };
    write(&written, body);
}

/// Appends the body of a [`DECIDED`]; without a session it holds wherever the notification waits.
pub fn encode_decided(
    session: Option<&SessionId>,
    notification: &NotificationId,
    decision: Decision,
    body: &mut Vec<u8>,
) {
    let written = Written {
        v: VERSION,
        session: session.map(SessionId::as_str),
        notification: Some(notification.as_str()),
        decision: Some(decision.as_str()),
        ..Written::default()
    };
    write(&written, body);
}

/// Appends the body of [`RULES`].
pub fn encode_rules(hash: &str, body: &mut Vec<u8>) {
    write(&Written { v: VERSION, hash: Some(hash), ..Written::default() }, body);
}

/// Appends the body of a [`RELEASED`].
pub fn encode_released(release: &ReleaseRecord, body: &mut Vec<u8>) {
    write(&Versioned { v: VERSION, rest: release }, body);
}

/// Appends the body of a [`SKIPPED`], which names the record that is not followed.
pub fn encode_skipped(record: Seq, body: &mut Vec<u8>) {
    write(&Versioned { v: VERSION, rest: Skipped { record } }, body);
}

/// Appends the body of a [`SHUTTING_DOWN`] or a [`TICK`], which say nothing but that they happened.
pub fn encode_bare(body: &mut Vec<u8>) {
    write(&Written { v: VERSION, ..Written::default() }, body);
}

fn write(written: &impl Serialize, body: &mut Vec<u8>) {
    serde_json::to_writer(body, written).expect("text and numbers always serialize into memory");
}

/// Reads the body of a record.
///
/// Errors: the kind or its version is not known, or the body was not written by the functions above.
pub fn decode(kind: u8, seq: Seq, body: &[u8]) -> Result<RecordInput<'_>, RecordError> {
    let name = kind_name(kind).ok_or(RecordError::Kind { seq, kind })?;
    let broken = |source| RecordError::Body { seq, kind: name, source };
    let input = match kind {
        EVENT => {
            let event = codec::decode(body).map_err(|source| RecordError::Event { seq, source })?;
            Input::Event { seq, event }
        }
        EXCHANGE => {
            let fields = read_fields(body, &EXCHANGE_FIELDS).map_err(broken)?;
            let version = check_version(&fields, seq, name)?;
            decode_exchange(&fields, seq, version).map_err(broken)?
        }
        RELEASED => return read_versioned(body, seq, name).map(RecordInput::Released),
        SKIPPED => {
            return read_versioned(body, seq, name).map(|Skipped { record }| RecordInput::Skipped(record));
        }
        _ => {
            let fields = read_fields(body, &OTHER_FIELDS).map_err(broken)?;
            check_version(&fields, seq, name)?;
            if kind == RULES {
                let hash = fields.required("hash").map_err(broken)?;
                return Ok(RecordInput::Rules { hash: hash.as_ref().into() });
            }
            decode_other(kind, &fields).map_err(broken)?
        }
    };
    Ok(RecordInput::Input(input))
}

fn read_fields<'a, const N: usize>(
    body: &'a [u8],
    names: &'static [&'static str; N],
) -> Result<Fields<'a, N>, FieldError> {
    let text =
        std::str::from_utf8(body).map_err(|error| FieldError::whole(format!("is not UTF-8: {error}")))?;
    // A later version may have fields more: the version is looked at first.
    Fields::read(text, names, Unknown::Ignored)
}

fn read_versioned<T: DeserializeOwned>(body: &[u8], seq: Seq, kind: &'static str) -> Result<T, RecordError> {
    check_version(
        &read_fields(body, &["v"]).map_err(|source| RecordError::Body { seq, kind, source })?,
        seq,
        kind,
    )?;
    let read: Result<Versioned<T>, _> = serde_json::from_slice(body);
    let broken = |error: serde_json::Error| FieldError::whole(error.to_string());
    read.map(|read| read.rest).map_err(|error| RecordError::Body { seq, kind, source: broken(error) })
}

fn check_version<const N: usize>(
    fields: &Fields<'_, N>,
    seq: Seq,
    kind: &'static str,
) -> Result<u32, RecordError> {
    let version = fields
        .count("v")
        .and_then(|version| version.ok_or_else(|| FieldError::new("v", "is missing")))
        .map_err(|source| RecordError::Body { seq, kind, source })?;
    if version > VERSION {
        return Err(RecordError::Version { seq, kind, version });
    }
    Ok(version)
}

fn decode_exchange<'a>(fields: &Fields<'_, 16>, seq: Seq, version: u32) -> Result<Input<'a>, FieldError> {
    let request = fields
        .raw("request")
        .and_then(|raw| raw.get().parse().ok())
        .ok_or_else(|| FieldError::new("request", "must be a number"))?;
    let mut exchange = exchange::read(fields, &session(fields)?)?;
    exchange.harness = of_its_time(exchange.harness);
    let release = if version >= RELEASES_SINCE { Release::Recorded(None) } else { Release::Decide };
    Ok(Input::Exchange { seq, request: RequestId(request), exchange, release })
}

fn decode_other<'a>(kind: u8, fields: &Fields<'_, 15>) -> Result<Input<'a>, FieldError> {
    Ok(match kind {
        ACK => Input::Ack { session: session(fields)?, injection: injection(fields)?, by: proof(fields)? },
        UNDELIVERED => Input::Undelivered { session: session(fields)?, injection: injection(fields)? },
        SESSION_OPENED => {
            let harness = fields.raw("harness").ok_or_else(|| FieldError::new("harness", "is missing"))?;
            let harness = exchange::read_harness(harness.get()).map_err(|error| error.within("harness"))?;
            Input::SessionOpened { session: session(fields)?, harness: of_its_time(harness) }
        }
        SESSION_CLOSED => match fields.text("cause")?.as_deref() {
            None => {
                Input::SessionClosed { session: session(fields)?, may_return: flag(fields, "may_return")? }
            }
            Some(PROCESS_GONE) => Input::ProcessGone { session: session(fields)?, process: process(fields)? },
            Some(_) => return Err(FieldError::new("cause", format!("must be `{PROCESS_GONE}`"))),
        },
        SESSION_SEEN => Input::SessionSeen { session: session(fields)? },
        SESSION_STATE => {
            if fields.required("state")? != IDLE {
                return Err(FieldError::new("state", format!("must be `{IDLE}`")));
            }
            named(fields, "source")?;
            let as_of = fields.number("as_of")?.ok_or_else(|| FieldError::new("as_of", "is missing"))?;
            Input::SessionIdle { session: session(fields)?, as_of: Timestamp::from_millis(as_of) }
        }
        DECIDED => Input::Decided {
            session: read_name("session", fields.text("session")?)?.map(|id| SessionId::new(&id)),
            notification: named(fields, "notification").map(|id| NotificationId::new(&id))?,
            decision: decision(fields)?,
        },
        SHUTTING_DOWN => Input::ShuttingDown,
        _ => Input::Tick,
    })
}

/// Adds what a record said without words before it could be said: that a client at a terminal has one conversation at a time.
fn of_its_time(harness: Harness) -> Harness {
    let is_older = harness.conversations.is_none() && harness.pid.is_some();
    let is_client = harness.name.as_deref() == Some(ONE_PER_PROCESS_BEFORE);
    let conversations = (is_older && is_client).then_some(Conversations::OnePerProcess);
    Harness { conversations: conversations.or(harness.conversations), ..harness }
}

fn process<const N: usize>(fields: &Fields<'_, N>) -> Result<Process, FieldError> {
    let pid = fields.count("pid")?.ok_or_else(|| FieldError::new("pid", "is missing"))?;
    Ok(Process { pid, started: fields.number("pid_started")? })
}

fn session<const N: usize>(fields: &Fields<'_, N>) -> Result<SessionId, FieldError> {
    named(fields, "session").map(|id| SessionId::new(&id))
}

fn injection<const N: usize>(fields: &Fields<'_, N>) -> Result<InjectionId, FieldError> {
    named(fields, "injection").map(|id| InjectionId::new(&id))
}

fn proof<const N: usize>(fields: &Fields<'_, N>) -> Result<ConfirmedBy, FieldError> {
    let Some(word) = fields.text("by")? else { return Ok(ConfirmedBy::Ack) };
    let found = PROOFS.into_iter().find(|proof| proof.as_str() == word);
    found.ok_or_else(|| FieldError::new("by", "must be `ack` or `seen`"))
}

fn flag<const N: usize>(fields: &Fields<'_, N>, name: &'static str) -> Result<bool, FieldError> {
    match fields.raw(name).map(|raw| raw.get()) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(FieldError::new(name, "must be true or false")),
    }
}

fn decision<const N: usize>(fields: &Fields<'_, N>) -> Result<Decision, FieldError> {
    let word = fields.required("decision")?;
    let known = Decision::ALL.into_iter().find(|decision| decision.as_str() == word);
    known.ok_or_else(|| FieldError::new("decision", "must be `dismiss` or `discuss`"))
}

fn named<'a, const N: usize>(
    fields: &Fields<'a, N>,
    name: &'static str,
) -> Result<std::borrow::Cow<'a, str>, FieldError> {
    read_name(name, fields.text(name)?)?.ok_or_else(|| FieldError::new(name, "is missing"))
}
