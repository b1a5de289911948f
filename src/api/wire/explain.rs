//! What would become of an event, as JSON.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

#[cfg(test)]
use crate::api::wire::event::EventView;
use crate::api::wire::inbox::HoldView;

/// What would become of an event now.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct OutcomeView {
    /// The event, with its defaults and without credentials.
    #[cfg_attr(test, schema(value_type = EventView))]
    pub event: Box<RawValue>,
    /// How it comes: `local`, `harness`, `remote`, `agent`, `own` or `quoted`.
    pub provenance: String,
    /// Whether its source is trusted.
    pub is_trusted: bool,
    /// The rules that decide: their content hash.
    pub rules: String,
    /// Why it would not be dispatched: `causes` or `source_rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled: Option<String>,
    /// The open sessions in its scope, by id; the first 20.
    pub sessions: Vec<String>,
    /// Number of these sessions.
    pub session_count: usize,
    /// What each subscriber would do with it, by id.
    pub subscribers: Vec<SubscriberOutcomeView>,
}

/// What a subscriber would do with an event.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SubscriberOutcomeView {
    /// The subscriber.
    pub subscriber: String,
    /// `taken`; `ended`, with a reason; or why it does not get it: `other_type`, `other_folder`,
    /// `of_later_file` or `not_dispatched`.
    pub fate: String,
    /// The types that it takes.
    pub types: Vec<String>,
    /// Why it ends, as in the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What belongs to the reason, as in the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The severity that it has for the subscriber, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// The comparisons of `where`, those that decide first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<ComparisonView>,
    /// The key by which it is compared with others; absent without a dedupe window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedupe_key: Option<String>,
    /// The state of the threshold with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<CountView>,
    /// When its absence is reported, if no other one comes before; with `[absent]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed_at: Option<String>,
    /// The open batch that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<OpenBatchView>,
    /// Number of pending notifications and rows whose condition it resolves.
    pub withdrawn: usize,
    /// Number of pending notifications that the new one replaces.
    pub replaced: usize,
    /// The event that inhibits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inhibitor: Option<InhibitorView>,
    /// The notification that it becomes a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notification: Option<MadeView>,
    /// Where that goes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deliveries: Vec<GoesToView>,
    /// What its author wrote and fails for this event, each with its message.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

/// A comparison of `where`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ComparisonView {
    /// Its text.
    pub text: String,
    /// What it found, such as `"eu" is not "us"`.
    pub says: String,
    /// Whether it is true; absent if it could not be evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_true: Option<bool>,
    /// Whether `where` is true, or false, because of it.
    pub decides: bool,
}

/// The state of a threshold.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct CountView {
    /// The sum or the number.
    pub total: f64,
    /// The next level; absent above all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<f64>,
}

/// An open batch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct OpenBatchView {
    /// The values of `group_by`; empty without it.
    pub group: String,
    /// Number of its rows, with the event's.
    pub rows: usize,
    /// When it closes at the latest.
    pub ends_at: String,
    /// What keeps it open: `window`, `digest` or `quiet`.
    pub open_by: String,
}

/// An event that inhibits another one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct InhibitorView {
    /// Its position in the journal.
    pub seq: u64,
    /// The types of the events that end it.
    pub ended_by: Vec<String>,
    /// When it ends at the latest.
    pub until: String,
}

/// A notification that is not made yet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct MadeView {
    /// `critical`, `high`, `normal` or `low`.
    pub priority: String,
    /// Its injection point.
    pub inject_at: String,
    /// `passive`, `prompt` or `active`.
    pub activation: String,
    /// Number of its rows.
    pub rows: usize,
    /// Estimated size of its content.
    pub tokens: u32,
    /// Its content, as TOON.
    pub content: String,
    /// When it expires, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// Where a notification goes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct GoesToView {
    /// The session; absent for the next one that opens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// What keeps it from being released.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<HoldView>,
    /// Why it ends there, as in the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What belongs to the reason, as in the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}
