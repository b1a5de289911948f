//! How important a notification is.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

impl_as_str!(Priority);

/// The priority of a notification, in ascending order of urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, strum::Display, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Priority {
    /// At its own injection point, and at the start and the end of any turn.
    Low,
    /// As low, but one for `turn_start` is not released at the end of a turn.
    Normal,
    /// As normal, and after any tool.
    High,
    /// At any point, and beyond the budget, but within a carrier's capacity.
    Critical,
}
