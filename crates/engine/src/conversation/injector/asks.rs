//! The request of a critical notification to a harness: to continue the turn, or to cancel a tool
//! call.

use std::sync::Arc;

use crate::{
    exchange::{CarrierEffect, Directive, Exchange},
    notification::{InjectionPoint, Priority},
};

use super::candidate::Candidate;

/// The request, before its reason is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// To let the agent continue at the end of its turn.
    ToContinue,
    /// To deliver the text in place of a tool call.
    ToCancel,
}

impl Asks {
    /// Whether `candidate` is a reason for the request.
    pub(super) fn is_asked_by(self, candidate: &Candidate) -> bool {
        let is_critical = candidate.notification.priority == Priority::Critical;
        match self {
            Self::ToContinue => is_critical,
            Self::ToCancel => is_critical && !candidate.has_cancelled,
        }
    }

    /// The directive to the harness.
    pub(super) fn for_reason(self, reason: Arc<str>) -> Directive {
        match self {
            Self::ToContinue => Directive::Continue { reason },
            Self::ToCancel => Directive::Cancel { reason },
        }
    }
}

/// Whether the carrier cannot take text because nothing requests its effect.
pub(super) fn is_withheld(exchange: &Exchange, asks: Option<Asks>) -> bool {
    let is_bound = match exchange.carrier_effect {
        CarrierEffect::None => false,
        CarrierEffect::Continue => exchange.point == InjectionPoint::TurnEnd,
        CarrierEffect::Cancel => exchange.point == InjectionPoint::BeforeTool,
    };
    is_bound && asks.is_none()
}
