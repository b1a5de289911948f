//! Background commands whose end was not reported by the agent's client.
//!
//! A client reports the end of such a command itself, and sometimes loses the report. A command is
//! known from the result of the call that started it. It has ended when the client does not list it
//! as running at the end of a turn. If no prompt, result or transcript reports its end within
//! `grace` after that, there is one finding.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Facts, Finding, Moment,
    facts::{TRANSCRIPT_BYTES_MAX, end_of, shown_text},
    kind::Probe,
};
use journal::time::Timestamp;

use crate::{
    call::{Call, RUNNING},
    event::{EventRef, Severity},
    session::TURN_END_EVENT,
    settings::settings,
    sorted::SortedMap,
};

/// Default time limit for the client's report.
const GRACE: Duration = Duration::from_secs(60);
/// Most known commands of a session; beyond it the longest-running one is evicted.
const TASKS_MAX: usize = 32;
/// Kept characters of a command.
const COMMAND_CHARS_MAX: usize = 80;
/// Longest accepted id of a command, in bytes.
pub(super) const ID_BYTES_MAX: usize = 64;

settings! {
    /// Notifies an agent when a command that it left running has ended and its client does not
    /// report this (`tool.handle.stopped`).
    enabled: bool = true, flag();
    /// The time that the client has for its report.
    grace: Duration = GRACE, duration(Duration::from_secs(1)..=Duration::from_secs(3_600));
}

/// The background commands, by the harness's ids.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Known(SortedMap<String, Task>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Task {
    /// The first characters of the command.
    command: String,
    since: Timestamp,
    /// Time at which the client first omitted it from the running ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gone_since: Option<Timestamp>,
}

impl Known {
    fn start(&mut self, id: &str, call: &Call, now: Timestamp) {
        if self.0.len() >= TASKS_MAX {
            self.0.pop_least(|task| task.since);
        }
        self.0.insert(id.to_owned(), Task { command: shown_command(call), since: now, gone_since: None });
    }
}

impl Probe for Known {
    type Settings = Settings;

    fn look(&mut self, moment: &Moment<'_>, settings: &Settings, facts: &dyn Facts) -> Vec<Finding> {
        for call in moment.calls {
            if let Some(id) = call.started.as_deref().filter(|id| id.len() <= ID_BYTES_MAX) {
                self.start(id, call, moment.now);
            }
            for id in &call.ended {
                self.0.remove(id);
            }
        }
        let is_late =
            |task: &Task| task.gone_since.is_some_and(|since| moment.now.since(since) >= settings.grace);
        if !self.0.values().any(is_late) {
            return Vec::new();
        }
        let reported = reported_ends(moment, facts);
        let mut findings = Vec::new();
        self.0.retain(|id, task| {
            if reported.contains(id) {
                return false;
            }
            if !is_late(task) {
                return true;
            }
            let payload = json!({ "handle": id, "command": task.command, "reported": false });
            findings.push(Finding::dated("tool.handle.stopped", Severity::Info, id, task.since, payload));
            false
        });
        findings
    }

    /// Applies the end of a turn, which lists the running commands. An event without the list has
    /// no effect.
    fn observe(&mut self, event: &EventRef<'_>, now: Timestamp) {
        if self.0.is_empty() {
            return;
        }
        let Some(running) = running_commands(event) else { return };
        for (id, task) in self.0.iter_mut() {
            task.gone_since = if running.contains(id) { None } else { task.gone_since.or(Some(now)) };
        }
    }

    fn forget(&mut self) {
        self.0.clear();
    }
}

/// The command of a call for display; empty without one.
pub(super) fn shown_command(call: &Call) -> String {
    shown_text(call.command.as_deref().unwrap_or_default(), COMMAND_CHARS_MAX)
}

/// The ids of the background commands whose ends a transcript reports; none without a transcript.
pub(super) fn reported_ends(moment: &Moment<'_>, facts: &dyn Facts) -> Vec<String> {
    let reported = moment.transcript.and_then(|transcript| {
        let end = end_of(transcript, TRANSCRIPT_BYTES_MAX, facts)?;
        Some((transcript.reader.ended)(&end))
    });
    reported.unwrap_or_default()
}

/// The ids of the commands that still run at the end of a turn; `None` if `event` is no such end, or
/// does not list them.
pub(super) fn running_commands(event: &EventRef<'_>) -> Option<Vec<String>> {
    if event.event_type != TURN_END_EVENT {
        return None;
    }
    let payload: Value = serde_json::from_str(event.payload).ok()?;
    let running = payload.get(RUNNING)?.as_array()?;
    Some(running.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::{
        super::world::{World, ran},
        *,
    };

    fn started(id: &str) -> Call {
        Call { started: Some(id.to_owned()), in_background: true, ..ran("cargo test\n-p cart") }
    }

    /// A session with running `b1` and `b2`.
    fn world() -> World {
        let mut world = World::with_transcript();
        world.write("/transcript", "");
        assert_eq!(world.end_calls("s", vec![started("b1"), started("b2")]), [""; 0]);
        world
    }

    fn end_turn(world: &mut World, running: &str) {
        world.tell("s", "agent.turn.end", &format!("{{\"running\":{running}}}"));
    }

    const LOST: &str = "stopped handle=b1 command=cargo test -p cart reported=false";

    #[test]
    fn lost_command_end_is_reported_once_after_grace() {
        let mut world = world();
        end_turn(&mut world, "[\"b1\",\"b2\"]");
        world.wait(GRACE);
        assert_eq!(world.prompt("s"), [""; 0], "both run");
        end_turn(&mut world, "[\"b2\"]");
        world.wait(GRACE / 2);
        assert_eq!(world.prompt("s"), [""; 0], "the client has some time");
        end_turn(&mut world, "[\"b2\"]");
        world.wait(GRACE / 2);
        assert_eq!(world.prompt("s"), [LOST]);
        end_turn(&mut world, "[\"b2\"]");
        world.wait(GRACE);
        assert_eq!(world.prompt("s"), [""; 0]);
    }

    #[test]
    fn an_end_that_was_reported_is_not_said() {
        type Report = fn(&mut World);
        let reports: [Report; 3] = [
            |world| world.write("/transcript", "b1\n"),
            |world| {
                let result = Call { ended: vec!["b1".to_owned()], ..Call::default() };
                assert_eq!(world.end_calls("s", vec![result]), [""; 0]);
            },
            // The list is no evidence if the client never lists running commands.
            |world| world.memory = World::new().memory,
        ];
        for report in reports {
            let mut world = world();
            end_turn(&mut world, "[\"b2\"]");
            report(&mut world);
            world.wait(GRACE);
            assert_eq!(world.prompt("s"), [""; 0]);
        }
    }

    #[test]
    fn a_turn_without_running_list_ends_no_command() {
        let mut world = world();
        world.tell("s", "agent.turn.end", "{}");
        world.wait(GRACE);
        assert_eq!(world.prompt("s"), [""; 0]);
        let calls = (0..TASKS_MAX + 5).map(|number| started(&format!("c{number}"))).collect();
        assert_eq!(world.end_calls("s", calls), [""; 0]);
        end_turn(&mut world, "[]");
        world.wait(GRACE);
        assert_eq!(world.prompt("s").len(), TASKS_MAX);
    }

    #[test]
    fn nothing_is_known_where_it_is_switched_off() {
        let mut world = World::new();
        world.settings.background.enabled = false;
        world.end_calls("s", vec![started("b1")]);
        end_turn(&mut world, "[]");
        world.wait(GRACE);
        assert_eq!(world.prompt("s"), [""; 0]);
    }
}
