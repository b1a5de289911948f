//! Subscribers as JSON: their counts, and what they have open.

use serde::{Deserialize, Serialize};

use crate::api::wire::{history::ProjectionView, inbox::HoldView, views::FailingView};

/// All subscribers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SubscribersView {
    /// Start of the counts.
    pub since: String,
    /// Every subscriber of the rules in force, by id.
    pub subscribers: Vec<SubscriberView>,
    /// Progress of the counts.
    pub projection: ProjectionView,
}

/// A subscriber of the rules in force.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SubscriberView {
    /// Its id.
    pub id: String,
    /// `core`, `on` or `off`.
    pub state: String,
    /// The users who disabled it; `me` is the daemon's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disabled_by: Vec<String>,
    /// The silence that suppresses all that it takes, critical events aside; of several the one that ends
    /// last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence: Option<String>,
    /// When that ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silenced_until: Option<String>,
    /// Events that it took, also those that it ended.
    pub events: u64,
    /// Notifications that it made.
    pub made: u64,
    /// Their deliveries to sessions.
    pub sent: u64,
    /// Estimated tokens of these, without wrappers.
    pub tokens: u64,
    /// When it made its newest notification, also before the counts begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_at: Option<String>,
    /// Number of its open batches.
    pub batches: usize,
    /// Number of the rows in them.
    pub rows: usize,
    /// When the next one closes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closes_at: Option<String>,
    /// Number of its pending notifications, each once for each session.
    pub pending: usize,
    /// Number of those that are held.
    pub held: usize,
    /// What holds them, each cause once; at most 8.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<HoldView>,
    /// Number of its notifications with conditions that hold, pending or delivered.
    pub conditions: usize,
    /// The parts of it that failed under the rules in force.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<FailingView>,
}
