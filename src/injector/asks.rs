//! What a critical notification asks of a harness besides being carried: to let the agent go on, or to give way instead of a tool call.

use std::sync::Arc;

use crate::{
    exchange::{CarrierEffect, Directive, Exchange},
    notification::{InjectionPoint, Priority},
};

use super::Candidate;

/// What is asked, before anyone has written down why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// To let the agent go on at the end of its turn.
    ToContinue,
    /// To put the text in place of a tool call.
    ToCancel,
}

impl Asks {
    /// Whether `candidate` is a reason for it.
    pub(super) fn is_asked_by(self, candidate: &Candidate) -> bool {
        let is_critical = candidate.notification.priority == Priority::Critical;
        match self {
            Self::ToContinue => is_critical,
            Self::ToCancel => is_critical && !candidate.has_cancelled,
        }
    }

    /// The same as it is said to the harness.
    pub(super) fn for_reason(self, reason: Arc<str>) -> Directive {
        match self {
            Self::ToContinue => Directive::Continue { reason },
            Self::ToCancel => Directive::Cancel { reason },
        }
    }
}

/// Whether the carrier cannot take text because nothing asks for what it does besides.
pub(super) fn is_withheld(exchange: &Exchange, asks: Option<Asks>) -> bool {
    let is_bound = match exchange.carrier_effect {
        CarrierEffect::None => false,
        CarrierEffect::Continue => exchange.point == InjectionPoint::TurnEnd,
        CarrierEffect::Cancel => exchange.point == InjectionPoint::BeforeTool,
    };
    is_bound && asks.is_none()
}
