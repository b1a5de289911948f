//! Classifies an event by the trust of its source and by its severity.

use crate::{event::Event, pipeline::rule::Subscriber};

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
