//! The event: source, type, time and severity; its provenance, and the trust in its source.
//!
//! [`EventRef`] borrows its parts from the bytes of a request or of the journal, so an unmatched
//! event needs no allocation. [`Event`] owns its parts; a pipeline that keeps an event uses it.
//!
//! The trust in a source depends on the route by which the event arrived. A trusted source may report
//! on sessions, wake agents and interrupt them.

use std::{str::FromStr, sync::Arc};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{IntoStaticStr, VariantArray};

use crate::event::{EventType, Payload, Scope, SessionId};

impl_as_str!(Severity, Provenance);

/// The severity of an event, in ascending order, so a minimum is one comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, strum::Display, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Severity {
    /// Useful for debugging.
    Debug,
    /// Normal.
    Info,
    /// Needs attention; the alias is `warn`.
    Warning,
    /// Something failed.
    Error,
    /// Needs immediate attention.
    Critical,
}

/// Error: a text is not a severity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a severity; use debug, info, warning (or warn), error or critical")]
pub struct SeverityError(pub String);

impl FromStr for Severity {
    type Err = SeverityError;

    fn from_str(text: &str) -> Result<Self, SeverityError> {
        match text {
            "debug" => Ok(Self::Debug),
            "info" => Ok(Self::Info),
            "warning" | "warn" => Ok(Self::Warning),
            "error" => Ok(Self::Error),
            "critical" => Ok(Self::Critical),
            other => Err(SeverityError(other.chars().take(64).collect())),
        }
    }
}

/// An event that borrows its parts; every part is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRef<'a> {
    /// The producer's id, or a UUIDv7; unique per source.
    pub id: &'a str,
    /// The dotted type.
    pub event_type: &'a str,
    /// The component that sent it.
    pub source: &'a str,
    /// How it arrived.
    pub provenance: Provenance,
    /// Its severity.
    pub severity: Severity,
    /// When it happened, by the producer's clock.
    pub timestamp: Timestamp,
    /// The payload's JSON text, a valid object.
    pub payload: &'a str,
    /// The producer's deduplication key.
    pub dedupe_key: Option<&'a str>,
    /// The session to which it is addressed.
    pub session: Option<&'a str>,
    /// The folder it concerns.
    pub workspace: Option<&'a str>,
    /// The id of the event or notification that caused it.
    pub cause: Option<&'a str>,
    /// What the delivery of its notifications waits for, as [`EventDelay`](crate::hold::EventDelay).
    pub deliver_after: Option<&'a str>,
}

impl EventRef<'_> {
    /// Whether aside made the event from its own knowledge.
    pub fn is_own(&self) -> bool {
        self.provenance == Provenance::Own
    }

    /// The sessions that the event concerns, as [`Event::scope`].
    pub fn scope(&self) -> Scope {
        match (self.session, self.workspace) {
            (Some(session), _) => Scope::Session(SessionId::new(session)),
            (None, Some(folder)) => Scope::Workspace(folder.into()),
            (None, None) => Scope::All,
        }
    }

    /// Copies the event out of the bytes it borrows from.
    pub fn to_event(&self) -> Event {
        Event {
            id: self.id.into(),
            event_type: self.event_type.parse().expect("an EventRef holds a valid type"),
            source: self.source.into(),
            provenance: self.provenance,
            severity: self.severity,
            timestamp: self.timestamp,
            payload: Payload::from_valid(self.payload),
            dedupe_key: self.dedupe_key.map(Into::into),
            session: self.session.map(SessionId::new),
            workspace: self.workspace.map(Into::into),
            cause: self.cause.map(Into::into),
            deliver_after: self.deliver_after.map(Into::into),
        }
    }
}

/// The source of events that aside publishes; requests cannot name it.
pub const OWN_SOURCE: &str = "aside";

/// An event that owns its parts.
#[derive(Debug, Clone)]
pub struct Event {
    /// The producer's id, or a UUIDv7; unique per source.
    pub id: Arc<str>,
    /// The dotted type.
    pub event_type: EventType,
    /// The component that sent it.
    pub source: Arc<str>,
    /// How it arrived.
    pub provenance: Provenance,
    /// Its severity.
    pub severity: Severity,
    /// When it happened, by the producer's clock.
    pub timestamp: Timestamp,
    /// The fields that its type defines.
    pub payload: Payload,
    /// The producer's deduplication key.
    pub dedupe_key: Option<Arc<str>>,
    /// The session to which it is addressed.
    pub session: Option<SessionId>,
    /// The folder it concerns.
    pub workspace: Option<Arc<str>>,
    /// The id of the event or notification that caused it.
    pub cause: Option<Arc<str>>,
    /// What the delivery of its notifications waits for, as [`EventDelay`](crate::hold::EventDelay).
    pub deliver_after: Option<Arc<str>>,
}

