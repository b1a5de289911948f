//! Background commands that wait for input: nobody types it, so they never end.
//!
//! A command waits if its output has not grown for `after`, and ends in a line without a line break
//! that asks for something. It is reported once, until its output grows. The output of a command
//! whose end the client reports is not looked at any more.

use std::{path::Path, sync::LazyLock, time::Duration};

use journal::time::Timestamp;
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Entry, Facts, Finding, Moment,
    background::{ID_BYTES_MAX, reported_ends, running_commands, shown_command},
    facts::shown_text,
    kind::Probe,
};
use crate::{
    call::Call,
    event::{EventRef, Severity, strip_text},
    settings::settings,
    sorted::SortedMap,
};

/// Default time without output: longer than most commands compute between two lines.
const AFTER: Duration = Duration::from_secs(30);
/// Most known commands of a session; beyond it the longest-running one is evicted.
const TASKS_MAX: usize = 8;
/// Longest accepted path, in bytes.
const PATH_BYTES_MAX: usize = 1_024;
/// Bytes read at the end of an output: a question is short.
const END_BYTES_MAX: u64 = 1_024;
/// Number of displayed characters of a question.
const PROMPT_CHARS_MAX: usize = 120;

settings! {
    /// Notifies an agent when a command that it left running in the background waits for input
    /// (`tool.handle.waiting`): its output ends in a question and does not grow.
    enabled: bool = true, flag();
    /// How long the output does not grow.
    after: Duration = AFTER, duration(Duration::from_secs(5)..=Duration::from_secs(3_600));
}

/// The background commands of a session with an output, by the harness's ids.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Known(SortedMap<String, Task>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Task {
    /// The first characters of the command.
    command: String,
    since: Timestamp,
    /// The path of its output file.
    output: String,
    /// The size of the output at the last look, and when it was seen first.
    size: u64,
    quiet_since: Timestamp,
    /// Whether its end was read at this size.
    was_read: bool,
}

impl Known {
    pub(super) fn outputs(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(|task| task.output.as_str())
    }

    /// Applies the ended calls: the commands that they started and ended.
    fn follow(&mut self, calls: &[Call], now: Timestamp) {
        for call in calls {
            if let (Some(id), Some(output)) = (&call.started, &call.output)
                && id.len() <= ID_BYTES_MAX
                && output.len() <= PATH_BYTES_MAX
            {
                if self.0.len() >= TASKS_MAX {
                    self.0.pop_least(|task| task.since);
                }
                let (command, output) = (shown_command(call), output.clone());
                let task = Task { command, since: now, output, size: 0, quiet_since: now, was_read: false };
                self.0.insert(id.clone(), task);
            }
            for id in &call.ended {
                self.0.remove(id);
            }
        }
    }
}

impl Task {
    /// The question at which it waits, once.
    fn question(&mut self, after: Duration, now: Timestamp, facts: &dyn Facts) -> Option<String> {
        let path = Path::new(&self.output);
        let Entry::File(print) = facts.entry(path) else { return None };
        if print.size != self.size {
            (self.size, self.quiet_since, self.was_read) = (print.size, now, false);
            return None;
        }
        if self.was_read || now.since(self.quiet_since) < after {
            return None;
        }
        self.was_read = true;
        let end = facts.read(path, print.size.saturating_sub(END_BYTES_MAX), END_BYTES_MAX)?;
        question_in(&String::from_utf8_lossy(&end))
    }
}

impl Probe for Known {
    type Settings = Settings;

    fn look(&mut self, moment: &Moment<'_>, settings: &Settings, facts: &dyn Facts) -> Vec<Finding> {
        self.follow(moment.calls, moment.now);
        let mut findings = Vec::new();
        for (id, task) in self.0.iter_mut() {
            let Some(prompt) = task.question(settings.after, moment.now, facts) else { continue };
            let payload = json!({ "handle": id, "command": task.command, "prompt": prompt });
            let found =
                Finding::dated("tool.handle.waiting", Severity::Warning, id, task.quiet_since, payload);
            findings.push((id.clone(), found));
        }
        if findings.is_empty() {
            return Vec::new();
        }
        let ended = reported_ends(moment, facts);
        self.0.retain(|id, _| !ended.contains(id));
        findings.into_iter().filter(|(id, _)| !ended.contains(id)).map(|(_, found)| found).collect()
    }

    /// Applies the end of a turn, which lists the running commands.
    fn observe(&mut self, event: &EventRef<'_>, _now: Timestamp) {
        if self.0.is_empty() {
            return;
        }
        if let Some(running) = running_commands(event) {
            self.0.retain(|id, _| running.contains(id));
        }
    }

    fn forget(&mut self) {
        self.0.clear();
    }
}

