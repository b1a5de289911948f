//! The common interface of all kinds of probes.

use super::{Facts, Finding, Moment};
use journal::time::Timestamp;

use crate::event::EventRef;

/// Known state of one kind, which every look compares with the current state.
pub(super) trait Probe {
    /// The settings of its module.
    type Settings;
    /// Returns the findings to publish, and records them as published.
    fn look(&mut self, moment: &Moment<'_>, settings: &Self::Settings, facts: &dyn Facts) -> Vec<Finding>;
    /// Applies an event about the session's calls and turns.
    fn observe(&mut self, _event: &EventRef<'_>, _now: Timestamp) {}
    /// Drops state that it cannot track while it is disabled.
    fn forget(&mut self) {}
}
