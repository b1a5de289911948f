//! The events of one run, and its command line with secrets masked.
//!
//! The command line is published, so it enters the journal and the agent's context. The value of an
//! option or variable with a secret-like name is masked, and so is any text that looks like a
//! credential.

use std::{
    borrow::Cow,
    ffi::OsString,
    sync::{Arc, OnceLock},
    time::Duration,
};

use engine::event::mask_secrets;
use journal::time::duration_millis;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::cli::run::child::Ending;

/// The source of these events.
const SOURCE: &str = "run";

/// Who decides the scope of a run's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskScope {
    /// An option.
    Given,
    /// None: they are for the folder, and its end for the session below whose client it runs.
    Default,
}

/// Fields shared by all events of one run.
pub(super) struct Task {
    pub(super) start_id: String,
    pub(super) name: String,
    pub(super) command: String,
    pub(super) session: Option<String>,
    pub(super) scope: TaskScope,
    /// The session below whose client it runs, if no option decides its scope.
    pub(super) own_session: OnceLock<Arc<str>>,
    pub(super) workspace: Option<String>,
    pub(super) is_watch: bool,
}

impl Task {
    pub(super) fn started(&self) -> Value {
        self.event(&self.start_id, "task.started", json!({ "task": self.name, "command": self.command }))
    }

    pub(super) fn ended(&self, ending: &Ending, duration: Duration) -> Value {
        let mut payload = json!({
            "task": self.name,
            "command": self.command,
            "exit_code": ending.exit_code(),
            "duration_ms": duration_millis(duration),
            "tail": ending.last_lines(),
        });
        if let (Some(signal), Some(payload)) = (ending.signal(), payload.as_object_mut()) {
            payload.insert("signal".to_owned(), signal.into());
        }
        let event_type = if ending.exit_code() == 0 { "task.completed" } else { "task.failed" };
        let mut event = self.caused(&Uuid::now_v7().to_string(), event_type, payload);
        if let (Some(session), Some(event)) = (self.own_session.get(), event.as_object_mut()) {
            event.insert("session".to_owned(), session.as_ref().into());
        }
        event
    }

    /// Notes the session below whose client it runs.
    pub(super) fn note_session(&self, session: Arc<str>) {
        // It is asked once.
        self.own_session.set(session).ok();
    }

    /// An event that the start event caused.
    pub(super) fn caused(&self, id: &str, event_type: &str, payload: Value) -> Value {
        let mut event = self.event(id, event_type, payload);
        if let Some(event) = event.as_object_mut() {
            event.insert("cause".to_owned(), self.start_id.as_str().into());
        }
        event
    }

    fn event(&self, id: &str, event_type: &str, payload: Value) -> Value {
        let fields = [
            ("id", Some(id.into())),
            ("type", Some(event_type.into())),
            ("source", Some(SOURCE.into())),
            ("session", self.session.clone().map(Value::from)),
            ("workspace", self.workspace.clone().map(Value::from)),
            ("payload", Some(payload)),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// Longest published command line, in characters.
const COMMAND_CHARS_MAX: usize = 1_000;
/// The replacement of a secret, as written by [`mask_secrets`].
const MASK: &str = "[masked]";
/// Last parts of names with a secret value, in lower case.
const SECRET_NAMES: [&str; 8] =
    ["password", "passwd", "passphrase", "token", "secret", "apikey", "api-key", "access-key"];

/// The command line without secrets, cut to [`COMMAND_CHARS_MAX`].
pub(super) fn command_line(command: &[OsString]) -> String {
    let mut line = String::new();
    let mut is_secret = false;
    for word in command {
        let word = word.to_string_lossy();
        let (shown, next_is_secret) = match word.split_once('=') {
            _ if is_secret && !word.starts_with('-') => (MASK.into(), false),
            Some((name, _)) if is_secret_name(name) => (format!("{name}={MASK}").into(), false),
            Some(_) => (mask_secrets(&word), false),
            None => (mask_secrets(&word), word.starts_with('-') && is_secret_name(&word)),
        };
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&quoted(&shown));
        is_secret = next_is_secret;
    }
    line.chars().take(COMMAND_CHARS_MAX).collect()
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    SECRET_NAMES.iter().any(|secret| name.ends_with(secret))
}

fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%[]".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_command_line_are_masked() {
        for (words, line) in [
            (&["sh", "-c", "echo it's"][..], r"sh -c 'echo it'\''s'"),
            (&["curl", "--password=x y", "-u", "me"], "curl --password=[masked] -u me"),
            (&["deploy", "--api-key", "abc", "--dry-run"], "deploy --api-key [masked] --dry-run"),
            (&["deploy", "--token", "--verbose"], "deploy --token --verbose"),
            (&["env", "GITHUB_TOKEN=abc", "A=b", "make"], "env GITHUB_TOKEN=[masked] A=b make"),
            (&["psql", "postgres://u:secret@h/d"], "psql postgres://u:[masked]@h/d"),
            (&["tokens", "secret"], "tokens secret"),
            (&["x", ""], "x ''"),
        ] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(command_line(&words), line);
        }
    }
}
