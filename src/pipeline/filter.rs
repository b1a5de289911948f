//! Which of the events that match by type a subscriber wants, as far as their envelope tells: by source and severity.

use std::sync::Arc;

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

/// Checks the whole filter: `sources`, `severity_filter` and `where`.
pub(crate) fn whole(rule: &Subscriber, event: &Arc<Event>) -> Result<(), FilteredBy> {
    check(rule, event)?;
    match rule.condition.as_ref().map(|condition| condition.test(event)) {
        None | Some(Ok(true)) => Ok(()),
        Some(Ok(false)) => Err(FilteredBy::Where),
        Some(Err(_)) => Err(FilteredBy::WhereFailed),
    }
}
