//! The form in which a part of a watch is read.
//!
//! Shape: one struct with the fields of every kind of condition. Reading an enum within a struct by
//! its derived implementation would first copy each field, and then choose the kind.

use serde::Deserialize;

use super::{
    Part,
    condition::{Condition, ReadPosition},
};
use journal::time::Timestamp;

use crate::event::SessionId;

#[derive(Deserialize)]
pub(super) struct StoredPart {
    text: String,
    met: Option<String>,
    kind: Kind,
    pid: Option<u32>,
    started: Option<u64>,
    host: Option<String>,
    port: Option<u16>,
    open: Option<bool>,
    url: Option<String>,
    status: Option<u16>,
    path: Option<String>,
    exists: Option<bool>,
    since: Option<String>,
    pattern: Option<String>,
    from: Option<ReadPosition>,
    reference: Option<String>,
    folder: Option<String>,
    time: Option<Timestamp>,
    left: Option<u32>,
    session: Option<SessionId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Exit,
    Port,
    Http,
    File,
    Change,
    Line,
    Ci,
    Event,
    At,
    Turns,
    Idle,
}

/// A part lacks a field that its kind of condition has.
#[derive(Debug, thiserror::Error)]
#[error("a condition lacks a field of its kind")]
pub(super) struct Incomplete;

impl TryFrom<StoredPart> for Part {
    type Error = Incomplete;

    fn try_from(mut part: StoredPart) -> Result<Self, Incomplete> {
        let (text, met) = (std::mem::take(&mut part.text), part.met.take());
        let condition = part.condition().ok_or(Incomplete)?;
        Ok(Self { text, condition, met })
    }
}

impl StoredPart {
    fn condition(self) -> Option<Condition> {
        Some(match self.kind {
            Kind::Exit => Condition::Exit { pid: self.pid?, started: self.started },
            Kind::Port => Condition::Port { host: self.host?, port: self.port?, open: self.open? },
            Kind::Http => Condition::Http { url: self.url?, status: self.status },
            Kind::File => Condition::File { path: self.path?, exists: self.exists? },
            Kind::Change => Condition::Change { path: self.path?, since: self.since },
            Kind::Line => Condition::Line { path: self.path?, pattern: self.pattern?, from: self.from },
            Kind::Ci => Condition::Ci { reference: self.reference, folder: self.folder? },
            Kind::Event => Condition::Event { pattern: self.pattern? },
            Kind::At => Condition::At { time: self.time? },
            Kind::Turns => Condition::Turns { left: self.left? },
            Kind::Idle => Condition::Idle { session: self.session? },
        })
    }
}
