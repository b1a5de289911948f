//! What a probe of one kind has in common with the others.

use super::{Facts, Finding, Moment};
use crate::{event::EventRef, time::Timestamp};

/// Known state of one kind, which every look compares with the current state.
pub(super) trait Probe {
    /// The settings of its module.
    type Settings;
    /// Returns what to publish, and records that it was published.
    fn look(&mut self, moment: &Moment<'_>, settings: &Self::Settings, facts: &dyn Facts) -> Vec<Finding>;
    /// Learns from an event about the session's calls and turns.
    fn observe(&mut self, _event: &EventRef<'_>, _now: Timestamp) {}
    /// Drops state that it cannot track while it is off.
    fn forget(&mut self) {}
}
