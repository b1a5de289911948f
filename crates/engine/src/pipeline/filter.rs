//! Filters events of a matching type by their envelope: by source and severity; and classifies an
//! event by the trust of its source and by its severity.

use std::sync::Arc;

use crate::{event::Event, ledger::FilteredBy, pipeline::rule::Subscriber};

/// Checks `sources`.
pub(crate) fn check_source(rule: &Subscriber, event: &Event) -> Result<(), FilteredBy> {
    let is_listed = || rule.sources.iter().any(|source| **source == *event.source);
    if rule.sources.is_empty() || is_listed() { Ok(()) } else { Err(FilteredBy::Source) }
}

/// Checks `sources` and `severity_filter`, in that order.
pub(crate) fn check(rule: &Subscriber, event: &Event) -> Result<(), FilteredBy> {
    check_source(rule, event)?;
    if event.severity < rule.severity_min {
        return Err(FilteredBy::Severity);
    }
    Ok(())
}

/// Checks the whole filter: `sources`, `severity_filter` and `where`.
pub fn whole(rule: &Subscriber, event: &Arc<Event>) -> Result<(), FilteredBy> {
    check(rule, event)?;
    match rule.condition.as_ref().map(|condition| condition.test(event)) {
        None | Some(Ok(true)) => Ok(()),
        Some(Ok(false)) => Err(FilteredBy::Where),
        Some(Err(_)) => Err(FilteredBy::WhereFailed),
    }
}

/// The class of an event; it decides whether the event makes a critical notification of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// An event of an untrusted source: its priority is high at most.
    Untrusted,
    /// The subscriber's priority applies.
    Usual,
    /// An event of a trusted source, at least as severe as `escalate_at`: it bypasses batching and
    /// rate limits, but not filters and dedupe.
    Escalated,
}

impl Weight {
    pub(crate) fn of(rule: &Subscriber, event: &Event) -> Self {
        if !rule.wake.trust_in(event).is_trusted() {
            return Self::Untrusted;
        }
        let escalates = rule.output.escalate_at.is_some_and(|least| event.severity >= least);
        if escalates { Self::Escalated } else { Self::Usual }
    }
}
