//! The events of one run, and its command line with secrets masked.
//!
//! The command line is published, so it enters the journal and the agent's context. The value of an
//! option or variable with a secret-like name is masked, and so is any text that looks like a
//! credential.

use std::{
    borrow::Cow,
    ffi::OsString,
    io::Write,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use engine::event::mask_secrets;
use hook::client::{Client, ClientError};
use journal::time::duration_millis;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    api::wire::{
        ErrorView,
        event::{Results, SCOPE_HEADER, SCOPE_OF_CALLER},
    },
    cli::{context::object, error::refusal, run::child::Ending, terminal::one_line},
};

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
        let payload = json!({ "task": self.name, "command": self.command });
        self.event(&self.start_id, "task.started", payload, [self.session.as_deref(), None])
    }

    pub(super) fn ended(&self, ending: &Ending, duration: Duration) -> Value {
        let payload = object([
            ("task", Some(json!(self.name))),
            ("command", Some(json!(self.command))),
            ("exit_code", Some(json!(ending.exit_code()))),
            ("duration_ms", Some(json!(duration_millis(duration)))),
            ("tail", Some(json!(ending.last_lines()))),
            ("signal", ending.signal().map(Value::from)),
        ]);
        let event_type = if ending.exit_code() == 0 { "task.completed" } else { "task.failed" };
        let session = self.own_session.get().map(AsRef::as_ref).or(self.session.as_deref());
        self.event(&Uuid::now_v7().to_string(), event_type, payload, [session, Some(&self.start_id)])
    }

    /// Notes the session below whose client it runs.
    pub(super) fn note_session(&self, session: Arc<str>) {
        // It is asked once.
        self.own_session.set(session).ok();
    }

    /// An event that the start event caused.
    pub(super) fn caused(&self, id: &str, event_type: &str, payload: Value) -> Value {
        self.event(id, event_type, payload, [self.session.as_deref(), Some(&self.start_id)])
    }

    fn event(
        &self,
        id: &str,
        event_type: &str,
        payload: Value,
        [session, cause]: [Option<&str>; 2],
    ) -> Value {
        object([
            ("id", Some(id.into())),
            ("type", Some(event_type.into())),
            ("source", Some(SOURCE.into())),
            ("session", session.map(Value::from)),
            ("workspace", self.workspace.clone().map(Value::from)),
            ("payload", Some(payload)),
            ("cause", cause.map(Value::from)),
        ])
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

/// Time limit of a publish, which waits for the disk; a command that has ended should not keep its
/// caller longer. After one in vain a run tries no other for some seconds.
pub(super) const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);

/// Why an event of the run is not published.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error("{0}")]
    Client(ClientError),
    #[error("{0}")]
    Refused(ErrorView),
}

/// The connection to the daemon, which warns once when it fails.
pub(super) struct Publishing<'a> {
    client: Client,
    task: &'a Task,
    /// The output for warnings, and the error of the first failed event until it is reported.
    state: Mutex<(&'a mut (dyn Write + Send), Failure)>,
}

/// Whether a publish has failed.
enum Failure {
    None,
    Unreported(PublishError),
    Reported,
}

impl<'a> Publishing<'a> {
    pub(super) fn new(client: &Client, task: &'a Task, warnings: &'a mut (dyn Write + Send)) -> Self {
        Self { client: client.impatient(PUBLISH_TIMEOUT), task, state: Mutex::new((warnings, Failure::None)) }
    }

    /// Publishes the start of the task. If it is one of a session's own, its end is for that session.
    pub(super) fn publish_start(&self) {
        let wants_session = self.task.scope == TaskScope::Default;
        let scope = wants_session.then_some((SCOPE_HEADER, SCOPE_OF_CALLER));
        match publish(&self.client, &self.task.started(), scope.as_slice()) {
            Ok(Some(session)) => self.task.note_session(session),
            Ok(None) => {}
            Err(error) => self.failed(error),
        }
    }

    /// Whether the daemon accepted the event, or each of a list.
    pub(super) fn publish(&self, events: &Value) -> bool {
        match publish(&self.client, events, &[]) {
            Ok(_) => true,
            Err(error) => {
                self.failed(error);
                false
            }
        }
    }

    fn failed(&self, error: PublishError) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(state.1, Failure::None) {
            state.1 = Failure::Unreported(error);
        }
        drop(state);
        // A watched command has no end at which the error could be reported.
        if self.task.is_watch {
            self.finish();
        }
    }

    pub(super) fn warn(&self, text: &str) {
        self.say(&format!("warning: {text}"));
    }

    pub(super) fn say(&self, text: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a stderr nobody reads it.
        writeln!(state.0, "aside: {}", one_line(text)).ok();
    }

    /// Reports the failure, unless it was reported.
    pub(super) fn finish(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Failure::Unreported(error) = &state.1 {
            let text = format!("aside: warning: {:?} is not published: {error}", self.task.name);
            writeln!(state.0, "{}", one_line(&text)).ok();
            state.1 = Failure::Reported;
        }
    }
}

/// Publishes events; returns the session to which the daemon addressed the first.
fn publish(
    client: &Client,
    events: &Value,
    scope: &[(&str, &str)],
) -> Result<Option<Arc<str>>, PublishError> {
    let headers: Vec<_> =
        [("content-type", "application/json")].into_iter().chain(scope.iter().copied()).collect();
    let response = client
        .request("POST", "/v1/events", &headers, events.to_string().as_bytes())
        .map_err(PublishError::Client)?;
    let answer = serde_json::from_slice::<Results>(&response.body).unwrap_or_default();
    let session = answer.results.first().and_then(|verdict| verdict.session.clone());
    let refused = answer.results.into_iter().find_map(|verdict| verdict.error);
    match (response.status, refused) {
        (_, Some(error)) => Err(PublishError::Refused(error)),
        (200..=299, None) => Ok(session),
        (status, None) => Err(PublishError::Refused(refusal(status, &response.body))),
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
