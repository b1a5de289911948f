//! Whether an event makes a critical notification of its own.

use crate::{event::Event, pipeline::rule::Subscriber};

/// Whether an event makes a critical notification of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Its source is not trusted: it is high at most.
    Untrusted,
    /// It travels as its subscriber says.
    Usual,
    /// It is at least as severe as `escalate_at`, and of a trusted source: past any batch and rate,
    /// but not past filters and dedupe.
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
