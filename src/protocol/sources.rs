//! What publishes, whether it can, and what came of it, as JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::protocol::history::ProjectionView;

/// What the ids of the sessions begin with that `aside doctor` makes up. What happened in them is not counted.
pub const DOCTOR_SESSION: &str = "doctor-";
/// The subagent that each of these sessions is.
pub const DOCTOR_AGENT: &str = "doctor";

/// Everything that publishes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct SourcesView {
    /// Since when events and deliveries are counted.
    pub since: String,
    /// Whether that is later than was asked for, because there were too many.
    pub is_cut: bool,
    /// What ships, in a fixed order; then what else published, the one with the most events first, at most 20.
    pub sources: Vec<SourceView>,
    /// How many others published that are not listed.
    pub more: usize,
    /// The subscribers that nothing that ships publishes for, by id.
    pub unserved: Vec<UnservedView>,
    /// The looks of the probes, since the daemon started.
    pub looks: LooksView,
    /// How far the counts go.
    pub projection: ProjectionView,
}

/// One thing that publishes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct SourceView {
    /// Its name: of what ships, that in docs/sources.md, else the `source` of its events.
    pub name: String,
    /// `probe`, `detector`, `harness`, `command`, `daemon`, or `other` for what does not ship.
    pub kind: String,
    /// Whether it can publish now; absent where nobody here knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_on: Option<bool>,
    /// Why it cannot, or why no subscriber takes its events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What keeps single entries of its list in `aside.toml` from working.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
    /// What its events are about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Without what it publishes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
    /// What is missing on the daemon's machine, so that it cannot publish all that it is set to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// The types that it publishes, as far as they are known.
    pub types: Vec<String>,
    /// What came of it.
    #[serde(flatten)]
    pub count: CountView,
}

/// A subscriber that waits for what nothing that ships publishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnservedView {
    /// Its id.
    pub subscriber: String,
    /// The types that it asks for, as patterns.
    pub types: Vec<String>,
    /// What others published of them.
    #[serde(flatten)]
    pub count: CountView,
}

/// What was counted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct CountView {
    /// Events that a subscriber asked for.
    pub events: u64,
    /// When the newest of them happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_at: Option<String>,
    /// Notifications of them that went to an agent, once a session.
    pub delivered: u64,
    /// What those cost in tokens, without the wrapper around them; an estimate.
    pub tokens: u64,
}

/// How probes looked, all of them together at each exchange at which they are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct LooksView {
    /// How often.
    pub count: u64,
    /// How long a look took, in microseconds, as a mean.
    pub mean_us: u64,
    /// Exchanges that were made without what a look would have found, because it took too long.
    pub missed: u64,
}
