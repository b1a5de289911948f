//! Which of the events that match by type a subscriber wants, as far as their envelope tells: by source and severity.

use crate::{event::Event, ledger::FilteredBy, pipeline::rule::Subscriber};

/// Checks `sources` and `severity_filter`, in that order.
pub(crate) fn check(rule: &Subscriber, event: &Event) -> Result<(), FilteredBy> {
    if !rule.sources.is_empty() && !rule.sources.iter().any(|source| **source == *event.source) {
        return Err(FilteredBy::Source);
    }
    if event.severity < rule.severity_min {
        return Err(FilteredBy::Severity);
    }
    Ok(())
}
