//! The limits of a user's plan: one finding per threshold of each limit, until it is reset.
//!
//! The client states in its status line which part of each limit is used, and when the limit is
//! reset.

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Facts, Finding, Moment, kind::Probe};
use crate::{event::Severity, settings::settings, sorted::SortedMap, transcript::RateLimit};

/// Percentage points that a limit must be below the first threshold before its thresholds are reset.
const ROOM: u8 = 5;

settings! {
    /// Notifies an agent when a limit of the user's plan is nearly reached (`api.rate_limit.warning`).
    /// The client states the limits in its status line. While they are unknown, nothing is reported.
    enabled: bool = true, flag();
    /// The shares of a limit at which the agent is notified, in percent and in ascending order.
    warn: Vec<u8> = vec![80, 95], rising(1..=100, 4, "they are in percent: [80, 95]");
}

/// The thresholds of each limit that were reported to a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    /// By the name of the limit; only those with a reached threshold.
    reached: SortedMap<String, Reached>,
    /// Number of findings so far.
    said: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Reached {
    /// Number of reached thresholds.
    level: usize,
    resets_at: Option<Timestamp>,
}

impl Probe for Known {
    type Settings = Settings;

    fn look(&mut self, moment: &Moment<'_>, settings: &Settings, _: &dyn Facts) -> Vec<Finding> {
        let is_over = |resets_at: Option<Timestamp>| resets_at.is_some_and(|at| at <= moment.now);
        let stated = || moment.rate_limits.iter().filter(|limit| !is_over(limit.resets_at));
        let has_room = |limit: &RateLimit| {
            settings.warn.first().is_some_and(|first| limit.used_percent.saturating_add(ROOM) < *first)
        };
        let is_reset = |name: &str, reached: &Reached| {
            is_over(reached.resets_at) || stated().any(|limit| limit.name == name && has_room(limit))
        };
        let reset = self.reached.iter().filter(|(name, reached)| is_reset(name, reached));
        let reset: Vec<String> = reset.map(|(name, _)| name.clone()).collect();
        let mut findings = Vec::new();
        for name in reset {
            self.reached.remove(&name);
            findings.push(self.say("api.rate_limit.reset", Severity::Info, json!({ "limit": name })));
        }
        for limit in stated() {
            let level = settings.warn.iter().filter(|threshold| limit.used_percent >= **threshold).count();
            if level > self.reached.get(limit.name).map_or(0, |reached| reached.level) {
                let reached = Reached { level, resets_at: limit.resets_at };
                self.reached.insert(limit.name.to_owned(), reached);
                findings.push(self.say("api.rate_limit.warning", Severity::Warning, payload(limit)));
            }
        }
        findings
    }
}

impl Known {
    fn say(&mut self, event_type: &'static str, severity: Severity, payload: Value) -> Finding {
        self.said = self.said.saturating_add(1);
        Finding { event_type, severity, name: self.said.to_string(), payload }
    }
}

fn payload(limit: &RateLimit) -> Value {
    let resets_at = limit.resets_at.map(|at| ("resets_at", at.to_string().into()));
    let own = [("limit", limit.name.into()), ("percentage", limit.used_percent.into())];
    Value::Object(own.into_iter().chain(resets_at).map(|(key, value)| (key.to_owned(), value)).collect())
}

#[cfg(test)]
mod tests {
    use journal::time::Timestamp;

    use super::super::world::World;
    use crate::transcript::RateLimit;

    /// Limits of 5 hours and of 7 days, the first reset at `resets_at_ms`.
    fn limits(hours: u8, resets_at_ms: u64, days: u8) -> Vec<RateLimit> {
        let resets_at = Some(Timestamp::from_millis(resets_at_ms));
        vec![
            RateLimit { name: "5 hours", used_percent: hours, resets_at },
            RateLimit { name: "7 days", used_percent: days, resets_at: None },
        ]
    }

    #[test]
    fn each_threshold_of_a_limit_is_reported_once() {
        let mut world = World::new();
        let said: Vec<_> = [(79, 10), (80, 10), (94, 79), (96, 81), (97, 76), (97, 74), (97, 80)]
            .into_iter()
            .map(|(hours, days)| {
                world.rate_limits = limits(hours, 9_000_000, days);
                world.prompt("s")
            })
            .collect();
        let hours =
            |percent| format!("warning limit=5 hours percentage={percent} resets_at=1970-01-01T02:30:00Z");
        let expected = [
            vec![],
            vec![hours(80)],
            vec![],
            vec![hours(96), "warning limit=7 days percentage=81".to_owned()],
            vec![],
            vec!["reset limit=7 days".to_owned()],
            vec!["warning limit=7 days percentage=80".to_owned()],
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn a_limit_is_reset_at_its_time() {
        let mut world = World::new();
        world.rate_limits = limits(90, 2_000_000, 0);
        assert_eq!(world.prompt("s").len(), 1);
        world.now_ms = 2_000_000;
        // The status line was not drawn since.
        assert_eq!(world.prompt("s"), ["reset limit=5 hours"]);
        assert_eq!(world.prompt("s"), [""; 0]);
        world.rate_limits = limits(85, 20_000_000, 0);
        assert_eq!(world.prompt("s").len(), 1);
        world.settings.rate_limits.enabled = false;
        world.rate_limits = limits(99, 20_000_000, 0);
        assert_eq!(world.prompt("s"), [""; 0]);
    }
}
