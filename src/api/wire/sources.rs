//! Sources as JSON: whether each can publish, and the outcome of its events.

use serde::{Deserialize, Serialize};

use crate::api::wire::history::ProjectionView;

/// Prefix of the session ids that `aside doctor` invents. They are excluded from counts.
pub const DOCTOR_SESSION: &str = "doctor-";
/// The subagent name of each of these sessions.
pub const DOCTOR_AGENT: &str = "doctor";

/// All sources.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SourcesView {
    /// Start of the counts.
    pub since: String,
    /// Whether `since` is later than requested, because there were too many events or deliveries.
    pub is_cut: bool,
    /// The built-in sources, in a fixed order; then other sources by descending number of events,
    /// at most 20.
    pub sources: Vec<SourceView>,
    /// Number of further sources.
    pub more: usize,
    /// Subscribers without a built-in source of their events, by id.
    pub unserved: Vec<UnservedView>,
    /// Looks of the probes since the daemon started.
    pub looks: LooksView,
    /// Progress of the counts.
    pub projection: ProjectionView,
}

/// One source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SourceView {
    /// Its name: as in docs/sources.md if built in, else the `source` of its events.
    pub name: String,
    /// `probe`, `detector`, `harness`, `source`, `command`, `webhook` or `daemon`; `other` if not
    /// built in.
    pub kind: String,
    /// Whether it can publish now; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_on: Option<bool>,
    /// Why it cannot, or why no subscriber takes its events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Problems with single entries of its list in `aside.toml`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
    /// The subject of its events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// What it requires to publish anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
    /// Missing programs or files on the daemon's machine that limit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// The types that it publishes, as far as known.
    pub types: Vec<String>,
    /// The outcome of its events.
    #[serde(flatten)]
    pub count: CountView,
}

/// A subscriber without a built-in source of its events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct UnservedView {
    /// Its id.
    pub subscriber: String,
    /// The types that it takes, as patterns.
    pub types: Vec<String>,
    /// Counts of such events from other sources.
    #[serde(flatten)]
    pub count: CountView,
}

/// Counts of events and deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct CountView {
    /// Events that a subscriber takes.
    pub events: u64,
    /// Time of the newest one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_at: Option<String>,
    /// Deliveries of their notifications to agents, once per session.
    pub delivered: u64,
    /// Estimated tokens of those, without the wrapper.
    pub tokens: u64,
}

/// Looks of all probes together, at each exchange that runs them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct LooksView {
    /// Their number.
    pub count: u64,
    /// Mean duration of a look, in microseconds.
    pub mean_us: u64,
    /// Exchanges that went ahead without a look's findings: it took too long, or could not run.
    pub missed: u64,
    /// The folders in which looks finished after their exchange, the slowest first. Their findings
    /// are delivered one call late.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slow: Vec<SlowView>,
}

/// A folder in which looks take too long.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SlowView {
    /// The folder.
    pub folder: String,
    /// Number of late looks there.
    pub count: u64,
    /// Duration of the last one, in milliseconds.
    pub took_ms: u64,
}
