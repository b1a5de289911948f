//! Which pending notifications an injection point releases, the role of the carrying message, and the
//! request of a critical notification to the harness.
//!
//! The table of "What a point releases" in `docs/api.md` as one function. A critical notification
//! is released at every point, unless it waits for the next turn.
//!
//! The request is to continue the turn, or to cancel a tool call. When a critical notification
//! cancels one of the calls that a model makes together, all are cancelled. The first call carries
//! the text. The others are cancelled with its reason alone, since the model decided on them before
//! it read the text. The batch is over with the next exchange after tools have run, with another
//! step, or with the turn.

use std::{sync::Arc, time::Duration};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::entry::{Candidate, Lane, Readiness};
use crate::{
    exchange::{CarrierEffect, Directive, Exchange, InjectionId, Role},
    notification::{InjectionPoint, Priority},
};

/// Whether `point` releases a notification for `inject_at`.
pub fn releases(point: InjectionPoint, inject_at: InjectionPoint, priority: Priority) -> bool {
    use InjectionPoint::{AfterTool, BeforeTool, Immediate, TurnEnd, TurnStart};
    if priority == Priority::Critical {
        return true;
    }
    match point {
        TurnStart => true,
        Immediate => inject_at == Immediate,
        BeforeTool => matches!(inject_at, Immediate | BeforeTool),
        AfterTool => matches!(inject_at, Immediate | BeforeTool | AfterTool) || priority == Priority::High,
        TurnEnd => inject_at != TurnStart || priority == Priority::Low,
    }
}

/// Which notifications for the agent an exchange releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Selection {
    /// The notifications that its point releases.
    Due,
    /// All notifications: the harness was woken for it, or a critical one is due.
    All,
}

/// Whether `point` releases the notifications in `lane`.
pub(super) fn lets_out(point: InjectionPoint, lane: Lane, selection: Selection) -> bool {
    match lane.readiness {
        Readiness::Cancels | Readiness::Free | Readiness::Asked => {
            selection == Selection::All || releases(point, lane.inject_at, lane.urgency.0)
        }
        Readiness::NextTurn => point == InjectionPoint::TurnStart,
        Readiness::User | Readiness::Held => false,
    }
}

/// The role of the message that carries an injection at `point`.
pub(super) fn role(point: InjectionPoint) -> Role {
    match point {
        InjectionPoint::AfterTool => Role::Tool,
        InjectionPoint::TurnStart => Role::User,
        InjectionPoint::Immediate | InjectionPoint::BeforeTool | InjectionPoint::TurnEnd => Role::System,
    }
}

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

/// How long calls count as one batch if nothing else ends it. They arrive within a second, because
/// none of them runs; a model that has read the reason takes longer for its next call.
const BATCH_TIME_MAX: Duration = Duration::from_secs(10);

/// A batch of which a call was cancelled.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CancelledBatch {
    pub(super) reason: Arc<str>,
    /// The injection that replaced the first call.
    pub(super) injection: InjectionId,
    turn: Option<Arc<str>>,
    step: Option<Arc<str>>,
    since: Timestamp,
}

impl CancelledBatch {
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

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;

    /// The notifications that `point` releases, as `priority:inject_at` in the order of the two
    /// enums.
    fn released_at(point: InjectionPoint) -> Vec<String> {
        let every =
            Priority::VARIANTS.iter().flat_map(|p| InjectionPoint::VARIANTS.iter().map(|at| (*p, *at)));
        every
            .filter(|(priority, inject_at)| releases(point, *inject_at, *priority))
            .map(|(priority, inject_at)| format!("{priority}:{inject_at}"))
            .collect()
    }

    #[test]
    fn a_turn_start_releases_everything() {
        assert_eq!(released_at(InjectionPoint::TurnStart).len(), 20);
    }

    #[test]
    fn the_other_points_release_what_the_table_says() {
        const CRITICAL: [&str; 5] = [
            "critical:immediate",
            "critical:turn_start",
            "critical:before_tool",
            "critical:after_tool",
            "critical:turn_end",
        ];
        let table: [(InjectionPoint, &[&str]); 4] = [
            (InjectionPoint::Immediate, &["low:immediate", "normal:immediate", "high:immediate"]),
            (
                InjectionPoint::BeforeTool,
                &[
                    "low:immediate",
                    "low:before_tool",
                    "normal:immediate",
                    "normal:before_tool",
                    "high:immediate",
                    "high:before_tool",
                ],
            ),
            (
                InjectionPoint::AfterTool,
                &[
                    "low:immediate",
                    "low:before_tool",
                    "low:after_tool",
                    "normal:immediate",
                    "normal:before_tool",
                    "normal:after_tool",
                    "high:immediate",
                    "high:turn_start",
                    "high:before_tool",
                    "high:after_tool",
                    "high:turn_end",
                ],
            ),
            (
                InjectionPoint::TurnEnd,
                &[
                    "low:immediate",
                    "low:turn_start",
                    "low:before_tool",
                    "low:after_tool",
                    "low:turn_end",
                    "normal:immediate",
                    "normal:before_tool",
                    "normal:after_tool",
                    "normal:turn_end",
                    "high:immediate",
                    "high:before_tool",
                    "high:after_tool",
                    "high:turn_end",
                ],
            ),
        ];
        for (point, below_critical) in table {
            let expected: Vec<&str> = below_critical.iter().copied().chain(CRITICAL).collect();
            assert_eq!(released_at(point), expected, "{point}");
        }
    }

    #[test]
    fn the_role_follows_the_point() {
        let roles: Vec<_> = InjectionPoint::VARIANTS.iter().map(|point| role(*point).as_str()).collect();
        assert_eq!(roles, ["system", "user", "system", "tool", "system"]);
    }
}
