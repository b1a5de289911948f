//! Which pending notifications an injection point releases, and the role of the carrying message.
//!
//! The table of "What a point releases" in `docs/api.md` as one function. A critical notification
//! is released at every point, unless it waits for the next turn.

use crate::{
    exchange::Role,
    notification::{InjectionPoint, Priority},
};

use super::entry::{Hold, Lane};

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
    match lane.hold {
        Hold::Cancels | Hold::Free | Hold::Asked => {
            selection == Selection::All || releases(point, lane.inject_at, lane.urgency.0)
        }
        Hold::NextTurn => point == InjectionPoint::TurnStart,
        Hold::User => false,
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
