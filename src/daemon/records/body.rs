//! The JSON bodies of records, as they are written and as they are read.

use std::{borrow::Cow, sync::Arc};

use engine::{
    event::{Seq, SessionId},
    exchange::{
        Budget, CarrierEffect, ContextChange, Decision, Exchange, Format, Harness, InjectionId, Trigger,
    },
    ledger::ConfirmedBy,
    notification::{InjectionPoint, NotificationId},
};
use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::wire::exchange::ExchangeView;

/// The version of every JSON body that is written, and the newest that is read. A field that a later
/// version adds needs no new version; one whose meaning changes does.
pub(super) const VERSION: u32 = 1;

/// A body. The decoder only checks that required fields are present: the API validates requests,
/// and may become stricter. Unknown fields are of later versions and skipped.
#[derive(Serialize)]
pub(super) struct Versioned<T> {
    pub(super) v: u32,
    #[serde(flatten)]
    pub(super) rest: T,
}

/// The version of a body.
#[derive(Deserialize)]
pub(super) struct Head {
    pub(super) v: u32,
}

/// An exchange as written, without the observed events, which are separate records.
#[derive(Serialize)]
pub(super) struct Asking<'a> {
    pub(super) request: u64,
    pub(super) session: &'a str,
    #[serde(flatten)]
    pub(super) exchange: ExchangeView<'a>,
}

/// An exchange as read.
#[derive(Deserialize)]
pub(super) struct Asked {
    pub(super) request: u64,
    pub(super) session: SessionId,
    pub(super) point: InjectionPoint,
    pub(super) carrier: Arc<str>,
    pub(super) turn: Option<Arc<str>>,
    pub(super) step: Option<Arc<str>>,
    #[serde(default)]
    pub(super) harness: Harness,
    pub(super) tool: Option<Arc<str>>,
    #[serde(default)]
    pub(super) ack: Vec<InjectionId>,
    #[serde(default)]
    pub(super) known_calls: Vec<Arc<str>>,
    #[serde(default)]
    pub(super) budget: Budget,
    pub(super) format: Option<Format>,
    #[serde(default)]
    pub(super) carrier_effect: CarrierEffect,
    pub(super) context: Option<Context>,
    pub(super) from: Option<SessionId>,
    #[serde(default)]
    pub(super) shows_notices: bool,
    #[serde(default)]
    pub(super) trigger: Trigger,
}

/// The change of the context; the session that had it before is a separate field.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Context {
    Unchanged,
    Compacted,
    Resumed,
    Cleared,
    Forked,
}

/// An injection that arrived, with the evidence, or that did not arrive.
#[derive(Serialize, Deserialize)]
pub(super) struct Carried<'a> {
    pub(super) session: Cow<'a, SessionId>,
    pub(super) injection: InjectionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<ConfirmedBy>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Opened<'a, H> {
    pub(super) session: Cow<'a, SessionId>,
    pub(super) harness: H,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Closed<'a> {
    pub(super) session: Cow<'a, SessionId>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) may_return: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cause: Option<Cause>,
    /// Present if `cause` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pid_started: Option<u64>,
}

/// Why a session was closed without a report of its harness.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cause {
    /// Its process has ended.
    ProcessGone,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Seen<'a> {
    pub(super) session: Cow<'a, SessionId>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Moved<'a> {
    pub(super) session: Cow<'a, SessionId>,
    pub(super) state: MovedTo,
    pub(super) source: Cow<'a, str>,
    pub(super) as_of: Timestamp,
}

/// States of a session that are taken from a client's own files.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MovedTo {
    Idle,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Decided<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<Cow<'a, SessionId>>,
    pub(super) notification: NotificationId,
    pub(super) decision: Decision,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Rules<'a> {
    pub(super) hash: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Skipped<'a> {
    pub(super) record: Seq,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub(super) by: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) taken_back: bool,
}

/// A body without content.
#[derive(Serialize, Deserialize)]
pub(super) struct Bare {}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Asked {
    pub(super) fn into_exchange(self) -> Exchange {
        let context = match self.context {
            None => ContextChange::Unstated,
            Some(Context::Unchanged) => ContextChange::Unchanged,
            Some(Context::Compacted) => ContextChange::Compacted,
            Some(Context::Resumed) => ContextChange::Resumed,
            Some(Context::Cleared) => ContextChange::Cleared { from: self.from },
            Some(Context::Forked) => ContextChange::Forked { from: self.from },
        };
        Exchange {
            session: self.session,
            point: self.point,
            carrier: self.carrier,
            turn: self.turn,
            step: self.step,
            harness: self.harness,
            tool: self.tool,
            acks: self.ack,
            known_calls: self.known_calls,
            budget: self.budget,
            format: self.format,
            carrier_effect: self.carrier_effect,
            context,
            shows_notices: self.shows_notices,
            trigger: self.trigger,
        }
    }
}
