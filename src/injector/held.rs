//! Tool calls that a model makes together: when one gives way to something critical, all of them do.
//!
//! The text leaves with the first call; the others are cancelled with its reason alone, since what they were decided on was decided
//! before anyone had read it. The batch is over with the next exchange that comes after tools have run, or with the turn.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    exchange::{Exchange, InjectionId},
    notification::InjectionPoint,
    time::Timestamp,
};

/// For how long calls are taken for those of one batch where nothing says that it is over. They come within a second, as none of them
/// runs; a model that has read the reason takes longer for its next one.
pub(super) const BATCH_TIME_MAX: Duration = Duration::from_secs(10);

/// A batch of which a call was cancelled.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) reason: Arc<str>,
    /// What left in place of the first call.
    pub(super) injection: InjectionId,
    turn: Option<Arc<str>>,
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
        Self { reason: reason.clone(), injection: injection.clone(), turn: exchange.turn.clone(), since: now }
    }

    /// Whether `exchange` shows that the batch is over.
    pub(super) fn is_over(&self, exchange: &Exchange, now: Timestamp) -> bool {
        let is_other_turn = matches!((&self.turn, &exchange.turn), (Some(own), Some(other)) if own != other);
        let is_later = match exchange.point {
            InjectionPoint::BeforeTool | InjectionPoint::Immediate => now.since(self.since) >= BATCH_TIME_MAX,
            InjectionPoint::AfterTool | InjectionPoint::TurnStart | InjectionPoint::TurnEnd => true,
        };
        is_other_turn || is_later
    }
}
