//! The JSON bodies of records, as they are written and as they are read.

use std::{borrow::Cow, sync::Arc};

use journal::time::{Timestamp, zone::Zone};
use serde::{Deserialize, Serialize};

use crate::{
    event::{Seq, SessionId},
    exchange::{
        Budget, CarrierEffect, ContextChange, Conversations, Decision, Dialect, Exchange, Format, Harness,
        InjectionId, Trigger,
    },
    hold::SilenceId,
    ledger::ConfirmedBy,
    notification::{InjectionPoint, NotificationId, repeat::Response},
    pipeline::silence::Silence,
    user::UserSettings,
};

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

/// An exchange, without the observed events, which are separate records.
#[derive(Serialize, Deserialize)]
pub(super) struct Asked<'a> {
    pub(super) request: u64,
    session: Cow<'a, SessionId>,
    point: InjectionPoint,
    carrier: Cow<'a, Arc<str>>,
    #[serde(skip_serializing_if = "is_default")]
    turn: Option<Cow<'a, Arc<str>>>,
    #[serde(skip_serializing_if = "is_default")]
    step: Option<Cow<'a, Arc<str>>>,
    #[serde(default, serialize_with = "Facts::serialize", skip_serializing_if = "is_default")]
    harness: Cow<'a, Harness>,
    #[serde(skip_serializing_if = "is_default")]
    tool: Option<Cow<'a, Arc<str>>>,
    #[serde(default, skip_serializing_if = "is_default")]
    ack: Cow<'a, [InjectionId]>,
    #[serde(default, skip_serializing_if = "is_default")]
    known_calls: Cow<'a, [Arc<str>]>,
    #[serde(default, skip_serializing_if = "is_default")]
    budget: Budget,
    #[serde(skip_serializing_if = "is_default")]
    format: Option<Format>,
    #[serde(default, skip_serializing_if = "is_default")]
    carrier_effect: CarrierEffect,
    #[serde(skip_serializing_if = "is_default")]
    context: Option<Context>,
    #[serde(skip_serializing_if = "is_default")]
    from: Option<Cow<'a, SessionId>>,
    #[serde(default, skip_serializing_if = "is_default")]
    shows_notices: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    trigger: Trigger,
}

/// The known facts about a harness. A process is written with its number of conversations.
#[derive(Serialize)]
#[serde(remote = "Harness")]
struct Facts {
    #[serde(skip_serializing_if = "is_default")]
    name: Option<Arc<str>>,
    #[serde(skip_serializing_if = "is_default")]
    version: Option<Arc<str>>,
    #[serde(skip_serializing_if = "is_default")]
    workspace: Option<Arc<str>>,
    #[serde(skip_serializing_if = "is_default")]
    user: Option<Arc<str>>,
    #[serde(skip_serializing_if = "is_default")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "is_default")]
    pid_started: Option<u64>,
    #[serde(getter = "Harness::process_conversations", skip_serializing_if = "is_default")]
    conversations: Option<Conversations>,
    #[serde(skip_serializing_if = "is_default")]
    parent: Option<SessionId>,
    #[serde(skip_serializing_if = "is_default")]
    format: Option<Format>,
    #[serde(skip_serializing_if = "is_default")]
    dialect: Option<Dialect>,
}

/// The change of the context; the session that had it before is a separate field.
#[derive(PartialEq, Serialize, Deserialize)]
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
    #[serde(skip_serializing_if = "is_default")]
    pub(super) by: Option<ConfirmedBy>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Opened<'a> {
    pub(super) session: Cow<'a, SessionId>,
    #[serde(serialize_with = "Facts::serialize")]
    pub(super) harness: Cow<'a, Harness>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Closed<'a> {
    pub(super) session: Cow<'a, SessionId>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) may_return: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) cause: Option<Cause>,
    /// Present if `cause` is.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) pid: Option<u32>,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) pid_started: Option<u64>,
}

/// Why a session was closed without a report of its harness.
#[derive(PartialEq, Serialize, Deserialize)]
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
    #[serde(skip_serializing_if = "is_default")]
    pub(super) session: Option<Cow<'a, SessionId>>,
    pub(super) notification: NotificationId,
    pub(super) decision: Decision,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Local<'a> {
    #[serde(flatten)]
    pub(super) zone: Cow<'a, Zone>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Made<'a> {
    #[serde(flatten)]
    pub(super) silence: Cow<'a, Silence>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Unmade<'a> {
    pub(super) silences: Cow<'a, [SilenceId]>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Answered<'a> {
    pub(super) notification: NotificationId,
    #[serde(flatten)]
    pub(super) response: Cow<'a, Response>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct OfUser<'a> {
    pub(super) user: Cow<'a, str>,
    #[serde(flatten)]
    pub(super) settings: Cow<'a, UserSettings>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Rules<'a> {
    pub(super) hash: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Skipped<'a> {
    pub(super) record: Seq,
    #[serde(default, skip_serializing_if = "is_default")]
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

impl<'a> Asked<'a> {
    pub(super) fn new(request: u64, exchange: &'a Exchange) -> Self {
        let context = match exchange.context {
            ContextChange::Unstated => None,
            ContextChange::Unchanged => Some(Context::Unchanged),
            ContextChange::Compacted => Some(Context::Compacted),
            ContextChange::Resumed => Some(Context::Resumed),
            ContextChange::Cleared { .. } => Some(Context::Cleared),
            ContextChange::Forked { .. } => Some(Context::Forked),
        };
        Self {
            request,
            session: Cow::Borrowed(&exchange.session),
            point: exchange.point,
            carrier: Cow::Borrowed(&exchange.carrier),
            turn: exchange.turn.as_ref().map(Cow::Borrowed),
            step: exchange.step.as_ref().map(Cow::Borrowed),
            harness: Cow::Borrowed(&exchange.harness),
            tool: exchange.tool.as_ref().map(Cow::Borrowed),
            ack: Cow::Borrowed(&exchange.acks),
            known_calls: Cow::Borrowed(&exchange.known_calls),
            budget: exchange.budget,
            format: exchange.format,
            carrier_effect: exchange.carrier_effect,
            context,
            from: exchange.context.origin().map(Cow::Borrowed),
            shows_notices: exchange.shows_notices,
            trigger: exchange.trigger,
        }
    }

    pub(super) fn into_exchange(self) -> Exchange {
        let from = self.from.map(Cow::into_owned);
        let context = match self.context {
            None => ContextChange::Unstated,
            Some(Context::Unchanged) => ContextChange::Unchanged,
            Some(Context::Compacted) => ContextChange::Compacted,
            Some(Context::Resumed) => ContextChange::Resumed,
            Some(Context::Cleared) => ContextChange::Cleared { from },
            Some(Context::Forked) => ContextChange::Forked { from },
        };
        Exchange {
            session: self.session.into_owned(),
            point: self.point,
            carrier: self.carrier.into_owned(),
            turn: self.turn.map(Cow::into_owned),
            step: self.step.map(Cow::into_owned),
            harness: self.harness.into_owned(),
            tool: self.tool.map(Cow::into_owned),
            acks: self.ack.into_owned(),
            known_calls: self.known_calls.into_owned(),
            budget: self.budget,
            format: self.format,
            carrier_effect: self.carrier_effect,
            context,
            shows_notices: self.shows_notices,
            trigger: self.trigger,
        }
    }
}