/// Lines that ask for something.
static QUESTION: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"(?ix)
        [\[(]\s*y(?:es)?\s*/\s*n(?:o)?\b [^\])]* [\])]                    # a choice of yes and no
        | \b(?:password|passphrase|passcode|username|login|pin|otp)\b [^:?]* [:?]\s*$
        | \benter\b .* :\s*$
        | \bpress\b .* \b(?:key|enter|return)\b
        | \b(?:continue|proceed|overwrite|replace|remove|delete|install|sure|want|like|ok)\b .* \?\s*$
        | ^\?\s+\S                                                        # a list to choose from
    ";
    Regex::new(pattern).expect("it is tested")
});

/// The question in the last line of an output, if that line has no end.
fn question_in(end: &str) -> Option<String> {
    let end = strip_text(end);
    let last = end.rsplit(['\n', '\r']).next().unwrap_or_default().trim();
    QUESTION.is_match(last).then(|| shown_text(last, PROMPT_CHARS_MAX))
}

#[cfg(test)]
mod tests {
    use super::{
        super::world::{World, ran},
        *,
    };

    const NONE: [&str; 0] = [];
    const WAITING: &str = "waiting handle=b1 command=npm init prompt=Overwrite? [y/N]";

    fn world() -> World {
        let mut world = World::with_transcript();
        world.write("/transcript", "");
        world.write("/out/b1", "");
        let call = Call {
            started: Some("b1".to_owned()),
            output: Some("/out/b1".to_owned()),
            in_background: true,
            ..ran("npm init")
        };
        assert_eq!(world.end_calls("s", vec![call]), NONE);
        world
    }

    fn go_on(world: &mut World) -> Vec<String> {
        world.end_calls("s", vec![ran("ls")])
    }

    #[test]
    fn a_question_is_reported_once_after_quiet() {
        let mut world = world();
        world.write("/out/b1", "created\nOverwrite? [y/N] ");
        assert_eq!(go_on(&mut world), NONE);
        world.wait(AFTER / 2);
        assert_eq!(go_on(&mut world), NONE, "it may be computing");
        world.wait(AFTER / 2);
        assert_eq!(go_on(&mut world), [WAITING]);
        world.wait(AFTER);
        assert_eq!(go_on(&mut world), NONE, "once");
        world.write("/out/b1", "created\nOverwrite? [y/N] n\nOverwrite? [y/N] ");
        assert_eq!(go_on(&mut world), NONE);
        world.wait(AFTER);
        assert_eq!(go_on(&mut world), [WAITING], "another question");
    }

    #[test]
    fn other_ends_of_outputs_are_not_reported() {
        type Happens = fn(&mut World);
        let rows: [(&str, Happens); 5] = [
            ("a whole line", |world| world.write("/out/b1", "Overwrite? [y/N]\n")),
            ("no question", |world| world.write("/out/b1", "compiling 3 of 9")),
            ("no output", |world| world.remove("/out/b1")),
            ("its end is reported", |world| {
                world.write("/out/b1", "Overwrite? [y/N] ");
                world.write("/transcript", "b1\n");
            }),
            ("it does not run any more", |world| {
                world.write("/out/b1", "Overwrite? [y/N] ");
                world.tell("s", "agent.turn.end", "{\"running\":[]}");
            }),
        ];
        for (what, happens) in rows {
            let mut world = world();
            happens(&mut world);
            go_on(&mut world);
            world.wait(AFTER);
            assert_eq!(go_on(&mut world), NONE, "{what}");
        }
    }

    #[test]
    fn questions_are_distinguished_from_other_lines() {
        for (line, is_question) in [
            ("Proceed (y/n)? ", true),
            ("Continue? [Yes/no] ", true),
            ("[sudo] password for ada: ", true),
            ("Enter passphrase for key '/k': ", true),
            ("Enter a name: ", true),
            ("Press any key to continue", true),
            ("Are you sure you want to delete it? ", true),
            ("? Select a framework: ", true),
            ("\u{1b}[32m?\u{1b}[0m Project name", true),
            ("what happened?", false),
            ("listening on http://localhost:3000", false),
            ("password reset was sent", false),
            ("[12/40] compiling y/n", false),
            ("", false),
        ] {
            assert_eq!(question_in(line).is_some(), is_question, "{line}");
        }
        assert_eq!(question_in("a\rProceed (y/n) "), Some("Proceed (y/n)".to_owned()));
    }

    #[test]
    fn nothing_is_known_where_it_is_switched_off() {
        let mut world = world();
        world.settings.waiting.enabled = false;
        world.write("/out/b1", "Overwrite? [y/N] ");
        go_on(&mut world);
        world.settings.waiting.enabled = true;
        world.wait(AFTER);
        assert_eq!([go_on(&mut world), go_on(&mut world)].concat(), NONE);
    }
}
