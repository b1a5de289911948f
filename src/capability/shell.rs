//! The commands that users run in their own terminals, as reported by the shell hook of `aside
//! shell-init`.
//!
//! Only failed or long commands become events, and only where an agent works. The shell reports
//! more, because it knows neither the settings nor the sessions.

use std::time::Duration;

use journal::time::{Timestamp, short_duration};
use serde::Deserialize;
use serde_json::json;
use strum::IntoStaticStr;

use engine::{
    event::{Event, Scope, SessionId, Severity, cut_text, mask_secrets, strip_text},
    settings::settings,
};

/// The type of the event.
pub const ENDED: &str = "user.command.ended";
/// Most characters of a command; a longer one is cut, with a mark.
const COMMAND_CHARS_MAX: usize = 300;
/// The limits of `min`.
const MIN_LIMITS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(24 * 3_600);
/// The exit codes of a command that the user ended or stopped with a key: 128 plus SIGINT or
/// SIGTSTP.
const ENDED_BY_KEYS: [i32; 2] = [130, 148];

settings! {
    /// Notifies an agent of commands that its user ran in a terminal, in the folder of the agent, if
    /// they failed or took long (`user.command.ended`). The shell of the user has to report them:
    /// `aside shell-init`.
    enabled: bool = true, flag();
    /// The shortest run of a successful command that is reported.
    min: Duration = Duration::from_secs(5), duration(MIN_LIMITS);
}

/// A command that ended.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ran {
    /// The command line as typed.
    pub command: String,
    /// The shell's `$?`.
    pub exit_code: i32,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
    /// The shell's working folder afterwards, as an absolute path.
    pub workspace: String,
}

engine::words::impl_as_str!(Left);

/// The reason why a command does not become an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Left {
    /// `[sources.shell] enabled = false`.
    Off,
    /// It succeeded and was short, the user ended it with a key, or it was empty.
    Short,
    /// No session works in the folder, or under or above it.
    NoSession,
}

impl Ran {
    /// Builds the event; `folders` are those in which sessions work.
    ///
    /// Shape: the command as one line without escapes, control characters and secrets.
    ///
    /// Errors: the reason why the command does not become an event.
    pub fn event<'f>(
        &self,
        id: String,
        settings: &Settings,
        folders: impl IntoIterator<Item = &'f str>,
        now: Timestamp,
    ) -> Result<Event, Left> {
        let command = clean_command(&self.command);
        let is_failure = self.exit_code != 0 && !ENDED_BY_KEYS.contains(&self.exit_code);
        let duration = Duration::from_millis(self.duration_ms);
        if !settings.enabled {
            return Err(Left::Off);
        }
        let is_long = duration >= settings.min && (is_failure || self.exit_code == 0);
        if command.is_empty() || !(is_failure || is_long) {
            return Err(Left::Short);
        }
        let scope = Scope::Workspace(self.workspace.as_str().into());
        // The session id does not matter, because the scope is a folder.
        let nobody = SessionId::new("");
        if !folders.into_iter().any(|folder| scope.concerns(&nobody, Some(folder))) {
            return Err(Left::NoSession);
        }
        let payload = json!({
            "command": command,
            "exit_code": self.exit_code,
            "duration_ms": self.duration_ms,
            "after": short_duration(duration),
        });
        let severity = if is_failure { Severity::Warning } else { Severity::Info };
        let workspace = Some(self.workspace.as_str().into());
        Ok(Event { workspace, ..Event::own(ENDED, id, severity, payload, now) })
    }
}

fn clean_command(text: &str) -> String {
    let stripped = strip_text(text);
    let masked = mask_secrets(&stripped);
    let line = masked.split_whitespace().collect::<Vec<_>>().join(" ");
    cut_text(line.into(), COMMAND_CHARS_MAX).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(command: &str, exit_code: i32, duration_ms: u64) -> Ran {
        Ran { command: command.to_owned(), exit_code, duration_ms, workspace: "/w/shop/src".to_owned() }
    }

    fn event(ran: &Ran, settings: &Settings, folders: &[&str]) -> Result<String, Left> {
        let event = ran.event("i".to_owned(), settings, folders.iter().copied(), Timestamp::ZERO)?;
        assert_eq!(event.workspace.as_deref(), Some("/w/shop/src"));
        Ok(format!("{} {}", event.severity.as_str(), event.payload.as_str()))
    }

    #[test]
    fn failed_or_long_commands_are_reported_in_workspaces() {
        let settings = Settings::default();
        for (exit_code, duration_ms, expected) in [
            (101, 38_400, Ok("warning 38s")),
            (1, 0, Ok("warning 0s")),
            (0, 5_000, Ok("info 5s")),
            (0, 4_999, Err(Left::Short)),
            (130, 60_000, Err(Left::Short)),
            (148, 60_000, Err(Left::Short)),
        ] {
            let found = event(&ran("cargo test", exit_code, duration_ms), &settings, &["/w/shop"]);
            let expected = expected.map(|text| {
                let (severity, after) = text.split_once(' ').expect("two words");
                let payload = json!({ "command": "cargo test", "exit_code": exit_code, "duration_ms": duration_ms, "after": after });
                format!("{severity} {payload}")
            });
            assert_eq!(found, expected, "{exit_code} after {duration_ms} ms");
        }
        let failed = ran("make", 2, 10);
        for (folders, expected) in [
            (&["/w/shop"][..], true),
            (&["/elsewhere", "/w/shop/src/deep"], true),
            (&["/w/shop2"], false),
            (&[], false),
        ] {
            assert_eq!(event(&failed, &settings, folders).is_ok(), expected, "{folders:?}");
        }
        let off = Settings { enabled: false, ..settings };
        assert_eq!(event(&failed, &off, &["/w/shop"]), Err(Left::Off));
    }

    #[test]
    fn a_command_is_one_clean_line_without_secrets() {
        for (command, expected) in [
            ("for f in *\ndo\n  echo $f\ndone", "for f in * do echo $f done"),
            (
                "curl -H 'Authorization: Bearer abcdefghijklmnopqrstuvwxyz012345'",
                "curl -H 'Authorization: Bearer [masked]'",
            ),
            ("echo \u{1b}[31mred\u{7}", "echo red"),
        ] {
            assert_eq!(clean_command(command), expected);
        }
        assert!(clean_command(&"x".repeat(5_000)).chars().count() < 330);
        assert_eq!(event(&ran(" \n ", 1, 0), &Settings::default(), &["/w/shop"]), Err(Left::Short));
    }
}