impl Event {
    /// Builds an event that aside publishes, for all sessions.
    ///
    /// Shape: `event_type` is a literal; an invalid one is a bug.
    pub fn own(
        event_type: &str,
        id: impl Into<Arc<str>>,
        severity: Severity,
        payload: Value,
        now: Timestamp,
    ) -> Self {
        Self {
            id: id.into(),
            event_type: event_type.parse::<EventType>().expect("a valid literal"),
            source: OWN_SOURCE.into(),
            provenance: Provenance::Own,
            severity,
            timestamp: now,
            payload: Payload::from(payload),
            dedupe_key: None,
            session: None,
            workspace: None,
            cause: None,
            deliver_after: None,
        }
    }

    /// Builds an event of a harness for a render without a journal: a warning at time zero, for all
    /// sessions.
    ///
    /// Shape: its id and its source are `example`.
    pub fn example(event_type: EventType, payload: Payload) -> Self {
        Self {
            id: "example".into(),
            event_type,
            source: "example".into(),
            provenance: Provenance::Harness,
            severity: Severity::Warning,
            timestamp: Timestamp::ZERO,
            payload,
            dedupe_key: None,
            session: None,
            workspace: None,
            cause: None,
            deliver_after: None,
        }
    }

    /// The sessions that the event concerns: its own session, else those in, under or above its
    /// folder, else all.
    pub fn scope(&self) -> Scope {
        match (&self.session, &self.workspace) {
            (Some(session), _) => Scope::Session(session.clone()),
            (None, Some(folder)) => Scope::Workspace(folder.clone()),
            (None, None) => Scope::All,
        }
    }

    /// Borrows its parts.
    pub fn as_ref(&self) -> EventRef<'_> {
        EventRef {
            id: &self.id,
            event_type: self.event_type.as_str(),
            source: &self.source,
            provenance: self.provenance,
            severity: self.severity,
            timestamp: self.timestamp,
            payload: self.payload.as_str(),
            dedupe_key: self.dedupe_key.as_deref(),
            session: self.session.as_ref().map(SessionId::as_str),
            workspace: self.workspace.as_deref(),
            cause: self.cause.as_deref(),
            deliver_after: self.deliver_after.as_deref(),
        }
    }
}

/// How an event reached the daemon.
///
/// Source: the trust rules. The user's command line, harness adapters and aside itself are trusted.
/// The folds over aside's own events accept [`Self::Own`] only, since any producer can write a name.
/// Events from the network, a CloudEvent, a webhook, a file or another agent are trusted only if
/// the user names their source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, VariantArray, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Provenance {
    /// Over the Unix socket, from a process of the daemon's user.
    #[default]
    Local,
    /// With a hook or an exchange, over the Unix socket: a harness's report about its own agent.
    Harness,
    /// Over TCP, or as a CloudEvent: the source that it names is unverified.
    Remote,
    /// Over the Unix socket, from a process of an agent: a message to another agent.
    Agent,
    /// Made by the daemon. No request can have it.
    Own,
    /// Made by the daemon, with text of others: a line of a log, the name of a file, a review. No
    /// request can have it.
    Quoted,
}

impl Provenance {
    /// Whether the daemon made the event.
    pub const fn is_of_daemon(self) -> bool {
        matches!(self, Self::Own | Self::Quoted)
    }
}

/// The trust in the source of an event, decided by `[activation]` and the event's provenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The source may report on sessions, wake agents and interrupt them.
    Trusted,
    /// The source may do none of these.
    Untrusted,
}

impl Trust {
    /// Whether it is [`Self::Trusted`].
    pub const fn is_trusted(self) -> bool {
        matches!(self, Self::Trusted)
    }
}

/// Reads the name of a source in the settings. It matches the source of that name, and those whose
/// names continue after it with a dot or a slash.
pub(crate) fn source_name(name: &str) -> Result<String, String> {
    if name.trim().is_empty() { Err("the name of a source is empty".to_owned()) } else { Ok(name.to_owned()) }
}

/// How many bytes of `source` are covered by such a name; `None` if it does not stand for it.
pub(crate) fn nearness(name: &str, source: &str) -> Option<usize> {
    let rest = source.strip_prefix(name)?;
    let is_whole = rest.is_empty() || rest.starts_with(['.', '/']) || name.ends_with('/');
    is_whole.then_some(name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_are_ordered_and_warn_is_an_alias() {
        assert!(Severity::VARIANTS.is_sorted());
        assert_eq!("warn".parse(), Ok(Severity::Warning));
        assert!("Warning".parse::<Severity>().is_err());
    }
}
