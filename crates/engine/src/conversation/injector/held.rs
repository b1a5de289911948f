//! Tool calls that a model makes together: when a critical notification cancels one, all are
//! cancelled.
//!
//! The first call carries the text. The others are cancelled with its reason alone, since the model
//! decided on them before it read the text. The batch is over with the next exchange after tools
//! have run, with another step, or with the turn.

use std::{sync::Arc, time::Duration};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    exchange::{Exchange, InjectionId},
    notification::InjectionPoint,
};

/// How long calls count as one batch if nothing else ends it. They arrive within a second, because
/// none of them runs; a model that has read the reason takes longer for its next call.
pub(super) const BATCH_TIME_MAX: Duration = Duration::from_secs(10);

/// A batch of which a call was cancelled.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) reason: Arc<str>,
    /// The injection that replaced the first call.
    pub(super) injection: InjectionId,
    turn: Option<Arc<str>>,
    step: Option<Arc<str>>,
    since: Timestamp,
}

impl Held {
    /// The batch whose first call is that of `exchange`.
    pub(super) fn new(
        exchange: &Exchange,
        reason: &Arc<str>,
        injection: &InjectionId,
        now: Timestamp,
    ) -> Self {
        let (turn, step) = (exchange.turn.clone(), exchange.step.clone());
        Self { reason: reason.clone(), injection: *injection, turn, step, since: now }
    }

    /// Whether `exchange` proves that the batch is over.
    pub(super) fn is_over(&self, exchange: &Exchange, now: Timestamp) -> bool {
        let is_other = |own: &Option<Arc<str>>, other: &Option<Arc<str>>| matches!((own, other), (Some(own), Some(other)) if own != other);
        let is_later = match exchange.point {
            InjectionPoint::BeforeTool | InjectionPoint::Immediate => now.since(self.since) >= BATCH_TIME_MAX,
            InjectionPoint::AfterTool | InjectionPoint::TurnStart | InjectionPoint::TurnEnd => true,
        };
        is_later || is_other(&self.turn, &exchange.turn) || is_other(&self.step, &exchange.step)
    }
}
