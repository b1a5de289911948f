//! The context gauge of a session: one finding per threshold, until the context shrinks again.
//!
//! The size of the last model input is read from the transcript. The limit must be known: from the
//! client's status line, or from an earlier automatic compaction, which happens at the model's
//! limit. Such compactions were seen at sizes from 76,000 to 1,000,000 tokens, so there is no
//! finding without one of the two.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Facts, Finding, Moment, facts::end_of, kind::Probe};
use crate::{
    event::Severity,
    settings::settings,
    transcript::{Context, Transcript, Usage},
};

/// Percentage points that the context must be below the first threshold before the thresholds are
/// reset.
const ROOM: u64 = 5;
/// Bytes read at the end of a transcript. The first size covers the last message and the lines
/// after it. If it has no message, the second size covers the longest known lines in between.
///
/// Source: client 2.1.332 writes a copy of its prompt after a message, in a line of 64 KB.
const TRANSCRIPT_BYTES: [u64; 2] = [64 * 1024, 512 * 1024];
/// Longest accepted model name, in bytes.
const MODEL_BYTES_MAX: usize = 100;
/// Name of this budget in events.
pub const BUDGET: &str = "context";

settings! {
    /// Notifies an agent when its context is nearly full (`budget.token.warning`). The client states
    /// the limit in its status line, or shows it by an automatic compaction. While it is unknown,
    /// nothing is reported.
    enabled: bool = true, flag();
    /// The shares of the limit at which the agent is notified, in percent and in ascending order.
    warn: Vec<u8> = vec![80, 92], rising(1..=100, 4, "they are in percent: [80, 92]");
}

/// The thresholds reported to a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    /// Number of reached thresholds.
    level: usize,
    /// Number of findings so far.
    said: u64,
    /// The limit of a model, from the session's last compaction.
    pub(super) observed_limit: Option<Limit>,
}

/// The context limit of a model, in tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    pub(super) model: String,
    pub(super) tokens: u64,
}

impl Probe for Known {
    type Settings = Settings;

    fn look(&mut self, moment: &Moment<'_>, settings: &Settings, facts: &dyn Facts) -> Vec<Finding> {
        let found = moment.transcript.map(|transcript| read(transcript, facts)).unwrap_or_default();
        if let Some(Usage { model, tokens }) =
            found.compacted.filter(|full| full.model.len() <= MODEL_BYTES_MAX)
        {
            self.observed_limit = Some(Limit { model, tokens });
        }
        if moment.has_new_context {
            return self.reset().into_iter().collect();
        }
        let own = self.observed_limit.as_ref().zip(found.used.as_ref());
        let own = own.filter(|(limit, used)| limit.model == used.model).map(|(limit, _)| limit.tokens);
        let of_others = || found.used.as_ref().and_then(|used| moment.limits.get(&used.model).copied());
        let limit = moment.gauge.and_then(|gauge| gauge.size).or(own).or_else(of_others);
        let share = match (found.used, limit.filter(|limit| *limit > 0)) {
            (Some(used), Some(limit)) => {
                Share { percent: used.tokens * 100 / limit, of: Some((used.tokens, limit)) }
            }
            _ => match moment.gauge {
                Some(gauge) => Share { percent: gauge.used_percent.into(), of: None },
                None => return Vec::new(),
            },
        };
        let level = settings.warn.iter().filter(|threshold| share.percent >= u64::from(**threshold)).count();
        let has_room = || settings.warn.first().is_some_and(|first| share.percent + ROOM < u64::from(*first));
        if level > self.level {
            self.level = level;
            return vec![self.say("budget.token.warning", Severity::Warning, share.into_payload())];
        }
        if level < self.level && has_room() { self.reset().into_iter().collect() } else { Vec::new() }
    }
}

/// Reads the context from the end of a transcript.
fn read(transcript: Transcript<'_>, facts: &dyn Facts) -> Context {
    let mut found = Context::default();
    for bytes in TRANSCRIPT_BYTES {
        let Some(end) = end_of(transcript, bytes, facts) else { break };
        found = (transcript.reader.context)(&end);
        let is_all = (end.len() as u64) < bytes;
        if is_all || found.used.is_some() || found.compacted.is_some() {
            break;
        }
    }
    found
}

/// The used share of a context.
struct Share {
    percent: u64,
    /// Its tokens and its limit.
    of: Option<(u64, u64)>,
}

impl Share {
    fn into_payload(self) -> Value {
        let Self { percent, of } = self;
        let Some((used, limit)) = of else { return json!({ "budget_type": BUDGET, "percentage": percent }) };
        let remaining = limit.saturating_sub(used);
        json!({ "budget_type": BUDGET, "percentage": percent, "current": used, "limit": limit, "remaining": remaining })
    }
}

impl Known {
    fn say(&mut self, event_type: &'static str, severity: Severity, payload: Value) -> Finding {
        self.said = self.said.saturating_add(1);
        Finding { event_type, severity, name: self.said.to_string(), payload }
    }

    /// Resets the thresholds; returns a finding if one was reached.
    fn reset(&mut self) -> Option<Finding> {
        if std::mem::take(&mut self.level) == 0 {
            return None;
        }
        Some(self.say("budget.token.reset", Severity::Info, json!({ "budget_type": BUDGET })))
    }
}

#[cfg(test)]
mod tests {
    use super::super::world::World;
    use crate::{notification::InjectionPoint, transcript::Gauge};

    fn look(world: &mut World, session: &str, transcript: &str) -> Vec<String> {
        world.write("/transcript", transcript);
        world.exchange(session, InjectionPoint::AfterTool, &[])
    }

    #[test]
    fn each_threshold_is_reported_once_until_context_shrinks() {
        let mut world = World::with_transcript();
        world.gauge = Some(Gauge { used_percent: 0, size: Some(200_000) });
        let said: Vec<_> =
            ["159999", "160000", "170000", "185000", "160000", "151000", "149000", "150000", "161000"]
                .into_iter()
                .map(|used| look(&mut world, "s", used))
                .collect();
        let warning = |percent: u64, used: u64| {
            let remaining = 200_000 - used;
            vec![format!(
                "warning budget_type=context percentage={percent} current={used} limit=200000 remaining={remaining}"
            )]
        };
        let reset = || vec!["reset budget_type=context".to_owned()];
        let none = Vec::new;
        let expected = [
            none(),
            warning(80, 160_000),
            none(),
            warning(92, 185_000),
            none(),
            none(),
            reset(),
            none(),
            warning(80, 161_000),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn an_unknown_limit_prevents_threshold_reports() {
        let mut world = World::with_transcript();
        assert_eq!(look(&mut world, "s", "190000"), [""; 0]);
        assert_eq!(look(&mut world, "s", "x 160000"), [""; 0], "it is compacted");
        assert_eq!(look(&mut world, "s", "100000 160000"), [""; 0]);
        assert_eq!(look(&mut world, "s", "130000").len(), 1);
        assert_eq!(
            look(&mut world, "other", "150000"),
            ["warning budget_type=context percentage=93 current=150000 limit=160000 remaining=10000"]
        );
    }

    #[test]
    fn a_new_context_resets_a_reported_threshold() {
        let mut world = World::new();
        world.gauge = Some(Gauge { used_percent: 85, size: None });
        assert_eq!(world.prompt("s"), ["warning budget_type=context percentage=85"]);
        world.has_new_context = true;
        assert_eq!(world.prompt("s"), ["reset budget_type=context"]);
        assert_eq!(world.prompt("s"), [""; 0]);
        world.settings.context.enabled = false;
        world.has_new_context = false;
        assert_eq!(world.prompt("s"), [""; 0]);
    }
}
